"""What a fit says of its latents at any rows, whatever holds it: marginals, covariances between rows, whole functions.

`Posterior` is what predictions, summaries, saving and diagnoses know. It is itself one over whitened inducing values;
each other kind overrides what it does in another way, in its engine's folder, and is named in `POSTERIORS` of
`inference.infer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.errors import need
from gpdsl.inference.bound import views
from gpdsl.inference.posteriors.coupled import Block, marginals_of, unexplained, verify_size, whitened_blocks
from gpdsl.inference.posteriors.family import (
    Covariances,
    Held,
    Inverse,
    Roots,
    Told,
    Whitened,
    parse_family,
    told_by_values,
)
from gpdsl.inference.posteriors.pathwise import bent, bent_at, refuse_unsuited
from gpdsl.inference.problem import as_arrays, as_numpy
from gpdsl.kernels.form import Patches, inside
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.cache import jit
from gpdsl.program.joint import Marginals
from gpdsl.program.kept import on_use
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, row_count

if TYPE_CHECKING:
    from gpdsl.inference.plan.options import Choice, Options

# What a fit says of its latents at any rows, whatever holds it: many rows a part at a time, in bounded memory.

ROWS_AT_ONCE = 4096

SLIGHT = 1 << 16
"""Rows times inducing values up to which marginals are compiled briefly: they take a few milliseconds longer."""

SEVERAL = 1 << 24
"""Numbers of posteriors that are looked at together, at most: 128 MB."""

COMMON_AT_ONCE = 2048
"""Latents times common noise of a coupled posterior that count as one: 64 MB for all rows at once."""


def parts(count: int, size: int = ROWS_AT_ONCE) -> Iterator[tuple[slice, int]]:
    """Slices that cover `count` rows, and how many rows at the front of each were covered before.

    All have one length, so that one compiled function serves them: the last is taken from the end.
    """
    size = min(size, count)
    for start in range(0, count, size):
        last = min(start + size, count)
        yield slice(last - size, last), size - (last - start)


FEW = 8
"""Rows up to which there are programs for powers of two."""


def few_sizes(count: int) -> int:
    """A number of rows from this one up, of four in each octave: one program serves all numbers in between."""
    if count <= FEW:
        return 1 << (count - 1).bit_length()
    step = max(FEW // 2, 1 << (count.bit_length() - 3))
    return -(-count // step) * step


def filled_up(count: int, size: int) -> Int[np.ndarray, " size"]:
    """Places of so many rows, of which the last stands again for those that are missing."""
    return np.minimum(np.arange(size), count - 1)


def by_parts(
    count: int, compute: Callable[[int, slice], np.ndarray], axis: int = 0, size: int = ROWS_AT_ONCE
) -> np.ndarray:
    """`compute(number, rows)` of each part in turn, put together along the axis of the rows."""
    found = []
    for number, (rows, skip) in enumerate(parts(count, size)):
        values = compute(number, rows)
        kept = [slice(None)] * axis + [slice(skip, None)]
        found.append(values[tuple(kept)])
    return np.concatenate(found, axis=axis) if len(found) > 1 else found[0]


@dataclass(frozen=True, eq=False)
class Paths:
    """Drawn functions of all latents: `compute(program, rows, *numbers)` is [draws, rows, columns] of their values.

    They are around the prior mean unless they are `whole`, and of a program without sums.
    """

    compute: Callable[..., Float[Array, "draws rows columns"]]
    numbers: tuple[Any, ...]
    whole: bool = False


Functions = Callable[[int, np.random.Generator], Float[np.ndarray, "S rows latents"]]
"""So many draws of all latents at some rows together."""

Given = Callable[..., tuple[np.ndarray, ...]]
"""Means of a group, by its place, at all rows and covariances between them, given the latents below it in some draws.

