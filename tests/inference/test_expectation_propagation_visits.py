"""EP on minibatches: the fixed point, gradient and optimum of EP on all rows, whatever the order of the visits."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference.expectation_propagation import engine, objective, sites as ep_sites, visits, visits as sums
from gpdsl.inference.expectation_propagation.sites import Swept, evidence, fixed_point
from gpdsl.inference.natural.profiled import outer_point, setting_of
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.natural.tied import Posterior, no_sites, posterior_of
from gpdsl.inference.posteriors.features import Covariances
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.program import take_rows

TEXT = """
input x : real[2]
output y : binary
param m : real = 0.3
param s2 : positive = 4
param ell : positive[2] = 1.3
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Bernoulli({link} = f)
"""


def classes(seed: int, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    return {"x": x, "y": (np.sin(2 * x[:, 0]) + x[:, 1] + 0.5 * rng.normal(size=rows) > 0).astype(int)}


def test_the_gradient_with_posterior_and_cavities_held_is_that_of_the_evidence(caught: Callable[..., Any]) -> None:
    """SEP's eq. 4 against automatic differentiation of log Z_q, in parameters and inducing inputs."""
    problem = caught(gpdsl.compile(TEXT.format(link="logit")), classes(1, 40), inducing=6, batch=0, learn_inducing=True)
    tilted = engine.tilted_of(problem)
    run = engine.EpSearch(problem, tilted)
    rows, held, _, jitter = run.rest
    point, program = run.best.point, problem.program

    def both(point: Any) -> tuple[Any, Any]:
        here = setting_of(problem, point, held, rows, jitter)
        fixed = fixed_point(tilted, here, run.start, 1e-14, 500).sites
        direct = jax.grad(lambda p: evidence(tilted, setting_of(problem, p, held, rows, jitter), fixed))(point)
        parameters = here.parameters
        prior = prior_means(program.evaluator, program.groups, parameters, rows, 40)
        own = Sites(fixed.linear - fixed.precision * prior, fixed.precision)
        groups = sums.groups_at(problem, point, held, rows)
        tied = sums.summed(problem, [no_sites(1, groups[0].factor)], groups, own, jax.tree.map(lambda a: 0 * a, own))
        posteriors = [posterior_of(tied[0], groups[0].scale)]
        visiting = visits.Visits(problem, tilted, rows, held)
        seen = visiting.see(parameters, rows, groups, posteriors, own)
        return direct, jax.grad(visiting.expected)(point, rows, seen)

    direct, held_fixed = jit(both)(point)
    for a, b in zip(jax.tree.leaves(direct), jax.tree.leaves(held_fixed), strict=True):
        assert np.abs(np.asarray(a)).max() > 1e-3
        assert np.abs(np.asarray(a) - np.asarray(b)).max() < 1e-6


@pytest.mark.parametrize("link", ["probit", pytest.param("logit", marks=pytest.mark.slow)])
def test_visits_end_at_the_fixed_point_of_all_rows(link: str) -> None:
    model, data, held = gpdsl.compile(TEXT.format(link=link)), classes(2, 100), ["m", "s2", "ell"]
    whole = model.fit(data, engine="ep", inducing=6, batch=0, fixed=held)
    visited = model.fit(data, engine="ep", inducing=6, batch=25, steps=100, fixed=held)
    assert abs(visited.elbo - whole.elbo) < 1e-3
    one, other = (fit.predict(classes(3, 30)) for fit in (visited, whole))
    np.testing.assert_allclose(one.mean("f"), other.mean("f"), atol=1e-3)
    np.testing.assert_allclose(one.variance("f"), other.variance("f"), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "adadelta"])
def test_what_is_learnt_on_visits_is_near_the_optimum(optimizer: str) -> None:
    model, data = gpdsl.compile(TEXT.format(link="probit")), classes(4, 400)
    whole = model.fit(data, engine="ep", inducing=12, batch=0)
    start = model.fit(data, engine="ep", inducing=12, batch=0, fixed=["m", "s2", "ell"])
    visited = model.fit(data, engine="ep", inducing=12, batch=80, steps=600, optimizer=optimizer, learning_rate=0.03)
    assert whole.elbo > start.elbo + 2.0
    assert visited.elbo > start.elbo + (0.9 if optimizer == "adam" else 0.2) * (whole.elbo - start.elbo)


