"""What a step costs: the same for any number of rows and of basis functions."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.inference.plan.options import WeightChoice
from gpdsl.inference.quadruply_stochastic.choice import _cost
from gpdsl.inference.quadruply_stochastic.sampled import SampledFit
from gpdsl.inference.quadruply_stochastic.unsampled import SweptFit
from gpdsl.inference.quadruply_stochastic.weights import fourier_features, start_weights
from gpdsl.program.cache import precision
from tests.inference.quadruply_stochastic.conftest import REGRESSION, make_problem
from tests.timing import holds_once, processor_seconds

FITS = {"sampled": SampledFit, "running": SweptFit}


def begun_fit(rng: np.random.Generator, sums: str, rows: int, features: int) -> SampledFit | SweptFit:
    """A fit with steps of one size, before the first of them."""
    x = rng.standard_normal((rows, 2))
    sizes = {"features": features, "batch": 100, "feature_batch": 500, "feature_sums": sums}
    problem = make_problem(REGRESSION, {"x": x, "y": x[:, 0]}, "float32", **sizes)
    q = start_weights(features, 0, 1.0, "float32")
    return FITS[sums](problem, fourier_features(problem.program, features, 0), q, problem.parameters)


def working_memory(fit: SampledFit | SweptFit) -> int:
    """Bytes that a sweep or a chunk of steps takes besides the state, which it changes in place."""
    if isinstance(fit, SampledFit):
        return int(fit._chunk.memory_analysis().temp_size_in_bytes)
    swept = partial(fit._swept, learning=True), fit.state, *fit._places()
    compiled: Any = fit.problem.compiled(*swept, given=(0,))
    return int(compiled.memory_analysis().temp_size_in_bytes)


@pytest.mark.parametrize("sums", ["running", pytest.param("sampled", marks=pytest.mark.slow)])
def test_steps_take_as_much_memory_for_many_functions_as_for_few(rng: np.random.Generator, sums: str) -> None:
    """Weights are written in place, and nothing is copied where a loop starts."""
    with precision("float32"):
        few, many = (working_memory(begun_fit(rng, sums, 500, features)) for features in (12_000, 1_200_000))
    assert many < few + 100_000  # a vector of weights has 4.8 MB


@pytest.mark.parametrize(
    ("sums", "chevron", "operations", "numbers"),
    [
        # a value takes 30 operations, 2 a column and 4 a column of the root, and its slope as many
        ("sampled", 0, 2 * 260 * 40 * (30 + 6 + 4), 3 * 260 * 40 + 4 * 40),
        ("sampled", 2, 2 * 260 * 40 * (30 + 6 + 12), 3 * 260 * 40 + 10 * 40),
        # a matrix of the rows is added up in each step, and factorised once in a pass of three
        ("running", 0, 2 * 260 * 40 * 40 + 2 * 100**2 * 40 + 100**3 / 9, 3 * 260 * 40 + 100**2 + 4 * 40),
        ("solved", 2, 110**2 * (2 * 100 + 5 * 110), 6 * 110**2),
    ],
)
def test_what_a_step_costs_is_counted(sums: str, chevron: int, operations: float, numbers: float) -> None:
    weights = WeightChoice(110, chevron, 40, 60, sums, 0)
    choice: Any = SimpleNamespace(batch=100)
    assert _cost(choice, weights, 3) == (pytest.approx(operations), pytest.approx(numbers))


@pytest.mark.parametrize("features", [999, 1000, 1001])
def test_a_pass_takes_every_function_once(rng: np.random.Generator, features: int) -> None:
    """And all steps of a fit are whole passes."""
    sizes = {"features": features, "batch": 50, "feature_batch": 500, "feature_sums": "running"}
    x = rng.standard_normal((60, 2))
    choice = make_problem(REGRESSION, {"x": x, "y": x[:, 0]}, "float32", **sizes).choice
    assert choice.weights.steps_a_sweep == len(range(0, features, 500))
    assert choice.steps > 0 and choice.steps % choice.weights.steps_a_sweep == 0


@pytest.mark.slow
@pytest.mark.parametrize("sums", FITS)
@pytest.mark.parametrize(("rows", "features"), [(1_000, 1_000_000), (300_000, 10_000)])
def test_the_time_of_a_step_is_flat(rng: np.random.Generator, sums: str, rows: int, features: int) -> None:
    with precision("float32"):
        fits = [begun_fit(rng, sums, *sizes) for sizes in ((1_000, 10_000), (rows, features))]
        steps = [fit.advance()[0] for fit in fits]  # and compiled now

        def flat() -> bool:
            small, large = (processor_seconds(fit.advance) / each for fit, each in zip(fits, steps, strict=True))
            return large < 1.5 * small

        assert holds_once(flat)
    assert bool(jnp.all(jnp.isfinite(fits[1].q.vectors)))
