"""The registry of opaque functions: names to functions, how they are called, and which of them a model means."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np

from gpdsl.errors import plural
from gpdsl.forward import errors
from gpdsl.forward.accounting import Accounting
from gpdsl.forward.backends import Here, backend_of
from gpdsl.forward.errors import BadTimeout
from gpdsl.forward.fingerprint import fingerprint
from gpdsl.forward.work import Backend, Job
from gpdsl.language.calls import answering

if TYPE_CHECKING:
    from pathlib import Path

    from gpdsl.language.model import Declarations


# What happens to a row without a usable value: raise an error, penalise it, or try again first.

OTHERWISE = ("raise", "penalise")


@dataclass(frozen=True)
class Policy:
    """`attempts` further attempts, and then `otherwise`: an error, or a penalty.

    A penalised evaluation counts, in the fit, as the worst log likelihood among the samples of its row: the posterior
    is pushed away from where the function fails. Predictions leave such evaluations out.
    """

    attempts: int = 0
    otherwise: str = "raise"

    @property
    def penalises(self) -> bool:
        """Whether rows may go on without a value."""
        return self.otherwise == "penalise"


@answering
def retry(attempts: int, otherwise: str = "raise") -> Policy:
    """The policy that calls the function up to `attempts` more times for a row that failed, for failures by chance.

    `otherwise` is what happens to a row that still fails: `raise` or `penalise`. Raises ForwardModelError for others.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1 or otherwise not in OTHERWISE:
        raise errors.ForwardModelError(errors.UnknownPolicy("retry", f"retry({attempts!r}, {otherwise!r})"))
    return Policy(attempts, otherwise)


Function = Callable[..., Any]
FORWARD = "forward model"
LIKELIHOOD = "likelihood"
EITHER = "either"
REGISTER = {FORWARD: "register_forward_model", LIKELIHOOD: "register_likelihood"}


@dataclass(frozen=True)
class ForwardModel:
    """An opaque function and how to call it.

    `sort` is "forward model" (returns [rows, *dims]) or "likelihood" (returns log densities [rows]), or "either" until
    a model says which. With `vectorized` the function takes arrays [rows, *dims]; without, the values of one row.
    `executor` runs it, with `workers` of them; `policy` says what happens to rows that fail, `timeout` how many seconds
    a call may take, `cache` which file keeps its values. `arguments` are the names the model gives its arguments,
    filled in by `resolve`; `account` counts what it costs. `flat`: results are vectors, to be read in declared shape.
    `gradient` is its vector-Jacobian product, described in `How`; `mark` tells it from others in its cache.
    """

    name: str
    function: Function
    sort: str = FORWARD
    vectorized: bool = True
    workers: int | None = None
    arguments: tuple[str, ...] = ()
    executor: object = None
    policy: object = "raise"
    timeout: float | None = None
    cache: str | Path | None = None
    flat: bool = False
    gradient: Function | None = None
    mark: str = ""
    account: Accounting = field(default_factory=Accounting, compare=False)

    @property
    def backend(self) -> Backend:
        """What runs the function. A registered one has it already, and keeps it: workers outlive a call."""
        executor = self.executor
        return executor if isinstance(executor, Backend) else backend_of(self.name, executor, self.workers)

    @property
    def failures(self) -> Policy:
        """What happens to rows that fail."""
        match self.policy:
            case Policy():
                return self.policy
            case str("raise" | "penalise"):
                return Policy(0, self.policy)
        raise errors.ForwardModelError(errors.UnknownPolicy(self.name, repr(self.policy)))


class How(TypedDict, total=False):
    """How an opaque function is called; every entry can be left out.

    vectorized: it takes all rows at once (the default), as arrays [rows, *dims]; else it takes the values of one row.
    workers: how many work at the same time. executor: "threads" (the default where `workers` is more than 1),
    "processes", "dask", the address of a Dask scheduler, an executor of `concurrent.futures`, or an object with `map`.
    policy: what happens where it fails: "raise" (the default), "penalise", or `gpdsl.retry(n)`. timeout: the seconds
    that one call may take; 600 by default where it runs elsewhere. cache: a file that keeps its values between runs.
    gradient: its derivatives, if it has any, as a vector-Jacobian product (what an adjoint solver
    computes): `gradient(*arguments, sensitivity)` takes the arguments and an array like the result, and returns for
    each argument an array like it: the sum, over the numbers of the result, of sensitivity times derivative.
    """

    vectorized: bool
    workers: int
    executor: object
    policy: object
    timeout: float
    cache: str | Path | None
    gradient: Function | None


