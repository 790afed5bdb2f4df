"""What an expression reads, as LaTeX: subscripts for rows and axes, latents at their inputs, vectors in bold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpdsl.language import model as m
from gpdsl.symbolic.latex.names import Symbols


@dataclass(frozen=True)
class Reads:
    """Prints what stands in one place.

    `varying`: the quantities that differ between rows. `row`: they carry the letter of the row; without it inputs are
    the arguments of a Gaussian process. `prime`: inputs are the second point of a kernel. `hidden`: components along
    axes are not written, for a vector. `own`: the axes of the left side; bare sizes stand for the named ones. `summed`:
    axes bound by a sum.
    """

    declarations: m.Declarations
    symbols: Symbols
    varying: frozenset[str]
    row: bool = True
    prime: bool = False
    hidden: bool = False
    own: tuple[m.Axis, ...] = ()
    summed: tuple[m.Axis, ...] = field(default=())

    def summing(self, axis: m.Axis) -> Reads:
        """The same place inside a sum over an axis."""
        return replace(self, summed=(*self.summed, axis))

    def arity(self, function: str, given: int) -> int:
        """How many of the arguments stand before the semicolon."""
        declared = self.declarations.functions.get(function)
        return len(declared.arguments) if declared is not None else given

    def position(self, axis: m.Axis) -> str:
        """What runs along an axis here; nothing when a vector is meant."""
        if self.hidden:
            return ""
        if axis.name is None and axis not in self.summed:
            same = next((each for each in self.own if each.name is not None and m.same_axis(each, axis)), axis)
            return self.symbols.index(same)
        return self.symbols.index(axis)

    def is_free(self, expression: m.Expression) -> bool:
        """Whether an expression is a whole array here: nothing on the left or outside runs along one of its axes."""
        return any(not any(m.same_axis(axis, each) for each in (*self.own, *self.summed)) for axis in expression.axes)

    def subscript(self, subscript: m.Subscript) -> str:
        """One subscript: `p`, `p-1`, `2`."""
        match subscript:
            case m.Fixed(position=position):
                return str(position)
            case m.Whole(axis=axis):
                return self.position(axis)
            case m.Slice(axis=axis, start=start):
                running = self.position(axis)
                last = str(start + axis.size - 1) if axis.size is not None else self.symbols.size(axis)
                return (f"{running}+{start - 1}" if start > 1 else running) if running else f"{start}:{last}"
            case m.IndexValue(index=index, offset=offset):
                shift = f"{offset:+d}" if offset else ""
                return f"{self.symbols.of(index).render()}{shift}"
            case m.Level(name=name):
                return self.symbols.of(name).render()
            case m.At(input=label):
                return self.symbols.of(label).render([self.symbols.row] if self.row else [])
        raise TypeError(subscript)

    def is_whole(self, read: m.Read) -> bool:
        """Whether every element is read, each at its own place (`depth` for `depth[layer]`), or a range of them."""
        pairs = zip(read.subscripts, self.declarations.axes_of(read.name), strict=False)
        if any(isinstance(each, m.At) for each in read.subscripts):
            return False
        return any(not isinstance(each, m.Fixed) for each in read.subscripts) and all(
            each == m.IndexValue(axis.name or "") if isinstance(each, m.IndexValue) else True for each, axis in pairs
        )

    def read(self, read: m.Read, *, whole: bool = False) -> str:
        """A value read; `whole` for all elements at once, in bold."""
        here = replace(self, hidden=True) if whole else self
        latent = self.declarations.latents.get(read.name)
        own = len(read.subscripts) - (0 if latent is None else len(latent.levels))
        below, levels = here._shown(read.subscripts[:own], whole), here._shown(read.subscripts[own:], whole)
        bold = whole and any(not isinstance(each, m.Fixed) for each in read.subscripts)
        functional = read.functional
        if levels and latent is not None and len(levels) == len(latent.levels):
            functional = replace(functional, at=latent.at_levels(functional.at, tuple(levels)))
        elif latent is not None and latent.levels:  # all of them: a vector, and no argument
            functional = replace(functional, at=latent.at_levels(functional.at, ("",) * len(latent.levels)))
        return self.quantity(read.name, below, bold=bold, functional=functional)

    def _shown(self, subscripts: Sequence[m.Subscript], whole: bool) -> list[str]:
        """Subscripts as they are written; of a whole only those that choose."""
        kept = [each for each in subscripts if not whole or isinstance(each, m.Fixed | m.Slice | m.At)]
        return [text for each in kept if (text := self.subscript(each))]

    def quantity(
        self, name: str, below: Sequence[str] = (), *, bold: bool = False, functional: m.Functional = m.VALUE
    ) -> str:
        """A quantity with these subscripts: of this row when it differs between rows, a latent at its inputs."""
        symbol = self.symbols.of(name)
        latent = self.declarations.latents.get(name)
        if latent is not None and latent.over is not None and len(below) > len(latent.axes):
            at = ", ".join(self.point(each, below[-1]) for each in latent.arguments)
            return f"{symbol.render(below[:-1])}({at})"
        if latent is not None and latent.over is None and self.row:
            return self._latent(name, symbol.render(below, bold=bold), functional)
        prime = self.prime and (name in self.varying or name in self.declarations.indices)
        row = [self.symbols.row] if self.row and name in self.varying else []
        return symbol.render([*row, *below], bold=bold, prime=prime)

    def _latent(self, name: str, shown: str, functional: m.Functional) -> str:
        latent = self.declarations.latents[name]
        if functional.integrated:
            low, high = (each if m.is_number(each) else self.argument(each) for each in functional.at)
            over = self.symbols.of(latent.arguments[0]).render([])
            return rf"\int_{{{low}}}^{{{high}}} {shown}({over})\, \mathrm{{d}}{over}"
        inputs = functional.at or latent.arguments
        pairs = zip(inputs, latent.arguments, strict=True)
        levels = {axis.name for axis in latent.levels}
        shown_at = [each if own in levels and each != own else self.argument(each) for each, own in pairs]
        at = f"({', '.join(filter(None, shown_at))})"
        if not functional.derivative:
            return f"{shown}{at}"
        return self._derivative(latent, shown, functional.derivative, at)

    def _derivative(self, latent: m.Latent, shown: str, along: Sequence[m.Direction], at: str) -> str:
        order = f"^{len(along)}" if len(along) > 1 else ""
        below = r"\, ".join(rf"\partial {self._column(latent, each)}" for each in along)
        return rf"\frac{{\partial{order} {shown}}}{{{below}}}{at}"

    def _column(self, latent: m.Latent, direction: m.Direction) -> str:
        name = latent.arguments[direction.argument]
        along = direction.column
        shown = str(along) if isinstance(along, int) else self.subscript(along)
        column = [shown] if self.declarations.axes_of(name) else []
        return self.symbols.of(name).render(column)

    def argument(self, name: str) -> str:
        """An argument of a latent, whole: a vector in bold, another latent at its own inputs, a point of a field."""
        if name in self.declarations.consts:
            index = self.symbols.index(self.declarations.consts[name].axes[0])
            return self.point(name, f"{index}'" if self.prime else index)
        return self.quantity(name, bold=bool(self.declarations.axes_of(name)))

    def point(self, name: str, place: str) -> str:
        """One of the points of a field."""
        return self.symbols.of(name).render([place], bold=bool(self.declarations.columns_of(name)))

    def local(self, name: str, subscripts: Sequence[m.Subscript], axes: Sequence[m.Axis]) -> str:
        """An argument inside a definition."""
        below = [text for each in subscripts if (text := self.subscript(each))]
        return self.symbols.of(name).render(below or [self.position(axis) for axis in axes])
