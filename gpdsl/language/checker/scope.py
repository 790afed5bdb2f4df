"""What a file declares: every name with its sort and place, and the checked declarations as they come about.

And what is known of an expression (`Fact`): bounds on what it costs once written out, found while it is built, so that
no text hangs a later stage. `9^9^9^9` is never computed in exact arithmetic: constants are followed in floating point
only, and powers by degree.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, TypeVar

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.names import UnknownName
from gpdsl.language.habits import scale_habit, word_habit
from gpdsl.language.syntax import DensityStatement, FunctionStatement, Identifier, KernelStatement
from gpdsl.language.vocabulary import Source, Span, closest


@dataclass(frozen=True)
class Fact:
    """`value` when it is one known number; `largest` bounds a constant's magnitude; `degree` and `terms` its size.

    `depth` says how many operations stand inside each other, definitions of functions written out.
    """

    value: float | None = None
    largest: float | None = None
    degree: float = 1
    terms: int = 1
    depth: int = 1


def combine(name: str, operands: tuple[Fact, ...]) -> Fact:
    """The fact of an operation from those of its operands; a constant without finite value becomes NaN."""
    values = tuple(each.value for each in operands)
    known = [value for value in values if value is not None]
    value = evaluate(name, tuple(known)) if len(known) == len(values) else None
    degrees = [each.degree for each in operands]
    if name == "^":
        base, exponent = operands
        degree = base.degree * max(1.0, exponent.largest) if exponent.largest is not None else sum(degrees)
    else:
        degree = sum(degrees) if name in "*/" else max(degrees)
    largest = None if value is None else abs(value)
    depth = max(each.depth for each in operands) + 1
    return Fact(value, largest, degree, sum(each.terms for each in operands) + 1, depth)


def evaluate(name: str, values: tuple[float, ...]) -> float:
    """An operation on floats; NaN where it has no finite value."""
    try:
        result = _OPERATIONS[name](*values)
    except (ArithmeticError, ValueError):
        return math.nan
    if isinstance(result, complex) or not math.isfinite(result):
        return math.nan
    return float(result)


_OF_PYTHON = (
    *("exp", "log", "sqrt", "log2", "log10", "log1p", "expm1", "floor", "erf", "lgamma"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh"),
)
"""Functions that Python calls as the language does."""

_OPERATIONS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        **{name: getattr(math, name) for name in _OF_PYTHON},
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "^": lambda a, b: float(a) ** float(b),
        "neg": lambda a: -a,
        "logit": lambda a: math.log(a) - math.log1p(-a),
        "probit": NormalDist().inv_cdf,
        "abs": abs,
        "sigmoid": lambda a: 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a)),
        "softplus": lambda a: max(a, 0.0) + math.log1p(math.exp(-abs(a))),
        "if": lambda condition, a, b: a if condition else b,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "==": operator.eq,
        "!=": operator.ne,
        "and": lambda a, b: bool(a and b),
        "or": lambda a, b: bool(a or b),
        "not": operator.not_,
        "min": min,
        "max": max,
        "Phi": lambda a: 0.5 * math.erfc(-a / math.sqrt(2)),
    }
)


# The list of mistakes that a check fills, and how a check gives up on one part and goes on with the next.

_MAX_SUGGESTIONS = 20


class Failed(Exception):
    """Raised once a mistake has been recorded; caught where the next independent part begins."""


Part = TypeVar("Part")
Checked = TypeVar("Checked")


@dataclass
class Problems:
    """Mistakes found so far."""

    mistakes: list[Mistake] = field(default_factory=list)
    _suggestions: int = 0

    def add(self, mistake: Mistake) -> None:
        """Record a mistake and go on."""
        self.mistakes.append(mistake)

    def fail(self, mistake: Mistake) -> NoReturn:
        """Record a mistake and give up on the part being checked."""
        self.add(mistake)
        raise Failed

    def give_up(self) -> NoReturn:
        """Give up on the part being checked without a word: its mistake has been recorded already."""
        raise Failed

    contained: ClassVar[AbstractContextManager[None]] = suppress(Failed)
    """A part whose failure does not stop what follows it."""

    def each(self, parts: Iterable[Part], check: Callable[[Part], Checked]) -> list[Checked]:
        """What a check makes of independent parts, all of which are checked; gives up afterwards where one failed."""
        parts, found = list(parts), list[Checked]()
        for part in parts:
            with self.contained:
                found.append(check(part))
        return found if len(found) == len(parts) else self.give_up()

    def suggest(self, word: str, candidates: Iterable[str]) -> str:
        """The nearest known word, for the first mistakes of a file: comparing thousands of words takes long."""
        self._suggestions += 1
        return closest(word, candidates) if self._suggestions <= _MAX_SUGGESTIONS else ""


_SHOWN = 40

SORTS = {
    "index": "an index",
    "input": "an input",
    "output": "an output",
    "const": "a constant",
    "param": "a parameter",
    "row": "a row variable",
    "latent": "a latent",
    "let": "a `let`",
    "function": "a function",
    "kernel": "a kernel",
    "density": "a density",
    "external": "an external",
    "likelihood": "an external likelihood",
}
"""How a message names each sort of declaration."""


@dataclass(frozen=True)
class ByGroup:
    """What each level of an input has its own of: its axes as declared, the latent, and whether that is its log."""

    axes: tuple[m.Axis, ...]
    latent: str
    log: bool


LOOKALIKES = str.maketrans("аеорсухіјѕһԁΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХ", "aeopcyxijshdABEZHIKMNOPTYXABEKMHOPCTX")
"""Letters of Cyrillic and Greek that look like Latin ones."""


@dataclass
class Scope:
    """The names of one file. `sorts` and `places` are complete before any expression is checked.

    `formulas` are the definitions that calls write out, and `expanded` counts the terms that calls have written so far.
    """

    source: Source
    problems: Problems
    lost: set[str]
    sorts: dict[str, str] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    indices: dict[str, m.Index] = field(default_factory=dict)
    inputs: dict[str, m.Input] = field(default_factory=dict)
    outputs: dict[str, m.Output] = field(default_factory=dict)
    consts: dict[str, m.Const] = field(default_factory=dict)
    params: dict[str, m.Param] = field(default_factory=dict)
    rows: dict[str, m.Row] = field(default_factory=dict)
    latents: dict[str, m.Latent] = field(default_factory=dict)
    lets: dict[str, m.Let] = field(default_factory=dict)
    functions: dict[str, m.Function] = field(default_factory=dict)
    kernels: dict[str, m.KernelDefinition] = field(default_factory=dict)
    densities: dict[str, m.Density] = field(default_factory=dict)
    kernel_statements: dict[str, KernelStatement] = field(default_factory=dict)
    externals: dict[str, m.External] = field(default_factory=dict)
    likelihoods: dict[str, m.ExternalLikelihood] = field(default_factory=dict)
    observed: dict[str, list[tuple[int, tuple[m.Guard, ...]]]] = field(default_factory=dict)
    """Of each output the lines that observe it, and which elements each does."""
    facts: dict[int, tuple[m.Expression, Fact]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """The first input of levels along each index that has one."""
    by_group: dict[str, ByGroup] = field(default_factory=dict)
    """Latents and inferred parameters of which each level of an input has its own."""
    elementwise: set[str] = field(default_factory=set)
    """Latents and parameters along such an index of which the model reads single elements."""
    let_facts: dict[str, Fact] = field(default_factory=dict)
    readings: dict[str, set[m.Functional]] = field(default_factory=dict)
    formulas: dict[str, FunctionStatement | DensityStatement] = field(default_factory=dict)
    expanded: int = 0

    def sort_of(self, name: Identifier, local: Collection[str] = ()) -> str:
        """The sort of a declared name. A name that a broken statement may have declared fails without a word.

        `local` are the arguments of the definition it stands in, which may have been meant.
        """
        if name.text in self.lost:
            raise Failed
        if name.text not in self.sorts:
            suggestion = self.problems.suggest(name.text, [*local, *self.sorts])
            first = "write it among the arguments, or declare it" if local else "declare it"
            habit = word_habit(name.text) or ("" if suggestion or local else scale_habit(name.text))
            if name.text[0] == "d" and self.sorts.get(name.text[1:]) in ("latent", "input"):
                habit = "the derivative of a latent by one of its inputs is `D(f, x)`"
            look = name.text.translate(LOOKALIKES)
            if alike := next((each for each in self.sorts if each.translate(LOOKALIKES) == look), ""):
                habit = (
                    f"declared is {ascii(alike)}, which looks the same and is not {ascii(name.text)}: type both anew"
                )
                suggestion = ""
            self.problems.add(UnknownName(name.span, name.text, suggestion, first, habit))
            # Said once: the other uses of the same name are the same mistake.
            self.lost.add(name.text)
            raise Failed
        return self.sorts[name.text]

    def attempt(self, name: str, check: Callable[[Scope, Any], object], part: Any) -> None:
        """Check what declares a name. Where that fails nothing more is said about the name."""
        with self.problems.contained:
            check(self, part)
            return
        self.lost.add(name)

    def axes_of(self, name: str) -> tuple[m.Axis, ...] | None:
        """The axes of a quantity as it is read, None of what has none yet."""
        if name in self.latents:
            return self.latents[name].values
        tables: tuple[Mapping, ...] = (self.inputs, self.outputs, self.consts, self.params, self.rows, self.lets)
        return next((table[name].axes for table in tables if name in table), None)

    def line(self, span: Span, here: Span) -> str:
        """The line of a place as a message about another one names it, with its file where that is not the same."""
        return self.source.seen_from(span.line, here.line)

    def names(self, *sorts: str) -> list[str]:
        """The declared names of some sorts."""
        return [name for name, sort in self.sorts.items() if sort in sorts]

    def describe_index(self, name: str) -> str:
        """`p` is declared on line 3 as 1..2."""
        index = self.indices[name]
        values = f"1..{index.axis.size if index.axis.size is not None else index.axis.dimension}"
        if index.levels is not None:
            values = "levels"
        return f"`{name}` is declared on line {index.span.line} as {values}"

    def quote(self, span: Span) -> str:
        """The text at a span in backticks when it is short, else `this`."""
        text = self.source.line(span.line)[span.column - 1 : span.end_column - 1]
        return f"`{text}`" if span.line == span.end_line and 0 < len(text) <= _SHOWN else "this"


def describe_axes(axes: tuple[m.Axis, ...]) -> str:
    """`real[4]`, `real[layer]`, `a scalar`: how a message shows dimensions."""
    return f"`real[{', '.join(axis.describe() for axis in axes)}]`" if axes else "one number"


# Where an expression stands: what it may read, which indices have a value there, and what is on the left.

NOTHING: Mapping[str, IndexRange] = MappingProxyType({})
NO_LOCALS: Mapping[str, m.Expression] = MappingProxyType({})
NOT_PASSED: Mapping[str, Passed] = MappingProxyType({})
NO_LEVELS: Mapping[str, m.Axis | None] = MappingProxyType({})


@dataclass(frozen=True)
class IndexRange:
    """The values an index takes at a place: from `low` to `high`; `high` is None when data say how far."""

    low: int
    high: int | None

    @classmethod
    def of(cls, axis: m.Axis) -> IndexRange:
        """All values of an axis."""
        return cls(1, axis.size)


@dataclass(frozen=True)
class Passed:
    """How a value came to be an argument: the indices fixed in it (`f[p]`), and those that have a value at the call."""

    elements: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Left:
    """The left side, for advice: `text` as written (`latent depth[p](s)`), and the sort of statement.

    `levels` are the indices among the arguments of a latent.
    """

    sort: str
    name: str
    text: str
    indices: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def lacks(self, axis: m.Axis) -> str:
        """What to do when the right side has an axis that this left side lacks."""
        if axis.name is None:
            return f"take one element, `[1]`, or declare `index q in 1..{axis.describe()}` and `sum(q, ...)` over it"
        if axis.name in self.levels:
            d = axis.name
            kernels = f"`Coregion(W, kappa, on = {d})`, or a formula of both, `kernel k[{d}, {d}2](a, b; ...) = ...`"
            return f"a covariance is of two points, each with its own `{d}`: write {kernels}"
        indexed = f"{self.name}[{', '.join((*self.indices, axis.name))}]"
        total = f"sum over it: `sum({axis.name}, ...)`"
        forms = {
            "let": f"index the left side, `let {indexed} = ...`, or {total}",
            "observation": f"index the left side, `{indexed} ~ ...`, with `output {indexed}`, or {total}",
            "latent": f"index the latent: `latent {indexed}(...)`",
            "param": f"index the parameter: `param {indexed}`",
            "row": f"index the row variable: `row {indexed}`",
            "kernel": f"a covariance is one number for two points; {total}",
            "function": f"pass it as an argument, or {total}",
            "density": f"pass it as an argument, or {total}",
        }
        return forms[self.sort]


@dataclass(frozen=True)
class Place:
    """`words` names the place in messages; `readable` are the sorts of names allowed.

    `whole` marks the arguments of an external, which are passed without subscripts. `free` marks the value of a `let`
    without subscripts, which takes the axes of its value, so that nothing on the left checks how they combine.
    `recursion` is the `let` being defined, with its axes. `local` says what each argument of the definition being
    checked stands for; it comes before the names of the file. In a call, `passed` says how each came there; in the
    definition of a function, which is `generic`, nothing is known of their axes. `columns` are the indices that are
    columns of a latent here. `levels` are the names of the values of an index at the two points of a kernel, with its
    axis, which the definition alone does not tell.
    """

    words: str
    readable: frozenset[str]
    left: Left
    bound: Mapping[str, IndexRange] = field(default_factory=lambda: NOTHING)
    whole: bool = False
    free: bool = False
    recursion: tuple[str, tuple[m.Axis, ...]] | None = None
    local: Mapping[str, m.Expression] = field(default_factory=lambda: NO_LOCALS)
    passed: Mapping[str, Passed] = field(default_factory=lambda: NOT_PASSED)
    generic: bool = False
    columns: frozenset[str] = frozenset()
    levels: Mapping[str, m.Axis | None] = field(default_factory=lambda: NO_LEVELS)

    def runs(self, index: str) -> bool:
        """Whether an argument of the call being written out varies along an index that has a value at the call."""
        return any(
            index in passed.running and any(axis.name == index for axis in self.local[name].axes)
            for name, passed in self.passed.items()
        )
