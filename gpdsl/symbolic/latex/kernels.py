"""Covariance functions as LaTeX: each by its symbol where it is used, and written out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gpdsl.language import model as m
from gpdsl.symbolic.latex.expressions import Expressions, parenthesised, product
from gpdsl.symbolic.latex.names import escaped, symbol_of, upright

# The covariance functions of the table written out as LaTeX. Formulas follow `kernels.covariance`.

_SHORT = MappingProxyType({"Matern12": "Mat1/2", "Matern32": "Mat3/2", "Matern52": "Mat5/2"})


@dataclass(frozen=True)
class Shape:
    """What decides how a kernel is written out: its name, whether points and which parameters are vectors,
    and how many kernels it is made of."""

    name: str
    vector: bool
    vectors: frozenset[str]
    parameters: tuple[str, ...]
    kernels: int = 0


@dataclass(frozen=True)
class Points:
    """The pieces of a formula over two points: `x` and `z` scalars or vectors, length-scales one or several."""

    vector: bool
    shape: Shape

    def parameter(self, name: str) -> str:
        """The symbol of a parameter in the definition."""
        return parameter_symbol(name, name in self.shape.vectors)

    def element(self, name: str) -> str:
        """A parameter inside a sum over columns."""
        return parameter_symbol(name, False) + ("_d" if name in self.shape.vectors else "")

    @property
    def first(self) -> str:
        """The first point."""
        return r"\mathbf{x}" if self.vector else "x"

    @property
    def second(self) -> str:
        """The second point."""
        return f"{self.first}'"

    @property
    def squared(self) -> str:
        """r squared: the squared distance in units of the length-scale."""
        if self.vector and "ell" in self.shape.vectors:
            return r"\sum_{d} \frac{(x_d - x_d')^2}{\ell_d^2}"
        return rf"\frac{{{self.above}}}{{\ell^2}}"

    @property
    def above(self) -> str:
        """The squared distance itself."""
        return r"\lVert\mathbf{x} - \mathbf{x}'\rVert^2" if self.vector else "(x - x')^2"

    @property
    def inner(self) -> str:
        """The inner product in units of the length-scale."""
        if not self.vector:
            return r"\frac{x\, x'}{\ell^2}"
        if "ell" in self.shape.vectors:
            return r"\sum_{d} \frac{x_d\, x_d'}{\ell_d^2}"
        return r"\frac{\mathbf{x}^\top \mathbf{x}'}{\ell^2}"

    @property
    def equal(self) -> str:
        """The condition that the points are the same."""
        return r"\mathbf{x} = \mathbf{x}'" if self.vector else "x = x'"


def _rbf(p: Points) -> str:
    if p.vector and "ell" in p.shape.vectors:
        return rf"\exp\!\left(-\frac{{1}}{{2}} {p.squared}\right)"
    return rf"\exp\!\left(-\frac{{{p.above}}}{{2\ell^2}}\right)"


def _periodic(p: Points) -> str:
    if not p.vector:
        sine = rf"\sin^2\!\left(\frac{{\pi (x - x')}}{{{p.parameter('period')}}}\right)"
        return rf"\exp\!\left(-\frac{{2}}{{\ell^2}} {sine}\right)"
    sine = rf"\sin^2\!\left(\frac{{\pi (x_d - x_d')}}{{{p.element('period')}}}\right)"
    return rf"\exp\!\left(-2 \sum_{{d}} \frac{{1}}{{{p.element('ell')}^2}} {sine}\right)"


def _cosine(p: Points) -> str:
    difference = rf"\sum_{{d}} \frac{{x_d - x_d'}}{{{p.element('period')}}}" if p.vector else ""
    inside = rf"2\pi {difference}" if p.vector else rf"\frac{{2\pi (x - x')}}{{{p.parameter('period')}}}"
    return rf"\cos\!\left({inside}\right)"


def _arc_cosine(p: Points) -> str:
    x, z, weight = p.first, p.second, p.element("weight")
    columns = rf"\sum_{{d}} {weight}\, x_d\, x_d'" if p.vector else rf"{weight}\, x\, x'"
    return (
        rf"\frac{{1}}{{\pi}}\, \lVert {x}\rVert^n\, \lVert {z}\rVert^n\, J_n(\theta), "
        rf"\quad \langle {x}, {z} \rangle = {columns} + b,\; \lVert {x}\rVert^2 = \langle {x}, {x} \rangle, "
        rf"\quad \cos\theta = \frac{{\langle {x}, {z} \rangle}}{{\lVert {x}\rVert\, \lVert {z}\rVert}}, "
        r"\quad J_0 = \pi - \theta,\; J_1 = \sin\theta + (\pi - \theta) \cos\theta, "
        r"\quad J_2 = 3 \sin\theta \cos\theta + (\pi - \theta)(1 + 2\cos^2\theta)"
    )


def _spectral_mixture(p: Points) -> str:
    d = "d" if p.vector else ""
    x, comma = (r"(x_d - x_d')", r"\prod_{d} ") if p.vector else ("(x - x')", "")
    return rf"\sum_{{q}} w_q {comma}\exp\bigl(-2\pi^2 s_{{q{d}}}^2 {x}^2\bigr) \cos\bigl(2\pi\, m_{{q{d}}} {x}\bigr)"


def _change_point(p: Points) -> str:
    points = f"({p.first}, {p.second})"
    before = rf"\bigl(1 - s(x)\bigr)\bigl(1 - s(x')\bigr)\, k_1{points}"
    sigmoid = r"s(x) = \operatorname{sigmoid}\!\left(\frac{x - c}{w}\right)"
    return rf"{before} + s(x)\, s(x')\, k_2{points}, \quad {sigmoid}"


def _coregion(p: Points) -> str:
    below = f"{p.first} {p.second}"
    return rf"\bigl(\mathbf{{W}} \mathbf{{W}}^\top + \operatorname{{diag}}(\boldsymbol{{\kappa}})\bigr)_{{{below}}}"


def _patch(p: Points) -> str:
    x, z = p.first, p.second
    weighted = r"w_i w_j\, " if "weights" in p.shape.parameters else ""
    return (
        rf"\frac{{1}}{{P^2}} \sum_{{i=1}}^{{P}} \sum_{{j=1}}^{{P}} {weighted}k_1\bigl({x}^{{[i]}}, {z}^{{[j]}}\bigr), "
        rf"\quad {x}^{{[1]}}, \dots, {x}^{{[P]}} \text{{ the patches of }} {x}"
    )


def _in_distance(formula: str) -> Callable[[Points], str]:
    return lambda p: rf"{formula}, \quad r^2 = {p.squared}"


FORMULAS: Mapping[str, Callable[[Points], str]] = MappingProxyType(
    {
        "RBF": _rbf,
        "Matern12": _in_distance(r"e^{-r}"),
        "Matern32": _in_distance(r"\bigl(1 + \sqrt{3}\, r\bigr)\, e^{-\sqrt{3}\, r}"),
        "Matern52": _in_distance(r"\bigl(1 + \sqrt{5}\, r + \tfrac{5}{3} r^2\bigr)\, e^{-\sqrt{5}\, r}"),
        "RationalQuadratic": _in_distance(r"\left(1 + \frac{r^2}{2\alpha}\right)^{-\alpha}"),
        "Periodic": _periodic,
        "Cosine": _cosine,
        "Linear": lambda p: p.inner,
        "Polynomial": lambda p: rf"\left({p.parameter('offset')} + {p.inner}\right)^{{{p.parameter('degree')}}}",
        "ArcCosine": _arc_cosine,
        "SpectralMixture": _spectral_mixture,
        "Coregion": _coregion,
        "ChangePoint": _change_point,
        "Patch": _patch,
        "Constant": lambda p: "1",
        "Same": lambda p: rf"\begin{{cases}} 1 & {p.equal} \\ 0 & \text{{otherwise}} \end{{cases}}",
        "White": lambda p: rf"\begin{{cases}} 1 & {p.equal} \\ 0 & \text{{otherwise}} \end{{cases}}",
    }
)
"""The kernels of the table, written out. Formulas follow `kernels.covariance`; r is in units of the length-scale."""

_LETTERS: Mapping[str, str] = MappingProxyType(
    {"period": "T", "degree": "q", "offset": "c", "order": "n", "weight": "w", "bias": "b"}
    | {"weights": "w", "means": "m", "sds": "s", "at": "c", "width": "w"}
)


def parameter_symbol(name: str, vector: bool) -> str:
    """The letter of a kernel's parameter in the kernel's own definition."""
    return symbol_of(_LETTERS.get(name, name)).render(bold=vector)


def kernel_symbol(name: str) -> str:
    """The symbol of a kernel family or of a kernel by formula."""
    return rf"k_{{\mathrm{{{escaped(_SHORT.get(name, name))}}}}}" if name.isascii() else rf"k_{{{upright(name)}}}"


def most_general(shapes: Iterable[Shape]) -> list[Shape]:
    """One shape of each kernel: the one whose formula the others follow from, with all columns and length-scales."""
    chosen: dict[str, Shape] = {}
    for shape in shapes:
        best = chosen.get(shape.name)
        if best is None or (shape.vector, len(shape.vectors)) > (best.vector, len(best.vectors)):
            chosen[shape.name] = shape
    return list(chosen.values())


def definition(shape: Shape) -> tuple[str, str]:
    """A kernel of the table written out: left and right side."""
    points = Points(shape.vector, shape)
    names = [f"k_{k}" for k in range(1, shape.kernels + 1)]
    names += [parameter_symbol(each, each in shape.vectors) for each in shape.parameters]
    left = f"{kernel_symbol(shape.name)}({points.first}, {points.second}{'; ' if names else ''}{', '.join(names)})"
    return left, FORMULAS[shape.name](points)


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
    if kernel.levels:  # at either point, or beside the distance
        levels = [symbols.of(name).render() for name in kernel.levels]
        pairs = [f"({point}, {level})" for point, level in zip(shown, levels, strict=False)]
        shown = pairs if len(shown) == 2 else [*shown, *levels]
    left = f"{kernel_symbol(kernel.name)}({', '.join(shown)}{'; ' if parameters else ''}{', '.join(parameters)})"
    right = printer.text(kernel.body)
    if len(kernel.arguments) == 1:
        right += rf", \quad {shown[0]} = \lVert\mathbf{{x}} - \mathbf{{x}}'\rVert"
    return left, right


def vector_locals(expression: m.Expression) -> set[str]:
    """The arguments of a definition that are read element by element."""
    local = (each for each in m.every_part(expression) if isinstance(each, m.Local))
    return {each.name for each in local if each.axes or each.subscripts}
