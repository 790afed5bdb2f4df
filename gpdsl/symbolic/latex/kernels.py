"""Covariance functions as LaTeX: each by its symbol where it is used, and written out once."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.language import model as m
from gpdsl.symbolic.latex.expressions import Expressions, parenthesised, product
from gpdsl.symbolic.latex.kernel_formulas import Shape, kernel_symbol


class Kernels:
    """Prints the kernels of one latent and remembers which definitions they need."""

    def __init__(self, expressions: Expressions, latent: m.Latent) -> None:
        here = expressions.standing(row=False, own=latent.axes)
        self.first, self.second = here, here.standing(prime=True)
        self.latent = latent
        self.vector = len(latent.arguments) > 1 or any(
            here.reads.declarations.columns_of(name) for name in latent.arguments
        )
        self.shapes: dict[Shape, None] = {}
        self.formulas: dict[str, None] = {}

    def terms(self, kernel: m.Kernel) -> list[str]:
        """The kernel as terms to be added."""
        return [self._text(each) for each in (kernel.terms if isinstance(kernel, m.KernelSum) else (kernel,))]

    def _text(self, kernel: m.Kernel) -> str:
        match kernel:
            case m.KernelScale(factor=factor, kernel=inner):
                if isinstance(factor, m.Number) and factor.value == 1:
                    return self._text(inner)
                return rf"{product([self.first.printed(factor)])}\, {self._factor(inner)}"
            case m.KernelSum(terms=terms):
                return " + ".join(self._text(each) for each in terms)
            case m.KernelProduct(factors=factors):
                return self._power(factors)
            case m.KernelCall():
                return self._call(kernel)
            case m.KernelFormula():
                self.formulas[kernel.name] = None
                return self._applied(kernel_symbol(kernel.name), kernel.on, list(kernel.arguments.values()))
        raise TypeError(f"no LaTeX for {type(kernel).__name__}")

    def _power(self, factors: Sequence[m.Kernel]) -> str:
        shown = [self._factor(each) for each in factors]
        if len(shown) > 1 and len(set(shown)) == 1:
            return f"{shown[0]}^{{{len(shown)}}}"
        return r"\, ".join(shown)

    def _factor(self, kernel: m.Kernel) -> str:
        text = self._text(kernel)
        return parenthesised(text) if isinstance(kernel, m.KernelSum) else text

    def _call(self, call: m.KernelCall) -> str:
        axes = [self.first.reads.declarations.columns_of(name) for name in self.latent.arguments]
        columns = axes[0] if len(axes) == 1 else ()
        own = {axis.name for axis in self.latent.axes}
        vectors = frozenset(
            name
            for name, each in call.arguments.items()
            if any(axis in columns or axis.name not in own for axis in each.axes)
        )
        vector = self.vector if not call.on else len(call.on) > 1 or any(each.axes for each in call.on)
        self.shapes[Shape(call.name, vector, vectors, tuple(call.arguments), len(call.kernels))] = None
        inside = [self._text(each) for each in call.kernels]
        sizes = [r" \times ".join(map(str, each)) for each in call.sizes.values()]
        return self._applied(kernel_symbol(call.name), call.on, list(call.arguments.values()), [*inside, *sizes])

    def _applied(
        self, symbol: str, on: Sequence[m.Expression], arguments: Sequence[m.Expression], inside: Sequence[str] = ()
    ) -> str:
        points = f"{self.point(self.first, on)}, {self.point(self.second, on)}"
        rest = ", ".join([*inside, *(self._argument(each) for each in arguments)])
        return f"{symbol}({points}; {rest})" if rest else f"{symbol}({points})"

    def _argument(self, argument: m.Expression) -> str:
        """A parameter: whole along the columns of the input, one element along the latent's own axes."""
        own = {axis.name for axis in self.latent.axes}
        foreign = [axis for axis in argument.axes if axis.name not in own]
        if foreign and isinstance(argument, m.Read):
            running = {axis.name for axis in foreign}
            below = [
                self.first.reads.subscript(each)
                for each in argument.subscripts
                if isinstance(each, m.Fixed)
                or (not isinstance(each, m.Whole) and getattr(each, "index", "") not in running)
            ]
            return self.first.reads.quantity(argument.name, below, bold=True)
        return self.first.vector(argument) if foreign else self.first.text(argument)

    def point(self, printer: Expressions, on: Sequence[m.Expression]) -> str:
        """One of the two points: the latent's arguments, or what the kernel sees of them."""
        shown = [_column_range(printer, on)] if on and _column_range(printer, on) else []
        shown = shown or [printer.vector(each) for each in on]
        shown = shown or [printer.reads.argument(name) for name in self.latent.arguments]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _column_range(printer: Expressions, on: Sequence[m.Expression]) -> str:
    """`x[1], x[2], x[3]` as one vector of columns 1 to 3, or nothing."""
    columns = [
        (each.name, each.subscripts[0].position)
        for each in on
        if isinstance(each, m.Read) and len(each.subscripts) == 1 and isinstance(each.subscripts[0], m.Fixed)
    ]
    if len(columns) < len(on) or len(on) < 3:
        return ""
    name, start = columns[0]
    if columns != [(name, start + k) for k in range(len(on))]:
        return ""
    return printer.reads.quantity(name, [f"{start}:{start + len(on) - 1}"], bold=True)


def formula_definition(expressions: Expressions, kernel: m.KernelDefinition) -> tuple[str, str]:
    """A kernel by formula: left and right side, with what its distance is."""
    printer = expressions.standing(row=False)
    symbols = expressions.symbols
    vectors = vector_locals(kernel.body)
    shown = [symbols.of(name).render(bold=name in vectors) for name in kernel.arguments]
    parameters = [symbols.of(name).render(bold=name in vectors) for name in kernel.parameters]
    left = f"{kernel_symbol(kernel.name)}({', '.join(shown)}{'; ' if parameters else ''}{', '.join(parameters)})"
    right = printer.text(kernel.body)
    if len(kernel.arguments) == 1:
        right += rf", \quad {shown[0]} = \lVert\mathbf{{x}} - \mathbf{{x}}'\rVert"
    return left, right


def vector_locals(expression: m.Expression) -> set[str]:
    """The arguments of a definition that are read element by element."""
    found = (
        {expression.name} if isinstance(expression, m.Local) and (expression.axes or expression.subscripts) else set()
    )
    for each in m.parts(expression):
        found |= vector_locals(each)
    return found
