"""Where layers start: inner ones near the principal components of their arguments, inducing points at their centres.

A layer of zero prior mean would start as a constant, through which nothing is seen of the inputs; the bound has a
maximum there. So q of an inner layer starts narrow around the arguments themselves, or as many of their principal
components as the layer has latents, in units of its prior (Salimbeni and Deisenroth, 2017, section 2.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gpdsl.data import Data
from gpdsl.inference.inducing.featured import featured
from gpdsl.inference.inducing.start import kmeans_centres, placed
from gpdsl.inference.posteriors.features import factorise, prior_variances, sparse_features
from gpdsl.inference.problem import as_arrays
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.language import model as m
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means, stack_inputs
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program, at_values
from gpdsl.program.rows import Rows, row_count

TOLD = 100
"""Places where values of an inner layer start that has other inducing features than points."""

INNER_SD = 0.1
"""Standard deviation with which values of inner layers are as if they had been measured: functions that are almost
known, at no more cost than that takes. The prior's where that is narrower still."""

NARROWEST = 1e-4
"""Variance of values of inner layers that are narrow already."""

NONE = 0.002
"""Standard deviation of values of layers that are none: their q begins as the prior, which costs nothing."""

TINY, TINIEST = 1e-6, 1e-12
"""Variances of values of inner layers that are to be none, as they pass their arguments on; and to be none where there
is next to no noise. From the first they widen within fewer steps."""

SPREAD, WIDE = 0.3, 0.9
"""Of row variables beside inputs, in units of the prior: how far apart their means start, and how wide q is."""

NARROW = 0.3
"""How wide q of row variables is where their means come from the outputs."""

Groups = list[dict[str, np.ndarray]]


def start_layers(
    program: Program, rows: Rows, inducing: Sequence[int | str], jitter: float, seed: int, data: Data
) -> tuple[list[Any], Groups, dict[str, np.ndarray]]:
    """So many inducing points of every group, or features as written, parameters of its q (`Full`, and `PerRow` of row
    variables), and the values at the rows of what latents are functions of.

    Raises GpdslError for features that a kernel does not have, or whose bounds leave rows of the data out.
    """
    rng, count = np.random.default_rng(seed), row_count(rows)
    parameters = program.parameters.constrain(as_arrays(program.parameters.unconstrained(), float))
    inputs: dict[str, Any] = {name: np.asarray(values) for name, values in rows.inputs.items()}
    latents = np.zeros((count, program.latents))
    points: list[Any] = [None] * len(program.groups)
    start: Groups = [{} for _ in program.groups]
    for place in program.order:
        group = program.groups[place]
        known = Rows(inputs, {}, {})
        prior = prior_means(program.evaluator, [group], parameters, known, count, jnp.asarray(latents))
        values = np.asarray(prior)[:, : group.size]
        if group.per_row:
            points[place] = placed(np.zeros((count, 0)))
            start[place], white = _row_variables(program, group, rows, rng)
            values = values + white * np.sqrt(np.asarray(_scale(program, group, parameters)))
        else:
            arguments = np.asarray(stack_inputs(group.inputs, known), float)
            moving = np.concatenate([np.full(_width(inputs, name), name in program.inner) for name in group.inputs])
            labels = np.asarray(_label_columns(program, group, inputs), int)
            asked = inducing[place]
            wanted = TOLD if isinstance(asked, str) else asked
            centres = _centres(*_enough(arguments, wanted, moving, rng), labels, rng)
            points[place] = placed(centres)
            if isinstance(asked, str):
                points[place] = featured(program, group, asked, data, arguments, partial(kmeans_centres, rng=rng), rng)
            start[place] = _full(np.zeros((group.size, len(points[place]))), np.eye(len(points[place])))
            if program.inner & set(group.names):
                passes = any(_reads_arguments(member.latent) for member in group.members)
                numbers = np.delete(arguments, labels, axis=1)
                projected = (
                    _nowhere(group.size) if passes or not numbers.size else _projection(numbers, group.size, rng)
                )
                wide = float(np.sqrt(np.max(np.asarray(_scale(program, group, parameters)))))
                given = centres, projected(np.delete(centres, labels, axis=1)), _noise(passes, wide), jitter
                mean, root, sds = _whitened(program, group, parameters, points[place], *given)
                start[place] = _full(mean, root)
                values = values + projected(numbers) * sds
        latents[:, group.start : group.start + group.size] = values
        inputs |= _by_name(program, group, values)
    return points, start, {name: values for name, values in inputs.items() if name in program.inner}


def _width(inputs: Mapping[str, np.ndarray], name: str) -> int:
    """Columns of an argument; one of a number in every row."""
    return int(np.prod(inputs[name].shape[1:], dtype=int)) if name in inputs else 1


