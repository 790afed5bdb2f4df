"""Patches as inducing features of image-convolutional kernels: covariances, bounds, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import Base, Patches, Scaled, Sum
from gpdsl.kernels.functionals import Coefficients, Values
from gpdsl.kernels.interdomain import images_of
from gpdsl.program.cache import precision

MODEL = """
input x : real[D]
output y : real
param s2 : positive = 2
param ell : positive = 0.8
param sigma : positive = 0.3
latent f(x) ~ GP(0.2, s2 * Patch(RBF(ell), image = [3, 3], patch = [2, 2]))
y ~ Normal(f, sigma)
"""
HELD = ["s2", "ell", "sigma"]


def patches(images: np.ndarray) -> np.ndarray:
    """All 2 by 2 patches of 3 by 3 images, by loops."""
    whole = images.reshape(-1, 3, 3)
    return np.asarray([[z[i : i + 2, j : j + 2].ravel() for i in range(2) for j in range(2)] for z in whole])


def rbf(a: np.ndarray, b: np.ndarray, ell: float) -> np.ndarray:
    return np.exp(-0.5 * np.sum((a[..., :, None, :] - b[..., None, :, :]) ** 2, axis=-1) / ell**2)


def data(rows: int = 12) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {"x": rng.normal(size=(rows, 9)), "y": rng.normal(size=rows)}


def test_covariances_are_those_of_a_mean_over_patches() -> None:
    """Also of a sum with a larger patch, of which the smaller one is the corner."""
    x, z = np.random.default_rng(0).normal(size=(2, 5, 9))
    small, large = (Patches(Base("RBF", ("ell",)), (3, 3), size) for size in ((2, 2), (3, 3)))
    corner = patches(z)[:, 0]
    with precision("float64"):
        features, values = Coefficients(jnp.asarray(z), "patches", 5, 10), Values(jnp.asarray(x))
        form, known = Sum((Scaled(small), large)), [jnp.asarray(each) for each in (2.0, 0.8, 1.5)]
        cross, among = covariance(form, known, features, values), covariance(form, known, features)
    expected = np.concatenate([np.sqrt(2) * rbf(patches(x), corner, 0.8).mean(axis=1).T, rbf(z, x, 1.5)])
    np.testing.assert_allclose(cross, expected, atol=1e-12)
    np.testing.assert_allclose(among[:5, :5], rbf(corner, corner, 0.8), atol=1e-12)
    np.testing.assert_allclose(among[5:, 5:], rbf(z, z, 1.5), atol=1e-12)
    assert not np.any(among[:5, 5:])
    assert [(each.patch, list(columns)) for each, columns in images_of(form, 9)] == [
        ((2, 2), list(range(9))),
        ((3, 3), list(range(9))),
    ]


def test_the_bound_is_that_of_titsias_and_all_patches_leave_nothing_open(tmp_path: Path) -> None:
    rows, model = data(), gpdsl.compile(MODEL)
    fit = model.fit(rows, inducing="patches(10)", fixed=HELD)
    at = patches(np.asarray(fit.inducing[0].points))[:, 0]
    own = patches(rows["x"])
    cross, among = rbf(own, at, 0.8).mean(axis=1), rbf(at, at, 0.8)
    explained = 2 * cross @ np.linalg.solve(among, cross.T)
    prior = 2 * np.asarray([rbf(p, p, 0.8).mean() for p in own])
    covariance, off = explained + 0.09 * np.eye(12), rows["y"] - 0.2
    fitted = off @ np.linalg.solve(covariance, off) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    assert fit.elbo == pytest.approx(-0.5 * fitted - 0.5 * np.sum(prior - np.diag(explained)) / 0.09, abs=1e-3)
    whole, exact = model.fit(rows, inducing="patches(48)", fixed=HELD), model.fit(rows, fixed=HELD)
    assert fit.elbo < whole.elbo <= exact.elbo + 1e-6
    assert whole.elbo == pytest.approx(exact.elbo, abs=1e-4)
    new = {"x": data(4)["x"] + 0.3}
    np.testing.assert_allclose(whole.predict(new).mean("f"), exact.predict(new).mean("f"), atol=1e-4)
    np.testing.assert_allclose(whole.predict(new).variance("f"), exact.predict(new).variance("f"), atol=1e-4)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(again.predict(new).mean("f"), fit.predict(new).mean("f"))
    assert "patches(10), values at patches" in model.explain(rows, inducing="patches(10)")


def test_what_has_no_such_features_is_refused() -> None:
    with pytest.raises(GpdslError, match="the images have 48 different patches; ask for at most so many"):
        gpdsl.compile(MODEL).fit(data(), inducing="patches(49)")
    plain = gpdsl.compile(MODEL.replace("Patch(RBF(ell), image = [3, 3], patch = [2, 2])", "RBF(ell)"))
    with pytest.raises(GpdslError, match=r"E546.*family `patches`"):
        plain.fit(data(), inducing="patches(5)")


def test_classes_that_a_part_tells_are_learnt_wherever_it_is() -> None:
    """A horizontal or a vertical bar on noise: pixels tell nothing, a patch of them everything."""
    rng = np.random.default_rng(0)
    upright = rng.integers(0, 2, 120)
    images = 0.15 * np.abs(rng.normal(size=(120, 8, 8)))
    for image, up, (row, column) in zip(images, upright, rng.integers(0, 6, (120, 2)), strict=True):
        image[(slice(row, row + 3), column + 1) if up else (row + 1, slice(column, column + 3))] += 1.0
    x, some = images.reshape(120, 64), slice(0, 50)
    fit = gpdsl.zoo("image_convolutional").fit({"x": x[some], "y": upright[some]}, fixed=["m", "ell"])
    assert np.mean((fit.predict({"x": x[50:]}).mean("y") > 0.5) == upright[50:]) > 0.95
