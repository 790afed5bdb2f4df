"""All rows of a prediction together: draws through the layers, covariances, and whole functions that are composed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.layered.propagation import Layers
from gpdsl.inference.posteriors.coupled import MOST, Block, block_of
from gpdsl.inference.posteriors.family import Roots
from gpdsl.inference.posteriors.features import (
    factorise,
    of_each_kernel,
    prior_covariances,
    prior_variances,
    row_features,
    sparse_features,
)
from gpdsl.inference.posteriors.pathwise import Bent, bent, by_column, refuse_unsuited
from gpdsl.inference.posteriors.posterior import Given, Paths, Posterior
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import Form
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count
from gpdsl.symbolic.readings import OWN

JOINT_DRAWS = 512
"""Draws of the latents that others are functions of, from which covariances between rows are estimated."""

AT_ONCE = 1 << 22
"""Numbers in the covariances of draws that are made together: 32 MB."""


def drawn_together(
    posterior: Posterior,
    program: Program,
    rows: Rows,
    variables: Float[np.ndarray, "rows latents"] | None,
    count: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "draws rows latents"]:
    """Draws of all latents at all rows, where variables of rows are drawn too, or have these values.

    Raises GpdslError for too many rows, and latents read in other ways.
    """
    places = [place for place in program.order if variables is None or not program.groups[place].per_row]
    return np.concatenate([known for known, _ in _passes(posterior, program, rows, count, rng, places, variables)])


def covariances(
    posterior: Posterior, program: Program, rows: Rows, variances: Float[np.ndarray, "rows latents"]
) -> Block:
    """Covariances of all latents between all rows: those given the layers below, on average, and of the means there.

    They are estimated as correlations: `variances` are known better, from passes that are spread evenly.

    Raises GpdslError for too many rows, and latents read in other ways.
    """
    count, latents = row_count(rows), program.latents
    _verify(program.groups, latents**2, count)
    last = [place for place in program.order if not set(program.groups[place].names) & program.inner]
    total, means = np.zeros((latents, count, latents, count)), []
    for known, given in passes_together(posterior, program, rows, JOINT_DRAWS, np.random.default_rng(0)):
        for place in last:
            own = np.arange(program.groups[place].start, program.groups[place].stop)
            known[..., own], among = given(place, known)
            total[own, :, own] += among.sum(axis=0) / JOINT_DRAWS
        means.append(np.swapaxes(known, 1, 2).reshape(len(known), -1))
    total += np.cov(np.concatenate(means).T, bias=True).reshape(total.shape)
    for place in set(program.order) - set(last):
        group = program.groups[place]
        if not set(group.inputs) & program.inner:  # known as it is
            own = np.arange(group.start, group.stop)
            every = np.arange(count)
            total[np.ix_(own, every, own, every)] = 0.0
            total[own, :, own] = given(place, known)[1][0]
    own = np.sqrt(np.einsum("anan->an", total))
    sds = np.divide(np.sqrt(variances.T), own, out=np.ones_like(own), where=own > 0)
    total *= sds[:, :, None, None] * sds
    return Block(tuple(range(latents)), total[None])


def passes_together(
    posterior: Posterior, program: Program, rows: Rows, count: int, rng: np.random.Generator
) -> Iterator[tuple[Float[np.ndarray, "draws rows latents"], Given]]:
    """Draws of the latents that others are functions of, some at a time, and what tells the others given these.

    Raises GpdslError for too many rows, and latents read in other ways.
    """
    below = [place for place in program.order if set(program.groups[place].names) & program.inner]
    return _passes(posterior, program, rows, count, rng, below)


def _verify(groups: Sequence[Any], numbers: int, rows: int) -> None:
    for group in groups:
        if group.readings.all != (OWN,):
            raise GpdslError(
                f"`{group.names[0]}` is read at several places: `prediction.sample` draws each row on its own"
            )
    if numbers * rows**2 > MOST:
        most = int((MOST / numbers) ** 0.5)
        raise GpdslError(f"{rows} rows: all of them together go to {most} rows for this model; ask for fewer")


def _passes(
    posterior: Posterior,
    program: Program,
    rows: Rows,
    count: int,
    rng: np.random.Generator,
    places: Sequence[int],
    variables: Float[np.ndarray, "rows latents"] | None = None,
) -> Iterator[tuple[Float[np.ndarray, "draws rows latents"], Given]]:
    """Draws of the groups at some places, which come before others that are functions of them; some at a time.

    Variables of rows are drawn with them, or have these values.
    """
    varying = program.inner if variables is None else program.inner - program.declarations.rows.keys()
    widest, size = max((program.groups[place].size for place in places), default=1), row_count(rows)
    _verify(program.groups, widest, size)

    def given(place: int, known: Float[np.ndarray, "draws rows latents"], first: int = 0) -> tuple[np.ndarray, ...]:
        key = "together", program, place, first
        if key not in posterior.compiled:
            one = partial(_together, program, place, posterior.jitter, first)
            posterior.compiled[key] = jit(jax.vmap(one, (None, None, 0)), brief=True)
        alike = not set(program.groups[place].inputs) & varying
        below = jnp.asarray(known[:1] if alike else known, posterior.dtype)
        found = posterior.compiled[key](posterior.numbers, rows, below)
        return tuple(np.broadcast_to(a, known.shape[:1] + a.shape[1:]) for a in map(np.asarray, found))

    shared = variables is not None and not any(set(program.groups[place].inputs) & varying for place in places)
    at_once = count if shared else max(1, AT_ONCE // (widest * size**2))  # of shared covariances there is one
    for start in range(0, count, at_once):
        known = np.zeros((min(at_once, count - start), size, program.latents))
        known += 0.0 if variables is None else variables
        for place in places:
            mean, among = given(place, known)
            own = slice(program.groups[place].start, program.groups[place].stop)
            known[..., own] = mean + _around(among, rng)
        yield known, given


def roots_together(
    posterior: Posterior, program: Program, rows: Rows, variables: Float[np.ndarray, "rows latents"]
) -> Iterator[Roots]:
    """See `Posterior.roots`."""
    for place in program.order:
        group = program.groups[place]
        if group.per_row:
            continue
        key = "roots", program, place
        if key not in posterior.compiled:
            posterior.compiled[key] = jit(partial(_roots, program, place, posterior.jitter), brief=True)
        found = posterior.compiled[key](posterior.numbers, rows, jnp.asarray(variables, posterior.dtype))
        yield Roots(slice(group.start, group.stop), *(np.asarray(each, float) for each in found))


def _roots(
    program: Program, place: int, jitter: float, numbers: Any, rows: Rows, known: Float[Array, "rows latents"]
) -> tuple[Array, Array, Array]:
    """Means [latents, rows] of a group, roots [latents, rows, M] of what q says, and variances that it leaves."""
    parameters, (q, inducing) = numbers
    group, inducing = program.groups[place], inducing[place]
    at, values = Layers(program, frozenset()).at_samples(group, rows, known[None])
    kernel = kernel_values(program.evaluator, group, parameters)
    prior = prior_means(program.evaluator, [group], parameters, at, row_count(rows), values)
    points = functionals_at(group, group.readings.all, at)
    features = sparse_features(group, kernel, inducing, points, factorise(group, kernel, inducing, jitter))
    mean, _ = q[place].moments(features)
    root = features.phi @ jnp.asarray(q[place].root)[0]
    left = prior_variances(group, kernel, points) - jnp.sum(features.phi**2, axis=-1)
    scale = kernel.scale[:, None]
    left = scale * jnp.maximum(jnp.broadcast_to(left, root.shape[:2]), 0.0)
    return jnp.swapaxes(prior, 0, 1) + jnp.sqrt(scale) * mean[0], jnp.sqrt(scale)[..., None] * root, left


def _around(
    covariance: Float[np.ndarray, "draws latents rows rows"], rng: np.random.Generator
) -> Float[np.ndarray, "draws rows latents"]:
    """A deviation with each of these covariances."""
    found, roots = np.zeros(covariance.shape[:3]), {}
    for number, of_draw in enumerate(covariance):
        for latent, each in enumerate(of_draw):
            if number == 0 or covariance.strides[0]:  # else the draws share them
                roots[latent] = block_of((0,), each[None, None, :, None]).root(0)
            found[number, latent] = roots[latent] @ rng.standard_normal(roots[latent].shape[1])
    return np.swapaxes(found, 1, 2)


def _together(
    program: Program, place: int, jitter: float, first: int, numbers: Any, rows: Rows, known: Array
) -> tuple[Array, ...]:
    """Means [rows, latents] of a group, and covariances [latents, rows, rows], given what they are functions of.

    Covariances [latents, rows, first] and variances [latents, rows] where the `first` rows are told apart.
    """
    (parameters, (posterior, inducing)), group = numbers, program.groups[place]
    at, values = Layers(program, frozenset()).at_samples(group, rows, known[None])
    kernel = kernel_values(program.evaluator, group, parameters)
    prior = prior_means(program.evaluator, [group], parameters, at, row_count(rows), values)
    if group.per_row:
        mean, variance = posterior[place].moments(row_features(rows, prior.dtype))
        every = jax.vmap(jnp.diag)(variance[0])
        found: tuple[Array, ...] = (every[..., :first], variance[0]) if first else (every,)
    else:
        points = functionals_at(group, group.readings.all, at)
        factor = factorise(group, kernel, inducing[place], jitter)
        features = sparse_features(group, kernel, inducing[place], points, factor)
        mean, _ = posterior[place].moments(features)
        told = features.phi @ jnp.asarray(posterior[place].root)[0]
        found = _left(group, kernel, points, features.phi, told, first)
    scale = kernel.scale
    among = (a * scale.reshape(-1, *(1,) * (a.ndim - 1)) for a in found)
    return prior + (jnp.sqrt(scale[:, None]) * mean[0]).T, *among


def _left(
    group: Group, kernel: KernelValues, at: Functionals, phi: Array, told: Array, first: int
) -> tuple[Array, ...]:
    """K - phi phi' + told told' at unit scale; where `first` says so, with the first points alone, and its diagonal."""
    if first and isinstance(at, Values):
        seen, rest = (jax.tree.map(lambda a, p=part: a[p], at) for part in (slice(first), slice(first, None)))
        among = prior_covariances(group, kernel, seen)  # with the noise that a kernel may have at a point
        beside = of_each_kernel(group, partial(_between, group.form, rest, seen), kernel)
        whole = jnp.concatenate([among, beside], axis=1)
    else:
        whole = prior_covariances(group, kernel, at)
    known = first or len(at)
    found = whole[..., :known] - phi @ jnp.swapaxes(phi[..., :known, :], -1, -2)
    found = found + told @ jnp.swapaxes(told[..., :known, :], -1, -2)
    if not first:
        return (found,)
    variance = prior_variances(group, kernel, at) - jnp.sum(phi**2, axis=-1) + jnp.sum(told**2, axis=-1)
    return found, variance


# Whole functions: a draw of each layer (Wilson et al., 2020) at the values of the draws below it.


def composed(posterior: Posterior, component: np.ndarray, rng: np.random.Generator, seed: int) -> Paths:
    """One function of every latent for each of these. Raises GpdslError where some are functions of row variables."""
    program = posterior.program
    names = sorted(program.inner & program.declarations.rows.keys())
    if names:
        raise GpdslError(
            f"no whole functions can be drawn: latents are functions of `{names[0]}`, which has a value of its own in "
            "each row; prediction.draws draws all rows of a prediction together"
        )
    parameters, (q, inducing) = posterior.numbers
    refuse_unsuited(program, inducing)
    drawn = bent(program, parameters, q, inducing, posterior.jitter, component, rng, seed)
    return Paths(_composed_at, (parameters, drawn), whole=True)


def _composed_at(
    program: Program, rows: Rows, parameters: Mapping[str, Array], drawn: Sequence[Bent]
) -> Float[Array, "draws rows columns"]:
    """All latents of each draw, means included."""
    layers = Layers(program, frozenset())

    def one(number: Array) -> Float[Array, "rows columns"]:
        values = jnp.zeros((row_count(rows), program.latents), drawn[0].weights.dtype)
        for place in program.order:
            group, own = program.groups[place], drawn[place].alone(number)
            at, known = layers.at_samples(group, rows, values[None])
            new = functionals_at(group, group.readings.all, at)
            kernel = kernel_values(program.evaluator, group, parameters)
            cross = of_each_kernel(group, partial(_between, group.form, new, own.inducing), kernel)
            found = by_column(group, kernel, own.prior.at(group, kernel, new) + cross @ own.weights)[0]
            found = found + prior_means(program.evaluator, [group], parameters, at, len(found), known)
            values = values.at[:, group.start : group.stop].set(found)
        return values

    return jax.lax.map(one, jnp.arange(drawn[0].weights.shape[-1]))


def _between(form: Form, a: Functionals, b: Functionals, arguments: tuple[Array, ...]) -> Array:
    return covariance(form, arguments, a, b)
