"""`gpdsl.register_inducing`: inducing features of one's own, known by name in every model, checked when registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError, described
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.fourier import SMOOTHNESS, Basis, Family, Unsuited
from gpdsl.kernels.functionals import Values
from gpdsl.kernels.interdomain import FAMILIES
from gpdsl.language.inducing import check_features_name, name_features, read_features
from gpdsl.language.vocabulary import KERNELS
from gpdsl.program.cache import precision
from gpdsl.program.reuse import forget
from gpdsl.program.tracing import prepared
from gpdsl.symbolic.checking import compile_checked

Points = Float[Array, "n D"]
Features = Callable[[str, Mapping[str, Array], Points, int], tuple[Array, Callable[[Points], Array]]]
"""From the name of a kernel, its parameters, the corners of the box [2, D], and how many, to two covariances.

Those among the features u, [M, M], and a function of points [n, D] that gives those of f at the points with u, [n, M].
"""

COUNT, POINTS = 5, 12
"""Features and points that new ones are tried with."""

LARGEST = 1e-8
"""Negative eigenvalue, as a share of the largest one, that rounding may leave of a covariance."""

_TRIAL = """
index column in 1..{columns}
input _input : real[column]
output _output : real
{declared}latent _latent(_input) ~ GP(0, {kernel}({arguments}))
_output ~ Normal(_latent, 1)
"""


_KERNELS: dict[str, tuple[tuple[str, ...], int]] = {
    "fourier": (tuple(SMOOTHNESS), 1),
    "eigen": (("RBF", *SMOOTHNESS), 1),
}


_said: dict[str, str] = {}
"""What registered features are, as files of fits keep it: not their code, but numbers by which others are told."""


def register_inducing(
    name: str,
    features: Features,
    *,
    kernels: Iterable[str],
    columns: int = 1,
    meaning: str = "registered by the user",
) -> None:
    """Make inducing features known by name, `infer vi: inducing f = NAME(30, over = [0, 1])`, for this process.

    A second registration replaces the first. With u linear functionals of f, such as averages over intervals,
    `features(kernel, parameters, corners, count)` gives cov(u, u), [M, M], and a function of points [n, D] that gives
    cov(f(points), u), [n, M], both of the kernel alone, of unit variance: factors before it, sums and products of
    kernels are gpdsl's. It is written in `jax.numpy`, and traced; M may be other than count, and has to depend on it
    and the number of columns alone. kernels: names of the kernels of the table that it knows, each with its parameters
    by name; columns: how many columns a kernel sees.

    Raises GpdslError for a name that the language has, an unknown kernel, features that cannot be computed, are not
    finite, have shapes that do not fit, or with values of f no covariance at all.
    """
    known = (kernels,) if isinstance(kernels, str) else tuple(kernels)
    if not callable(features) or not known:
        raise GpdslError(f"inducing features {name}: expected a function, and kernels that it is of")
    for kernel in known:
        if kernel not in KERNELS or any(each.role != "number" for each in KERNELS[kernel].parameters):
            raise GpdslError(f"inducing features {name}: expected names of kernels of numbers, not {kernel!r}")
    family = _family(name, features, known, columns)
    check_features_name(name, meaning)
    tried = [_verified(name, family, kernel, columns) for kernel in known]
    name_features(name, meaning)
    forget()
    FAMILIES[name], _KERNELS[name] = family, (known, columns)
    sums = ", ".join(f"{np.sum(each):.6g} and {np.sum(each**2):.6g}" for each in tried)
    _said[name] = (
        f"inducing features {name} of {', '.join(known)}, whose covariances and their squares add up to {sums}"
    )


def kernels_of(name: str) -> tuple[tuple[str, ...], int]:
    """The kernels that features are known of, and of how many columns. Raises GpdslError where there are none."""
    if name not in _KERNELS:
        raise GpdslError(f"no inducing features {name} are registered; there are: {', '.join(_KERNELS)}")
    return _KERNELS[name]


def registered_features(written: str) -> dict[str, str]:
    """The registered features of a sum, and what they are."""
    return {each.family: _said[each.family] for each in read_features(written) or () if each.family in _said}


def _family(name: str, features: Features, kernels: tuple[str, ...], columns: int) -> Family:
    """As the engines want them: of about unit variance each."""

    def family(kernel: str, arguments: Mapping[str, Array], corners: Points, count: int) -> Basis:
        if kernel not in kernels:
            raise Unsuited(f"{name} features are known of {', '.join(kernels)}, not of {kernel}")
        if corners.shape[1] != columns:
            raise Unsuited(f"{name} features are those of {columns} column(s), and {kernel} sees {corners.shape[1]}")
        among, with_values = features(kernel, arguments, corners, count)
        scale = 1.0 / jnp.sqrt(jnp.diagonal(among))
        return Basis(scale, scale[:, None] * among * scale[None, :], with_values)

    return family


def _verified(name: str, family: Family, kernel: str, columns: int) -> Float[np.ndarray, "k k"]:
    """The joint covariance of features and values of the process. Raises GpdslError where it is none."""
    where = f"inducing features {name} of {kernel}"
    names = [each.name for each in KERNELS[kernel].parameters]
    declared = "".join(f"param {each} : positive = 0.7\n" for each in names)
    arguments = ", ".join(f"{each} = {each}" for each in names)
    trial = _TRIAL.format(columns=columns, declared=declared, kernel=kernel, arguments=arguments)
    with precision("float64"):
        form, values = prepared(compile_checked(trial, f"<{where}>"))
        corners = jnp.asarray(np.stack([np.full(columns, -1.0), np.full(columns, 1.5)]))
        points = jnp.asarray(np.random.default_rng(0).uniform(-1.4, 2.0, (POINTS, columns)))

        def joint(values: list[Array]) -> Float[Array, "k k"]:
            arguments = dict(zip(names, values, strict=True))
            found = family(kernel, arguments, corners, COUNT)
            crossed = found.weights[:, None] * found.functions(points).T
            among = covariance(form.form, values, Values(points))
            return jnp.block([[found.among, crossed], [crossed.T, among]])

        try:
            matrix = np.asarray(joint(values))
            slopes = jax.jacobian(joint)(values) if values else []
        except GpdslError:
            raise
        except Exception as problem:  # the user's own function
            raise GpdslError(f"{where}: computing them ended in {described(problem)}") from problem
    finite = np.all(np.isfinite(matrix)) and all(bool(jnp.all(jnp.isfinite(each))) for each in slopes)
    if not finite:
        raise GpdslError(f"{where}: a covariance or its slope in a parameter is not finite")
    eigenvalues = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    if not np.allclose(matrix, matrix.T, atol=1e-9) or eigenvalues[0] < -LARGEST * eigenvalues[-1]:
        raise GpdslError(
            f"{where}: they have no joint covariance with values of the process: its smallest eigenvalue is "
            f"{eigenvalues[0]:.3g}, and the largest {eigenvalues[-1]:.3g}"
        )
    return matrix
