"""A bound that is not finite is explained: the latent, its kernel and matrix, or the likelihood and the row."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.diagnosis import _largest_terms, diagnose
from gpdsl.inference.infer import plan
from gpdsl.kernels.form import Base
from gpdsl.kernels.functionals import Combination, Values
from gpdsl.program.cache import precision
from gpdsl.program.program import make_rows
from gpdsl.results.fitting import prepare

START = "input x : real\noutput y : real\n"
X = np.random.default_rng(3).normal(size=30)


def said(text: str, x: np.ndarray = X, jitter: float = 1e-8, exact: bool = False, **options: Any) -> str:
    """What is said about a model at its starting values."""
    model = gpdsl.compile(text)
    program, data, chosen = prepare(model, {"x": x, "y": np.ones(len(x))}, {}, {"inducing": 0, **options})
    with precision(chosen.dtype):
        inducing = plan(program, data, chosen).inducing
        learnt = program.parameters.unconstrained()
        return diagnose(program, learnt, inducing, make_rows(program, data), chosen.dtype, jitter, exact).text


@pytest.mark.parametrize(
    ("body", "change", "expected"),
    [
        ("latent f(x) ~ GP(0, RBF(ell))", {"x": np.append(X, X[0]), "jitter": 0.0}, "1 of the 31 points are repeated"),
        ("latent f(x) ~ GP(0, RBF(1e7 * ell))", {"jitter": 0.0}, "length-scale is far beyond the spread"),
        ("latent f(x) ~ GP(0, RBF(ell))", {"jitter": 0.0}, "points are too close together for a kernel this smooth"),
        ("latent f(x) ~ GP(0, RBF(ell))", {"jitter": 0.0, "dtype": "float32"}, "single precision is too coarse"),
        ("kernel k(r) = ell * exp(-r^4)\nlatent f(x) ~ GP(0, k())", {}, "it has negative eigenvalues"),
        ("latent f(x) ~ GP(0, Linear(ell) * Linear(1))", {"x": 1e200 * X}, "entries that are not finite"),
    ],
)
def test_kernels(body: str, change: dict[str, Any], expected: str) -> None:
    found = said(f"{START}param s : positive = 1\nparam ell : positive = 1\n{body}\ny ~ Normal(f, s)\n", **change)
    assert expected in found
    assert re.search(r"latent `f`, kernel .*, size \d+, ", found)


def test_exact_inference_is_told_its_noise_and_not_that_a_kernel_is_smooth() -> None:
    text = f"{START}latent f(x) ~ GP(0, RBF(1))\n"
    assert said(text + "y ~ Normal(f, 1e-9)\n", jitter=0.0, exact=True).startswith("the noise is next to nothing")
    assert "log density of `y`" in said(text + "y ~ Normal(f + log(x), 1)\n", jitter=0.0, exact=True)
    bad = f"{START}kernel k(r) = exp(-r^4)\nlatent f(x) ~ GP(0, k())\ny ~ Normal(f, 1e-9)\n"
    assert "it has negative eigenvalues" in said(bad, jitter=0.0, exact=True)


def test_differences_of_nearby_values_are_too_small_for_single_precision() -> None:
    """Their covariances are rounded like the values' own, which is no fault of the kernel."""
    model = gpdsl.zoo("preference")
    drawn = model.sample_prior(rows=40, seed=1).data
    real = [name for name, declared in model.declarations.inputs.items() if declared.kind == "real"]
    data = {name: 1e-3 * values if name in real else values for name, values in drawn.items()}
    program, bound, chosen = prepare(model, data, {}, {"inducing": 0, "dtype": "float32"})
    with precision("float32"):
        inducing = plan(program, bound, chosen).inducing
        learnt = program.parameters.unconstrained()
        found = diagnose(program, learnt, inducing, make_rows(program, bound), "float32", 1e-3).text
    assert "single precision is too coarse" in found


def test_the_row_at_which_a_likelihood_is_infinite_is_named() -> None:
    text = f"{START}param m : real = 800\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(exp(f + m), 1)\n"
    found = said(text)
    assert "log density of `y` ~ Normal is not finite in row 1 (`y` = 1)" in found
    assert "starting values" in found


def test_a_likelihood_that_overflows_under_the_prior() -> None:
    text = f"{START}latent f(x) ~ GP(0, 1000*RBF(1))\ny ~ Normal(exp(exp(f)), 1)\n"
    assert "likelihood overflows" in said(text)


def test_a_fit_that_cannot_start_says_so_with_the_reason() -> None:
    text = f"{START}param m : real = 800 fixed\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(exp(f + m), 1)\n"
    with pytest.raises(gpdsl.GpdslError, match=r"not a finite number: the log density of `y` ~ Normal"):
        gpdsl.compile(text).fit({"x": X, "y": X}, progress=False)


def test_the_terms_of_a_sum_are_as_large_as_they_would_be_if_nothing_cancelled() -> None:
    """Of 2 f(x) - f(z) / 2 with variance 1: (2 + 1/2)^2, however near x and z are."""
    points = [Values(jnp.asarray([[at], [at + 1.0]])) for at in (0.0, 1e-9)]
    group: Any = SimpleNamespace(form=Base("RBF", ("ell",)))
    found = _largest_terms(group, [jnp.asarray(1.0)], Combination((points[0], points[1]), (2.0, -0.5)))
    assert found == pytest.approx(6.25, rel=1e-6)
    assert _largest_terms(group, [jnp.asarray(1.0)], points[0]) == 0.0
