"""The types of the options of a fit, for editors and type checkers; `options` tells what they mean, and checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Literal, TypedDict, TypeVar


class FitOptions(TypedDict, total=False):
    """Options of `Model.fit` and `Model.explain`. None stands for the default: mostly, that the plan decides."""

    posterior: str | None
    inducing: int | str | Mapping[str, int | str] | None
    learn_inducing: bool | None
    inducing_start: Literal["auto", "kmeans", "greedy"] | None
    expectations: Literal["auto", "closed", "quadrature", "sampled"] | None
    samples: int | None
    sampling: Literal["qmc", "antithetic", "iid"] | None
    gradients: Literal["auto", "pathwise", "score"] | None
    control_variate: Literal["regression", "constant", "none"] | None
    optimizer: Literal["auto", "natural", "lbfgs", "adam", "adadelta"] | None
    schedule: Literal["joint", "alternating"] | None
    batch: int | None
    steps: int | None
    evaluations: int | None
    tolerance: float | None
    learning_rate: float | None
    decay: float | None
    epsilon: float | None
    power: float | None
    features: int | None
    chevron: int | None
    feature_batch: int | None
    support: int | None
    feature_sums: Literal["auto", "running", "sampled"] | None
    basis: Literal["auto", "fourier", "inducing", "relevance"] | None
    start_rows: int | None
    seed: int | None
    dtype: Literal["float64", "float32"] | None
    engine: str | None
    hyperparameters: Literal["point", "integrated"] | None
    parameters: Literal["point", "gaussian"] | None
    diagnose: Literal["auto", "no", "full"] | None
    chains: int | None
    draws: int | None
    warm_up: int | None
    temperatures: int | None
    device: str | None
    devices: int | None
    entropy: Literal["pairwise", "jensen"] | None
    importance: int | None
    rows: str | None
    beta: float | None
    fixed: Sequence[str] | None
    init: Mapping[str, Any] | None


Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(function: Function) -> Function:
    """`function`, whose `**options` are spelt out in its signature: what notebooks complete, and `help` shows."""
    own = signature(function)
    parameters = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    options = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
        for name, kind in FitOptions.__annotations__.items()
    )
    function.__signature__ = own.replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
    return function
