"""Functions written in JAX: recognised, traced into the program, and differentiated like its own formulas.

A function is only tried when it is made of JAX: it is compiled by `jax.jit`, or its code, or that of what it wraps or
closes over, names a JAX module or function. Others are never called with tracers, whatever their arithmetic would
allow: they may write files, count their calls or block. What is tried is traced to shapes and compared with a call of
numbers; what fails either stays opaque.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.forward import ForwardModel, Policy
from gpdsl.forward.backends import Here
from gpdsl.kernels.columns import Canonical, Space, canonical
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.language import model as m
from gpdsl.language.calls import answering
from gpdsl.language.used import define, definition_of, statement_of
from gpdsl.program.cache import precision
from gpdsl.symbolic.checking import compile_checked
from gpdsl.symbolic.kernel_checks import doubtful_kernels
from gpdsl.symbolic.translate import Translator

PROBED = 3
TOLERANCE = 1e-4
"""Relative difference between traced and called values above which a function stays opaque: it is not pure."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Traced:
    """A function of arrays [rows, *dims] that can be traced."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def traced_functions(translator: Translator, externals: Mapping[str, ForwardModel]) -> dict[str, Traced]:
    """Those of the model's opaque functions that are none, by name."""
    declarations, found = translator.declarations, {}
    for name, model in externals.items():
        shapes, result = signature(translator, declarations, name)
        per_row = translator.field_calls.get(name)
        tried = plain(model) and made_of_jax(model.function)
        traced = trace(model, shapes, result, per_row) if tried else None
        if traced is not None:
            found[name] = traced
    return found


def signature(translator: Translator, declarations: m.Declarations, name: str) -> tuple[list[Shape], Shape]:
    """Shapes of the arguments and of the result of an external, for one row."""
    if name in declarations.externals:
        external = declarations.externals[name]
        return [translator.shape(a.axes) for a in external.arguments], translator.shape(external.result)
    likelihood = declarations.likelihoods[name]
    return [translator.shape(a.axes) for a in (*likelihood.observed, *likelihood.arguments)], ()


def plain(model: ForwardModel) -> bool:
    """Whether nothing asks for calls: no executor, time-out, cache, or policy for failures."""
    calls = not isinstance(model.backend, Here) or model.timeout is not None or model.cache is not None
    return not calls and model.gradient is None and model.failures == Policy()


def trace(
    model: ForwardModel, shapes: Sequence[Shape], result: Shape, per_row: Sequence[bool] | None = None
) -> Traced | None:
    """The function of whole batches, if it can be traced and gives the same values as when it is called.

    `per_row` says of a function that takes a field which arguments have rows; it is None for one that takes none.
    """
    rows = [True] * len(shapes) if per_row is None else list(per_row)
    function = model.function
    if not model.vectorized and any(rows):
        function = jax.vmap(function, in_axes=tuple(0 if each else None for each in rows))
    rng = np.random.default_rng(0)
    points = [
        1.0 + 0.1 * rng.random((PROBED, *shape) if each else shape) for shape, each in zip(shapes, rows, strict=True)
    ]
    expected = (PROBED, *result) if any(rows) else result
    try:
        abstract = jax.eval_shape(function, *[jax.ShapeDtypeStruct(p.shape, jnp.result_type(float)) for p in points])
        if not isinstance(abstract, jax.ShapeDtypeStruct) or abstract.shape != expected:
            return None
        inside = np.asarray(jax.jit(function)(*points), float)
        called = np.asarray(function(*points), float)
    except Exception:  # noqa: BLE001 - whatever goes wrong, the function is called as it is, and says so there
        return None
    same = np.allclose(inside, called, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return Traced(function) if same else None


def made_of_jax(function: Any, depth: int = 3) -> bool:
    """Whether a function is compiled by JAX, or names something of JAX in its code or that of what it is made of."""
    if type(function).__module__.partition(".")[0] in {"jaxlib", "jax"}:
        return True
    if isinstance(function, functools.partial):
        return made_of_jax(function.func, depth)
    function = inspect.unwrap(function)
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        function = vars(type(function)).get("__call__")
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or depth == 0:
        return False
    code = function.__code__
    cells = inspect.getclosurevars(function).nonlocals.values()
    named = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    return any(_of_jax(value) or _is_function(value) and made_of_jax(value, depth - 1) for value in (*cells, *named))


def _is_function(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, functools.partial))


