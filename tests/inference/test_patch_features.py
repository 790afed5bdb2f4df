"""Patches as inducing features of image-convolutional kernels: covariances, bounds, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.kernels.covariance import covariance, variance
from gpdsl.kernels.form import Base, Patches, Product, Scaled, Sum
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


def test_every_mean_over_patches_is_found_in_a_kernel() -> None:
    kernel = Base("RBF", ("ell",))
    small, large = (Patches(kernel, (3, 3), (size, size)) for size in (2, 3))
    found = images_of(Sum((kernel, Scaled(small), Product((large, kernel)))), 9)
    assert [each for each, _ in found] == [small, large]
    assert all(list(columns) == list(range(9)) for _, columns in found)


def test_the_bound_is_that_of_titsias_and_all_patches_leave_nothing_open(tmp_path: Path) -> None:
    rows, model = data(), gpdsl.compile(MODEL)
    fit = model.fit(rows, inducing="patches(10)", fixed=HELD, diagnose="no")
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


WEIGHTS = np.array([1.0, -0.5, 0.3, 2.0])
WEIGHTED = MODEL.replace("input x", "index p in 1..4\nparam w[p] : real\ninput x").replace("2])", "2], weights = w)")


def test_covariances_of_weighted_patches_are_sums_over_pairs() -> None:
    """Between images, of each alone, with features; and slopes in the weights, against differences."""
    x, z = np.random.default_rng(1).normal(size=(2, 5, 9))
    form = Patches(Base("RBF", ("ell",)), (3, 3), (2, 2), weighted=True)
    both = np.zeros((5, 5))
    for i, a in enumerate(patches(x)):
        for j, b in enumerate(patches(z)):
            pairs = [WEIGHTS[k] * WEIGHTS[n] * rbf(a[[k]], b[[n]], 0.8)[0, 0] for k in range(4) for n in range(4)]
            both[i, j] = sum(pairs) / 16
    corner = patches(z)[:, 0]
    with precision("float64"):
        known, values = [jnp.asarray(WEIGHTS), jnp.asarray(0.8)], Values(jnp.asarray(x))
        features = Coefficients(jnp.asarray(z), "patches", 5, 5)
        pairs = (values, Values(jnp.asarray(z))), (values,), (features, values), (features,)
        found, own, cross, among = jax.jit(lambda: [covariance(form, known, *pair) for pair in pairs])()
        diagonal = jax.jit(lambda: variance(form, known, values))()

        def total(weights: jax.Array) -> jax.Array:
            return jnp.sum(jnp.sin(covariance(form, [weights, known[1]], values, Values(jnp.asarray(z)))))

        slopes, ahead = jax.jit(jax.grad(total))(known[0]), np.eye(4) * 1e-5
        of = jax.jit(total)
        steps = [float(of(WEIGHTS + step) - of(WEIGHTS - step)) / 2e-5 for step in ahead]
    np.testing.assert_allclose(found, both, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.diag(own), atol=1e-12)
    expected = np.einsum("npm,p->mn", rbf(patches(x), corner, 0.8), WEIGHTS) / 4
    np.testing.assert_allclose(cross, expected, atol=1e-12)
    np.testing.assert_allclose(among, rbf(corner, corner, 0.8), atol=1e-12)
    np.testing.assert_allclose(slopes, steps, rtol=1e-6, atol=1e-9)


def test_with_weights_all_patches_leave_nothing_open() -> None:
    rows, model, held = data(), gpdsl.compile(WEIGHTED), [*HELD, "w"]
    exact = model.fit(rows, fixed=held, init={"w": WEIGHTS})
    whole, few = (model.fit(rows, fixed=held, init={"w": WEIGHTS}, inducing=f"patches({m})") for m in (48, 10))
    assert few.elbo < whole.elbo <= exact.elbo + 1e-6
    assert whole.elbo == pytest.approx(exact.elbo, abs=1e-4)
    ones = model.fit(rows, fixed=held, init={"w": np.ones(4)})
    assert ones.elbo == pytest.approx(gpdsl.compile(MODEL).fit(rows, fixed=HELD).elbo, abs=1e-9)


@pytest.mark.slow
def test_weights_tell_places() -> None:
    """Bars in the upper and in the lower half of images are the same to a mean over patches."""
    rng = np.random.default_rng(0)
    lower = rng.integers(0, 2, 160)
    images = 0.15 * np.abs(rng.normal(size=(160, 6, 6)))
    for image, row, column in zip(images, 2 + lower, rng.integers(0, 4, 160), strict=True):
        image[row, column : column + 3] += 1.0
    x, right = images.reshape(160, 36), {}
    for name, weights in {"mean": "", "weighted": ", weights = w"}.items():
        fit = gpdsl.compile(PLACES.format(weights)).fit({"x": x[:60], "y": lower[:60]}, fixed=["ell"])
        right[name] = np.mean((fit.predict({"x": x[60:]}).mean("y") > 0.5) == lower[60:])
    assert right["mean"] < 0.75 < 0.95 < right["weighted"]
    learnt = fit.parameters["w"].reshape(4, 4)  # the last one's, upper rows against lower ones
    assert np.sign(learnt[0].mean()) != np.sign(learnt[3].mean())


PLACES = """
index p in 1..16
input x : real[36]
output y : binary
param s2 : positive = 50 ~ LogNormal(4, 1)
param ell : positive = 1
param w[p] : real ~ Normal(0, 1)
latent f(x) ~ GP(0, s2 * Patch(RBF(ell), image = [6, 6], patch = [3, 3]{}))
y ~ Bernoulli(logit = f)
infer vi: inducing f = patches(15)
"""


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
