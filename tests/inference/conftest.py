"""Shared pieces of the inference tests: small problems, and double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference import infer
from gpdsl.inference.driver import Engine
from gpdsl.inference.problem import Problem
from gpdsl.program.cache import precision


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with precision("float64"):
        yield


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's name: fresh inputs for each test, the same in every run."""
    return np.random.default_rng(sum(map(ord, request.node.name)))


REGRESSION = """
input x : real[2]
output y : real
param s2 : positive = 1.5
param ell : positive[2] = 0.8
param sigma : positive = 0.3
param mu : real = 0.2
latent f(x) ~ GP(mu, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""

COUNTS = """
input x : real
output n : count
param s2 : positive = 1
param ell : positive = 0.7
latent f(x) ~ GP(0, s2 * Matern52(ell))
n ~ Poisson(exp(f + 0.3))
"""

NOISY = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent h(x) ~ GP(-1, 0.5 * RBF(2))
y ~ StudentT(4, f, exp(h))
"""


@pytest.fixture
def regression(rng: np.random.Generator) -> tuple[gpdsl.Model, dict[str, np.ndarray]]:
    """Forty rows of a smooth function of two inputs with noise."""
    x = rng.normal(size=(40, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=40)
    return gpdsl.compile(REGRESSION), {"x": x, "y": y}


@pytest.fixture
def counts(rng: np.random.Generator) -> tuple[gpdsl.Model, dict[str, np.ndarray]]:
    """Thirty-five counts with a rate that varies."""
    x = np.sort(rng.uniform(-2, 2, size=35))
    return gpdsl.compile(COUNTS), {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 0.3))}


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The problem that a fit by expectation propagation would hand to the engine."""

    class Enough(Exception):
        pass

    def problem_of(model: gpdsl.Model, data: dict[str, np.ndarray], **options: Any) -> Problem:
        found: list[Problem] = []

        def catch(problem: Problem) -> Any:
            found.append(problem)
            raise Enough

        with monkeypatch.context() as patch:
            patch.setattr(infer, "SEARCHES", [(lambda *_: True, Engine("ep", catch))])
            with pytest.raises(Enough):
                model.fit(data, engine="ep", **options)
        return found[0]

    return problem_of
