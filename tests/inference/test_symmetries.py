"""Exchanges and open signs of learnt parameters: which are found, and that averages over parameters know them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference import symmetries
from gpdsl.inference.images import Change
from gpdsl.inference.log_joint import LogJoint
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Result
from gpdsl.inference.symmetries import Atoms, Symmetry, changes_of, images_of_all, symmetry_of
from gpdsl.program.cache import precision
from tests.inference.problems import problem_of

REAL, POSITIVE, UNIT = "real", "positive", "unit"


class Formula:
    """A density of some numbers, and how often it was asked for."""

    def __init__(self, formula: Any) -> None:
        self.formula, self.evaluations = formula, 0
        self.slope = jax.jit(jax.grad(formula))

    def __call__(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        return self.value(at), np.asarray(self.slope(jnp.asarray(at)))

    def value(self, at: np.ndarray) -> float:
        self.evaluations += 1
        return float(self.formula(jnp.asarray(at)))


def found(formula: Any, *kinds: str, latents: tuple[int, ...] = ()) -> tuple[list[Change], int]:
    """Changes of numbers of these kinds, and of latents of so many values, and the evaluations that it took."""
    count = len(kinds)
    open_signs = [kind != POSITIVE for kind in kinds]
    atoms = Atoms(
        widths=(*[1] * count, *latents),
        kinds=(*[(kind,) for kind in kinds], *[("latent", width) for width in latents]),
        open=(*open_signs, *[True] * len(latents)),
        centred=(*[kind == UNIT for kind in kinds], *[False] * len(latents)),
        numbers=count,
    )
    with jax.enable_x64(True):
        density = Formula(formula)
        start = np.random.default_rng(1).normal(size=count + sum(latents))
        return (changes_of(density, atoms, start) if atoms.may_change else []), density.evaluations


MIXED = [((1, 0, 2), (1, 1, -1)), ((0, 1, 2), (-1, -1, -1))]


def two(z: Any) -> Any:
    """Variances v and lengths l of two terms that are added."""
    return jnp.sin(jnp.exp(z[0] - z[2]) + jnp.exp(z[1] - z[3])) - jnp.cos(z[2]) - jnp.cos(z[3]) + z[0] + z[1]


@pytest.mark.parametrize(
    ("formula", "kinds", "changes"),
    [
        (two, [POSITIVE] * 4, [((1, 0, 3, 2), (1, 1, 1, 1))]),
        (lambda z: jnp.sin(z[0] + 2 * z[1]) - z[0] * z[1], [POSITIVE] * 2, []),
        (lambda z: -((1 - z[0] ** 2) ** 2) + z[1], [REAL, POSITIVE], [((0, 1), (-1, 1))]),
        (lambda z: jnp.cos(z[0] * z[1] ** 3) + jnp.sin(z[2]), [REAL] * 3, [((0, 1, 2), (s, -s, 1)) for s in (-1, 1)]),
        (lambda z: jnp.sin(jnp.tanh(z[2]) * (z[0] - z[1])) - z[0] * z[1], [REAL, REAL, UNIT], MIXED),
    ],
)
def test_changes_are_those_of_a_formula(formula: Any, kinds: list[str], changes: list[Change]) -> None:
    """In the last one means of a mixture are exchanged with their shares; in that before it either sign is open."""
    own, evaluations = found(formula, *kinds)
    assert own == changes and evaluations < 20


@pytest.mark.parametrize(("beside", "change"), [(1e3, ((0, 1), (1, 1))), (1.0, None)])
def test_slopes_are_nothing_beside_the_largest_of_any_value(beside: float, change: Change | None) -> None:
    """Of two latents of two values: those of the second are only noise where one of the first is large."""
    atoms = Atoms((2, 2), ("f", "g"), (False, False), (False, False), 0)
    here, there = ([np.array([1e-3, beside]), np.array([each, 0.0])] for each in (1e-8, -3e-7))
    assert symmetries._matched(here, there, atoms, {}, ()) == change


def test_a_scale_changes_its_sign_with_one_of_the_latents() -> None:
    """b f, b f g, and (f - g) b: the latent that goes with it is found by its derivative, or tried."""
    f, g = slice(1, 4), slice(4, 7)
    w = jnp.array([1.0, -2.0, 0.5])
    (alone,), _ = found(lambda z: jnp.sum(jnp.sin(z[0] * z[f] + w)) + jnp.sum(jnp.sin(z[g])), REAL, latents=(3, 3))
    assert alone == ((0, 1, 2), (-1, -1, 1))
    (tried,), _ = found(lambda z: jnp.sum(jnp.sin(z[0] * z[f] * z[g] + w)), REAL, latents=(3, 3))
    assert tried == ((0, 1, 2), (-1, -1, 1))


def test_latents_go_with_their_numbers_though_nothing_reads_one_of_their_values() -> None:
    w = jnp.array([1.0, -2.0, 0.0])
    said, _ = found(
        lambda z: jnp.sum(w * (jnp.sin(jnp.exp(z[0]) * z[2:5]) + jnp.sin(jnp.exp(z[1]) * z[5:]))),
        *[POSITIVE, POSITIVE],
        latents=(3, 3),
    )
    assert said == [((1, 0, 3, 2), (1, 1, 1, 1))]


def test_what_cannot_change_costs_nothing_and_what_does_not_one_gradient() -> None:
    assert found(lambda z: jnp.sin(z[0]), POSITIVE) == ([], 0)
    assert found(lambda z: z[0] + jnp.sin(z[1]), POSITIVE, POSITIVE) == ([], 1)


PRODUCT = """
input x : real
output y : real
param lf : positive ~ LogNormal(0, 1)
param b  : real ~ Normal(0, 1)
param lg : positive ~ LogNormal(0, 1)
latent f(x) ~ GP(0, RBF(lf))
latent g(x) ~ GP(0, RBF(lg))
y ~ Normal(b * f * g, 0.3)
"""


def test_latents_are_exchanged_with_their_parameters() -> None:
    """b f g: two latents, and signs of two of the three, of which the parameters see four."""
    with precision("float64"):
        problem = problem_of(PRODUCT, {"x": np.array([0.0, 0.4, 1.0]), "y": np.ones(3)})
        joint = LogJoint(problem)
        profile: Any = type("Profile", (), {"joint": joint})
        symmetry = symmetry_of(problem.program, profile, problem.parameters)
        assert len(images_of_all(joint, problem.parameters)) == 8
    assert len(symmetry) == 4
    assert symmetry.told == ("exchanging `lf` with `lg` and `f` with `g`", "changing the signs of `b` and `f`")
    points = np.array([[0.1, 0.2, 0.3]])  # b, lf, lg
    images = {tuple(each) for each in symmetry.numbers.of(points)[0]}
    assert images == {(0.1, 0.2, 0.3), (0.1, 0.3, 0.2), (-0.1, 0.2, 0.3), (-0.1, 0.3, 0.2)}


@pytest.mark.parametrize("together", [False, True])
def test_a_posterior_goes_with_its_parameters(together: bool) -> None:
    """Two latents are exchanged, one of them with the other sign: means and covariances, between them too."""
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(1, 2, 3)), rng.normal(size=(1, 2, 3, 6 if together else 3))
    atoms = Atoms((1, 1, 3, 3), ("p", "p", "f", "f"), (True,) * 4, (False,) * 4, 2)
    nothing, change = ((0, 1, 2, 3), (1, 1, 1, 1)), ((1, 0, 3, 2), (1, 1, -1, 1))
    result = Result({"a": np.array(1.0), "b": np.array(2.0)}, [], [Whitened(mean, root)], np.ones(1), 0.0, 0.0)
    image = Symmetry(atoms, (nothing, change)).of(result, 1)
    assert (float(image.parameters["a"]), float(image.parameters["b"])) == (2.0, 1.0)
    q, turn = image.posterior[0], np.array([-1.0, 1.0])[:, None]
    np.testing.assert_allclose(q.mean[0], turn * mean[0, ::-1])
    if together:
        moved = (turn[..., None] * root[0, ::-1]).reshape(6, 6)
        np.testing.assert_allclose(q.root.reshape(6, 6) @ q.root.reshape(6, 6).T, moved @ moved.T)
    else:
        np.testing.assert_allclose(q.root[0] @ np.swapaxes(q.root[0], 1, 2), (root @ np.swapaxes(root, 2, 3))[0, ::-1])


CLUSTERS = """
output y : real
param m1 : real ~ Normal(0, 2)
param m2 : real ~ Normal(0, 2)
param p : unit ~ Beta(2, 2)
y ~ Mixture(p, Normal(m1, 0.6), Normal(m2, 0.6))
"""


@pytest.mark.slow
def test_means_of_a_mixture_have_one_posterior(tmp_path: Path) -> None:
    """Beside a grid over both and the share; a file keeps it."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(20) < 0.3, 1.2, -0.9) + 0.6 * rng.standard_normal(20)
    fit = gpdsl.compile(CLUSTERS).fit({"y": y}, hyperparameters="integrated")
    grid = np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-4, 4, 81), np.linspace(0.01, 0.99, 50), indexing="ij")
    a, b, p = (each.ravel() for each in grid)
    logp = stats.norm.logpdf(a, 0, 2) + stats.norm.logpdf(b, 0, 2) + stats.beta.logpdf(p, 2, 2)
    for each in y:
        logp += np.log(p * stats.norm.pdf(each, a, 0.6) + (1 - p) * stats.norm.pdf(each, b, 0.6))
    weights = np.exp(logp - logp.max())
    weights /= weights.sum()
    fit.save(tmp_path / "a.gpfit")
    for settings in (fit.settings, gpdsl.load_fit(tmp_path / "a.gpfit").settings):
        assert settings is not None and settings.mean("p") == pytest.approx(0.5)
        for name in ("m1", "m2"):
            sd = np.sqrt(weights @ (a - weights @ a) ** 2)
            assert abs(settings.mean(name) - weights @ a) < 0.05 * sd and abs(settings.sd(name) / sd - 1) < 0.05
    assert "1 image of equal density: exchanging `m1` with `m2`, turning `p` to the other side" in fit.summary()


