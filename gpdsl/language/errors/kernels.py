"""E340 to E349, E389: kernels that do not fit the columns of their input, and kernels by formula."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named, OfKernel


class NotAnArgument(Named, code="E340"):
    """`on` reads something that the latent is not a function of."""

    what: str
    latent: str
    arguments: str
    message: ClassVar = "`on` reads `{name}`, which is not an argument of `{latent}`"
    label: ClassVar = "{what}; the arguments are {arguments}"
    help: ClassVar = "a kernel compares the arguments of its latent: select or transform those, or add `{name}` to them"


class WrittenForOneColumn(OfKernel, code="E341"):
    """A formula in `a` and `b` as numbers, for an input of several columns."""

    columns: str
    point: str
    message: ClassVar = "the formula of `{kernel}` has one value per column, but a covariance is one number"
    label: ClassVar = "its input is {columns}"
    help: ClassVar = (
        "sum over the columns, `sum(({point} - b)^2)`, take one of them, `{point}[1]`, or select one: `on = x[1]`"
    )


class NoInputsHere(OfKernel, code="E342"):
    """`on` inside `Patch`."""

    message: ClassVar = "inside `{kernel}` a kernel sees patches of an image, not the inputs"
    label: ClassVar = "no inputs to select from"
    help: ClassVar = "leave `on` out here, or give it to `{kernel}` itself: it then says which columns hold the image"


class OneColumnNeeded(OfKernel, code="E343"):
    """`Coregion` and `ChangePoint` over several columns."""

    columns: str
    example: str
    message: ClassVar = "`{kernel}` looks at one column, but its input is {columns}"
    label: ClassVar = "which column?"
    help: ClassVar = "select it: `{example}`"


class NotAPlainColumn(Mistake, code="E343"):
    """`Coregion` over a computed column."""

    message: ClassVar = "`Coregion` numbers the levels of an input column, and this is computed from it"
    label: ClassVar = "expected an input such as `task`"
    help: ClassVar = "declare `input task : count`, with values from 1, and write `on = task`"


class BadImage(Mistake, code="E344"):
    """`image` and `patch` that are no sizes, or do not fit each other or the input."""

    why: str
    remedy: str
    message: ClassVar = "{why}"
    label: ClassVar = "does not fit"


class ArrayNeeded(Mistake, code="E345"):
    """A kernel parameter that is an array, given with other axes."""

    parameter: str
    kernel: str
    expected: str
    given: str
    example: str
    message: ClassVar = "`{parameter}` of `{kernel}` needs {expected}, and is {given}"
    label: ClassVar = "this is {given}"
    help: ClassVar = "for example `{example}`"


class KernelPoints(Named, code="E346"):
    """A kernel by formula in three points."""

    given: int
    message: ClassVar = "`{name}` is a formula in {given} points; a covariance has two, or their distance"
    label: ClassVar = "expected one or two names before `;`"
    help: ClassVar = (
        "write `kernel {name}(r; ...)` in the distance or `kernel {name}(a, b; ...)` in two points; "
        "parameters stand after `;`"
    )


class KernelLevels(Named, code="E346"):
    """A kernel by formula with one name in brackets, or three."""

    given: str
    message: ClassVar = "`{name}` has {given} in brackets, and each of its two points one value of an index"
    label: ClassVar = "expected two names in brackets"
    help: ClassVar = "write `kernel {name}[d, e](a, b; ...)`: `w[d]` is then that of `a`, and `w[e]` that of `b`"


class LevelNotSeen(OfKernel, code="E389"):
    """`smooth[d, e]` of a latent over no index, or over several."""

    seen: str
    latent: str
    remedy: str
    message: ClassVar = "`{kernel}` compares the values of one index, and sees {seen}"
    label: ClassVar = "in `{latent}`"


class RepeatedName(Named, code="E346"):
    """`kernel k(a, a)`."""

    message: ClassVar = "`{name}` stands twice among the names of this kernel"
    label: ClassVar = "again"
    help: ClassVar = "give each point and parameter its own name"


class VectorInDistance(OfKernel, code="E347"):
    """One length-scale per column in a formula of the distance."""

    parameter: str
    distance: str
    message: ClassVar = (
        "`{parameter}` has one value per column, but `{kernel}` is a formula in one distance `{distance}`"
    )
    label: ClassVar = "one number is needed"
    help: ClassVar = (
        "scale the columns before the distance is taken, `on = x / {parameter}`, or write the formula in two points"
    )


class MustBePositional(OfKernel, code="E348"):
    """`spiral(r = 2)`: a point of a kernel is no argument of its calls."""

    name: str
    signature: str
    message: ClassVar = "`{name}` is what `{kernel}` compares, and is not given in a call"
    label: ClassVar = "filled in with the inputs"
    help: ClassVar = "write `{signature}`; to compare other columns, write `on = ...`"


class BadSlice(Mistake, code="E349"):
    """`x[3..1]`, `x[1..9]` of three columns."""

    why: str
    remedy: str
    message: ClassVar = "{why}"
    label: ClassVar = "not a range of elements"
