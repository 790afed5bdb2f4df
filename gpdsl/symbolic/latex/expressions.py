"""Checked expressions → LaTeX, with the fewest parentheses that keep the meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gpdsl.language import model as m
from gpdsl.symbolic.latex.names import Reads, Symbols, escaped, upright

SUM, TAIL, PRODUCT, POWER, ATOM = range(5)
"""How tightly a printed formula holds together; TAIL is a sum over an index, which takes all that follows it."""

_NAMED_POWERS = {name: rf"\{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    _NAMED_POWERS
    | {"exp": r"\exp", "log": r"\log", "Phi": r"\Phi", "min": r"\min", "max": r"\max", "lgamma": r"\log\Gamma"}
    | {"asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan", "probit": r"\Phi^{-1}"}
    | {"log2": r"\log_2", "log10": r"\log_{10}"}
)
_RELATIONS = {"<": "<", "<=": r"\le", ">": ">", ">=": r"\ge", "==": "=", "!=": r"\ne"}


@dataclass(frozen=True)
class Printed:
    """LaTeX, how tightly it holds, and its sign taken out in front of it."""

    text: str
    level: int = ATOM

    def at_least(self, level: int) -> str:
        """The text, in parentheses when it holds less tightly than `level`."""
        return self.text if self.level >= level else parenthesised(self.text)


def is_tall(text: str) -> bool:
    """Whether a formula stands higher than a line, so that brackets have to grow with it."""
    return any(each in text for each in (r"\frac", r"\sum", r"\prod", r"\begin", r"\left", r"\int"))


def parenthesised(text: str, left: str = "(", right: str = ")") -> str:
    """The text in brackets of the right height."""
    return rf"\left{left}{text}\right{right}" if is_tall(text) else f"{left}{text}{right}"


def applied(function: str, text: str) -> str:
    """A function of an argument; `\\left(` would otherwise stand apart from the function's name."""
    brackets = parenthesised(text)
    return f"{function}\\!{brackets}" if brackets.startswith(r"\left") else f"{function}{brackets}"


