"""What `explain` says of how opaque functions are called."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import gpdsl
from gpdsl.forward.registry import described, explain_externals


def function(a: Any) -> Any:
    return a


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "all rows at once, in this process; no time-out; a failure is an error"),
        (
            {"vectorized": False, "workers": 3, "timeout": 2.5, "policy": gpdsl.retry(1, "penalise")},
            "a row at a time, in 3 threads; at most 2.5 s a call; a failure is tried again 1 time, then penalised",
        ),
        (
            {"executor": "processes", "workers": 2, "cache": "values.sqlite", "policy": "penalise"},
            "all rows at once, in 2 processes; at most 600 s a call; a failure is penalised; "
            "values kept in values.sqlite",
        ),
        (
            {"executor": ThreadPoolExecutor(1), "workers": 1, "timeout": math.inf, "gradient": function},
            "all rows at once, by ThreadPoolExecutor, 1 worker; no time-out; a failure is an error; with a gradient",
        ),
        (
            {"executor": SimpleNamespace(map=map), "workers": 2, "policy": gpdsl.retry(2)},
            "all rows at once, by SimpleNamespace.map, 2 workers; at most 600 s a call; "
            "a failure is tried again 2 times, then an error",
        ),
    ],
)
def test_how_a_function_is_called(how: dict[str, Any], text: str) -> None:
    assert described(gpdsl.opaque(function, **how)) == text


def test_servers_are_named() -> None:
    model = gpdsl.umbridge(["http://a:1", "http://b:2/"], "forward")
    assert described(model).startswith(
        "a row at a time, through UM-Bridge at http://a:1, http://b:2; at most 60 s a call"
    )


def test_a_plan_names_the_functions_it_calls() -> None:
    text = "model m\ninput x : real\noutput y : real\nexternal g(a: real) -> real\nlatent f(x) ~ GP(0, RBF(1))\n"
    model = gpdsl.compile(text + "let r = g(f)\ny ~ Normal(r, 0.3)\n", externals={"g": function})
    plan = model.explain({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    assert "\nopaque functions\n  g: all rows at once, in this process; " in plan
    assert explain_externals([]) == []
