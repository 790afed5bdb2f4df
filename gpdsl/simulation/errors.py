"""D132 to D139: why nothing can be drawn from a model, or why what was asked for makes no sense."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.data.errors import DataMistake


class OpaqueDensity(DataMistake, code="D132"):
    """An output with an external likelihood."""

    name: str
    likelihood: str
    message: ClassVar = (
        "`{name}` cannot be simulated: `{likelihood}` is an external likelihood, which gives densities, not draws"
    )
    help: ClassVar = (
        "to simulate, write the model with an `external` forward model and a distribution of the language: "
        "`{name} ~ Normal(g(...), sigma)`"
    )


class TooManyPoints(DataMistake, code="D133"):
    """More rows than a joint draw of a latent can take."""

    latent: str
    points: int
    limit: int
    message: ClassVar = "`{latent}` would be drawn jointly at {points} points; at most {limit} are possible"
    help: ClassVar = "simulate fewer rows: a joint draw factorises a covariance matrix of all rows"


class NotPositiveDefinite(DataMistake, code="D134"):
    """A covariance matrix that has no factor."""

    latent: str
    message: ClassVar = "the covariance of `{latent}` at these inputs is not finite and positive definite"
    help: ClassVar = (
        "check its kernel: is the formula a covariance function, is it finite for these inputs, are the parameters "
        "sensible?"
    )


class ImpossibleArgument(DataMistake, code="D135"):
    """An argument of a distribution outside its domain."""

    name: str
    distribution: str
    arguments: str
    row: int
    message: ClassVar = "`{name}` cannot be drawn in row {row}: `{distribution}` has {arguments} there"
    help: ClassVar = (
        "a latent takes any real value: give positive arguments as `exp(...)` or `softplus(...)`, probabilities as "
        "`logit = ...`; or start from other parameters"
    )


class NoValue(DataMistake, code="D136"):
    """A formula of a density, or a transformed left side, that no value of the output satisfies."""

    name: str
    what: str
    row: int
    message: ClassVar = "no value of `{name}` was found in row {row}: {what}"
    help: ClassVar = "check the formula for this output's values, and the parameters it starts from"


class UnknownRequest(DataMistake, code="D137"):
    """A name passed to `simulate` that the model does not have."""

    what: str
    name: str
    names: str
    suggestion: str = ""
    suggested_help: ClassVar = "did you mean `{suggestion}`? it has {names}"
    message: ClassVar = "the model has no {what} `{name}`"
    help: ClassVar = "it has {names}"


class WrongRequest(DataMistake, code="D138"):
    """A value passed to `simulate` that does not fit."""

    what: str
    found: str
    expected: str
    message: ClassVar = "{what} is {found}, expected {expected}"
    help: ClassVar = "change it, or leave it out for the default"


class TooLarge(DataMistake, code="D139"):
    """A model too large to write out row by row."""

    limit: int
    message: ClassVar = "written out, the model has more than {limit} operations per row"
    help: ClassVar = "shorten its indices, or simulate a smaller version of it"