def test_inducing_inputs_can_move_under_the_sites() -> None:
    """Sites of other inducing inputs are read from the new ones: the evidence ends no lower."""
    model, data = gpdsl.compile(TEXT.format(link="probit")), classes(5, 400)
    still = model.fit(data, engine="ep", inducing=12, batch=80, steps=500)
    moved = model.fit(data, engine="ep", inducing=12, batch=80, steps=500, learn_inducing=True)
    assert moved.elbo > still.elbo - 0.5
    assert not np.allclose(moved.inducing[0].points, still.inducing[0].points, atol=1e-3)


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_outliers_end_at_the_fixed_point_of_all_rows(seed: int) -> None:
    """Sites of negative precision: visits that leave a row no cavity are shortened, and what does not settle is tried
    at lower powers, of which the answer is."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, 40)
    y = np.sin(2 * x) + 0.1 * rng.standard_normal(40)
    y[::5] += rng.choice([-1, 1], 8) * rng.uniform(1, 5, 8)
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.7))\ny ~ StudentT(2, f, 0.02)\n"
    model, new = gpdsl.compile(text), {"x": np.linspace(-2, 2, 9)}
    visited = model.fit({"x": x, "y": y}, engine="ep", inducing=10, batch=10)
    settled, power = visited.notes[0].split(": this is the answer of ")
    assert settled == "expectation propagation did not settle at power = 1"
    whole = model.fit({"x": x, "y": y}, engine="ep", inducing=10, batch=0, power=float(power))
    assert whole.message.startswith("converged") and visited.elbo == pytest.approx(whole.elbo, abs=1e-3)
    a, b = whole.predict(new), visited.predict(new)
    np.testing.assert_allclose(b.mean("f"), a.mean("f"), atol=1e-3)
    np.testing.assert_allclose(b.variance("f"), a.variance("f"), rtol=1e-3)
    assert np.all(np.diff(visited.history[:, 0]) > 0)


def test_an_interruption_keeps_the_last_chunk() -> None:
    """A real signal, in the middle of compiled visits that have the memory of the sites."""
    model, data, steps = gpdsl.compile(TEXT.format(link="probit")), classes(7, 200), []

    def report(each: Any) -> None:
        steps.append(each.step)
        if len(steps) == 2:
            signal.raise_signal(signal.SIGINT)

    fit = model.fit(data, engine="ep", inducing=8, batch=40, steps=50_000, callback=report)
    assert fit.interrupted and np.isfinite(fit.elbo) and len(steps) == 2


def test_without_sites_rows_have_their_own_evidence_and_all_are_far_from_rest(caught: Callable[..., Any]) -> None:
    """Seven rows in blocks of three: log Phi(+-m / sqrt(1 + s2)) each, in which no cavity is lost."""
    data = classes(6, 7)
    problem = caught(gpdsl.compile(TEXT.format(link="probit")), data, inducing=4, batch=3)
    tilted, point = engine.tilted_of(problem), outer_point(problem, problem.parameters, problem.inducing)
    nothing = Sites(*(jnp.zeros((7, 1)) for _ in range(2)))

    def evidence_at(point: Any) -> Any:
        (here,) = visits.groups_at(problem, point, problem.inducing, take_rows(problem.rows, slice(0, 1)))
        state = visits.State(point, None, nothing, [no_sites(1, here.factor)], point["inducing"])
        return visits.Visits(problem, tilted, problem.rows, problem.inducing).evidence(state)

    value, stuck, unsettled = jit(evidence_at)(point)
    signs = np.where(data["y"] == 1, 1.0, -1.0)
    assert value == pytest.approx(np.sum(stats.norm.logcdf(signs * 0.3 / np.sqrt(1 + 4))), rel=1e-9)
    assert (stuck, unsettled) == (0, 7)


def test_a_row_keeps_two_numbers(caught: Callable[..., Any]) -> None:
    problem = caught(gpdsl.compile(TEXT.format(link="probit")), classes(6, 100), inducing=8, batch=20)
    from gpdsl.inference.expectation_propagation.objective import EpMinibatch

    state = EpMinibatch(problem, engine.tilted_of(problem)).at
    assert state.sites.linear.size + state.sites.precision.size == 2 * 100
    assert all(100 not in leaf.shape for leaf in jax.tree.leaves((state.tied, state.point, state.memory)))


@pytest.mark.parametrize(
    ("ends", "most", "expected"), [(0.5, 4, (0.5, 0.3, 4)), (2.0, 9, (1.0, 0.6, 3)), (-1.0, 9, (0.0, 0.5, 1))]
)
def test_steps_after_which_a_cavity_is_none_are_taken_back_and_count(
    ends: float, most: int, expected: tuple[float, float, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial is the start, 0, and a full step leads to 1; beyond `ends` no cavity is a distribution, and
    below 0 there is no evidence. A step that comes closer is 1.2 times as long, and of another 0.6."""

    def sweep(tilted: Any, visit: Any, trial: Sites) -> Swept:
        at = trial.linear[0, 0]
        target = Sites(jnp.ones((1, 1)), jnp.zeros((1, 1)))
        return Swept(jnp.where(ends > 0, at, jnp.nan), target, jnp.zeros(()), jnp.where(at > ends, 1.0, 0.0))

    for name, fake in (("visit_all", None), ("units_of", None), ("sweep", sweep)):
        monkeypatch.setattr(ep_sites, name, fake or (lambda *_: None))
    monkeypatch.setattr(ep_sites, "relative_change", lambda swept, trial, units: 1.0 - trial.linear[0, 0])
    nothing: Any = None
    found = fixed_point(nothing, nothing, Sites(*(jnp.zeros((1, 1)) for _ in range(2))), 1e-9, most)
    assert (float(found.sites.linear[0, 0]), float(found.step), int(found.sweeps)) == pytest.approx(expected)


