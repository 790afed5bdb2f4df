"""Surrogates of opaque functions: regressions, weights, residuals and budgets; posteriors of what they stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

import gpdsl
from gpdsl import GpdslError
from gpdsl.inference.opaque.evaluations import Batch, Evaluations, Gaussian, Trust, distance, whiten
from gpdsl.inference.opaque.surrogate import feature_count, hermite, hermite_slopes, is_quadratic, points_for
from gpdsl.inference.sampling import least_squares

ROWS, WIDTH = 3, 2

RESPONSE = """
input x : real
output y : real
param sigma : positive = 0.5
param s2 : positive = 1
param ell : positive = 1
{}
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal({}, sigma)
"""
FORMULA = RESPONSE.format("", "exp(0.7 * f)")
OPAQUE = RESPONSE.format("external g(f: real) -> real", "g(f)")


def response(f: np.ndarray) -> np.ndarray:
    return np.exp(0.7 * f)


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 40)
    return {"x": x, "y": response(np.sin(2 * x)) + 0.2 * rng.standard_normal(40)}


def gaussian(rng: np.random.Generator, shift: float = 0.0) -> Gaussian:
    root = np.tril(0.3 * rng.standard_normal((ROWS, WIDTH, WIDTH))) + np.eye(WIDTH)
    return Gaussian(rng.standard_normal((ROWS, WIDTH)) + shift, root)


def drawn(rng: np.random.Generator, q: Gaussian, points: int, function: Callable[[np.ndarray], np.ndarray]) -> Batch:
    x = q.at(rng.standard_normal((points, ROWS, WIDTH)))
    return Batch(q, x, {"g": function(x)[..., None]})


def test_polynomials_are_orthonormal() -> None:
    nodes, weights = hermegauss(8)
    z = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    w = np.outer(weights, weights).ravel() / weights.sum() ** 2
    features = hermite(z, quadratic=True)
    assert features.shape[1] == feature_count(2, True) == 6
    np.testing.assert_allclose(features.T @ (w[:, None] * features), np.eye(6), atol=1e-12)


def test_a_quadratic_is_found_exactly_from_points_drawn_anywhere(rng: np.random.Generator) -> None:
    def quadratic(x: np.ndarray) -> np.ndarray:
        return 1.0 + x[..., 0] - 2.0 * x[..., 1] + 0.5 * x[..., 0] * x[..., 1] + x[..., 1] ** 2

    known, here = Evaluations(), gaussian(rng)
    for shift in (0.3, 0.0):
        known.add(drawn(rng, gaussian(rng, shift), 20, quadratic))
    found = known.regress(here, quadratic=True)
    new = here.at(rng.standard_normal((5, ROWS, WIDTH)))
    said = np.einsum("snf,nfd->snd", hermite(whiten(here, new), True), found.coefficients["g"])[..., 0]
    np.testing.assert_allclose(said, quadratic(new), atol=1e-5)


def test_held_out_values_are_those_of_a_regression_without_the_point(rng: np.random.Generator) -> None:
    q = gaussian(rng)
    batch = drawn(rng, q, 12, lambda x: np.sin(x).sum(axis=-1))
    known = Evaluations()
    known.add(batch)
    held_out = known.regress(q, quadratic=True).held_out["g"][:, :, 0]
    for left_out in (0, 7):
        kept = np.delete(np.arange(12), left_out)
        for row in range(ROWS):
            features = hermite(whiten(q, batch.x)[:, row], quadratic=True)
            solution = np.linalg.lstsq(features[kept], batch.values["g"][kept, row], rcond=None)[0]
            assert held_out[left_out, row] == pytest.approx(features[left_out] @ solution, rel=1e-4)


def test_slopes_of_polynomials_and_what_a_regression_says_without_a_point(rng: np.random.Generator) -> None:
    z, step = rng.standard_normal((4, ROWS, WIDTH)), 1e-6
    for place in range(WIDTH):
        moved = hermite(z + step * np.eye(WIDTH)[place], True) - hermite(z - step * np.eye(WIDTH)[place], True)
        np.testing.assert_allclose(hermite_slopes(z, True)[..., place, :], moved / (2 * step), atol=1e-8)
    features = np.concatenate([hermite(z, True)[:, :, None], hermite_slopes(z, True)], axis=2).swapaxes(0, 1)
    targets, weights = rng.standard_normal((ROWS, 4, 1 + WIDTH, 1)), rng.uniform(0.5, 1.5, (ROWS, 4))
    said = least_squares(features, weights, {"g": targets})[1]["g"]
    kept = [0, 1, 3]
    root = np.sqrt(np.repeat(weights[1, kept], 1 + WIDTH))[:, None]
    without = np.linalg.lstsq(
        root * features[1, kept].reshape(-1, 6), root * targets[1, kept].reshape(-1, 1), rcond=None
    )
    np.testing.assert_allclose(said[1, 2], features[1, 2] @ without[0], rtol=0.1, atol=0.05)  # the share left open


@pytest.mark.slow
def test_a_gradient_spares_evaluations() -> None:
    """Two latents and two results: a quarter of the points, the same posterior."""
    text = """
    input x : real
    output y : real
    external g(f: real, h: real) -> real
    latent f(x) ~ GP(0, RBF(1))
    latent h(x) ~ GP(1, 0.3 * RBF(1))
    y ~ Normal(g(f, h), 0.2)
    """
    rows: list[int] = []

    def gradient(f: np.ndarray, h: np.ndarray, sensitivity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows.append(len(f))
        return sensitivity * h * np.cos(f), sensitivity * np.sin(f)

    x = np.linspace(-2, 2, 15)
    data = {"x": x, "y": np.sin(x) * 1.2}
    fits = [
        gpdsl.compile(text, externals={"g": each}).fit(data, posterior="full")
        for each in (lambda f, h: h * np.sin(f), gpdsl.opaque(lambda f, h: h * np.sin(f), gradient=gradient))
    ]
    assert rows[1:] and all(count % 15 == 0 for count in rows[1:]), "all points of a round together, after the check"
    assert fits[0].elbo == pytest.approx(fits[1].elbo, abs=0.1)
    for name in ("f", "h"):
        means, variances = ([getattr(fit.predict(data), what)(name) for fit in fits] for what in ("mean", "variance"))
        assert np.abs((means[0] - means[1]) / np.sqrt(variances[0])).max() < 0.1
        np.testing.assert_allclose(np.sqrt(variances[0]), np.sqrt(variances[1]), rtol=0.1)


def test_weights_make_earlier_points_count_for_another_gaussian(rng: np.random.Generator) -> None:
    known, first = Evaluations(), gaussian(rng)
    here = Gaussian(first.mean + 0.3, 0.9 * first.root)
    for q in (first, here):
        known.add(drawn(rng, q, 4000, lambda x: x[..., 0]))
        if q is first:  # as many as there are, and fewer of another Gaussian
            assert known.worth(q) == pytest.approx(4000) and known.worth(here) < 3900
    used, weights = known.weights(here)
    assert used == [0, 1]
    x = np.concatenate([batch.x for batch in known.batches])
    expected = here.mean[:, 0] ** 2 + np.sum(here.root[:, 0] ** 2, axis=-1)
    np.testing.assert_allclose(np.mean(weights * x[..., 0] ** 2, axis=0), expected, rtol=0.1)
    assert weights.max() <= 2.5, "no more than the number of batches, but for the normalisation"
    far = Gaussian(first.mean + 8.0, first.root)
    known.add(drawn(rng, far, 50, lambda x: x[..., 0]))
    assert known.weights(far)[0] == [2], "what says nothing about q is left out"


def test_the_residual_has_its_moments_by_steins_identities(rng: np.random.Generator) -> None:
    """r = z_1 + z_1 z_2 + z_2^2: E[r z] = (1, 0) and E[r (z z' - I)] = [[0, 1], [1, 2]]."""
    q, known = gaussian(rng), Evaluations()
    known.add(drawn(rng, q, 40_000, lambda x: x[..., 0]))
    found = known.regress(q, quadratic=False)
    moments = found.moments(found.z[..., 0] + found.z[..., 0] * found.z[..., 1] + found.z[..., 1] ** 2, None, seed=1)
    np.testing.assert_allclose(moments.level, 1.0, atol=0.06)
    np.testing.assert_allclose(moments.first, np.tile([1.0, 0.0], (ROWS, 1)), atol=0.06)
    np.testing.assert_allclose(moments.second, np.tile([[0.0, 1.0], [1.0, 2.0]], (ROWS, 1, 1)), atol=0.25)
    assert moments.error == pytest.approx(np.sqrt(ROWS * 4 / 40_000), rel=0.05)  # Var r = 1 + 1 + 2
    assert np.abs(moments.noise_first).max() < 0.06 and np.abs(moments.noise_first).max() > 1e-4


def test_points_by_default_carry_a_quadratic_unless_there_are_too_many_latents() -> None:
    assert points_for(1) == 16 and is_quadratic(16, 1)
    assert points_for(8) == 54 and is_quadratic(54, 8) and not is_quadratic(53, 8)
    assert points_for(8, slopes=True) == 12 and is_quadratic(12, 8, slopes=True) and not is_quadratic(9, 8, slopes=True)
    assert points_for(400) == 482 and not is_quadratic(482, 400)


def test_a_trust_region_covers_what_is_near(rng: np.random.Generator) -> None:
    q, trust = gaussian(rng), Trust()
    assert trust.covers(q, q) and distance(q, q) == 0.0
    moved = Gaussian(q.mean + np.einsum("nij,j->ni", q.root, np.array([4.0, 0.0])), q.root)
    assert trust.covers(q, moved) and not trust.shrunk().covers(q, moved)
    assert not trust.covers(q, Gaussian(q.mean, 4.0 * q.root))
    assert not trust.covers(q, Gaussian(q.mean, np.full_like(q.root, np.nan)))


def test_parameters_are_learnt_from_few_evaluations(data: dict[str, np.ndarray]) -> None:
    symbolic = gpdsl.compile(FORMULA).fit(data)
    opaque = gpdsl.compile(OPAQUE, externals={"g": response}).fit(data)
    assert opaque.usage.evaluations < 10_000
    assert opaque.elbo == pytest.approx(symbolic.elbo, abs=0.2)
    for name in ("sigma", "s2", "ell"):
        assert float(opaque.parameters[name]) == pytest.approx(float(symbolic.parameters[name]), rel=0.03)
    ours, theirs = opaque.predict(data), symbolic.predict(data)
    sd = np.sqrt(theirs.variance("f"))
    assert np.abs((ours.mean("f") - theirs.mean("f")) / sd).max() < 0.1
    np.testing.assert_allclose(np.sqrt(ours.variance("f")), sd, rtol=0.05)


@pytest.mark.slow
def test_what_a_surrogate_cannot_say_is_corrected(data: dict[str, np.ndarray]) -> None:
    """A kinked response: the same posterior from surrogates of 16 points a round and of 400."""

    def kinked(f: np.ndarray) -> np.ndarray:
        return np.where(f > 0.2, f, 0.2 + 0.1 * (f - 0.2))

    rng = np.random.default_rng(1)
    data = {"x": data["x"], "y": kinked(np.sin(2 * data["x"])) + 0.1 * rng.standard_normal(40)}
    model = gpdsl.compile(OPAQUE.replace("param sigma : positive = 0.5\n", "").replace("sigma", "0.1"))
    model.externals["g"] = kinked
    held = {"fixed": ["s2", "ell"]}
    few, many = model.fit(data, **held), model.fit(data, samples=400, seed=1, **held)
    assert few.elbo == pytest.approx(many.elbo, abs=0.1)
    one, other = few.predict(data), many.predict(data)
    sd = np.sqrt(other.variance("f"))
    assert np.abs((one.mean("f") - other.mean("f")) / sd).max() < 0.15
    np.testing.assert_allclose(np.sqrt(one.variance("f")), sd, rtol=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"fixed": ["s2", "ell"]},
        pytest.param({"optimizer": "adam", "samples": 20}, marks=pytest.mark.slow),
        pytest.param({"control_variate": "constant"}, marks=pytest.mark.slow),
    ],
)
def test_a_budget_is_never_exceeded(data: dict[str, np.ndarray], options: dict) -> None:
    called = 0

    def counted(f: np.ndarray) -> np.ndarray:
        nonlocal called
        called += len(f)
        return response(f)

    budget = 20_000 if "control_variate" in options else 2000
    model = gpdsl.compile(OPAQUE, externals={"g": counted})
    fit = model.fit(data, evaluations=budget, **options)
    assert 0.5 * budget < called <= budget
    assert fit.usage.evaluations == called


