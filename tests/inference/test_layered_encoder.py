"""q of row variables by a network of inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.layered.encoder import SMALL, Encoder
from gpdsl.program.rows import Rows

FORKED = """
input x : real
output y : real
param ell : positive[2] = 1
param sigma : positive = 0.1
row w ~ Normal(0, 1)
latent f(x, w) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
infer vi: rows = network(10, 5)
"""
EMBEDDED = """
output y : real[4]
param ell : positive = 1
param sigma : positive = 0.3
index p in 1..4
row w[q] ~ Normal(0, 1)
index q in 1..2
latent f[p](w) ~ GP(0, RBF(ell))
y[p] ~ Normal(f[p], sigma)
infer vi: rows = network(20)
"""


def _fork(rng: np.random.Generator) -> dict[str, np.ndarray]:
    x = rng.uniform(-1, 1, 80)
    sides = np.where(rng.random(80) < 0.5, 1.0, -1.0)
    return {"x": x, "y": sides * (1 + 0.3 * x) + 0.05 * rng.standard_normal(80)}


@pytest.fixture(scope="module")
def fitted() -> tuple[gpdsl.Fit, dict[str, np.ndarray]]:
    data = _fork(np.random.default_rng(2))
    given: dict[str, Any] = {"inducing": 15, "steps": 500, "batch": 40, "importance": 2}
    return gpdsl.compile(FORKED).fit(data, progress=False, **given), data


def test_a_network_tells_sides_of_a_fork_apart(fitted: Any) -> None:
    fit, data = fitted
    q = fit.posterior[next(k for k, group in enumerate(fit.program.groups) if group.per_row)]
    means, high = np.asarray(q.mean)[0, 0], data["y"] > 0
    assert abs(means[high].mean() - means[~high].mean()) > 1.0 > means[high].std() + means[~high].std()
    density = fit.log_predictive_density({"x": np.zeros(3), "y": np.array([-1.0, 0.0, 1.0])})
    assert density[0] > density[1] + 0.5 and density[2] > density[1] + 0.5


@pytest.mark.slow
def test_a_saved_fit_has_what_the_network_said(fitted: Any, tmp_path: Path) -> None:
    fit, data = fitted
    fit.save(tmp_path / "fit")
    loaded = gpdsl.load_fit(tmp_path / "fit")
    for own, other in zip(fit.posterior, loaded.posterior, strict=True):
        assert np.array_equal(own.mean, other.mean) and np.array_equal(own.root, other.root)
    new = {"x": np.linspace(-1, 1, 5)}
    assert np.array_equal(fit.predict(new).mean("y"), loaded.predict(new).mean("y"))
    again = gpdsl.compile(FORKED).fit(data, start=fit, inducing=15, steps=5, progress=False)
    assert np.isfinite(again.elbo)


@pytest.mark.slow
def test_outputs_that_are_embedded_start_at_their_principal_components(rng: np.random.Generator) -> None:
    data = {"y": rng.standard_normal((40, 2)) @ rng.standard_normal((2, 4)) + 0.1 * rng.standard_normal((40, 4))}
    data["y"][3, 1] = np.nan
    assert "by a network(20)" in gpdsl.compile(EMBEDDED).explain(data)
    fits = [gpdsl.compile(EMBEDDED).fit(data, steps=n, inducing=15, progress=False) for n in (1, 300)]
    q = next(q for q, group in zip(fits[0].posterior, fits[0].program.groups, strict=True) if group.per_row)
    filled = np.where(np.isnan(data["y"]), np.nanmean(data["y"], axis=0), data["y"])
    scores = np.linalg.svd((filled - filled.mean(0)) / filled.std(0), full_matrices=False)[0][:, :2]
    for column in np.asarray(q.mean)[0]:
        assert np.linalg.norm(np.linalg.lstsq(scores, column, rcond=None)[0] @ scores.T) > 0.9 * np.linalg.norm(column)
    assert fits[1].elbo > fits[0].elbo + 10


def test_what_a_network_sees_is_standardised_and_marked(rng: np.random.Generator) -> None:
    x, y = jnp.asarray(5 + 3 * rng.standard_normal(50)), jnp.asarray(rng.integers(0, 3, 50).astype(float))
    known = jnp.asarray((np.arange(50) > 9).astype(float))
    labels = jnp.asarray(np.eye(3)[np.asarray(y, int)])
    rows = Rows({"x": x}, {"y": y}, {"y": known}, {"y": labels})
    seen = np.asarray(Encoder.of(rows).seen(rows))
    assert seen.shape == (50, 1 + 3 + 3)
    assert np.allclose(seen[:, 0].mean(), 0) and np.allclose(seen[:, 0].std(), 1)
    assert np.all(seen[:10, 1:] == 0) and np.all(seen[10:, 4:] == 1)


@pytest.mark.parametrize("written", ["network", "network()", "network(0)", "network(20, 2000)", "network(2,2,2,2,2,2)"])
def test_no_such_network(written: str) -> None:
    with pytest.raises(GpdslError, match=r"rows = .*: expected auto, free, or network\(20, 20\): 1 to 5 layers"):
        gpdsl.compile(FORKED).fit({"x": np.arange(4.0), "y": np.arange(4.0)}, rows=written)


def test_minibatches_are_taught_by_a_network() -> None:
    text = FORKED.replace("rows = network(10, 5)", "samples = 2")
    few, many = ({"x": np.linspace(0, 1, n), "y": np.linspace(0, 1, n)} for n in (50, 2_001))
    explained = [gpdsl.compile(text).explain(data) for data in (few, many)]
    assert "by a network" not in explained[0]
    assert "rows: by a network(20, 20), taught by every step: 1000 of 2001 rows" in explained[1]
    assert "by a network" not in gpdsl.compile(text).explain(many, rows="free")


def test_no_network_finds_what_is_only_added() -> None:
    text = (
        "input x : real\noutput y : real\nrow e ~ Normal(0, 1)\nlatent h(x) ~ GP(x, RBF(1))\n"
        "latent f(h) ~ GP(0, RBF(1))\ny ~ Normal(f + 0.1 * e, 0.1)"
    )
    many = {"x": np.linspace(0, 1, 2_001), "y": np.linspace(0, 1, 2_001)}
    explained = gpdsl.compile(text).explain(many)
    assert "one Gaussian per row" in explained and "network" not in explained


def test_a_network_is_refused_without_variables_to_find() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)"
    with pytest.raises(GpdslError, match=r"rows = network\(20\) finds q of row variables"):
        gpdsl.compile(text).fit({"x": np.arange(4.0), "y": np.arange(4.0)}, rows="network(20)")


@pytest.mark.parametrize("from_outputs", [True, False])
def test_a_network_starts_about_the_wanted_means_and_says_what_its_layers_do(
    rng: np.random.Generator, from_outputs: bool
) -> None:
    rows = Rows(
        {"x": jnp.asarray(rng.normal(2.0, 3.0, (60, 2)))}, {"y": jnp.asarray(rng.normal(size=60))}, {"y": jnp.ones(60)}
    )
    encoder = Encoder.of(rows)
    seen = np.asarray(encoder.seen(rows), float)
    wanted = {"mean": (seen @ rng.normal(size=(3, 2))).T[None], "log_sd": np.log(rng.uniform(0.2, 0.6, (1, 2, 60)))}
    weights = encoder.start(rows, (40, 7), wanted, from_outputs, rng)
    assert [each["weights"].shape for each in weights["layers"]] == [(3, 40), (40, 7)]
    for each in weights["layers"]:
        assert np.std(each["weights"]) * np.sqrt(len(each["weights"])) == pytest.approx(1.0, abs=0.25)
        assert not np.any(each["offset"])
    assert np.std(weights["last"]["weights"]) * np.sqrt(7) == pytest.approx(SMALL, rel=0.4)
    inside = np.tanh(np.tanh(seen @ weights["layers"][0]["weights"]) @ weights["layers"][1]["weights"])
    last = inside @ weights["last"]["weights"]
    found = encoder(weights, rows)
    np.testing.assert_allclose(found.mean[0].T, seen @ weights["linear"] + last[:, :2], atol=1e-4)
    typical = np.exp(np.mean(wanted["log_sd"]))
    softened = np.log1p(np.exp(last[:, 2:] + np.log(np.expm1(typical))))
    np.testing.assert_allclose(found.sd[0].T, softened, atol=1e-4)
    if from_outputs:
        np.testing.assert_allclose(seen @ weights["linear"], wanted["mean"][0].T, atol=1e-4)
    else:
        sizes = np.std(seen @ weights["linear"]) / np.std(wanted["mean"])
        assert 0.2 < sizes < 2.5  # three random directions, of the size of what is wanted


def test_maps_of_what_no_row_tells_are_random_and_as_large_as_what_is_wanted(rng: np.random.Generator) -> None:
    table, mean = rng.standard_normal((50, 9)), 3.0 * rng.standard_normal((1, 400, 50))
    encoder: Any = SimpleNamespace(seen=lambda rows: table)
    wanted = {"mean": mean, "log_sd": np.zeros(1)}
    told, drawn = (Encoder.start(encoder, None, (4,), wanted, told, rng)["linear"] for told in (True, False))  # type: ignore[arg-type]
    assert told.shape == drawn.shape == (9, 400)
    assert np.std(table @ drawn) == pytest.approx(np.std(mean), rel=0.1)
    np.testing.assert_allclose(told, np.linalg.lstsq(table, mean[0].T, rcond=None)[0])
