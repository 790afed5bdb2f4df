"""Predictions by layers given outputs of some rows, against weighted passes that are written out in NumPy."""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.program.cache import precision
from gpdsl.results import given_layers as module
from tests.inference.problems import unlearnt

Array = np.ndarray

TEXT = """input x : real
output y : real
latent h(x) ~ GP(0, RBF(1))
latent f(x, h) ~ GP(0, RBF(0.8))
y ~ Normal(f, 0.3)
"""
NEW, KNOWN = np.array([3.0, 2.4]), {"x": np.array([2.6, 3.2]), "y": np.array([0.9, -1.1])}
EVERY = np.concatenate([KNOWN["x"], NEW])
PASSES = 40_000


def data(rows: int = 20) -> dict[str, Array]:
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, rows)
    return {"x": x, "y": np.sin(2 * x) + 0.1 * rng.normal(size=rows)}


@functools.cache
def fitted(text: str = TEXT) -> Any:
    return gpdsl.compile(text).fit(data(), inducing=8, steps=20)


def of_layer(fit: Any, name: str, at: Array, length: float) -> tuple[Array, Array]:
    """Means and covariances of a latent with kernel RBF(length) at points [S, rows, inputs], by its inducing values."""
    place = next(i for i, group in enumerate(fit.program.groups) if name in group.names)
    points, q = np.asarray(fit.inducing[place].points), fit.posterior[place]

    def kernel(a: Array, b: Array) -> Array:
        return np.exp(-0.5 * np.sum((a[..., :, None, :] - b[..., None, :, :]) ** 2, axis=-1) / length**2)

    factor = np.linalg.cholesky(kernel(points, points) + fit.jitter * np.eye(len(points)))
    phi = kernel(at, points) @ np.linalg.inv(factor).T
    mean, root = np.asarray(q.mean)[0, 0], phi @ np.asarray(q.root)[0, 0]
    turned = np.swapaxes(phi, 1, 2)
    return phi @ mean, kernel(at, at) - phi @ turned + root @ np.swapaxes(root, 1, 2)


def drawn(mean: Array, covariance: Array, rng: np.random.Generator) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
    return mean + np.einsum("sij,sj->si", root, rng.standard_normal((PASSES, mean.shape[1])))


@functools.cache
def passes(fit: Any, layers: tuple[tuple[str, tuple[str, ...], float], ...] = ()) -> dict[str, Array]:
    """Draws [PASSES, rows] of each latent below the last, and moments of the last: `name`, and `cov` of it."""
    rng, known = np.random.default_rng(0), {"x": np.broadcast_to(EVERY, (1, len(EVERY)))}
    chain = layers or (("h", ("x",), 1.0), ("f", ("x", "h"), 0.8))
    for name, inputs, length in chain:
        at = np.stack(np.broadcast_arrays(*(known[each] for each in inputs)), axis=-1)
        mean, covariance = of_layer(fit, name, at, length)
        known["cov"] = covariance
        known[name] = mean if name == chain[-1][0] else drawn(mean, covariance, rng)
    return known


def given_normal(mean: Array, covariance: Array, noise: float) -> tuple[Array, Array, Array]:
    """Weights of passes, and moments of the last latent at new rows in each, given KNOWN under normal noise."""
    seen, new = slice(0, 2), slice(2, 4)
    total = covariance[:, seen, seen] + noise**2 * np.eye(2)
    away = KNOWN["y"] - mean[:, seen]
    solved = np.linalg.solve(total, away[..., None])
    logs = -0.5 * (away[:, None] @ solved)[:, 0, 0] - 0.5 * np.linalg.slogdet(total)[1]
    weights = np.exp(logs - logs.max())
    across = covariance[:, new, seen]
    moved = mean[:, new] + (across @ solved)[..., 0]
    left = covariance[:, new, new] - across @ np.linalg.solve(total, np.swapaxes(across, 1, 2))
    return weights / weights.sum(), moved, left