@pytest.mark.slow
def test_parameters_that_an_opaque_function_takes_are_learnt(data: dict[str, np.ndarray]) -> None:
    """As if its formula were known; other engines say that they cannot."""
    text = OPAQUE.replace("g(f: real)", "g(f: real, a: real)").replace("g(f)", "g(f, a)") + "param a : positive = 0.6\n"
    text = text.replace("param s2 : positive = 1\n", "").replace("s2 * ", "").replace("param ell : positive = 1\n", "")
    text = text.replace("RBF(ell)", "RBF(1)")
    symbolic = gpdsl.compile(text.replace("external g(f: real, a: real) -> real", "").replace("g(f, a)", "exp(a * f)"))
    model = gpdsl.compile(text, externals={"g": lambda f, a: np.exp(a * f)})
    assert "parameters passed to them: a; learnt from values around the current ones" in model.explain(data)
    ours, exact = model.fit(data), symbolic.fit(data)
    assert ours.usage.evaluations < 20_000
    assert ours.elbo == pytest.approx(exact.elbo, abs=0.2)
    assert float(ours.parameters["a"]) == pytest.approx(float(exact.parameters["a"]), rel=0.03)
    with pytest.raises(GpdslError, match="parameter `a` is passed to an opaque function"):
        model.fit(data, optimizer="adam")


def test_a_budget_that_allows_nothing_is_refused(data: dict[str, np.ndarray]) -> None:
    model = gpdsl.compile(OPAQUE, externals={"g": response})
    with pytest.raises(GpdslError, match="evaluations = 50: one step takes 80"):
        model.fit(data, evaluations=50)
    with pytest.raises(GpdslError, match="evaluations = 0: expected a whole number of at least 1"):
        model.fit(data, evaluations=0)


def test_the_plan_says_how_many_evaluations_there_will_be(data: dict[str, np.ndarray]) -> None:
    model = gpdsl.compile(OPAQUE + "infer vi: evaluations = 5000\n", externals={"g": response})
    plan = model.explain(data)
    assert "evaluations: 640 a round of 16 points a row; fits end after 3 to 20 rounds as a rule, with those" in plan
    assert "that judge the bound at the end 2,560 to 5,000" in plan
    assert "never more than 5,000" in plan
    assert "evaluations: 640 a step, 4,480 in all" in model.explain(
        data, optimizer="adam", samples=16, evaluations=4500
    )