def dense_rbf(a: np.ndarray, b: np.ndarray, ell: float) -> np.ndarray:
    return np.exp(-0.5 * (a[:, None] - b) ** 2 / ell**2)


def group(z: np.ndarray, x: np.ndarray, ell: float, scales: np.ndarray) -> visits.Group:
    known = Covariances(dense_rbf(z, z, ell)[None], dense_rbf(z, x, ell)[None], np.ones((1, len(x))))
    return visits.group_of(jax.tree.map(jnp.asarray, known), jnp.asarray(scales))


def test_a_group_is_whitened_and_leaves_open_what_its_points_do_not_tell(rng: np.random.Generator) -> None:
    z, x = np.linspace(-2, 2, 5), rng.uniform(-3, 3, 7)
    found, told = group(z, x, 0.8, np.ones(1)), np.linalg.solve(dense_rbf(z, z, 0.8), dense_rbf(z, x, 0.8))
    np.testing.assert_allclose(found.phi[0].T @ found.phi[0], dense_rbf(x, z, 0.8) @ told, atol=1e-10)
    np.testing.assert_allclose(found.residual[0], 1 - np.diag(dense_rbf(x, z, 0.8) @ told), atol=1e-10)
    assert float(jnp.min(found.residual)) > 1e-3
    np.testing.assert_allclose(found.inverse[0] @ found.factor[0], np.eye(5), atol=1e-10)


