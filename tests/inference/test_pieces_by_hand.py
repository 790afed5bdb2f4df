"""Small formulas of inference against SciPy and sums by hand, where a wrong constant would show in no whole fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from gpdsl.inference import bound, sides
from gpdsl.inference.ascent.lbfgs import Outcome
from gpdsl.inference.bound import mixture_entropy
from gpdsl.inference.exact.engine import SHARE, OnSome, _root
from gpdsl.inference.opaque.evaluations import Batch, Evaluations, Gaussian, distance
from gpdsl.inference.posteriors.features import row_sites
from gpdsl.inference.quadruply_stochastic.weights import Lengths
from gpdsl.program import starts
from tests.inference.problems import problem_of

WEIGHTS, MEANS, SPREADS = np.array([0.3, 0.5, 0.2]), np.array([-1.0, 0.4, 2.0]), np.array([0.5, 0.8, 0.3])


@pytest.mark.parametrize("kind", ["pairwise", "jensen"])
def test_entropies_of_mixtures_by_integrals(kind: str) -> None:
    """Bhattacharyya coefficients and overlaps of Gaussians are integrals of the root and the product of densities."""
    densities = [stats.norm(m, s) for m, s in zip(MEANS, SPREADS, strict=True)]

    def integral(power: float) -> np.ndarray:
        each = lambda a, b: integrate.quad(lambda x: (a.pdf(x) * b.pdf(x)) ** power, -12, 12, limit=200)[0]  # noqa: E731
        return np.array([[each(a, b) for b in densities] for a in densities])

    variances = SPREADS[:, None] ** 2 + SPREADS**2
    entropies = np.array([float(each.entropy()) for each in densities])
    gaps = (MEANS[:, None] - MEANS) ** 2 / variances
    given = jnp.log(WEIGHTS), jnp.asarray(entropies), jnp.asarray(gaps), jnp.log(variances), 1
    if kind == "pairwise":
        expected = WEIGHTS @ (entropies - np.log(integral(0.5) @ WEIGHTS))
    else:
        expected = -WEIGHTS @ np.log(integral(1.0) @ WEIGHTS)
    found = float(mixture_entropy(kind, *given))
    assert found == pytest.approx(expected, abs=1e-8)
    mixed = lambda x: sum(w * each.pdf(x) for w, each in zip(WEIGHTS, densities, strict=True))  # noqa: E731
    exact = integrate.quad(lambda x: -mixed(x) * np.log(mixed(x)), -8, 8, limit=200)[0]
    assert found < exact


def test_pairwise_entropy_of_two_dimensions() -> None:
    """Log determinants and dimensions count once for each: two independent columns, with their own overlaps."""
    given = [jnp.log(jnp.asarray([0.5, 0.5])), 2.0 * jnp.full(2, 0.5 * np.log(2 * np.pi * np.e))]
    gaps, log_dets = jnp.asarray([[0.0, 4.0], [4.0, 0.0]]), 2.0 * jnp.full((2, 2), np.log(2.0))
    overlap = np.exp(-1.0)  # of unit Gaussians two apart in both columns, exp(-(4 + 4) / 8)
    expected = 1.0 + np.log(2 * np.pi) - np.log(0.5 * (1.0 + overlap))
    assert float(mixture_entropy("pairwise", *given, gaps, log_dets, 2)) == pytest.approx(expected, abs=1e-9)


def test_coordinates_of_a_search_have_unit_curvature() -> None:
    """That of as many times the evidence as there are more rows in all; steps of one remain where it is flat."""
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    curvature = directions * np.array([400.0, 3.0, 0.01]) @ directions.T

    def evidence(at: dict[str, jax.Array]) -> tuple[float, dict[str, jax.Array]]:
        flat = np.append(np.asarray(at["a"], float), float(at["b"]))
        slope = -curvature @ flat
        return float(0.5 * flat @ slope), {"a": jnp.asarray(slope[:2]), "b": jnp.asarray(slope[2])}

    with jax.enable_x64(True):
        root = _root(evidence, {"a": jnp.asarray([0.3, -0.2]), "b": jnp.asarray(0.7)})
    found = np.sort(np.linalg.eigvalsh(root.T @ (SHARE * curvature) @ root))
    np.testing.assert_allclose(found, [SHARE * 0.01, 1.0, 1.0], rtol=1e-6)


def test_weights_of_unequal_batches_are_those_of_their_mixture() -> None:
    """Points of each batch count by q over the mixture of both Gaussians, in which a batch counts by its size."""
    rng, q = np.random.default_rng(0), Gaussian(np.array([[0.1]]), np.array([[[0.9]]]))
    sources = [Gaussian(np.array([[-0.3]]), np.array([[[0.8]]])), Gaussian(np.array([[0.4]]), np.array([[[1.2]]]))]
    known, points = Evaluations(), []
    for source, size in zip(sources, (8, 40), strict=True):
        x = source.at(rng.standard_normal((size, 1, 1)))
        known.add(Batch(source, x, {"g": x}))
        points.append(x[:, 0, 0])
    used, weights = known.weights(q)
    x = np.concatenate(points)
    mixture = (8 * stats.norm.pdf(x, -0.3, 0.8) + 40 * stats.norm.pdf(x, 0.4, 1.2)) / 48
    expected = stats.norm.pdf(x, 0.1, 0.9) / mixture
    assert used == [0, 1]
    np.testing.assert_allclose(weights[:, 0], expected / expected.mean(), rtol=1e-10)


def test_distances_count_a_shift_and_a_widening_together() -> None:
    """Both root mean squares over rows and latents: a shift by half a deviation alone is a distance of a half."""
    here = Gaussian(np.zeros((3, 2)), np.broadcast_to(np.eye(2), (3, 2, 2)))
    shifted = Gaussian(np.full((3, 2), 0.5), here.root)
    wider = Gaussian(here.mean, np.exp(0.25) * here.root)
    assert distance(here, shifted) == pytest.approx(0.5)
    assert distance(here, wider) == pytest.approx(0.25)
    assert distance(here, Gaussian(np.full((3, 2), 0.5), wider.root)) == pytest.approx(
        np.hypot(0.5 * np.exp(-0.25), 0.25)
    )


def test_dense_columns_are_those_of_the_inverse_precision() -> None:
    """From exact solutions of H X = E, the columns of the Cholesky factor of H^-1."""
    rng = np.random.default_rng(1)
    features, prior = rng.standard_normal((20, 6)), np.diag(rng.uniform(0.5, 2.0, 6))
    solutions = np.linalg.inv(prior + features.T @ features)[:, :2].T
    lengths = Lengths(
        jnp.asarray(solutions @ prior @ solutions.T), jnp.asarray((solutions @ features.T) @ (features @ solutions.T))
    )
    factor = np.linalg.cholesky(np.linalg.inv(prior + features.T @ features))
    np.testing.assert_allclose(lengths.columns(jnp.asarray(solutions)), factor[:, :2].T, atol=1e-12)


def test_row_variables_under_their_sites_by_integrals() -> None:
    """N(0, 1) times exp(linear x - precision x^2 / 2), also where the site is no Gaussian; divergences add up."""
    linear, precision = np.array([[0.7, -1.2], [0.0, 2.0]]), np.array([[0.4, 2.5], [-0.5, 0.0]])
    found, total = row_sites(jnp.asarray(linear), jnp.asarray(precision)), 0.0
    for place, (h, own) in enumerate(zip(linear.ravel(), precision.ravel(), strict=True)):
        density = lambda x, h=h, own=own: stats.norm.pdf(x) * np.exp(h * x - 0.5 * own * x**2)  # noqa: E731
        integral = lambda f, density=density: integrate.quad(lambda x: f(x) * density(x), -15, 15)[0]  # noqa: E731
        scale = integral(lambda x: 1.0)
        mean = integral(lambda x: x) / scale
        variance = integral(lambda x, mean=mean: (x - mean) ** 2) / scale
        assert float(found.mean.ravel()[place]) == pytest.approx(mean)
        assert float(found.row_variance.ravel()[place]) == pytest.approx(variance)
        assert float(found.factor.ravel()[place]) == pytest.approx(variance**-0.5)
        total += integral(lambda x, h=h, own=own: h * x - 0.5 * own * x**2) / scale - np.log(scale)
    assert float(found.divergence) == pytest.approx(total)


def test_slopes_in_the_coordinates_of_a_search_are_those_of_its_values() -> None:
    """Which are 0 where the search on some rows has ended."""
    end = {"a": jnp.asarray([0.3, -0.2]), "b": jnp.asarray(0.7)}
    root = np.random.default_rng(2).normal(size=(3, 3))
    some = OnSome(Outcome(end, 0.0, "", 0), root)

    def evidence(at: dict[str, jax.Array]) -> tuple[float, dict[str, jax.Array]]:
        a, b = np.asarray(at["a"], float), float(at["b"])
        value = np.sin(a[0]) + a[1] ** 2 * b
        return float(value), {"a": jnp.asarray([np.cos(a[0]), 2 * a[1] * b]), "b": jnp.asarray(a[1] ** 2)}

    with jax.enable_x64(True):
        assert {n: np.asarray(v).tolist() for n, v in some.place(some.origin).items()} == {"a": [0.3, -0.2], "b": 0.7}
        moved = some.place(jnp.asarray([0.0, 2.0, 0.0]))
        np.testing.assert_allclose([*moved["a"], moved["b"]], [0.3, -0.2, 0.7] + 2 * root[:, 1])
        of, at = some.conditioned(evidence), np.array([0.1, -0.4, 0.2])  # type: ignore[arg-type]
        ends = [[float(of(jnp.asarray(at + step))[0]) for step in (d, -d)] for d in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(of(jnp.asarray(at))[1], [(a - b) / 2e-5 for a, b in ends], rtol=1e-8)


@pytest.mark.parametrize("components", [1, 2])
def test_divergences_add_up_over_groups_and_components(components: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entropies, gaps and determinants of groups are sums; cross entropies count by the weights of components."""
    rng, pi = np.random.default_rng(0), np.array([1.0]) if components == 1 else np.array([0.3, 0.7])
    cross, entropy = rng.normal(size=(2, 2, components))
    pairs, asked = rng.normal(size=(2, 2, components, components)), list[Any]()

    def group(number: int) -> tuple[Any, dict]:
        family = SimpleNamespace(
            cross=lambda q, features: jnp.asarray(cross[number]),
            entropy=lambda q: jnp.asarray(entropy[number]),
            pairs=lambda q, features: tuple(map(jnp.asarray, pairs[number])),
        )
        return family, {"mean": np.zeros((components, number + 1, 4))}

    monkeypatch.setattr(bound, "mixture_entropy", lambda *given: asked.append(given) or 0.9)
    layout: Any = SimpleNamespace(family=SimpleNamespace(components=components), entropy="jensen")
    state: Any = {"posterior": {"logits": jnp.asarray(np.log(pi) + 3.0)}}
    seen: Any = [SimpleNamespace(features=None)] * 2
    with jax.enable_x64(True):
        found = float(bound.divergence(layout, state, seen, [group(0), group(1)]))
    if components == 1:
        assert found == pytest.approx(-np.sum(cross + entropy))
        return
    assert found == pytest.approx(-0.9 - pi @ cross.sum(axis=0))
    kind, log_pi, entropies, gaps, log_dets, dimension = asked[0]
    assert (kind, dimension) == ("jensen", 4 + 8)
    np.testing.assert_allclose(log_pi, np.log(pi))
    np.testing.assert_allclose(entropies, entropy.sum(axis=0))
    np.testing.assert_allclose([gaps, log_dets], pairs.sum(axis=0))


def test_profiles_of_rows_are_densities_times_the_priors() -> None:
    problem = problem_of(
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.5)",
        {"x": np.array([0.0, 9.0]), "y": np.array([0.3, -1.0])},
        engine="vi",
    )
    z = np.asarray(sides.NORMALS)[:, None]
    found = sides._profiles(problem, None, problem.parameters, problem.rows, jnp.array([2.0]))
    expected = stats.norm.logpdf(np.array([0.3, -1.0]), 2 * z, 0.5) - 0.5 * z**2
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-10)


@pytest.mark.parametrize(("levels", "far"), [({"m": [0.0, 100.0]}, False), ({"m": [0.0, 1.0]}, True)])
def test_a_level_near_an_output_far_from_zero_is_enough(levels: dict[str, list[float]], far: bool) -> None:
    translator: Any = SimpleNamespace(declarations=SimpleNamespace(outputs={"y": SimpleNamespace(kind="real")}))
    data: Any = SimpleNamespace(columns=lambda _: np.array([[99.9], [100.1], [np.nan]]))
    values = {name: np.array(each) for name, each in levels.items()}
    assert starts._far_levels(translator, data, values, list(values)) == (tuple(values) if far else ())
