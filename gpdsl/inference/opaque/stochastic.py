"""Natural gradients from noisy estimates: the engine for opaque likelihoods with a full Gaussian posterior.

An opaque function gives estimates of the natural-gradient target, and no gradient of the sampled objective to
line-search on. First phase: common random numbers make the target a deterministic map of the sites, iterated with
Anderson acceleration to its fixed point. Second phase: fresh samples each step, blended with weights 1/t, so that the
sites end as an average over independent estimates. Hyperparameters, when learnt, follow by Adam on the same samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from gpdsl.inference.bound import Views
from gpdsl.inference.natural import refine
from gpdsl.inference.natural.profiled import outer_point, setting_of, split_point, whitened_at
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import (
    Sites,
    blend,
    flatten_sites,
    site_elbo,
    site_marginals,
    site_target,
    site_units,
    unflatten_sites,
)
from gpdsl.inference.opaque.budget import Spent, assessing, each_step, require
from gpdsl.inference.opaque.simulator import by_halves, fresh_bound
from gpdsl.inference.opaque.surrogate import Values, compiled_arguments, evaluate_externals
from gpdsl.inference.problem import Problem, Result, as_numpy, tidy
from gpdsl.inference.sampling import sum_and_error
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import ExternalUse

WARM_UP = 8
PLAIN_WEIGHT = 0.5
AVERAGED = 40
"""Steps of the second phase: the estimate's variance falls by about this factor."""

WINDOW = 10
FRESH = 1_000_000
"""Offset of the random streams of the second phase."""

HALVINGS = 20


@dataclass(frozen=True)
class Step:
    """What one evaluation tells: the bound and where a full step leads, under the samples of this step."""

    elbo: float
    target: Sites


