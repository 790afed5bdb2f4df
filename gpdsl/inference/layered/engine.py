"""The search over layers: Adam on fresh samples for everything, beside natural gradients for the last layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.data import minibatches
from gpdsl.errors import plural
from gpdsl.inference.driver import ALL_DONE
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.layered.encoder import encoders
from gpdsl.inference.layered.propagation import Expected, Gaussians, Layers, divergence
from gpdsl.inference.layered.start import Groups
from gpdsl.inference.posteriors.family import Full, PerRow, Whitened
from gpdsl.inference.problem import FRESH_SETS, Problem, Result, as_arrays, as_numpy, tidy
from gpdsl.inference.sampling import sum_and_error
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows

# Natural gradients for the last layer: from the expectations' slopes in mean and covariance, in one linear step.
#
# With p(w) = N(0, I) and E the expected log likelihood, q moves towards precision I - 2 dE/dS and precision times mean
# dE/dm - 2 dE/dS m, a share of the way in both; that is a step of natural gradients (Salimbeni, Eleftheriadis and
# Hensman, 2018). Of log-concave likelihoods dE/dS has no positive eigenvalue, so that every such q is a Gaussian.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precise:
    """The same by Cholesky factors of precisions."""

    mean: Float[Array, "1 latents M"]
    factor: Float[Array, "1 latents M M"]

    @classmethod
    def prior(cls, latents: int, inducing: int, dtype: jnp.dtype) -> Precise:
        """The prior."""
        factor = jnp.broadcast_to(jnp.eye(inducing, dtype=dtype), (1, latents, inducing, inducing))
        return cls(jnp.zeros((1, latents, inducing), dtype), factor)

    @classmethod
    def of(cls, q: Whitened) -> Precise:
        """Those of roots of covariances."""
        root = jnp.asarray(q.root)
        precision = jnp.linalg.inv(root @ jnp.swapaxes(root, -1, -2))
        return cls(jnp.asarray(q.mean), jnp.linalg.cholesky(0.5 * (precision + jnp.swapaxes(precision, -1, -2))))

    def gaussians(self) -> Gaussians:
        """By their covariances."""
        root = self._root()
        return Gaussians(self.mean, root @ jnp.swapaxes(root, -1, -2))

    def divergence(self, known: Gaussians) -> Float[Array, ""]:
        """From the prior; `known` are `gaussians`."""
        logs = jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1))
        squares = jnp.sum(self.mean**2) + jnp.sum(jnp.diagonal(known.covariance, axis1=-2, axis2=-1))
        return 0.5 * (squares - logs.size) + jnp.sum(logs)

    def whitened(self) -> Whitened:
        """By lower triangular roots of their covariances."""
        return Whitened(self.mean, jnp.linalg.cholesky(self.gaussians().covariance))

    def moved(self, slope: Gaussians, share: Array | float) -> Precise:
        """A share of the way along a natural gradient; where that leads to no Gaussian, it stays."""
        bend = 0.5 * (slope.covariance + jnp.swapaxes(slope.covariance, -1, -2))
        identity = jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)
        before = self.factor @ jnp.swapaxes(self.factor, -1, -2)
        precision = (1.0 - share) * before + share * (identity - 2.0 * bend)
        told = slope.mean - 2.0 * jnp.einsum("klij,klj->kli", bend, self.mean)
        linear = (1.0 - share) * jnp.einsum("klij,klj->kli", before, self.mean) + share * told
        factor = jnp.linalg.cholesky(precision)
        half = solve_triangular(factor, linear[..., None], lower=True)
        mean = solve_triangular(factor, half, lower=True, trans=1)[..., 0]
        sound = jnp.all(jnp.isfinite(factor)) & jnp.all(jnp.isfinite(mean))
        return Precise(jnp.where(sound, mean, self.mean), jnp.where(sound, factor, self.factor))

    def _root(self) -> Float[Array, "1 latents M M"]:
        identity = jnp.broadcast_to(jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype), self.factor.shape)
        return solve_triangular(self.factor, identity, lower=True, trans=1)


CHUNK = 25
"""Steps per compiled call: progress, interruption and checks happen between chunks."""

SLOWEST = 0.02
"""What is left of the steps' lengths at the end, to which they fall like a cosine."""

RISE = 0.1
"""Share of the steps in which their lengths rise from nothing: Adam's first ones are long, however flat the bound."""

FALL = 10.0
"""Standard deviations of its single values below the best mean of some steps from which the search goes back there, to
steps of half the length: inducing points that are close together bear no long ones."""

SHARE = 0.1
"""How far natural gradients go at first."""