def _enough(
    arguments: Float[np.ndarray, "rows D"], wanted: int, moving: np.ndarray, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "places D"], int]:
    """Places of which so many centres can be had, and how many there will be.

    Arguments that are known have one place in each row. Where some are not, as columns `moving` say, there may be more
    points than rows: places beside those of the rows, as far as these are from each other.
    """
    count = len(arguments)
    if wanted <= count or not moving.any():
        return arguments, min(wanted, count)
    spread = np.std(arguments, axis=0)
    beside = np.tile(arguments, (-(-wanted // count) - 1, 1))
    noise = rng.standard_normal(beside.shape) * np.where(spread > 0, spread, 1.0) * moving
    return np.concatenate([arguments, beside + noise]), wanted


def _label_columns(program: Program, group: Group, inputs: Mapping[str, np.ndarray]) -> list[int]:
    """Columns of the arguments of a group that are levels of labels, which no step of a search moves."""
    found: list[int] = []
    declared, first = program.declarations.inputs, 0
    for name in group.inputs:
        width = _width(inputs, name)
        if name in declared and declared[name].label is not None:
            found += range(first, first + width)
        first += width
    return found


def _centres(
    places: Float[np.ndarray, "places D"], count: int, labels: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, "centres D"]:
    """Centres of places; at each level of labels as many as its share of the places: those between say nothing of any.

    More than `count` where there are more levels.
    """
    levels, level = np.unique(places[:, labels], axis=0, return_inverse=True)
    if len(levels) == 1:
        return kmeans_centres(places, count, rng)
    rows = np.bincount(level.ravel())
    ends = np.round(np.cumsum(rows) * count / len(places)).astype(int)
    shares = np.maximum(np.diff(ends, prepend=0), 1)
    own = [places[level.ravel() == each] for each in range(len(levels))]
    return np.concatenate([kmeans_centres(some, share, rng) for some, share in zip(own, shares, strict=True)])


def _full(mean: Float[np.ndarray, "latents M"], root: Float[np.ndarray, "*latents M M"]) -> dict[str, np.ndarray]:
    """Parameters of `Full`, which keeps the diagonal of a root by its logarithm."""
    logs = np.log(np.diagonal(root, axis1=-2, axis2=-1))[..., None] * np.eye(mean.shape[-1])
    return {
        "mean": mean[None],
        "root": np.array(np.broadcast_to(np.tril(root, -1) + logs, (1, *mean.shape, mean.shape[-1]))),
    }


def _scale(program: Program, group: Group, parameters: Mapping[str, Any]) -> Any:
    return kernel_values(program.evaluator, group, parameters).scale


def _by_name(program: Program, group: Group, values: Float[np.ndarray, "rows latents"]) -> dict[str, np.ndarray]:
    """The values of each declared latent, as inputs of others have them."""
    found, first = {}, 0
    for member in group.members:
        shape = program.translator.shape(member.latent.axes)
        found[member.latent.name] = values[:, first : first + member.count].reshape(-1, *shape)
        first += member.count
    return found


def _reads_arguments(latent: m.Latent) -> bool:
    """Whether the prior mean is a function of the arguments: then it says itself what the layer does at first."""
    pending = [latent.mean]
    while pending:
        expression = pending.pop()
        if isinstance(expression, m.Read) and expression.name in latent.arguments:
            return True
        pending += m.parts(expression)
    return False


def _noise(passes: bool, wide: float) -> float:
    """Standard deviation with which values of an inner layer are as if measured, in units of its prior, `wide`.

    Beside arguments that it passes on they are no wider than the prior, unless the layer is to be none.
    """
    if not passes:
        return INNER_SD
    return INNER_SD / wide if wide <= NONE else min(1.0, INNER_SD / wide)


def _nowhere(latents: int) -> Any:
    """No values but those of the prior mean."""
    return lambda x: np.zeros((len(x), latents))


def _projection(arguments: Float[np.ndarray, "rows D"], latents: int, rng: np.random.Generator) -> Any:
    """A linear map of arguments to as many numbers of mean 0 and standard deviation 1 at the rows.

    The arguments themselves where there are as many; their first principal components where there are more, and other
    directions at random beside them where there are fewer.
    """
    centre, sd = arguments.mean(axis=0), arguments.std(axis=0)
    sd = np.where(sd == 0, 1.0, sd)
    white = (arguments - centre) / sd
    width = arguments.shape[1]
    directions = np.eye(width)
    if latents < width:
        directions = np.linalg.svd(white[:20_000], full_matrices=False)[2][:latents].T
    elif latents > width:
        directions = np.concatenate([directions, rng.standard_normal((width, latents - width))], axis=1)
    lengths = (white @ directions).std(axis=0)
    directions = directions / np.where(lengths == 0, 1.0, lengths)
    return lambda x: (x - centre) / sd @ directions


def _whitened(
    program: Program,
    group: Group,
    parameters: Mapping[str, Any],
    inducing: Functionals,
    centres: Float[np.ndarray, "n D"],
    wanted: Float[np.ndarray, "n latents"],
    noise: float,
    jitter: float,
) -> tuple[Float[np.ndarray, "latents M"], Float[np.ndarray, "latents M M"], Float[np.ndarray, "latents"]]:
    """Whitened means and roots of a group of which these values were measured at some places, and units.

    `wanted` and the standard deviation `noise` are in units of its prior. q is narrow where measurements tell, and as
    wide as the prior elsewhere: a known value costs its logarithm, in directions that no row sees as in others. The
    places are the inducing points, where there are such.
    """

    def compute(parameters: Any, inducing: Any, centres: Any, wanted: Any) -> Any:
        kernel = kernel_values(program.evaluator, group, parameters)
        seen = factor = factorise(group, kernel, inducing, jitter)
        if not isinstance(inducing, Values):
            seen = sparse_features(group, kernel, inducing, Values(centres), factor).phi
        own = jnp.sqrt(jnp.mean(prior_variances(group, kernel, Values(centres)), axis=1))
        sds = jnp.broadcast_to(own, (group.size,))
        seen = jnp.broadcast_to(seen, (group.size, *seen.shape[1:]))
        told = jnp.swapaxes(seen, -1, -2) / (noise * sds[:, None, None])
        covariance = jnp.linalg.inv(jnp.eye(len(inducing)) + told @ jnp.swapaxes(told, -1, -2))
        white = (covariance @ told @ jnp.broadcast_to(wanted.T / noise, (group.size, len(centres)))[..., None])[..., 0]
        return white, jnp.linalg.cholesky(covariance), sds * jnp.sqrt(kernel.scale)

    return tuple(map(np.asarray, jit(compute, brief=True)(parameters, inducing, centres, wanted)))  # type: ignore[return-value]


def _row_variables(
    program: Program, group: Group, rows: Rows, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Principal components of the outputs where there are no inputs; else apart at random, and wide."""
    count = row_count(rows)
    mean, sd = SPREAD * rng.standard_normal((count, group.size)), WIDE
    if not program.declarations.inputs:
        outputs = [np.where(rows.observed[n], v, np.nan).reshape(count, -1) for n, v in rows.outputs.items()]
        table = np.concatenate(outputs, axis=1)
        filled = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
        mean, sd = _projection(filled, group.size, rng)(filled), NARROW
    return {"mean": mean.T[None], "log_sd": np.full((1, group.size, count), np.log(sd))}, mean


def passing_on(program: Program, tiny: float = TINY) -> Program:
    """The program with next to no variance of inner layers whose means pass their arguments on, so that they are none.

    As far as learnt parameters scale it: those of layers that are narrow already stay as they are.
    """
    values = {name: np.asarray(value, float) for name, value in program.parameters.initial.items()}
    for group in program.groups:
        if program.inner & set(group.names) and all(_reads_arguments(member.latent) for member in group.members):
            for name in values:
                values[name] = _narrowing(program, group, values, name, tiny)
    return at_values(program, values)


def may_be_none(program: Program) -> bool:
    """Whether parameters may make all inner layers none: they pass their arguments on, with no variance to speak of."""
    narrow = passing_on(program)
    values = as_arrays({**narrow.parameters.held, **narrow.parameters.initial}, float)
    inner = [group for group in narrow.groups if program.inner & set(group.names)]
    passing = all(_reads_arguments(member.latent) for group in inner for member in group.members)
    return passing and all(np.max(_scale(narrow, group, values)) <= NARROWEST for group in inner)


def _narrowing(program: Program, group: Group, values: Mapping[str, np.ndarray], name: str, tiny: float) -> np.ndarray:
    """A parameter at which the variances that it scales are tiny; as it is where it scales none that is wide."""
    every = as_arrays({**program.parameters.held, **values}, float)

    def logs(value: Any) -> Any:
        return jnp.log(_scale(program, group, {**every, name: value}))

    value = every[name]
    scale, slopes = np.exp(np.asarray(logs(value))), np.asarray(jax.jacrev(logs)(value))
    powers = (slopes.reshape(group.size, -1) * np.ravel(value))[scale > NARROWEST]
    wide = scale[scale > NARROWEST]
    if not powers.size or not np.any(powers > 0):
        return values[name]
    power = np.max(powers, axis=0)
    largest = np.max(np.where(powers > 0, wide[:, None], 0.0), axis=0)
    share = np.where(power > 0, (tiny / np.maximum(largest, tiny)) ** (1.0 / np.where(power > 0, power, 1.0)), 1.0)
    found = values[name] * share.reshape(np.shape(values[name]))
    return found if program.parameters.bijectors[name].contains(found) else values[name]
