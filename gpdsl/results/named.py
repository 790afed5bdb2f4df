"""What the names of a model stand for: arrays [..., rows, *axes] put together from expressions and statements."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from jaxtyping import Array

from gpdsl.data.bound import Standardised
from gpdsl.data.table import free_memory
from gpdsl.errors import GpdslError, quoted
from gpdsl.language import model as m
from gpdsl.language.options import check_option
from gpdsl.program.program import Program
from gpdsl.results.expectation import Beliefs
from gpdsl.symbolic.laws import Law, elements
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import NeedsElements, Position, Translator, axis_key

if TYPE_CHECKING:
    pass


# Draws of outputs that read other outputs: first what is read, at the same drawn latents, then the output itself.

DRAWS = 4096
"""Draws from which means, variances and quantiles are found where no formula is known."""

Values = Callable[[sp.Expr, tuple[str, ...], dict[sp.Symbol, np.ndarray]], np.ndarray]
DrawOne = Callable[[ObservationTerms, Callable[[sp.Expr], np.ndarray]], np.ndarray]


@dataclass(frozen=True, eq=False)
class Ancestral:
    """One set of draws, [count, rows, *axes] of each output.

    `values(expression, keys, given)` evaluates at the drawn latents, where `given` are drawn outputs; `one` draws a
    single statement from its conditional law. Each statement is drawn once, so that all outputs belong together.
    """

    program: Program
    values: Values
    one: DrawOne
    drawn: dict[tuple[str, tuple[Position, ...]], np.ndarray] = field(default_factory=dict)

    def draw(self, o: ObservationTerms) -> np.ndarray:
        """Draws of what one statement observes. Recursion ends: the checker refuses cycles."""
        key = (o.outputs[0], o.positions)
        if key not in self.drawn:
            given = {self._symbol(o, read): self._read(*read, o.axes) for read in o.reads}
            self.drawn[key] = self.one(o, lambda expression: self.values(expression, o.axes, given))
        return self.drawn[key]

    def _symbol(self, o: ObservationTerms, read: tuple[str, tuple[Position, ...]]) -> sp.Symbol:
        references = self.program.translator.references
        for symbol in o.log_density.free_symbols:
            ref = references[symbol]
            if ref.kind == "output" and (ref.name, ref.positions) == read:
                return symbol
        raise KeyError(read)

    def _read(self, name: str, positions: tuple[Position, ...], keys: tuple[str, ...]) -> np.ndarray:
        """Drawn values of what is read, [count, rows, *keys] with axes of length one where it does not vary."""
        values = self._element(name, positions) if self._fixed(positions) else self._whole(name, positions)
        kept = [p for p in positions if isinstance(p, str)]
        order = [kept.index(k) for k in keys if k in kept]
        values = np.transpose(values, (0, 1, *(2 + i for i in order)))
        sizes = iter(values.shape[2:])
        return values.reshape(*values.shape[:2], *(next(sizes) if k in kept else 1 for k in keys))

    @staticmethod
    def _fixed(positions: tuple[Position, ...]) -> bool:
        return all(isinstance(p, int) for p in positions)

    def _element(self, name: str, positions: tuple[Position, ...]) -> np.ndarray:
        """One element, from the one statement that observes it."""
        for o in self.program.observations:
            if o.outputs == (name,) and o.law is not None and o.law.vector:
                return self.draw(o)[picks(positions)]
            pairs = list(zip(o.positions, positions, strict=True)) if o.outputs == (name,) else None
            if pairs is not None and all(isinstance(own, str) or own == at for own, at in pairs):
                return self.draw(o)[picks(tuple(at for own, at in pairs if isinstance(own, str)))]
        raise KeyError(name)

    def _whole(self, name: str, positions: tuple[Position, ...]) -> np.ndarray:
        """All elements along the generic positions."""
        shape = self.program.translator.shape(self.program.declarations.outputs[name].axes)
        full: np.ndarray | None = None
        for o in self.program.observations:
            if o.outputs == (name,):
                values = self.draw(o)
                full = np.full((*values.shape[:2], *shape), np.nan) if full is None else full
                full[picks(o.positions)] = values
        assert full is not None
        return full[picks(positions)]


def picks(positions: tuple[Position, ...]) -> tuple:
    """The index of some elements in [draws, rows, *axes]."""
    return (Ellipsis, *(slice(None) if isinstance(p, str) else p - 1 for p in positions))


# What the names of a model stand for: arrays [..., rows, *axes] put together from expressions and statements.


def names_of(beliefs: Beliefs) -> tuple[str, ...]:
    """Names that can be asked for."""
    d = beliefs.program.declarations
    return (*d.latents, *d.rows, *d.lets, *d.outputs)


def is_output(beliefs: Beliefs, name: str) -> bool:
    """Whether a name is an output and no latent, row variable or let. Raises GpdslError for other names."""
    names = names_of(beliefs)
    if not isinstance(name, str) or name not in names:
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        if isinstance(name, str) and not name.isidentifier():
            hint = f"; name it in the model (`let h = {name}`), or work it out from `draws(name, count)`"
        raise GpdslError(f"the model has no latent, let or output `{name}`{hint}; it has {', '.join(names)}")
    return name in beliefs.program.declarations.outputs


def over_elements(
    translator: Translator,
    axes: tuple[m.Axis, ...],
    pick: Callable[[dict[str, int | str]], sp.Expr],
    compute: Callable[..., Array],
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


def of_quantity(beliefs: Beliefs, name: str, compute: Callable[[sp.Expr, tuple[str, ...]], Any]) -> np.ndarray:
    """`compute(expression, keys)` of a latent, a row variable or a let."""
    translator, declarations = beliefs.program.translator, beliefs.program.declarations
    axes = declarations.axes_of(name)

    def pick(env: dict[str, int | str]) -> sp.Expr:
        positions = tuple(env.get(k, k) for k in map(axis_key, axes))
        if name in declarations.lets:
            return translator.let(name, positions)
        return translator.value(name, positions)

    return np.array(over_elements(translator, axes, pick, compute))


def of_output(beliefs: Beliefs, name: str, compute: Callable[[ObservationTerms, tuple[str, ...]], Any]) -> np.ndarray:
    """`compute(statement, keys)` of the statements that observe an output, put together."""
    pieces = []
    for observation in beliefs.program.observations:
        if name not in observation.outputs:
            continue
        if observation.law is None and observation.formula is None:
            raise GpdslError(
                f"`{name}` is observed through the opaque likelihood `{observation.distribution}`, which can be "
                "evaluated but not predicted from; ask for the latents and lets instead"
            )
        values = np.asarray(compute(observation, observation.axes))
        whole = observation.law is not None and observation.law.vector
        if len(observation.axes) == len(observation.positions) or whole:
            return values
        pieces.append((observation.positions, values))
    shape = beliefs.program.translator.shape(beliefs.program.declarations.outputs[name].axes)
    # Fill [..., rows, *shape] from parts along fixed and free positions; what nothing observes stays NaN.
    free = sum(isinstance(p, str) for p in pieces[0][0])
    lead = pieces[0][1].shape[: pieces[0][1].ndim - free]
    result = np.full((*lead, *shape), np.nan)
    for positions, values in pieces:
        result[picks(positions)] = values
    return result


def check_draws(what: str, count: Any, seed: object, numbers: int = 1) -> int:
    """The seed. Raises GpdslError for what is none or no number of draws, and for more draws than there is room for.

    A draw is so many `numbers`.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise GpdslError(f"{what}: expected a positive number of draws, got {quoted(repr(count))[:60]}")
    found: int = check_option("seed", seed)
    known = min(int(count), 10**100)
    needed, free = 8.0 * known * numbers, free_memory()
    if needed > free:
        raise GpdslError(
            f"{what}: {'more than ' if count > known else ''}{known:.4g} draws take {needed / 2**30:.3g} GiB, and "
            f"{free / 2**30:.3g} GiB are free; ask for fewer draws, or for some of the rows at a time"
        )
    return found


