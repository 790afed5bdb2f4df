"""What a file declares: every name with its sort and place, and the checked declarations as they come about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gpdsl.language.checker.facts import Fact
from gpdsl.language.checker.problems import Failed, Problems
from gpdsl.language.errors.names import UnknownName
from gpdsl.language.habits import word_habit
from gpdsl.language.model import (
    Axis,
    Const,
    Density,
    Expression,
    External,
    ExternalLikelihood,
    Function,
    Functional,
    Guard,
    Index,
    Input,
    KernelDefinition,
    Latent,
    Let,
    Output,
    Param,
    Row,
)
from gpdsl.language.source import Source, Span
from gpdsl.language.syntax import DensityStatement, FunctionStatement, Identifier, KernelStatement

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

    axes: tuple[Axis, ...]
    latent: str
    log: bool


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
    indices: dict[str, Index] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    consts: dict[str, Const] = field(default_factory=dict)
    params: dict[str, Param] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    latents: dict[str, Latent] = field(default_factory=dict)
    lets: dict[str, Let] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    kernels: dict[str, KernelDefinition] = field(default_factory=dict)
    densities: dict[str, Density] = field(default_factory=dict)
    kernel_statements: dict[str, KernelStatement] = field(default_factory=dict)
    externals: dict[str, External] = field(default_factory=dict)
    likelihoods: dict[str, ExternalLikelihood] = field(default_factory=dict)
    observed: dict[str, list[tuple[int, tuple[Guard, ...]]]] = field(default_factory=dict)
    """Of each output the lines that observe it, and which elements each does."""
    facts: dict[int, tuple[Expression, Fact]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    """The first input of levels along each index that has one."""
    by_group: dict[str, ByGroup] = field(default_factory=dict)
    """Latents and inferred parameters of which each level of an input has its own."""
    let_facts: dict[str, Fact] = field(default_factory=dict)
    readings: dict[str, set[Functional]] = field(default_factory=dict)
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
            self.problems.add(UnknownName(name.span, name.text, suggestion, first, word_habit(name.text)))
            # Said once: the other uses of the same name are the same mistake.
            self.lost.add(name.text)
            raise Failed
        return self.sorts[name.text]

    def index_advice(self, name: str) -> str:
        """How a name becomes an index, with the ones there are; levels of a column are those of an index of its own."""
        if self.sorts.get(name) == "input":
            return (
                f"levels of a column have an index: `index s in 1..S`, `input {name} : label[s]`, `param a[s] : real`; "
                f"`a[{name}]` reads that of the row"
            )
        shown = ", ".join(f"`{each}`" for each in list(self.indices)[:5])
        return f"declare it: `index {name} in 1..4`" + (f"; declared are {shown}" if shown else "")

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


def describe_axes(axes: tuple[Axis, ...]) -> str:
    """`real[4]`, `real[layer]`, `a scalar`: how a message shows dimensions."""
    return f"`real[{', '.join(axis.describe() for axis in axes)}]`" if axes else "one number"
