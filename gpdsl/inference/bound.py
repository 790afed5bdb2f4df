"""The evidence lower bound: ELBO = L_ent + L_cross + L_ell, SAVIGP eqs. 9 to 20."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from gpdsl.inference.blocks import Block, Draws, block_rows, over_blocks
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.opaque.surrogate import Surrogate
from gpdsl.inference.posteriors import features as projections
from gpdsl.inference.posteriors.family import (
    Diagonal,
    Family,
    Full,
    Linear,
    Parameters,
    PerRow,
    Whitened,
)
from gpdsl.inference.posteriors.features import Features, information, inverse_root
from gpdsl.kernels.functionals import Functionals
from gpdsl.kernels.numerics import solve_lower
from gpdsl.program.evaluation import functionals_at, prior_means
from gpdsl.program.groups import Group, KernelValues, kernel_values
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count

Parts = list[tuple[Family, Parameters]]

State = Mapping[str, Any]
"""What is optimised: `parameters` (unconstrained), `posterior` ({groups, logits}) and `inducing` (inputs per group)."""


@dataclass(frozen=True)
class Layout:
    """Static choices of a fit: the family, whether the rows are the inducing points (dense), a mixture's entropy."""

    family: Family
    dense: bool
    entropy: str = "pairwise"

    def family_of(self, group: Group) -> Family:
        """The family of one group's posterior: row variables are independent in every family."""
        return PerRow(self.family.components) if group.per_row else self.family


@dataclass(frozen=True)
class GroupView:
    """One group at the current parameters: its numbers and the features of the rows."""

    group: Group
    kernel: KernelValues
    features: projections.Features | projections.RowFeatures


@dataclass(frozen=True, eq=False)
class Views(Sequence[GroupView]):
    """Every group of a program at some rows, and at (constrained) parameters."""

    program: Program
    parameters: Mapping[str, Array]
    rows: Rows
    groups: Sequence[GroupView]

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, place: Any) -> Any:
        return self.groups[place]

    def prior(self, count: int) -> Float[Array, "rows columns"]:
        """Prior means of all that so many rows read."""
        return prior_means(self.program.evaluator, self.program.groups, self.parameters, self.rows, count)

    def expected(
        self, q: Marginals, normals: Array | None = None, externals: Mapping[str, Array] | Surrogate | None = None
    ) -> Float[Array, "K rows"]:
        """`expected_log_likelihood` of the rows."""
        return expected_log_likelihood(self.program, self.parameters, self.rows, q, normals, externals)


def views(
    program: Program,
    parameters: Mapping[str, Array],
    inducing: Sequence[Functionals],
    rows: Rows,
    dense: bool,
    jitter: Array | float,
) -> Views:
    """Kernel numbers, factors and features of every group. `parameters` are constrained."""
    found = []
    for group, functionals in zip(program.groups, inducing, strict=True):
        kernel = kernel_values(program.evaluator, group, parameters)
        if group.per_row:
            found.append(GroupView(group, kernel, projections.row_features(rows, kernel.scale.dtype)))
            continue
        factor = projections.factorise(group, kernel, functionals, jitter)
        if dense:
            features: projections.Features = projections.dense_features(factor)
        else:
            at = functionals_at(group, group.readings.all, rows)
            features = projections.sparse_features(group, kernel, functionals, at, factor, rows.shards)
        found.append(GroupView(group, kernel, features))
    return Views(program, parameters, rows, found)


def assemble(
    seen: Views, moments: Sequence[tuple[Float[Array, "K latents rows"], Float[Array, "K latents rows"]]]
) -> Marginals:
    """Marginals of all that is read of the latents, from each group's moments at unit scale: SAVIGP eqs. 21 to 23."""
    means, variances = [], []
    for view, (mean, variance) in zip(seen, moments, strict=True):
        means.append(by_reading(view.group, jnp.sqrt(view.kernel.scale)[:, None] * mean))
        variances.append(by_reading(view.group, view.kernel.scale[:, None] * variance))
    if not means:  # a model of parameters alone
        nothing = jnp.zeros((1, row_count(seen.rows), 0))
        return Marginals(nothing, nothing)
    prior = seen.prior(means[0].shape[-1])
    stack = lambda parts: jnp.swapaxes(jnp.concatenate(parts, axis=1), 1, 2)  # noqa: E731
    return Marginals(prior + stack(means), stack(variances))


