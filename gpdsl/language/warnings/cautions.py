"""W600 to W639: what a pedantic reader says about a model, as values like the errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class Caution(Mistake):
    """A mistake that does not keep a model from being fitted."""

    severity: ClassVar[str] = "warning"


@dataclass(frozen=True)
class Unused(Caution):
    """A name that nothing uses."""

    name: str
    what: str
    code: ClassVar = "W600"
    message: ClassVar = "{what} `{name}` is never used"
    label: ClassVar = "nothing in this file reads it"
    help: ClassVar = "remove it, or use it where it was meant to stand"


@dataclass(frozen=True)
class Unobserved(Caution):
    """A latent or parameter that data say nothing about."""

    name: str
    what: str
    consequence: str
    code: ClassVar = "W601"
    message: ClassVar = "no observation depends on {what} `{name}`"
    label: ClassVar = "{consequence}"
    help: ClassVar = "use it in an observation `y ~ ...`, or in a `let` that an observation reads"


@dataclass(frozen=True)
class OnlyProduct(Caution):
    """Two scales that always multiply each other."""

    first: str
    second: str
    together: str
    code: ClassVar = "W610"
    message: ClassVar = "`{first}` and `{second}` cannot both be learnt: they occur only as {together}"
    label: ClassVar = "a larger `{first}` is undone by `{second}`"
    help: ClassVar = "remove one, fix one (`param {second} : ... = 1 fixed`), or give one a prior"


@dataclass(frozen=True)
class OnlySum(Caution):
    """Two offsets that always stand in the same sum."""

    first: str
    second: str
    together: str
    code: ClassVar = "W611"
    message: ClassVar = "`{first}` and `{second}` cannot both be learnt: they occur only as {together}"
    label: ClassVar = "what is added to `{first}` is undone by `{second}`"
    help: ClassVar = "remove one, fix one (`param {second} : ... = 0 fixed`), or give one a prior"


@dataclass(frozen=True)
class Absorbed(Caution):
    """A factor or offset of a latent that the latent's own variance or mean takes up."""

    name: str
    inner: str
    latent: str
    part: str
    code: ClassVar = "W612"
    message: ClassVar = "`{name}` and `{inner}` cannot both be learnt: `{inner}` is the {part} of `{latent}`"
    label: ClassVar = "`{latent}` never occurs without `{name}`, so that the {part} can do the same"
    help: ClassVar = "keep only one of them, or give one a prior"


@dataclass(frozen=True)
class NotKeptInside(Caution):
    """A latent where a distribution needs a positive number or a probability."""

    parameter: str
    distribution: str
    domain: str
    remedy: str
    code: ClassVar = "W621"
    message: ClassVar = "`{parameter}` of `{distribution}` must be {domain}, but a latent takes every real value"
    label: ClassVar = "nothing keeps this {domain}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class ScaleFarFromData(Caution):
    """A length-scale that has nothing to do with the spread of the input."""

    name: str
    scale: str
    spread: str
    consequence: str
    remedy: str
    code: ClassVar = "W622"
    message: ClassVar = "the length-scale starts at {scale}, but the standard deviation of `{name}` is {spread}"
    label: ClassVar = "{consequence}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class ImprobableStart(Caution):
    """An initial value that the prior hardly allows."""

    name: str
    value: str
    low: str
    high: str
    remedy: str
    code: ClassVar = "W630"
    message: ClassVar = "`{name}` starts at {value}, where its prior has almost no probability"
    label: ClassVar = "99.9 % of this prior lie between {low} and {high}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class PriorOutside(Caution):
    """A prior with probability where the parameter cannot be."""

    name: str
    constraint: str
    percent: str
    remedy: str
    code: ClassVar = "W631"
    message: ClassVar = "{percent} % of this prior lie where `{name}` cannot be: it is {constraint}"
    label: ClassVar = "the density is not normalised over the values that remain"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class UnboundedPrior(Caution):
    """A prior whose density is infinite somewhere the parameter can go."""

    name: str
    prior: str
    where: str
    remedy: str
    code: ClassVar = "W632"
    message: ClassVar = "the density of this prior is infinite where `{name}` {where}"
    label: ClassVar = "a fit maximises the density, and may end there whatever the data say"
    help: ClassVar = "{remedy}"
