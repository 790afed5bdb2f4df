"""What a step costs: the same for any number of rows and of basis functions."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference import variational
from gpdsl.inference.monitor import Monitor
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.quadruply_stochastic.features import fourier_features
from gpdsl.inference.quadruply_stochastic.sampled_fit import CHUNK, SampledFit
from gpdsl.inference.quadruply_stochastic.weights import start_weights
from gpdsl.program.precision import precision
from gpdsl.program.program import make_rows
from gpdsl.results.fitting import prepare
from tests.inference.quadruply_stochastic.conftest import REGRESSION
from tests.timing import holds_once, processor_seconds


def sampled_fit(rng: np.random.Generator, rows: int, features: int) -> SampledFit:
    """The paper's steps with draws of one size, before the first of them."""
    x = rng.standard_normal((rows, 2))
    sizes = {"features": features, "batch": 100, "support": 50, "feature_batch": 500, "start_rows": 0}
    given = {"engine": "qsgp", "feature_sums": "sampled", **sizes}
    program, data, options = prepare(gpdsl.compile(REGRESSION), {"x": x, "y": x[:, 0]}, {}, given)
    planned = variational.plan(program, data, options)
    table = as_arrays(make_rows(program, data), "float32")
    learnt = as_arrays(program.parameters.unconstrained(), "float32")
    monitor = Monitor(1)
    problem = Problem(program, table, rows, planned.layout, planned.choice, options, learnt, [], 0.0, monitor)
    q = start_weights(features, 0, 1.0, "float32")
    return SampledFit(problem, fourier_features(program, features, 0), q, learnt)


def test_no_step_copies_what_it_does_not_touch(rng: np.random.Generator) -> None:
    """Weights are written in place: the compiled loop copies them where it starts, and nowhere else."""
    features = 123_457
    with precision("float32"):
        text = sampled_fit(rng, 500, features)._chunk.as_text()
    copies = re.findall(rf"f32\[(?:1,)?{features}\]\S* copy\(%(\S+)\)", text)
    assert len(copies) <= 3  # the mean, the curvature, AdaGrad's sums
    assert all("state" in name for name in copies)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "features"), [(1_000, 1_000_000), (300_000, 10_000)])
def test_the_time_of_a_step_is_flat(rng: np.random.Generator, rows: int, features: int) -> None:
    with precision("float32"):
        small, large = sampled_fit(rng, 1_000, 10_000), sampled_fit(rng, rows, features)
        for fit in (small, large):
            fit.advance()

        def flat() -> bool:
            return processor_seconds(large.advance) < 1.5 * processor_seconds(small.advance)

        assert holds_once(flat)
    assert large.done >= 2 * CHUNK
    assert bool(jnp.all(jnp.isfinite(large.q.vectors)))