_REGISTERED: dict[str, ForwardModel] = {}


@overload
def register_forward_model(name: str, function: Function, **how: Unpack[How]) -> ForwardModel: ...
@overload
def register_forward_model(name: str, function: None = None, **how: Unpack[How]) -> Callable[[Function], Function]: ...
@answering
def register_forward_model(
    name: str, function: Function | None = None, **how: Unpack[How]
) -> ForwardModel | Callable[[Function], Function]:
    """Make `function` the external `name` of models, for this process; a second registration replaces the first.

    It is called with NumPy arrays [rows, *dims] in declared order and returns [rows, *dims of the result]. how: the
    keywords `vectorized`, `workers`, `executor`, `policy`, `timeout`, `cache` and `gradient`, which `How` describes.
    Without `function` this is a decorator, which leaves the function as it is. Raises ForwardModelError for what is no
    function or name.
    """
    return _registering(name, function, FORWARD, how)


@overload
def register_likelihood(name: str, log_density: Function, **how: Unpack[How]) -> ForwardModel: ...
@overload
def register_likelihood(name: str, log_density: None = None, **how: Unpack[How]) -> Callable[[Function], Function]: ...
@answering
def register_likelihood(
    name: str, log_density: Function | None = None, **how: Unpack[How]
) -> ForwardModel | Callable[[Function], Function]:
    """Make `log_density` the external likelihood `name` of models; a second registration replaces the first.

    It is called with the observed arguments and then the others, as declared, and returns log densities [rows] (one
    number with `vectorized=False`), all finite. how: as of `register_forward_model`. Without `log_density` this is a
    decorator. Raises ForwardModelError for what is no function or name.
    """
    return _registering(name, log_density, LIKELIHOOD, how)


@answering
def opaque(function: Function, **how: Unpack[How]) -> ForwardModel:
    """An opaque function with a way to call it, for `externals=` of `gpdsl.load`; nothing is registered.

    It is called, and `how` is given, as of `register_forward_model`: `gpdsl.opaque(solve, workers=4, timeout=60)`.
    Raises ForwardModelError for what is no function, and for a way that does not exist.
    """
    return _checked(ForwardModel("function", function, EITHER, **how))


def _registering(
    name: str, function: Function | None, sort: str, how: How
) -> ForwardModel | Callable[[Function], Function]:
    def register(function: Function) -> ForwardModel:
        model = _checked(ForwardModel(name, function, sort, **how))
        _REGISTERED[model.name] = model
        return model

    def decorate(function: Function) -> Function:
        register(function)
        return function

    return decorate if function is None else register(function)


def _checked(model: ForwardModel) -> ForwardModel:
    """The model with its backend and policy made. Raises ForwardModelError for what cannot be."""
    if not isinstance(model.name, str) or not model.name.isidentifier():
        raise errors.ForwardModelError(errors.NotAName(str(model.name)))
    if not callable(model.function):
        raise errors.ForwardModelError(errors.NotCallable(model.name, type(model.function).__name__))
    if model.gradient is not None and not callable(model.gradient):
        raise errors.ForwardModelError(errors.NotAGradient(model.name, type(model.gradient).__name__))
    workers, timeout = model.workers, model.timeout
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise errors.ForwardModelError(errors.WorkersNotPositive(model.name, str(workers)))
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise errors.ForwardModelError(BadTimeout(model.name, repr(timeout)))
    mark = model.mark or ("" if model.cache is None else fingerprint(model.function))
    return replace(model, executor=model.backend, policy=model.failures, mark=mark)


def resolve(
    declarations: Declarations, externals: Mapping[str, Function | ForwardModel] | None = None
) -> dict[str, ForwardModel]:
    """The function of every external the model declares: passed in, else registered; nothing else is looked at.

    They share one `Accounting`, which is new. Raises ForwardModelError for one that is neither, for the wrong sort, for
    a function that does not take the declared arguments, and for a name the model does not declare.
    """
    wanted: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, external in declarations.externals.items():
        wanted[name] = FORWARD, tuple(each.name for each in external.arguments)
    for name, likelihood in declarations.likelihoods.items():
        wanted[name] = LIKELIHOOD, tuple(each.name for each in (*likelihood.observed, *likelihood.arguments))
    passed, account = dict(externals or {}), Accounting()
    for name in passed:
        if name not in wanted:
            declared = ", ".join(f"`{each}`" for each in wanted) or "none"
            raise errors.ForwardModelError(errors.UnknownExternal(str(name), declared))
    found = {name: _resolved(name, sort, names, passed) for name, (sort, names) in wanted.items()}
    return {name: replace(model, account=account) for name, model in found.items()}


