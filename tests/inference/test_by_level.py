"""Latents that are independent at different levels, not normal: sets of rows as small matrices, against one matrix."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, special

import gpdsl
from gpdsl.inference import by_level as engine
from gpdsl.inference.inducing import start
from gpdsl.program.cache import precision
from tests.inference.problems import problem_of

RNG = np.random.default_rng(0)
SITE, X = RNG.integers(0, 12, 90), RNG.uniform(-1, 1, 90)
COUNTS = RNG.poisson(np.exp(RNG.normal(0.5, 0.7, 12)[SITE] - 0.4 * X))
SLOPES = """index s in 1..S
input site : label[s]
input x : real
output y : count
param mu : real
param tau : positive = 0.5
param a[s] : real ~ Normal(mu, tau)
param b[s] : real ~ Normal(-0.3, 0.4)
y ~ Poisson(exp(a[site] + b[site] * x))
"""
CROSSED = """index s in 1..S
index k in 1..K
input site : label[s]
input kind : label[k]
output y : binary
param a[s] : real ~ Normal(0, 1)
param b[k] : real ~ Normal(0, 1)
y ~ Bernoulli(logit = a[site] - b[kind])
"""


def both(monkeypatch: pytest.MonkeyPatch, text: str, data: dict, **options: str) -> tuple[gpdsl.Fit, gpdsl.Fit]:
    """The fit by sets, and that of one matrix over all levels."""
    model = gpdsl.compile(text)
    whole = model.fit(data, **options)
    monkeypatch.setattr(engine, "ROWS", 10)
    return model.fit(data, **options), whole


def test_intercepts_and_slopes_of_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same bound, posterior and predictions; new levels have the prior, and a file keeps everything."""
    data = {"site": SITE, "x": X, "y": COUNTS}
    found, whole = both(monkeypatch, SLOPES, data)
    assert found.choice.sets and sum(found.choice.sets) == 24 and not whole.choice.sets
    assert found.elbo == pytest.approx(whole.elbo, abs=1e-5)
    assert found.parameters["tau"] == pytest.approx(whole.parameters["tau"], rel=1e-3)
    new = {"site": [*SITE[:3], 40], "x": [0.0, 0.5, 1.0, 0.5]}
    one, other = found.predict(new), whole.predict(new)
    for name in ("a", "b", "y"):
        np.testing.assert_allclose(one.mean(name), other.mean(name), rtol=1e-3)
        np.testing.assert_allclose(one.variance(name), other.variance(name), rtol=3e-3)
    assert one.mean("a")[3] == pytest.approx(found.parameters["mu"])
    np.testing.assert_allclose(one.covariance("a"), other.covariance("a"), atol=1e-3)
    assert "by level, 24 latent values, in 12 blocks" in found.summary() and "elbo" in found.summary()
    found.save(tmp_path / "kept.gpfit")
    again = gpdsl.load_fit(tmp_path / "kept.gpfit")
    np.testing.assert_array_equal(again.predict(new).mean("y"), one.mean("y"))


@pytest.mark.slow
def test_crossed_levels_are_independent_where_together_they_are_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"site": SITE, "kind": RNG.integers(0, 5, 90), "y": (COUNTS > 1).astype(float)}
    monkeypatch.setattr(engine, "WIDEST", 60)
    found, whole = both(monkeypatch, CROSSED, data, posterior="full")
    assert len(found.choice.sets) == 17
    assert found.elbo == pytest.approx(whole.elbo, abs=1e-4)
    assert gpdsl.compile(CROSSED).fit(data).choice.posterior == "full"  # coupled it would be one set of 180


def test_what_is_wide_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ROWS", 10)
    monkeypatch.setattr(engine, "WIDEST", 1)
    assert not gpdsl.compile(SLOPES).fit({"site": SITE, "x": X, "y": COUNTS}, steps=1).choice.sets