# Of standardised data: the unit of a latent or `let` that is the location of an output is that output's. Nothing tells
# that of any other: of a part of a sum, nobody knows what its zero is.

Positions = tuple[Position, ...]
Affine = tuple[np.ndarray, np.ndarray]
"""What is 0 in the fit, and what 1 is more, in the units of the data; [*axes]."""


def located(program: Program, known: Standardised) -> Standardised:
    """The numbers of a fit, with those of latents and lets that are the location of an output: they are its own."""
    declared = program.declarations
    if not {*known.sds} & {*declared.outputs}:
        return known
    found = {name: _as_location(program, known, name) for name in (*declared.latents, *declared.lets)}
    told = {name: numbers for name, numbers in found.items() if numbers is not None}
    means, sds = ({name: numbers[place] for name, numbers in told.items()} for place in (0, 1))
    return Standardised({**known.means, **means}, {**known.sds, **sds})


def _as_location(program: Program, known: Standardised, name: str) -> Affine | None:
    """The numbers of the outputs that a latent or `let` is the location of, where all of its elements are."""
    translator = program.translator
    shape = translator.shape(translator.declarations.axes_of(name))
    means, sds = np.full(shape, np.nan), np.full(shape, np.nan)
    for o in program.observations:
        output = o.outputs[0]
        if o.law is None or o.warp is not None or len(o.outputs) > 1 or output not in known.sds:
            continue
        for positions, law in _elements(o.positions, o.law):
            if (at := _read_at(translator, name, law, positions)) is None:
                continue
            keys = [p for p in positions if isinstance(p, str)]
            own = [keys.index(p) for p in at if p in keys]
            for whole, numbers in ((means, known.means[output]), (sds, known.sds[output])):
                found = np.moveaxis(numbers[picks(positions)], own, range(len(own)))
                found = found.reshape(*found.shape[: len(own)], -1)
                before = whole[picks(at)]
                if np.ptp(found, axis=-1).any() or not np.all(np.isnan(before) | (before == found[..., 0])):
                    return None
                whole[picks(at)] = found[..., 0]
    return None if np.isnan(means).any() else (means, sds)


def _elements(positions: Positions, law: Law) -> list[tuple[Positions, Law]]:
    """What tells of single elements, with their positions: the law and its components, or that of each of a vector."""
    if law.vector:
        return [((*positions, number), each) for number, each in enumerate(elements(law), start=1)]
    return [(positions, each) for each in (law, *law.components)]


def _read_at(translator: Translator, name: str, law: Law, positions: Positions) -> Positions | None:
    """At which positions a latent or `let` is the mean of a law; None where it is not, or not that alone."""
    mean, axes = law.arguments.get("mean"), translator.declarations.axes_of(name)
    ref = translator.references.get(mean) if isinstance(mean, sp.Symbol) else None
    at = ref.positions if ref is not None and ref.name == name else positions if axes else ()
    if mean is None or len(at) != len(axes) or not {p for p in at if isinstance(p, str)} <= {*positions}:
        return None
    try:
        own = translator.let(name, at) if name in translator.declarations.lets else translator.value(name, at)
    except NeedsElements:  # which the mean is not: it is generic
        return None
    return at if own == mean else None
