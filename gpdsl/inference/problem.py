"""One inference problem as engines take it (the program, its rows, the decisions), its progress, and its result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jaxtyping import Array, Float

from gpdsl.forward import Usage
from gpdsl.inference.blocks import Draws, block_rows
from gpdsl.inference.bound import Layout
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import Held, Whitened
from gpdsl.inference.sampling import base_normals, sum_and_error
from gpdsl.inference.warm import Carried
from gpdsl.inference.watch import honour_interrupts
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.kept import Unique, identity, kept, reused, shapes_of
from gpdsl.program.parameters import DataStarts
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

if TYPE_CHECKING:
    from gpdsl.inference.inducing.loss import Loss
    from gpdsl.inference.integrated import Integrated, Profile
    from gpdsl.inference.mcmc.chains import Target
    from gpdsl.inference.natural.sites import Sites


# Progress of a fit: history, time left, the caller's callback, and the best state so far when interrupted.


@dataclass(frozen=True)
class Report:
    """What a callback is told between steps. `remaining` is in seconds, None while unknown.

    `usage` counts the evaluations of opaque functions so far, and the seconds inside them.
    """

    step: int
    steps: int
    elbo: float
    elapsed: float
    remaining: float | None
    stage: str
    usage: Usage = field(default_factory=Usage)


@dataclass
class Monitor:
    """Collects (step, elbo, seconds) and passes them on; the clock starts when it is made."""

    steps: int
    callback: Callable[[Report], None] | None = None
    stage: str = "fit"
    history: list[tuple[int, float, float]] = field(default_factory=list)
    compile_seconds: float = 0.0
    keep: Callable[[Callable[[], Result], bool], None] | None = None
    """What is told how to get at the best state so far, and whether a search has ended there (`results.checkpoint`)."""
    state: Callable[[], Result] | None = None
    """The best state of the search under way, as its engine sees it."""
    _start: float = field(default_factory=time.perf_counter)
    _first: float | None = None
    _since: float = 0.0

    def report(self, step: int, elbo: float) -> None:
        """Record a finished step, whose state the engine holds. Raises KeyboardInterrupt where the user has asked."""
        elapsed = time.perf_counter() - self._start
        if self._first is None:
            self._first = elapsed
        self.history.append((step, elbo, elapsed))
        if self.callback is not None:
            rate = (elapsed - self._first) / max(step - self.history[0][0], 1)
            remaining = rate * (self.steps - step) if len(self.history) > 1 else None
            self.callback(Report(step, self.steps, elbo, elapsed, remaining, self.stage))
        if self.keep is not None and self.state is not None:
            self.keep(self.state, False)
        honour_interrupts()

    def explored(self, number: int, most: int, stage: str = "integrating") -> None:
        """So many steps of at most so many after the search. Raises KeyboardInterrupt where the user has asked."""
        if self.callback is not None:
            left = None if not number else (self.elapsed - self._since) / number * (most - number)
            self.callback(Report(number, most, self.last, self.elapsed, left, stage))
        if not number:
            self._since = self.elapsed
        honour_interrupts()

    def ended(self, result: Result) -> None:
        """A search has ended."""
        self.state = None
        if self.keep is not None:
            self.keep(lambda: result, True)

    def after(self, first: Monitor) -> Monitor:
        """The history of two fits, one after the other, by the clock of the first: what lies between them counts."""
        steps, seconds = first.history[-1][0], self._start - first._start
        later = [(steps + step, elbo, seconds + elapsed) for step, elbo, elapsed in self.history]
        compiling = first.compile_seconds + self.compile_seconds
        return replace(self, history=[*first.history, *later], compile_seconds=compiling, _start=first._start)

    @property
    def last(self) -> float:
        """The bound of the last step."""
        return self.history[-1][1] if self.history else -math.inf

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start


# One inference problem as engines take it (the program, its rows, the decisions), and the result they return.

BRIEF = 20_000
"""Covariances, of all kernels together, up to which compiling a program well takes longer than it saves."""

FRESH_SETS = 10
"""Sets of fresh samples on which a bound maximised over one set is assessed again."""


class Rest(NamedTuple):
    """What the programs of a search take besides what it moves: `held` are the inducing points that stay."""

    rows: Rows
    held: list[Functionals]
    normals: Any
    jitter: Array | float


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything an engine needs. `start` is the initial state: parameters and inducing inputs (unconstrained)."""

    program: Program
    rows: Rows
    count: int
    layout: Layout
    choice: Choice
    options: Options
    parameters: dict[str, Array]
    inducing: list[Functionals]
    jitter: float
    monitor: Monitor
    begun: Carried | None = None
    """The posterior of the fit to start from."""
    begun_held: Held | None = None
    """What holds that where it is not one over whitened values."""
    continued: bool = False
    """Whether the parameters come from another fit."""
    copies: int = 0
    """Rows at the end that fill up devices: nothing is observed in them."""

    def factorised(self) -> Problem:
        """The same problem with latents that are independent in the posterior."""
        return self if self.program.factorised is None else replace(self, program=self.program.factorised)

    @property
    def data_rows(self) -> int:
        """Rows that minibatches are drawn from, and stand for: those of the data."""
        return self.count - self.copies

    @property
    def observed(self) -> float:
        """How many observed values the bound is a sum over."""
        known = self.rows.observed.values()
        return float(sum(jnp.sum(each) if self.rows.mesh is not None else np.sum(np.asarray(each)) for each in known))

    @property
    def asked(self) -> dict[str, Any]:
        """What `ascent.lbfgs.maximise` is asked for in a search on the bound: its arguments by name."""
        units = self.program.parameters.data.steps
        asked = {"steps": self.choice.steps, "tolerance": self.options.tolerance, "report": self.monitor.report}
        return {**asked, "size": self.observed, "units": units}

    @property
    def epoch(self) -> int:
        """Steps on minibatches in which every row is seen once, but for what is left over."""
        return max(self.data_rows // (self.choice.batch or self.data_rows), 1)

    @property
    def at_once(self) -> bool:
        """Whether all rows are taken together, and not block by block."""
        together = self.layout.dense or self.program.coupled
        return together or not block_rows(self.program, self.inducing, self.count)

    @property
    def ceiling(self) -> float:
        """What no bound exceeds: outputs that have no densities but probabilities are no likelier than certain."""
        kinds = {output.kind for output in self.program.declarations.outputs.values()}
        plain = kinds <= {"label", "ordinal", "binary", "count"} and not self.program.priors
        return 0.0 if plain and not self.program.declarations.likelihoods else float("inf")

    @property
    def may_have_saddles(self) -> bool:
        """Whether several latents, or learnt parameters of either sign beside one, may hold a search by symmetry."""
        latents = sum(group.size for group in self.program.groups)
        declared = self.program.declarations.params
        levels = self.program.parameters.data.levels
        signed = [n for n in self.parameters if declared[n].constraint == "real" and n not in levels]
        return not self.program.sampled and (latents > 1 or bool(signed))

    @property
    def brief(self) -> bool:
        """Whether steps on all rows work so little that it counts more how soon their program is compiled."""
        kernels = zip(self.program.groups, self.inducing, strict=True)
        covariances = sum(group.factors * len(points) * self.count for group, points in kernels)
        return covariances <= BRIEF and not self.program.sampled

    def normals(self, key: Array, count: int | None = None) -> Array | None:
        """Base samples for `count` rows, when anything is sampled."""
        return self.draws(key, count) if self.program.sampled else None

    def rest(self, normals: Any = None) -> Rest:
        """What does not move in a search, with base samples of its own."""
        return Rest(self.rows, self.inducing, normals, self.jitter)

    def batch_normals(self, key: Array) -> Array | Draws | None:
        """Base samples for all rows, drawn block by block where there are many."""
        if not self.program.sampled:
            return None
        return self.drawn(key)

    def drawn(self, key: Array) -> Array | Draws:
        """`draws`, or what gives them block by block."""
        if self.at_once:
            return self.draws(key)
        components, program = self.layout.family.components, self.program
        return Draws(key, self.choice.samples, components, program.latents, program.opaque, self.options.sampling)

    def draws(self, key: Array, count: int | None = None) -> Float[Array, "samples components rows latents"]:
        """Base samples for `count` rows (all by default)."""
        shape = self.layout.family.components, self.count if count is None else count, self.program.latents
        samples, halves = self.choice.samples, self.program.opaque
        return base_normals(key, samples, *shape, halves=halves, sampling=self.options.sampling)

    def reassessed(self, bound: Callable[[Array | Draws], Array], value: float) -> tuple[float, float]:
        """A maximised bound and its standard error: on fresh samples when it was maximised over one set of them.

        The maximum over fixed samples is optimistic, as a training error is. `bound` is compiled, or calls what is.
        """
        if not self.program.sampled or not np.isfinite(value):
            return value, 0.0
        key = jax.random.fold_in(jax.random.key(self.options.seed), 1)
        sets = (self.drawn(jax.random.fold_in(key, number)) for number in range(FRESH_SETS))
        return sum_and_error(np.asarray([float(bound(normals)) for normals in sets]))

    def compiled(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        given: tuple[int, ...] = (),
        brief: bool = False,
        fused: bool = False,
    ) -> Callable[..., Any]:
        """Compile for these arguments now, and account for the time; `given`, `brief`, `fused` are those of `jit`."""
        start = time.perf_counter()
        executable = jit(function, given=given, brief=brief, fused=fused).lower(*arguments).compile()
        self.monitor.compile_seconds += time.perf_counter() - start
        return executable

    def shared(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        context: Any = (),
        brief: bool = False,
        fused: bool = False,
    ) -> Callable[..., Any]:
        """`compiled` of a function of this problem without its data, of the context, and of the arguments.

        A program that an earlier fit has compiled for the same of these and arguments of the same shapes is used again.
        """
        try:
            if self.rows.mesh is not None:
                raise Unique("rows on several devices")
            key = function, self._bare.identity, identity(context), shapes_of(arguments), brief, fused
        except Unique:
            return self.compiled(partial(function, self, context), *arguments, brief=brief, fused=fused)

        bare = partial(function, self._bare, context)
        build = partial(self.compiled, bare, *arguments, brief=brief, fused=fused)
        return reused(key, lambda: kept(key, arguments, build))

    @cached_property
    def _bare(self) -> Problem:
        """The problem without what shared programs must not depend on."""
        nothing = cast(Any, None)
        unknown = {n: np.full_like(v, np.nan) for n, v in self.program.parameters.initial.items()}
        program = replace(self.program, parameters=replace(self.program.parameters, initial=unknown, data=DataStarts()))
        choice = replace(self.choice, reasons={})  # words that count the rows
        arrays = {"rows": nothing, "parameters": nothing, "inducing": nothing, "begun": None, "begun_held": None}
        return replace(self, program=program, choice=choice, **arrays)

    @cached_property
    def identity(self) -> Hashable:
        """What programs depend on besides their arguments (`kept`)."""
        constants = self.layout, self.choice, self.options, self.count, self.copies, self.jitter, self.continued
        return self.program.identity, identity(constants)

    def compiling(
        self, function: Callable[..., Any], *, given: tuple[int, ...] = (), brief: bool = False
    ) -> Callable[..., Any]:
        """The function compiled when it is first called, and again for arguments of other shapes; see `compiled`."""
        ready: dict[Any, Callable[..., Any]] = {}

        def call(*arguments: Any) -> Any:
            key = shapes_of(arguments)
            if key not in ready:
                ready[key] = self.compiled(function, *arguments, given=given, brief=brief)
            return ready[key](*arguments)

        return call


@dataclass(frozen=True)
class Result:
    """What an engine returns: unconstrained parameters, inducing inputs, q whitened, mixture weights and the bound.

    `elbo_se` is the standard error of a sampled bound, 0 for an exact one. A posterior over weights stands in
    `held`, and the inducing inputs and q are empty; where it is exact, q alone is.
    """

    parameters: dict[str, np.ndarray]
    inducing: list[Functionals]
    posterior: list[Whitened]
    weights: np.ndarray
    elbo: float
    elbo_se: float
    message: str = ""
    interrupted: bool = False
    held: Held | None = None
    """What holds the posterior where that is not q."""
    notes: tuple[str, ...] = ()
    """What is doubtful about the result, in sentences for the user."""
    ends: tuple[dict[str, np.ndarray], ...] = ()
    """Where other searches have ended: there may be another mode."""
    loss: Loss | None = None
    """What inducing points lose; None without any, and where it cannot be told."""
    loss_bounds: tuple[float, float] | None = None
    """Nats that they lose at least and at most, at these parameters, where that is certain."""
    profile: Callable[[], Profile] | None = None
    """Gives the evidence as a function of the learnt parameters, where the engine has one."""
    target: Callable[[], Target] | None = None
    """Gives what chains draw from, where they are asked for."""
    sites: Sites | None = None
    """Gaussian sites of the rows that q stands by, where chains are to know them."""
    integrated: Integrated | None = None
    """Settings of the learnt parameters that they are integrated over by; None where they are at one."""


def of_first(result: Result, rows: int) -> Result:
    """What a result says of the first rows, which the later ones have not touched."""

    def first(tree: Any) -> Any:
        return jax.tree.map(lambda a: np.asarray(a)[:rows], tree)

    posterior = [replace(q, mean=q.mean[..., :rows], root=q.root[..., :rows, :rows]) for q in result.posterior]
    return replace(result, inducing=first(result.inducing), posterior=posterior, sites=first(result.sites))


class Found(NamedTuple):
    """A result, its history, the decisions and the jitter used."""

    result: Result
    monitor: Monitor
    choice: Choice
    jitter: float

    def but(self, **changes: Any) -> Found:
        """The same with another result."""
        return self._replace(result=replace(self.result, **changes))


def as_arrays(tree: Any, dtype: Any) -> Any:
    """Every leaf as a device array of this dtype, cast on the host where it is there: a device compiles a cast."""
    return jax.tree.map(lambda a: jnp.asarray(a if isinstance(a, jax.Array) else np.asarray(a, dtype), dtype), tree)


def as_numpy(tree: Any, dtype: Any = None) -> Any:
    """Every leaf as a NumPy array (of this dtype, if any), those whose parts other processes hold too."""
    apart = lambda a: isinstance(a, jax.Array) and not (a.is_fully_addressable or a.is_fully_replicated)  # noqa: E731
    return jax.tree.map(lambda a: np.asarray(process_allgather(a, tiled=True) if apart(a) else a, dtype), tree)


def tidy(posterior: Sequence[Whitened]) -> list[Whitened]:
    """Posterior moments on the host."""
    return as_numpy(list(posterior))