def test_cavities_of_one_group_at_other_hyperparameters_are_those_of_dense_algebra(rng: np.random.Generator) -> None:
    """q(u) and the sites stay in the values u, whose prior and projections on the rows move; two latents."""
    z, x, power, latents = np.linspace(-2, 2, 4), rng.uniform(-2, 2, 6), 0.6, 2
    old_scale, new_scale = np.array([1.4, 0.7]), np.array([2.1, 0.5])
    was, now = group(z, x, 0.8, old_scale), group(z, x, 1.1, new_scale)
    mean, roots = rng.normal(size=(latents, 4)), 0.4 * rng.normal(size=(latents, 4, 4))
    covariance = roots @ np.swapaxes(roots, 1, 2) + 0.05 * np.eye(4)
    linear, precision = rng.normal(size=(latents, 6)), 0.3 * rng.random((latents, 6))
    q = Posterior(*map(jnp.asarray, (mean, covariance, roots, 0.0)))
    sites = jnp.asarray(linear), jnp.asarray(precision)
    cross, means, variances = jax.jit(lambda q, sites: visits._one_group(power, was, now, q, sites, latents))(q, sites)
    total = 0.0
    before, after = dense_rbf(z, z, 0.8), dense_rbf(z, z, 1.1)
    factor = np.linalg.cholesky(before)
    for j in range(latents):
        m = np.sqrt(old_scale[j]) * factor @ mean[j]
        s = old_scale[j] * factor @ covariance[j] @ factor.T
        prior = new_scale[j] * after
        total += stats.multivariate_normal.logpdf(m, np.zeros(4), prior) - 0.5 * np.trace(np.linalg.solve(prior, s))
        for n in range(6):
            then = np.linalg.solve(before, dense_rbf(z, x[n : n + 1], 0.8))[:, 0]
            there = np.linalg.solve(after, dense_rbf(z, x[n : n + 1], 1.1))[:, 0]
            inverse = np.linalg.inv(s) - power * precision[j, n] * np.outer(then, then)
            cavity = np.linalg.inv(inverse)
            middle = cavity @ (np.linalg.solve(s, m) - power * linear[j, n] * then)
            left = new_scale[j] * (1 - there @ after @ there)
            np.testing.assert_allclose(np.sqrt(new_scale[j]) * means[j, n], there @ middle, rtol=1e-6)
            np.testing.assert_allclose(new_scale[j] * variances[j, n], there @ cavity @ there + left, rtol=1e-6)
    np.testing.assert_allclose(cross, total + 0.5 * latents * 4 * np.log(2 * np.pi), rtol=1e-6)


@dataclass(frozen=True)
class At:
    """A state, by its number; `sites` alone go on from a chunk that has failed."""

    number: int
    sites: int
    fresh: bool = False


class Chunks:
    """A search whose chunks of ten steps have these values."""

    def __init__(self, *chunks: list[float], steps: int = 40) -> None:
        self.problem = SimpleNamespace(
            choice=SimpleNamespace(steps=steps), monitor=SimpleNamespace(report=self.report), epoch=5
        )
        self.at, self.pace, self.size, self.every, self.before = At(0, 0), 0.8, 10, 20, 100
        self.trace, self.paces, self.reports, self.renewed = list[float](), list[float](), list[Any](), list[At]()
        self.chunks = enumerate(chunks, 1)

    def report(self, *said: Any) -> None:
        self.reports.append(said)

    def compiled(self, done: int) -> tuple[At, list[float]]:
        self.paces.append(self.pace)
        number, values = next(self.chunks)
        return At(number, number), values

    def refreshed(self) -> At:
        self.renewed.append(self.at)
        return replace(self.at, fresh=True)

    def _arguments(self, done: int) -> tuple[int]:
        return (done,)

    def run(self) -> str:
        return objective.EpMinibatch._all_steps(self)  # type: ignore[arg-type]


FINE, BAD, PARTLY = [1.0] * 10, [np.nan] * 10, [np.nan, 3.0] + [1.0] * 8


def test_chunks_without_an_evidence_are_taken_again_at_half_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """From their sites; those with one here and there are gone on from, and sums are added up after every pass."""
    monkeypatch.setattr(objective, "settled", lambda *_: False)
    found = Chunks(FINE, BAD, PARTLY, FINE, FINE)
    assert found.run() == objective.ALL_DONE
    assert found.paces == [0.8, 0.8, 0.4, 0.4, 0.4]
    assert found.renewed == [At(1, 2), At(4, 4)]
    assert found.reports == [(110, 1.0), (120, 11 / 9), (130, 1.0), (140, 1.0)]
    assert found.trace == FINE + PARTLY[1:] + FINE + FINE


@pytest.mark.parametrize("last", [BAD, [1.0] * 9 + [np.nan], [np.nan] * 6 + [1.0] * 4])
def test_what_has_no_evidence_however_slowly_is_lost(last: list[float]) -> None:
    found = Chunks(*[last] * 7)
    assert found.run() == objective.LOST
    assert found.paces == [0.8 * 0.5**n for n in range(7)] and len(found.renewed) == 6 and not found.reports


def test_a_search_ends_in_its_cooler_half_where_it_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "settled", lambda trace, epoch: epoch == 5)
    found = Chunks(FINE, FINE, FINE, FINE)
    assert found.run().startswith("converged") and len(found.paces) == 3
    assert found.reports[-1][0] == 130
    past = Chunks(FINE, FINE, FINE, steps=25)
    assert past.run().startswith("converged") and past.reports[-1][0] == 120
