"""What of a posterior its family cannot hold, and latents whose kernels do not go with the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.inference.bound import by_reading, views
from gpdsl.inference.estimators.expected_log_likelihood import log_density
from gpdsl.inference.log_joint import of_model
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.unrelated_rows import missing_level
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.form import Base, Form, Product, Scaled, Sum, has_white
from gpdsl.kernels.functionals import Values, every_point
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import functionals_at
from gpdsl.program.groups import Group, kernel_values
from gpdsl.program.program import Program, make_rows
from gpdsl.program.reuse import shapes_of
from gpdsl.program.rows import Scope
from gpdsl.program.white import training
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.criticism.flexibility import spreading
from gpdsl.symbolic.coupling import mirrored

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit

ROWS = 300
"""Rows looked at: next to each other for neighbours, spread for the ends."""

STRANGERS, ALIKE = 0.1, 0.9995
"""Correlation of a row with that most like it, in the middle of all rows, below which a latent is noise to them; that
of the rows least alike above which it is a constant."""

IGNORED = 0.5
"""Correlation between latents from which leaving it out makes a posterior too narrow, by a seventh and more."""

LARGEST, WORSE = 400, 1.0
"""Whitened values up to which one Gaussian across all is soon found, and nats by which a mixture may be below it."""

OVERLOOKED, FEW_COLUMNS = 50.0, 50
"""How many times the spread of another a column has to have for the other to be overlooked; of more columns, as those
of images, some may vary little and mean it."""

BY_DISTANCE = {"RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic"}


def symmetry(fit: Fit, _: Data) -> Iterator[Finding]:
    """Signs that no density can tell."""
    if fit.program.fields or not fit.program.groups:
        return
    sets = mirrored(fit.program.translator, fit.program.observations)
    count = 2 ** len(sets)
    several = fit.choice.posterior.startswith("mixture") or fit.options.posterior == "corrected"
    invariant = "read what does not depend on the sign, or "
    if fit.options.engine == "ep":
        invariant = "those of what does not depend on the sign are wrong as well, where modes lie apart: "
    if not sets:
        yield Finding("symmetry", 1.0, False, "no latents can change their signs together")
    for some in sets:
        names = " and ".join(f"`{name}`" for name in some)
        verb = "may change its sign" if len(some) == 1 else "may change their signs together"
        yield Finding(
            "symmetry",
            float(count),
            not several,
            f"{names} {verb}, and no density knows: the posterior has two modes alike, and q is at one of them",
            f"means and deviations of these latents are those of one mode: {invariant}fit with "
            + "engine = vi and " * (fit.options.engine == "ep")
            + "posterior = mixture_full(2)",
        )


def one_gaussian(fit: Fit, data: Data) -> Iterator[Finding]:
    """The bound of the Gaussian that a plan takes by itself, at the parameters and inducing points of a mixture."""
    program = fit.program
    plain = fit.options.beta == 1 and not (fit.choice.batch or program.sampled or program.opaque or program.inner)
    values = sum(int(np.prod(q.mean.shape[1:])) for q in fit.posterior)
    if not fit.choice.posterior.startswith("mixture") or not plain or values > LARGEST or not np.isfinite(fit.elbo):
        return
    from gpdsl.results.fitting import fit_model

    inducing = None if fit.choice.dense else fit.options.inducing if fit.choice.own else fit.choice.inducing
    options = Options(
        inducing=inducing, dtype=fit.options.dtype, seed=fit.options.seed, diagnose="no", fixed=tuple(fit.parameters)
    )
    single = fit_model(fit.model, data, fit.columns, None, False, options, start=fit)
    gap = float(single.log_evidence_bound - fit.log_evidence_bound)
    yield Finding(
        "mixture against one Gaussian",
        gap,
        gap > WORSE,
        f"one Gaussian across all values, at the same parameters, has a bound {abs(gap):.2g} nats "
        + ("higher" if gap > 0 else "lower"),
        f"fit with posterior = {single.choice.posterior}, which is nearer to the posterior"
        + ("" if fit.choice.posterior.startswith("mixture_full") else ", or mixture_full(2), which keeps two modes"),
    )


def correlation(fit: Fit, data: Data) -> Iterator[Finding]:
    """Correlation between latents that are independent in q, by the curvature of the log likelihood at its mean.

    Of whitened values w_a and w_b with the roots R of their covariances in q, R_a' C R_b has the correlations as its
    singular values, with C = -Phi_a' diag(d^2 log p / df_a df_b) Phi_b.
    """
    program = fit.program
    if not program.mixing or not fit.at_rows.independent or program.opaque or data.rows > 10 * ROWS:
        return
    if fit.choice.posterior.startswith("mixture"):
        return
    found, names = _correlations(fit, data)
    if found is None:
        return
    a, b = np.unravel_index(int(np.argmax(found)), found.shape)
    most = float(min(found[a, b], 1.0))
    yield Finding(
        "correlation between latents",
        most,
        most > IGNORED,
        f"posterior = {fit.choice.posterior} leaves out that of `{names[a]}` and `{names[b]}`, about {most:.2f}",
        "deviations of latents are too small: fit with posterior = coupled",
    )


def _correlations(fit: Fit, data: Data) -> tuple[np.ndarray | None, list[str]]:
    """The largest correlation of each two latents, and the names of all."""
    program = training(fit.program, dense=True)
    rows = as_arrays(make_rows(program, fit.standardised.applied(data)), fit.options.dtype)
    parameters, inducing = as_arrays((dict(fit.parameters), list(fit.inducing)), fit.options.dtype)
    beliefs = fit.beliefs(data, program=program)

    def compute(parameters: dict, inducing: list, rows: object, mean: Array) -> tuple[list[Array], Array]:
        seen = views(program, parameters, inducing, rows, False, fit.jitter)  # type: ignore[arg-type]
        phis = []
        for view in seen:
            if not isinstance(view.features, Features):
                return [], mean
            wide = jnp.broadcast_to(view.features.phi, (view.group.size, *view.features.phi.shape[1:]))
            scaled = jnp.sqrt(view.kernel.scale)[:, None, None] * wide
            columns = [by_reading(view.group, scaled[None, :, :, m])[0] for m in range(scaled.shape[-1])]
            phis.append(jnp.stack(columns, axis=-1))  # [columns, rows, M]

        def slope(at: Array) -> Array:
            total = lambda f: jnp.sum(log_density(program, Scope(parameters, rows, f[None, None]), (1, 1, len(at))))  # type: ignore[arg-type]  # noqa: E731
            return jax.grad(total)(at)

        units = jnp.eye(mean.shape[1], dtype=mean.dtype)
        bends = [jax.jvp(slope, (mean,), (jnp.broadcast_to(unit, mean.shape),))[1] for unit in units]
        return phis, jnp.stack(bends)

    phis, bends = jit(compute, brief=True)(parameters, inducing, rows, beliefs.marginals.mean[0])
    if not phis:
        return None, []
    roots, own, names = [], [], []
    every = np.concatenate([np.asarray(each, float) for each in phis]) if _even(phis) else None
    if every is None:
        return None, []
    for group, q in zip(program.groups, fit.posterior, strict=True):
        for number in range(group.size):
            roots.append(_square(np.asarray(q.root[0, number], float)))
            own.append([group.start + r * group.size + number for r in range(len(group.readings.all))])
            names.append(program.latent_names[group.start + number])
    curved = np.asarray(bends, float)
    found = np.zeros((len(own), len(own)))
    for a in range(len(own)):
        for b in range(a):
            cross = sum(np.einsum("nm,n,nk->mk", every[i], curved[i, :, j], every[j]) for i in own[a] for j in own[b])
            found[a, b] = np.linalg.norm(roots[a].T @ cross @ roots[b], 2)
    return found, names


def _even(phis: list[Array]) -> bool:
    """Whether all groups have as many inducing values."""
    return len({each.shape[-1] for each in phis}) == 1


def _square(root: np.ndarray) -> np.ndarray:
    """A root of deviations alone as a matrix."""
    return np.diag(root[:, 0]) if root.shape[1] == 1 else root


def reach(fit: Fit, data: Data) -> Iterator[Finding]:
    """How alike a latent is at rows next to each other, and at those far apart: by its kernel, whatever that is."""
    program = fit.program
    rows = make_rows(program, fit.standardised.applied(data))
    rng = np.random.default_rng(0)
    for place, group in enumerate(program.groups):
        if group.per_row or has_white(group.form) or not set(group.inputs) <= rows.inputs.keys():
            continue
        points = np.asarray(every_point(functionals_at(group, group.readings.atoms, rows)), float)
        points = points[rng.permutation(len(points))[: 20 * ROWS]]
        yield from _overlooked(fit, group, points, data)
        near, far = (_correlated(fit, place, each) for each in (_neighbours(points), points[:ROWS]))
        for number, name in enumerate(group.names if group.factors > 1 else group.names[:1]):
            which = sum(member.count for member in group.members[:number])
            yield from _reaches(name, near[which], far[which], group.form, program)


def _overlooked(fit: Fit, group: Group, points: Float[np.ndarray, "n d"], data: Data) -> Iterator[Finding]:
    """Columns whose spread counts for nothing beside that of others, as all are measured by one length-scale."""
    names = [column for name in group.inputs for column in data.column_names.get(name, ())]
    spread = np.std(points, axis=0)
    varying = np.flatnonzero(spread > 0)
    if len(names) != len(spread) or not 2 <= len(varying) <= FEW_COLUMNS or not _by_distance(group.form):
        return
    least, most = (int(varying[pick(spread[varying])]) for pick in (np.argmin, np.argmax))
    ratio = float(spread[most] / spread[least])
    if ratio > OVERLOOKED and not _has_lengths(fit, group, len(spread)):
        yield Finding(
            "spread of columns",
            ratio,
            True,
            f"`{group.names[0]}` measures all columns by one length-scale, but `{names[most]}` has {ratio:.2g} times "
            f"the spread of `{names[least]}`, which hardly counts beside it",
            "fit with standardise = true, or give each column a length-scale of its own",
        )


def _has_lengths(fit: Fit, group: Group, columns: int) -> bool:
    """Whether a kernel has a number for each column."""
    evaluator = fit.program.evaluator
    found = jax.eval_shape(lambda given: kernel_values(evaluator, group, given, columns).arguments, fit.parameters)
    return any(each.ndim > 1 for each in found)


def _neighbours(points: np.ndarray) -> np.ndarray:
    """The points next to one of them, itself first, in units of each column's spread."""
    spread = np.std(points, axis=0)
    apart = np.sum(((points - points[0]) / np.where(spread > 0, spread, 1.0)) ** 2, axis=1)
    return points[np.argsort(apart, kind="stable")[:ROWS]]