KERNELS = """
input x : real
output y : real
param a : positive ~ LogNormal(0, 1)
param b : {b}
{latents}
"""
ONE = "latent f(x) ~ GP(0, RBF(a) + {kernel})\ny ~ Normal(f, 0.3)"
TWO = "latent f(x) ~ GP(0, RBF(a))\nlatent g(x) ~ GP(0, RBF(b))\ny ~ Normal(f + g, 0.3)"
LENGTH = "positive ~ LogNormal(0, 1)"


@pytest.mark.parametrize("latents", [ONE.format(kernel="RBF(b)"), pytest.param(TWO, marks=pytest.mark.slow)])
def test_lengths_that_may_be_exchanged_have_one_posterior(latents: str) -> None:
    """Two that are added, beside a grid; what is said of each of two latents is the same."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, 14))
    y = np.sin(x) + 0.7 * np.sin(6 * x) + 0.3 * rng.standard_normal(14)
    fit = gpdsl.compile(KERNELS.format(b=LENGTH, latents=latents)).fit({"x": x, "y": y}, hyperparameters="integrated")
    ells = np.exp(np.linspace(-3.5, 3.5, 60))
    each = np.exp(-0.5 * (x[:, None] - x) ** 2 / ells[:, None, None] ** 2)
    covariances = each[:, None] + each + 0.09 * np.eye(14)
    logp = stats.norm.logpdf(np.log(ells)) + stats.norm.logpdf(np.log(ells))[:, None]
    logp -= 0.5 * np.linalg.slogdet(covariances)[1] + 0.5 * np.einsum("i,abij,j", y, np.linalg.inv(covariances), y)
    weights = np.exp(logp - logp.max()).sum(axis=0)
    weights /= weights.sum()
    mean = weights @ ells
    sd = np.sqrt(weights @ (ells - mean) ** 2)
    assert fit.settings is not None and "1 image of equal density: exchanging `a` with `b`" in fit.summary()
    for name in ("a", "b"):
        assert abs(fit.settings.mean(name) - mean) < 0.1 * sd and abs(fit.settings.sd(name) / sd - 1) < 0.1
    if latents == TWO:
        prediction = fit.predict({"x": np.array([0.5, 2.0])})
        np.testing.assert_allclose(prediction.mean("f"), prediction.mean("g"), rtol=1e-6)
        np.testing.assert_allclose(prediction.variance("f"), prediction.variance("g"), rtol=1e-6)


@pytest.mark.parametrize(
    ("b", "kernel", "said"),
    [
        (LENGTH, "RBF(b)", "exchanging `a` with `b` changes no density: these values are one of 2 alike"),
        ("real ~ Normal(0, 1)", "b^2 * RBF(0.1)", "changing the sign of `b` changes no density"),
        ("positive ~ LogNormal(0, 0.5)", "RBF(b)", ""),
    ],
)
def test_a_point_fit_tells_what_no_density_does(b: str, kernel: str, said: str) -> None:
    x = np.linspace(0, 3, 12)
    model = gpdsl.compile(KERNELS.format(b=b, latents=ONE.format(kernel=kernel)))
    found = [e for e in model.fit({"x": x, "y": np.sin(x)}).diagnose() if e.name.startswith("symmetry of")]
    assert len(found) == bool(said)
    assert all(said in each.said and not each.doubtful for each in found)


@pytest.mark.slow
def test_a_scale_of_either_sign_beside_chains() -> None:
    """Counts with rate exp(b f + m): q goes with the sign, and chains go to both."""
    text = """
    input x : real
    output y : count
    param b : real ~ Normal(0, 1)
    param ell : positive ~ LogNormal(0, 0.7)
    latent f(x) ~ GP(0, RBF(ell))
    let h = b * f
    y ~ Poisson(exp(h))
    """
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, 5, 20))
    data = {"x": x, "y": rng.poisson(np.exp(np.sin(2 * x)))}
    model = gpdsl.compile(text)
    fit, drawn = model.fit(data, hyperparameters="integrated"), model.fit(data, engine="mcmc", draws=500)
    assert fit.settings is not None and drawn.settings is not None
    assert fit.settings.mean("b") == pytest.approx(0.0, abs=1e-9)
    assert 0.4 < (drawn.settings.chains["b"] > 0).mean() < 0.6
    assert abs(fit.settings.sd("b") / drawn.settings.sd("b") - 1) < 0.1
    own, other = fit.predict({"x": x}), drawn.predict({"x": x})
    np.testing.assert_allclose(own.mean("f"), 0.0, atol=1e-9)
    sd = np.sqrt(other.variance("h"))
    assert np.max(np.abs(own.mean("h") - other.mean("h")) / sd) < 0.2


def test_images_of_all_leave_learnt_numbers_before_latents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers, and two latents of three values that may be exchanged, one of them with the other sign."""
    atoms: Any = SimpleNamespace(numbers=2, widths=(1, 1, 3, 3), may_change=False)
    monkeypatch.setattr(symmetries, "Atoms", SimpleNamespace(of=lambda *_: atoms))
    monkeypatch.setattr(symmetries, "changes_of_latents", lambda *_: [((1, 0), (1, 1)), ((0, 1), (-1, -1))])
    joint: Any = SimpleNamespace(problem=SimpleNamespace(program=None), sizes=())
    found = images_of_all(joint, {})
    w = np.arange(1.0, 9.0)
    a, b = w[2:5], w[5:]
    expected = {(1.0, 2.0, *s * one, *s * other) for s in (1, -1) for one, other in ((a, b), (b, a))}
    assert {tuple(each) for each in np.asarray(found.of(w))} == expected and len(found) == 4
