"""What the posterior of a fit says of its latents at any rows: marginals row by row, and covariances between rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.bound import assemble, views
from gpdsl.inference.exact.paths import conditioned, conditioned_at
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.layered.predictive import layered_draws, layered_marginals, pass_count
from gpdsl.inference.posteriors.coupled import Block, joint_marginals, unexplained, verify_size, whitened_blocks
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.pathwise import bent, bent_at, refuse_unsuited
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.quadruply_stochastic.posterior import WeightSpace, weighted, weighted_at
from gpdsl.kernels.functionals import Functionals
from gpdsl.language import model as m
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import field_marginals
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.translate import NeedsElements, Translator, axis_key

# Many rows a part at a time, so that what is computed about them takes bounded memory; elements one by one.

ROWS_AT_ONCE = 4096

Pick = Callable[[dict[str, int | str]], sp.Expr]


def parts(count: int, size: int = ROWS_AT_ONCE) -> Iterator[tuple[slice, int]]:
    """Slices that cover `count` rows, and how many rows at the front of each were covered before.

    All have one length, so that one compiled function serves them: the last is taken from the end.
    """
    size = min(size, count)
    for start in range(0, count, size):
        last = min(start + size, count)
        yield slice(last - size, last), size - (last - start)


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


def over_elements(
    translator: Translator, axes: tuple[m.Axis, ...], pick: Pick, compute: Callable[..., Array]
) -> np.ndarray:
    """`compute(expression, keys)` for a generic element, or element by element where there is no generic form.

    The result is [..., rows, *axes]; `compute` returns [..., rows, *keys].
    """
    keys = tuple(axis_key(a) for a in axes)
    shape = translator.shape(axes)
    try:
        values = compute(pick({}), keys)
        lead = values.shape[: values.ndim - len(keys)]
        return np.broadcast_to(np.asarray(values), (*lead, *shape))
    except NeedsElements:
        ranges = [range(1, n + 1) for n in shape]
        parts = [
            np.asarray(compute(pick(dict(zip(keys, position, strict=True))), ()))
            for position in itertools.product(*ranges)
        ]
        return np.stack(parts, axis=-1).reshape(*parts[0].shape, *shape)


COMMON_AT_ONCE = 2048
"""Latents times common noise of a coupled posterior that count as one: 64 MB for all rows at once."""

PASSES_AT_ONCE = 1 << 16
"""Passes of rows through layers that are computed together."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Drawn functions of all latents: `compute(program, rows, *numbers)` is [draws, rows, columns] of their values.

    They are around the prior mean, and of a program without sums.
    """

    compute: Callable[..., Float[Array, "draws rows columns"]]
    numbers: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class AtRows:
    """The numbers of a fit that tell of its latents; `program` is the one that was fitted."""

    program: Program
    parameters: Mapping[str, np.ndarray]
    inducing: tuple[Functionals, ...]
    posterior: tuple[Whitened, ...]
    jitter: float
    dtype: str
    weight_space: WeightSpace | None
    regression: Regression | None
    compiled: dict[Any, Callable[..., Any]] = field(default_factory=dict, repr=False)
    """Compiled once for each number of rows, however often the fit predicts, and whatever its numbers."""

    def marginals(self, program: Program, rows: Rows, count: int) -> Marginals:
        """Marginals of all latents at rows: SAVIGP eqs. 37 to 39, O(M^2) per row after one factorisation.

        `program` says what is read of the latents: that of the fit, or more of them.
        """
        if program.fields:
            known, q = as_arrays((dict(self.parameters), list(self.posterior)), self.dtype)
            return field_marginals(program, known, q, self.jitter, count)
        compute, numbers = self._compiled(self._marginals, program), self.numbers
        found = []
        for index, skip in parts(count, self._at_once(program)):
            chunk = compute(take_rows(rows, index), *numbers)
            found.append(jax.tree.map(lambda a, skip=skip: a[:, skip:], chunk))
        return jax.tree.map(lambda *chunks: jnp.concatenate(chunks, axis=1), *found)

    def left_open(self, program: Program, rows: Rows) -> Float[np.ndarray, "rows columns columns"] | None:
        """Covariances, in each row, of what inducing values leave open; None where there are none of these."""
        if self.program.inner or self.regression is not None or self.weight_space is not None or program.fields:
            return None
        return np.asarray(self._compiled(self._unexplained, program)(rows, *self.numbers), float)

    def blocks(self, program: Program, rows: Rows, count: int) -> list[Block]:
        """Covariances of all latents between rows. Raises GpdslError for too many of these, and for layers."""
        self._refuse_layers()
        compute = self._compiled(self._blocks, program)
        verify_size(jax.eval_shape(compute, rows, *self.numbers), count)
        return jax.tree.map(np.asarray, compute(rows, *self.numbers))

    def functions(
        self, program: Program, rows: Rows, count: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "S n D"]:
        """Draws of all latents at all rows together, through layers. Raises GpdslError for too many rows."""
        parameters, (posterior, inducing) = self.numbers
        return layered_draws(program, rows, parameters, inducing, posterior, self.jitter, count, rng)

    def paths(self, component: np.ndarray, rng: np.random.Generator, seed: int) -> Paths:
        """Whole functions, one from each of these components. Raises GpdslError for kernels that have no such draws."""
        self._refuse_layers()
        fitted, (parameters, numbers), count = self.program, self.numbers, len(component)
        if (held := self.weight_space) is not None:
            drawn = weighted(held, fitted, parameters, count, rng, seed)
            return Paths(partial(weighted_at, held, seed=seed), (parameters, drawn))
        refuse_unsuited(fitted, () if self.regression is not None else self.inducing)
        posterior, read = numbers
        if (data := self.regression) is not None:
            bends = conditioned(data, fitted, parameters, read, posterior, count, rng, seed)
            return Paths(partial(conditioned_at, fitted, data, seed=seed), (parameters, read, posterior, bends))
        functions = bent(fitted, parameters, posterior, read, self.jitter, component, rng, seed)
        return Paths(partial(bent_at, seed=seed), (parameters, read, functions))

    def _refuse_layers(self) -> None:
        """Raise GpdslError where rows are sampled through layers one by one."""
        if self.program.inner:
            names = ", ".join(f"`{name}`" for name in sorted(self.program.inner))
            raise GpdslError(
                f"latents that are functions of {names} have no covariances between rows in closed form, and no drawn "
                "functions that take any rows: `prediction.draws` draws all rows of a prediction together"
            )

    @cached_property
    def numbers(self) -> tuple[Any, Any]:
        """The parameters, and the arrays of the posterior."""
        parameters, inducing = as_arrays((dict(self.parameters), list(self.inducing)), self.dtype)
        if self.weight_space is not None:
            return parameters, as_arrays(self.weight_space.q, self.dtype)
        if self.regression is not None:
            factorised = self.regression.factorised(self.program, parameters, inducing, self.compiled)
            return parameters, (as_arrays(factorised, self.dtype), inducing)
        return parameters, (as_arrays(list(self.posterior), self.dtype), inducing)

    def _compiled(self, function: Callable[..., Any], program: Program) -> Callable[..., Any]:
        key = function.__name__, program
        if key not in self.compiled:
            self.compiled[key] = jit(partial(function, program))
        return self.compiled[key]

    def _at_once(self, program: Program) -> int:
        """Rows whose marginals are computed together, by the memory that a row takes."""
        if self.regression is not None:
            return min(ROWS_AT_ONCE, self.regression.rows_at_once(program))
        if program.inner:
            return max(1, PASSES_AT_ONCE // pass_count(program))
        readings = max((len(group.readings.all) for group in program.groups), default=1)
        common = self.posterior[0].root.shape[-1] if program.coupled else 0
        width = max(readings, program.latents * common // COMMON_AT_ONCE)
        return max(1, ROWS_AT_ONCE // width)

    def _marginals(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Marginals:
        if self.weight_space is not None:
            return self.weight_space.marginals(program, rows, parameters, numbers)
        posterior, inducing = numbers
        if program.inner:
            return layered_marginals(program, rows, parameters, inducing, posterior, self.jitter)
        if self.regression is not None:
            return self.regression.marginals(self.program, program, rows, parameters, inducing, posterior)
        seen = views(program, parameters, inducing, rows, False, self.jitter)
        if program.coupled:
            return joint_marginals(program, parameters, rows, seen, posterior)
        moments = [q.moments(v.features) for v, q in zip(seen, posterior, strict=True)]
        return assemble(program, parameters, rows, seen, moments)

    def _unexplained(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> Array:
        seen = views(program, parameters, numbers[1], rows, False, self.jitter)
        return unexplained(seen, jnp.zeros((row_count(rows), program.latents), jnp.asarray(self.jitter).dtype))

    def _blocks(self, program: Program, rows: Rows, parameters: Mapping[str, Array], numbers: Any) -> list[Block]:
        program = program.without_sums()
        if self.weight_space is not None:
            return self.weight_space.blocks(program, rows, parameters, numbers)
        posterior, inducing = numbers
        if self.regression is not None:
            return self.regression.blocks(self.program, program, rows, parameters, inducing, posterior)
        return whitened_blocks(program, rows, parameters, posterior, inducing, self.jitter)