def _correlated(fit: Fit, place: int, points: np.ndarray) -> Float[np.ndarray, "factors n n"]:
    """Prior correlations of each of a group's kernels."""

    def make(program: Program) -> Callable[..., Array]:
        group = program.groups[place]

        def matrices(parameters: dict[str, Array], at: Array) -> Array:
            kernel = kernel_values(program.evaluator, group, parameters, at.shape[-1])
            each = [covariance(group.form, [a[k] for a in kernel.arguments], Values(at)) for k in range(group.factors)]
            return jnp.stack(each)

        return jit(matrices, brief=True)

    given = as_arrays((dict(fit.parameters), points), fit.options.dtype)
    found = np.asarray(of_model(fit.program, make, "correlations", place, shapes_of(given))(*given), float)
    sds = np.sqrt(np.maximum(np.einsum("knn->kn", found), 1e-300))
    return found / (sds[:, :, None] * sds[:, None, :])


def _reaches(name: str, near: np.ndarray, far: np.ndarray, form: Form, program: Program) -> Iterator[Finding]:
    most = np.max(np.abs(near - 2 * np.eye(len(near)) * near), axis=1, where=~np.eye(len(near), dtype=bool), initial=0)
    middle, least = float(np.median(most[: max(len(most) // 3, 1)])), float(np.min(far))
    if len(near) < 2:
        return
    remedy = "its length-scale may be in another unit than the input, or have gone to an end: start it elsewhere"
    if middle < STRANGERS:
        said = f"`{name}` has a correlation of {middle:.2g} with itself at the next row: to it, rows are all unrelated"
        spread = spreading(program)
        yield Finding("reach of latents", middle, True, said, f"{spread}; or {remedy}" if spread else remedy)
    elif least > ALIKE and _by_distance(form) and len(far) > 1:
        said = f"`{name}` is the same at all rows: its correlation between those least alike is {least:.6g}"
        level = missing_level(program)
        yield Finding("reach of latents", least, True, said, f"{level}; or {remedy}" if level else remedy)
    else:
        said = f"`{name}` has correlations from {least:.2g} at rows far apart to {middle:.2g} at neighbours"
        yield Finding("reach of latents", middle, False, said)


def _by_distance(form: Form) -> bool:
    """Whether it falls with the distance, and has no part that is meant to be the same everywhere."""
    match form:
        case Base(name=name):
            return name in BY_DISTANCE
        case Scaled(kernel=kernel):
            return _by_distance(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            return all(map(_by_distance, parts))
    return False
