"""Small problems of one latent, and everything the dense reference of a posterior over weights needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.problem import Problem, as_arrays
from gpdsl.inference.quadruply_stochastic.weights import Features, Weights, fourier_features
from gpdsl.program.cache import jit
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.results.fitting import prepare
from tests.inference.problems import problem_of

REGRESSION = """
input x : real[2]
output y : real
param mu : real = 0.3
param s2 : positive = 1.4
param ell : positive[2] = 0.9
param sigma : positive = 0.4
latent f(x) ~ GP(mu, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""

CLASSES = """
input x : real[2]
output y : binary
param s2 : positive = 2.0
latent f(x) ~ GP(0, s2 * RBF(1.2))
y ~ Bernoulli(logit = f)
"""


@dataclass(frozen=True)
class Case:
    """A program at its declared parameters, its rows, m basis functions, and an arbitrary q(w)."""

    program: Program
    rows: Rows
    learnt: dict
    features: Features
    q: Weights

    @property
    def count(self) -> int:
        """n."""
        return self.rows.inputs["x"].shape[0]

    def phi(self) -> np.ndarray:
        """All of Phi."""
        return self._phi

    @cached_property
    def _phi(self) -> np.ndarray:
        index = np.arange(self.features.count)
        return np.asarray(jit(lambda x: self.features.values(self.learnt, x, index))(self.rows.inputs["x"]))

    def root(self) -> np.ndarray:
        """C, written out."""
        alone = self.q.deviation(jnp.ones(self.features.count), jnp.arange(self.features.count))
        root = np.diag(np.asarray(alone))
        root[:, : self.q.columns] = np.asarray(self.q.vectors[1:]).T
        return root


def make_case(text: str, rng: np.random.Generator, n: int = 12, m: int = 8, columns: int = 2) -> Case:
    """Fresh rows and a random chevron."""
    x = rng.standard_normal((n, 2))
    y = np.sin(x[:, 0]) + 0.3 * rng.standard_normal(n)
    outputs = (rng.random(n) < 0.5).astype(int) if "binary" in text else y
    program, data, _ = prepare(gpdsl.compile(text), {"x": x, "y": outputs}, {}, {})
    vectors = 0.5 * rng.standard_normal((1 + columns, m))
    for column in range(columns):
        vectors[1 + column, :column] = 0.0
        vectors[1 + column, column] = 0.3 + rng.random()
    q = Weights(jnp.asarray(vectors), jnp.asarray(1.0 + 3.0 * rng.random(m)))
    learnt = as_arrays(program.parameters.unconstrained(), "float64")
    rows = as_arrays(make_rows(program, data), "float64")
    return Case(program, rows, learnt, fourier_features(program, m, 3), q)


def make_problem(text: str, table: dict[str, np.ndarray], dtype: str, **given: Any) -> Problem:
    """What the engine is given, at the declared parameters."""
    return problem_of(text, table, engine="qsgp", start_rows=0, dtype=dtype, **given)


@pytest.fixture
def regression(rng: np.random.Generator) -> Case:
    """Gaussian noise."""
    return make_case(REGRESSION, rng)


@pytest.fixture
def classes(rng: np.random.Generator) -> Case:
    """Logistic classification."""
    return make_case(CLASSES, rng)


@pytest.fixture
def make() -> Callable[..., Case]:
    """Regressions of other sizes."""
    return partial(make_case, REGRESSION)
