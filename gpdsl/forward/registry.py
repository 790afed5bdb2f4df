"""The registry of opaque functions: names to functions, and which of them a model means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpdsl.forward.errors import (
    ForwardModelError,
    GradientGiven,
    NotAName,
    NotCallable,
    NotRegistered,
    UnknownExternal,
    WorkersNotPositive,
    WrongSort,
)
from gpdsl.language.model import Declarations

Function = Callable[..., Any]
FORWARD = "forward model"
LIKELIHOOD = "likelihood"
REGISTER = {FORWARD: "register_forward_model", LIKELIHOOD: "register_likelihood"}


@dataclass(frozen=True)
class ForwardModel:
    """An opaque function and how to call it.

    `sort` is "forward model" (returns [rows, *dims]) or "likelihood" (returns log densities [rows]). With `vectorized`
    the function takes arrays [rows, *dims]; without, the values of one row, in `workers` threads. `arguments` are the
    names the model gives its arguments, filled in by `resolve`.
    """

    name: str
    function: Function
    sort: str = FORWARD
    vectorized: bool = True
    workers: int = 1
    arguments: tuple[str, ...] = ()


_REGISTERED: dict[str, ForwardModel] = {}


def register_forward_model(
    name: str, function: Function, *, vectorized: bool = True, gradient: object = None, workers: int = 1
) -> ForwardModel:
    """Make `function` the external `name` of models, for this process; a second registration replaces the first.

    It is called with NumPy arrays [rows, *dims] in declared order and returns [rows, *dims of the result]; with
    `vectorized=False` with the values of one row, in up to `workers` threads. Raises ForwardModelError for what is no
    function or name, and for a `gradient`: gradients are estimated from values, by score functions.
    """
    if gradient is not None:
        raise ForwardModelError(GradientGiven(str(name)))
    return _register(ForwardModel(name, function, FORWARD, vectorized, workers))


def register_likelihood(name: str, log_density: Function, *, vectorized: bool = True, workers: int = 1) -> ForwardModel:
    """Make `log_density` the external likelihood `name` of models; a second registration replaces the first.

    It is called with the observed arguments and then the others, as declared, and returns log densities [rows] (one
    number with `vectorized=False`), all finite. Raises ForwardModelError for what is no function or name.
    """
    return _register(ForwardModel(name, log_density, LIKELIHOOD, vectorized, workers))


def _register(model: ForwardModel) -> ForwardModel:
    _check(model)
    _REGISTERED[model.name] = model
    return model


def _check(model: ForwardModel) -> None:
    if not isinstance(model.name, str) or not model.name.isidentifier():
        raise ForwardModelError(NotAName(str(model.name)))
    if not callable(model.function):
        raise ForwardModelError(NotCallable(model.name, type(model.function).__name__))
    if not isinstance(model.workers, int) or model.workers < 1:
        raise ForwardModelError(WorkersNotPositive(model.name, str(model.workers)))


def resolve(
    declarations: Declarations, externals: Mapping[str, Function | ForwardModel] | None = None
) -> dict[str, ForwardModel]:
    """The function of every external the model declares: passed in, else registered; nothing else is looked at.

    Raises ForwardModelError for one that is neither, for the wrong sort, and for a name the model does not declare.
    """
    wanted: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, external in declarations.externals.items():
        wanted[name] = FORWARD, tuple(each.name for each in external.arguments)
    for name, likelihood in declarations.likelihoods.items():
        wanted[name] = LIKELIHOOD, tuple(each.name for each in (*likelihood.observed, *likelihood.arguments))
    passed = dict(externals or {})
    for name in passed:
        if name not in wanted:
            declared = ", ".join(f"`{each}`" for each in wanted) or "none"
            raise ForwardModelError(UnknownExternal(str(name), declared))
    return {name: _resolved(name, sort, names, passed) for name, (sort, names) in wanted.items()}


def _resolved(
    name: str, sort: str, arguments: tuple[str, ...], passed: Mapping[str, Function | ForwardModel]
) -> ForwardModel:
    given = passed.get(name, _REGISTERED.get(name))
    if given is None:
        known = ", ".join(f"`{each}`" for each in _REGISTERED) or "none is registered"
        raise ForwardModelError(NotRegistered(name, REGISTER[sort], known))
    model = given if isinstance(given, ForwardModel) else ForwardModel(name, given, sort)
    _check(model)
    if model.sort != sort:
        raise ForwardModelError(WrongSort(name, model.sort, sort, REGISTER[sort]))
    return replace(model, name=name, arguments=arguments)