def test_many_levels_beside_what_all_rows_share_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them took hours, without a word of why."""
    monkeypatch.setattr(start, "MANY_LEVELS", 11)
    shared = SLOPES.replace("input x : real", "input x : real\nlatent f(x) ~ GP(0, RBF(1))").replace(
        "a[site]", "f + a[site]"
    )
    with pytest.warns(gpdsl.GpdslWarning, match=r"values of `a`, `b` at 12 levels are one matrix"):
        plan = gpdsl.compile(shared).explain({"site": SITE, "x": X, "y": COUNTS}, inducing=5)
    assert "12 inducing points at the levels" in plan


def test_a_product_whose_modes_may_be_alike_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ROWS", 10)
    text = SPREADS.replace("sigma[s] : positive ~ LogNormal", "b[s] : real ~ Normal")
    for mean, apart in (("a[site] + b[site]", True), ("a[site] * b[site]", False)):
        law = f"y ~ Normal({mean}, 1 + exp(b[site]))"
        plan = gpdsl.compile(text.replace("y ~ Normal(a[site], sigma[site])", law))
        assert ("that share no level" in plan.explain(spreads(5))) == apart


SPREADS = """index s in 1..S
input site : label[s]
output y : real
param mu : real ~ Normal(0, 2)
param tau : positive ~ HalfNormal(1)
param base : real ~ Normal(0, 1)
param a[s] : real ~ Normal(mu, tau)
param sigma[s] : positive ~ LogNormal(base, 0.5)
y ~ Normal(a[site], sigma[site])
"""


def spreads(each: int, groups: int = 12) -> dict[str, np.ndarray]:
    """Groups of so many rows with a level and a noise of their own."""
    rng = np.random.default_rng(2)
    site = np.repeat(np.arange(groups), each)
    level, noise = rng.normal(1.0, 0.7, groups), np.exp(rng.normal(-1.0, 0.5, groups))
    return {"site": site, "y": level[site] + noise[site] * rng.normal(size=site.size)}


def test_noise_of_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not log-concave: rows of a group have one site together, and the bound is that of one matrix over all levels."""
    data = spreads(5)
    found, whole = both(monkeypatch, SPREADS, data)
    assert found.choice.sets == (2,) * 12 and not whole.choice.sets
    assert found.elbo == pytest.approx(whole.elbo, abs=1e-5)
    for name, error in whole.standard_errors.items():
        assert found.parameters[name] == pytest.approx(whole.parameters[name], abs=1e-3)
        assert found.standard_errors[name] == pytest.approx(error, rel=0.02)
    assert "falls into 12 sets that share no level, matrices of 2 values" in gpdsl.compile(SPREADS).explain(data)
    one, other = found.predict({"site": [0, 3, 99]}), whole.predict({"site": [0, 3, 99]})
    np.testing.assert_allclose(one.sd("a"), other.sd("a"), rtol=1e-3)
    np.testing.assert_allclose(one.interval("y", 0.9), other.interval("y", 0.9), rtol=2e-3)