def whitened_marginals(seen: Views, posterior: Sequence[Whitened]) -> Marginals:
    """Marginals of all that is read of the latents, from whitened values that are independent between groups."""
    return assemble(seen, [q.moments(view.features) for q, view in zip(posterior, seen, strict=True)])


def by_reading(group: Group, moments: Float[Array, "K latents values"]) -> Float[Array, "K columns rows"]:
    """From the rows of one reading after the other to one column per reading and latent."""
    readings = len(group.readings.all)
    if readings == 1:
        return moments
    components, latents, long = moments.shape
    apart = moments.reshape(components, latents, readings, long // readings)
    return jnp.swapaxes(apart, 1, 2).reshape(components, readings * latents, -1)


def prepared(layout: Layout, state: State, seen: Sequence[GroupView]) -> Parts:
    """Each group's family and its parameters, as the family's methods take them."""
    families = [layout.family_of(view.group) for view in seen]
    pairs = zip(families, state["posterior"]["groups"], seen, strict=True)
    return [(family, family.prepare(q, view.features)) for family, q, view in pairs]


def weights(state: State) -> Float[Array, "K"]:
    """Mixture weights pi."""
    logits = state["posterior"]["logits"]
    return jnp.exp(logits - jnp.log(jnp.sum(jnp.exp(logits - jnp.max(logits)))) - jnp.max(logits))


def divergence(layout: Layout, state: State, seen: Sequence[GroupView], parts: Parts | None = None) -> Float[Array, ""]:
    """-(L_ent + L_cross): the exact KL for one component, an upper bound on it for several.

    `parts` are what `prepared` gives, where that is known already.
    """
    if not seen:
        return jnp.zeros(())
    pi, parts = weights(state), prepared(layout, state, seen) if parts is None else parts
    features = [view.features for view in seen]
    cross = jnp.stack([family.cross(q, each) for (family, q), each in zip(parts, features, strict=True)]).sum(axis=0)
    entropies = jnp.stack([family.entropy(q) for family, q in parts]).sum(axis=0)
    if layout.family.components == 1:
        return -jnp.sum(entropies + cross)
    pairs = [family.pairs(q, each) for (family, q), each in zip(parts, features, strict=True)]
    gaps, log_dets = (jnp.stack(each).sum(axis=0) for each in zip(*pairs, strict=True))
    dimension = sum(q["mean"].shape[1] * q["mean"].shape[2] for _, q in parts)
    entropy = mixture_entropy(layout.entropy, jnp.log(pi), entropies, gaps, log_dets, dimension)
    return -entropy - jnp.sum(pi * cross)


@dataclass(frozen=True, eq=False)
class Bound:
    """The bound of a posterior with a layout, from all rows or a minibatch."""

    program: Program
    layout: Layout
    rows: Rows
    jitter: Array | float

    def marginals(self, state: State) -> tuple[Marginals, Views]:
        """Marginals of q at the rows, and the groups' views they came from."""
        parameters = self.program.parameters.constrain(state["parameters"])
        seen = views(self.program, parameters, state["inducing"], self.rows, self.layout.dense, self.jitter)
        parts = prepared(self.layout, state, seen)
        moments = [family.moments(q, view.features) for (family, q), view in zip(parts, seen, strict=True)]
        return assemble(seen, moments), seen

    def value(
        self, state: State, total: Array | float, normals: Array | Draws | None, externals: Any = None
    ) -> Float[Array, ""]:
        """The bound: the expected log likelihood is scaled to so many rows in `total`.

        A batch so large that the features of its rows are a burden is taken block by block; its samples are `Draws`.
        """
        count = row_count(self.rows)
        size = 0 if self.layout.dense else block_rows(self.program, state["inducing"], count)
        if size and not externals:
            return self._in_blocks(state, size, normals)
        q, seen = self.marginals(state)
        assert not isinstance(normals, Draws)
        per_row = seen.expected(q, normals, externals)
        expected = jnp.sum(weights(state)[:, None] * per_row) * (total / per_row.shape[1])
        return expected - divergence(self.layout, state, seen) + self.program.log_prior(seen.parameters)

    def _in_blocks(self, state: State, size: int, normals: Array | Draws | None) -> Float[Array, ""]:
        """The bound, block by block."""
        program, layout, jitter = self.program, self.layout, self.jitter
        parameters = program.parameters.constrain(state["parameters"])
        first = jax.tree.map(lambda a: a[:1], self.rows)
        seen = views(program, parameters, state["inducing"], first, False, jitter)
        parts = self.prepared(state, seen)

        def expected(block: Block, given: Any) -> tuple[Array, None]:
            parameters, inducing, parts = given
            here = views(program, parameters, inducing, block.rows, False, jitter)
            moments = [family.moments(q, view.features) for family, q, view in zip(families, parts, here, strict=True)]
            found = here.expected(assemble(here, moments), block.samples(normals))
            return jnp.sum(found * block.weight, axis=1), None

        families, of_groups = zip(*parts, strict=True)
        total, _ = over_blocks(self.rows, size, expected, given=(parameters, state["inducing"], of_groups))
        return jnp.sum(weights(state) * total) - divergence(layout, state, seen, parts) + program.log_prior(parameters)

    def prepared(self, state: State, seen: Sequence[GroupView]) -> Parts:
        """What `prepared` gives with the features of all rows, where `seen` need not be of all of them.

        Only Theorem 2's covariances depend on the rows, by a sum over them.
        """
        program, layout = self.program, self.layout
        if layout.dense or not isinstance(layout.family, Linear):
            return prepared(layout, state, seen)
        parameters = program.parameters.constrain(state["parameters"])
        groups, count = state["posterior"]["groups"], row_count(self.rows)
        size = block_rows(program, state["inducing"], count) or count

        def informed(block: Block, given: Any) -> tuple[list[Array], None]:
            parameters, inducing, groups = given
            found, here = [], views(program, parameters, inducing, block.rows, False, self.jitter)
            for q, view in zip(groups, here, strict=True):
                if isinstance(view.features, projections.RowFeatures):
                    found.append(jnp.zeros(()))
                    continue
                sites = jnp.sinh(q["site"][0]).reshape(view.group.size, -1, count)[..., block.numbers] * block.weight
                found.append(information(view.features, sites.reshape(view.group.size, -1)))
            return found, None

        total, _ = over_blocks(self.rows, size, informed, given=(parameters, state["inducing"], groups))
        parts: Parts = []
        for q, view, each in zip(groups, seen, total, strict=True):
            family = layout.family_of(view.group)
            parts.append((family, q if view.group.per_row else {"mean": q["mean"], "root": inverse_root(each)[None]}))
        return parts


# --- Lower bounds of the entropy of a mixture of Gaussians, from all pairs of its components -------------------------


LOG_2PI = 1.8378770664093453


def mixture_entropy(
    kind: str,
    log_weights: Float[Array, "K"],
    entropies: Float[Array, "K"],
    gaps: Float[Array, "K K"],
    log_dets: Float[Array, "K K"],
    dimension: int,
) -> Float[Array, ""]:
    """A lower bound of the entropy, from the components' entropies, gaps (m_k - m_l)'(S_k + S_l)^-1 (m_k - m_l) and
    log |S_k + S_l|.

    `jensen`: -sum_k pi_k log sum_l pi_l N(m_k; m_l, S_k + S_l), SAVIGP eq. 18. It is 0.15 nats per dimension below the
    entropy of one Gaussian, however far the components are apart. `pairwise`: sum_k pi_k (H_k - log sum_l pi_l
    exp(-B_kl)) with Bhattacharyya distances B, exact for components that are equal or far apart: Kolchinsky and Tracey
    (2017), Estimating mixture entropy with pairwise distances, Entropy 19.
    """
    weights = jnp.exp(log_weights)
    if kind == "jensen":
        overlap = -0.5 * (dimension * LOG_2PI + log_dets + gaps)
        return -jnp.sum(weights * logsumexp(log_weights + overlap, axis=1))
    own = 2.0 * entropies - dimension * (1.0 + LOG_2PI)  # log |S_k|
    middle = log_dets - dimension * jnp.log(2.0)  # log |(S_k + S_l) / 2|
    distances = 0.25 * gaps + 0.5 * middle - 0.25 * (own[:, None] + own[None, :])
    return jnp.sum(weights * (entropies - logsumexp(log_weights - distances, axis=1)))


# A dense posterior of the latents themselves, held while the prior moves: SAVIGP section 6.1 in whitened coordinates.
#
# Whitened values are good coordinates for a search, but they move the latents with the prior. `carried` gives the
# whitened parameters of the same q(f) under other hyperparameters.


def is_free(family: Family) -> bool:
    """Whether a dense posterior of this family has parameters of its own, whatever the prior: all but `linear`."""
    return isinstance(family, (Full, Diagonal)) and not isinstance(family, Linear)


def carried(
    program: Program, layout: Layout, state: Mapping[str, Any], changed: Mapping[str, Array], rows: Rows, jitter: Any
) -> dict[str, Any]:
    """The state with some (unconstrained) parameters changed and q of the latents at the rows as it was."""
    moved = {**state["parameters"], **changed}
    count = next(iter(rows.observed.values())).shape[0]
    ends = []
    for learnt in (state["parameters"], moved):
        parameters = program.parameters.constrain(learnt)
        seen = views(program, parameters, state["inducing"], rows, layout.dense, jitter)
        ends.append((seen, seen.prior(count)))
    (old, before), (new, after) = ends
    groups = []
    for q, was, now in zip(state["posterior"]["groups"], old, new, strict=True):
        if was.group.per_row:
            groups.append(q)
            continue
        columns = slice(was.group.start, was.group.stop)
        shift = by_latent(was.group, (before - after)[:, columns])
        groups.append(_rewhitened(layout.family_of(was.group), q, was, now, shift))
    return {"parameters": moved, "posterior": {**state["posterior"], "groups": groups}}


def by_latent(group: Group, values: Float[Array, "rows columns"]) -> Float[Array, "latents values"]:
    """One row per latent: the rows of one reading after the other."""
    apart = values.T.reshape(len(group.readings.all), group.size, -1)
    return jnp.swapaxes(apart, 0, 1).reshape(group.size, -1)


def _rewhitened(
    family: Family, q: Parameters, was: GroupView, now: GroupView, shift: Float[Array, "latents M"]
) -> Parameters:
    """f = mean + sqrt(s) L w under both priors: w' = sqrt(s / s') L'^-1 L w + L'^-1 (mean - mean') / sqrt(s')."""
    ratio = jnp.sqrt(was.kernel.scale / now.kernel.scale)
    assert isinstance(was.features, Features) and isinstance(now.features, Features)
    change = solve_lower(now.features.factor, was.features.factor)  # [g, M, M], lower triangular
    per_latent = jnp.broadcast_to(change, (shift.shape[0], *change.shape[1:])) * ratio[:, None, None]
    factor = jnp.broadcast_to(now.features.factor, per_latent.shape)
    moved = solve_lower(factor, (shift / jnp.sqrt(now.kernel.scale)[:, None])[..., None])[..., 0]
    mean = jnp.einsum("jnm,kjm->kjn", per_latent, q["mean"]) + moved
    if isinstance(family, Diagonal):
        return {"mean": mean, "log_sd": q["log_sd"] + jnp.log(ratio)[:, None]}
    root = jnp.einsum("jnm,kjml->kjnl", per_latent, family.prepare(q, was.features)["root"])
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    logs = jnp.log(diagonal)[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)
    return {"mean": mean, "root": jnp.tril(root, -1) + logs}
