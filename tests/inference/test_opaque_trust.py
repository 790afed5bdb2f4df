"""Fits of opaque functions go no further than evaluations tell, spend none on what cannot win, and never end below."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.opaque.evaluations import Judged, Trust
from gpdsl.inference.opaque.simulated import LADDER, Rounds
from gpdsl.inference.opaque.simulator import Place
from gpdsl.inference.plan.options import Options
from gpdsl.program.parameters import bijector
from gpdsl.results.summary import WorseThanStart, verify_progress

TIMES = np.array([0.5, 1.5, 3.0])
OSCILLATOR = """
index  time in 1..3
input  place : real
output shift[time] : real
param  noise : positive = {noise}
external displacement(stiffness: real, damping: real) -> real[3]
latent stiffness(place) ~ GP({prior}, RBF(1))
latent damping(place) ~ GP(-1, RBF(1))
let d = displacement(exp(stiffness), exp(damping))
shift[time] ~ Normal(d[time], noise)
"""


def displacement(stiffness: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Of an oscillator that starts at 1 at rest, [rows, 3]: what `examples/damped_oscillator.py` integrates."""
    k, c = stiffness[:, None].astype(complex), damping[:, None]
    root = np.sqrt(c**2 / 4 - k + 1e-14j)
    fast, slow = -c / 2 - root, -c / 2 + root
    return np.real((slow * np.exp(fast * TIMES) - fast * np.exp(slow * TIMES)) / (slow - fast))


def oscillations() -> dict[str, np.ndarray]:
    """24 rows with noise of 0.03."""
    place = np.linspace(0, 4, 24)
    clean = displacement(np.exp(1 + 0.5 * np.sin(1.5 * place)), np.exp(-1 + 0.5 * np.cos(place)))
    return {"place": place, "shift": clean + 0.03 * np.random.default_rng(0).standard_normal((24, 3))}


def test_learnt_noise_does_not_run_away_from_what_surrogates_leave_unexplained() -> None:
    """From the wide q of the start the residual's estimate is negative, and a bound without maximum wants no noise."""
    model = gpdsl.compile(OSCILLATOR.format(noise=1, prior=1), externals={"displacement": displacement})
    fit = model.fit(oscillations(), seed=0)
    assert fit.elbo == pytest.approx(120.87, abs=0.3)
    assert fit.usage.evaluations < 10_000
    assert float(fit.parameters["noise"]) == pytest.approx(0.0286, rel=0.03)


