"""Spherical harmonics as inducing features, in fits: bounds, predictions, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError

LAYER = """
input x : real
output y : real
param w : positive = 2
param b : positive = 0.5
param s2 : positive = 1.3
param sigma : positive = 0.3
latent f(x) ~ GP(0.2, s2 * ArcCosine(order = 1, weight = w, bias = b))
y ~ Normal(f, sigma)
"""
HELD = ["w", "b", "s2", "sigma"]


def series(rows: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, rows))
    return {"x": x, "y": np.sin(3 * x) + 0.3 * rng.standard_normal(rows)}


def own_bound(data: dict[str, np.ndarray], count: int) -> float:
    """The collapsed bound of cos and sin of the angle, whose shares are integrals by the midpoint rule."""
    z = np.stack([np.sqrt(2) * data["x"], np.full(len(data["x"]), np.sqrt(0.5))])
    length, turn = np.linalg.norm(z, axis=0), np.arctan2(z[1], z[0])
    angles = (np.arange(200_000) + 0.5) * np.pi / 200_000
    kernel = (np.sin(angles) + (np.pi - angles) * np.cos(angles)) / np.pi
    explained = np.zeros((len(turn), len(turn)))
    for degree in range(count):
        share = np.mean(kernel * np.cos(degree * angles)) * (2 if degree else 1)
        explained += 1.3 * share * np.outer(length, length) * np.cos(degree * np.subtract.outer(turn, turn))
    y, noise = data["y"] - 0.2, 0.3**2
    covariance = explained + noise * np.eye(len(y))
    fit = y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    return float(-0.5 * fit - 0.5 * np.sum(1.3 * length**2 - np.diag(explained)) / noise)


def test_bounds_are_those_of_plain_numpy_and_rise_to_the_evidence() -> None:
    data, model, bounds = series(), gpdsl.compile(LAYER), []
    exact = model.fit(data, fixed=HELD).elbo
    for count in (4, 12, 60):
        bounds.append(model.fit(data, inducing=f"spherical({count})", fixed=HELD).elbo)
        assert bounds[-1] == pytest.approx(own_bound(data, count), abs=1e-3)
    assert bounds[0] < bounds[1] < bounds[2] < exact
    assert exact - bounds[2] < 0.01


def test_parameters_are_learnt_and_fits_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 3))
    data = {"x": x, "y": np.abs(x[:, 0]) + 0.5 * np.maximum(x[:, 1], 0) + 0.1 * rng.normal(size=60)}
    text = LAYER.replace("x : real", "x : real[3]").replace("w : positive = 2", "w : positive[3] = 1")
    text = text.replace("param s2 : positive = 1.3\n", "").replace("s2 * ", "")
    model = gpdsl.compile(text + "infer vi: inducing f = spherical(7)")
    fit, exact = model.fit(data), model.fit(data, inducing=0)
    assert len(fit.inducing[0]) == 1 + 4 + 9 + 25 + 49
    assert exact.elbo - 4 < fit.elbo < exact.elbo
    w = fit.parameters["w"]
    assert w[0] > w[1] > 5 * w[2]
    new = {"x": np.concatenate([x[:3], np.eye(3)])}
    here, there = fit.predict(new), exact.predict(new)
    np.testing.assert_allclose(here.mean("f"), there.mean("f"), atol=0.2)
    assert "features spherical(7)" in fit.summary()
    assert "88 inducing variables as asked, spherical(7), spherical harmonics of degrees below M" in model.explain(data)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(again.predict(new).mean("f"), here.mean("f"))
    assert here.draws("f", 3, seed=0).shape == (3, 6)
    with pytest.raises(GpdslError, match="prediction.draws draws all rows"):
        fit.draw_functions(2)
    more = model.fit(data, start=fit, inducing="spherical(9)")
    assert fit.elbo - 0.01 < more.elbo < exact.elbo


CLASSES = """
index c in 1..3
input x : real[2]
output y : label[c]
param w[c] : positive = 1
latent f[c](x) ~ GP(0, 2 * ArcCosine(order = 0, weight = w[c]))
y ~ Categorical(logits = f)
infer vi: inducing f = spherical(6)
"""


def test_minibatches_of_classes_whose_layers_differ() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    data = {"x": x, "y": 1 + (x[:, 0] > 0) + (x[:, 1] > 0.3)}
    model = gpdsl.compile(CLASSES)
    fit = model.fit(data, batch=30, steps=120)
    assert len(fit.inducing[0]) == 1 + 3 + 7 + 11
    assert fit.elbo > -75  # of -99 where the inputs tell nothing
    assert gpdsl.score.error_rate(fit, data) < 0.1


GLOBE = """
input lat : real
input lon : real
output y : real
param ell : positive = 0.7
param sigma : positive = 0.3
latent f(lat, lon) ~ GP(0, Matern52(ell, on = [cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)]))
y ~ Normal(f, sigma)
"""


def test_a_globe() -> None:
    """Beyond the date line, too, where the rows are not; the dense covariance in plain NumPy."""
    rng = np.random.default_rng(0)
    lat, lon = np.arcsin(rng.uniform(-1, 1, 60)), rng.uniform(-1, 3, 60)
    z = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    y = 2 * z[:, 0] * z[:, 1] + 0.3 * rng.normal(size=60)
    data, model = {"lat": lat, "lon": lon, "y": y}, gpdsl.compile(GLOBE)
    r = np.sqrt(5) * np.linalg.norm(z[:, None] - z[None], axis=-1) / 0.7
    covariance = (1 + r + r**2 / 3) * np.exp(-r) + 0.09 * np.eye(60)
    exact = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    few, many = (model.fit(data, inducing=f"spherical({k})", fixed=["ell", "sigma"]) for k in (5, 24))
    assert few.elbo < many.elbo < exact < many.elbo + 0.02
    new = {"lat": np.array([0.1, -1.2]), "lon": np.array([-2.5, 9.0])}
    at = np.stack(
        [np.cos(new["lat"]) * np.cos(new["lon"]), np.cos(new["lat"]) * np.sin(new["lon"]), np.sin(new["lat"])]
    )
    r = np.sqrt(5) * np.linalg.norm(at.T[:, None] - z[None], axis=-1) / 0.7
    cross = (1 + r + r**2 / 3) * np.exp(-r)
    told, left = many.predict(new), np.sum(cross * np.linalg.solve(covariance, cross.T).T, axis=1)
    np.testing.assert_allclose(told.mean("f"), cross @ np.linalg.solve(covariance, y), atol=2e-3)
    np.testing.assert_allclose(told.variance("f"), 1 - left, atol=2e-3)


PROJECTED = """
input x : real
output y : real
param ell : positive = 0.4
param b : positive = 2
latent f(x) ~ GP(0, {})
y ~ Normal(f, 0.3)
"""


@pytest.mark.parametrize(
    "kernel",
    [
        "Matern52(ell, on = [x / sqrt(b + x^2), sqrt(b) / sqrt(b + x^2)])",
        "b * Polynomial(5, offset = 1, ell = ell)",
        "b * Periodic(ell, period = 5)",
    ],
)
def test_other_kernels_of_an_angle_learn(kernel: str) -> None:
    """In single precision, from which double recovers; both columns read one number."""
    data, model = series(), gpdsl.compile(PROJECTED.format(kernel))
    single = model.fit(data, inducing="spherical(24)", dtype="float32", diagnose="no")
    assert np.all(np.isfinite(single.predict({"x": data["x"][:3]}).mean("f")))
    fit, exact = (model.fit(data, inducing=each, diagnose="no") for each in ("spherical(24)", 0))
    assert fit.predict({"x": data["x"][:3]}).mean("f").dtype == np.float64
    lost = 2 if "Matern" in kernel else 0.02  # whose evidence keeps rising as b and 1 / ell do
    assert exact.elbo - lost < fit.elbo < exact.elbo + 1e-4
    assert single.elbo == pytest.approx(fit.elbo, abs=0.3)


def test_double_precision_follows_single() -> None:
    """Numbers of harmonics are kept between fits: those of 64 bits ended in a TypeError."""
    data, model = series(), gpdsl.compile(LAYER)
    alone = own_bound(data, 9)
    for dtype, close in (("float32", 0.05), ("float64", 1e-3)):
        fit = model.fit(data, inducing="spherical(9)", fixed=HELD, dtype=dtype, diagnose="no")
        assert fit.elbo == pytest.approx(alone, abs=close)
        assert np.all(np.isfinite(fit.predict({"x": data["x"][:3]}).mean("f")))


@pytest.mark.parametrize(
    ("kernel", "written", "words"),
    [
        ("RBF(1)", "spherical(9)", r":\d+:\d+: error\[E546\](.|\n)*need not lie on one"),
        ("RBF(r, on = [x, x])", "spherical(9)", r"error\[E546\](.|\n)*need not lie on one"),
        ("RBF(r, on = [cos(x), sin(x)])", "spherical(9)", r"E546(.|\n)*a length-scale for each column is no"),
        ("ArcCosine()", "spherical(9000)", r"E546(.|\n)*below 9,000 (.|\n)*spherical\(3998\) are 3,999"),
        ("ArcCosine()", "spherical(0)", r"at least one of `spherical`, as in `spherical\(12\)`, not 0"),
        ("ArcCosine()", "spherical(9, over = [0, 1])", r"expected `spherical\(9\)` without `over`: they have no"),
        ("ArcCosine()", "sperical(9)", "not `sperical`(.|\n)*did you mean `spherical`"),
        ("ArcCosine()", "spherical(1000000000)", "expected at most 999,999,999 of `spherical`, not 1000000000"),
        ("ArcCosine()", "spherical()", "expected a whole number of at least 0, or features"),
        ("ArcCosine()", "fourier(9)", "not of ArcCosine"),
    ],
)
def test_what_does_not_fit_is_said(kernel: str, written: str, words: str) -> None:
    text = LAYER.replace("s2 * ArcCosine(order = 1, weight = w, bias = b)", kernel)
    text = text.replace("param w : positive = 2\nparam b : positive = 0.5\nparam s2 : positive = 1.3\n", "")
    if "(r" in kernel:
        text = text.replace("output", "index k in 1..2\nparam r[k] : positive = 1\noutput", 1)
    with pytest.raises(GpdslError, match=words):
        gpdsl.compile(text).fit(series(), inducing=written)
    with pytest.raises(GpdslError, match="learn_inducing moves inducing points"):
        gpdsl.compile(LAYER).fit(series(), inducing="spherical(9)", learn_inducing=True)
