"""Whole functions drawn from a fit: called with any rows, again and again, they are always the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float, Int

from gpdsl.data import Data
from gpdsl.errors import GpdslError, quoted
from gpdsl.inference.posteriors.posterior import Paths, Posterior
from gpdsl.inference.problem import as_arrays
from gpdsl.language.calls import NoSuchPlaceError, answering, spoken
from gpdsl.program.cache import jit, precision
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_rows
from gpdsl.results.expectation import Beliefs, values_of
from gpdsl.results.named import check_draws, is_output, located, of_quantity
from gpdsl.results.settings import shared_out
from gpdsl.results.simulations import Simulations
from gpdsl.symbolic.readings import field_quantities

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


class Part(NamedTuple):
    """Some of the draws: those of one setting of the parameters."""

    parameters: Mapping[str, Any]
    paths: Paths
    draws: int


@spoken
@dataclass(frozen=True, eq=False)
class DrawnFunctions(Sequence["DrawnFunction"]):
    """Functions of the posterior: called with rows and a name, all give [draws, rows, *axes] and each [rows, *axes].

    O(N + M) per point and draw, for waves and data or inducing points.
    """

    fit: Fit
    parts: Sequence[Part]
    order: Int[np.ndarray, " draws"]
    """Where among the draws of all parts each of these functions stands."""
    seed: int
    compiled: dict[Program, Callable[..., Array]] = field(default_factory=dict, repr=False)
    seen: list[Data] = field(default_factory=list, repr=False)
    """No rows, with the levels that the fit does not know and calls have had so far: a name keeps its number."""

    def __len__(self) -> int:
        return len(self.order)

    def __reduce__(self) -> tuple[Any, ...]:
        """`pickle` and `copy` take the fit and the levels that calls have had, and draw again."""
        return draw_functions, (self.fit, len(self), self.seed, self.seen)

    def __getitem__(self, number: Any) -> Any:
        try:
            found = range(len(self))[number]
        except (IndexError, TypeError) as problem:
            asked = quoted(repr(number))[:40]
            raise NoSuchPlaceError(
                f"there are {len(self)} functions, 0 to {len(self) - 1}, and none is {asked}; "
                "`functions(data, name)` has the values of all, `functions[0](data, name)` those of one"
            ) from problem
        return [DrawnFunction(self, each) for each in found] if isinstance(found, range) else DrawnFunction(self, found)

    def __repr__(self) -> str:
        return f"<{len(self)} functions drawn from the posterior of {self.fit.program.declarations.name}>"

    @partial(answering, name="functions")
    def __call__(self, data: Any, name: str | None = None) -> Float[np.ndarray, "draws rows *axes"]:
        """Values of a latent, the first by default, or of a let, at rows that need the inputs only."""
        fit = self.fit
        bound = fit.bind(data, None, outputs=False, beside=self.seen[-1] if self.seen else None)
        self.seen[:] = [bound.take(slice(0, 0))]
        asked = next(iter(fit.program.declarations.latents)) if name is None else name
        with precision(fit.options.dtype):
            found = np.concatenate([self._of_part(bound, asked, part) for part in self.parts])[self.order]
            found = located(fit.program, fit.standardised).back(asked, found)
            return found[:, 0] if asked in field_quantities(fit.program.declarations) else found

    def _of_part(self, data: Data, name: str, part: Part) -> Float[np.ndarray, "draws rows *axes"]:
        beliefs = self._beliefs(data, part)
        if is_output(beliefs, name):
            raise GpdslError(f"`{name}` is an output, with noise in every row: ask for latents or lets")
        return of_quantity(beliefs, name, lambda e, keys: self._values(beliefs, e, keys))

    def _beliefs(self, data: Data, part: Part) -> Beliefs:
        """The rows with the values of all latents there, as the means of components: one for each draw."""
        fit, program = self.fit, self.fit.predicting
        rows, parameters = as_arrays(
            (make_rows(program, fit.standardised.applied(data)), dict(part.parameters)), fit.options.dtype
        )
        latents = values_of(part.paths, program, rows, parameters, self._compute(program, part.paths))
        nothing = Marginals(latents, jnp.zeros_like(latents))
        return Beliefs(program, parameters, rows, nothing, np.full(part.draws, 1.0 / part.draws), fit.options.seed)

    def _compute(self, program: Program, paths: Paths) -> Callable[..., Array]:
        """One for all parts: they differ in their numbers alone."""
        if program not in self.compiled:
            plain = program.without_sums()
            self.compiled[program] = jit(lambda rows, *numbers: paths.compute(plain, rows, *numbers))
        return self.compiled[program]

    def _values(self, beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...]) -> Float[Array, "draws rows *keys"]:
        program, latents = beliefs.program, beliefs.marginals.mean
        externals = {}
        if program.uses():
            simulations = Simulations.of(program, beliefs.count, np.inf)
            externals = {k: v[0] for k, v in simulations.evaluate(beliefs, latents[None]).items()}
        value = jnp.asarray(program.evaluator(expression, beliefs.scope(latents, externals), keys))
        axes = value.shape[value.ndim - len(keys) :] if value.ndim >= len(keys) else (1,) * len(keys)
        return jnp.broadcast_to(value, (*latents.shape[:2], *axes))


@dataclass(frozen=True, eq=False)
class DrawnFunction:
    """One of them."""

    every: DrawnFunctions
    number: int

    @partial(answering, name="functions[0]")
    def __call__(self, data: Any, name: str | None = None) -> Float[np.ndarray, "rows *axes"]:
        """Values at rows: see `DrawnFunctions`."""
        return self.every(data, name)[self.number]


def draw_functions(fit: Fit, count: int, seed: int, seen: Sequence[Data] = ()) -> DrawnFunctions:
    """So many functions from the posterior of a fit; `seen` are the levels of calls of theirs before."""
    seed = check_draws("draw_functions", count, seed, 4096 * fit.program.latents)  # of 1024 waves 2 numbers, twice
    if not fit.program.latents:
        raise GpdslError("draw_functions: this model has no latents; `prediction.draws` gives draws of its outputs")
    rng = np.random.default_rng(seed)
    with precision(fit.options.dtype):
        if fit.settings is None:
            parts, order = [_part(fit.at_rows, count, rng, seed)], np.arange(count)
        else:
            numbers, order = shared_out(count, fit.settings.weights, rng)
            every = zip(fit.settings.posteriors(fit.at_rows), numbers, strict=True)
            parts = [_part(own, size, rng, seed) for own, number in every for size in _powers(number)]
        return DrawnFunctions(fit, parts, order, seed, seen=[*seen])


def _part(posterior: Posterior, count: int, rng: np.random.Generator, seed: int) -> Part:
    return Part(posterior.parameters, posterior.drawn_paths(count, rng, seed), count)


def _powers(count: int) -> Iterator[int]:
    """The powers of two that add up to a number: parts of as many draws have one program."""
    return (1 << place for place in range(int(count).bit_length()) if count >> place & 1)
