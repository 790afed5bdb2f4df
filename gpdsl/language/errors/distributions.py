"""E360 to E369: distributions made of others, levels and vectors, and the constraints of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class NotAWholeVector(Mistake):
    """A multivariate distribution for something other than a whole output with one index."""

    name: str
    given: str
    code: ClassVar = "E362"
    message: ClassVar = "`{name}` describes all elements of an output with one index, not {given}"
    label: ClassVar = "expected an output such as `output y[p] : real`"
    help: ClassVar = "observe the whole output, `y ~ {name}(...)`, or use `Normal` for numbers on their own"


@dataclass(frozen=True)
class CannotBound(Mistake):
    """A distribution that cannot be truncated or censored."""

    name: str
    component: str
    known: str
    code: ClassVar = "E363"
    message: ClassVar = "`{component}` cannot stand inside `{name}`"
    label: ClassVar = "no differentiable distribution function"
    help: ClassVar = "`{name}` takes one of {known}"


@dataclass(frozen=True)
class BadWeights(Mistake):
    """Weights of a mixture that do not fit its components."""

    problem: str
    found: str
    remedy: str
    code: ClassVar = "E364"
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class BoundsOrder(Mistake):
    """A lower bound that is not below the upper one."""

    what: str
    lower: str
    upper: str
    code: ClassVar = "E365"
    message: ClassVar = "nothing lies between the bounds of {what}: {lower} is not below {upper}"
    label: ClassVar = "lower = {lower}, upper = {upper}"
    help: ClassVar = "write the smaller number as `lower`"


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class BadType(Mistake):
    """A type with bounds it cannot have, or without the axis it needs."""

    problem: str
    found: str
    remedy: str
    code: ClassVar = "E369"
    message: ClassVar = "{problem}"
    label: ClassVar = "{found}"
    help: ClassVar = "{remedy}"