Where a third argument says how many, covariances with the first rows alone, and variances.
"""


DENSE = "choice: dense or not does not go with the number of inducing points"
UNLIKE = "inducing: not one for every group of latents"
"""What may be wrong with a file."""

Arrays = Mapping[str, np.ndarray]
"""Of a file, by name."""


ARRAYS = frozenset({"program", "parameters", "inducing", "q", "weights", "compiled"})
"""What programs compiled for a posterior get as arguments, or know nothing of; of all else they know."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """One over whitened inducing values, a mixture with these `weights`; `program` is the one that was fitted."""

    program: Program
    parameters: Mapping[str, np.ndarray]
    inducing: Sequence[Functionals]
    q: Sequence[Whitened]
    weights: Float[np.ndarray, " K"]
    jitter: float
    dtype: str
    held: Any = None
    """What holds it where that is not `q`, which is empty then: a `Held`."""
    whitened: ClassVar[bool] = True
    """Whether `q` gives the marginals of each row by SAVIGP eqs. 37 to 39."""
    jointly: ClassVar[bool] = False
    """Whether one root is across all groups, whatever the family is called."""
    by_data: ClassVar[bool] = False
    """Whether the data hold it: each row stands in it by a Gaussian site, and `inducing` is what rows are sums of."""
    compiled: dict[Any, Callable[..., Any]] = field(default_factory=dict, repr=False)
    """Of what is held: compiled once for each number of rows, however often the fit predicts, whatever its numbers."""

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        """Whether fits of the program with these choices have this kind of posterior."""
        return True

    @staticmethod
    def log_likelihoods(
        program: Program, parameters: Mapping[str, Array], rows: Rows, white: Sequence[Array], jitter: float
    ) -> Float[Array, " draws"] | None:
        """log p(all observations) at whitened values [draws, 1, latents, M], where all rows read these alone."""
        return None

    def stored(self, arrays: Arrays, rows: int, options: Options) -> tuple[tuple[Whitened, ...], Held | None]:
        """`q` and `held` from the arrays of a file (`arrays_of`). Raises ValueError for what cannot be any."""
        need(len(self.inducing) == len(self.program.groups), UNLIKE)
        return tuple(Whitened(arrays[f"mean.{i}"], arrays[f"root.{i}"]) for i in range(len(self.inducing))), None

    def components(self, choice: Choice) -> int:
        """How many there are by these choices. Raises ValueError where these name no family of this kind."""
        return parse_family(choice.posterior, choice.dense).components

    def check(self, choice: Choice, options: Options) -> None:
        """Raise ValueError where this is no posterior of a fit with these choices."""
        need(choice.dense == (choice.inducing == 0), DENSE)
        program, chosen = self.program, choice.posterior == "coupled"
        needed = chosen and options.posterior in {"auto", "corrected"}
        need(not needed or program.mixing, "choice: posterior is coupled, and no observation mixes latents")
        total = sum(group.size * len(points) for group, points in zip(program.groups, self.inducing, strict=True))
        for group, points, q in zip(program.groups, self.inducing, self.q, strict=True):
            shape = len(self.weights), group.size, len(points)
            columns = total if chosen or self.jointly else 1 if group.per_row else len(points)
            names = ", ".join(group.names)
            known = options.drawn and q.root.shape == (*shape, 1) and not np.any(q.root)
            need(q.mean.shape == shape, f"the posterior of {names} has another shape")
            need(known or q.root.shape == (*shape, columns), f"the posterior of {names} has another shape")
            need(q.mean.dtype == q.root.dtype == self.dtype, f"the posterior of {names} is not of {self.dtype}")

    def support(self, choice: Choice, rows: int) -> str:
        """What carries it, in words: inducing points, all rows, or fewer points that determine what is read."""
        if not choice.dense:
            return choice.support
        most = max((len(points) for points in self.inducing), default=rows)
        return f"dense (by {most} points that determine it)" if most < rows else "dense (inducing points are the rows)"

    def shares(self, program: Program) -> Float[np.ndarray, " K"]:
        """Weights, which add up to 1, of the components of its marginals."""
        return self.weights / self.weights.sum()

    def deviates(self, program: Program) -> Float[np.ndarray, "K latents"]:
        """Standard normals of the latents that components differ in, as passes through layers do; else zeros."""
        return np.zeros((len(self.weights), program.latents))

    @property
    def independent(self) -> bool:
        """Whether latents of different groups are independent in `q`, whose marginals are all there is."""
        return self.whitened and not self.program.coupled

    def for_densities(self) -> Posterior:
        """The same, as finely as densities of outputs need it."""
        return self

    def carried(self) -> tuple[Sequence[Whitened], float, Held | None]:
        """What another fit starts from: whitened inducing values and their jitter, or what its engine alone knows."""
        return self.q, self.jitter, None

    def marginals(self, program: Program, rows: Rows, count: int) -> Marginals:
        """Marginals of all latents at rows, on the host: SAVIGP eqs. 37 to 39, O(M^2) per row after one factorisation.

        `program` says what is read of the latents: that of the fit, or more of them.
        """
        numbers, most, found = self.numbers_at_rows, self.rows_at_once(program), []
        size = count if any(group.per_row for group in program.groups) else min(few_sizes(count), most)
        compute = self._compiled("marginals_at", program, self._is_slight(program, size, most))
        if count < most:
            whole = compute(take_rows(rows, filled_up(count, size)), *numbers)
            return as_numpy(whole).part(slice(0, count))
        for index, skip in parts(count, most):
            chunk = as_numpy(compute(take_rows(rows, index), *numbers))
            found.append(chunk.part(slice(skip, None)))
        return jax.tree.map(lambda *chunks: np.concatenate(chunks, axis=1), *found)

    def numbers_of(self, each: Sequence[Posterior]) -> tuple[Any, Any]:
        """`numbers_at_rows` of several posteriors that differ in these alone, stacked."""
        return stacked([dict(own.parameters) for own in each]), (stacked([list(own.q) for own in each]), self.inducing)

    def several_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        """`marginals_at` of several posteriors, whose numbers are stacked: one after the other, as XLA multiplies many
        small matrices at once forty times more slowly."""
        own, common = numbers
        return jax.lax.map(lambda each: self.marginals_at(program, rows, each[0], (each[1], common)), (parameters, own))

    def _is_slight(self, program: Program, rows: int, most: int) -> bool:
        """Whether marginals of so many rows take less time than compiling them well; at most so many go together."""
        if any(isinstance(part, Patches) for group in program.groups for part in inside(group.form)):
            return False  # each value takes a covariance for every patch of a row
        values = sum(each.mean.size for each in self.q)
        return rows < most and rows * values * ROWS_AT_ONCE <= SLIGHT * most

    def left_open(self, program: Program, rows: Rows) -> Float[np.ndarray, "rows columns columns"] | None:
        """Covariances, in each row, of what inducing values leave open; None where there are none of these."""
        if not self.whitened:
            return None
        return np.asarray(self._compiled("left_open_at", program)(rows, *self.numbers), float)

    def inverses(self) -> Iterator[Inverse]:
        """Where the data hold it: of every set of values (`exact.predictive`)."""
        return iter(())

    def values(self, program: Program, rows: Rows, mean: np.ndarray) -> Sequence[np.ndarray] | None:
        """What its rows observe, where it is exact, in units of the noise that `program` has (`exact.predictive`)."""
        return None

    @property
    def on_host(self) -> bool:
        """Whether `told_on_host` is for it, where rows read values of latents alone."""
        return self.whitened and bool(self.q) and len(self.weights) == 1

    def told_on_host(self, groups: Sequence[Covariances]) -> Told:
        """Covariances between some rows, from those of the prior; without a program."""
        return told_by_values(groups, self.q, bool(self.program.coupled), self.jitter)

    def multiplications(self, rows: int) -> float:
        """Those that the bound of so many rows and its gradient take, about."""
        return 2.0 * sum(q.root.size * (rows + q.root.shape[2]) for q in self.q)

    def blocks(self, program: Program, rows: Rows, count: int) -> list[Block]:
        """Covariances of all latents between rows. Raises GpdslError for too many of these."""
        compute = self._compiled("blocks_at", program)
        verify_size(jax.eval_shape(compute, rows, *self.numbers), count)
        return jax.tree.map(np.asarray, compute(rows, *self.numbers))

    def functions(
        self, program: Program, rows: Rows, variables: Float[np.ndarray, "rows latents"] | None = None
    ) -> Functions | None:
        """Draws of all latents at these rows together, where their covariances do not tell them."""
        return None

    def roots(self, program: Program, rows: Rows, variables: Float[np.ndarray, "rows latents"]) -> Iterator[Roots]:
        """Of the last latents at these values of row variables that they are functions of; of no others."""
        return iter(())

    def passes_together(
        self, program: Program, rows: Rows, count: int, rng: np.random.Generator
    ) -> Iterator[tuple[Float[np.ndarray, "S rows latents"], Given]]:
        """Draws at all rows of the latents that others are functions of, some at a time, and what tells those given.

        None where no latent is a function of others.
        """
        return iter(())

    def drawn_paths(self, count: int, rng: np.random.Generator, seed: int) -> Paths:
        """So many whole functions, each from a component as often as its weight says. Raises GpdslError as `paths`."""
        weights = self.weights / self.weights.sum()
        return self.paths(rng.choice(len(weights), size=count, p=weights), rng, seed)

    def paths(self, component: np.ndarray, rng: np.random.Generator, seed: int) -> Paths:
        """Whole functions, one from each of these components. Raises GpdslError for kernels that have no such draws."""
        refuse_unsuited(self.program, self.inducing)
        parameters, (q, inducing) = self.numbers
        functions = bent(self.program, parameters, q, inducing, self.jitter, component, rng, seed)
        return Paths(bent_at, (parameters, functions))

    # What the kinds do each in their own way, with everything that is an array among the arguments: to be compiled.

    @cached_property
    def numbers(self) -> tuple[Any, Any]:
        """The parameters, and the arrays of the posterior."""
        parameters, inducing, q = as_arrays((dict(self.parameters), list(self.inducing), list(self.q)), self.dtype)
        return parameters, (q, inducing)

    @property
    def numbers_at_rows(self) -> tuple[Any, Any]:
        """The same, as `marginals_at` takes them."""
        return self.numbers

    def rows_at_once(self, program: Program) -> int:
        """Rows whose marginals are computed together, by the memory that a row takes."""
        readings = max((len(group.readings.all) for group in program.groups), default=1)
        common = self.q[0].root.shape[-1] if program.coupled else 0
        width = max(readings, program.latents * common // COMMON_AT_ONCE)
        return max(1, ROWS_AT_ONCE // width)

    def marginals_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        """Marginals of some rows."""
        q, inducing = numbers
        return marginals_of(views(program, parameters, inducing, rows, False, self.jitter), q)

    def left_open_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Array:
        """`left_open` of some rows."""
        seen = views(program, parameters, numbers[1], rows, False, self.jitter)
        return unexplained(seen, jnp.zeros((row_count(rows), program.latents), jnp.asarray(self.jitter).dtype))

    def blocks_at(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> list[Block]:
        """Covariances between rows, but for sums."""
        q, inducing = numbers
        return whitened_blocks(program.without_sums(), rows, parameters, q, inducing, self.jitter)

    def _compiled(self, name: str, program: Program, brief: bool = False) -> Callable[..., Any]:
        """The method of that name, compiled once for all fits of the program; once for this one where it is `held`."""
        if self.held is not None:
            key = name, program
            if key not in self.compiled:
                self.compiled[key] = jit(partial(getattr(self, name), program))
            return self.compiled[key]

        def bare() -> Callable[..., Any]:
            nothing = cast(Any, None)
            bare = replace(self, program=nothing, parameters={}, inducing=(), q=(), weights=nothing, compiled={})
            return partial(getattr(bare, name), program)

        rest = (getattr(self, each.name) for each in fields(self) if each.name not in ARRAYS)
        return on_use((type(self), name, program.known_by, brief, *rest), bare, brief)


def marginals_of_several(each: Sequence[Posterior], program: Program, rows: Rows, count: int) -> Iterator[Marginals]:
    """Marginals of posteriors that differ in their numbers alone, as many of them together as there is room for."""
    first = each[0]
    most, size = first.rows_at_once(program), few_sizes(count)
    room = SEVERAL // max(sum(leaf.size for leaf in jax.tree.leaves(first.numbers_at_rows)), 1)
    together = min(len(each), most // size, room)
    alone = type(first).marginals is not Posterior.marginals or any(group.per_row for group in program.groups)
    if alone or together < 2:
        yield from (own.marginals(program, rows, count) for own in each)
        return
    at = take_rows(rows, filled_up(count, size))
    compute = first._compiled("several_at", program, first._is_slight(program, size * together, most))
    for start in range(0, len(each), together):
        some = list(each[start : start + together])
        found = as_numpy(compute(at, *first.numbers_of(some + some[-1:] * (together - len(some)))))
        for place in range(len(some)):
            yield jax.tree.map(lambda a, place=place: a[place], found).part(slice(0, count))


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of arrays alike as one, on the host."""
    return jax.tree.map(lambda *own: np.stack(own), *trees)


def arrays_of(q: Sequence[Whitened], held: Held | None) -> dict[str, np.ndarray]:
    """What a file keeps of a posterior, beside inducing inputs and weights."""
    arrays = {f"mean.{i}": np.asarray(each.mean) for i, each in enumerate(q)}
    arrays |= {f"root.{i}": np.asarray(each.root) for i, each in enumerate(q)}
    return arrays if held is None else arrays | held.arrays()
