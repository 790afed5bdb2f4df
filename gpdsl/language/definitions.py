"""Declarations of what is called (functions, kernels and densities by formula, opaque functions), and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gpdsl.language.expressions import Axis, Expression
from gpdsl.language.source import Span


@dataclass(frozen=True)
class Declaration:
    """A declared name and where."""

    name: str
    span: Span


@dataclass(frozen=True)
class Function(Declaration):
    """`function t(y; a, b) = ...`: `arguments` and then the `parameters`, which default to quantities of that name.

    `body` is the formula, its arguments as `Local`; calls hold their own copy with the values put in.
    """

    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True)
class KernelDefinition(Function):
    """`kernel spiral(r; ell, p) = ...`: `arguments` are the distance, or two points."""


@dataclass(frozen=True)
class Density(Function):
    """`density huber(y | mu, s) = ...`: the log density of `observed` given the arguments."""

    observed: str = ""


@dataclass(frozen=True)
class ExternalArgument:
    """An argument of an external: its name and the dimensions it is passed with."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class External(Declaration):
    """`external g(a: real[4], b: real) -> real[4]`."""

    arguments: tuple[ExternalArgument, ...]
    result: tuple[Axis, ...]


@dataclass(frozen=True)
class ExternalLikelihood(Declaration):
    """`external likelihood g(y: real[4] | a: real[4])`; `observed` names the arguments left of the bar."""

    observed: tuple[ExternalArgument, ...]
    arguments: tuple[ExternalArgument, ...]


@dataclass(frozen=True)
class Infer:
    """Defaults for inference: `posterior = mixture(2), inducing = 100, samples = 100` as `fit` takes them.

    A posterior with a number is text, `"mixture(2)"`; `fixed` holds names, `init` values by name.
    """

    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
