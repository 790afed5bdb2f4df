"""Checked expressions → SymPy scalars: one symbol per value read, remembered with what it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.symbolic.functions import ELEMENTARY, logsumexp

Position = int | str
"""A subscript: an element counted from 1, or the name of an axis along which the expression is generic."""

Environment = Mapping[str, Position]

MAX_TERMS = 4096


class NeedsElements(Exception):
    """The expression has no generic form along `axis` (a definition by cases): translate it element by element."""

    def __init__(self, axis: str) -> None:
        super().__init__(axis)
        self.axis = axis


@dataclass(frozen=True)
class Ref:
    """What a symbol stands for. `kind` is input, const, param, latent, output, indicator, index or external."""

    kind: str
    name: str
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True)
class ExternalUse:
    """One distinct call of an opaque function: its arguments element by element, and the shape of its result."""

    key: str
    function: str
    arguments: tuple[tuple[tuple[int, ...], tuple[sp.Expr, ...]], ...]
    result: tuple[int, ...]
    likelihood: bool = False


def axis_key(axis: m.Axis) -> str:
    """Name under which an environment holds the position along `axis`; bare sizes get a star."""
    return axis.name if axis.name is not None else f"*{axis.describe()}"


class Translator:
    """Translates the expressions of one model whose sizes are known.

    `references` says what each symbol produced so far stands for; `externals` lists the opaque calls met, in an order
    in which they can be evaluated.
    """

    def __init__(self, declarations: m.Declarations, sizes: Mapping[str, int]) -> None:
        self.declarations = declarations
        self.sizes = dict(sizes)
        self.references: dict[sp.Symbol, Ref] = {}
        self.externals: dict[str, ExternalUse] = {}
        self._lets: dict[tuple, sp.Expr] = {}

    def size(self, axis: m.Axis) -> int:
        """Number of elements along an axis."""
        return axis.size if axis.size is not None else self.sizes[str(axis.dimension)]

    def shape(self, axes: tuple[m.Axis, ...]) -> tuple[int, ...]:
        """Sizes of several axes."""
        return tuple(self.size(a) for a in axes)

    def symbol(self, ref: Ref, *, positive: bool = False) -> sp.Symbol:
        """The symbol of a value read; equal references give equal symbols."""
        where = f"[{','.join(map(str, ref.positions))}]" if ref.positions else ""
        name = f"{ref.name}{where}" if ref.kind not in {"indicator", "index"} else f"{ref.kind}:{ref.name}{where}"
        symbol = sp.Symbol(name, positive=True) if positive else sp.Symbol(name, real=True)
        self.references[symbol] = ref
        return symbol

    def scalar(self, expression: m.Expression, environment: Environment | None = None) -> sp.Expr:
        """One element of an expression. Axes not in `environment` stay generic, under their own names."""
        env = environment or {}
        match expression:
            case m.Number(value=value):
                return sp.Integer(value) if isinstance(value, int) else sp.Float(value, 17)
            case m.IndexNumber(index=index):
                position = env.get(index, index)
                if isinstance(position, int):
                    return sp.Integer(position)
                return self.symbol(Ref("index", index, (position,)), positive=True)
            case m.Read():
                return self._read(expression, env)
            case m.Operation():
                return self._operation(expression, env)
            case m.Reduction():
                return self._reduction(expression, env)
            case m.ExternalCall():
                positions = tuple(env.get(axis_key(a), axis_key(a)) for a in expression.axes)
                use = self.external(expression.function, expression.arguments)
                return self.symbol(Ref("external", use.key, positions))
        raise TypeError(f"no translation for {type(expression).__name__}")

    def position(self, subscript: m.Subscript, env: Environment) -> Position:
        """Where a subscript points: an element, or the name of an axis that stays generic."""
        match subscript:
            case m.Fixed(position=position):
                return position
            case m.Whole(axis=axis):
                return env.get(axis_key(axis), axis_key(axis))
            case m.IndexValue(index=index, offset=offset):
                position = env.get(index, index)
                if isinstance(position, int):
                    return position + offset
                if offset:
                    raise NeedsElements(index)
                return position
        raise TypeError(subscript)

    def _read(self, read: m.Read, env: Environment) -> sp.Expr:
        d = self.declarations
        positions = tuple(self.position(s, env) for s in read.subscripts)
        if read.name in d.lets:
            return self.let(read.name, positions)
        if read.name in d.consts and all(isinstance(p, int) for p in positions):
            return _constant(d.consts[read.name].values, positions)
        for kind, table in (
            ("input", d.inputs),
            ("const", d.consts),
            ("param", d.params),
            ("latent", d.latents),
            ("output", d.outputs),
        ):
            if read.name in table:
                declared = table[read.name]
                constraint = getattr(declared, "constraint", getattr(declared, "kind", "real"))
                return self.symbol(Ref(kind, read.name, positions), positive=constraint in {"positive", "unit"})
        raise KeyError(read.name)

    def let(self, name: str, positions: tuple[Position, ...]) -> sp.Expr:
        """One element of a `let`, with definitions by cases and recursion unrolled."""
        key = (name, positions)
        if key not in self._lets:
            declared = self.declarations.lets[name]
            env = {axis_key(a): p for a, p in zip(declared.axes, positions, strict=True)}
            self._lets[key] = self.scalar(_case(declared, env).body, env)
        return self._lets[key]

    def _operation(self, operation: m.Operation, env: Environment) -> sp.Expr:
        values = [self.scalar(o, env) for o in operation.operands]
        match operation.operator:
            case "+":
                return sp.Add(*values)
            case "-":
                return values[0] - values[1]
            case "*":
                return sp.Mul(*values)
            case "/":
                return values[0] / values[1]
            case "^":
                return _power(values[0], values[1])
            case "neg":
                return -values[0]
            case "pow":
                return _power(values[0], values[1])
        return ELEMENTARY[operation.operator](*values)

    def _reduction(self, reduction: m.Reduction, env: Environment) -> sp.Expr:
        axis = self.declarations.indices[reduction.index].axis
        count = self.size(axis)
        if count > MAX_TERMS:
            raise GpdslError(
                f"`{reduction.operator}({reduction.index}, ...)` has {count} terms; at most {MAX_TERMS} are expanded"
            )
        values = [self.scalar(reduction.body, {**env, reduction.index: i}) for i in range(1, count + 1)]
        constructors = {"sum": sp.Add, "prod": sp.Mul, "max": sp.Max, "min": sp.Min, "logsumexp": logsumexp}
        return constructors[reduction.operator](*values)

    def elements(self, expression: m.Expression, env: Environment | None = None) -> tuple[sp.Expr, ...]:
        """Every element of an expression along its own axes, in row-major order."""
        keys = [axis_key(a) for a in expression.axes]
        ranges = [range(1, self.size(a) + 1) for a in expression.axes]
        return tuple(
            self.scalar(expression, {**(env or {}), **dict(zip(keys, positions, strict=True))})
            for positions in itertools.product(*ranges)
        )

    def external(
        self, function: str, arguments: tuple[m.Expression, ...], observed: tuple[str, ...] = ()
    ) -> ExternalUse:
        """The use of an opaque function with these arguments (outputs `observed` first, for a likelihood)."""
        d = self.declarations
        passed = [(self.shape(d.outputs[o].axes), self._output_elements(o)) for o in observed]
        passed += [(self.shape(a.axes), self.elements(a)) for a in arguments]
        for use in self.externals.values():
            if use.function == function and use.arguments == tuple(passed):
                return use
        result = () if observed else self.shape(d.externals[function].result)
        key = f"{function}#{len(self.externals) + 1}"
        use = ExternalUse(key, function, tuple(passed), result, likelihood=bool(observed))
        self.externals[key] = use
        return use

    def _output_elements(self, name: str) -> tuple[sp.Expr, ...]:
        ranges = [range(1, n + 1) for n in self.shape(self.declarations.outputs[name].axes)]
        return tuple(self.symbol(Ref("output", name, p)) for p in itertools.product(*ranges))


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    if base.is_number and exponent.is_number:  # never a giant integer: 9^9^9 is a float, or an error
        value = sp.Float(base, 17) ** sp.Float(exponent, 17) if abs(exponent) > 64 else base**exponent
        if not value.is_finite:
            raise GpdslError(f"the constant {base}^{exponent} is not a finite number")
        return value
    return base**exponent


def _constant(values: float | tuple, positions: tuple[Position, ...]) -> sp.Expr:
    for position in positions:
        if isinstance(values, tuple):
            values = values[int(position) - 1]
    return sp.Float(values, 17) if not float(values).is_integer() else sp.Integer(int(values))


def _case(declared: m.Let, env: Environment) -> m.Case:
    if len(declared.cases) == 1 and all(g.operator == "all" for g in declared.cases[0].guards):
        return declared.cases[0]
    for axis, position in env.items():
        if not isinstance(position, int):
            raise NeedsElements(position)
    for case in declared.cases:
        if all(_holds(guard, env) for guard in case.guards):
            return case
    raise GpdslError(f"no case of `let {declared.name}` covers {dict(env)}")


def _holds(guard: m.Guard, env: Environment) -> bool:
    if guard.operator == "all":
        return True
    position, value = int(env[guard.index]), guard.value
    return {
        "==": position == value,
        "!=": position != value,
        "<": position < value,
        "<=": position <= value,
        ">": position > value,
        ">=": position >= value,
    }[guard.operator]
