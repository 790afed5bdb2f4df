"""E330 to E339, E384: functions and densities by formula, transformed left sides, outputs that read other outputs."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named, OfKernel


class CallsItself(Named, code="E330"):
    """A function that is defined by itself, perhaps through others."""

    path: str
    message: ClassVar = "`{name}` is defined by itself: {path}"
    label: ClassVar = "this call never ends"
    help: ClassVar = "a function is a formula of its arguments; recursion along an index is written with `let`"


class InsideCall(Named, code="E331"):
    """A formula that does not fit the arguments of one call."""

    line: str
    why: str
    remedy: str
    message: ClassVar = "inside `{name}`: {why}"
    label: ClassVar = "with these arguments; `{name}` is defined on line {line}"


class CallsTooDeep(Named, code="E332"):
    """Functions of functions of functions."""

    limit: int
    message: ClassVar = "written out, `{name}` nests more than {limit} operations"
    label: ClassVar = "each call puts its arguments inside a formula"
    help: ClassVar = "give part of it a name, `let part = {name}(...)`, and go on from `part`"


class CallsTooMany(Mistake, code="E333"):
    """Calls that add up to more than can be written out."""

    limit: int
    message: ClassVar = "written out, the calls of this file have more than {limit} terms together"
    label: ClassVar = "calls are written out no further than this"
    help: ClassVar = "compute what is used often once, with `let part = ...`"


class LeftSide(Mistake, code="E334"):
    """A transformed left side that is no function of one output."""

    why: str
    remedy: str
    message: ClassVar = "left of `~` stands a function of one output, but {why}"
    label: ClassVar = "expected one output, transformed: `log(y)`, `(y - m)/s`"


class NotMonotone(Mistake, code="E335"):
    """`y^2 ~ ...` for an output of either sign."""

    output: str
    why: str
    remedy: str
    message: ClassVar = "the left side does not tell `{output}` from its value: {why}"
    label: ClassVar = "not strictly increasing or decreasing in `{output}`"


class NotDefinedEverywhere(Mistake, code="E336"):
    """`log(y)` for a real output."""

    operator: str
    output: str
    kind: str
    line: int
    needs: str
    remedy: str
    message: ClassVar = "`{operator}` needs {needs}, but `{output}` is `{kind}`"
    label: ClassVar = "not defined for every value of `{output}`, declared on line {line}"


class OutputCycle(Named, code="E337"):
    """An output that depends on itself."""

    path: str
    message: ClassVar = "`{name}` depends on itself: {path}"
    label: ClassVar = "no order in which these can be drawn"
    help: ClassVar = (
        "let each output use others only, or strictly earlier elements of its own along one index: "
        "`{name}[1] ~ ...`, `{name}[p > 1] ~ Normal({name}[p-1] + ..., s)`"
    )


class NotObservedElements(Named, code="E338"):
    """Elements of an output that no line observes, although others do under conditions."""

    example: str
    message: ClassVar = "the observations of `{name}` leave out `{name}[{example}]`"
    label: ClassVar = "this condition leaves elements out"
    help: ClassVar = "add a line for them, `{name}[{example}] ~ ...`, or widen a condition"


class CountTransformed(Mistake, code="E339"):
    """`log(n) ~ Normal(...)` for a count."""

    output: str
    kind: str
    line: int
    message: ClassVar = "only real and positive outputs can be transformed, but `{output}` is `{kind}`"
    label: ClassVar = "`{output}` is declared `{kind}` on line {line}"
    help: ClassVar = "observe it as it is, `{output} ~ ...`, with a distribution for {kind} outputs"


class NotReached(Mistake, code="E384"):
    """`sqrt(y) ~ Normal(...)`: probability where no value of the output leads."""

    shown: str
    reached: str
    distribution: str
    allowed: str
    output: str
    remedy: str
    message: ClassVar = (
        "`{shown}` has values {reached} only, but `{distribution}` has probability {allowed}: no density of `{output}`"
    )
    label: ClassVar = "{reached}, whatever `{output}` is"


# E360 to E369: distributions made of others, levels and vectors, and the constraints of parameters.


class BadCutpoints(Mistake, code="E360"):
    """Cutpoints of an Ordinal that do not fit its levels."""

    output: str
    levels: str
    expected: str
    given: str
    declaration: str
    message: ClassVar = "`{output}` has {levels} levels, so its cutpoints are {expected}, not {given}"
    label: ClassVar = "{given} here"
    help: ClassVar = "between two neighbouring levels lies one cutpoint: `param cut : {declaration}`"


class NotAComponent(Named, code="E361"):
    """Something other than a distribution inside `Mixture`, `Truncated` or `Censored`."""

    given: str
    form: str
    suggestion: str = ""
    message: ClassVar = "`{name}` is made of distributions, and {given} is none"
    label: ClassVar = "expected a distribution with its arguments"
    help: ClassVar = "write `{form}`"


class NotAWholeVector(Named, code="E362"):
    """A multivariate distribution for something other than a whole output with one index."""

    given: str
    message: ClassVar = "`{name}` describes all elements of an output with one index, not {given}"
    label: ClassVar = "expected an output such as `output y[p] : real`"
    help: ClassVar = "observe the whole output, `y ~ {name}(...)`, or use `Normal` for numbers on their own"


class CannotBound(Named, code="E363"):
    """A distribution that cannot be truncated or censored."""

    component: str
    known: str
    message: ClassVar = "`{component}` cannot stand inside `{name}`"
    label: ClassVar = "no differentiable distribution function"
    help: ClassVar = "`{name}` takes one of {known}"


class BadWeights(Mistake, code="E364"):
    """Weights of a mixture that do not fit its components."""

    problem: str
    found: str
    remedy: str
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"


class BoundsOrder(Mistake, code="E365"):
    """A lower bound that is not below the upper one."""

    what: str
    lower: str
    upper: str
    message: ClassVar = "nothing lies between the bounds of {what}: {lower} is not below {upper}"
    label: ClassVar = "lower = {lower}, upper = {upper}"
    help: ClassVar = "write the smaller number as `lower`"


class OutsideConstraint(Named, code="E366"):
    """An initial value that breaks the constraint of its parameter."""

    rule: str
    found: str
    remedy: str
    message: ClassVar = "the initial value of `{name}` {rule}"
    label: ClassVar = "{found}"


class PriorElsewhere(Mistake, code="E367"):
    """A prior whose values are not those the parameter can have."""

    prior: str
    values: str
    name: str
    constraint: str
    remedy: str
    message: ClassVar = "`{prior}` describes {values}, but `{name}` is {constraint}"
    label: ClassVar = "cannot be the prior of `{name}`"


class BadMatrix(Mistake, code="E368"):
    """A covariance or factor with the wrong indices."""

    argument: str
    output: str
    expected: str
    given: str
    message: ClassVar = "`{argument}` of `MultivariateNormal` for `{output}` needs {expected}"
    label: ClassVar = "{given} here"
    help: ClassVar = "declare a second index, such as `index q in 1..3`, and the matrix as `const S[p, q] = ...`"


class BadType(Mistake, code="E369"):
    """A type with bounds it cannot have, or without the axis it needs."""

    problem: str
    found: str
    remedy: str
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"


# E340 to E349, E389: kernels that do not fit the columns of their input, and kernels by formula.


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
