"""Chains that exchange their places between temperatures, against posteriors of two modes that are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jaxtyping import Array
from scipy.stats import laplace, norm

import gpdsl
from gpdsl.inference.mcmc import engine
from gpdsl.inference.mcmc.chains import BLOCK, FRESH, Agreement, Chains, Ladder, keys_of, told
from gpdsl.inference.mcmc.tempered import (
    WIDE,
    Heated,
    _acceptance,
    _arrivals,
    _block,
    _even,
    _exchange,
    _turns,
    tempered,
    tuning,
    warming,
)
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Result
from gpdsl.inference.sides import SEVERAL

from .problems import problem_of

pytest.importorskip("blackjax")

WEIGHTS, CENTRES, NARROW, PRIOR = np.array([0.3, 0.7]), np.array([-6.0, 5.0]), 0.4, 4.0


@dataclass(frozen=True, eq=False)
class Alone:
    """A problem whose programs nobody else has."""

    programs: dict[Any, Any] = field(default_factory=dict)

    def shared(self, make: Any, *arguments: Any, context: Any) -> Any:
        return self.programs.setdefault((make, *context[2:]), jax.jit(partial(make, self, context)))


@dataclass(frozen=True)
class Apart:
    """p(u) of two narrow peaks that no step crosses between; their weights count against a wide prior or none."""

    without_prior: tuple[str, ...]
    data: Any = 1.0
    start: Any = field(default_factory=lambda: {"learnt": {"u": jnp.asarray(5.0)}})
    problem: Any = field(default_factory=Alone)

    @property
    def made(self) -> Any:
        return (lambda _, own: own), self

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


@dataclass(frozen=True)
class Walk:
    """A kernel that takes some steps of Metropolis's walk: of as few lines to trace as a kernel can have."""

    density: Any

    def init(self, place: Any) -> Any:
        return place

    def step(self, key: Array, place: Any) -> tuple[Any, Any]:
        def one(known: Any, key: Array) -> Any:
            u, value = known
            moving, deciding = jax.random.split(key)
            new = u + 2.0 * jax.random.normal(moving, u.shape)
            there = self.density({"learnt": {"u": new}})
            take = jnp.log(jax.random.uniform(deciding)) < there - value
            return (jnp.where(take, new, u), jnp.where(take, there, value)), None

        (u, value), _ = jax.lax.scan(one, (place["learnt"]["u"], self.density(place)), jax.random.split(key, 12))
        zero = jnp.zeros(())
        return State({"learnt": {"u": u}}, value), Info(jnp.asarray(False), zero, zero, jnp.asarray(12), jnp.asarray(0))