class Expressions:
    """Prints the expressions of one model; `reads` says how what they read is written where they stand."""

    def __init__(self, symbols: Symbols, reads: Reads) -> None:
        self.symbols = symbols
        self.reads = reads

    def standing(self, **where: object) -> Expressions:
        """The same printer in another place: `row`, `prime`, as in `Reads`."""
        return Expressions(self.symbols, replace(self.reads, **where))  # type: ignore[arg-type]

    def text(self, expression: m.Expression, level: int = SUM) -> str:
        """The expression, in parentheses when it holds less tightly than `level`."""
        return self.printed(expression).at_least(level)

    def printed(self, expression: m.Expression) -> Printed:
        """The expression and how tightly it holds."""
        match expression:
            case m.Number(value=value):
                return number(value)
            case m.IndexNumber(index=index):
                return Printed(self.symbols.of(index).render())
            case m.Read():
                return Printed(self.reads.read(expression))
            case m.Local(name=name, subscripts=subscripts):
                return Printed(self.reads.local(name, subscripts, expression.axes))
            case m.Operation():
                return self._operation(expression)
            case m.Reduction():
                return self._reduction(expression)
            case m.FunctionCall():
                function = self.symbols.of(expression.function).render()
                return Printed(applied(function, self.arguments(expression.function, expression.arguments)))
            case m.ExternalCall():
                return Printed(self._external(expression))
        raise TypeError(f"no LaTeX for {type(expression).__name__}")

    def _operation(self, operation: m.Operation) -> Printed:
        operands, name = operation.operands, operation.operator
        match name:
            case "+" | "-":
                return self._sum(name, *operands)
            case "*" | "/" | "neg":
                return self._product(operation)
            case "^":
                return self._power(*operands)
            case "if":
                return Printed(self._cases(operation))
            case "and" | "or" | "not":
                shown = [self._proposition(each) for each in operands]
                return Printed(
                    rf"\text{{not }} {shown[0]}" if name == "not" else rf"\text{{ {name} }}".join(shown), SUM
                )
            case "sqrt":
                return Printed(rf"\sqrt{{{self.text(operands[0])}}}")
            case "abs":
                return Printed(parenthesised(self.text(operands[0]), r"\lvert ", r"\rvert"))
            case "floor":
                return Printed(parenthesised(self.text(operands[0]), r"\lfloor ", r"\rfloor"))
            case "pow":
                return self._power(*operands)
            case "log1p":
                return Printed(applied(r"\log", f"1 + {self.text(operands[0], TAIL)}"))
            case "expm1":
                return Printed(f"{applied(_FUNCTIONS['exp'], self.text(operands[0]))} - 1", SUM)
        if name in _RELATIONS:
            return Printed(f" {_RELATIONS[name]} ".join(self.text(each) for each in operands), SUM)
        function = _FUNCTIONS.get(name, rf"\operatorname{{{escaped(name)}}}")
        return Printed(applied(function, ", ".join(self.text(each) for each in operands)))

    def _sum(self, sign: str, left: m.Expression, right: m.Expression) -> Printed:
        first, second = self.printed(left), self.printed(right)
        # What comes after a minus keeps its parentheses, and so does a sum that starts with a sign of its own.
        bare = second.level > SUM or (sign == "+" and not second.text.startswith("-"))
        shown = second.text if bare else parenthesised(second.text)
        return Printed(f"{first.text} {sign} {shown}", SUM)

    def _product(self, operation: m.Operation) -> Printed:
        sign, factors = self._factors(operation)
        return Printed(f"-{product(factors)}", SUM) if sign else Printed(product(factors), PRODUCT)

    def _factors(self, expression: m.Expression) -> tuple[bool, list[Printed]]:
        """A chain of products and quotients as factors in order, and whether its sign is negative."""
        match expression:
            case m.Operation(operator="neg", operands=(inner,)):
                sign, factors = self._factors(inner)
                return (True, factors) if not sign else (True, [Printed(parenthesised(f"-{product(factors)}"))])
            case m.Operation(operator="*", operands=(left, right)):
                sign, factors = self._factors(left)
                negative, more = self._factors(right)
                return sign, [*factors, *([Printed(f"-{product(more)}", SUM)] if negative else more)]
            case m.Operation(operator="/", operands=(left, right)):
                sign, factors = self._factors(left)
                above = factors[0].text if len(factors) == 1 else product(factors)
                return sign, [Printed(rf"\frac{{{above}}}{{{self.text(right)}}}")]
        return False, [self.printed(expression)]

    def _power(self, base: m.Expression, exponent: m.Expression) -> Printed:
        above = self._exponent(exponent)
        if isinstance(base, m.Operation) and base.operator in _NAMED_POWERS and re.fullmatch(r"\d+", above):
            argument = ", ".join(self.text(each) for each in base.operands)
            return Printed(applied(f"{_NAMED_POWERS[base.operator]}^{{{above}}}", argument), POWER)
        below = self.printed(base)
        # x_1^2 is clear, f(x)^2 and sigma'^2 would not be.
        plain = below.level == ATOM and re.fullmatch(r"[^'^()]+", re.sub(r"\\[a-z]+\{[^{}]*\}", "x", below.text))
        shown = below.text if plain or re.fullmatch(r"\w+\([^()]*\)", below.text) else parenthesised(below.text)
        return Printed(f"{shown}^{{{above}}}" if len(above) > 1 else f"{shown}^{above}", POWER)

    def _exponent(self, exponent: m.Expression) -> str:
        match exponent:
            case m.Operation(operator="/", operands=(m.Number() as above, m.Number() as below)):
                return f"{number(above.value).text}/{number(below.value).text}"
        return self.text(exponent)

    def _proposition(self, condition: m.Expression) -> str:
        joint = isinstance(condition, m.Operation) and condition.operator in {"and", "or", "not"}
        return parenthesised(self.text(condition)) if joint else self.text(condition)

    def _cases(self, operation: m.Operation) -> str:
        rows: list[tuple[str, str]] = []
        rest: m.Expression = operation
        while isinstance(rest, m.Operation) and rest.operator == "if":
            condition, then, rest = rest.operands
            rows.append((self.text(then), rf"\text{{if }} {self.text(condition)}"))
        return cases([*rows, (self.text(rest), r"\text{otherwise}")])

    def _reduction(self, reduction: m.Reduction) -> Printed:
        # Inside, the axis that is summed over goes by its own letter whatever stands outside.
        inner = Expressions(self.symbols, self.reads.summing(reduction.axis))
        body, name, size = reduction.body, reduction.operator, self.symbols.size(reduction.axis)
        index, limits = self._limits(reduction.axis)
        match name:
            case "norm" if isinstance(body, m.Read) and self.reads.is_whole(body) and len(body.subscripts) == 1:
                return Printed(rf"\lVert {self.reads.read(body, whole=True)} \rVert")
            case "norm":
                two = m.Number(body.span, (), 2)
                return Printed(rf"\sqrt{{\sum{limits} {inner._power(body, two).text}}}")
            case "mean":
                first = rf"\frac{{1}}{{{size}}} \sum" if size else r"\operatorname{mean}"
                return Printed(f"{first}{limits} {inner.printed(body).at_least(TAIL)}", TAIL)
            case "logsumexp":
                return Printed(rf"\log\sum{limits} {applied(_FUNCTIONS['exp'], inner.text(body))}", TAIL)
            case "sum" | "prod":
                return Printed(rf"\{name}{limits} {inner.printed(body).at_least(TAIL)}", TAIL)
        big = _FUNCTIONS.get(name, rf"\operatorname{{{escaped(name)}}}")
        return Printed(applied(f"{big}_{{{index}}}" if limits else big, inner.text(body)))

    def _limits(self, axis: m.Axis) -> tuple[str, str]:
        """The letter that runs along an axis and the limits of a sum; nothing where only a call tells its size."""
        index, size = self.symbols.index(axis), self.symbols.size(axis)
        return index, f"_{{{index}=1}}^{{{size}}}" if size else ""

    def arguments(self, function: str, arguments: Sequence[m.Expression]) -> str:
        """Arguments as the definition has them: parameters after a semicolon."""
        count = self.reads.arity(function, len(arguments))
        shown = [self.vector(each) if self.reads.is_free(each) else self.text(each) for each in arguments]
        return "; ".join(", ".join(part) for part in (shown[:count], shown[count:]) if part)

    def _external(self, call: m.ExternalCall) -> str:
        component = ",".join(self.reads.position(axis) for axis in call.axes)
        function = upright(call.function)
        below = f"_{{{component}}}" if component else ""
        return applied(f"{function}{below}", ", ".join(self.vector(each) for each in call.arguments))

    def vector(self, expression: m.Expression) -> str:
        """An expression passed whole, not element by element."""
        if not expression.axes:
            return self.text(expression)
        if isinstance(expression, m.Read) and self.reads.is_whole(expression):
            return self.reads.read(expression, whole=True)
        if isinstance(expression, m.ExternalCall):
            return self.standing(hidden=True)._external(expression)
        limits = "".join(
            f"_{{{self.symbols.index(axis)}=1}}^{{{self.symbols.size(axis)}}}" for axis in expression.axes[:1]
        )
        more = [self.symbols.index(axis) for axis in expression.axes[1:]]
        below = f"_{{{','.join([self.symbols.index(expression.axes[0]), *more])}}}" if more else limits
        return f"{parenthesised(self.text(expression))}{below}"


