"""A short form of the campaign, whose counts stand in docs/reliability.md."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time

import pytest

from gpdsl.errors import GpdslError
from tests.campaign import data_files
from tests.campaign.__main__ import FAILURES, KINDS
from tests.campaign.outcomes import Hung, Outcomes

SCALES = {"edited_fits": 0.001, "texts": 0.0004, "data_files": 0.06, "servers": 0.05, "fitted_models": 0.02}


LONG = {"interrupted_fits", "fitted_models"}


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k in LONG else []) for k in KINDS])
def test_nothing_raw_comes_of_hostile_things(kind: str) -> None:
    if importlib.util.find_spec(f"tests.campaign.{kind}") is None:
        pytest.skip("not written yet")
    found = importlib.import_module(f"tests.campaign.{kind}").run(SCALES.get(kind, 0.002), 11)
    assert found["tried"] > 0
    assert {each: found.get(each, 0) for each in FAILURES} == dict.fromkeys(FAILURES, 0)


def _raise(problem: BaseException) -> None:
    raise problem


def test_an_alarm_is_not_lost_where_everything_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "SECONDS", 0.05)
    for caught, then in ((1, 5.0), (3, 0.0)):
        with pytest.raises(Hung), data_files.limited():
            for _ in range(caught):
                with contextlib.suppress(BaseException):  # as a destructor does
                    time.sleep(0.2)
            time.sleep(then)


def test_what_goes_wrong_is_counted() -> None:
    outcomes = Outcomes()
    for problem in (ValueError("x"), Hung("x"), AssertionError("x"), GpdslError(""), GpdslError("said")):
        outcomes.attempt("trial", lambda problem=problem: _raise(problem))
    outcomes.attempt("trial", lambda: None)
    assert outcomes.counts == {"tried": 6, "raw": 1, "hung": 1, "executed": 0, "lost": 0, "wrong": 2}
