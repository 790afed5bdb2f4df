"""Lattices of normals: averages over few points that are integrals, and what their halves tell."""

from __future__ import annotations

import numpy as np
import pytest

from gpdsl.inference.layered import predictive
from gpdsl.inference.layered.lattices import SETS, lattice
from gpdsl.program.reuse import forget
from tests.results.test_quick_predictions import fitted

CASES = {
    "plane": (80, [1.0, 1.0], 2e-4),
    "row and latent": (256, [3.0, 1.0], 2e-4),
    "space": (256, [1.0, 1.0, 1.0], 1e-3),
    "row and latents": (256, [3.0, 1.0, 1.0], 4e-3),
}


@pytest.mark.parametrize("case", CASES)
def test_averages_of_waves_are_integrals(case: str) -> None:
    """E cos(k'z + a) = cos(a) exp(-|k|^2 / 2), for waves that bend within a standard deviation."""
    count, finer, atol = CASES[case]
    points, weights = lattice(count, np.array(finer))
    assert points.shape == (count, len(finer)) and np.isclose(weights.sum(), 1.0) and np.all(weights > 0)
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((50, len(finer)))
    waves = directions / np.linalg.norm(directions, axis=1)[:, None] * rng.uniform(0.2, 1.5, (50, 1))
    found = weights @ np.cos(points @ waves.T + 0.7)
    np.testing.assert_allclose(found, np.cos(0.7) * np.exp(-0.5 * np.sum(waves**2, axis=1)), atol=atol)
    np.testing.assert_allclose(weights @ points, 0.0, atol=5e-4)
    np.testing.assert_allclose(np.einsum("n,ni,nj->ij", weights, points, points), np.eye(len(finer)), atol=1e-3)


def test_rows_are_finer_along_their_variable() -> None:
    points, _ = lattice(256, np.array([3.0, 1.0]))
    gaps = [
        np.median(np.diff(np.sort(points[np.abs(points[:, other]) < 0.2, axis]))) for axis, other in ((0, 1), (1, 0))
    ]
    assert gaps[0] < gaps[1]
    for half in np.split(points, SETS):  # each is a lattice of its own, around the origin
        assert np.linalg.norm(half, axis=1).min() < 1.0 and np.linalg.norm(half, axis=1).max() > 3.5


LAYERS = """\
input x : real
output y : real
row w ~ Normal(0, 1)
latent h(x, w) ~ GP(0, RBF(1))
latent f(h) ~ GP(0, RBF(1))
y ~ Normal(f, 0.3)
"""


@pytest.mark.parametrize("inner", ["row w ~ Normal(0, 1)\nlatent h(x, w)", "latent h(x)\nlatent g(x)"])
def test_moments_of_layers_are_those_of_many_passes(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a thousandth of the standard deviation, and within what their halves tell, of a product of two lines."""
    text = LAYERS.replace("row w ~ Normal(0, 1)\nlatent h(x, w)", inner)
    if "g(x)" in inner:
        text = text.replace("latent h(x)\n", "latent h(x) ~ GP(0, RBF(1))\n").replace("f(h)", "f(h, g)")
    fit, new = fitted(text), {"x": np.linspace(-2.0, 2.0, 7)}
    prediction = fit.predict(new)
    found = prediction.mean("y"), prediction.sd("y")
    told = prediction.error("y"), prediction.error("y", "variance") / (2.0 * found[1])
    columns = predictive._inner(fit.predicting)[0]
    line = np.linspace(-6.0, 6.0, 48)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    normals = np.zeros((len(grid), fit.predicting.latents))
    normals[:, columns] = grid
    weights = np.exp(-0.5 * np.sum(grid**2, axis=1))
    monkeypatch.setattr(predictive, "passes", lambda program, densities=False: (normals, weights / weights.sum()))
    monkeypatch.setattr(predictive, "pass_count", lambda program, densities=False: len(grid))
    forget()
    again = fit.predict(new)
    forget()
    for mine, known, error in zip(found, (again.mean("y"), again.sd("y")), told, strict=True):
        off = np.abs(mine - known) / found[1]
        assert np.max(off) < 1e-3
        assert np.all(np.abs(mine - known) < 10.0 * np.max(error) + 1e-4)
