"""Checked expressions, kernels and distributions as text of the language, with the fewest parentheses.

What is read back from the text is the same expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from gpdsl.language import model as m
from gpdsl.language.vocabulary import KERNELS

_CONDITIONAL, _OR, _AND, _COMPARISON, _SUM, _PRODUCT, _UNARY, _POWER, _ATOM = range(9)

_BINARY: Mapping[str, int] = MappingProxyType(
    {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "^": _POWER}
    | dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON)
)


class Writer:
    """Writes what a model holds."""

    def __init__(self, declarations: m.Declarations) -> None:
        self.declarations = declarations

    def expression(self, expression: m.Expression) -> str:
        """An expression as it would be written in a file."""
        return self._written(expression)[0]

    def kernel(self, kernel: m.Kernel) -> str:
        """A covariance function as it would be written in a file."""
        match kernel:
            case m.KernelScale(factor=factor, kernel=inner):
                return f"{self._within(factor, _PRODUCT)} * {self._kernel_factor(inner)}"
            case m.KernelSum(terms=terms):
                return " + ".join(self.kernel(each) for each in terms)
            case m.KernelProduct(factors=factors):
                shown = [self._kernel_factor(each) for each in factors]
                return f"{shown[0]}^{len(shown)}" if len(shown) > 1 and len(set(shown)) == 1 else " * ".join(shown)
            case m.KernelFormula(name=name, arguments=arguments, on=on, arrays=arrays):
                shown = [self._passed(e) if n in arrays else self.expression(e) for n, e in arguments.items()]
                return f"{name}({', '.join([*shown, *self._on(on)])})"
            case m.KernelCall():
                return self._kernel_call(kernel)
        raise TypeError(f"not a kernel: {type(kernel).__name__}")

    def distribution(self, call: m.DistributionCall) -> str:
        """A distribution with its components, and its arguments by name; those of an opaque density by position."""
        if call.external:
            return f"{call.name}({', '.join(map(self._passed, call.arguments.values()))})"
        inside = [self.distribution(each) for each in call.components]
        named = [f"{name} = {self.expression(each)}" for name, each in call.arguments.items()]
        return f"{call.name}({', '.join([*inside, *named])})"

    def left(self, observation: m.Observation) -> str:
        """The left side of an observation."""
        if observation.transform is not None:
            return self.expression(observation.transform)
        if len(observation.outputs) > 1:
            return f"({', '.join(observation.outputs)})"
        whole = observation.distribution.external
        return observation.outputs[0] + ("" if whole else _brackets(observation.subscripts))

    def _kernel_call(self, call: m.KernelCall) -> str:
        """Arguments in the order of the table, whatever their role."""
        kernels = iter(call.kernels)
        shown: list[str] = []
        for parameter in KERNELS[call.name].parameters:
            if parameter.name in call.arguments:
                given = call.arguments[parameter.name]
                value = self._passed(given) if parameter.array else self.expression(given)
                shown.append(f"{parameter.name} = {value}" if parameter.optional else value)
            elif parameter.name in call.sizes:
                shown.append(f"{parameter.name} = [{', '.join(map(str, call.sizes[parameter.name]))}]")
            elif (inner := next(kernels, None)) is not None:
                shown.append(self.kernel(inner))
        return f"{call.name}({', '.join([*shown, *self._on(call.on)])})"

    def _on(self, on: tuple[m.Expression, ...]) -> list[str]:
        if not on:
            return []
        return [f"on = {self.expression(on[0])}" if len(on) == 1 else f"on = [{', '.join(map(self.expression, on))}]"]

    def _kernel_factor(self, kernel: m.Kernel) -> str:
        text = self.kernel(kernel)
        return f"({text})" if isinstance(kernel, m.KernelSum | m.KernelScale) else text

    def _within(self, expression: m.Expression, level: int) -> str:
        text, own = self._written(expression)
        return text if own >= level else f"({text})"

    def _written(self, expression: m.Expression) -> tuple[str, int]:
        match expression:
            case m.Number(value=value):
                return _number(value)
            case m.IndexNumber(index=index):
                return index, _ATOM
            case m.Local(name=name, subscripts=subscripts):
                return f"{name}{_brackets(subscripts)}", _ATOM
            case m.Read():
                return self._read(expression), _ATOM
            case m.Operation(operator=operator, operands=operands):
                return self._operation(operator, operands)
            case m.Reduction(operator=operator, axis=axis, body=body):
                over = f"{axis.name}, " if axis.name is not None else ""
                return f"{operator}({over}{self.expression(body)})", _ATOM
            case m.FunctionCall(function=function, arguments=arguments):
                return f"{function}({self._listed(arguments)})", _ATOM
            case m.ExternalCall(function=function, arguments=arguments):
                return f"{function}({', '.join(map(self._passed, arguments))})", _ATOM
        raise TypeError(f"no text for {type(expression).__name__}")

    def _operation(self, operator: str, operands: tuple[m.Expression, ...]) -> tuple[str, int]:
        if operator == "if":
            condition, then, other = operands
            return (
                f"if {self.expression(condition)} then {self.expression(then)} else {self.expression(other)}",
                _CONDITIONAL,
            )
        if operator == "neg":
            return f"-{self._within(operands[0], _UNARY)}", _UNARY
        if operator == "not":
            return f"not {self._within(operands[0], _COMPARISON)}", _COMPARISON
        if operator not in _BINARY:
            return f"{operator}({self._listed(operands)})", _ATOM
        level, (left, right) = _BINARY[operator], operands
        if operator == "^":
            return f"{self._within(left, _ATOM)}^{self._within(right, _UNARY)}", level
        if level == _COMPARISON:
            return f"{self._within(left, _SUM)} {operator} {self._within(right, _SUM)}", level
        # Operators of one kind group from the left.
        return f"{self._within(left, level)} {operator} {self._within(right, level + 1)}", level

    def _passed(self, argument: m.Expression) -> str:
        """An argument of an opaque function, which takes whole quantities by their names."""
        return argument.name if isinstance(argument, m.Read) and argument.axes else self.expression(argument)

    def _read(self, read: m.Read) -> str:
        functional = read.functional
        if functional.integrated:
            return f"integral({read.name}{_brackets(read.subscripts)}, {', '.join(functional.at)})"
        if functional.at:  # `f(a)` reads every element of `f`
            return f"{read.name}({', '.join(functional.at)})"
        text = f"{read.name}{_brackets(read.subscripts)}"
        for along in functional.derivative:
            name = self.declarations.latents[read.name].arguments[along.argument]
            shown = str(along.column) if isinstance(along.column, int) else _subscript(along.column)
            column = f"[{shown}]" if self.declarations.axes_of(name) else ""
            text = f"D({text}, {name}{column})"
        return text

    def _listed(self, expressions: Iterable[m.Expression]) -> str:
        return ", ".join(map(self.expression, expressions))


def _number(value: float) -> tuple[str, int]:
    if value == math.pi:
        return "pi", _ATOM
    text = repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
    return text, _UNARY if text.startswith("-") else _ATOM


def _brackets(subscripts: Iterable[m.Subscript]) -> str:
    shown = list(subscripts)
    if all(isinstance(each, m.Whole) for each in shown):
        return ""
    return f"[{', '.join(map(_subscript, shown))}]"


def _subscript(subscript: m.Subscript) -> str:
    match subscript:
        case m.Fixed(position=position):
            return str(position)
        case m.IndexValue(index=index, offset=offset):
            return f"{index} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else index
        case m.Slice(axis=axis, start=start):
            return f"{start}..{start + (axis.size or 1) - 1}"
        case m.At(input=label) | m.Level(name=label):
            return label
    return subscript.axis.describe()
