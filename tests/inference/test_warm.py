"""Fits that start from others: the same answer at once, other inducing points, rows and families, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.natural.minibatch import Schedule
from gpdsl.inference.posteriors.family import Diagonal, Full, Whitened
from gpdsl.inference.starts import SMALLEST_WEIGHT, start_logits
from gpdsl.inference.warm import _close, _moments, carry, near
from gpdsl.kernels.functionals import Values
from gpdsl.results.fitting import start_of
from tests.inference.conftest import COUNTS, NOISY
from tests.inference.problems import problem_of, unlearnt
from tests.inference.test_exact import Case


@pytest.mark.parametrize("posterior", ["full", pytest.param("mixture(2)", marks=pytest.mark.slow), "linear"])
def test_a_fit_that_starts_at_its_end_stays_there(counts: Case, posterior: str) -> None:
    model, data = counts
    first = model.fit(data, posterior=posterior, inducing=7)
    again = model.fit(data, posterior=posterior, inducing=7, start=first)
    assert again.history[0, 1] == pytest.approx(first.elbo, abs=1e-3)
    assert again.elbo >= first.elbo - 1e-6
    assert len(again.history) <= 5 < len(first.history)
    np.testing.assert_allclose(again.weights, first.weights, atol=1e-3)
    for name, value in first.parameters.items():
        assert again.parameters[name] == pytest.approx(value, rel=1e-2)


def test_the_posterior_is_seen_at_other_inducing_points(counts: Case) -> None:
    """At more points than before it is the same process, also under a kernel of other hyperparameters."""
    model, data = counts
    first = model.fit(data, inducing=7)
    start, old = start_of(first), np.asarray(first.inducing[0].points)
    assert start is not None
    more = Values(jnp.asarray(np.concatenate([old, [[-2.5], [0.123], [2.5]]])))
    for factor in (1.0, 1.2):
        parameters = {name: value * factor for name, value in first.parameters.items()}
        program = first.program
        learnt = {n: jnp.asarray(program.parameters.bijectors[n].inverse(v)) for n, v in parameters.items()}
        begun = carry(start, program, learnt, [more], 1e-8)
        fit = replace(first, inducing=(more,), posterior=tuple(begun.posterior), parameters=parameters)
        at = {"x": old[:, 0]}
        for moment in ("mean", "variance"):
            seen, known = (getattr(each.predict(at), moment)("f") for each in (fit, first))
            np.testing.assert_allclose(seen, known, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_inducing_points_are_taken_over_unless_others_are_asked_for(counts: Case, rng: np.random.Generator) -> None:
    model, data = counts
    first = model.fit(data, inducing=6, learn_inducing=True, steps=3)
    x = rng.uniform(-2, 2, 2100)  # more rows than a dense posterior takes
    more = {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 0.3))}
    fit = model.fit(more, start=first, fixed=["s2", "ell"], steps=1)
    assert fit.choice.inducing == 6
    np.testing.assert_array_equal(np.asarray(fit.inducing[0].points), np.asarray(first.inducing[0].points))
    assert model.fit(more, start=first, inducing=5, fixed=["s2", "ell"], steps=1).choice.inducing == 5


@pytest.mark.slow
def test_init_comes_before_the_start_and_fixed_keeps_it(counts: Case) -> None:
    model, data = counts
    first = model.fit(data, inducing=5, steps=3)
    fit = model.fit(data, start=first, inducing=5, init={"ell": 0.4}, fixed=["ell", "s2"])
    assert fit.parameters["ell"] == 0.4
    assert fit.parameters["s2"] == pytest.approx(float(first.parameters["s2"]))


@pytest.mark.slow
def test_a_larger_model_starts_from_a_smaller_one(rng: np.random.Generator) -> None:
    """Constant noise first, then noise with a latent of its own: `f` is carried over, `h` starts afresh.

    At the same points: at others, and in another order of them, a diagonal posterior is another family.
    """
    data = {"x": np.sort(rng.uniform(-2, 2, 40)), "y": rng.standard_t(4, size=40)}
    small = gpdsl.compile(NOISY.replace("latent h(x) ~ GP(-1, 0.5 * RBF(2))\n", "").replace("exp(h)", "0.4"))
    first = small.fit(data, inducing=8)
    both = gpdsl.compile(NOISY)
    for posterior in ("full", "diagonal"):
        cold = both.fit(data, inducing=0, posterior=posterior)
        warm = both.fit(data, inducing=0, posterior=posterior, start=first)
        assert warm.elbo == pytest.approx(cold.elbo, abs=1e-6)


@pytest.mark.slow
def test_a_mixture_starts_around_a_single_gaussian() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(2))\ny ~ Normal(f^2, 0.5)\n"
    model, data = gpdsl.compile(text), {"x": np.linspace(0, 1, 9), "y": np.full(9, 0.4)}
    one = model.fit(data, posterior="full", inducing=4)
    two = model.fit(data, posterior="mixture_full(2)", inducing=4, start=one)
    assert two.elbo >= one.elbo - 1e-3
    back = model.fit(data, posterior="full", inducing=4, start=two)
    assert back.elbo >= one.elbo - 1e-3


def test_row_variables_are_carried_with_their_rows() -> None:
    text = "input x : real\noutput n : count\nrow w ~ Normal(0, 1)\nn ~ Poisson(exp(0.5 * w + x))\n"
    model = gpdsl.compile(text)
    data = {"x": np.zeros(6), "n": np.array([0, 1, 2, 5, 9, 0])}
    first = model.fit(data, posterior="diagonal")
    again = model.fit(data, posterior="diagonal", start=first)
    assert len(again.history) == 1 and again.elbo == pytest.approx(first.elbo, abs=1e-6)
    fewer = model.fit({name: values[:3] for name, values in data.items()}, posterior="diagonal", start=first)
    assert np.isfinite(fewer.elbo)


def test_starts_that_make_no_sense_are_refused(counts: Case) -> None:
    model, data = counts
    first = unlearnt(model, data, inducing=4)
    wide = gpdsl.compile(COUNTS.replace("x : real", "x : real[2]"))
    two = {"x": np.stack([data["x"], data["x"]], axis=1), "n": data["n"]}
    other = gpdsl.compile(COUNTS.replace("f(x)", "g(x)").replace("exp(f", "exp(g"))
    vector = gpdsl.compile(COUNTS.replace("x : real", "x : real[2]").replace("ell : positive", "ell : positive[2]"))
    indexed = gpdsl.compile("index p in 1..2\n" + COUNTS.replace("f(x)", "f[p](x)").replace("exp(f", "exp(f[1] + f[2]"))
    for again, rows, message in (
        (model, data, None),
        (wide, two, "start: latent `f` is over 1 column(s) there and 2 here"),
        (other, data, "start: that fit has none of this model's latents; it has `f`"),
        (indexed, data, "start: latent `f` has 1 element(s) there and 2 here"),
    ):
        if message is None:
            with pytest.raises(GpdslError, match="expected a fit, got str; read a saved fit with gpdsl.load_fit"):
                again.fit(rows, start="first.gpfit")
            continue
        with pytest.raises(GpdslError, match=re.escape(message)):
            again.fit(rows, start=first)
    scalar = unlearnt(wide, two, inducing=4)
    with pytest.raises(GpdslError, match=re.escape("start: parameter `ell` has shape () there and (2,) here")):
        vector.fit(two, start=scalar)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"batch": 50, "steps": 200}, 10),
        pytest.param({"batch": 50, "steps": 200, "dtype": "float32"}, 10, marks=pytest.mark.slow),
        pytest.param({"batch": 50, "steps": 100, "learn_inducing": True}, 10, marks=pytest.mark.slow),
        pytest.param({"batch": 50, "steps": 400, "optimizer": "adam"}, 10, marks=pytest.mark.slow),
        pytest.param({"batch": 50, "steps": 600, "posterior": "diagonal"}, 10, marks=pytest.mark.slow),
        ({"batch": 0, "steps": 300, "optimizer": "adam"}, 10),
        pytest.param({"batch": 0, "steps": 20, "optimizer": "lbfgs"}, 2, marks=pytest.mark.slow),
        pytest.param({"batch": 0, "steps": 3, "schedule": "alternating"}, 1, marks=pytest.mark.slow),
        ({"batch": 0, "steps": 5}, 1),
        pytest.param({"batch": 0, "steps": 5, "engine": "ep"}, 1, marks=pytest.mark.slow),
    ],
)
def test_a_fit_that_goes_on_never_ends_below_its_start(
    counts: Case, rng: np.random.Generator, options: dict[str, Any], more: int
) -> None:
    """A few steps more, not enough for any search that has to begin anew, with minibatches that are noisy."""
    x = rng.uniform(-3, 3, 600)
    data = {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 0.3))}
    first = counts[0].fit(data, inducing=8, **options)
    again = counts[0].fit(data, inducing=8, start=first, **{**options, "steps": more})
    assert again.elbo >= first.elbo - 1e-6 * abs(first.elbo) * (100 if "dtype" in options else 1)
    if again.message.startswith("stopped where it started"):
        for name, value in first.parameters.items():
            assert again.parameters[name] == pytest.approx(float(value), rel=1e-4)


@pytest.mark.slow
def test_visits_of_expectation_propagation_go_on_with_the_sites_there_were(
    counts: Case, rng: np.random.Generator
) -> None:
    """The first visits find the evidence where the fit before had left it, not that of rows without sites."""
    x = rng.uniform(-3, 3, 400)
    data = {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 3.0))}
    model = gpdsl.compile(COUNTS.replace("GP(0", "GP(2.5"))
    options: dict[str, Any] = {"inducing": 8, "engine": "ep", "batch": 40}
    first = model.fit(data, steps=100, **options)
    again = model.fit(data, steps=50, start=first, **options)
    assert again.history[0, 1] == pytest.approx(first.elbo, abs=1.0)
    assert again.elbo > first.elbo - 0.1


@pytest.mark.slow
def test_a_posterior_over_weights_goes_on(rng: np.random.Generator) -> None:
    """The functions it weighs are those of its hyperparameters: these are not looked for anew."""
    x = rng.uniform(-3, 3, 400)
    data = {"x": x, "n": rng.poisson(np.exp(np.sin(2 * x) + 0.3))}
    model = gpdsl.compile(COUNTS)
    options: dict[str, Any] = {"engine": "qsgp", "features": 60, "start_rows": 50, "steps": 100}
    first = model.fit(data, **options)
    again = model.fit(data, start=first, **{**options, "steps": 5})
    assert again.elbo >= first.elbo - 1e-5 * abs(first.elbo)


def test_known_sites_are_not_gathered_again() -> None:
    schedule = Schedule(100, 0.01, 0.1, going_on=True)
    pace = schedule.paces(0, 100)
    np.testing.assert_allclose(pace.keep + pace.gain, 1.0)
    assert pace.length[0] < 0.06 * pace.length.max()
    assert pace.gain[0] < 0.2 * pace.gain.max()


def test_weights_of_a_mixture_begin_where_they_were() -> None:
    """Those that have all but vanished at the least that has a logarithm, and equal ones of another number."""
    problem = problem_of(COUNTS, {"x": np.arange(5.0), "n": np.arange(5)}, posterior="mixture(3)")

    def begun(*weights: float) -> np.ndarray:
        started = replace(problem, begun=SimpleNamespace(weights=np.array(weights)))
        return np.exp(start_logits(started))

    np.testing.assert_allclose(begun(0.7, 0.25, 0.05), [0.7, 0.25, 0.05])
    np.testing.assert_allclose(begun(0.7, 0.3, 0.0), [0.7, 0.3, SMALLEST_WEIGHT])
    np.testing.assert_allclose(begun(0.7, 0.3), 1.0)


def test_latents_of_which_nothing_is_known_have_the_moments_of_the_prior() -> None:
    """Of two latents with three inducing points at four rows: what these explain, and what they leave open."""
    phi, residual = np.random.default_rng(0).normal(size=(2, 4, 3)), np.array([0.1, 0.2, 0.0, 0.5])
    view: Any = SimpleNamespace(features=SimpleNamespace(phi=phi, residual=residual), group=SimpleNamespace(size=2))
    mean, variance = _moments(view, None)
    assert mean.shape == (1, 2, 4) and not np.any(mean)
    np.testing.assert_allclose(variance[0], np.sum(phi**2, axis=2) + residual, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_the_same_within_rounding(dtype: type) -> None:
    one = np.array([3.0, -7.0], dtype)
    eps = np.finfo(dtype).eps
    assert _close([one], [one * dtype(1 + 6 * eps)]) and not _close([one], [one * dtype(1 + 12 * eps)])
    assert not _close([one], [one[:1]])


def test_a_mixture_of_another_size_begins_at_the_heaviest_component() -> None:
    rng = np.random.default_rng(0)
    q = Whitened(rng.normal(size=(3, 1, 2)), np.tril(rng.uniform(1, 2, (3, 1, 2, 2))))
    weights, apart, factor = np.array([0.2, 0.5, 0.3]), rng.normal(size=(2, 1, 2)), np.tril(rng.normal(size=(1, 2, 2)))
    two = near(Diagonal(2, False), q, weights, apart, None)
    np.testing.assert_allclose(two["mean"], q.mean[1] + apart)
    sds = np.sqrt(np.diagonal(q.root[1, 0] @ q.root[1, 0].T))
    np.testing.assert_allclose(np.exp(two["log_sd"]), np.broadcast_to(sds, (2, 1, 2)))
    one = near(Diagonal(1, True), q, weights, apart[:1], factor)
    np.testing.assert_allclose(one["mean"], q.mean[[1]])
    root = factor[0] @ q.root[1, 0]
    np.testing.assert_allclose(np.exp(one["log_sd"])[0, 0], np.sqrt(np.diagonal(root @ root.T)))
    same = near(Full(3), q, weights, apart, None)
    np.testing.assert_allclose(same["mean"], q.mean)
    lower = np.tril(same["root"], -1) + np.exp(np.einsum("...ii->...i", same["root"]))[..., None] * np.eye(2)
    np.testing.assert_allclose(lower, q.root)
