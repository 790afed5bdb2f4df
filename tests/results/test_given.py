"""Predictions given outputs of some rows, against dense Gaussian conditionals in NumPy."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.posteriors.coupled import Block
from gpdsl.results import given as module

TWO = """model two
index p in 1..2
input x : real
output y[p] : real
param rho : real = 0.8 fixed
param s[p] : positive = [0.2, 0.3] fixed
latent f(x) ~ GP(0.5, 1.2^2 * RBF(1))
latent g(x) ~ GP(0, RBF(0.6))
y[1] ~ Normal(f, s[1])
y[2] ~ Normal(rho * f + 2 * g, s[2])
"""
RNG = np.random.default_rng(3)
X = np.linspace(0, 5, 14)
DATA = {"x": X, "y": np.column_stack([np.sin(X), np.cos(2 * X)]) + 0.2 * RNG.normal(size=(14, 2))}
NEW, AT = np.array([0.4, 2.1, 5.5]), np.array([2.1, 5.6])
KNOWN = {"x": AT, "y": np.array([[1.4, np.nan], [0.2, -0.7]])}


def gram(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gap = (a[:, None] - b) ** 2
    return 1.44 * np.exp(-0.5 * gap), np.exp(-0.5 * gap / 0.36)


def dense(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of both outputs' next values at NEW, [rows * 2], given observed ones."""
    every = np.concatenate([x, NEW])
    f, g = gram(every, every)
    mixing = np.array([[1.0, 0.0], [0.8, 2.0]])
    whole = np.einsum("pl,lnm,ql->npmq", mixing, np.stack([f, g]), mixing).reshape(2 * len(every), -1)
    whole += np.kron(np.eye(len(every)), np.diag([0.04, 0.09]))
    mean = np.tile([0.5, 0.4], len(every))
    seen = np.concatenate([np.isfinite(y).ravel(), np.zeros(2 * len(NEW), bool)])
    new = np.arange(2 * len(x), 2 * len(every))
    gain = np.linalg.solve(whole[np.ix_(seen, seen)], whole[np.ix_(seen, new)]).T
    told = y.ravel()[np.isfinite(y).ravel()] - mean[seen]
    return mean[new] + gain @ told, whole[np.ix_(new, new)] - gain @ whole[np.ix_(seen, new)]


@pytest.mark.parametrize("options", [{}, {"posterior": "coupled", "inducing": 14}], ids=["exact", "coupled"])
def test_known_outputs_are_as_rows_of_the_fit(options: dict[str, Any]) -> None:
    fit = gpdsl.compile(TWO).fit(DATA, tolerance=1e-12, **options)
    found = fit.predict({"x": NEW}, given=KNOWN)
    mean, covariance = dense(np.concatenate([X, AT]), np.concatenate([DATA["y"], KNOWN["y"]]))
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-7} if not options else {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(found.mean("y").ravel(), mean, **close)
    np.testing.assert_allclose(found.variance("y").ravel(), np.diag(covariance), **close)
    np.testing.assert_allclose(found.covariance("y").reshape(6, 6), covariance, **close)
    drawn = found.draws("y", 3000).reshape(3000, -1)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.15 * covariance.max())
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    np.testing.assert_array_equal(again.mean("y"), found.mean("y"))


