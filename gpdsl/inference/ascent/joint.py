"""Gradient ascent on the bound itself, all unknowns together: its state, and L-BFGS on whole batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.errors import plural
from gpdsl.inference.ascent.lbfgs import Remembered, maximise, maximise_off_saddles
from gpdsl.inference.bound import Bound, carried, divergence, is_free, views, weights
from gpdsl.inference.driver import assessor, complete, whole_bound
from gpdsl.inference.problem import Problem, Rest, Result, as_arrays, as_numpy, tidy
from gpdsl.inference.starts import start_groups, start_logits
from gpdsl.program.cache import jit
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import Translator

Objective = Callable[[Any], tuple[float, Any]]

SETTLED = 1e-7
"""Relative gain of the bound below which the components of a mixture have found their places."""


def initial_state(problem: Problem) -> dict[str, Any]:
    """Start of the search: declared parameter values and `starts`' posterior, or those of the fit it starts from."""
    dtype = problem.options.dtype
    posterior = {"groups": start_groups(problem), "logits": start_logits(problem)}
    state = {"parameters": problem.parameters, "posterior": posterior}
    if problem.options.learn_inducing:
        state["inducing"] = problem.inducing
    return as_arrays(state, dtype)


class LbfgsSearch:
    """L-BFGS over everything at once. Sampled terms use common random numbers throughout."""

    def __init__(self, problem: Problem) -> None:
        self.problem, start = problem, initial_state(problem)
        rest = problem.rest(problem.batch_normals(jax.random.key(problem.options.seed)))
        gradient = jax.value_and_grad(partial(whole_bound, problem))
        self.bound = problem.compiled(gradient, start, rest, brief=problem.brief)

        def objective(at: Any) -> tuple[float, Any]:
            value, gradient = self.bound(at, rest)
            return float(value), gradient

        self.objective = Remembered(objective, start)

    def run(self) -> str:
        """A mixture's weights stay equal until its components have found their places.

        A component that is still on its way explains less than the others, and would be given up.
        """
        problem, objective, start = self.problem, self.objective, self.objective.best.point
        asked = problem.asked
        if problem.layout.family.components == 1:
            # products of parameters alone, as those of a network, are at rest where all are 0
            search = maximise if problem.program.groups else maximise_off_saddles
            return search(objective, start, **asked).message

        def equal_weights(at: Any) -> tuple[float, Any]:
            value, gradient = objective(at)
            posterior = gradient["posterior"]
            return value, {**gradient, "posterior": {**posterior, "logits": jnp.zeros_like(posterior["logits"])}}

        first = maximise(equal_weights, start, **{**asked, "tolerance": max(asked["tolerance"], SETTLED)})
        done = len(problem.monitor.history)

        def on(step: int, value: float) -> None:
            problem.monitor.report(done + step, value)

        left = max(problem.choice.steps - done, 1)
        return maximise(objective, first.point, **{**asked, "steps": left, "report": on}).message

    def state(self) -> Result:
        """The best point so far, with its bound on the samples of the search."""
        return finish(self.problem, self.objective.best.point, self.objective.best.value, 0.0)

    def finish(self) -> Result:
        """The best point, with its bound on fresh samples."""
        best = self.objective.best
        rest = self.problem.rest
        bound = self.problem.reassessed(lambda normals: self.bound(best.point, rest(normals))[0], best.value)
        return finish(self.problem, best.point, *bound)


def finish(problem: Problem, state: Any, value: float, error: float) -> Result:
    """Whiten the posterior of a state and bring everything to the host."""

    def whiten(state: Any, rows: Rows, held: Any) -> Any:
        full = complete(state, held)
        parameters = problem.program.parameters.constrain(full["parameters"])
        # one row is enough, where the posterior needs the factors alone and not the rows' features
        some = rows if problem.layout.dense else jax.tree.map(lambda a: a[:1], rows)
        seen = views(problem.program, parameters, full["inducing"], some, problem.layout.dense, problem.jitter)
        parts = Bound(problem.program, problem.layout, rows, problem.jitter).prepared(full, seen)
        return [family.whitened(q, view.features) for (family, q), view in zip(parts, seen, strict=True)], weights(full)

    posterior, pi = jit(whiten, brief=True)(state, problem.rows, problem.inducing)
    full = complete(state, problem.inducing)
    return Result(
        as_numpy(full["parameters"]),
        as_numpy(full["inducing"]),
        tidy(posterior),
        np.asarray(pi),
        value,
        error,
    )


# The papers' loop: each set of unknowns by L-BFGS while the others are held, until the bound no longer changes.
#
# SAVIGP section 9.2: variational parameters, hyperparameters, likelihood parameters and inducing inputs in turn, until
# the objective changes by less than 1e-6 between two rounds, in at most 200 rounds. AGP section 4 stops at 1e-5.

CHANGE = 1e-6
"""Smallest change of the bound, in nats, that is worth another round (SAVIGP 9.2)."""

INNER_STEPS = 100
"""Most iterations over one set within a round."""

State = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A set of unknowns: `take` reads it from a state, `put` gives the state with it, `bound` is what it maximises.

    `put` takes a part, the state and the rest, `bound` the state and the rest.
    """

    take: Callable[[State], Any]
    put: Callable[..., State]
    bound: Callable[..., Array]


class AlternatingSearch:
    """The bound maximised set by set. Sampled terms use common random numbers throughout."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.point, self.value = problem, initial_state(problem), -np.inf
        self.rest = problem.rest(problem.batch_normals(jax.random.key(problem.options.seed)))
        self.blocks = [_compiled(problem, block, self.point, self.rest) for block in _blocks(problem)]

    def run(self) -> str:
        """Round after round, until one changes the bound by next to nothing."""
        before, tolerance = -np.inf, self.problem.options.tolerance
        for number in range(1, self.problem.choice.steps + 1):
            for take, objective, put in self.blocks:
                of_part, part = partial(objective, self.point), take(self.point)  # the others as they are
                outcome = maximise(of_part, part, steps=INNER_STEPS, tolerance=tolerance, report=lambda *_: None)
                if np.isfinite(outcome.value):
                    self.point = put(outcome.point, self.point, self.rest)
            self.value = self._whole()
            self.problem.monitor.report(number, self.value)
            if abs(self.value - before) < max(CHANGE, tolerance * abs(self.value)):
                return f"converged: the bound changed by less than {plural(CHANGE, 'nat', 'g')} in a round"
            before = self.value
        return "all rounds done"

    def state(self) -> Result:
        """The state so far, with its bound on the samples of the search."""
        return finish(self.problem, self.point, self.value, 0.0)

    def finish(self) -> Result:
        """The same, maybe in the middle of a round, with its bound on fresh samples."""
        self.value = self._whole()
        if self.problem.program.sampled and np.isfinite(self.value):
            return finish(self.problem, self.point, *assessor(self.problem)(self.point))
        return self.state()

    def _whole(self) -> float:
        """The bound, by the first set's objective, which is all of it."""
        take, objective, _ = self.blocks[0]
        return float(objective(self.point, take(self.point))[0])


def _compiled(problem: Problem, block: Block, state: State, rest: Rest) -> tuple:
    """`take`, value and gradient of the block's objective in a state at a part, and `put`, compiled."""

    def bound(part: Any, state: State, rest: Rest) -> Array:
        return block.bound(block.put(part, state, rest), rest)

    part = block.take(state)
    compiled = problem.compiled(jax.value_and_grad(bound), part, state, rest, brief=problem.brief)

    def objective(state: State, part: Any) -> tuple[float, Any]:
        value, gradient = compiled(part, state, rest)
        return float(value), gradient

    return block.take, objective, problem.compiled(block.put, part, state, rest, brief=problem.brief)


def _blocks(problem: Problem) -> list[Block]:
    """The sets that are not empty, in the papers' order."""
    program, bound = problem.program, partial(whole_bound, problem)
    hyper, likelihood = split_parameters(program)
    found = [_of("posterior", bound)]
    if hyper:
        free = problem.layout.dense and is_free(problem.layout.family)
        found.append(_free_hyperparameters(problem, hyper) if free else _named(hyper, bound))
    if likelihood:
        found.append(_named(likelihood, bound))
    if problem.options.learn_inducing:
        found.append(_of("inducing", bound))
    return found


def _of(key: str, bound: Callable[..., Array]) -> Block:
    return Block(lambda state: state[key], lambda part, state, _: {**state, key: part}, bound)


def _named(names: list[str], bound: Callable[..., Array]) -> Block:
    def put(part: Any, state: State, _: Rest) -> State:
        return {**state, "parameters": {**state["parameters"], **part}}

    return Block(lambda state: {name: state["parameters"][name] for name in names}, put, bound)


def _free_hyperparameters(problem: Problem, names: list[str]) -> Block:
    """Hyperparameters of a dense posterior: q of the latents at the rows is held, so they see L_cross alone, exactly.

    SAVIGP section 6.1.1: neither the entropy nor the expected log likelihood depends on them, and nothing is sampled.
    """
    program, layout = problem.program, problem.layout

    def put(part: Any, state: State, rest: Rest) -> State:
        return carried(program, layout, complete(state, rest.held), part, rest.rows, rest.jitter)

    def bound(state: State, rest: Rest) -> Array:
        parameters = program.parameters.constrain(state["parameters"])
        seen = views(program, parameters, rest.held, rest.rows, True, rest.jitter)
        return program.log_prior(parameters) - divergence(layout, complete(state, rest.held), seen)

    return replace(_named(names, bound), put=put)


def split_parameters(program: Program) -> tuple[list[str], list[str]]:
    """Names of the learnt parameters of the prior alone (kernels, means), and of all others."""
    translator, prior, observed = program.translator, set(), set()
    for group in program.groups:
        for member in group.members:
            for expression in (*member.kernel.arguments, *member.kernel.factors, member.latent.mean):
                prior |= _parameters(translator, translator.scalar(expression).free_symbols)
    for observation in program.observations:
        observed |= _parameters(translator, observation.log_density.free_symbols)
    learnt = list(program.parameters.initial)
    hyper = [name for name in learnt if name in prior - observed]
    return hyper, [name for name in learnt if name not in hyper]


def _parameters(translator: Translator, symbols: Any) -> set[str]:
    """Parameters among symbols, those inside covariances of outputs too."""
    found: set[str] = set()
    for symbol in symbols:
        ref = translator.references[symbol]
        if ref.kind in {"param", "gathered"}:
            found.add(ref.name)
        elif ref.kind == "whitening":
            entries = [e for row in translator.covariances[ref.name].entries for e in row]
            found |= {name for e in entries for name in _parameters(translator, e.free_symbols)}
    return found
