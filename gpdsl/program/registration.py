"""`gpdsl.register_kernel`: a kernel of one's own, known by name in every model, checked when it is registered."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.kernels.canonical import Canonical, canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.language import model as m
from gpdsl.language.registered import define, definition_of, statement_of
from gpdsl.program.precision import precision
from gpdsl.symbolic.checking import compile_checked
from gpdsl.symbolic.kernel_checks import doubtful_kernels
from gpdsl.symbolic.translate import Translator

POINTS = np.array([[-1.3], [0.0], [0.0], [0.4], [0.4], [2.5]])
"""Some of them twice: the distance has no derivative where it is zero, and a formula in it may have none either."""

_TRIAL = """
{0}input _input : real
output _output : real
latent _latent(_input) ~ GP(0, {1}())
_output ~ Normal(_latent, 1)
"""
_trials: dict[str, str] = {}


def register_kernel(name: str, definition: str, *, parameters: Mapping[str, str] | None = None) -> None:
    """Make a kernel known by name in all models, for this process; a second registration replaces the first.

    definition: as in a file, `"kernel damped(r; ell, w) = exp(-r/ell) * cos(w*r)"`. parameters: of each the type and
    start value that a model would declare, `{"ell": "positive = 2", "w": "real(lower = 0, upper = 1) = 0.5"}`;
    `positive` where nothing is said. They say with which values the kernel is tried here; a model declares its own.

    Raises GpdslError for a name of the language, and for a formula that is not symmetric, finite and real, whose
    matrices at random points have negative eigenvalues, or whose gradient at equal points is not finite.
    """
    statement = statement_of(name, definition)
    names = [each.text for each in statement.parameters]
    said = dict(parameters or {})
    if odd := sorted(set(said) - set(names)):
        raise GpdslError(f"kernel {name}: it has no parameter {', '.join(odd)}; it has {', '.join(names) or 'none'}")
    declared = "".join(f"param {each} : {said.get(each, 'positive')}\n" for each in names)
    trial = _TRIAL.format(declared, name)
    _verify(name, compile_checked(definition + trial, f"<kernel {name}>"))
    define(name, definition)
    _trials[name] = trial


def trial_of(name: str) -> str:
    """A model of one latent with a registered kernel. Raises GpdslError where there is none of this name."""
    definition_of(name)
    return _trials[name]


def _verify(name: str, declarations: m.Declarations) -> None:
    """Raise GpdslError unless the kernel of a model with one latent is a covariance that can be learnt."""
    for doubt in doubtful_kernels(declarations):
        raise GpdslError(f"kernel {name}: {doubt.message_text()}: {doubt.label_text()}; {doubt.help_text()}")
    with precision("float64"):
        kernel, values = prepared(declarations)

        def total(values: list[jax.Array], points: jax.Array) -> jax.Array:
            a, b = Values(points), Values(jnp.asarray(POINTS))
            return jnp.sum(covariance(kernel.form, values, a)) + jnp.sum(covariance(kernel.form, values, a, b))

        slopes = jax.tree.leaves(jax.grad(total, argnums=(0, 1))(values, jnp.asarray(POINTS)))
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


def _initial(declarations: m.Declarations, argument: m.Expression) -> float:
    assert isinstance(argument, m.Read)
    value = declarations.params[argument.name].initial
    assert isinstance(value, float | int)
    return float(value)
