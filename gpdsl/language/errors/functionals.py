"""E350 to E359: latents at other inputs, their derivatives, row variables, and latents over latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class NotAPoint(Mistake):
    """`f(a)` where `a` is not a declared input."""

    latent: str
    argument: str
    declared: str
    suggestion: str = ""
    code: ClassVar = "E350"
    message: ClassVar = "`{latent}` can be taken at a declared input, and this is not one"
    label: ClassVar = "expected the name of an input shaped like `{argument}`"
    help: ClassVar = "declare the other point, `input {argument}2 : {declared}`, and write `{latent}({argument}2)`"


@dataclass(frozen=True)
class WrongShape(Mistake):
    """`f(a)` where `a` has other columns than the latent's own argument."""

    latent: str
    name: str
    shape: str
    argument: str
    wanted: str
    code: ClassVar = "E351"
    message: ClassVar = "`{latent}` is a function of `{argument} : {wanted}`, but `{name}` is `{shape}`"
    label: ClassVar = "another shape than `{argument}`"
    help: ClassVar = "declare `input {name} : {wanted}`"


@dataclass(frozen=True)
class NotALatent(Mistake):
    """`D(y, x)` where `y` is not a latent."""

    what: str
    latents: str
    code: ClassVar = "E352"
    message: ClassVar = "`D` differentiates a latent, and this is {what}"
    label: ClassVar = "expected a latent"
    help: ClassVar = "write `D(f, x)` with the name of a latent{latents}; that of a formula follows by the chain rule"


@dataclass(frozen=True)
class NotADirection(Mistake):
    """`D(f, z)` where `f` is not a function of `z`."""

    latent: str
    arguments: str
    example: str
    code: ClassVar = "E353"
    message: ClassVar = "`{latent}` can be differentiated along {arguments}, not along this"
    label: ClassVar = "not an argument of `{latent}` here"
    help: ClassVar = "write `{example}`"


@dataclass(frozen=True)
class WrongColumn(Mistake):
    """`D(f, x)` for an input of several columns, `D(f, x[9])` for one of three."""

    name: str
    shape: str
    remedy: str
    code: ClassVar = "E354"
    message: ClassVar = "a derivative is along one column, and `{name}` is `{shape}`"
    label: ClassVar = "which column?"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class TooRough(Mistake):
    """The derivative of a process that has none."""

    latent: str
    kernel: str
    line: int
    why: str
    remedy: str
    code: ClassVar = "E355"
    message: ClassVar = "`{latent}` has no such derivative: {why}"
    label: ClassVar = "the kernel of `{latent}` is `{kernel}`, line {line}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class LatentCycle(Mistake):
    """Latents that are functions of each other."""

    name: str
    cycle: str
    code: ClassVar = "E356"
    message: ClassVar = "latent `{name}` is a function of itself"
    label: ClassVar = "{cycle}"
    help: ClassVar = "start from an input: `latent f(x) ~ ...`, then `latent g(f) ~ ...`"


@dataclass(frozen=True)
class RowNotNormal(Mistake):
    """`row w ~ Gamma(1, 1)`."""

    name: str
    code: ClassVar = "E357"
    message: ClassVar = "a row variable is Normal"
    label: ClassVar = "expected `Normal(mean, sd)`"
    help: ClassVar = (
        "write `row {name} ~ Normal(0, 1)` and transform it: `let g = exp({name})` is positive, "
        "`sigmoid({name})` is between 0 and 1"
    )


@dataclass(frozen=True)
class InnerLayer(Mistake):
    """`f(a)` or `D(f, x)` of a latent over other latents or row variables."""

    latent: str
    argument: str
    what: str
    code: ClassVar = "E358"
    message: ClassVar = "`{latent}` is a function of `{argument}`, {what}, and known only at the row's own value of it"
    label: ClassVar = "not possible for this latent"
    help: ClassVar = "write `{latent}`; `f(a)` and `D(f, x)` are for latents over inputs"


@dataclass(frozen=True)
class TooManyReadings(Mistake):
    """More points and derivatives of one latent than can be held together."""

    latent: str
    limit: int
    code: ClassVar = "E359"
    message: ClassVar = "`{latent}` is read in more than {limit} ways"
    label: ClassVar = "one more point or derivative"
    help: ClassVar = "put the points into rows of the data instead of columns, and observe `{latent}` once per row"
