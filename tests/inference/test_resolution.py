"""What data, samples and precision leave open is said of a fit, and what cannot be is not called converged."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.expectation_propagation import engine
from gpdsl.inference.resolution import notes_on_inputs

HEAD = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n"
X = np.linspace(0, 3, 12)


@pytest.mark.parametrize(("above", "converged"), [(-0.1, True), (0.1, False)])
def test_a_log_z_above_certainty_is_not_called_converged(
    above: float, converged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    certain = len(X) * stats.t.logpdf(0.0, 2, scale=0.02) + above
    settle = engine.drive

    def too_high(*given: Any) -> Any:
        return replace(settle(*given), elbo=certain)

    monkeypatch.setattr(engine, "drive", too_high)
    fit = gpdsl.compile(HEAD + "y ~ StudentT(2, f, 0.02)\n").fit({"x": X, "y": np.sin(X)}, engine="ep")
    assert fit.message.startswith("converged") == converged
    assert any("log Z is above" in note for note in fit.notes) != converged


def test_a_bound_that_samples_leave_unknown_is_said() -> None:
    model = gpdsl.compile(HEAD + "latent g(x) ~ GP(0, RBF(1))\ny ~ Normal(9 * sin(5 * f * g), 0.02)\n")
    fit = model.fit({"x": X, "y": 5 * np.sin(X)}, steps=3, samples=4, optimizer="adam", expectations="sampled")
    assert fit.elbo_se > 3 and any("ask for more of them, as samples = 16" in note for note in fit.notes)


@pytest.mark.parametrize(("offset", "dtype", "said"), [(1e6, "float32", 1), (1e6, "float64", 0), (0.0, "float32", 0)])
def test_inputs_that_single_precision_rounds_are_said(offset: float, dtype: str, said: int) -> None:
    fit = gpdsl.compile(HEAD + "y ~ Normal(f, 0.1)\n").fit({"x": X + offset, "y": np.sin(X)}, dtype=dtype)
    assert sum("distances between rows have lost their digits" in note for note in fit.notes) == said


@pytest.mark.parametrize("worst", [0, 1])
@pytest.mark.parametrize(("far", "told"), [(9e3, True), (8e3, False)])
def test_the_column_that_single_precision_does_not_resolve_is_named(worst: int, far: float, told: bool) -> None:
    """To a thousandth of its spread: where it is 8389 times that away from zero."""
    x = np.random.default_rng(0).normal(size=(50, 2)) * [2.0, 70.0]
    x[:, worst] += far * np.std(x[:, worst])
    program: Any = SimpleNamespace(declarations=SimpleNamespace(latents={"f": SimpleNamespace(arguments=("x", "z"))}))
    data: Any = SimpleNamespace(inputs={"x": x}, rows=50, column_names={"x": ("east", "north")})
    notes = notes_on_inputs(program, data)
    assert [note.partition(" holds")[0] for note in notes] == [f"column `{('east', 'north')[worst]}`"] * told