def test_modes_that_lie_apart_have_their_weights_and_pairs_refuse_equally_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By any kernel; the slow test below has the No-U-Turn sampler, and what tunes it."""
    tuned = lambda density, place, *_: (State(place, density(place)), jnp.ones(()), jnp.ones(1))  # noqa: E731
    monkeypatch.setattr("gpdsl.inference.mcmc.chains.sampler", lambda: lambda density, **_: Walk(density))
    monkeypatch.setattr("gpdsl.inference.mcmc.chains.adapted", tuned)
    chains = weighed(Apart(()))
    assert chains.ladder is not None
    powers, refused = chains.ladder.powers, chains.ladder.refused
    assert powers[0] == 1 and powers[-1] == 0 and np.all(np.diff(powers) < 0)
    assert refused.max() - refused.min() < 0.2 and refused.min() > 0.05


@pytest.mark.slow
def test_modes_have_their_weights_where_parameters_have_no_prior() -> None:
    chains = weighed(Apart(("u",)))
    assert np.abs(chains.positions["learnt"]["u"]).max() < 12


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
    density = jax.jit(lambda at: target.log_likelihood(at, 1.0) + target.log_prior(at, 1.0))
    lp = [float(density(at)) for at in map(chains.at, (0, 1), (7, 99))]
    np.testing.assert_allclose(chains.statistics["lp"][[0, 1], [7, 99]], lp, rtol=1e-9)
    assert reports[0][0] == 0 and reports[-1][0] == reports[-1][1]
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    return chains


def test_powers_go_where_more_is_refused() -> None:
    np.testing.assert_allclose(_even(np.array([1.0, 0.5, 0.0]), np.array([0.3, 0.1])), [1.0, 2 / 3, 0.0], atol=2e-3)


def test_powers_stay_apart_where_nothing_is_refused() -> None:
    np.testing.assert_allclose(_even(np.array([1.0, 0.9, 0.0]), np.zeros(2)), [1.0, 0.9, 0.0])
    np.testing.assert_allclose(
        _even(np.array([1.0, 0.9, 0.3, 0.0]), np.array([0.0, 0.8, 0.0])), [1.0, 0.7, 0.5, 0.0], atol=2e-3
    )


def at(u: float) -> Any:
    return {"learnt": {"u": jnp.asarray(u)}}


@pytest.mark.parametrize("without_prior", [(), ("u",)], ids=str)
def test_the_likelihood_counts_by_its_power_beside_a_prior_that_is_always_there(without_prior: tuple[str, ...]) -> None:
    """Where a parameter has none it is normal about the end of the search, which the posterior does not see."""
    target, u = Apart(without_prior), 4.2
    heated = Heated(target, 1.0, target.start["learnt"], without_prior)
    likely = float(target.log_likelihood(at(u), 1.0))
    prior = -0.5 * ((u - 5.0) / WIDE) ** 2 if without_prior else -0.5 * (u / PRIOR) ** 2
    posterior = likely if without_prior else likely + prior
    for power in (1.0, 0.3, 0.0):
        expected = power * posterior + (1 - power) * prior
        assert float(heated.at(jnp.asarray(power))(at(u))) == pytest.approx(expected, rel=1e-6)
    assert float(heated.energy(at(u))) == pytest.approx(posterior - prior, rel=1e-6)


def test_where_the_likelihood_is_no_number_the_prior_goes_on() -> None:
    heated = Heated(Apart(()), jnp.nan, {}, ())
    assert heated.energy(at(1.0)) == heated.at(jnp.asarray(0.2))(at(1.0)) == -jnp.inf
    assert float(heated.at(jnp.asarray(0.0))(at(1.0))) == pytest.approx(-0.5 / PRIOR**2)


@dataclass(frozen=True)
class Moved:
    """A kernel that goes one to the right, whatever the density is, of which it tells."""

    density: Any

    def init(self, place: Any) -> Any:
        return place

    def step(self, key: Array, place: Any) -> tuple[Any, Any]:
        new = {"learnt": {"u": place["learnt"]["u"] + 1.0}}
        zero = jnp.zeros(())
        return State(new, self.density(new)), Info(jnp.asarray(False), zero, zero, jnp.asarray(1), jnp.asarray(0))


class State(NamedTuple):
    position: Any
    logdensity: Any


class Info(NamedTuple):
    is_divergent: Any
    energy: Any
    acceptance_rate: Any
    num_integration_steps: Any
    num_trajectory_expansions: Any


def test_places_are_exchanged_after_they_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw is of the posterior's own chain; the place that comes to it is where the next draw begins."""
    target, powers, u = Apart(()), np.array([1.0, 0.5, 0.0]), np.array([4.0, 3.9, 3.8])
    tuned = [jnp.ones(3), jnp.ones((3, 1))]
    monkeypatch.setattr("gpdsl.inference.mcmc.chains.sampler", lambda: lambda density, **_: Moved(density))
    chain = ({"learnt": {"u": jnp.asarray(u)}}, jnp.arange(3)), tuned, keys_of(jax.random.key(0), 1)[0], _turns(0, 1)[0]
    given = (1.0, {}), jnp.asarray(powers), *jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], chain)
    of_all = _block(target.problem, (*target.made, BLOCK, (), ""), *given)
    (places, who), (drawn, said, order, refused) = jax.tree.map(lambda leaf: leaf[0], of_all)
    assert drawn["learnt"]["u"].shape == (BLOCK,) and order.shape == (BLOCK, 3) and refused.shape == (BLOCK, 2)
    steps = np.arange(1, BLOCK + 1)
    np.testing.assert_allclose(drawn["learnt"]["u"][0], 5.0)
    before = np.concatenate([[[0, 1, 2]], order[:-1]])
    np.testing.assert_allclose(drawn["learnt"]["u"], u[before[:, 0]] + steps, rtol=1e-6)
    np.testing.assert_allclose(places["learnt"]["u"], u[np.asarray(who)] + BLOCK, rtol=1e-6)
    assert who.tolist() == order[-1].tolist()
    energies = jnp.asarray([float(target.log_likelihood(at(each + 1), 1.0)) for each in u])
    np.testing.assert_allclose(refused[0], 1 - _acceptance(jnp.asarray(powers), energies), rtol=1e-4)
    lp = float(target.log_likelihood(at(5.0), 1.0) + target.log_prior(at(5.0), 1.0))
    np.testing.assert_allclose(said["lp"][0], lp, rtol=1e-4)
    for number, turn in enumerate(np.diff(np.concatenate([[[0, 1, 2]], order]), axis=0)):
        moved = np.flatnonzero(turn)
        assert set(moved) <= ({0, 1} if number % 2 == 0 else {1, 2})


def test_warming_up_takes_what_is_asked_for_tuning_or_a_few() -> None:
    assert (tuning(500), tuning(10)) == (250, 20)
    assert warming(500) == 3 * (250 + BLOCK)


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


def told_of(refused: list[float], arrivals: int) -> tuple[str, tuple[str, ...]]:
    statistics = {name: np.zeros((2, 500)) for name in ("diverging", "energy", "n_steps")}
    ladder = Ladder(np.linspace(1, 0, 5), np.array(refused), arrivals)
    return told(Chains({}, statistics, ladder=ladder), Agreement(1.0, 900.0, 900.0))


