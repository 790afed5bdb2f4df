"""Sampling schemes and gradient estimators at the user's choice: unbiased, and with the variances one expects.

Means of n independent estimates are compared with quadrature in units of their standard error, by fresh random inputs
under fixed seeds; with a bound of 4.5 and about three hundred comparisons a false alarm has a chance below 0.3 %.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import gpdsl
from gpdsl.data import bind
from gpdsl.errors import GpdslError
from gpdsl.inference.expected_log_likelihood import NODES, expected_log_likelihood, score_gradients
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.sampling import CLOSED, RIDGE, SCHEMES, base_normals, least_squares, shared_normals
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_program, make_rows
from gpdsl.program.rows import Rows
from tests.inference.conftest import NOISY
from tests.inference.test_exact import Case

ROWS, SAMPLES = 4, 24

COMBINATIONS = [
    (sampling, gradients, control)
    for sampling in SCHEMES
    for gradients, control in (("pathwise", "none"), ("score", "none"), ("score", "constant"), ("score", "regression"))
]


def program_of(expectations: str, gradients: str = "auto", control: str = "regression") -> tuple[Program, Rows]:
    model = gpdsl.compile(NOISY)
    data = {"x": np.arange(float(ROWS)), "y": np.random.default_rng(8).normal(size=ROWS)}
    bound = bind(model.declarations, data)
    program = make_program(
        model.declarations,
        bound.sizes,
        bound.levels,
        {},
        expectations=expectations,
        gradients=gradients,
        control=control,
    )
    return program, as_arrays(make_rows(program, bound), "float64")


def slopes(program: Program, rows: Rows, q: Marginals, normals: Any = None) -> jax.Array:
    """Value and gradients in means and variances, as one vector."""

    def total(q: Marginals) -> jax.Array:
        return jnp.sum(expected_log_likelihood(program, {}, rows, q, normals))

    value, gradient = jax.value_and_grad(total)(q)
    return jnp.concatenate([value[None], gradient.mean.ravel(), gradient.variance.ravel()])


def marginals_of(rng: np.random.Generator) -> Marginals:
    shape = (1, ROWS, 2)
    return Marginals(jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.uniform(0.05, 0.5, size=shape)))


@pytest.fixture(scope="module")
def estimates() -> dict[tuple[str, str, str], np.ndarray]:
    """Two thousand estimates of each combination at one point, and the exact values under `exact`."""
    from gpdsl.program.cache import precision

    with precision("float64"), pytest.MonkeyPatch.context() as patch:
        patch.setitem(NODES, 2, 60)
        q = marginals_of(np.random.default_rng(77))
        quadrature = program_of("quadrature")
        found = {("exact", "", ""): np.asarray(jit(lambda q: slopes(*quadrature, q))(q))}
        keys = jax.random.split(jax.random.key(5), 2000)
        drawn = {
            (sampling, halves): jit(
                jax.vmap(lambda k, s=sampling, h=halves: base_normals(k, SAMPLES, 1, ROWS, 2, h, s))
            )(keys)
            for sampling in SCHEMES
            for halves in (False, True)
        }
        for gradients, control in dict.fromkeys(each[1:] for each in COMBINATIONS):
            program, rows = program_of("sampled", gradients, control)
            compiled = jit(jax.vmap(lambda normals, p=program, r=rows: slopes(p, r, q, normals)))
            for sampling in SCHEMES:
                found[sampling, gradients, control] = np.asarray(compiled(drawn[sampling, gradients == "score"]))
        return found


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_every_estimator_is_unbiased(estimates: dict, combination: tuple) -> None:
    draws, exact = estimates[combination], estimates["exact", "", ""]
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.abs((draws.mean(axis=0) - exact) / error).max() < 4.5


def test_variances_are_in_the_order_one_expects(estimates: dict) -> None:
    """Of the gradients, averaged: plain scores > appendix F > pathwise, and each control beats none."""

    def spread(*combination: str) -> float:
        return float(estimates[combination][:, 1:].var(axis=0).mean())

    for sampling in SCHEMES:
        assert spread(sampling, "score", "constant") < 0.6 * spread(sampling, "score", "none")
        assert spread(sampling, "pathwise", "none") < 0.5 * spread(sampling, "score", "constant")
    for gradients, control in (("pathwise", "none"), ("score", "constant")):
        assert spread("qmc", gradients, control) < 0.9 * spread("iid", gradients, control)
    # a pair of mirror images halves what is drawn independently: it pays where the integrand is close to odd
    assert spread("antithetic", "pathwise", "none") < 1.5 * spread("iid", "pathwise", "none")


@pytest.mark.parametrize("sampling", SCHEMES)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("samples", [7])
def test_all_schemes_draw_standard_normals(sampling: str, halves: bool, samples: int) -> None:
    keys = jax.random.split(jax.random.key(2), 4000)
    draw = jit(jax.vmap(lambda key: base_normals(key, samples, 2, 1, 1, halves, sampling)))
    draws = np.asarray(draw(keys)).reshape(4000, -1)
    assert draws.shape[1] == 2 * samples
    assert np.abs(draws.mean(axis=0)).max() < 4.5 / np.sqrt(4000)
    assert np.abs(draws.var(axis=0) - 1).max() < 4.5 * np.sqrt(2 / 4000)
    if halves:  # no sample of one half depends on those of the other
        half = 2 * (samples // 2)
        across = np.corrcoef(draws.T)[:half, half:]
        assert np.abs(across).max() < 5 / np.sqrt(4000)
    if sampling == "antithetic" and not halves:  # the last of seven has no mirror image
        np.testing.assert_allclose(draws.reshape(-1, 7, 2)[:, [0, 1, 2]], -draws.reshape(-1, 7, 2)[:, [4, 5, 6]])


@pytest.mark.parametrize("latents", [1, 2, 5])
def test_quasi_random_samples_follow_generalised_golden_ratios(latents: int) -> None:
    """Each is the one before moved by powers of 1 / r, r^(d + 1) = r + 1, around the circle."""
    with jax.enable_x64(True):
        drawn = base_normals(jax.random.key(1), 6, 1, 3, latents)
        uniform = np.asarray(jax.scipy.special.ndtr(drawn), float)
    roots = np.roots([1.0, *np.zeros(latents - 1), -1.0, -1.0])
    ratio = max(root.real for root in roots if abs(root.imag) < 1e-9)
    expected = np.broadcast_to(ratio ** -np.arange(1.0, latents + 1), (5, 1, 3, latents))
    np.testing.assert_allclose(np.diff(uniform, axis=0) % 1.0, expected, atol=1e-5)


def test_appendix_f_removes_a_constant(rng: np.random.Generator) -> None:
    """A log density shifted by a constant: plain scores see the shift, controlled ones do not."""
    normals = jnp.asarray(rng.normal(size=(40, 1, 3, 2)))
    values = jnp.sin(normals.sum(axis=-1))
    for control in ("constant", "regression"):
        a, b = (score_gradients(values + shift, normals, jnp.ones((1, 3, 2)), control) for shift in (0.0, 1000.0))
        assert np.abs(np.asarray(a[0] - b[0])).max() < 1e-6
    plain = score_gradients(values + 1000.0, normals, jnp.ones((1, 3, 2)), "none")
    assert np.abs(np.asarray(plain[0])).max() > 50


def test_the_papers_estimator_on_a_differentiable_likelihood(counts: Case) -> None:
    model, data = counts
    exact = model.fit(data, inducing=6, fixed=["s2", "ell"])
    options = {"expectations": "sampled", "gradients": "score", "control_variate": "constant", "sampling": "iid"}
    text = model.explain(data, **options)
    assert "score-function gradients" in text and "appendix F" in text and "independent samples" in text
    fit = model.fit(data, inducing=6, fixed=["s2", "ell"], samples=400, **options)
    assert abs(fit.elbo - exact.elbo) < 6 * fit.elbo_se + 0.3
    np.testing.assert_allclose(fit.predict(data).mean("f"), exact.predict(data).mean("f"), atol=0.15)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"gradients": "score"}, "gradients = score is about expectations that are sampled"),
        ({"gradients": "reparameterised"}, "gradients = 'reparameterised': expected one of auto, pathwise, score"),
        ({"sampling": "sobol"}, "sampling = 'sobol': expected one of qmc, antithetic, iid"),
        ({"control_variate": "best"}, "control_variate = 'best': expected one of regression, constant, none"),
    ],
)
def test_choices_of_estimators_are_checked(counts: Case, options: dict, message: str) -> None:
    model, data = counts
    with pytest.raises(GpdslError, match=f"^{message}"):
        model.fit(data, **options)


def test_pathwise_gradients_cannot_pass_through_an_opaque_function() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nexternal g(f: real) -> real\n"
    model = gpdsl.compile(text + "y ~ Normal(g(f), 1)\n", externals={"g": lambda f: f**2})
    with pytest.raises(GpdslError, match="cannot pass through an opaque function; use gradients = auto or score"):
        model.fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, gradients="pathwise")


def test_shared_normals_of_each_component_are_even_on_their_own() -> None:
    """One in each interval of equal probability; antithetic ones come with their opposites."""
    drawn = shared_normals(3, 64, 4, 2, "qmc")
    assert drawn.shape == (64, 4, 1, 2)
    places = np.sort(np.floor(64 * ndtr(drawn)), axis=0)
    np.testing.assert_array_equal(places, np.broadcast_to(np.arange(64.0)[:, None, None, None], places.shape))
    opposite = shared_normals(3, 64, 4, 2, "antithetic")
    np.testing.assert_allclose(opposite.mean(axis=0), 0.0, atol=1e-15)
    assert len(np.unique(opposite)) == opposite.size


def test_a_regression_without_its_only_point_knows_half_of_what_it_leaves_open_least() -> None:
    """Where I - H is CLOSED I, (I - H + CLOSED I)^-1 of the residual CLOSED y is half of y."""
    values, weight = np.array([[[[3.0], [-1.0]]]]), RIDGE * (1.0 / CLOSED - 1.0)
    coefficients, held_out = least_squares(np.eye(2)[None, None], np.full((1, 1), weight), {"a": values})
    np.testing.assert_allclose(coefficients["a"], (1.0 - CLOSED) * values[:, 0])
    np.testing.assert_allclose(held_out["a"], 0.5 * values)
