"""Engines on likelihoods that are not Gaussian: agreement between them, opaque models, progress and interruption."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.problem import Report
from gpdsl.program.cache import precision

from .conftest import COUNTS, NOISY

Case = tuple[gpdsl.Model, dict[str, np.ndarray]]

OPAQUE_COUNTS = COUNTS.replace("n ~ Poisson(exp(f + 0.3))", "external rate(f: real) -> real\nn ~ Poisson(rate(f))")
OPAQUE_LIKELIHOOD = COUNTS.replace(
    "n ~ Poisson(exp(f + 0.3))", "external likelihood chance(n: real | f: real)\nn ~ chance(f)"
)


def rate(f: np.ndarray) -> np.ndarray:
    return np.exp(f + 0.3)


def test_closed_form_quadrature_and_samples_give_one_posterior(counts: Case) -> None:
    model, data = counts
    held = {"fixed": ["s2", "ell"]}
    closed = model.fit(data, **held)
    quadrature = model.fit(data, expectations="quadrature", **held)
    sampled = model.fit(data, expectations="sampled", samples=400, **held)
    assert quadrature.elbo == pytest.approx(closed.elbo, abs=1e-6)
    assert sampled.elbo == pytest.approx(closed.elbo, abs=0.1)
    sd = np.sqrt(closed.predict(data).variance("f"))
    gap = (sampled.predict(data).mean("f") - closed.predict(data).mean("f")) / sd
    assert np.abs(gap).max() < 0.05


@pytest.mark.parametrize("posterior", ["full", pytest.param("diagonal", marks=pytest.mark.slow), "mixture(2)"])
def test_lbfgs_reaches_a_stationary_point(counts: Case, posterior: str) -> None:
    """A second fit, from other inducing points and another start, ends at nearly the same bound."""
    model, data = counts
    options = {"posterior": posterior, "optimizer": "lbfgs", "inducing": 12, "fixed": ["s2", "ell"]}
    first, second = (model.fit(data, seed=s, **options).elbo for s in (0, 1))
    assert first == pytest.approx(second, abs=0.6)


def test_natural_gradients_and_lbfgs_learn_the_same_hyperparameters(counts: Case) -> None:
    model, data = counts
    natural = model.fit(data, inducing=12)
    lbfgs = model.fit(data, inducing=12, optimizer="lbfgs")
    assert natural.elbo == pytest.approx(lbfgs.elbo, abs=5e-3)
    for name in ("s2", "ell"):
        assert natural.parameters[name] == pytest.approx(lbfgs.parameters[name], rel=0.05)


@pytest.mark.slow
def test_two_latents_of_different_form(rng: np.random.Generator) -> None:
    """Robust heteroscedastic regression: two groups of latents, terms by quadrature over both."""
    x = np.sort(rng.uniform(-3, 3, 60))
    y = np.sin(x) + np.exp(-1 + 0.5 * x) * rng.standard_t(4, size=60)
    model = gpdsl.compile(NOISY)
    options = {"inducing": 15, "posterior": "full"}
    natural, lbfgs = (model.fit({"x": x, "y": y}, optimizer=o, **options) for o in ("natural", "lbfgs"))
    assert natural.elbo == pytest.approx(lbfgs.elbo, abs=0.02)
    noise = natural.predict({"x": np.array([-2.0, 2.5])}).mean("h")
    assert noise[1] > noise[0] + 0.5


@pytest.mark.parametrize(
    "text,externals",
    [(OPAQUE_COUNTS, {"rate": rate}), pytest.param(OPAQUE_LIKELIHOOD, None, marks=pytest.mark.slow)],
)
def test_an_opaque_model_reaches_the_posterior_of_the_symbolic_one(counts: Case, text: str, externals) -> None:
    model, data = counts
    symbolic = model.fit(data, fixed=["s2", "ell"])
    if externals is None:
        from scipy.stats import poisson

        gpdsl.register_likelihood("chance", lambda n, f: poisson.logpmf(n, rate(f)))
    opaque = gpdsl.compile(text, externals=externals).fit(data, fixed=["s2", "ell"])
    assert opaque.elbo == pytest.approx(symbolic.elbo, abs=0.3)
    sd = np.sqrt(symbolic.predict(data).variance("f"))
    gap = (opaque.predict(data).mean("f") - symbolic.predict(data).mean("f")) / sd
    assert np.abs(gap).max() < 0.25
    spread = np.sqrt(opaque.predict(data).variance("f")) / sd
    assert spread.min() > 0.85 and spread.max() < 1.15


@pytest.mark.slow
def test_an_opaque_model_with_a_mixture_or_hyperparameters(counts: Case) -> None:
    _, data = counts
    model = gpdsl.compile(OPAQUE_COUNTS, externals={"rate": rate})
    learnt = model.fit(data, steps=200)
    assert np.isfinite(learnt.elbo) and learnt.parameters["s2"] != 1.0
    mixture = model.fit(data, posterior="mixture(2)", inducing=10, steps=300, learning_rate=0.05, fixed=["s2", "ell"])
    assert mixture.elbo > -200


def test_the_opaque_function_is_never_traced_and_gets_batches(counts: Case) -> None:
    _, data = counts
    kinds: set[type] = set()
    sizes: set[int] = set()

    def checked(f: np.ndarray) -> np.ndarray:
        kinds.add(type(f))
        sizes.add(len(f))
        return rate(f)

    gpdsl.compile(OPAQUE_COUNTS, externals={"rate": checked}).fit(data, steps=60, fixed=["s2", "ell"])
    assert kinds == {np.ndarray}
    assert all(size % 35 == 0 for size in sizes - {2})  # two rows for the probing call, then points for every row


def test_missing_outputs_carry_no_weight(counts: Case) -> None:
    model, data = counts
    holes = data["n"].astype(float)
    holes[::5] = np.nan
    keep = ~np.isnan(holes)
    with_holes = model.fit({"x": data["x"], "n": holes}, fixed=["s2", "ell"])
    without = model.fit({"x": data["x"][keep], "n": holes[keep]}, fixed=["s2", "ell"])
    assert with_holes.elbo == pytest.approx(without.elbo, abs=1e-4)


def test_the_same_seed_gives_the_same_answer(counts: Case) -> None:
    model, data = counts
    options = {"expectations": "sampled", "fixed": ["s2", "ell"], "seed": 3}
    assert model.fit(data, **options).elbo == model.fit(data, **options).elbo
    assert model.fit(data, **options).elbo != model.fit(data, **{**options, "seed": 4}).elbo


def test_single_precision_is_close_to_double(counts: Case) -> None:
    model, data = counts
    single = model.fit(data, dtype="float32", fixed=["s2", "ell"])
    double = model.fit(data, fixed=["s2", "ell"])
    assert single.posterior[0].mean.dtype == np.float32
    assert single.elbo == pytest.approx(double.elbo, abs=0.05)
    np.testing.assert_allclose(single.predict(data).mean("f"), double.predict(data).mean("f"), atol=0.02)


def test_the_callers_precision_is_left_alone(counts: Case) -> None:
    import jax.numpy as jnp

    model, data = counts
    with precision("float32"):
        fit = model.fit(data, fixed=["s2", "ell"])
        assert fit.posterior[0].mean.dtype == np.float64
        assert jnp.ones(1).dtype == jnp.float32


def test_reports_come_between_steps_and_count_up(counts: Case) -> None:
    model, data = counts
    reports: list[Report] = []
    fit = model.fit(data, callback=reports.append)
    assert [r.step for r in reports] == list(range(1, len(reports) + 1))
    assert reports[-1].elbo == pytest.approx(fit.elbo)
    assert reports[-1].remaining is not None and reports[-1].remaining >= 0
    assert all(b.elbo >= a.elbo - 1e-9 for a, b in zip(reports, reports[1:], strict=False))


@pytest.mark.parametrize(
    "options",
    [{}, *(pytest.param(o, marks=pytest.mark.slow) for o in ({"optimizer": "adam"}, {"posterior": "diagonal"}))],
)
def test_an_interrupt_returns_the_best_state_so_far(counts: Case, options: dict) -> None:
    model, data = counts

    def stop(report: Report) -> None:
        if report.step >= 2:
            raise KeyboardInterrupt

    fit = model.fit(data, callback=stop, inducing=10, **options)
    assert fit.interrupted and "interrupted" in fit.summary()
    assert np.all(np.isfinite(fit.predict(data).mean("n")))


def test_a_prior_pulls_its_parameter(counts: Case) -> None:
    _, data = counts
    strong = gpdsl.compile(COUNTS.replace("positive = 0.7", "positive = 0.7 ~ LogNormal(1.5, 0.01)")).fit(data)
    free = gpdsl.compile(COUNTS).fit(data)
    assert strong.parameters["ell"] == pytest.approx(np.exp(1.5), rel=0.05)
    assert abs(free.parameters["ell"] - np.exp(1.5)) > 1.0


@pytest.mark.slow
def test_a_mixture_finds_both_signs_of_a_squared_latent() -> None:
    """y = f^2 + noise leaves the sign open: one Gaussian must choose, two components need not."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(5))\ny ~ Normal(f^2, 0.2)\n"
    x = np.linspace(0, 1, 6)
    data = {"x": x, "y": np.full(6, 1.5**2)}
    fits = [gpdsl.compile(text).fit(data, posterior="mixture(2)", inducing=2, seed=s) for s in range(4)]
    means = [f.predict(data).beliefs.marginals.mean[:, 0, 0] for f in fits]
    assert any(m.min() < -1 and m.max() > 1 for m in means)


def test_a_row_in_which_nothing_is_exposed_says_nothing(rng: np.random.Generator) -> None:
    """Poisson(e exp(f)) with e = 0 and a count of 0, as other probabilistic languages accept it."""
    text = COUNTS.replace("output n", "input e : real\noutput n").replace("exp(f + 0.3)", "e * exp(f)")
    data = {"x": rng.normal(size=12), "e": rng.uniform(0.5, 2, size=12)}
    data["n"] = rng.poisson(data["e"])
    data["e"][4], data["n"][4] = 0.0, 0
    held = ["s2", "ell"]
    model, less = gpdsl.compile(text), {name: np.delete(values, 4) for name, values in data.items()}
    fit = model.fit(data, fixed=held)
    assert fit.elbo == pytest.approx(model.fit(less, fixed=held).elbo, abs=1e-6)
    prediction = fit.predict(data)
    assert prediction.mean("n")[4] == prediction.variance("n")[4] == prediction.quantile("n", 0.9)[4] == 0
    assert abs(fit.log_predictive_density(data)[4]) < 1e-12
    data["n"][4] = 1
    with pytest.raises(GpdslError, match="not finite in row 5"):
        model.fit(data, fixed=held)