def unregistered(externals: Mapping[str, Any]) -> dict[str, Any]:
    """Those that nobody has registered: a pickled model or fit takes them along, and looks the others up again."""
    known = {name: model.function for name, model in _REGISTERED.items()}
    return {name: each for name, each in externals.items() if getattr(each, "function", each) is not known.get(name)}


def _resolved(
    name: str, sort: str, arguments: tuple[str, ...], passed: Mapping[str, Function | ForwardModel]
) -> ForwardModel:
    given = passed.get(name, _REGISTERED.get(name))
    if given is None:
        known = ", ".join(f"`{each}`" for each in _REGISTERED) or "none is registered"
        raise errors.ForwardModelError(errors.NotRegistered(name, REGISTER[sort], known))
    model = given if isinstance(given, ForwardModel) else ForwardModel(name, given, sort)
    if model.sort not in (sort, EITHER):
        raise errors.ForwardModelError(errors.WrongSort(name, model.sort, sort, REGISTER[sort]))
    if model.gradient is None and hasattr(model.function, "offered_gradient"):  # a server has to be asked
        model = replace(model, gradient=model.function.offered_gradient())
    model = _checked(replace(model, name=name, sort=sort, arguments=arguments))
    _check_arity(model)
    return model


def _check_arity(model: ForwardModel) -> None:
    """Raise ForwardModelError for a function that cannot take the declared arguments; compiled ones may not say."""
    try:
        signature = inspect.signature(model.function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*model.arguments)
    except TypeError as problem:
        declared = ", ".join(f"`{each}`" for each in model.arguments) or "nothing"
        count = plural(len(model.arguments), "argument")
        raise errors.ForwardModelError(
            errors.WrongArity(model.name, str(signature), f"{count}: {declared}")
        ) from problem


# Opaque functions that take fields: one call is one evaluation, and gives the results of all rows.


@dataclass(frozen=True)
class PerField:
    """A function of one field and all rows, made of values that can travel to another process.

    `rows` says which arguments have rows. A function that takes one row at a time is called for each of them.
    """

    function: Callable[..., Any]
    together: bool
    rows: tuple[bool, ...]

    def __call__(self, *arguments: np.ndarray) -> np.ndarray:
        if self.together or not any(self.rows):
            return self.function(*arguments)
        count = next(len(a) for a, each in zip(arguments, self.rows, strict=True) if each)
        pick = lambda k: [a[k] if each else a for a, each in zip(arguments, self.rows, strict=True)]  # noqa: E731
        return np.stack([np.asarray(self.function(*pick(k)), float) for k in range(count)])


def per_field(model: ForwardModel, rows: Sequence[bool]) -> ForwardModel:
    """The function as one that is called with a field at a time; `rows` says which of its arguments have rows.

    Batches of it are then fields: arguments [fields, rows, *dims] or [fields, *dims].
    """
    function = PerField(model.function, model.vectorized or model.flat, tuple(rows))
    return replace(model, function=function, vectorized=False, gradient=None, mark=f"{model.mark} {function.rows}")


# How opaque functions are called, in words, for `explain`.


def explain_externals(models: Iterable[ForwardModel]) -> list[str]:
    """Lines of a plan: a line for each function; nothing when there is none."""
    lines = [f"  {model.name}: {described(model)}" for model in models]
    return ["", "opaque functions", *lines] if lines else []


def described(model: ForwardModel) -> str:
    """Where a function runs and how, what happens when it fails, and what spares calls of it."""
    rows = "all rows at once" if model.vectorized else "a row at a time"
    parts = [f"{rows}, {model.backend.place}", _time(model), _failures(model.failures)]
    if model.gradient is not None:
        parts.append("with a gradient")
    if model.cache is not None:
        parts.append(f"values kept in {model.cache}")
    return "; ".join(parts)


def _time(model: ForwardModel) -> str:
    if model.timeout is None and isinstance(model.backend, Here) or model.timeout == math.inf:
        return "no time-out"
    job = Job(model.name, model.function, model.vectorized, model.timeout)
    return f"at most {job.patience:g} s a call"


def _failures(policy: Policy) -> str:
    last = "penalised" if policy.penalises else "an error"
    if not policy.attempts:
        return f"a failure is {last}"
    return f"a failure is tried again {plural(policy.attempts, 'time')}, then {last}"
