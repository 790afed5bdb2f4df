"""Where an expression stands: what it may read, which indices have a value there, and what is on the left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpdsl.language.model import Axis, Expression

NOTHING: Mapping[str, IndexRange] = MappingProxyType({})
NO_LOCALS: Mapping[str, Expression] = MappingProxyType({})
NOT_PASSED: Mapping[str, Passed] = MappingProxyType({})


@dataclass(frozen=True)
class IndexRange:
    """The values an index takes at a place: from `low` to `high`; `high` is None when data say how far."""

    low: int
    high: int | None

    @classmethod
    def of(cls, axis: Axis) -> IndexRange:
        """All values of an axis."""
        return cls(1, axis.size)


@dataclass(frozen=True)
class Passed:
    """How a value came to be an argument: the indices fixed in it (`f[p]`), and those that have a value at the call."""

    elements: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Left:
    """The left side, for advice: `text` as written (`latent depth[p](s)`), and the sort of statement."""

    sort: str
    name: str
    text: str
    indices: tuple[str, ...] = ()

    def lacks(self, axis: Axis) -> str:
        """What to do when the right side has an axis that this left side lacks."""
        if axis.name is None:
            return f"take one element, `[1]`, or declare `index q in 1..{axis.describe()}` and `sum(q, ...)` over it"
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
    definition of a function, which is `generic`, nothing is known of their axes.
    """

    words: str
    readable: frozenset[str]
    left: Left
    bound: Mapping[str, IndexRange] = field(default_factory=lambda: NOTHING)
    whole: bool = False
    free: bool = False
    recursion: tuple[str, tuple[Axis, ...]] | None = None
    local: Mapping[str, Expression] = field(default_factory=lambda: NO_LOCALS)
    passed: Mapping[str, Passed] = field(default_factory=lambda: NOT_PASSED)
    generic: bool = False

    def runs(self, index: str) -> bool:
        """Whether an argument of the call being written out varies along an index that has a value at the call."""
        return any(
            index in passed.running and any(axis.name == index for axis in self.local[name].axes)
            for name, passed in self.passed.items()
        )