def test_it_is_the_pair_that_refuses_most_which_is_told_of() -> None:
    about, doubts = told_of([0.0, 0.9, 0.1, 0.0], FRESH - 1)
    assert "neighbours exchange in 10% of draws at least" in about
    assert doubts[0].endswith("temperatures = 6")  # more than there are, though twice what is refused would be fewer
    assert not told_of([0.0, 0.9, 0.1, 0.0], FRESH)[1]


@pytest.mark.parametrize(("r_hat", "modes"), [(1.05, False), (1.3, True)])
def test_chains_that_are_far_apart_may_be_in_separate_modes(r_hat: float, modes: bool) -> None:
    statistics = {name: np.zeros((2, 500)) for name in ("diverging", "energy", "n_steps")}
    (doubt,) = told(Chains({}, statistics), Agreement(r_hat, 900.0, 900.0))[1]
    assert ("temperatures = 10" in doubt) is modes


def test_what_the_search_says_of_several_maxima_is_left_to_chains_that_go_to_all() -> None:
    notes = ("one", f"there are {SEVERAL}, and so on", "two")
    assert engine._of_chains(notes, Options(temperatures=4)) == ("one", "two")
    assert engine._of_chains(notes, Options()) == ("one", "two", engine.ONE_OF_SEVERAL)
    assert engine._of_chains(("one",), Options()) == ("one",)


def test_chains_at_several_temperatures_that_disagree_are_not_told_to_try_them() -> None:
    statistics = {name: np.zeros((2, 500)) for name in ("diverging", "energy", "n_steps")}
    ladder = Ladder(np.linspace(1, 0, 12), np.full(11, 0.4), 90)
    for found, tries in ((ladder, False), (None, True)):
        _, doubts = told(Chains({}, statistics, ladder=found), Agreement(1.4, 900.0, 900.0))
        assert len(doubts) == 1 and ("temperatures = 10" in doubts[0]) is tries and "more draws" in doubts[0]


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


def test_plans_count_the_draws_that_tune_steps_and_powers() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f^2, 1)"
    model, data = gpdsl.compile(text), {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    asked = {"engine": "mcmc", "warm_up": 100, "draws": 60}
    assert "draws after 300 that tune them" in model.explain(data, temperatures=8, **asked)
    assert "draws after 100 that tune them" in model.explain(data, **asked)


TWO_SIDED = """
input x : real
output y : real
param a : real ~ Normal(0.3, 1)
latent f(x) ~ GP(a^2, 0.01 * RBF(1))
y ~ Normal(f, 0.3)
"""


ONE = "input x : real\noutput y : real\nparam a : real = 1 ~ Normal(0.3, 0.5)\nparam s : positive = 0.4\n"
ONE += "latent f(x) ~ GP(a, RBF(1))\ny ~ {}(f, s)\n"


@pytest.mark.parametrize("law", ["Normal", "Laplace"])
def test_powers_are_of_the_likelihood_and_leave_priors_whole(law: str) -> None:
    """Where latents integrate out it is the evidence without the priors, else that of values."""
    problem = problem_of(ONE.format(law), {"x": np.array([0.7]), "y": np.array([2.0])})
    found: list[tuple[float, float]] = []
    if law == "Normal":
        target: Any = engine.Collapsed(problem, Result(problem.parameters, [], [], np.ones(1), 0.0, 0.0))
        values = [{}, {}]
    else:
        q = Whitened(np.zeros((1, 1, 1)), np.ones((1, 1, 1, 1)))
        target = engine.Joint(problem, Result(problem.parameters, [], [q], np.ones(1), 0.0, 0.0))
        values = [{"white": jnp.asarray([0.5])}, {"white": jnp.asarray([-0.2])}]
    assert target.without_prior == ("s",)
    densities = target.made[0](problem, target.made[1])
    both = jax.jit(lambda *at: (densities.log_likelihood(*at), densities.log_prior(*at)))
    for a, w in zip((1.0, -0.6), values, strict=True):
        likely, prior = both({"learnt": dict(problem.parameters) | {"a": jnp.asarray(a)}, **w}, target.data)
        found.append((float(likely), float(prior)))
    means = [1.0, -0.6] if law == "Normal" else [1.5, -0.8]
    own = [norm.logpdf(2.0, m, np.sqrt(1.16)) if law == "Normal" else laplace.logpdf(2.0, m, 0.4) for m in means]
    np.testing.assert_allclose([each for each, _ in found], own, rtol=1e-4)
    white = 0.0 if law == "Normal" else -0.5 * (0.5**2 - 0.2**2)
    difference = norm.logpdf(1.0, 0.3, 0.5) - norm.logpdf(-0.6, 0.3, 0.5) + white
    assert found[0][1] - found[1][1] == pytest.approx(difference, rel=1e-5)


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