def velocity(stiffness: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Of the same oscillator, later."""
    times, k, c = np.array([0.7, 2.0, 4.0]), stiffness[:, None].astype(complex), damping[:, None]
    root = np.sqrt(c**2 / 4 - k + 1e-14j)
    fast, slow = -c / 2 - root, -c / 2 + root
    return np.real(fast * slow * (np.exp(fast * times) - np.exp(slow * times)) / (slow - fast))


@pytest.mark.slow
def test_rounds_get_smaller_again_once_noise_is_not_what_moves_q() -> None:
    """They took 12,482 evaluations: q is wide at the start, and in the end steps undo each other."""
    place = np.linspace(0, 4, 24)
    clean = velocity(np.exp(1 + 0.5 * np.sin(1.5 * place)), np.exp(-1 + 0.5 * np.cos(place)))
    data = {"place": place, "shift": clean + 0.2 * np.random.default_rng(1).standard_normal((24, 3))}
    fit = gpdsl.compile(OSCILLATOR.format(noise=1, prior=1), externals={"displacement": velocity}).fit(data, seed=1)
    assert fit.elbo == pytest.approx(5.13, abs=0.2)
    assert fit.usage.evaluations < 8_000


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "prior", "best"), [(0.3, 1, 120.87), (1, 0, 119.14), (0.1, 0, 119.14)])
def test_all_seeds_end_in_one_place_from_poor_starts_too(noise: float, prior: float, best: float) -> None:
    model = gpdsl.compile(OSCILLATOR.format(noise=noise, prior=prior), externals={"displacement": displacement})
    fits = [model.fit(oscillations(), seed=seed) for seed in range(3)]
    assert [fit.elbo for fit in fits] == pytest.approx([best] * 3, abs=0.3)
    assert max(fit.usage.evaluations for fit in fits) < 20_000


def test_no_uncertainty_excuses_an_absurd_bound() -> None:
    best = Judged(100.0, 0.1)
    assert not Judged(99.8, 0.1).below(best), "within errors"
    assert Judged(50.0, 0.1).below(best)
    assert not Judged(97.0, 2.0).below(best), "uncertain, but no worse than that explains"
    assert Judged(-1e6, 1e6).below(best), "so uncertain that it says nothing"
    for lost in (Judged(-1e255, np.inf), Judged(1e255, np.nan), Judged(np.nan, 0.1), Judged(np.inf, 0.1)):
        assert lost.below(best)
    absurd = Judged(-1e255, np.inf)
    assert not best.below(absurd) and not Judged(-1e200, np.inf).below(absurd), "anything else is better"


def test_a_round_limits_parameters_on_logarithmic_scales(rng: np.random.Generator) -> None:
    names = {"noise": "positive", "share": "unit", "shift": "real"}
    point = {
        "parameters": {name: jnp.asarray(rng.standard_normal(2)) for name in names},
        "inducing": [jnp.ones((3, 1))],
    }
    bijectors = {name: bijector(constraint) for name, constraint in names.items()}
    wide, narrow = (trust.around(point, bijectors) for trust in (Trust(), Trust().shrunk()))
    for name in ("noise", "share"):
        for (low, high), most in ((wide, 1.5), (narrow, 0.375)):
            np.testing.assert_allclose(high["parameters"][name] - point["parameters"][name], most)
            np.testing.assert_allclose(point["parameters"][name] - low["parameters"][name], most)
    assert np.all(np.isinf(wide[0]["parameters"]["shift"])) and np.all(np.isinf(wide[1]["inducing"][0]))


def test_a_fit_that_ends_below_its_start_is_an_error() -> None:
    text = "input x : real\noutput y : real\nexternal g(f: real) -> real\nlatent f(x) ~ GP(1, RBF(1))\n"
    model = gpdsl.compile(text + "y ~ Normal(g(f), 0.1)", externals={"g": lambda f: np.where(f > 0, f, 0.2 * f)})
    x = np.linspace(0, 4, 20)
    with pytest.raises(WorseThanStart, match="where it started from .* a smaller learning_rate") as raised:
        model.fit({"x": x, "y": np.sin(2 * x)}, optimizer="adam", learning_rate=10.0, samples=8, steps=12, seed=0)
    assert raised.value.fit.elbo < raised.value.fit.history[0, 1]


def test_the_bound_of_a_stochastic_fit_is_that_of_its_gaussian() -> None:
    """E_q[log N(y; 2 f, s)] - KL(q | N(0, K)) + log p(s), in NumPy: g is 2 f, and few steps leave q off its optimum."""
    text = "input x : real\noutput y : real\nparam s : positive = 0.5 ~ LogNormal(0, 1)\nexternal g(f: real) -> real\n"
    model = gpdsl.compile(text + "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(g(f), s)", externals={"g": lambda f: 2 * f})
    data = {"x": np.linspace(0, 6, 5), "y": np.array([3.0, -2.0, 1.0, 4.0, -3.0])}
    fit = model.fit(data, optimizer="adam", learning_rate=0.1, samples=64, steps=40)
    found, s = fit.predict(data), float(fit.parameters["s"])
    mean, covariance = found.mean("f"), found.covariance("f")
    prior = np.exp(-0.5 * (data["x"][:, None] - data["x"]) ** 2)
    wide = np.linalg.solve(prior, covariance + np.outer(mean, mean))
    divergence = 0.5 * (np.trace(wide) - 5 + np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1])
    squares = (data["y"] - 2 * mean) ** 2 + 4 * np.diag(covariance)
    expected = np.sum(stats.norm.logpdf(0.0, 0.0, s) - 0.5 * squares / s**2)
    bound = expected - divergence + stats.lognorm.logpdf(s, 1.0)
    assert divergence > 1 and fit.elbo == pytest.approx(bound, abs=4 * fit.elbo_se)
    assert fit.elbo_se < 0.2


def test_an_end_below_the_start_is_told_by_more_than_errors_explain() -> None:
    def fit(start: float, elbo: float, error: float, **other: Any) -> Any:
        told = {"message": "all steps done", "interrupted": False, "options": Options(), **other}
        told |= {"history": np.array([[0.0, start, 0.0], [9.0, elbo, 1.0]])}
        return SimpleNamespace(elbo=elbo, elbo_se=error, **told)

    with pytest.raises(
        WorseThanStart, match=r"ended at -12 nats \(all steps done\), where it started from -10:"
    ) as raised:
        verify_progress(worse := fit(-10.0, -12.0, 0.03))
    assert raised.value.fit is worse
    for fine in (
        fit(-10.0, -10.9, 0.0),
        fit(-10.0, -12.0, 0.05),  # a step may be wrong by 25 of these errors, and one nat
        fit(-10.0, -12.0, 0.0, interrupted=True),
        fit(-10.0, -12.0, 0.0, options=Options(engine="mcmc")),
    ):
        verify_progress(fine)


@pytest.mark.parametrize(("reach", "part"), [(2.0, 0.5), (0.45, 0.25), (0.06, 0.03125), (0.0, 0.0)])
def test_a_part_of_the_way_to_other_hyperparameters_is_the_longest_half_that_is_trusted(
    reach: float, part: float
) -> None:
    """q, which is at 10 times the parameter here, is the best one there; where no part is trusted q alone moves."""
    here = Place({"s": 2.0}, None, 20.0)  # type: ignore[arg-type]
    simulator = SimpleNamespace(
        profiled=lambda at, *rest: (0.0, at, (10.0 * at["s"], rest[-1])), place=lambda _, sites: sites[0]
    )
    search: Any = SimpleNamespace(here=here, simulator=simulator, normals=lambda: None)
    search.trust = SimpleNamespace(covers=lambda a, b: abs(a - b) <= 10.0 * reach and b != 20.0)
    search.shortened = lambda point, sites: (Place(point, sites, sites[0]), False)
    found = Rounds.profiled_part(search, None, {"s": 3.0})  # type: ignore[arg-type]
    assert found.point["s"] == pytest.approx(2.0 + part)
    assert found.sites == (pytest.approx(20.0 + 10.0 * part), LADDER[0] if part else LADDER[-1])
    assert found.q == pytest.approx(20.0 + 10.0 * part)


@pytest.mark.parametrize(("share", "reach", "part"), [(1.0, 9.0, 1.0), (1.0, 0.3, 0.25), (0.6, 0.5, 0.3)])
def test_a_way_is_halved_until_the_trust_region_covers_it(share: float, reach: float, part: float) -> None:
    """From the best place, in hyperparameters and sites alike."""
    search: Any = SimpleNamespace(best=Place({"s": 1.0}, 5.0, 6.0))  # type: ignore[arg-type]
    search.blend = lambda a, b, share: a + share * (b - a)
    search.simulator = SimpleNamespace(place=lambda at, sites: at["s"] + sites)
    search.trust = SimpleNamespace(covers=lambda a, b: abs(a - b) <= 3.0 * reach)
    found, whole = Rounds.shortened(search, {"s": 2.0}, 7.0, share)  # type: ignore[arg-type]
    assert (found.point["s"], found.sites, found.q) == pytest.approx((1.0 + part, 5.0 + 2.0 * part, 6.0 + 3.0 * part))
    assert whole == (part == 1.0)