def number(value: float) -> Printed:
    """A literal; `pi` as the letter, large and small ones as powers of ten."""
    if value == math.pi:
        return Printed(r"\pi")
    if isinstance(value, float) and not math.isfinite(value):
        return Printed(r"\infty" if value > 0 else r"-\infty", ATOM if value > 0 else SUM)
    text = repr(int(value)) if float(value).is_integer() and abs(value) < 1e6 else f"{value:.10g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        power = f"10^{{{int(exponent)}}}"
        text = power if mantissa == "1" else rf"{mantissa} \times {power}"
        return Printed(text, PRODUCT)
    return Printed(text, SUM if text.startswith("-") else ATOM)


def product(factors: Sequence[Printed]) -> str:
    """Factors side by side; a dot where a number would run into the one before."""
    last = len(factors) - 1
    text = ""
    for position, factor in enumerate(factors):
        shown = factor.at_least(PRODUCT if position < last or factor.level != TAIL else TAIL)
        if factor.level == PRODUCT and len(factors) > 1 and r"\times" in shown:
            shown = parenthesised(shown)
        if text:
            text += r" \cdot " if shown[0].isdigit() else r"\, "
        text += shown
    return text


def cases(rows: Sequence[tuple[str, str]]) -> str:
    """A definition by cases: values and when they hold; fractions at full size, which need more room between lines."""
    tall = any(is_tall(value) for value, _ in rows)
    body = (r" \\[14pt] " if tall else r" \\ ").join(f"{value} & {condition}" for value, condition in rows)
    return rf"\begin{{cases}} {body.replace(chr(92) + 'frac', chr(92) + 'dfrac')} \end{{cases}}"
