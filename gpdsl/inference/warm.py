"""Starting from another fit: what it knows, whether it suits, and its posterior in another program's coordinates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.data import Calendar
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import GroupView, Views, assemble
from gpdsl.inference.natural.sites import Sites, site_target
from gpdsl.inference.posteriors.family import Family, Full, Held, Linear, Whitened
from gpdsl.inference.posteriors.features import RowFeatures, factorise, sparse_features
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Coefficients, Functionals, blocks, every_point, outline
from gpdsl.kernels.numerics import cholesky
from gpdsl.language.inducing import per_latent
from gpdsl.program.cache import jit
from gpdsl.program.groups import Group, columns_of, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program


class Later(Sequence[Whitened]):
    """A posterior that is worked out when it is first looked at."""

    def __init__(self, groups: int, compute: Callable[[], list[Whitened]]) -> None:
        self._groups = groups
        self._compute = functools.cache(compute)

    def __len__(self) -> int:
        return self._groups

    def __getitem__(self, place: Any) -> Any:
        return self._compute()[place]


@dataclass(frozen=True, eq=False)
class Start:
    """What a fit knows: its program, constrained parameters, inducing functionals, posterior, weights, jitter."""

    program: Program
    parameters: Mapping[str, np.ndarray]
    inducing: Sequence[Functionals]
    posterior: Sequence[Whitened]
    weights: np.ndarray
    jitter: float
    dense: bool
    held: Held | None = None
    """What holds the posterior where only its engine can go on from it; the others begin anew."""
    calendar: Calendar | None = None
    onto: Sequence[Functionals] | None = None
    """Inducing functionals of the program that goes on, where they are chosen already."""
    told: Any = None
    """What the fit was asked for as its option `inducing`."""
    everywhere: Collection[str] = ()
    """Latents that have a point at each of its rows, beside others that have not."""
    anew: tuple[Program, Any] | None = None
    """Program and options as they were before that fit began, where what it was about to look at is still to be."""

    def initial(self, program: Program) -> dict[str, np.ndarray]:
        """Values of the parameters that both models have."""
        return {name: value for name, value in self.parameters.items() if name in program.declarations.params}

    def told_of(self, latents: Collection[str]) -> Any:
        """What the fit was asked for by the names of these latents; None where they all had the same."""
        return per_latent(self.told, latents) if isinstance(self.told, Mapping) else None

    def group_of(self, name: str) -> tuple[int, slice] | None:
        """The group of a latent, and its elements among the group's; None when this fit has no such latent."""
        for place, group in enumerate(self.program.groups):
            before = 0
            for member in group.members:
                if member.latent.name == name:
                    return place, slice(before, before + member.count)
                before += member.count
        return None

    def inducing_for(self, program: Program) -> list[Functionals] | None:
        """This fit's inducing functionals, group by group of another program; None where its groups are others."""
        found: list[Functionals] = []
        for group in program.groups:
            places = {at[0] for at in map(self.group_of, group.names) if at is not None}
            if len(places) != 1 or group.per_row:
                return None
            found.append(self.inducing[places.pop()])
        return found


def check_start(start: Start, program: Program) -> None:
    """Raise GpdslError where the other fit is one of another model: no latent in common, or one of another shape."""
    known = False
    for group in program.groups:
        for member in group.members:
            name, at = member.latent.name, start.group_of(member.latent.name)
            if at is None:
                continue
            other, columns = start.program.groups[at[0]], _columns(program, group)
            count, known = at[1].stop - at[1].start, True
            if count != member.count:
                raise GpdslError(f"start: latent `{name}` has {count} element(s) there and {member.count} here")
            if group.per_row != other.per_row:
                raise GpdslError(f"start: `{name}` is a latent in one model and a row variable in the other")
            if columns != (theirs := _columns(start.program, other)):
                raise GpdslError(f"start: latent `{name}` is over {theirs} column(s) there and {columns} here")
    if program.groups and not known:
        names = ", ".join(f"`{name}`" for group in start.program.groups for name in group.names)
        raise GpdslError(f"start: that fit has none of this model's latents; it has {names}")
    for name, value in start.initial(program).items():
        shape = program.translator.shape(program.declarations.params[name].axes)
        if np.shape(value) != shape:
            raise GpdslError(f"start: parameter `{name}` has shape {np.shape(value)} there and {shape} here")


def _columns(program: Program, group: Group) -> int:
    return columns_of(group, program.translator)


@dataclass(frozen=True)
class Carried:
    """A posterior brought over: whitened, group by group (None: a group the other fit does not know), and weights."""

    posterior: list[Whitened | None]
    weights: np.ndarray

    @property
    def heaviest(self) -> list[Whitened | None]:
        """The component of the largest weight alone."""
        own = slice(int(np.argmax(self.weights)), int(np.argmax(self.weights)) + 1)
        return [None if q is None else Whitened(q.mean[own], q.root[own]) for q in self.posterior]