def _of_jax(value: Any) -> bool:
    """A module or function of JAX."""
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(type(value), "__module__", "")
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        home = value.__module__ or ""
    return home.partition(".")[0] in {"jax", "jaxlib"}


# `gpdsl.register_kernel`: a kernel of one's own, known by name in every model, checked when it is registered.

POINTS = np.array([[-1.3], [0.0], [0.0], [0.4], [0.4], [2.5]])
"""Some of them twice: the distance has no derivative where it is zero, and a formula in it may have none either."""

_TRIAL = """
{0}input _input : real{2}
output _output : real
latent _latent(_input) ~ GP(0, {1}())
_output ~ Normal(_latent, 1)
"""
_trials: dict[str, str] = {}


@answering
def register_kernel(name: str, definition: str, *, parameters: Mapping[str, str] | None = None) -> None:
    """Make a kernel known by name in all models, for this process; a second registration replaces the first.

    definition: as in a file, `"kernel damped(r; ell, w) = exp(-r/ell) * cos(w*r)"`. parameters: of each the type and
    start value that a model would declare, `{"ell": "positive = 2", "w": "real(lower = 0, upper = 1) = 0.5"}`;
    `positive` where nothing is said. They say with which values the kernel is tried here; a model declares its own.

    Raises GpdslError for a name of the language, and for a formula that is not symmetric, finite and real, whose
    matrices at random points have negative eigenvalues, or whose gradient at equal points is not finite.
    """
    statement = statement_of(name, definition)
    if statement.levels:
        raise GpdslError(
            f"kernel {name}: it compares values of an index, which belong to a model; define it in a file of "
            "definitions, which models name by `use`"
        )
    names = [each.text for each in statement.parameters]
    said = dict(parameters or {})
    if odd := sorted(set(said) - set(names)):
        raise GpdslError(f"kernel {name}: it has no parameter {', '.join(odd)}; it has {', '.join(names) or 'none'}")
    declared = "".join(f"param {each} : {said.get(each, 'positive')}\n" for each in names)
    known = "|".join(each.text for each in statement.arguments) + r"|\bparam \w+ : \w+"
    read = [int(each) for each in re.findall(rf"\b(?:{known})\s*\[\s*([1-9]\d?)\s*\]", definition + "\n" + declared)]
    trial = _TRIAL.format(declared, name, f"[{max(read)}]" if read else "")
    _verify(name, compile_checked(definition + trial, f"<kernel {name}>"), max(read, default=1))
    define(name, definition)
    _trials[name] = trial


def trial_of(name: str) -> str:
    """A model of one latent with a registered kernel. Raises GpdslError where there is none of this name."""
    definition_of(name)
    return _trials[name]


def _verify(name: str, declarations: m.Declarations, columns: int) -> None:
    """Raise GpdslError unless the kernel of a model with one latent is a covariance that can be learnt."""
    for doubt in doubtful_kernels(declarations):
        raise GpdslError(f"kernel {name}: {doubt.message_text()}: {doubt.label_text()}; {doubt.help_text()}")
    with precision("float64"):
        kernel, values = prepared(declarations)
        at = jnp.asarray(np.repeat(POINTS, columns, axis=1))

        def total(values: list[jax.Array], points: jax.Array) -> jax.Array:
            a, b = Values(points), Values(at)
            return jnp.sum(covariance(kernel.form, values, a)) + jnp.sum(covariance(kernel.form, values, a, b))

        slopes = jax.tree.leaves(jax.grad(total, argnums=(0, 1))(values, at))
    if not all(np.all(np.isfinite(each)) for each in slopes):
        raise GpdslError(
            f"kernel {name}: its gradient is not finite where two points are equal, so that no parameter could be "
            "learnt; write the formula so that it is smooth at distance zero, as in sqrt(r^2 + 1e-12)"
        )


def prepared(declarations: m.Declarations) -> tuple[Canonical, list[jax.Array]]:
    """The kernel of the latent ready to be computed, and its arguments at the initial values of the parameters."""
    (latent,) = declarations.latents.values()
    found = canonical(latent.kernel, Space.of(Translator(declarations, {}), latent))
    return found, [jnp.asarray(_initial(declarations, each)) for each in found.arguments]


def _initial(declarations: m.Declarations, argument: m.Expression) -> np.ndarray:
    assert isinstance(argument, m.Read)
    return np.asarray(declarations.params[argument.name].initial, float)