def test_sites_of_a_row_alone_stay_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of them: none near by has a higher bound."""
    monkeypatch.setattr(engine, "ROWS", 5)
    rng = np.random.default_rng(3)
    with precision("float64"):
        problem = problem_of(SPREADS, spreads(1, 6))
        profile = engine.LevelsProfile(problem)
        best, sites = profile.value(problem.parameters), profile.sites
        lowest = np.linalg.eigvalsh(sites.precision)[:, 0]
        assert lowest.min() > -1e-9 and lowest.min() < 1e-9  # at least one would be negative
        root = np.linalg.cholesky(np.asarray(sites.precision) + 1e-12 * np.eye(2))
        bound = jax.jit(profile.levels.bound)
        for size in (1e-3, 1e-2, 1e-1):
            moved = root + size * rng.normal(size=root.shape)
            near = sites.linear + size * rng.normal(size=sites.linear.shape), moved @ np.swapaxes(moved, 1, 2)
            assert float(bound(problem.parameters, problem.rows, engine.RowSites(*near))) < best


@pytest.mark.slow
def test_averages_over_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = spreads(5)
    found, whole = both(monkeypatch, SPREADS, data, hyperparameters="integrated")
    assert found.choice.sets and found.settings is not None and whole.settings is not None
    for name in ("mu", "tau", "base"):
        assert found.settings.mean(name) == pytest.approx(whole.settings.mean(name), abs=2e-3)
        assert found.settings.sd(name) == pytest.approx(whole.settings.sd(name), rel=0.01)
    one = found.predict({"site": [0, 5, 99]})
    np.testing.assert_allclose(one.sd("y"), whole.predict({"site": [0, 5, 99]}).sd("y"), rtol=2e-3)
    found.save(tmp_path / "kept.gpfit")
    again = gpdsl.load_fit(tmp_path / "kept.gpfit").predict({"site": [0, 5, 99]})
    np.testing.assert_array_equal(again.sd("y"), one.sd("y"))


def test_moments_bound_and_step_are_those_of_dense_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    """q ~ prior times sites over all (row, latent) values, in which rows of a level have one value each of a and b."""
    monkeypatch.setattr(engine, "ROWS", 5)
    rows, rng = 7, np.random.default_rng(1)
    site, x, y = np.array([0, 1, 0, 1, 0, 1, 2]), X[:rows], COUNTS[:rows].astype(float)
    with precision("float64"):
        problem = problem_of(SLOPES, {"site": site, "x": x, "y": y})
        levels = engine.LevelsProfile(problem).levels
        np.testing.assert_array_equal(levels.first, [0, 1, 0, 1, 0, 1, 6])
        half = rng.normal(size=(rows, 2, 2)) * (levels.first == np.arange(rows))[:, None, None]
        lam = half @ np.swapaxes(half, 1, 2)
        linear = rng.normal(size=(rows, 2)) * (levels.first == np.arange(rows))[:, None]
        sites = engine.RowSites(jnp.asarray(linear), jnp.asarray(lam))
        given = problem.parameters, problem.rows, sites
        found = jax.jit(lambda *given: (levels.moments(*given), levels.target(*given), levels.bound(*given)))(*given)
    (mean, among, divergence), (bound, after), again = found
    assert float(again) == pytest.approx(float(bound))
    mu, tau = (float(problem.program.parameters.constrain(problem.parameters)[name]) for name in ("mu", "tau"))
    k = np.kron((site[:, None] == site).astype(float), np.diag([tau**2, 0.16]))
    m, lam = np.tile([mu, -0.3], rows), linalg.block_diag(*lam)
    inverse = np.linalg.inv(np.eye(2 * rows) + lam @ k)
    alpha = inverse @ (linear.ravel() - lam @ m)
    blocks = (k @ inverse).reshape(rows, 2, rows, 2)[np.arange(rows), :, np.arange(rows)]
    kl = 0.5 * (np.trace(inverse) - 2 * rows + alpha @ k @ alpha - np.linalg.slogdet(inverse)[1])
    mean, among = mean[levels.first], among[levels.first]
    np.testing.assert_allclose(mean, (m + k @ alpha).reshape(rows, 2), atol=1e-10)
    np.testing.assert_allclose(among, blocks, atol=1e-10)
    assert float(divergence) == pytest.approx(kl)
    loads = np.stack([np.ones(rows), x], axis=1)
    h, v = np.sum(loads * mean, axis=1), np.einsum("na,nab,nb->n", loads, blocks, loads)
    rate = np.exp(h + 0.5 * v)
    assert float(bound) == pytest.approx(np.sum(y * h - rate - special.gammaln(y + 1)) - kl)
    together = np.equal.outer(np.arange(rows), levels.first).astype(float)
    told = np.einsum("mn,n,na,nb->mab", together, rate, loads, loads)
    np.testing.assert_allclose(after.precision, told, rtol=1e-8, atol=1e-10)
    slope = together @ ((y - rate)[:, None] * loads)
    np.testing.assert_allclose(after.linear, slope + np.einsum("nab,nb->na", told, mean), rtol=1e-8, atol=1e-10)


def test_roots_of_precisions_are_of_the_own_elements_and_of_what_is_positive(rng: np.random.Generator) -> None:
    half = rng.normal(size=(5, 3, 3))
    precision = half @ np.swapaxes(half, 1, 2)
    for columns in ([1], [0, 2]):
        sets: Any = SimpleNamespace(columns=np.array(columns))
        root = np.asarray(engine.Sets.root(sets, jnp.asarray(precision)))
        np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), precision[:, columns][:, :, columns], atol=1e-5)
        assert not np.any(engine.Sets.root(sets, jnp.asarray(-precision)))