FARTHEST = 0.025
"""The longest steps of inducing points: values there are whitened, and mean another function wherever points are."""

VISITED = 5.0
"""Times as long as those of others are steps of row variables, which minibatches visit now and then."""

ASSESSED = 1_000
"""Rows of which the bound is taken at a time at the end."""

RISING, FEWEST, LAST_FIFTHS = 3.0, 4, ((0.6, 0.8), (0.8, 1.0))
"""Standard errors that the bound rises by in the end without a note, steps that tell, and what is compared."""

UNKNOWN = 10.0
"""Times the nats that are worth little within which a rise has to be known for a search to have converged."""


def rises(how: str, steps: int) -> str:
    """The note that a bound still rises after so many steps."""
    return f"the bound still rises: {how}; take more, steps = {4 * steps}, or go on with start = fit"


State = dict[str, Any]
"""What Adam moves: `parameters` on the real line, `inducing` and `q` by group; and `last`, by natural gradients."""

Place = tuple[State, Any, Any]
"""Where a search is: what Adam moves, the last layer, and Adam's memory."""


def last_layers(program: Program) -> tuple[int, ...]:
    """The places of the groups that no other latent is a function of."""
    groups = enumerate(program.groups)
    return tuple(place for place, g in groups if not g.per_row and not set(g.names) & program.inner)