def test_the_posterior_of_a_fit_is_the_prior_of_what_is_given() -> None:
    """Mixtures: components are weighed anew by how well they predict what is known."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.2)\n"
    fit = gpdsl.compile(text).fit({"x": X, "y": np.sin(X)}, steps=5, posterior="mixture_full(2)", inducing=8)
    given = {"x": [2.1], "y": [1.9]}
    before, after = fit.predict({"x": [2.1, *NEW]}), fit.predict({"x": NEW}, given=given)
    blocks = before.beliefs.blocks()
    means = np.asarray(before.beliefs.marginals.mean)[:, :, 0]
    variance = np.array([np.asarray(blocks[0].covariance)[k, 0, :, 0] for k in range(2)])
    total = variance[:, 0, 0] + 0.04
    weights = before.beliefs.weights * np.exp(-0.5 * (1.9 - means[:, 0]) ** 2 / total) / np.sqrt(total)
    moved = means[:, 1:] + variance[:, 0, 1:] * ((1.9 - means[:, 0]) / total)[:, None]
    np.testing.assert_allclose(after.mean("f"), weights @ moved / weights.sum(), rtol=1e-5)


def test_one_of_several_outputs_may_be_known() -> None:
    fit = gpdsl.compile(TWO).fit(DATA, steps=2)
    some = fit.predict({"x": NEW}, given={"x": AT, "y2": [1.0, np.nan]})
    full = fit.predict({"x": NEW}, given={"x": AT, "y": [[np.nan, 1.0], [np.nan, np.nan]]})
    np.testing.assert_array_equal(some.mean("y"), full.mean("y"))
    told = np.array([[np.nan, 1.0], [np.nan, np.nan]])
    mean, covariance = dense(np.concatenate([X, AT]), np.concatenate([DATA["y"], told]))
    np.testing.assert_allclose(some.mean("y").ravel(), mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(some.variance("y").ravel(), np.diag(covariance), rtol=1e-6)
    np.testing.assert_allclose(some.covariance("y").reshape(6, 6), covariance, rtol=1e-6, atol=1e-7)
    known = fit.predict({"x": NEW}, given={"x": AT, "y1": [3.0, np.nan]})
    assert known.mean("y")[1, 1] > fit.predict({"x": NEW}).mean("y")[1, 1]  # where y1 is known to be high
    with pytest.raises(gpdsl.GpdslError, match="given: 4000 rows, known and new, are too many") as raised:
        fit.predict({"x": np.zeros(2000)}, given={"x": np.zeros(2000), "y": np.zeros((2000, 2))})
    most = int(str(raised.value).split("takes ")[1].split()[0])
    assert (2 * most) ** 2 <= module.MOST < (2 * (most + 1)) ** 2


def test_units_transforms_and_missing_outputs() -> None:
    text = "input x : real\noutput y : positive\nparam s : positive = 0.2 fixed\n"
    text += "latent f(x) ~ GP(0, RBF(1))\nlog(y) ~ Normal(f, s)\n"
    fit = gpdsl.compile(text).fit({"x": X, "y": np.exp(np.sin(X))})
    given = {"x": AT, "y": np.exp([1.0, -0.5])}
    both = {"x": np.concatenate([X, AT]), "y": np.concatenate([np.exp(np.sin(X)), given["y"]])}
    expected = gpdsl.compile(text).fit(both).predict({"x": NEW})
    found = fit.predict({"x": NEW}, given=given)
    np.testing.assert_allclose(found.mean("f"), expected.mean("f"), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.mean("y"), expected.mean("y"), rtol=1e-6)
    for nothing in ({"x": AT, "y": [np.nan, np.nan]}, {"x": AT}):
        with pytest.raises(
            gpdsl.GpdslError, match="given: no output is observed in these rows; expected values of `y`"
        ):
            fit.predict({"x": NEW}, given=nothing)
    plain = text.replace("positive\nparam", "real\nparam").replace("log(y)", "y")
    scaled = gpdsl.compile(plain).fit({"x": 10 * X, "y": 100 + 5 * np.sin(X)}, standardise=True)
    known = scaled.predict({"x": [21.0]}, given={"x": [21.0], "y": [150.0]})
    assert known.mean("f")[0] == pytest.approx(known.mean("y")[0]) and 101 < known.mean("y")[0] < 150


TEAMS = """index t in 1..T
input home : label[t]
input away : label[t]
output y : real
param a[t] : real ~ Normal(1, 2)
y ~ Normal(a[home] - 0.5 * a[away], 0.5)
"""


def test_levels_that_the_fit_has_not_seen_are_known_by_name() -> None:
    """Among given and new rows, and in all inputs of an index."""
    fit = gpdsl.compile(TEAMS).fit({"home": list("abca"), "away": list("bcac"), "y": [0.3, 1.0, -2.0, 0.4]})
    new = {"home": ["p", "q", "q"], "away": ["q", "p", "q"]}
    loads = np.array([[1, -0.5], [-0.5, 1], [0, 0.5]])  # of p and q
    plain = fit.predict(new)
    assert plain.covariance("y") == pytest.approx(4 * loads @ loads.T + 0.25 * np.eye(3))
    others = fit.predict(new, given={"home": ["x", "z"], "away": ["z", "x"], "y": [9.0, 5.0]})
    assert others.mean("y") == pytest.approx(plain.mean("y")) == [0.5, 0.5, 0.5]
    assert others.covariance("y") == pytest.approx(plain.covariance("y"))
    told = fit.predict(new, given={"home": ["z", "q"], "away": ["x", "p"], "y": [9.0, 5.0]})
    gain = 4 * loads @ loads[1] / (4 * loads[1] @ loads[1] + 0.25)
    assert told.mean("y") == pytest.approx(0.5 + gain * (5.0 - 0.5))


def test_an_output_by_its_name_is_pointed_to_rows() -> None:
    fit = gpdsl.compile(TWO).fit(DATA, steps=1)
    for name in ("y", "y1"):
        with pytest.raises(gpdsl.GpdslError, match=f"`{name}` is no argument.*given={{'x': ..., '{name}': ...}}"):
            fit.predict({"x": NEW}, **{name: [1.0]})
    with pytest.raises(TypeError, match="fit.predict has no argument .outputs.; it is fit.predict"):
        fit.predict({"x": NEW}, outputs=True)


def test_sites_at_rest_are_the_posterior_of_normal_outputs() -> None:
    """Of three rows with two latents each, correlated across rows: one update, and the bound is the evidence.

    Of each of two components, of which one has latents of smaller rank.
    """
    rng = np.random.default_rng(0)
    root, mean = rng.normal(size=(2, 2, 3, 5)), rng.normal(size=(2, 3, 2))
    root[1, ..., 2:] = 0.0
    loads, y, s = rng.normal(size=(3, 2)), rng.normal(size=3), 0.4

    def expected(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        left = y - np.sum(loads * m, axis=2)
        spread = np.einsum("nl,knlm,nm->kn", loads, v, loads)
        value = np.sum(-0.5 * (left**2 + spread) / s**2 - 0.5 * np.log(2 * np.pi * s**2), axis=1)
        bend = -0.5 * np.einsum("nl,nm->nlm", loads, loads) / s**2
        return value, (loads * left[..., None] / s**2, np.broadcast_to(bend, v.shape))

    known = module.Known(mean, root, expected)
    found, before = module._settled(known), module._at(known, np.zeros((2, 3, 2)), np.zeros((2, 3, 2, 2)))
    value = expected(mean, np.einsum("klnr,kmnr->knlm", root, root))[0]
    np.testing.assert_allclose(before.bound, value, rtol=1e-12)
    for k in range(2):
        design = np.einsum("nl,lnr->nr", loads, root[k])
        precision = np.eye(5) + design.T @ design / s**2
        left = y - np.sum(loads * mean[k], axis=1)
        np.testing.assert_allclose(found.inverse[k].T @ found.inverse[k], np.linalg.inv(precision), atol=1e-12)
        np.testing.assert_allclose(found.mean[k], np.linalg.solve(precision, design.T @ left / s**2), atol=1e-9)
        evidence = stats.multivariate_normal.logpdf(left, np.zeros(3), design @ design.T + s**2 * np.eye(3))
        assert found.bound[k] == pytest.approx(evidence, rel=1e-9)
        np.testing.assert_allclose(found.target[1][k], np.einsum("nl,nm->nlm", loads, loads) / s**2, rtol=1e-9)
        np.testing.assert_allclose(found.target[0][k], loads * y[:, None] / s**2, rtol=1e-8)


def test_each_component_settles_by_steps_of_its_own() -> None:
    """Alone or beside another, also one whose full step leads to no covariance: a bound with two hills of f."""

    def expected(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        m, v = m[:, 0, 0], v[:, 0, 0, 0]  # E[-(f^2 - 1)^2]
        value = -(m**4 + 6 * m**2 * v + 3 * v**2) + 2 * (m**2 + v) - 1
        slope, bend = -4 * m**3 - 12 * m * v + 4 * m, -6 * m**2 - 6 * v + 2
        return value, (slope[:, None, None], bend[:, None, None, None])

    mean, root = np.array([0.1, 2.0, -1.0]).reshape(3, 1, 1), np.array([0.2, 1.0, 0.5]).reshape(3, 1, 1, 1)
    full = module._at(module.Known(mean, root, expected), np.zeros((3, 1, 1)), np.full((3, 1, 1, 1), [[[-10.0]]]))
    assert np.isnan(full.bound[1]) and np.isfinite(full.bound[0])
    found = module._settled(module.Known(mean, root, expected))
    for k in range(3):
        alone = module._settled(module.Known(mean[k : k + 1], root[k : k + 1], expected))
        assert found.bound[k] == pytest.approx(alone.bound[0], rel=1e-12)
        np.testing.assert_allclose(found.mean[k], alone.mean[0], rtol=1e-9)
        grid = np.meshgrid(np.linspace(-4, 4, 401), np.linspace(0.01, 1.5, 300), indexing="ij")
        shift, sd = (each.ravel() for each in grid)
        at = mean[k, 0, 0] + root[k, 0, 0, 0] * shift, (root[k, 0, 0, 0] * sd) ** 2
        value = expected(at[0][:, None, None], at[1][:, None, None, None])[0]
        best = np.max(value - 0.5 * (sd**2 + shift**2 - 1) + np.log(sd))
        assert found.bound[k] == pytest.approx(best, abs=2e-3)


def test_blocks_of_covariances_stand_in_their_places() -> None:
    rng = np.random.default_rng(0)
    blocks = [Block((2, 0), rng.normal(size=(2, 2, 4, 2, 4))), Block((1,), rng.normal(size=(2, 1, 4, 1, 4)))]
    beliefs: Any = SimpleNamespace(blocks=lambda: blocks, weights=np.ones(2), count=4)
    found = module._covariances(beliefs, 3)
    expected = np.zeros((2, 3, 4, 3, 4))
    for i, one in enumerate((2, 0)):
        for j, other in enumerate((2, 0)):
            expected[:, one, :, other, :] = blocks[0].covariance[:, i, :, j, :]
    expected[:, 1, :, 1, :] = blocks[1].covariance[:, 0, :, 0, :]
    np.testing.assert_array_equal(found, expected)


def test_outputs_next_to_without_noise_settle() -> None:
    """The first bound is -1e15 nats, and those at rest are differences of numbers as large."""
    text = (
        "index p in 1..2\ninput x : real\noutput y[p] : real\nconst s[p] = [3e-8, 9e-9]\n"
        "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\n"
        "y[1] ~ Normal(f, s[1])\ny[2] ~ Normal(0.12 * f + 0.3 * g, s[2])\n"
    )
    x = np.linspace(0, 5, 20)
    fit = gpdsl.compile(text).fit({"x": x, "y": np.column_stack([np.sin(x)] * 2)}, diagnose="no")
    for known in np.linspace(1, 3, 21):
        found = fit.predict({"x": [8.0]}, given={"x": [8.0], "y1": [known]})
        assert found.mean("y")[0, 0] == pytest.approx(known, abs=1e-6)
