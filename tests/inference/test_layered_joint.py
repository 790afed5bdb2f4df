"""All rows together through layers: whole functions, and covariances between rows."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.layered import joint
from tests.inference.problems import unlearnt

SKIPS = """
index q in 1..2
input x : real
output y : real
param ell : positive = 1
latent h[q](x) ~ GP(x, 0.3 * RBF(1))
latent g(h) ~ GP(h[1], 0.3 * Matern52(2))
latent f(g, x) ~ GP(0, RBF(ell, on = g) + 0.1 * Linear(on = x))
latent k(x) ~ GP(0, 0.2 * RBF(0.5))
let eta = f + 2 * k
y ~ Normal(eta, 0.2)
"""


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 40)
    data = {"x": x, "y": np.where(x > 0.2, 1.0, -1.0) + 0.1 * rng.standard_normal(40)}
    return unlearnt(SKIPS, data, inducing=8)


@pytest.fixture(scope="module")
def two() -> gpdsl.Fit:
    """The same without the layer between: of fewer lines to trace."""
    text = SKIPS.replace("latent g(h) ~ GP(h[1], 0.3 * Matern52(2))\n", "").replace("f(g, x)", "f(h, x)")
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 40)
    data = {"x": x, "y": np.where(x > 0.2, 1.0, -1.0) + 0.1 * rng.standard_normal(40)}
    return unlearnt(text.replace("on = g", "on = h"), data, inducing=8)


NEW = {"x": np.array([-3.0, 0.1, 0.1001, 0.6, 4.0])}


@pytest.mark.slow
def test_drawn_functions_have_the_joint_law_of_draws_of_all_rows(fit: gpdsl.Fit) -> None:
    """Both are samples: compared within five of their standard errors, latent by latent, with means and covariances."""
    functions, prediction, count = fit.draw_functions(400, seed=3), fit.predict(NEW), 1500
    for name in ("g", "f", "eta"):
        drawn, known = functions(NEW, name), prediction.draws(name, count, seed=4)
        error = np.sqrt(known.var(axis=0) * (1 / count + 1 / 400))
        assert np.all(np.abs(drawn.mean(axis=0) - known.mean(axis=0)) < 5 * error)
        kurtosis = np.mean((known - known.mean(axis=0)) ** 4, axis=0) / known.var(axis=0) ** 2
        relative = np.sqrt((kurtosis - 1) * (1 / count + 1 / 400))
        assert np.all(np.abs(drawn.var(axis=0) / known.var(axis=0) - 1) < 5 * relative)
        np.testing.assert_allclose(np.corrcoef(drawn.T), np.corrcoef(known.T), atol=0.2)
        assert np.corrcoef(drawn[:, 1], drawn[:, 2])[0, 1] > 0.999


def test_drawn_functions_are_the_same_wherever_and_however_often_they_are_asked(two: gpdsl.Fit) -> None:
    functions = two.draw_functions(3, seed=1)
    whole = functions(NEW, "f")
    np.testing.assert_allclose(functions[2]({"x": NEW["x"][1:2]}, "f"), whole[2, 1:2], rtol=1e-9)
    np.testing.assert_array_equal(copy.deepcopy(functions)(NEW, "f"), whole)
    np.testing.assert_allclose(functions(NEW, "eta"), whole + 2 * functions(NEW, "k"), rtol=1e-12)


def test_covariances_are_those_of_draws(two: gpdsl.Fit) -> None:
    prediction, count = two.predict(NEW), 2000
    for name in ("k", "f", "eta", "y"):
        found, drawn = prediction.covariance(name), prediction.draws(name, count, seed=2)
        sd = np.sqrt(np.diag(found))
        np.testing.assert_allclose(found / np.outer(sd, sd), np.cov(drawn.T) / np.outer(sd, sd), atol=0.15)
        np.testing.assert_allclose(sd, np.sqrt(prediction.variance(name)), rtol=1e-6 if name in "kf" else 0.1)
    first = prediction.covariance("h")  # of the lowest layer nothing is estimated
    alone = prediction.draws("h", 2000, seed=2)
    np.testing.assert_allclose(np.diag(first[:, 0, :, 0]), alone[..., 0].var(axis=0), rtol=0.2)
    assert not np.any(first[:, 0, :, 1])


def test_what_values_tell_and_leave_open_is_that_of_dense_algebra(fit: gpdsl.Fit) -> None:
    """Of a latent, given values of those that it is a function of: root root' and the variance left open."""
    beliefs, groups = fit.predict(NEW).beliefs, fit.program.groups
    place = next(i for i, group in enumerate(groups) if group.names == ("g",))
    known = np.random.default_rng(3).standard_normal((len(NEW["x"]), fit.program.latents))
    of_it = joint.partial(joint._roots, beliefs.program, place, fit.jitter)
    found = joint.jit(of_it, brief=True)(fit.at_rows.numbers, beliefs.rows, known)
    mean, root, left = (np.asarray(each)[0] for each in found)
    h = known[:, next(group.start for group in groups if group.names[0] == "h") :][:, :2]
    points, q = np.asarray(fit.inducing[place].points), fit.posterior[place]

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        d = np.sqrt(5 * np.sum((a[:, None] - b) ** 2, axis=-1)) / 2
        return (1 + d + d**2 / 3) * np.exp(-d)

    phi = kernel(h, points) @ np.linalg.inv(np.linalg.cholesky(kernel(points, points) + fit.jitter * np.eye(8))).T
    np.testing.assert_allclose(mean, h[:, 0] + np.sqrt(0.3) * phi @ np.asarray(q.mean)[0, 0], atol=1e-7)
    told = phi @ np.asarray(q.root)[0, 0]
    np.testing.assert_allclose(root @ root.T, 0.3 * told @ told.T, atol=1e-7)
    np.testing.assert_allclose(left, 0.3 * (1 - np.sum(phi**2, axis=1)), atol=1e-7)
    assert np.max(left) > 0.01


def test_functions_of_row_variables_are_refused_with_a_reason(rng: np.random.Generator) -> None:
    text = "input x : real\noutput y : real\nrow w ~ Normal(0, 1)\nlatent f(x, w) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)"
    data = {"x": rng.standard_normal(12), "y": rng.standard_normal(12)}
    fit: Any = gpdsl.compile(text).fit(data, steps=5, progress=False)
    with pytest.raises(GpdslError, match="latents are functions of `w`, which has a value of its own in each row"):
        fit.draw_functions(2)
    assert fit.predict(data).covariance("f").shape == (12, 12)
    with pytest.raises(GpdslError, match="rows: all of them together go to"):
        fit.predict({"x": np.zeros(2_600)}).covariance("f")


def test_functions_of_row_variables_and_too_many_rows_are_refused() -> None:
    program = SimpleNamespace(inner={"h", "w"}, declarations=SimpleNamespace(rows={"w": None}))
    with pytest.raises(GpdslError, match="latents are functions of `w`, which has a value of its own in each row"):
        joint.composed(SimpleNamespace(program=program), np.zeros(1, int), np.random.default_rng(0), 0)  # type: ignore[arg-type]
    most = int((joint.MOST / 50) ** 0.5)
    joint._verify([], 50, most)
    with pytest.raises(GpdslError, match=f"{most + 1} rows: all of them together go to {most} rows for this model"):
        joint._verify([], 50, most + 1)
