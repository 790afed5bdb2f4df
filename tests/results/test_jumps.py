"""Outputs whose likelihood jumps or bends in a latent: densities, moments and quantiles against adaptive quadrature."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, stats

import gpdsl
from tests.inference.problems import unlearnt

HEAD = """
input x : real
output y : {kind}
param s : positive = {s} fixed
latent f(x) ~ GP(0.2, RBF(1))
latent g(x) ~ GP(-0.1, RBF(2))
y ~ {law}
"""
ACROSS = """
let step = tanh(50*(f - 2*g))
let share = 1/(1 + exp(-40*(f - 2*g)))
let power = abs(f - 2*g)^1.5
let jump = floor(f - 2*g)
let rotated = tanh(50*(f - 2*g))*exp(g)
"""
X = np.array([0.0, 0.4, 1.1, 2.0])
NEW = np.array([0.5, 3.0, 6.0])
LAWS: dict[str, tuple[str, str, float, Callable, tuple[float, ...]]] = {
    "step": ("real", "Normal(if f > 0.5 then 1 else 0, s)", 0.1, lambda f, s: stats.norm(f > 0.5, s), (0.5,)),
    "bend": ("real", "Laplace(abs(f), s)", 0.3, lambda f, s: stats.laplace(abs(f), s), (0.0,)),
    "narrow": ("real", "Normal(abs(f), s)", 1e-3, lambda f, s: stats.norm(abs(f), s), (0.0,)),
    "chance": (
        "binary",
        "Bernoulli(p = if f > 0 then 0.9 else 0.1)",
        1.0,
        lambda f, s: stats.bernoulli(np.where(f > 0, 0.9, 0.1)),
        (0.0,),
    ),
    "floor": ("real", "Normal(floor(2*f), s)", 0.2, lambda f, s: stats.norm(np.floor(2 * f), s), np.arange(-9, 10) / 2),
}


def predicted(name: str) -> tuple[gpdsl.Fit, Callable, tuple[float, ...]]:
    kind, law, s, reference, cuts = LAWS[name]
    y = np.array([1.0, 0.0, 1.0, 1.0])
    fit = gpdsl.compile(HEAD.format(kind=kind, law=law, s=s)).fit({"x": X, "y": y}, steps=2, posterior="diagonal")
    return fit, lambda f: reference(f, s), cuts


def over(function: Callable, mean: float, sd: float, cuts: tuple[float, ...]) -> float:
    """E[function] of a normal, piece by piece."""
    ends = np.unique(
        np.clip(
            [mean - 12 * sd, *cuts, *np.linspace(mean - 9 * sd, mean + 9 * sd, 13), mean + 12 * sd],
            mean - 12 * sd,
            mean + 12 * sd,
        )
    )
    at = lambda f: function(f) * stats.norm.pdf(f, mean, sd)  # noqa: E731
    return sum(integrate.quad(at, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("name", ["step", *(pytest.param(n, marks=pytest.mark.slow) for n in LAWS if n != "step")])
def test_log_predictive_density(name: str) -> None:
    fit, law, cuts = predicted(name)
    latent = fit.predict({"x": NEW})
    y = np.array([1.0, 0.0, 1.0]) if LAWS[name][0] == "binary" else np.array([0.98, 0.12, 1.5])
    found = fit.log_predictive_density({"x": NEW, "y": y})
    density = "pmf" if LAWS[name][0] == "binary" else "pdf"
    for k in range(3):
        mean, sd = latent.mean("f")[k], np.sqrt(latent.variance("f")[k])
        near = (*cuts, *(sign * (y[k] + r * LAWS[name][2]) for sign in (1, -1) for r in (-9, -3, 0, 3, 9)))
        expected = np.log(over(lambda f, k=k: getattr(law(f), density)(y[k]), mean, sd, near))
        np.testing.assert_allclose(found[k], expected, rtol=1e-9, atol=1e-9)


def test_log_predictive_density_of_two_latents() -> None:
    model = gpdsl.compile(HEAD.format(kind="real", law="Normal(if f > g then 1 else 0, s)", s=0.05))
    fit = unlearnt(model, {"x": X, "y": np.array([1.0, 0.0, 1.0, 1.0])}, posterior="diagonal")
    latent, y = fit.predict({"x": NEW}), np.array([0.9, 0.1, 1.2])
    apart = latent.mean("f") - latent.mean("g")
    above = stats.norm.cdf(apart / np.sqrt(latent.variance("f") + latent.variance("g")))
    expected = np.log(above * stats.norm.pdf(y, 1, 0.05) + (1 - above) * stats.norm.pdf(y, 0, 0.05))
    np.testing.assert_allclose(fit.log_predictive_density({"x": NEW, "y": y}), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("law", "density"),
    [
        pytest.param(
            "Normal(tanh(30*(f - g)), s)",
            lambda y, f, g: stats.norm.logpdf(y, np.tanh(30 * (f - g)), 0.3),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "Normal(f / (0.05 + g^2), s)",
            lambda y, f, g: stats.norm.logpdf(y, f / (0.05 + g**2), 0.3),
            marks=pytest.mark.slow,
        ),
        pytest.param("StudentT(2, f*g, s)", lambda y, f, g: stats.t.logpdf(y, 2, f * g, 0.3), marks=pytest.mark.slow),
    ],
)
def test_log_predictive_density_of_steep_functions_of_two_latents(law: str, density: Callable) -> None:
    """Far from the data, where the latents are independent and have their priors."""
    fit = gpdsl.compile(HEAD.format(kind="real", law=law, s=0.3)).fit({"x": [0.0], "y": [0.5]}, steps=2)
    y = np.array([0.7, -1.3])
    found = fit.log_predictive_density({"x": np.full(2, 60.0), "y": y})
    z = np.linspace(-8.5, 8.5, 2401)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    for value, at in zip(y, found, strict=True):
        grid = np.exp(density(value, 0.2 + z[:, None], -0.1 + z[None, :]))
        assert at == pytest.approx(np.log(weights @ grid @ weights), abs=2e-6)


def test_both_peaks_of_a_smooth_likelihood_count() -> None:
    model = gpdsl.compile(HEAD.format(kind="real", law="Normal(f^2, s)", s=0.05))
    fit = unlearnt(model, {"x": X, "y": np.array([1.0, 0.0, 1.0, 1.0])}, posterior="diagonal")
    latent, y = fit.predict({"x": NEW}), np.array([0.9, 0.1, 1.2])
    for k, found in enumerate(fit.log_predictive_density({"x": NEW, "y": y})):
        mean, sd = latent.mean("f")[k], np.sqrt(latent.variance("f")[k])
        near = tuple(sign * np.sqrt(max(y[k] + r * 0.05, 0.0)) for sign in (1, -1) for r in (-9, -3, 0, 3, 9))
        expected = np.log(over(lambda f, k=k: stats.norm.pdf(y[k], f**2, 0.05), mean, sd, near))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


STEEP = {
    "a": ("tanh(50 * (f - 0.2))", lambda f: np.tanh(50 * (f - 0.2))),
    "b": ("exp(-(f - 0.2)^2 / 0.00001)", lambda f: np.exp(-((f - 0.2) ** 2) / 1e-5)),
    "c": ("1 / (1 + (30 * (f - 0.2))^2)", lambda f: 1 / (1 + (30 * (f - 0.2)) ** 2)),
    "d": ("if f > 0.2 then tanh(60 * f - 12) else sin(f)", lambda f: np.tanh(60 * f - 12) if f > 0.2 else np.sin(f)),
}
"""Smooth but for `d`, and steep around 0.2."""

NEARBY = tuple(0.2 + sign * 2.0**-k for k in range(-2, 12) for sign in (-1, 0, 1))


def test_steep_lets() -> None:
    lets = "".join(f"let {name} = {text}\n" for name, (text, _) in STEEP.items())
    fit = gpdsl.compile(HEAD.format(kind="real", law="Normal(f, 0.3)", s=1) + lets).fit({"x": X, "y": X})
    prediction = fit.predict({"x": NEW})
    normals = list(zip(prediction.mean("f"), np.sqrt(prediction.variance("f")), strict=True))
    for name, (_, function) in STEEP.items():
        mean = [over(function, *each, NEARBY) for each in normals]
        np.testing.assert_allclose(prediction.mean(name), mean, atol=1e-10)
    mean = prediction.mean("a")
    spread = [
        over(lambda f, m=m: (np.tanh(50 * (f - 0.2)) - m) ** 2, *at, NEARBY)
        for at, m in zip(normals, mean, strict=True)
    ]
    np.testing.assert_allclose(prediction.variance("a"), spread, atol=1e-10)


def test_steep_densities_of_the_file() -> None:
    density = "density bump(y | m) = -0.5 * ((y - tanh(50 * (m - 0.2))) / 0.3)^2 - log(0.3) - 0.9189385332046727\n"
    head, law = HEAD.format(kind="real", law="bump(f)", s=1).rsplit("y ~", 1)
    fit = gpdsl.compile(f"{head}{density}y ~{law}").fit({"x": X, "y": np.ones(4)}, steps=2, posterior="diagonal")
    prediction = fit.predict({"x": NEW})
    normals = zip(prediction.mean("f"), np.sqrt(prediction.variance("f")), strict=True)
    mean = [over(lambda f: np.tanh(50 * (f - 0.2)), *each, NEARBY) for each in normals]
    np.testing.assert_allclose(prediction.mean("y"), mean, atol=3e-4)


@pytest.mark.slow
def test_what_quadrature_over_two_latents_leaves_open_is_said() -> None:
    lets = "let steep = tanh(30 * f * g)\nlet gentle = tanh(0.2 * f * g)\n"
    fit = gpdsl.compile(HEAD.format(kind="real", law="Normal(f + g, 0.1)", s=1) + lets).fit(
        {"x": X, "y": X}, steps=2, posterior="diagonal"
    )
    prediction = fit.predict({"x": NEW})
    f, g = ([prediction.mean(name)[:, None], np.sqrt(prediction.variance(name))[:, None]] for name in "fg")
    z = np.linspace(-8.5, 8.5, 2401)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    both = np.tanh(30 * (f[0] + f[1] * z)[:, :, None] * (g[0] + g[1] * z)[:, None, :])
    true = np.einsum("nij,i,j->n", both, weights, weights)
    wrong, said = np.abs(prediction.mean("steep") - true), prediction.error("steep")
    assert np.all(wrong < 5 * said) and np.all(said < 0.2)
    assert np.all(prediction.error("gentle") < 1e-6)


@pytest.mark.slow
def test_a_variance_is_as_open_as_the_mean_in_it() -> None:
    """E[f^2 + g^2] has a formula, and E[sqrt(f^2 + g^2)] is a quadrature."""
    text = HEAD.format(kind="real", law="Normal(f, s)", s=0.3) + "let r = sqrt(f^2 + g^2)\n"
    prediction = gpdsl.compile(text).fit({"x": [0.0], "y": [0.5]}, steps=2).predict({"x": [60.0]})
    z = np.linspace(-8.5, 8.5, 2401)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    norm = np.hypot(0.2 + z[:, None], -0.1 + z[None, :])
    mean = weights @ norm @ weights
    variance = weights @ norm**2 @ weights - mean**2
    assert abs(prediction.mean("r")[0] - mean) < prediction.error("r")[0]
    assert 1e-6 < abs(prediction.variance("r")[0] - variance) < prediction.error("r", "variance")[0]


@pytest.mark.slow
def test_steep_functions_of_a_difference_are_exact() -> None:
    """A quadrature over f and g was 0.002 to 0.03 off."""
    text = HEAD.format(kind="real", law="Normal(f, s)", s=0.3) + ACROSS
    prediction = gpdsl.compile(text).fit({"x": X, "y": np.sin(3 * X)}, steps=3).predict({"x": NEW})
    level = (prediction.mean("f") - 2 * prediction.mean("g"))[:, None]
    spread = np.sqrt(prediction.variance("f") + 4 * prediction.variance("g"))[:, None]
    z = np.linspace(-8.5, 8.5, 200_001)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    u = level + spread * z
    beside = -0.5 * (spread**2 - prediction.variance("f")[:, None]) / spread**2  # slope of g in u
    g = prediction.mean("g")[:, None] + beside * (u - level)
    left = prediction.variance("g")[:, None] * prediction.variance("f")[:, None] / spread**2
    known = {
        "step": np.tanh(50 * u),
        "share": 0.5 + 0.5 * np.tanh(20 * u),
        "power": np.abs(u) ** 1.5,
        "jump": np.floor(u),
        "rotated": np.tanh(50 * u) * np.exp(g + left / 2),
    }
    for name, values in known.items():
        tolerance = 1e-4 if name == "jump" else 1e-7  # of the reference
        np.testing.assert_allclose(prediction.mean(name), values @ weights, atol=tolerance, err_msg=name)
        if name != "rotated":
            spread_of = values**2 @ weights - (values @ weights) ** 2
            np.testing.assert_allclose(prediction.variance(name), spread_of, atol=2 * tolerance, err_msg=name)
        assert np.all(prediction.error(name) < 1e-9)
    low = prediction.quantile("share", 0.3)
    np.testing.assert_allclose(stats.norm.cdf((-np.log(1 / low - 1) / 40 - level[:, 0]) / spread[:, 0]), 0.3, atol=1e-6)


@pytest.mark.slow
def test_log_densities_over_two_latents_end_in_single_precision() -> None:
    """Cells were halved until halves agreed to more digits than there are: minutes, and all memory."""
    model = gpdsl.compile("""
        input x : real
        output y : real
        latent f(x) ~ GP(0, RBF(1))
        latent g(x) ~ GP(-1, RBF(1))
        y ~ StudentT(4, f, 0.3 * exp(g))
    """)
    x = np.linspace(0.0, 3.0, 8)
    fit = model.fit({"x": x, "y": np.sin(2 * x)}, dtype="float32", posterior="full", steps=8)
    new = {"x": [0.3, 5.0], "y": [0.1, 2.0]}
    prediction, z, few = fit.predict(new), np.linspace(-8.0, 8.0, 8001), np.linspace(-8.0, 8.0, 161)
    means, sds = ([each(name)[:, None] for name in ("f", "g")] for each in (prediction.mean, prediction.sd))
    at, scale = means[0] + sds[0] * z, 0.3 * np.exp(means[1] + sds[1] * few)
    densities = stats.t.pdf(np.array(new["y"])[:, None, None], 4, at[..., None], scale[:, None])
    weights = [np.exp(-0.5 * each**2) / np.exp(-0.5 * each**2).sum() for each in (z, few)]
    expected = np.log(np.einsum("nij,i,j->n", densities, *weights))
    assert np.allclose(fit.log_predictive_density(new), expected, atol=1e-4)