def near(
    family: Family,
    q: Whitened,
    weights: np.ndarray,
    apart: Float[np.ndarray, "K latents M"],
    factor: Float[np.ndarray, "g M M"] | None,
) -> dict[str, np.ndarray]:
    """A family's parameters at a whitened posterior; `factor` is that of Kuu where the family speaks of latent values.

    A mixture with another number of components starts from the heaviest one, `apart` in as many directions.
    """
    mean, root = np.asarray(q.mean), np.asarray(q.root)
    if mean.shape[0] != family.components:
        heaviest = int(np.argmax(weights))
        mean = np.repeat(mean[heaviest : heaviest + 1], family.components, axis=0)
        root = np.repeat(root[heaviest : heaviest + 1], family.components, axis=0)
        mean = mean + apart if family.components > 1 else mean
    if isinstance(family, Linear):
        return {"mean": mean}
    if isinstance(family, Full):
        own = np.arange(root.shape[-1])
        raw = np.tril(root, -1)
        raw[..., own, own] = np.log(root[..., own, own])
        return {"mean": mean, "root": raw}
    if factor is not None:
        root = factor @ root
    return {"mean": mean, "log_sd": 0.5 * np.log(np.sum(root**2, axis=-1))}


def site_start(seen: Views, begun: Carried, normals: Array | None) -> Sites:
    """Sites of a full natural-gradient step from the carried posterior: at its optimum, the optimal ones."""
    q = _carried_marginals(seen, begun)
    return site_target(q, jax.grad(lambda q: jnp.sum(seen.expected(q, normals)))(q))


def pulled(seen: Views, begun: Carried, sites: Sites) -> Sites:
    """Sites that pull toward the carried means, as strongly as `sites` push: these may have no Gaussian.

    Where an expected log likelihood bends upwards, as that of y given f^2 does near f = 0, its sites are negative.
    """
    if sites.precision.ndim > 2:  # blocks between latents: their signs are not those of their entries
        return sites
    strength = jnp.abs(sites.precision)
    return Sites(strength * _carried_marginals(seen, begun).mean[0], strength)


def _carried_marginals(seen: Views, begun: Carried) -> Marginals:
    return assemble(seen, [_moments(view, q) for view, q in zip(seen, begun.posterior, strict=True)])


def _moments(view: GroupView, q: Whitened | None) -> tuple[Array, Array]:
    """Marginal moments of the heaviest component; the prior's where nothing is known."""
    if q is None:
        features = view.features
        size = features.new.shape[0] if isinstance(features, RowFeatures) else features.phi.shape[1]
        shape = (1, view.group.size, size)
        if isinstance(features, RowFeatures):
            return jnp.zeros(shape), jnp.ones(shape)
        prior = jnp.sum(features.phi**2, axis=-1) + features.residual
        return jnp.zeros(shape), jnp.broadcast_to(prior, shape)
    mean, variance = q.moments(view.features)
    return mean[:1], variance[:1]


# A fit's posterior in another program's coordinates: as it is where nothing changed, else as a process.
#
# A posterior is carried over as q at the new inducing functionals, under the old kernel and the old inducing
# functionals, whitened by the new kernel: the best start there is, for any number of inducing points, dense or not, for
# other rows.

ROUNDING = 100.0
"""Times the jitter that a whitened covariance gets: it is a difference of larger matrices."""


def carry(
    start: Start, program: Program, learnt: Mapping[str, Array], inducing: Sequence[Functionals], jitter: float
) -> Carried:
    """The other fit's posterior in this program's coordinates, at its (unconstrained) parameters."""
    carrying = _Carrying(start, program, learnt, jitter)
    return Carried([carrying.of_group(*each) for each in zip(program.groups, inducing, strict=True)], start.weights)


Place = tuple[int, slice]
"""Of a group in the other fit, and which of its latents."""


