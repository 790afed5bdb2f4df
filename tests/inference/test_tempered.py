"""Chains that exchange their places between temperatures, against posteriors of two modes that are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jaxtyping import Array

import gpdsl
from gpdsl.inference.mcmc.chains import Agreement, Chains, Ladder, told
from gpdsl.inference.mcmc.tempered import _acceptance, _arrivals, _even, _exchange, tempered

pytest.importorskip("blackjax")

WEIGHTS, CENTRES, NARROW, PRIOR = np.array([0.3, 0.7]), np.array([-6.0, 5.0]), 0.4, 4.0


@dataclass(frozen=True)
class Apart:
    """p(u) of two narrow peaks that no step crosses between; their weights count against a wide prior or none."""

    without_prior: tuple[str, ...]
    data: Any = 1.0
    start: Any = field(default_factory=lambda: {"learnt": {"u": jnp.asarray(5.0)}})

    def log_likelihood(self, position: Any, data: Any) -> Array:
        peaks = jnp.log(WEIGHTS) - 0.5 * ((position["learnt"]["u"] - CENTRES) / NARROW) ** 2
        return data * logsumexp(peaks)

    def log_prior(self, position: Any, data: Any) -> Array:
        return jnp.zeros(()) if self.without_prior else -0.5 * (position["learnt"]["u"] / PRIOR) ** 2

    @property
    def right(self) -> tuple[float, float]:
        """The weight of the peak on the right, and the mean there."""
        u = np.linspace(-12, 12, 24_001)
        density = WEIGHTS @ np.exp(-0.5 * ((u - CENTRES[:, None]) / NARROW) ** 2)
        density *= 1.0 if self.without_prior else np.exp(-0.5 * (u / PRIOR) ** 2)
        mass = density[u > 0].sum() / density.sum()
        return mass, (density * u)[u > 0].sum() / density[u > 0].sum()


def test_modes_that_lie_apart_have_their_weights_and_pairs_refuse_equally_often() -> None:
    chains = weighed(Apart(()))
    assert chains.ladder is not None
    powers, refused = chains.ladder.powers, chains.ladder.refused
    assert powers[0] == 1 and powers[-1] == 0 and np.all(np.diff(powers) < 0)
    assert refused.max() - refused.min() < 0.2 and refused.min() > 0.05


@pytest.mark.slow
def test_modes_have_their_weights_where_parameters_have_no_prior() -> None:
    weighed(Apart(("u",)))


def weighed(target: Apart) -> Chains:
    """Chains that are found to have each mode as often as is right."""
    reports: list[tuple[int, int]] = []
    chains = tempered(target, 6, 2, 100, 600, 3, lambda done, total: reports.append((done, total)))
    u, (mass, mean) = np.asarray(chains.positions["learnt"]["u"]), target.right
    assert chains.shape == u.shape == (2, 600) and chains.ladder is not None
    assert chains.ladder.arrivals > 50
    # passages from the prior are as good as independent draws of the mode, each of which counts for some draws
    assert abs(np.mean(u > 0) - mass) < 4 * np.sqrt(mass * (1 - mass) / chains.ladder.arrivals)
    assert abs(u[u > 0].mean() - mean) < 0.1 and abs(u[u > 0].std() - NARROW) < 0.06
    lp = [float(target.log_likelihood(at, 1.0) + target.log_prior(at, 1.0)) for at in map(chains.at, (0, 1), (7, 99))]
    np.testing.assert_allclose(chains.statistics["lp"][[0, 1], [7, 99]], lp, rtol=1e-9)
    assert reports[0][0] == 0 and reports[-1][0] == reports[-1][1]
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    return chains


def test_powers_go_where_more_is_refused() -> None:
    np.testing.assert_allclose(_even(np.array([1.0, 0.5, 0.0]), np.array([0.3, 0.1])), [1.0, 2 / 3, 0.0], atol=2e-3)


def test_neighbours_exchange_by_the_ratio_of_what_they_are_worth_at_each_other() -> None:
    powers, energies = jnp.asarray([1.0, 0.4, 0.0]), jnp.asarray([-3.0, -5.0, -4.0])
    np.testing.assert_allclose(_acceptance(powers, energies), [np.exp(-0.6 * 2), 1.0])
    nowhere = jnp.asarray([-3.0, -jnp.inf, -jnp.inf])
    np.testing.assert_allclose(_acceptance(powers, nowhere), [0.0, 0.0])
    willing = jnp.asarray([True, True, False, True])
    assert _exchange(willing, jnp.asarray(0)).tolist() == [1, 0, 2, 3, 4]
    assert _exchange(willing, jnp.asarray(1)).tolist() == [0, 2, 1, 4, 3]


def test_arrivals_are_of_places_that_have_been_at_the_prior_since() -> None:
    assert _arrivals(np.array([[0, 1, 2], [0, 2, 1], [2, 0, 1], [2, 0, 1], [0, 2, 1], [1, 0, 2]])) == 2
    assert _arrivals(np.array([[0, 1], [1, 0], [0, 1]])) == 2


@pytest.mark.parametrize(("refused", "remedy"), [(0.4, "more draws"), (0.9, "temperatures = 9")])
def test_few_arrivals_are_told(refused: float, remedy: str) -> None:
    statistics = {name: np.zeros((2, 500)) for name in ("diverging", "energy", "n_steps")}
    ladder = Ladder(np.linspace(1, 0, 5), np.full(4, refused), 3)
    about, doubts = told(Chains({}, statistics, ladder=ladder), Agreement(1.0, 900.0, 900.0))
    assert f"5 temperatures, neighbours exchange in {1 - refused:.0%} of draws at least, 3 places" in about
    assert len(doubts) == 1 and doubts[0].endswith(remedy)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y ~ Normal(floor(f), 1)", "temperatures belong to the No-U-Turn sampler"),
        ("y ~ Normal(f^2, 1)", "8 temperatures"),
    ],
)
def test_plans_tell_of_temperatures_and_refuse_them_of_slices(line: str, words: str) -> None:
    text = f"input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n{line}"
    data = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    try:
        told = gpdsl.compile(text).explain(data, engine="mcmc", temperatures=8)
    except gpdsl.GpdslError as problem:
        told = str(problem)
    assert words in told


TWO_SIDED = """
input x : real
output y : real
param a : real ~ Normal(0.3, 1)
latent f(x) ~ GP(a^2, 0.01 * RBF(1))
y ~ Normal(f, 0.3)
"""


@pytest.mark.slow
def test_parameters_go_to_both_modes_of_collapsed_models_and_values_to_those_of_joint_ones() -> None:
    asked = {"engine": "mcmc", "chains": 2, "draws": 500, "warm_up": 100, "diagnose": "no", "temperatures": 6}
    fit = gpdsl.compile(TWO_SIDED).fit({"x": [0.0], "y": [3.0]}, **asked)
    a = np.linspace(-4, 4, 8001)
    density = np.exp(-0.5 * (a - 0.3) ** 2 - 0.5 * (3 - a**2) ** 2 / 0.1)
    assert fit.settings is not None and "6 temperatures" in fit.summary()
    drawn, mass = np.ravel(fit.settings.chains["a"]), density[a > 0].sum() / density.sum()
    assert abs(np.mean(drawn > 0) - mass) < 0.1 and abs(np.abs(drawn).mean() - np.sqrt(3)) < 0.05
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, 4 * RBF(1))\ny ~ Normal(f^2 + 0.8 * f, 0.3)"
    data = {"x": [0.0, 50.0], "y": [4.0, 6.0]}
    fit = gpdsl.compile(text).fit(data, **asked)
    f = np.linspace(-8, 8, 8001)
    for row, y in enumerate(data["y"]):
        density = np.exp(-(f**2) / 8 - 0.5 * ((y - f**2 - 0.8 * f) / 0.3) ** 2)
        density /= density.sum()
        found = fit.predict({"x": data["x"]})
        assert abs(found.probability("f > 0")[row] - density[f > 0].sum()) < 0.12
        assert abs(np.sqrt(found.variance("f")[row]) - np.sqrt(density @ f**2 - (density @ f) ** 2)) < 0.15
    alone = {name: value for name, value in asked.items() if name != "temperatures"}
    assert "temperatures = 10" in gpdsl.compile(text).fit(data, **alone).summary()
