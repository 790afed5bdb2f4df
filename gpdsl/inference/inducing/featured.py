"""Inducing features that are not points alone: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.lib.stride_tricks import sliding_window_view

from gpdsl.data import Data, DataError
from gpdsl.data.errors import OutsideFeatures
from gpdsl.errors import GpdslError, described
from gpdsl.kernels.covariance import basis, covariance
from gpdsl.kernels.fourier import SMOOTHNESS, Basis, Family, Unsuited
from gpdsl.kernels.functionals import Coefficients, Derivatives, Elementary, Functionals, Values, outline, stacked
from gpdsl.kernels.interdomain import FAMILIES, PATCHES, images_of
from gpdsl.kernels.spherical import MOST
from gpdsl.language.calls import answering
from gpdsl.language.checker.functionals import roughness
from gpdsl.language.inducing import Written, check_features_name, name_features, read_features
from gpdsl.language.vocabulary import KERNELS
from gpdsl.program.cache import precision
from gpdsl.program.groups import Group, columns_of, reads_of
from gpdsl.program.kept import forget
from gpdsl.program.program import Program
from gpdsl.program.tracing import prepared
from gpdsl.symbolic.checking import compile_checked
from gpdsl.symbolic.errors import NoFeatures
from gpdsl.symbolic.translate import axis_key

ROOM = 0.05
"""Of the range of a column, left on either side of the rows where no bounds are given."""

SAMPLED = 50_000
"""Patches of the rows, at random, among which inducing ones are looked for."""

Points = Float[np.ndarray, "n D"]
Centres = Callable[[Points, int], Points]
"""So many centres of points, or all distinct points where these are fewer."""


def featured(
    program: Program,
    group: Group,
    written: str,
    data: Data,
    points: Points,
    centres: Centres,
    rng: np.random.Generator,
) -> Functionals:
    """The features of a group of latents that are written so, among the points of the rows.

    Raises ModelError for a kernel that has no such features, DataError for rows outside the bounds.
    """
    if any(functional.integrated for each in group.readings.basis for functional, _ in each):
        raise _integrated(program, group, written)
    at: dict[int, Points] = {}
    found: list[Elementary] = []
    for part in read_features(written) or ():
        if part.family in {"points", "slopes"}:
            if part.count not in at:  # values and slopes at the same points
                at[part.count] = centres(points, part.count)
            where = at[part.count]
        elif part.family == PATCHES:
            where = _patches(group, part, points, centres, rng)
        else:
            where = _corners(group, part, data, points)
        found += _kind(program, group, part, where)
    return stacked(tuple(found))


def few_enough(program: Program, group: Group, written: str, features: Functionals) -> Functionals:
    """The features that are written so. Raises ModelError for more than can be computed with: products take many."""
    if len(features) <= MOST or all(part.family == "points" for part in read_features(written) or ()):
        return features
    latent = group.members[0].latent
    why = f"they are {len(features):,} of this kernel, and more than {MOST:,} are not computed: a step takes their cube"
    remedy = "ask for fewer; where kernels are multiplied, there are as many as the product of what each has"
    raise program.translator.failure(NoFeatures(latent.kernel.span, latent.name, written, why, remedy))


def _integrated(program: Program, group: Group, written: str) -> GpdslError:
    """What to raise for features of a latent of which integrals are read."""
    latent = group.members[0].latent
    reads = (each for each in reads_of(program.declarations) if each.name in group.names)
    own = [(each.span, each.name) for each in reads if each.functional.integrated]
    span, name = min(own, key=lambda each: each[0].line) if own else (latent.span, latent.name)
    why = "covariances of integrals with features are not known"
    remedy = f"give a number of inducing points instead: `infer vi: inducing {name} = 50`"
    return program.translator.failure(NoFeatures(span, name, written, why, remedy))


def outline_of(program: Program, group: Group, written: str) -> list:
    """What kind of functionals they are, wherever they are."""
    width = columns_of(group, program.translator)

    def somewhere(part: Written) -> Points:
        return np.linspace(0.0, 1.0, part.count if part.family == PATCHES else 2)[:, None] * np.ones(width)

    parts = [_kind(program, group, part, somewhere(part)) for part in read_features(written) or ()]
    return outline(stacked(tuple(each for part in parts for each in part)))


def _kind(program: Program, group: Group, part: Written, where: Points) -> list[Elementary]:
    """The functionals of one family at points, or between the corners of a box."""
    held: Any = where
    if part.family == "points":
        return [Values(held)]
    if part.family == "slopes":
        _refuse_rough(program, group)
        return [Derivatives(held, (column,)) for column in range(where.shape[1])]
    numbers = _numbers(program, group)

    def weights(corners: Any) -> Any:
        return basis(group.form, numbers, Coefficients(corners, part.family, part.count, 0)).weights

    try:
        (size,) = jax.eval_shape(weights, held).shape
    except Unsuited as why:
        mistake = NoFeatures(group.members[0].latent.kernel.span, group.names[0], part.family, str(why))
        raise program.translator.failure(mistake) from None
    return [Coefficients(held, part.family, part.count, size)]


def _numbers(program: Program, group: Group) -> list[Any]:
    """Parameters of a kernel of the group, as many and of the shapes that it has."""
    found = []
    for each in zip(*[member.kernel.arguments for member in group.members], strict=True):
        own = [
            [axis for axis in argument.axes if axis_key(axis) not in map(axis_key, member.latent.axes)]
            for argument, member in zip(each, group.members, strict=True)
        ]
        widest = max(own, key=len)
        found.append(np.ones(program.translator.shape(tuple(widest))))
    return found


def _refuse_rough(program: Program, group: Group) -> None:
    for member in group.members:
        found = roughness(member.latent.kernel, 1)
        if found is not None:
            mistake = NoFeatures(member.latent.kernel.span, member.latent.name, "slopes", found[1])
            raise program.translator.failure(mistake)


def _patches(
    group: Group, part: Written, points: Points, centres: Centres, rng: np.random.Generator
) -> Float[np.ndarray, "M D"]:
    """Images of which the patch at the top left is a centre of the patches of the rows; the rest of them is blank.

    Where kernels differ in the size of their patches, the smaller one is the corner of the larger one.
    """
    where = np.zeros((part.count, points.shape[1]))
    for form, columns in sorted(images_of(group.form, points.shape[1]), key=lambda each: np.prod(each[0].patch)):
        images = points[:, columns].reshape(len(points), *form.image)
        every = sliding_window_view(images, form.patch, axis=(1, 2))
        at = [rng.integers(size, size=SAMPLED) for size in every.shape[:3]]
        found = centres(every[at[0], at[1], at[2]].reshape(SAMPLED, -1), part.count)
        if len(found) < part.count:
            raise GpdslError(f"{part}: the images have {len(found)} different patches; ask for at most so many")
        where[:, columns.reshape(form.image)[: form.patch[0], : form.patch[1]].ravel()] = found
    return where


def _corners(group: Group, part: Written, data: Data, points: Points) -> Float[np.ndarray, "2 D"]:
    """The bounds as the fit knows the columns, or some room around the rows."""
    if not part.over:
        low, high = points.min(axis=0), points.max(axis=0)
        room = np.where(high > low, ROOM * (high - low), 1.0)
        return np.stack([low - room, high + room])
    width = points.shape[1]
    if len(part.over) not in {1, width}:
        names = ", ".join(group.inputs)
        raise GpdslError(
            f"{part}: expected bounds of each of the {width} column(s) of {names}, or one pair for all, "
            f"not {len(part.over)} pairs"
        )
    given = np.asarray(part.over if len(part.over) == width else part.over * width, float).T
    corners = given.copy()
    columns: list[str] = []
    for name in group.inputs:
        if name not in data.inputs:  # an index among the arguments
            columns.append(name)
            continue
        shape = data.inputs[name].shape[1:]
        size = int(np.prod(shape, dtype=int))
        own = slice(len(columns), len(columns) + size)
        corners[:, own] = data.standardised.into(name, given[:, own].reshape(2, *shape)).reshape(2, size)
        columns += [f"{name}[{k + 1}]" if shape else name for k in range(size)]
    outside = np.argwhere((points < corners[0]) | (points > corners[1]))
    if len(outside):
        where, column = outside[0]
        low, high = given[:, column]
        share = (points[where, column] - corners[0, column]) / (corners[1, column] - corners[0, column])
        value = low + share * (high - low)
        row = int(where) % data.rows + 1
        raise DataError(OutsideFeatures(columns[column], row, f"{value:.6g}", f"{low:g}", f"{high:g}", str(part)))
    return corners


# `gpdsl.register_inducing`: inducing features of one's own, known by name in every model, checked when registered.

Inputs = Float[Array, "n D"]
Features = Callable[[str, Mapping[str, Array], Inputs, int], tuple[Array, Callable[[Inputs], Array]]]
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


@answering
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


TWO = "but features have cov(u, u), [M, M], and a function of points [n, D] that gives cov(f(points), u), [n, M]"


def _family(name: str, features: Features, kernels: tuple[str, ...], columns: int) -> Family:
    """As the engines want them: of about unit variance each."""

    def family(kernel: str, arguments: Mapping[str, Array], corners: Inputs, count: int) -> Basis:
        if kernel not in kernels:
            raise Unsuited(f"{name} features are known of {', '.join(kernels)}, not of {kernel}")
        if corners.shape[1] != columns:
            raise Unsuited(f"{name} features are those of {columns} column(s), and {kernel} sees {corners.shape[1]}")
        found = features(kernel, arguments, corners, count)
        if not isinstance(found, tuple) or len(found) != 2 or not callable(found[1]):
            raise GpdslError(f"inducing features {name} of {kernel}: expected a matrix and a function, {TWO}")
        among, with_values = found
        size = len(among) if jnp.ndim(among) else 0
        if jnp.shape(among) != (size, size):
            raise GpdslError(f"inducing features {name} of {kernel}: their matrix is {jnp.shape(among)}, {TWO}")
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
            values_too = found.functions(points)
            if jnp.shape(values_too) != (POINTS, len(found.weights)):
                shapes = f"{jnp.shape(values_too)} for {POINTS} points and {len(found.weights)} features"
                raise GpdslError(f"{where}: what the function gives is {shapes}, {TWO}")
            crossed = found.weights[:, None] * values_too.T
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