class LayeredSearch:
    """Stochastic ascent from where the layers start."""

    even = False
    """Whether passes are spread evenly over their distribution."""

    def __init__(self, problem: Problem, start: Groups) -> None:
        self.problem, choice = problem, problem.choice
        program, dtype = problem.program, jnp.dtype(problem.options.dtype)
        self.layers = Layers(program, program.sharp, problem.options.importance)
        self.size = min(CHUNK, choice.steps)
        natural = last_layers(program) if choice.optimizer == "natural" else ()
        self.families = [PerRow() if group.per_row else Full() for group in program.groups]
        q = {p: each for p, each in enumerate(as_arrays(start, dtype)) if p not in natural}
        self.encoders, q = encoders(program, problem.rows, choice.rows, q, problem.options.seed, dtype)
        moving = problem.options.learn_inducing is not False
        places = [p for p, z in enumerate(problem.inducing) if isinstance(z, Values) and not program.groups[p].per_row]
        points = {p: problem.inducing[p] for p in places if moving}
        last = {p: Precise.prior(program.groups[p].size, len(problem.inducing[p]), dtype) for p in natural}
        if problem.begun is not None:
            known = {p: each for p, each in enumerate(problem.begun.posterior) if p not in self.encoders}
            q, last = _begun(q, last, {p: each for p, each in known.items() if each is not None})
        free = {p for p, group in enumerate(program.groups) if group.per_row} - self.encoders.keys()
        self.paces = [VISITED if place in free else 1.0 for place in range(len(program.groups))]
        self.point: State = {"parameters": problem.parameters, "inducing": points, "q": q}
        self.last = last
        self.optimiser, self.pace = optax.scale_by_adam(), choice.learning_rate
        self.slower = min(1.0, FARTHEST / choice.learning_rate)
        self.memory = self.optimiser.init(self.point)
        self.values: list[float] = []
        self.done, self.key = 0, jax.random.key(problem.options.seed)
        self.slight = Loss(0.0, problem.data_rows).slight
        self.begun, self.length = 0, choice.steps
        self.batches: Iterator[np.ndarray] = minibatches(
            problem.data_rows, choice.batch or problem.data_rows, problem.options.seed + 1
        )
        self.chunk = problem.compiled(self._chunk, self.point, self.last, self.memory, *self._next(), problem.rows)

    def run(self) -> str:
        """All steps."""
        return self._until(self.problem.choice.steps)

    def _until(self, end: int) -> str:
        """So many steps in all."""
        best = (-np.inf, 0.0, (self.point, self.last, self.memory))
        while self.done < end:
            given = *self._next(), self.problem.rows
            self.point, self.last, self.memory, values = self.chunk(self.point, self.last, self.memory, *given)
            self.values += np.asarray(values, float)[: end - self.done].tolist()
            self.done = min(self.done + self.size, end)
            mean, spread = float(np.nanmean(np.asarray(values))), float(np.nanstd(np.asarray(values)))
            self.problem.monitor.report(self.done, mean)
            if mean > best[0]:
                best = mean, spread, (self.point, self.last, self.memory)
            elif not self.even and self.done > RISE * end and mean < best[0] - FALL * best[1]:
                (self.point, self.last, self.memory), self.pace = best[2], 0.5 * self.pace
            if not np.any(np.isfinite(np.asarray(values))):
                return "stopped: the bound is not a finite number"
        return ALL_DONE

    def _rise(self) -> tuple[float, float] | None:
        """By how much the bound rises over the last fifth of the way, and what may be noise or is little; None unknown.

        Of the way and not of the steps, whose last ones are so short that any bound is level there.
        """
        way = np.cumsum(self._lengths(np.arange(len(self.values)))[:, 0])
        parts = [np.asarray(self.values)[(way > a * way[-1]) & (way <= b * way[-1])] for a, b in LAST_FIFTHS]
        if self.done < self.problem.choice.steps or min(map(len, parts)) < FEWEST:
            return None
        before, after = parts
        noise = np.sqrt(before.var() / len(before) + after.var() / len(after))
        return after.mean() - before.mean(), max(RISING * noise, self.slight)

    def _told(self, found: Result) -> Result:
        """A result that says whether the bound still rises, where that is known."""
        known = self._rise()
        if known is None:
            return found
        rise, little = known
        if rise > little:
            how = f"its mean over the last fifth of the way of {self.done} steps is {rise:.2g} nats above that before"
            return replace(found, notes=(rises(how, self.done),))
        if little > UNKNOWN * self.slight:
            how = f"whether the bound still rises is not known: its means are only told within {little:.2g} nats; "
            return replace(found, notes=(f"{how}take more, steps = {4 * self.done}, or compare with other seeds",))
        return replace(
            found,
            message=f"converged: over the last fifth of its way it rose by less than {plural(little, 'nat', '.2g')}",
        )

    def state(self) -> Result:
        """Where it is, with the mean bound of the last steps."""
        return self._result(self.problem.monitor.last, 0.0)

    def finish(self) -> Result:
        """Where it is, with its bound on all rows and fresh samples."""
        return self._told(self._result(*self._assessed()))

    def _next(self) -> tuple[Array, Array, Array]:
        """Row numbers, random keys and lengths of some steps: of Adam's, and shares of natural gradients."""
        index = np.stack([*itertools.islice(self.batches, self.size)])
        keys = jax.random.split(jax.random.fold_in(self.key, self.done), self.size)
        lengths = self._lengths(self.done + np.arange(self.size))
        return jnp.asarray(index), keys, jnp.asarray(lengths, self.problem.options.dtype)

    def _lengths(self, steps: np.ndarray) -> Float[np.ndarray, "steps 2"]:
        """How far some steps go: Adam's, and natural gradients."""
        at = np.minimum(steps - self.begun, self.length) / self.length
        lengths = SLOWEST + (1.0 - SLOWEST) * 0.5 * (1.0 + np.cos(np.pi * at))
        return np.stack([self.pace * np.minimum(at / RISE, 1.0) * lengths, SHARE * lengths], axis=1)

    def _chunk(
        self, point: State, last: Any, memory: Any, index: Array, keys: Array, lengths: Array, rows: Rows
    ) -> tuple[State, Any, Any, Array]:

        def step(carry: Any, at: Any) -> Any:
            point, last, memory = carry
            number, key, (length, share) = at
            batch = take_rows(rows, number)
            value, slope, ahead = self._seen(point, last, batch, key, share)
            updates, moved = self.optimiser.update(slope, memory, point)
            updates = jax.tree.map(partial(jnp.multiply, length), updates)
            updates["inducing"] = jax.tree.map(partial(jnp.multiply, self.slower), updates["inducing"])
            updates["q"] = {
                p: jax.tree.map(partial(jnp.multiply, self.paces[p]), each) for p, each in updates["q"].items()
            }
            sound = jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(slope)]))
            keep = partial(jax.tree.map, lambda a, b: jnp.where(sound, a, b))
            return (keep(optax.apply_updates(point, updates), point), keep(ahead, last), keep(moved, memory)), value

        (point, last, memory), values = jax.lax.scan(step, (point, last, memory), (index, keys, lengths))
        return point, last, memory, values

    def _seen(self, point: State, last: Any, rows: Rows, key: Array, share: Array) -> tuple[Array, State, Any]:
        """The bound and its slope, and the last layer a share of the way along its natural gradient."""
        given = {place: each.gaussians() for place, each in last.items()}
        found, (slope, ahead) = jax.value_and_grad(self._value, (0, 1))(point, given, rows, key, self._expected())
        moved = {place: each.moved(ahead[place], share) for place, each in last.items()}
        return found - sum(each.divergence(given[place]) for place, each in last.items()), slope, moved

    def _expected(self) -> Expected:
        return Expected(self.layers, self.problem.choice.samples, self.problem.data_rows, self.even, self.even)

    def _value(self, point: State, given: Mapping[int, Any], rows: Rows, key: Array, expected: Expected) -> Array:
        """The bound but for the divergence of the last layer, as of all rows."""
        posterior = self._posterior(point, rows)
        parameters = self.problem.program.parameters.constrain(point["parameters"])
        inner = [posterior[p] for p in point["q"] if not self.problem.program.groups[p].per_row]
        found = expected(parameters, self._inducing(point), {**posterior, **given}, rows, key, self.problem.jitter)
        return found - sum(map(divergence, inner)) + self.problem.program.log_prior(parameters)

    def _posterior(self, point: State, rows: Rows) -> dict[int, Any]:
        """q of the groups that Adam moves; of row variables that a network knows, at these rows."""
        found: dict[int, Any] = {}
        for place, q in point["q"].items():
            if place in self.encoders:
                found[place] = self.encoders[place](q, rows)
                continue
            family = self.families[place]
            found[place] = family.whitened(family.prepare(q, None), None)  # type: ignore[arg-type]
        return found

    def _inducing(self, point: State) -> Sequence[Functionals]:
        """Inducing functionals of all groups: those of row variables have no points."""
        return [point["inducing"].get(p, z) for p, z in enumerate(self.problem.inducing)]

    def _whole(self, point: State, last: Any, rows: Rows, key: Array) -> Array:
        """The sum over some rows alone, at full weight."""
        posterior = self._posterior(point, rows)
        parameters = self.problem.program.parameters.constrain(point["parameters"])
        given = {place: each.gaussians() for place, each in last.items()}
        count = next(iter(rows.observed.values())).shape[0]
        expected = replace(self._expected(), total=count, quadrature=False)
        return expected(parameters, self._inducing(point), {**posterior, **given}, rows, key, self.problem.jitter)

    def _rest(self, point: State, last: Any) -> Array:
        q = {p: each for p, each in point["q"].items() if not self.problem.program.groups[p].per_row}
        inner = self._posterior({**point, "q": q}, self.problem.rows).values()
        prior = self.problem.program.log_prior(self.problem.program.parameters.constrain(point["parameters"]))
        return prior - sum(map(divergence, inner)) - sum(each.divergence(each.gaussians()) for each in last.values())

    def _assessed(self) -> tuple[float, float]:
        """The bound of all rows and its standard error, by the same samples whenever it is asked for."""
        problem, point, last = self.problem, self.point, self.last
        whole, rest = self._assessing
        keys = jax.random.split(jax.random.key(problem.options.seed + 1), FRESH_SETS)
        starts = range(0, problem.data_rows, ASSESSED)
        blocks = [take_rows(problem.rows, slice(at, min(at + ASSESSED, problem.data_rows))) for at in starts]
        sets = [
            [float(whole(point, last, rows, jax.random.fold_in(key, at))) for at, rows in enumerate(blocks)]
            for key in keys
        ]
        value, error = sum_and_error(np.asarray(sets))
        return value + float(rest(point, last)), error

    @cached_property
    def _assessing(self) -> tuple[Callable[..., Array], Callable[..., Array]]:
        return self.problem.compiling(self._whole), self.problem.compiling(self._rest)

    def _result(self, value: float, error: float, place: Place | None = None) -> Result:
        """Where it is, or at another point and last layer."""
        point, natural, _ = place or (self.point, self.last, None)
        last = {number: each.whitened() for number, each in natural.items()}
        q = {**self._posterior(point, self.problem.rows), **last}
        q |= {p: Whitened(q[p].mean, q[p].sd[..., None]) for p in self.encoders}
        posterior = tidy([q[place] for place in range(len(self.problem.program.groups))])
        inducing = as_numpy([*self._inducing(point)])
        return Result(as_numpy(point["parameters"]), inducing, posterior, np.ones(1), value, error)


def _begun(q: dict[int, Any], last: dict[int, Precise], known: Mapping[int, Whitened]) -> tuple[Any, Any]:
    """Where another fit has ended."""
    for place, each in known.items():
        if place in last:
            last = {**last, place: Precise.of(each)}
            continue
        mean, root = jnp.asarray(each.mean), jnp.asarray(each.root)
        if root.shape[-1] == 1:
            q = {**q, place: {"mean": mean, "log_sd": jnp.log(root[..., 0])}}
            continue
        logs = jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1))[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)
        q = {**q, place: {"mean": mean, "root": jnp.tril(root, -1) + logs}}
    return q, last
