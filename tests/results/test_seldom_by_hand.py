"""What predictions and criticism seldom come to, against NumPy: rows taken out, ranges, nodes, errors of passes."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.program.joint import Marginals
from gpdsl.results.checkpoint import KEPT, not_below
from gpdsl.results.criticism import cavity, through_layers
from gpdsl.results.density import _error_of_passes
from gpdsl.results.levels import _looked_up
from gpdsl.results.nodes import _shifted
from gpdsl.results.pieces import Whitening
from gpdsl.results.responses import _range


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_site_is_taken_out_of_nodes_that_share_values(rng: np.random.Generator) -> None:
    """(S^-1 - P)^-1 of S = R R', and the mean moves by minus that times the slope; None where it is no distribution."""
    root, slope = rng.normal(size=(3, 3)), rng.normal(size=3)
    precision = 0.2 * rng.uniform(size=3) / np.linalg.norm(root, 2) ** 2
    left = np.linalg.inv(np.linalg.inv(root @ root.T) - np.diag(precision))
    moved, variance = through_layers._without(root, slope, precision) or ()
    np.testing.assert_allclose(moved, -left @ slope, rtol=1e-6)
    np.testing.assert_allclose(variance, np.diag(left), rtol=1e-6)
    assert through_layers._without(root, slope, precision + 1.1 / np.linalg.norm(root, 2) ** 2) is None


def test_a_row_is_told_by_all_others_in_draws_of_two_latents(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K_n- K--^-1 f- and what that leaves open of K = A A', by dense algebra."""
    maps, w = rng.normal(size=(2, 4, 4)), rng.normal(size=(2, 4))
    own: Any = SimpleNamespace(mean=w[None])
    readings: Any = SimpleNamespace(basis=(1,))
    group: Any = SimpleNamespace(start=0, size=2, readings=readings)
    f = np.einsum("jnm,jm->nj", maps, w)
    q = Marginals(jnp.asarray(f[None]), jnp.zeros((1, 4, 2)))
    beliefs: Any = SimpleNamespace(
        program=SimpleNamespace(fields=False, latents=2, groups=[group]), marginals=q, count=4
    )
    monkeypatch.setattr(cavity, "_maps", lambda *_: maps)
    at_rows: Any = SimpleNamespace(q=[own])
    found = cavity.among_others(beliefs, at_rows)
    assert found is not None
    for column, a in enumerate(maps):
        covariance = a @ a.T
        for row in range(4):
            others = np.delete(np.arange(4), row)
            weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, row])
            assert found.mean[0, row, column] == pytest.approx(weights @ f[others, column], rel=1e-3)
            open_ = covariance[row, row] - weights @ covariance[others, row]
            assert found.variance[0, row, column] == pytest.approx(open_, rel=1e-3)
    readings.basis = (1, 2)
    assert cavity.among_others(beliefs, at_rows) is None


def test_values_elsewhere_are_half_as_far_again_and_keep_their_sign_and_chances() -> None:
    values = np.array([[1.0, 4.0, 2.0], [-3.0, 1.0, 0.0], [-4.0, -1.0, -2.0], [0.9, 0.95, 0.91], [0.1, 0.3, 0.2]])
    low, high = (each[:, 0] for each in _range(values[..., None]))
    np.testing.assert_allclose(low, [0.1, -5.0, -5.5, 0.875, 0.01])
    np.testing.assert_allclose(high, [5.5, 3.0, -0.1, 0.975, 0.4])


def test_numbers_of_no_level_are_looked_up_behind_all_levels() -> None:
    table = np.array(["a", "b", "c", "none"])
    found = _looked_up(table, 1, np.array([1.0, 3.0, 4.0, 0.0, np.nan, 2.4, -1.0, np.inf, 5.0]))
    assert found.tolist() == ["a", "c", "none", "none", "none", "b", "none", "none", "none"]
    assert _looked_up(table, 0, np.array([0.0, 2.0, 3.0])).tolist() == ["a", "c", "none"]


def test_shifted_nodes_integrate_the_normal_wherever_they_begin() -> None:
    nodes, weights = _shifted(np.arange(5))
    moments = [np.sum(weights * nodes[..., 0] ** power, axis=0) for power in range(9)]
    np.testing.assert_allclose(
        moments, np.tile([[1], [0], [1], [0], [3], [0], [15], [0], [105]], 5), rtol=1e-5, atol=3e-5
    )
    begins = np.sort(np.diff(np.sort(nodes[8, :, 0]), append=nodes[9, :, 0].min()))
    assert begins[0] > 0.1 * begins.sum() and begins.sum() == pytest.approx(nodes[1, 0, 0] - nodes[0, 0, 0])


def test_the_error_of_passes_is_that_of_the_mean_of_their_sets(rng: np.random.Generator) -> None:
    logs, weights = rng.normal(size=(16, 3)), rng.uniform(size=16)
    beliefs: Any = SimpleNamespace(weights=weights / weights.sum())
    sets = np.split(np.exp(logs) * beliefs.weights[:, None], 8)
    assert _error_of_passes(beliefs, logs) == pytest.approx(_of_sets([each.sum(axis=0) for each in sets]), rel=1e-6)


def _of_sets(means: list[np.ndarray]) -> np.ndarray:
    count, middle = len(means), sum(means) / len(means)
    spread = sum((each - middle) ** 2 for each in means) / (count - 1)
    return np.sqrt(spread / count) / middle


def test_what_is_read_is_whitened_and_nothing_is_left_along_sums_that_stay(rng: np.random.Generator) -> None:
    """x = m + R u for a root of two columns of three: u comes back turned, with its length."""
    mean, root, u = rng.normal(size=(4, 3)), rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 6, 2))
    found = Whitening.of(mean, root @ np.swapaxes(root, 1, 2))(mean[:, None] + np.einsum("nij,nsj->nsi", root, u))
    np.testing.assert_allclose(np.einsum("nsi,nti->nst", found, found), np.einsum("nsi,nti->nst", u, u), rtol=1e-8)
    assert np.all(np.sum(np.abs(found) > 1e-9, axis=2) == 2)


@pytest.mark.parametrize(
    ("fallen", "known", "on", "kept"),
    [
        (0.1, {}, {}, True),
        (-0.1, {}, {}, False),
        (4.9, {"batch": 10}, {}, False),  # four standard errors of the difference, of 1 and 0.75, are 5
        (5.1, {"batch": 10}, {}, True),
        (99.0, {"batch": 10, "message": KEPT}, {}, False),
        (0.1, {"message": KEPT}, {}, True),
        (9.0, {}, {"averages_bound": True}, False),
    ],
)
def test_the_higher_bound_is_kept_beyond_its_noise(fallen: float, known: Any, on: Any, kept: bool) -> None:
    def fit(elbo: float, error: float, **other: Any) -> Any:
        choice = SimpleNamespace(batch=other.pop("batch", 0), optimizer="lbfgs")
        own = {"message": "done", "interrupted": False, "options": None, "averages_bound": False, **other}
        return _Fit(elbo=elbo, elbo_se=error, choice=choice, program=SimpleNamespace(sampled=False), **own)

    before, after = fit(-100.0, 1.0, **known), fit(-100.0 - fallen, 0.75, **on)
    assert not_below(before, after).elbo == (before.elbo if kept else after.elbo)
    assert not_below(before, after).message == "done"


@dataclass(frozen=True)
class _Fit:
    elbo: float
    elbo_se: float
    choice: Any
    program: Any
    message: str
    interrupted: bool
    options: Any
    averages_bound: bool