def mixed(weights: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    centre = weights @ mean
    away = mean - centre
    return centre, np.tensordot(weights, covariance, axes=1) + (weights[:, None] * away).T @ away


def test_passes_are_conditioned_and_weighed() -> None:
    fit = fitted()
    found, known = fit.predict({"x": NEW}, given=KNOWN), passes(fit)
    weights, mean, left = given_normal(known["f"], known["cov"], 0.3)
    centre, covariance = mixed(weights, mean, left)
    error = found.error("f"), found.error("f", "variance")
    assert all(np.all((each > 1e-4) & (each < 0.015)) for each in error)
    np.testing.assert_allclose(found.mean("f"), centre, atol=0.015)
    np.testing.assert_allclose(found.covariance("f"), covariance, atol=0.012)
    np.testing.assert_allclose(found.variance("f"), np.diag(found.covariance("f")), rtol=1e-9)
    np.testing.assert_allclose(found.covariance("y"), found.covariance("f") + 0.09 * np.eye(2), rtol=1e-9)
    own = np.sqrt(np.einsum("snn->sn", left))
    np.testing.assert_allclose(found.probability("f > 0"), weights @ stats.norm.cdf(mean / own), atol=0.015)
    quantiles = found.quantile("f", [0.1, 0.9])
    reached = np.einsum("s,psn->pn", weights, stats.norm.cdf((quantiles[:, None] - mean) / own))
    np.testing.assert_allclose(reached, np.array([[0.1, 0.1], [0.9, 0.9]]), atol=0.015)
    # the layer below is learnt of, too
    below = known["h"][:, 2:]
    np.testing.assert_allclose(found.mean("h"), weights @ below, atol=0.06)
    np.testing.assert_allclose(found.variance("h"), weights @ (below - weights @ below) ** 2, rtol=0.1)
    np.testing.assert_allclose(found.probability("h > 0"), weights @ (below > 0), atol=0.03)
    # it is neither what is said without the given rows, nor one Gaussian for all passes
    assert np.abs(found.mean("f") - fit.predict({"x": NEW}).mean("f")).max() > 0.1
    one = mixed(np.full(PASSES, 1 / PASSES), known["f"], known["cov"])
    single = given_normal(one[0][None], one[1][None], 0.3)
    assert np.all(found.variance("f") > 1.3 * np.diag(single[2][0]))


def test_draws_and_totals_are_of_new_rows_alone() -> None:
    fit = unlearnt(TEXT, data(), inducing=8)
    found = fit.predict({"x": NEW}, given=KNOWN)
    f = found.draws("f", 4000)
    assert f.shape == (4000, 2) and found.draws("y", 5).shape == (5, 2)
    np.testing.assert_allclose(f.mean(axis=0), found.mean("f"), atol=0.03)
    np.testing.assert_allclose(np.cov(f.T), found.covariance("f"), atol=0.02)
    h = found.draws("h", 4000)  # with the same seed it belongs to f
    np.testing.assert_allclose(np.var(h, axis=0), found.variance("h"), rtol=0.1)
    known = passes(fit)
    weights, mean, _ = given_normal(known["f"], known["cov"], 0.3)
    below = known["h"][:, 2:]
    expected = (weights[:, None] * (below - weights @ below)).T @ mean
    np.testing.assert_allclose(np.cov(h.T, f.T)[:2, 2:], expected, atol=0.05)
    total, ones = found.total("f"), np.ones(2)
    assert total.mean == pytest.approx(found.mean("f").sum(), abs=0.04)
    assert total.sd == pytest.approx(np.sqrt(ones @ found.covariance("f") @ ones), rel=0.08)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    np.testing.assert_array_equal(again.mean("f"), found.mean("f"))


def test_many_new_rows_are_drawn_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is worked out together, what is said of a row is as exact as before."""
    whole = fitted().predict({"x": NEW}, given=KNOWN)
    monkeypatch.setattr(module, "AT_ONCE", 1 << 12)
    parts = fitted().predict({"x": NEW}, given=KNOWN)
    np.testing.assert_allclose(parts.mean("f"), whole.mean("f"), atol=0.03)
    np.testing.assert_allclose(parts.variance("f"), np.diag(parts.covariance("f")), rtol=1e-9)
    np.testing.assert_allclose(np.cov(parts.draws("f", 2000).T), parts.covariance("f"), atol=0.03)


THREE = """input x : real
output y : real
latent g(x) ~ GP(0, RBF(1.5))
latent h(g) ~ GP(0, RBF(1))
latent f(x, h) ~ GP(0, RBF(0.8))
y ~ Normal(f + 0.5 * h, 0.4)
"""


@pytest.mark.slow
def test_a_layer_between_that_is_observed_as_well() -> None:
    """Given a pass h is known, so that y - h / 2 is what tells of f."""
    fit = fitted(THREE)
    known = passes(fit, (("g", ("x",), 1.5), ("h", ("g",), 1.0), ("f", ("x", "h"), 0.8)))
    found = fit.predict({"x": NEW}, given=KNOWN)
    weights, mean, left = given_normal(known["f"] + 0.5 * known["h"], known["cov"], 0.4)
    centre, covariance = mixed(weights, mean, left)
    np.testing.assert_allclose(found.mean("y"), centre, atol=0.03)
    np.testing.assert_allclose(found.variance("y"), np.diag(covariance) + 0.16, atol=0.03)
    np.testing.assert_allclose(found.covariance("y"), covariance + 0.16 * np.eye(2), atol=0.03)


BOTH = """index p in 1..2
input x : real
output y[p] : real
latent h(x) ~ GP(0, RBF(1))
latent f(x, h) ~ GP(0, RBF(0.8))
latent g(h) ~ GP(0, RBF(1.2))
y[1] ~ Normal(f, 0.3)
y[2] ~ Normal(0.7 * f + g, 0.2)
"""


@pytest.mark.slow
def test_two_last_latents_are_correlated_by_what_is_given() -> None:
    one = data()
    both = {"x": one["x"], "y": np.column_stack([one["y"], np.cos(one["x"])])}
    fit = gpdsl.compile(BOTH).fit(both, inducing=8, steps=20)
    y = np.array([[0.5, -0.2], [np.nan, -0.5]])
    found = fit.predict({"x": NEW}, given={"x": KNOWN["x"], "y": y})
    f = passes(fit)
    at = f["h"][..., None]
    other, between = of_layer(fit, "g", at, 1.2)
    mean = np.concatenate([f["f"], other], axis=1)
    covariance = np.zeros((PASSES, 8, 8))
    covariance[:, :4, :4], covariance[:, 4:, 4:] = f["cov"], between
    loads, values = np.zeros((3, 8)), np.array([0.5, -0.2, -0.5])  # of f and of g, at known and new rows
    loads[0, 0] = loads[1, 4] = loads[2, 5] = 1.0
    loads[1, 0] = loads[2, 1] = 0.7
    total = loads @ covariance @ loads.T + np.diag([0.09, 0.04, 0.04])
    away, across = values - mean @ loads.T, covariance @ loads.T
    solved = np.linalg.solve(total, away[..., None])
    logs = -0.5 * (away[:, None] @ solved)[:, 0, 0] - 0.5 * np.linalg.slogdet(total)[1]
    weights = np.exp(logs - logs.max())
    left = covariance - across @ np.linalg.solve(total, np.swapaxes(across, 1, 2))
    centre, expected = mixed(weights / weights.sum(), mean + (across @ solved)[..., 0], left)
    reads = np.zeros((4, 8))  # of both outputs of each new row
    reads[0, 2] = reads[2, 3] = reads[1, 6] = reads[3, 7] = 1.0
    reads[1, 2] = reads[3, 3] = 0.7
    expected = reads @ expected @ reads.T + np.diag([0.09, 0.04, 0.09, 0.04])
    np.testing.assert_allclose(found.mean("y").ravel(), reads @ centre, atol=0.03)
    np.testing.assert_allclose(found.covariance("y").reshape(4, 4), expected, atol=0.03)
    np.testing.assert_allclose(found.variance("y").ravel(), np.diag(expected), atol=0.03)
    drawn = found.draws("y", 4000).reshape(4000, -1)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.05)


@pytest.mark.slow
def test_counts_weigh_passes_by_their_bounds() -> None:
    """The bound of two counts is their evidence but for a few hundredths of a nat."""
    text = TEXT.replace("y : real", "n : count").replace("y ~ Normal(f, 0.3)", "n ~ Poisson(3 * exp(f))")
    rng, x = np.random.default_rng(1), data()["x"]
    fit = gpdsl.compile(text).fit({"x": x, "n": rng.poisson(3 * np.exp(np.sin(2 * x)))}, inducing=8, steps=20)
    counts = np.array([9.0, 0.0])
    found, known = fit.predict({"x": NEW}, given={"x": KNOWN["x"], "n": counts}), passes(fit)
    rng, n = np.random.default_rng(2), 40  # draws of f in each pass, weighed by what is given
    root = np.linalg.cholesky(known["cov"] + 1e-8 * np.eye(4))
    f = known["f"][..., None] + root @ rng.standard_normal((PASSES, 4, n))
    weights = np.exp(stats.poisson.logpmf(counts[:, None], 3 * np.exp(f[:, :2])).sum(axis=1))
    weights /= weights.sum()
    mean = np.einsum("sn,sjn->j", weights, f[:, 2:])
    variance = np.einsum("sn,sjn->j", weights, (f[:, 2:] - mean[:, None]) ** 2)
    assert np.abs(mean - fit.predict({"x": NEW}).mean("f")).max() > 0.3
    np.testing.assert_allclose(found.mean("f"), mean, atol=0.04)
    np.testing.assert_allclose(found.variance("f"), variance, rtol=0.1)


def test_passes_are_weighed_by_their_evidence_however_small_that_is() -> None:
    bounds = np.array([-1e4, -1e4 - 1.0, -1e3 - 1.0, -1e3])
    passes: Any = SimpleNamespace(_found=(None, None, bounds))
    found = module.Passes.weights.func(passes)
    np.testing.assert_allclose(found, [0.0, 0.0, 1 / (1 + np.e), np.e / (1 + np.e)], atol=1e-300)
    passes.weights = found
    assert module.Passes.effective.fget(passes) == pytest.approx((1 + np.e) ** 2 / (1 + np.e**2))


@dataclass
class Counting:
    """Passes of which a share counts."""

    share: float
    count: int
    latents: int = 2

    @property
    def beliefs(self) -> Any:
        return SimpleNamespace(count=4, program=SimpleNamespace(latents=self.latents))

    @property
    def effective(self) -> float:
        return self.share * self.count


@pytest.mark.parametrize(
    ("share", "latents", "count"),
    [
        (0.5, 2, 4096),
        (0.13, 2, 4096),  # 532 count, which is enough
        (0.12, 2, 32768),
        (0.002, 2, 32768),  # 8 count, and 65 of more
        (0.12, 10_000, 4096),  # no room for more
        (0.0005, 2, 0),  # 16 of more
        (0.002, 10_000, 0),
        (np.nan, 2, 0),
    ],
)
def test_more_passes_are_made_where_few_of_them_count(share: float, latents: int, count: int) -> None:
    passes: Any = Counting(share, module.PASSES[0], latents)
    if count:
        assert module._enough(passes).count == count
    else:
        with pytest.raises(gpdsl.GpdslError, match="and 30 are needed"):
            module._enough(passes)


def test_what_next_to_no_pass_explains_is_refused() -> None:
    many = np.linspace(2.2, 9.0, 15)
    with pytest.raises(gpdsl.GpdslError, match="given: of .* passes through the layers .* that count.*start=fit"):
        unlearnt(TEXT, data(), inducing=8).predict({"x": NEW}, given={"x": many, "y": 3 * np.sin(9 * many)})


@pytest.mark.slow
def test_what_passes_cannot_be_conditioned_on_is_refused() -> None:
    one = data()
    both = {**one, "x2": one["x"] - 0.5}
    text = TEXT.replace("output", "input x2 : real\noutput").replace("Normal(f,", "Normal(f + a - a(x2),")
    text = text.replace("y ~", "latent a(x) ~ GP(0, RBF(1))\ny ~")
    fit = gpdsl.compile(text).fit(both, inducing=6, steps=2)
    with pytest.raises(gpdsl.GpdslError, match="given: `a` is read at several places.*start=fit"):
        fit.predict({"x": NEW, "x2": NEW}, given={**KNOWN, "x2": KNOWN["x"]})
    rows = TEXT.replace("latent h(x) ~ GP(0, RBF(1))", "row h ~ Normal(0, 1)")
    with pytest.raises(gpdsl.GpdslError, match="given: a model with row variables.*start=fit"):
        gpdsl.compile(rows).fit(one, inducing=6, steps=2).predict({"x": NEW}, given=KNOWN)


@pytest.mark.slow
def test_covariances_with_some_rows_are_part_of_those_of_all() -> None:
    """With the noise that a kernel has at each point, at points that coincide as well."""
    text = TEXT.replace("RBF(0.8))", "RBF(0.8) + 0.3 * White())")
    fit = gpdsl.compile(text).fit(data(), inducing=6, steps=1)
    at = np.concatenate([EVERY, EVERY[:1]])
    beliefs = fit.beliefs(fit.bind({"x": at}, None, outputs=False))
    with precision(fit.options.dtype):
        rng = np.random.default_rng(0)
        ((known, given),) = fit.at_rows.passes_together(beliefs.program, beliefs.rows, 3, rng)
        place = next(i for i, group in enumerate(beliefs.program.groups) if group.names == ("f",))
        (mean, whole), (same, some, variance) = given(place, known), given(place, known, 2)
    assert whole.shape == (3, 1, 5, 5) and some.shape == (3, 1, 5, 2)
    np.testing.assert_array_equal(same, mean)
    np.testing.assert_allclose(some, whole[..., :2], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(variance, np.einsum("slnn->sln", whole), rtol=1e-9)
    assert np.all(some[:, 0, 0, 0] - some[:, 0, 4, 0] > 0.1)