@dataclass(frozen=True, eq=False)
class _Carrying:
    """From a fit to the coordinates of a program at some parameters."""

    start: Start
    program: Program
    learnt: Mapping[str, Array]
    jitter: float

    def of_group(self, group: Group, functionals: Functionals) -> Whitened | None:
        """q of one group at these functionals; None where there is none."""
        start = self.start
        places = [at for at in map(start.group_of, group.names) if at is not None]
        if len(places) < len(group.names):
            return None
        if group.per_row:
            return _row_posterior([(start.posterior[at], own) for at, own in places], len(functionals))
        if any(_unlike(start.inducing[at], functionals) for at, _ in places):
            return None
        return self._unchanged(group, places[0][0], functionals) or self._brought(group, places, functionals)

    def _unchanged(self, group: Group, place: int, functionals: Functionals) -> Whitened | None:
        """The other fit's posterior of a group as it is, when kernel, inducing functionals and jitter are; else None.

        Seen through covariances it would lose what the rows say most precisely: those are small differences of large
        ones.
        """
        start, other, old = self.start, self.start.program.groups[place], self.start.inducing[place]
        if other.names != group.names or other.form != group.form or self.jitter != start.jitter:
            return None
        if outline(old) != outline(functionals) or not _close(old, functionals):
            return None
        parameters = {name: jnp.asarray(value) for name, value in start.parameters.items()}
        here = kernel_values(self.program.evaluator, group, self.program.parameters.constrain(self.learnt))
        there = kernel_values(start.program.evaluator, other, parameters)
        if not _close((there.scale, there.arguments), (here.scale, here.arguments)):
            return None
        q, dtype = start.posterior[place], every_point(functionals).dtype
        return Whitened(jnp.asarray(q.mean, dtype), jnp.asarray(triangular(np.asarray(q.root)), dtype))

    def _brought(self, group: Group, places: Sequence[Place], functionals: Functionals) -> Whitened:
        """By its means and covariances at the functionals."""
        start, program, jitter, dtype = self.start, self.program, self.jitter, every_point(functionals).dtype
        numbers = jax.tree.map(
            lambda a: jnp.asarray(a, dtype), (dict(start.parameters), list(start.inducing), list(start.posterior))
        )

        def bring(numbers: Any, learnt: Any, functionals: Any) -> Whitened:
            parameters, inducing, posterior = numbers
            pieces = [
                _seen_at(start, (at, own), parameters, inducing[at], posterior[at], functionals) for at, own in places
            ]
            mean, covariance = (jnp.concatenate(each, axis=1) for each in zip(*pieces, strict=True))
            kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt))
            factor = factorise(group, kernel, functionals, jitter)
            factor = jnp.broadcast_to(factor, (group.size, *factor.shape[1:]))
            scale = kernel.scale[:, None, None]
            whiten = jax.vmap(jax.vmap(lambda f, right: solve_triangular(f, right, lower=True)), in_axes=(None, 0))
            half = whiten(factor, covariance / scale)
            white = whiten(factor, jnp.swapaxes(half, -1, -2))
            moved = whiten(factor, (mean / jnp.sqrt(kernel.scale)[:, None])[..., None])[..., 0]
            return Whitened(moved, cholesky(0.5 * (white + jnp.swapaxes(white, -1, -2)), ROUNDING * jitter))

        return jit(bring)(numbers, dict(self.learnt), functionals)


def _unlike(one: Functionals, other: Functionals) -> bool:
    """Whether both have features that are not points, of which no covariances are known."""
    parts = [[part for block in blocks(each) for _, part in block] for each in (one, other)]
    a, b = ([part for part in each if isinstance(part, Coefficients)] for each in parts)
    known = [outline(each) for each in a] == [outline(each) for each in b] and _close(a, b)
    return bool(a and b) and not known


def _close(one: Any, other: Any) -> bool:
    """Whether two trees of arrays differ by no more than rounding."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)]
    return all(a.shape == b.shape and np.allclose(a, b, 8 * np.finfo(b.dtype).eps, 0.0) for a, b in pairs)


def triangular(root: Float[np.ndarray, "... M columns"]) -> Float[np.ndarray, "... M M"]:
    """The lower triangular root of root root', with a positive diagonal."""
    lower = np.swapaxes(np.linalg.qr(np.swapaxes(root, -1, -2), mode="r"), -1, -2)
    signs = np.sign(np.diagonal(lower, axis1=-2, axis2=-1))
    return lower * np.where(signs == 0, 1.0, signs)[..., None, :]


def _row_posterior(parts: Sequence[tuple[Whitened, slice]], rows: int) -> Whitened | None:
    """Row variables belong to their rows: carried when there are as many."""
    if any(q.mean.shape[-1] != rows for q, _ in parts):
        return None
    sds = [np.sqrt(np.sum(np.asarray(q.root)[:, own] ** 2, axis=-1, keepdims=True)) for q, own in parts]
    return Whitened(
        np.concatenate([np.asarray(q.mean)[:, own] for q, own in parts], axis=1), np.concatenate(sds, axis=1)
    )


def _seen_at(
    start: Start, place: Place, parameters: Mapping[str, Array], inducing: Functionals, q: Whitened, at: Functionals
) -> tuple[Float[Array, "K latents M"], Float[Array, "K latents M M"]]:
    """Means (without the prior's) and covariances of some of a group's latents at functionals, SAVIGP eqs. 22, 23."""
    group, own = start.program.groups[place[0]], place[1]
    kernel = kernel_values(start.program.evaluator, group, parameters)
    factor = factorise(group, kernel, inducing, start.jitter)
    phi = sparse_features(group, kernel, inducing, at, factor).phi
    other = at if group.apart else None
    by_factor = [tuple(a[g] for a in kernel.arguments) for g in range(group.factors)]
    prior = jnp.stack([covariance(group.form, arguments, at, other) for arguments in by_factor])
    open_part = prior - phi @ jnp.swapaxes(phi, -1, -2)
    phi, open_part = (jnp.broadcast_to(a, (group.size, *a.shape[1:]))[own] for a in (phi, open_part))
    scale = kernel.scale[own]
    mean = jnp.einsum("jnm,kjm->kjn", phi, jnp.asarray(q.mean)[:, own]) * jnp.sqrt(scale)[:, None]
    spread = jnp.einsum("jnm,kjmr->kjnr", phi, jnp.asarray(q.root)[:, own])
    return mean, scale[:, None, None] * (spread @ jnp.swapaxes(spread, -1, -2) + open_part)
