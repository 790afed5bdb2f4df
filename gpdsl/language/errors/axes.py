"""E203 to E206 and E220 to E239: axes, subscripts and indices that do not fit."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named


class WrongIndex(Named, code="E203"):
    """`depth0[p]` for something indexed by `layer`."""

    declared: str
    used: str
    used_place: str
    remedy: str
    message: ClassVar = "axis mismatch: `{name}` is indexed by `{declared}`, not `{used}`"
    label: ClassVar = "{used_place}"


class AxisNotOnLeft(Mistake, code="E203"):
    """The right side varies along an axis that the left side lacks."""

    what: str
    axis: str
    left: str
    remedy: str
    message: ClassVar = "axis mismatch: {what} varies along `{axis}`, {left} does not"
    label: ClassVar = "has the axis `{axis}`"


class AxesDiffer(Mistake, code="E203"):
    """Two operands with different axes where nothing says how they combine."""

    left: str
    right: str
    left_axes: str
    right_axes: str
    remedy: str
    message: ClassVar = "axis mismatch: {left} has the axes {left_axes}, {right} has {right_axes}"
    label: ClassVar = "these do not combine element by element"
    help: ClassVar = "give both the same index, sum over one, or {remedy}"


class PassedAxes(Mistake, code="E203"):
    """An argument of an external with other dimensions than declared."""

    function: str
    argument: str
    expected: str
    given: str
    message: ClassVar = "axis mismatch: `{function}` takes `{argument}` as {expected}, this is {given}"
    label: ClassVar = "this is {given}"
    help: ClassVar = "pass a quantity with these dimensions, whole and without subscripts, or correct the declaration"


class KernelAxis(Mistake, code="E203"):
    """A kernel parameter with an axis that is neither the latent's nor the input's."""

    parameter: str
    axis: str
    inputs: str
    choices: str
    message: ClassVar = "axis mismatch: `{parameter}` varies along `{axis}`, which is not an axis of this latent"
    label: ClassVar = "has the axis `{axis}`; the input is {inputs}"
    help: ClassVar = "make it {choices}"


class LogitsAxis(Mistake, code="E203"):
    """Logits that do not run over the levels of the label."""

    given: str
    output: str
    label_axis: str
    message: ClassVar = "axis mismatch: the logits of `{output}` need the axis `{label_axis}`, one value per level"
    label: ClassVar = "this is {given}"
    help: ClassVar = "use a quantity indexed by `{label_axis}`, such as `latent f[{label_axis}](x) ~ ...`"


class IndexNotBound(Mistake, code="E203"):
    """An index variable that nothing gives a value to."""

    index: str
    place: str
    remedy: str
    message: ClassVar = "axis mismatch: the index `{index}` is not on the left side"
    label: ClassVar = "{place}"


class WholeNeeded(Named, code="E203"):
    """`travel_time(depth[layer])`: an external is called once, with everything."""

    message: ClassVar = "axis mismatch: an external takes all of `{name}` at once, not one element at a time"
    label: ClassVar = "no index has a value inside this call"
    help: ClassVar = "write `{name}` without subscripts"


class SubscriptCount(Named, code="E204"):
    """Too many or too few subscripts."""

    expected: str
    given: int
    habit: str = ""
    message: ClassVar = "`{name}` has {expected}, but the number of its subscripts here is {given}"
    label: ClassVar = "{given} given"
    help: ClassVar = "write one subscript per axis, or none for all elements"


class SubscriptOutOfRange(Named, code="E205"):
    """`f[5]` of four, or `a[p-1]` at p = 1."""

    element: str
    why: str
    remedy: str
    message: ClassVar = "`{element}` is outside `{name}`: {why}"
    label: ClassVar = "out of range"


class BadSubscript(Mistake, code="E206"):
    """A subscript that is no subscript."""

    message: ClassVar = "this cannot be a subscript"
    label: ClassVar = "expected an index, a whole number, or an index plus or minus a whole number"
    help: ClassVar = "for example `a[p]`, `a[2]`, `a[p - 1]`; conditions such as `a[p > 1]` only left of `=` in a `let`"


class AmbiguousAxis(Named, code="E220"):
    """Two axes of one quantity that cannot be told apart."""

    axis: str
    size: str
    message: ClassVar = "`{name}` has two axes that cannot be told apart: `{axis}`"
    label: ClassVar = "axes are matched by name or size, so each must differ"
    help: ClassVar = "declare an index for each, `index p in 1..{size}` and `index q in 1..{size}`, and use their names"


class CasesOverlap(Named, code="E221"):
    """Two cases of a `let` that both cover an element."""

    first_line: int
    message: ClassVar = "two cases of `{name}` cover the same elements"
    label: ClassVar = "overlaps with the case on line {first_line}"
    help: ClassVar = "make the conditions exclude each other, for example `{name}[1]` and `{name}[p > 1]`"


class CasesMissing(Named, code="E222"):
    """Elements of a `let` that no case covers."""

    example: str
    message: ClassVar = "the cases of `{name}` leave out `{name}[{example}]`"
    label: ClassVar = "not every element is defined"
    help: ClassVar = "add a case, `let {name}[{example}] = ...`, or widen a condition"


class BadRecursion(Named, code="E223"):
    """A `let` whose element depends on itself."""

    message: ClassVar = "`{name}` is defined by itself without an end"
    label: ClassVar = "not always an earlier element"
    help: ClassVar = (
        "let each element use strictly earlier ones (or strictly later ones) along one index: "
        "`let {name}[1] = ...`, `let {name}[p > 1] = {name}[p-1] + ...`"
    )


class RangeStart(Mistake, code="E224"):
    """An index that does not start at 1."""

    start: str
    message: ClassVar = "an index starts at 1, not at {start}"
    label: ClassVar = "expected 1"
    help: ClassVar = "count from 1, as in `1..4`; for values with a meaning, list them as levels: `in {{4, 7, 9}}`"


class BadLevels(Mistake, code="E225"):
    """Repeated or mixed levels."""

    level: str
    why: str
    message: ClassVar = "the level {level} {why}"
    label: ClassVar = "expected a list of different levels, all numbers or all texts"
    help: ClassVar = 'for example `in {{4, 7, 9}}` or `in {{"benign", "malignant"}}`'


class SizeUnknown(Mistake, code="E226"):
    """A free dimension that no data can bind."""

    dimension: str
    message: ClassVar = "nothing in the data says how large `{dimension}` is"
    label: ClassVar = "free dimension"
    help: ClassVar = "write a number, or use `{dimension}` as a dimension of an input or output too"


class NotASize(Named, code="E227"):
    """A declared name used as a dimension."""

    what: str
    message: ClassVar = "`{name}` is {what}, not a dimension"
    label: ClassVar = "expected a number, an index, or a free letter such as `D`"
    help: ClassVar = "write the number itself, or a letter that is not declared, to be bound by the data"


class PointlessReduction(Mistake, code="E228"):
    """A sum over an index that nothing inside uses."""

    operator: str
    index: str
    message: ClassVar = "nothing inside this `{operator}` varies along `{index}`"
    label: ClassVar = "does not use `{index}`"
    help: ClassVar = "index something inside by `{index}`, or leave out the `{operator}`"


class LabelNeedsIndex(Mistake, code="E229"):
    """`output y : label` without the index of its levels."""

    word: str
    name: str
    kind: str
    message: ClassVar = "`{kind}` needs the index of its levels"
    label: ClassVar = "expected `{kind}[c]` with a declared index"
    help: ClassVar = "declare `index c in 1..C`, as many as the data have, and write `{word} {name} : {kind}[c]`"


class SeveralAxes(Named, code="E270"):
    """`latent f(x)` of an input that is a matrix."""

    axes: str
    remedy: str
    message: ClassVar = "`{name}` has several axes, `{axes}`: a latent is over numbers, or columns of one axis"
    label: ClassVar = "expected one axis at most"


class IndexUnnamed(Named, code="E230"):
    """`let a[1] = ...` alone."""

    index: str
    last: int
    message: ClassVar = "nothing says which index `{name}` runs along"
    label: ClassVar = "a number does not name the index"
    help: ClassVar = (
        "name it in one of the cases: `let {name}[{index} == {last}] = ...`, or `let {name}[{index} > 1] = ...`"
    )