class StochasticSearch:
    """Sites and hyperparameters by steps whose evaluations are used once; fresh samples tell the bound in the end."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.held = problem.inducing
        self.point = outer_point(problem, problem.parameters, problem.inducing)
        self.sites = start_sites(problem)
        self.optimiser = optax.adam(problem.choice.learning_rate)
        self.memory = self.optimiser.init(self.point)
        self.key = jax.random.key(problem.options.seed)
        self.arguments = compiled_arguments(problem.program, self._proposed)
        self.update = jit(self._updated)
        self.blend = jit(self._blended)
        self.units = jit(self._units)(self.point, self.sites, problem.rows, self.held)
        self.fast, self.remember = jit(_fast), jit(_remember)
        self.trace: list[float] = []
        self.budget = max(problem.choice.steps - AVERAGED, 1)
        self.looking = jit(self._looked)
        self.bound: tuple[float, float] | None = None

    def run(self) -> str:
        """Steps as far as the budget goes, the mean of the last of them, and a look at the bound."""
        try:
            message = self.joint() if jax.tree.leaves(self.point) else self.accelerated()
            self.averaged()
        except Spent:
            message = "the budget of evaluations is used up"
        self.bound = fresh_bound(self.problem, self.look, self.problem.options.seed)
        return message

    def state(self) -> Result:
        """Where it is, with the bound of fresh samples in the end, or that of the last steps."""
        learnt, inducing = as_numpy(split_point(self.point, self.problem.inducing))
        posterior = tidy(whitened_at(self.problem, self.point, self.sites))
        found = self.bound or sum_and_error(np.asarray(self.trace[-WINDOW:] or [-np.inf]))
        return Result(learnt, inducing, posterior, np.ones(1), *found, sites=self.sites)

    finish = state

    def evaluate(self, key: Array, *, learn: bool) -> Step:
        """Propose → evaluate → update, once; `learn` moves the hyperparameters too."""
        problem, each = self.problem, each_step(self.problem.program, self.problem.choice, self.problem.count)
        require(problem.program, each + assessing(problem.program, problem.choice, problem.count))
        values = self.called(key)
        value, target, point, memory = self.update(
            self.point, self.sites, self.memory, problem.rows, self.held, key, values
        )
        if learn:
            self.point, self.memory = point, memory
        self.trace.append(float(value))
        problem.monitor.report(len(self.trace), self.trace[-1])
        return Step(self.trace[-1], target)

    def called(self, key: Array) -> Values:
        """What the functions give at the samples of a key."""
        problem = self.problem

        def give(use: ExternalUse, known: Values) -> list[Array]:
            return self.arguments[use.key](known, self.point, self.sites, problem.rows, self.held, key)

        return evaluate_externals(problem.program, problem.program.uses(), give)

    def look(self, rows: Rows, key: Array) -> tuple[Any, Any]:
        """What `fresh_bound` asks for."""
        return self.looking(self.point, self.sites, rows, self.held, key, self.called(key))

    def step_to(self, target: Sites, weight: float) -> None:
        """Blend towards a target, as far as the posterior stays a Gaussian."""
        self.sites = self.blend(self.point, self.sites, target, self.problem.rows, self.held, weight)

    def nothing(self) -> refine.Memory:
        """An empty memory of the iteration."""
        return refine.empty(self.sites.linear.size + self.sites.precision.size, self.sites.linear.dtype)

    def accelerated(self) -> str:
        """Fixed hyperparameters: Anderson-accelerated iteration under common random numbers."""
        history = self.nothing()
        step, best, quiet = self.evaluate(self.key, learn=False), -np.inf, 0
        for number in range(2, self.budget + 1):
            before, target = self.sites, step.target
            if number <= WARM_UP:
                self.step_to(target, PLAIN_WEIGHT)
            else:
                trial = self.fast(history, before, target, self.units)
                self.step_to(trial, 1.0)
            step = self.evaluate(self.key, learn=False)
            if not np.isfinite(step.elbo) or step.elbo < best - 1.0 - 0.01 * abs(best):
                self.sites = before
                self.step_to(target, 0.1)
                history = self.nothing()
                step = self.evaluate(self.key, learn=False)
            else:
                history = self.remember(history, before, target, self.sites, step.target, self.units)
            quiet = quiet + 1 if step.elbo - best < 3e-5 * max(1.0, abs(best)) ** 0.5 else 0
            best = max(best, step.elbo)
            if number > 2 * WARM_UP and quiet >= WINDOW:
                return "converged under common random numbers, then averaged over fresh samples"
        return "all steps done"

    def joint(self) -> str:
        """Hyperparameters and sites together, fresh samples every step, until the bound stops rising."""
        for number in range(1, self.budget + 1):
            step = self.evaluate(jax.random.fold_in(self.key, number), learn=True)
            self.step_to(step.target, PLAIN_WEIGHT)
            if _settled(self.trace):
                return "converged: the bound no longer rises beyond its sampling error"
        return "all steps done"

    def averaged(self) -> None:
        """Second phase: independent estimates, averaged."""
        for number in range(1, AVERAGED + 1):
            step = self.evaluate(jax.random.fold_in(self.key, FRESH + number), learn=False)
            self.step_to(step.target, 1.0 / (1.0 + number))

    # What is compiled.

    def _marginals(self, point: Any, sites: Sites, rows: Rows, held: Any) -> tuple[Views, Marginals, Array]:
        """The groups at all rows, marginals there, and the KL divergence."""
        seen = setting_of(self.problem, point, held, rows).views()
        return seen, *site_marginals(seen, sites)[:2]

    def _proposed(self, point: Any, sites: Sites, rows: Rows, held: Any, key: Array) -> tuple[Any, Rows, Array]:
        """The parameters, and samples of the latents at the rows."""
        seen, q, _ = self._marginals(point, sites, rows, held)
        return seen.parameters, rows, q.at(self.problem.program, self.problem.draws(key))

    def _updated(self, point: Any, sites: Sites, memory: Any, rows: Rows, held: Any, key: Array, values: Any) -> Any:
        """The bound, the target of a full step, and the hyperparameters after a step of Adam with its memory."""
        normals = self.problem.normals(key)
        seen, q, _ = self._marginals(point, sites, rows, held)

        def bound(at: Any) -> Array:
            return site_elbo(setting_of(self.problem, at, held, rows), sites, normals, values)

        target = site_target(q, jax.grad(lambda q: jnp.sum(seen.expected(q, normals, values)))(q))
        value, slope = jax.value_and_grad(bound)(point)
        updates, memory = self.optimiser.update(jax.tree.map(jnp.negative, slope), memory)
        return value, target, optax.apply_updates(point, updates), memory

    def _looked(self, point: Any, sites: Sites, rows: Rows, held: Any, key: Array, values: Values) -> tuple[Any, Any]:
        """The expected log likelihood by two halves of the samples, and the rest of the bound."""
        seen, q, divergence = self._marginals(point, sites, rows, held)
        given = self.problem, seen.parameters, rows, q, jnp.ones(1, q.mean.dtype), self.problem.draws(key), values
        return by_halves(*given), self.problem.program.log_prior(seen.parameters) - divergence

    def _blended(self, point: Any, sites: Sites, target: Sites, rows: Rows, held: Any, weight: Array) -> Sites:
        """Blend by a weight, halved until the posterior precision is positive definite."""
        seen = setting_of(self.problem, point, held, rows).views()

        def unsound(carry: Any) -> Array:
            _, divergence, _ = site_marginals(seen, blend(sites, target, carry[0]))
            return ~jnp.isfinite(divergence) & (carry[1] < HALVINGS)

        start = (jnp.asarray(weight, sites.linear.dtype), jnp.asarray(0))
        length, tries = jax.lax.while_loop(unsound, lambda c: (0.5 * c[0], c[1] + 1), start)
        return blend(sites, target, jnp.where(tries < HALVINGS, length, 0.0))

    def _units(self, point: Any, sites: Sites, rows: Rows, held: Any) -> Sites:
        return site_units(setting_of(self.problem, point, held, rows).views(), sites)


def _settled(trace: list[float]) -> bool:
    """Whether the mean of the last steps exceeds that of the steps before by no more than its standard error."""
    window = 3 * WINDOW
    if len(trace) < 4 * window or len(trace) % window:
        return False
    last, before = np.asarray(trace[-window:]), np.asarray(trace[-2 * window : -window])
    error = np.sqrt((last.var() + before.var()) / window)
    return bool(last.mean() - before.mean() < error)


def _fast(history: refine.Memory, sites: Sites, target: Sites, units: Sites) -> Sites:
    here = flatten_sites(sites, units)
    return unflatten_sites(refine.propose(history, here, flatten_sites(target, units) - here), units, sites)


def _remember(
    history: refine.Memory, before: Sites, led: Sites, now: Sites, leads: Sites, units: Sites
) -> refine.Memory:
    old, new = flatten_sites(before, units), flatten_sites(now, units)
    residual = (flatten_sites(leads, units) - new) - (flatten_sites(led, units) - old)
    return refine.remember(history, new - old, residual)
