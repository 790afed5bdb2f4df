"""The equations of a model: priors, Gaussian processes, deterministic quantities and observations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic.dependence import row_quantities, unobserved
from gpdsl.symbolic.latex.expressions import SUM, Expressions, applied, cases, parenthesised
from gpdsl.symbolic.latex.kernels import Kernels, definition, formula_definition, most_general, vector_locals
from gpdsl.symbolic.latex.names import Reads, Symbols, condition, quantified, upright

# Lines of an aligned block of equations, broken where they would run over the margin.

WIDTH, _SLACK = 74, 6
"""Letters that fit on a line, and how many more a formula may take that cannot be broken."""


@dataclass(frozen=True)
class Line:
    """`left relation right`, and what it holds for, at length and in short.

    The right side is in terms, before each of which it may be broken.
    """

    left: str
    relation: str
    right: tuple[str, ...]
    where: str = ""
    short: str = ""

    def rows(self, room: int) -> list[str]:
        """The right side, broken before terms that would not fit."""
        rows = [self.right[0]]
        for term in self.right[1:]:
            if width(f"{rows[-1]} {term}") <= room:
                rows[-1] += f" {term}"
            else:
                rows.append(term)
        return rows

    def text(self, where: str, room: int, *, below: bool) -> str:
        """The line of an `align*` block; `room` is for the right side, `below` puts what it holds for under it."""
        first, *rest = self.rows(room)
        beside = rf" && {where}" if where and not below else ""
        under = [rf"  &\qquad {where}"] if where and below else []
        return " \\\\\n".join(
            [rf"{self.left} &{self.relation} {first}{beside}", *(rf"  &\quad {{}} {r}" for r in rest), *under]
        )


def width(text: str) -> int:
    """About how many letters wide a formula is on paper."""
    text = re.sub(r"\\(left|right|mathrm|mathbf|mathcal|operatorname|boldsymbol|text|quad|bigl|bigr|[,;!])", "", text)
    if r"\begin{cases}" in text:
        inside = re.split(r"\\\\(?:\[14pt\])?|\\(?:begin|end)\{cases\}", text)
        return max(map(width, inside)) + 4
    text = _fractions_flattened(text.replace(r"\dfrac", r"\frac"))
    return len(re.sub(r"[{}^_&\s]", "", re.sub(r"\\[a-zA-Z]+", "x", text)))


def _fractions_flattened(text: str) -> str:
    """Fractions as wide as the wider of their halves, other groups without their braces."""
    text, before = text.replace(r"\frac", "¦"), ""
    while text != before:
        before = text
        # What stands above or below the line is printed smaller.
        text = re.sub(r"[_^]\{([^{}]*)\}", lambda found: found[1][: -(-2 * len(found[1]) // 3)], text)
        text = re.sub(r"(?<![¦}_^])\{([^{}]*)\}", r"\1", text)
        text = re.sub(r"¦\{([^{}]*)\}\{([^{}]*)\}", lambda found: max(found[1], found[2], key=len), text)
    return text


def aligned(lines: Sequence[Line]) -> str:
    """An `align*` block; where the ranges of indices do not fit beside it, it only says which indices are meant."""
    left = max(width(each.left + each.relation) for each in lines)
    right = max(width(" ".join(each.right)) for each in lines)
    wheres = [each.where for each in lines]
    if left + min(right, WIDTH // 2) + max(map(width, wheres)) > WIDTH:
        wheres = [each.short for each in lines]
    room = WIDTH - left - max(map(width, wheres))
    below = max(width(row) for each in lines for row in each.rows(room)) > room + _SLACK
    if below:
        room = WIDTH - left
    shown = (each.text(where, room, below=below) for each, where in zip(lines, wheres, strict=True))
    return "\\begin{align*}\n" + " \\\\\n".join(shown) + "\n\\end{align*}"


def terms(printer: Expressions, expression: m.Expression) -> tuple[str, ...]:
    """The terms of a sum, each with its sign; anything else is one term."""
    match expression:
        case m.Operation(operator="+" | "-" as sign, operands=(left, right)):
            last = printer.printed(right)
            bare = last.level > SUM or (sign == "+" and not last.text.startswith("-"))
            return (*terms(printer, left), f"{sign} {last.text if bare else parenthesised(last.text)}")
    return (printer.text(expression),)


JOINT = frozenset({"MultivariateNormal"})
"""Distributions of a whole vector."""


class Equations:
    """Prints the statements of one model; definitions that the equations use are collected on the way."""

    def __init__(self, declarations: m.Declarations) -> None:
        self.declarations = declarations
        self.symbols = Symbols(declarations)
        self.varying = row_quantities(declarations)
        self.printer = Expressions(self.symbols, Reads(declarations, self.symbols, self.varying))
        self.kernels: list[Kernels] = []
        self.long_kernels: list[Line] = []

    def lines(self) -> list[Line]:
        """Everything random and everything computed, in the order in which a row comes about."""
        d = self.declarations
        return [
            *(self._prior(each) for each in d.params.values() if each.prior is not None),
            *(self._row(each) for each in d.rows.values()),
            *(self._latent(each) for each in d.latents.values()),
            *(self._let(each) for each in d.lets.values()),
            *(self._observation(each) for each in d.observations),
        ]

    def definitions(self) -> list[Line]:
        """Kernels, functions and densities written out; call it after `lines`."""
        d = self.declarations
        shapes = most_general(shape for each in self.kernels for shape in each.shapes)
        pairs = [definition(shape) for shape in shapes]
        pairs += [formula_definition(self.printer, each) for each in d.kernels.values()]
        return [
            *self.long_kernels,
            *(Line(pair[0], "=", _breakable(pair[1])) for pair in pairs),
            *(self._function(each) for each in d.functions.values()),
            *(self._density(each) for each in d.densities.values()),
        ]

    def standing(self, axes: Sequence[m.Axis], *, row: bool = True) -> Expressions:
        """The printer for the right side of a statement with these axes on its left."""
        return self.printer.standing(own=tuple(axes), row=row)

    def _prior(self, param: m.Param) -> Line:
        assert param.prior is not None
        together = {"Dirichlet": 1, "LKJ": 2}.get(param.prior.name, 0)
        vector = together > 0
        axes = param.axes[: len(param.axes) - together]
        left = self.symbols.of(param.name).render([self.symbols.index(axis) for axis in axes], bold=vector)
        right = distribution(self.standing(param.axes, row=False), param.prior)
        return Line(left, r"\sim", (right,), *quantified(self.symbols, axes))

    def _row(self, row: m.Row) -> Line:
        left = self.symbols.of(row.name).render([self.symbols.row, *map(self.symbols.index, row.axes)])
        right = distribution(self.standing(row.axes), row.distribution)
        return Line(left, r"\sim", (right,), *quantified(self.symbols, row.axes, rows=True))

    def _latent(self, latent: m.Latent) -> Line:
        kernels = Kernels(self.printer, latent)
        self.kernels.append(kernels)
        here = self.standing(latent.axes, row=False)
        below = [self.symbols.index(axis) for axis in latent.axes]
        at = ", ".join(here.reads.argument(each) for each in latent.arguments)
        left = f"{self.symbols.of(latent.name).render(below)}({at})"
        mean, parts = here.text(latent.mean), kernels.terms(latent.kernel)
        where = quantified(self.symbols, latent.axes)
        whole = parenthesised(rf"{mean},\; {' + '.join(parts)}")
        if width(left + whole + where[1]) <= WIDTH - 5 or len(parts) == 1:
            return Line(left, r"\sim", (rf"\mathcal{{GP}}{_close(whole)}",), *where)
        points = f"{kernels.point(kernels.first, ())}, {kernels.point(kernels.second, ())}"
        symbol = rf"k^{{{self.symbols.of(latent.name).render()}}}" + (f"_{{{','.join(below)}}}" if below else "")
        right = (parts[0], *(f"+ {each}" for each in parts[1:]))
        self.long_kernels.append(Line(f"{symbol}({points})", "=", right))
        return Line(left, r"\sim", (rf"\mathcal{{GP}}{_close(parenthesised(f'{mean},{chr(92)}; {symbol}'))}",), *where)

    def _let(self, let: m.Let) -> Line:
        rows = let.name in self.varying
        printer = self.standing(let.axes)
        below = [self.symbols.index(axis) for axis in let.axes]
        left = printer.reads.quantity(let.name, below)
        if len(let.cases) == 1 and all(guard.operator == "all" for guard in let.cases[0].guards):
            right = terms(printer, let.cases[0].body)
            return Line(left, "=", right, *quantified(self.symbols, let.axes, rows=rows))
        shown = [(printer.text(case.body), self._guards(let, case)) for case in let.cases]
        return Line(left, "=", (cases(shown),), *quantified(self.symbols, let.axes, rows=rows))

    def _guards(self, let: m.Let, case: m.Case) -> str:
        pairs = zip(let.axes, case.guards, strict=True)
        told = [condition(self.symbols, axis, guard) for axis, guard in pairs if guard.operator != "all"]
        return r",\; ".join(told) or r"\text{otherwise}"

    def _observation(self, observation: m.Observation) -> Line:
        call = observation.distribution
        joint = call.external or call.name in JOINT or len(observation.outputs) > 1
        axes = () if joint else observation.axes
        printer = self.standing(observation.axes)
        given = self._given(printer, call)
        left = self._left(printer, observation, joint=joint)
        right = distribution(printer, call)
        where = quantified(self.symbols, axes, () if joint else observation.guards, rows=True)
        return Line(rf"{left}{given}", r"\sim", (right,), *where)

    def _left(self, printer: Expressions, observation: m.Observation, *, joint: bool) -> str:
        if observation.transform is not None:
            return printer.text(observation.transform, SUM + 1)
        if joint:
            axes = self.declarations.axes_of
            shown = [printer.reads.quantity(name, bold=bool(axes(name))) for name in observation.outputs]
            return ", ".join(shown)
        (name,) = observation.outputs
        below = [printer.reads.subscript(each) for each in observation.subscripts]
        below = below or [self.symbols.index(axis) for axis in self.declarations.axes_of(name)]
        return printer.reads.quantity(name, below)

    def _given(self, printer: Expressions, call: m.DistributionCall) -> str:
        """The bar and what stands behind it: latents and row variables by name, other outputs as they are read."""
        d = self.declarations
        outputs = [read for read in call.reads() if read.name in d.outputs]
        shown = [printer.reads.read(each) for each in outputs]
        shown += [self.symbols.of(name).render(bold=bool(d.axes_of(name))) for name in unobserved(d, call)]
        return rf" \mid {', '.join(dict.fromkeys(shown))}" if shown else ""

    def _signature(self, names: Sequence[str], parameters: Sequence[str], body: m.Expression) -> str:
        bold = vector_locals(body)
        groups = (", ".join(self.symbols.of(n).render(bold=n in bold) for n in each) for each in (names, parameters))
        return "; ".join(each for each in groups if each)

    def _function(self, function: m.Function) -> Line:
        name = self.symbols.of(function.name).render()
        left = f"{name}({self._signature(function.arguments, function.parameters, function.body)})"
        return Line(left, "=", terms(self.printer, function.body))

    def _density(self, density: m.Density) -> Line:
        observed = self.symbols.of(density.observed).render()
        given = self._signature(density.arguments, density.parameters, density.body)
        left = rf"\log {upright(density.name)}({observed}{rf' {chr(92)}mid {given}' if given else ''})"
        return Line(left, "=", terms(self.printer, density.body))


def _breakable(formula: str) -> tuple[str, ...]:
    """A formula and what its letters mean, which may go on the next line."""
    first, *rest = formula.split(r", \quad ")
    return (f"{first}," if rest else first, *(rf"\quad {each}" for each in rest))


def _close(brackets: str) -> str:
    return f"\\!{brackets}" if brackets.startswith(r"\left") else brackets


# Distributions, in the parametrisation papers use.


_Printer = Callable[[Expressions, m.DistributionCall], str]


def squared(expression: m.Expression) -> m.Expression:
    """The square of an expression; of `0.1` it is `0.01`, of `sqrt(v)` `v`, of `exp(g / 2)` `exp(g)`."""
    span, axes = expression.span, expression.axes
    two = m.Number(span, (), 2)
    match expression:
        case m.Number(value=value) if abs(value) < 1e6:
            return m.Number(span, axes, float(f"{value * value:.10g}"))
        case m.Operation(operator="sqrt", operands=(inner,)):
            return inner
        case m.Operation(operator="exp", operands=(inner,)):
            return m.Operation(span, axes, "exp", (_doubled(inner, two),))
    return m.Operation(span, axes, "^", (expression, two))


def _doubled(expression: m.Expression, two: m.Number) -> m.Expression:
    match expression:
        case m.Operation(operator="/", operands=(inner, m.Number(value=2))):
            return inner
        case m.Operation(operator="*", operands=(m.Number(value=0.5), inner)):
            return inner
    return m.Operation(expression.span, expression.axes, "*", (two, expression))


def _normal(printer: Expressions, call: m.DistributionCall) -> str:
    name = r"\mathcal{N}" if call.name == "Normal" else upright(call.name)
    return applied(name, rf"{printer.text(call.arguments['mean'])},\; {printer.text(squared(call.arguments['sd']))}")


def _student(printer: Expressions, call: m.DistributionCall) -> str:
    df, mean, scale = (printer.text(call.arguments[each]) for each in ("df", "mean", "scale"))
    return applied(rf"\mathrm{{St}}_{{{df}}}", rf"{mean},\; {scale}")


def _plain(printer: Expressions, call: m.DistributionCall) -> str:
    """A distribution by its name, arguments in their declared order; a probability through the link that they name."""
    links, entry = {"logit": r"\operatorname{sigmoid}", "probit": r"\Phi"}, DISTRIBUTIONS.get(call.name)
    shown = [
        applied(links[name], printer.text(each)) if name in links else printer.text(each)
        for name, each in call.arguments.items()
    ]
    return applied(upright(entry.latex if entry and entry.latex else call.name), r",\; ".join(shown))


def _categorical(printer: Expressions, call: m.DistributionCall) -> str:
    (name, argument) = next(iter(call.arguments.items()))
    if name != "logits":
        return applied(r"\mathrm{Categorical}", printer.vector(argument))
    if isinstance(argument, m.Read) and printer.reads.is_whole(argument):
        return applied(r"\mathrm{Categorical}", applied(r"\operatorname{softmax}", printer.vector(argument)))
    label = printer.symbols.index(argument.axes[-1]) if argument.axes else ""
    softmax = applied(rf"\operatorname{{softmax}}_{{{label}}}", printer.text(argument))
    return applied(r"\mathrm{Categorical}", softmax)


def _ordinal(printer: Expressions, call: m.DistributionCall) -> str:
    link = "probit" if "probit" in call.arguments else "logit"
    word = r"\Phi" if link == "probit" else r"\operatorname{sigmoid}"
    cutpoints = printer.vector(call.arguments["cutpoints"])
    return applied(rf"\mathrm{{Ordinal}}_{{{word}}}", rf"{printer.text(call.arguments[link])};\; {cutpoints}")


def _multivariate(printer: Expressions, call: m.DistributionCall) -> str:
    arguments = {name: printer.vector(each) for name, each in call.arguments.items()}
    covariance = arguments.get("covariance")
    if covariance is None:
        factor = arguments.get("factor", "")
        covariance = rf"{factor}\, {factor}^\top"
        if "sd" in arguments:
            covariance += rf" + \operatorname{{diag}}({arguments['sd']})^2"
    return applied(r"\mathcal{N}", rf"{arguments['mean']},\; {covariance}")


def _mixture(printer: Expressions, call: m.DistributionCall) -> str:
    weight = next(iter(call.arguments.values()))
    parts = [distribution(printer, each) for each in call.components]
    if len(parts) == 2 and not weight.axes:
        first = printer.printed(weight)
        return rf"{first.at_least(2)}\, {parts[0]} + (1 - {printer.text(weight, 1)})\, {parts[1]}"
    vector = printer.vector(weight)
    return rf"\mathrm{{Mixture}}({', '.join([vector, *parts])})"


def _bounded(printer: Expressions, call: m.DistributionCall) -> str:
    """A truncated or censored distribution, its bounds as an interval."""
    lower = printer.text(call.arguments["lower"]) if "lower" in call.arguments else r"-\infty"
    upper = printer.text(call.arguments["upper"]) if "upper" in call.arguments else r"\infty"
    inside = distribution(printer, call.components[0])
    return rf"\mathrm{{{call.name}}}_{{[{lower},\, {upper}]}}\bigl({inside}\bigr)"


_TABLE: Mapping[str, _Printer] = MappingProxyType(
    {
        "Normal": _normal,
        "LogNormal": _normal,
        "StudentT": _student,
        "Categorical": _categorical,
        "Ordinal": _ordinal,
        "MultivariateNormal": _multivariate,
        "Mixture": _mixture,
        "Truncated": _bounded,
        "Censored": _bounded,
    }
)
"""Distributions with a form of their own; the others are printed by name."""


def distribution(printer: Expressions, call: m.DistributionCall) -> str:
    """A distribution with its arguments."""
    if call.external:
        return applied(upright(call.name), ", ".join(printer.vector(each) for each in call.arguments.values()))
    return _TABLE.get(call.name, _plain)(printer, call)
