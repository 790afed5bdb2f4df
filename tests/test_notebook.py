"""Notebooks: cells that are models, their completion, and the ways in which objects are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.notebook import load_ipython_extension, suggested
from gpdsl.shown import mimebundle
from tests.inference.problems import unlearnt

TEXT = "input x : real\noutput y : real\nparam ell : positive = 1\nlatent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, 0.1)\n"
CELL = "%%gpm small\n" + TEXT


class Shell:
    """What is asked of IPython."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        assert kind == "cell"
        self.magics[name] = function


@pytest.fixture
def shell() -> Shell:
    found = Shell()
    load_ipython_extension(found)
    return found


def test_a_cell_is_a_model(shell: Shell) -> None:
    assert gpdsl.load_ipython_extension is load_ipython_extension
    shown = shell.magics["gpm"]("small", TEXT)
    assert shell.user_ns["small"] is shown and list(shown.declarations.latents) == ["f"]
    shell.magics["gpm"]("", TEXT)
    assert "model" in shell.user_ns


def test_mistakes_are_shown_as_on_the_command_line(shell: Shell) -> None:
    with pytest.raises(gpdsl.ModelError) as caught:
        shell.magics["gpm"]("bad", TEXT.replace("RBF(ell)", "RBF(el)"))
    lines = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert lines[0].startswith("%%gpm bad:4:") and "unknown name `el`" in "\n".join(lines)
    assert "bad" not in shell.user_ns
    with pytest.raises(gpdsl.GpdslError, match="%%gpm two words: expected a name for the model"):
        shell.magics["gpm"]("two words", TEXT)


def test_words_are_completed_inside_of_cells_alone() -> None:
    lines = CELL.split("\n")
    kernel = CELL.replace("RBF(ell)", "Mate")
    assert {"Matern12", "Matern32", "Matern52"} == {
        text for text, _ in suggested(kernel, 4, lines[4].index("RBF") + len("Mate"))
    }
    assert ("ell", "param") in suggested(CELL, 4, lines[4].index("ell") + 1)
    assert ("latent", "statement") in suggested(CELL + "lat", 6, 3)
    assert suggested(CELL, 0, 3) == suggested("import os\n" + TEXT, 2, 1) == []


def test_ipython_takes_the_words() -> None:
    completer = pytest.importorskip("IPython.core.completer", reason="IPython")
    shell = Shell()
    shell.Completer = SimpleNamespace(custom_matchers=[])  # type: ignore[attr-defined]
    load_ipython_extension(shell)
    (match,) = shell.Completer.custom_matchers  # type: ignore[attr-defined]
    context = SimpleNamespace(full_text=CELL + "lat", cursor_line=6, cursor_position=3)
    found = match(context)
    assert isinstance(found["completions"][0], completer.SimpleCompletion)
    assert (found["completions"][0].text, found["matched_fragment"], found["suppress"]) == ("latent", "lat", True)


def test_objects_are_shown_in_several_ways() -> None:
    model = gpdsl.compile(TEXT)
    bundle = model._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "text/latex"}
    assert bundle["text/plain"] == repr(model)
    assert bundle["text/latex"].startswith("\\begin{align*}") and r"\mathcal{GP}" in bundle["text/latex"]
    assert all(part in bundle["text/html"] for part in ("<svg", "input", "<summary>Equations</summary><math"))
    drawn = model.sample_prior(rows=50)
    assert repr(drawn) == "<gpdsl.Simulation: 50 rows of x, y; behind them ell, f>"
    assert set(model._repr_mimebundle_(include={"text/html"})) == {"text/html"}
    x = np.linspace(0, 1, 8)
    fit = unlearnt(model, {"x": x, "y": x})
    for each in (fit, fit.predict({"x": x})):
        assert set(each._repr_mimebundle_()) == {"text/plain", "text/html"}
        assert set(each._repr_mimebundle_(exclude=["text/html"])) == {"text/plain"}
    assert mimebundle(object())["text/plain"].startswith("<object")
