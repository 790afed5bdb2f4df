"""E330 to E339, E384: functions and densities by formula, transformed left sides, outputs that read other outputs."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake


class CallsItself(Mistake):
    """A function that is defined by itself, perhaps through others."""

    name: str
    path: str
    code: ClassVar = "E330"
    message: ClassVar = "`{name}` is defined by itself: {path}"
    label: ClassVar = "this call never ends"
    help: ClassVar = "a function is a formula of its arguments; recursion along an index is written with `let`"


class InsideCall(Mistake):
    """A formula that does not fit the arguments of one call."""

    name: str
    line: str
    why: str
    remedy: str
    code: ClassVar = "E331"
    message: ClassVar = "inside `{name}`: {why}"
    label: ClassVar = "with these arguments; `{name}` is defined on line {line}"
    help: ClassVar = "{remedy}"


class CallsTooDeep(Mistake):
    """Functions of functions of functions."""

    name: str
    limit: int
    code: ClassVar = "E332"
    message: ClassVar = "written out, `{name}` nests more than {limit} operations"
    label: ClassVar = "each call puts its arguments inside a formula"
    help: ClassVar = "give part of it a name, `let part = {name}(...)`, and go on from `part`"


class CallsTooMany(Mistake):
    """Calls that add up to more than can be written out."""

    limit: int
    code: ClassVar = "E333"
    message: ClassVar = "written out, the calls of this file have more than {limit} terms together"
    label: ClassVar = "calls are written out no further than this"
    help: ClassVar = "compute what is used often once, with `let part = ...`"


class LeftSide(Mistake):
    """A transformed left side that is no function of one output."""

    why: str
    remedy: str
    code: ClassVar = "E334"
    message: ClassVar = "left of `~` stands a function of one output, but {why}"
    label: ClassVar = "expected one output, transformed: `log(y)`, `(y - m)/s`"
    help: ClassVar = "{remedy}"


class NotMonotone(Mistake):
    """`y^2 ~ ...` for an output of either sign."""

    output: str
    why: str
    remedy: str
    code: ClassVar = "E335"
    message: ClassVar = "the left side does not tell `{output}` from its value: {why}"
    label: ClassVar = "not strictly increasing or decreasing in `{output}`"
    help: ClassVar = "{remedy}"


class NotDefinedEverywhere(Mistake):
    """`log(y)` for a real output."""

    operator: str
    output: str
    kind: str
    line: int
    needs: str
    remedy: str
    code: ClassVar = "E336"
    message: ClassVar = "`{operator}` needs {needs}, but `{output}` is `{kind}`"
    label: ClassVar = "not defined for every value of `{output}`, declared on line {line}"
    help: ClassVar = "{remedy}"


class OutputCycle(Mistake):
    """An output that depends on itself."""

    name: str
    path: str
    code: ClassVar = "E337"
    message: ClassVar = "`{name}` depends on itself: {path}"
    label: ClassVar = "no order in which these can be drawn"
    help: ClassVar = (
        "let each output use others only, or strictly earlier elements of its own along one index: "
        "`{name}[1] ~ ...`, `{name}[p > 1] ~ Normal({name}[p-1] + ..., s)`"
    )


class NotObservedElements(Mistake):
    """Elements of an output that no line observes, although others do under conditions."""

    name: str
    example: str
    code: ClassVar = "E338"
    message: ClassVar = "the observations of `{name}` leave out `{name}[{example}]`"
    label: ClassVar = "this condition leaves elements out"
    help: ClassVar = "add a line for them, `{name}[{example}] ~ ...`, or widen a condition"


class CountTransformed(Mistake):
    """`log(n) ~ Normal(...)` for a count."""

    output: str
    kind: str
    line: int
    code: ClassVar = "E339"
    message: ClassVar = "only real and positive outputs can be transformed, but `{output}` is `{kind}`"
    label: ClassVar = "`{output}` is declared `{kind}` on line {line}"
    help: ClassVar = "observe it as it is, `{output} ~ ...`, with a distribution for {kind} outputs"


class NotReached(Mistake):
    """`sqrt(y) ~ Normal(...)`: probability where no value of the output leads."""

    shown: str
    reached: str
    distribution: str
    allowed: str
    output: str
    remedy: str
    code: ClassVar = "E384"
    message: ClassVar = (
        "`{shown}` has values {reached} only, but `{distribution}` has probability {allowed}: no density of `{output}`"
    )
    label: ClassVar = "{reached}, whatever `{output}` is"
    help: ClassVar = "{remedy}"


# E360 to E369: distributions made of others, levels and vectors, and the constraints of parameters.


class BadCutpoints(Mistake):
    """Cutpoints of an Ordinal that do not fit its levels."""

    output: str
    levels: str
    expected: str
    given: str
    declaration: str
    code: ClassVar = "E360"
    message: ClassVar = "`{output}` has {levels} levels, so its cutpoints are {expected}, not {given}"
    label: ClassVar = "{given} here"
    help: ClassVar = "between two neighbouring levels lies one cutpoint: `param cut : {declaration}`"


class NotAComponent(Mistake):
    """Something other than a distribution inside `Mixture`, `Truncated` or `Censored`."""

    name: str
    given: str
    form: str
    suggestion: str = ""
    code: ClassVar = "E361"
    message: ClassVar = "`{name}` is made of distributions, and {given} is none"
    label: ClassVar = "expected a distribution with its arguments"
    help: ClassVar = "write `{form}`"


class NotAWholeVector(Mistake):
    """A multivariate distribution for something other than a whole output with one index."""

    name: str
    given: str
    code: ClassVar = "E362"
    message: ClassVar = "`{name}` describes all elements of an output with one index, not {given}"
    label: ClassVar = "expected an output such as `output y[p] : real`"
    help: ClassVar = "observe the whole output, `y ~ {name}(...)`, or use `Normal` for numbers on their own"


class CannotBound(Mistake):
    """A distribution that cannot be truncated or censored."""

    name: str
    component: str
    known: str
    code: ClassVar = "E363"
    message: ClassVar = "`{component}` cannot stand inside `{name}`"
    label: ClassVar = "no differentiable distribution function"
    help: ClassVar = "`{name}` takes one of {known}"


class BadWeights(Mistake):
    """Weights of a mixture that do not fit its components."""

    problem: str
    found: str
    remedy: str
    code: ClassVar = "E364"
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"
    help: ClassVar = "{remedy}"


class BoundsOrder(Mistake):
    """A lower bound that is not below the upper one."""

    what: str
    lower: str
    upper: str
    code: ClassVar = "E365"
    message: ClassVar = "nothing lies between the bounds of {what}: {lower} is not below {upper}"
    label: ClassVar = "lower = {lower}, upper = {upper}"
    help: ClassVar = "write the smaller number as `lower`"


class OutsideConstraint(Mistake):
    """An initial value that breaks the constraint of its parameter."""

    name: str
    rule: str
    found: str
    remedy: str
    code: ClassVar = "E366"
    message: ClassVar = "the initial value of `{name}` {rule}"
    label: ClassVar = "{found}"
    help: ClassVar = "{remedy}"


class PriorElsewhere(Mistake):
    """A prior whose values are not those the parameter can have."""

    prior: str
    values: str
    name: str
    constraint: str
    remedy: str
    code: ClassVar = "E367"
    message: ClassVar = "`{prior}` describes {values}, but `{name}` is {constraint}"
    label: ClassVar = "cannot be the prior of `{name}`"
    help: ClassVar = "{remedy}"


class BadMatrix(Mistake):
    """A covariance or factor with the wrong indices."""

    argument: str
    output: str
    expected: str
    given: str
    code: ClassVar = "E368"
    message: ClassVar = "`{argument}` of `MultivariateNormal` for `{output}` needs {expected}"
    label: ClassVar = "{given} here"
    help: ClassVar = "declare a second index, such as `index q in 1..3`, and the matrix as `const S[p, q] = ...`"


class BadType(Mistake):
    """A type with bounds it cannot have, or without the axis it needs."""

    problem: str
    found: str
    remedy: str
    code: ClassVar = "E369"
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"
    help: ClassVar = "{remedy}"
