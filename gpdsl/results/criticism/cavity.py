"""What all other rows say of the latents of a row: its Gaussian site taken out of q.

Where q is one Gaussian with the optimal covariance (SAVIGP Theorem 2), or the exact posterior under normal noise, row
n stands in it by a site with the precision Lambda_n = -E_q[d^2 log p(y_n | f) / df^2] and the slope
g_n = E_q[d log p / df]. Without it the marginal N(m, S) of what the row reads becomes

    S_-n = (S^-1 - Lambda_n)^-1,    m_-n = m - S_-n g_n:

under normal noise eqs. 5.10 to 5.12 of Rasmussen and Williams (2006), else the leave-one-out distribution of Vehtari,
Mononen, Tolvanen, Sivula and Winther (2016, section 3.3), without a fit for each row. S^-1 - Lambda is a difference of
nearly equal numbers where a row says nearly all that is known of it. Of an exact posterior its inverse is known without
it, from B^-1 of the values in units of their noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float
from scipy.linalg import block_diag

from gpdsl.inference.expected_log_likelihood import expected_log_likelihood, log_density
from gpdsl.inference.fields.plan import FieldMarginals
from gpdsl.inference.natural.sites import site_target
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.posterior import Posterior, parts
from gpdsl.inference.problem import as_arrays, as_numpy
from gpdsl.inference.proposals import EQUAL, smoothed
from gpdsl.inference.sampling import base_normals, even_normals
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.joint import Marginals, basis_columns, covariance_table, with_sums
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, Scope
from gpdsl.results.expectation import Beliefs

SAMPLES = 1024
"""Of expected log likelihoods without formula or quadrature."""

LEAST = 1e-9
"""Share of the precision of a direction that has to remain without the row."""

RESOLVED = 0.1
"""Variances of noise, and deviations, that a signal may be off by."""

MOST_AMONG = 400
"""Rows up to which a draw is looked at without each of them: a matrix of all is inverted."""

FIELDS, AT_ONCE = 512, 1 << 16
"""Draws of all fields, and as many without a row, that densities are averaged over; numbers that go together."""

ROUNDED = 1 << 14
"""Times that sums over fields multiply the rounding of a number."""

AVERAGED = 1 << 18
"""Fields times rows times values over which derivatives are averaged."""

NUMBERS_AT_ONCE = 4_000_000
"""Covariances that are held at a time."""


def cavities(
    beliefs: Beliefs, at_rows: Posterior, values: Values | None = None
) -> tuple[Marginals, Bool[np.ndarray, " rows"]]:
    """Marginals of every row without its own observations, and where these are a distribution; else they stay.

    What inducing values leave open of a row's latents stays open: its site tells of the inducing values. Those of an
    exact posterior have their `values`.
    """
    program, q, basis = beliefs.program, as_numpy(beliefs.marginals), basis_columns(beliefs.program)
    spread = np.asarray(with_sums(program, jnp.asarray(np.eye(len(basis)))), float)
    if values is None:
        slopes, precisions = as_numpy(beliefs.compile("sites", _sites)(), float)
    mean, variance = np.array(q.mean[0], float), np.array(q.variance[0], float)
    covariance = None if q.covariance is None else np.array(q.covariance[0], float)
    sound = np.ones(beliefs.count, bool)
    for rows, skip in parts(beliefs.count, max(1, NUMBERS_AT_ONCE // max(program.latents, 1) ** 2)):
        own = slice(rows.start + skip, rows.stop)
        within = _covariances(program, q.part(own))
        rest = at_rows.left_open(program, take_rows(beliefs.rows, rows))
        rest = np.zeros_like(within) if rest is None else rest[skip:, basis[:, None], basis[None, :]]
        if values is None:
            left, fine = _without(within - rest, _between(spread, precisions[own]))
            moved = np.einsum("nij,nj->ni", left, slopes[own] @ spread.T)
        else:
            left, moved = values.part(own).without(within)
            fine = np.isfinite(moved).all(axis=1) & np.isfinite(left).all(axis=(1, 2))
        mean[own] -= fine[:, None] * (moved @ spread)
        whole = np.einsum("ia,nij,jb->nab", spread, left + rest, spread, optimize=True)
        variance[own] = np.where(fine[:, None], np.einsum("naa->na", whole), variance[own])
        if covariance is not None:
            covariance[own] = np.where(fine[:, None, None], whole, covariance[own])
        sound[own] = fine
    dtype = q.mean.dtype
    among = None if covariance is None else jnp.asarray(covariance[None], dtype)
    return Marginals(jnp.asarray(mean[None], dtype), jnp.asarray(variance[None], dtype), among), sound


@dataclass(frozen=True)
class Values:
    """Observed values of rows under an exact posterior, in units of their noise, z = H f + e.

    The H of each row, z - H m with the posterior mean m, B^-1 among the values of a row, and B^-1 z.
    """

    loadings: Float[np.ndarray, "rows values basis"]
    left: Float[np.ndarray, "rows values"]
    inverse: Float[np.ndarray, "rows values values"]
    alpha: Float[np.ndarray, "rows values"]

    @classmethod
    def of(cls, beliefs: Beliefs, at_rows: Posterior) -> Values | None:
        """None of another posterior."""
        found = at_rows.values(beliefs.program, beliefs.rows, as_numpy(beliefs.marginals).mean[0])
        return None if found is None else cls(found[0] @ _possible(beliefs.program), *found[1:])

    def part(self, rows: slice) -> Values:
        """Those of some rows."""
        return Values(self.loadings[rows], self.left[rows], self.inverse[rows], self.alpha[rows])

    def without(
        self, within: Float[np.ndarray, "rows basis basis"]
    ) -> tuple[Float[np.ndarray, "rows basis basis"], Float[np.ndarray, "rows basis"]]:
        """A covariance without the row's own values, and by what the mean is less, right in what the row observes.

        With Q = B^-1 among these values, H S_-n H' = Q^-1 - I and z - H m_-n = Q^-1 alpha (5.12 for many values at
        once). What else is read of the latents, of which nothing is asked, has its covariance with all of them.
        """
        loadings, back = self.loadings, np.linalg.pinv(self.loadings)
        rest, wide = np.eye(loadings.shape[2]) - back @ loadings, np.linalg.inv(self.inverse)
        values, vectors = np.linalg.eigh(wide)
        root = back @ vectors * np.sqrt(np.maximum(values - 1.0, 0.0))[:, None, :]
        moved = back @ (wide @ self.alpha[..., None] - self.left[..., None])
        return root @ np.swapaxes(root, 1, 2) + rest @ within @ np.swapaxes(rest, 1, 2), moved[..., 0]

    def log_densities(self, beliefs: Beliefs) -> Float[np.ndarray, " rows"]:
        """log p(y_n | the other rows), of z - Q^-1 alpha, Q^-1 (5.12), whatever the latents: noise may differ by much.

        At f = m it is log p(y_n | m) but for the squares of z - H m.
        """

        def at_mean(known: Beliefs) -> Array:
            return log_density(
                known.program, Scope(known.parameters, known.rows, known.marginals.mean[0]), (known.count,)
            )

        squares = self.left**2 - self.alpha * np.linalg.solve(self.inverse, self.alpha[..., None])[..., 0]
        noise = np.asarray(beliefs.compile("at mean", at_mean)(), float)
        return noise + 0.5 * (np.sum(squares, axis=1) + np.linalg.slogdet(self.inverse)[1])

    def resolved(self, beliefs: Beliefs) -> Bool[np.ndarray, " rows"]:
        """Whether rounding leaves H S H' = I - Q, and z - H m = alpha."""
        within = _covariances(beliefs.program, as_numpy(beliefs.marginals))
        known = self.loadings @ within @ np.swapaxes(self.loadings, 1, 2) + self.inverse
        off = np.abs(known - np.eye(self.alpha.shape[1])).max(axis=(1, 2), initial=0.0)
        return np.maximum(off, np.abs(self.left - self.alpha).max(axis=1, initial=0.0)) < RESOLVED


def _possible(program: Program) -> Float[np.ndarray, "basis basis"]:
    """Projection on what can be read together: of f, f(b) and f - f(b) two tell the third."""
    found = []
    for group in program.groups:
        parts = [dict(each) for each in group.readings.basis]
        table = np.array([[own.get(one, 0.0) for one in {k: 0 for each in parts for k in each}] for own in parts])
        found.append(np.kron(table @ np.linalg.pinv(table), np.eye(group.size)))
    return np.asarray(block_diag(*found))


def among_others(beliefs: Beliefs, at_rows: Posterior) -> Marginals | None:
    """What the values that a draw has at all other rows say of each row, by the prior: means and variances.

    A draw knows f = A w at the rows, w ~ N(0, I), latent by latent. Without row n it knows w but for its part along
    b_n = (A^-1)_n, so that f_n ~ N(f_n - b_n'w / |b_n|^2, 1 / |b_n|^2), eq. 5.12 of Rasmussen and Williams (2006) for a
    matrix K = A A' (integrated importance sampling: Li, Qiu and Feng 2016). A row whose value follows from those of
    others stays as it is; a row variable, of which the others tell nothing, is as the prior has it. None for
    rows that read a latent at several places, sums of latents or fields, and for many rows.
    """
    program, q = beliefs.program, beliefs.marginals
    if program.fields or program.latents != len(basis_columns(program)) or beliefs.count > MOST_AMONG:
        return None
    if any(len(group.readings.basis) > 1 for group in program.groups):
        return None
    mean, variance = np.array(q.mean[0], float), np.array(q.variance[0], float)
    values = [w for own in at_rows.q for w in np.asarray(own.mean[0], float)]
    for column, (w, features) in enumerate(zip(values, _maps(beliefs, at_rows), strict=True)):
        a = features[:, : len(w)]
        b = np.linalg.pinv(a)
        length = np.sum(b**2, axis=0)
        alone = np.einsum("nm,mn->n", a, b) > 1.0 - 1e-6
        mean[:, column] -= np.where(alone, b.T @ w / length, 0.0)
        variance[:, column] += np.where(alone, 1.0 / length, 0.0)
    dtype = q.mean.dtype
    apart = None if q.covariance is None else jnp.asarray(variance[None, :, :, None] * np.eye(variance.shape[1]), dtype)
    return Marginals(jnp.asarray(mean[None], dtype), jnp.asarray(variance[None], dtype), apart)


def _maps(beliefs: Beliefs, at_rows: Posterior) -> Float[np.ndarray, "columns rows values"]:
    """What each latent's value at each row takes of its own w; of latents with fewer values, 0 behind these."""
    size = max(own.mean.shape[2] for own in at_rows.q)
    units = []
    for own in at_rows.q:
        mean = np.repeat(np.eye(size + 1, own.mean.shape[2], k=-1)[:, None], own.mean.shape[1], axis=1)
        units.append(Whitened(mean, np.zeros((*mean.shape, 1))))
    several = replace(at_rows, q=units, weights=np.full(size + 1, 1.0 / (size + 1)))
    mean = np.asarray(several.marginals(beliefs.program.one_by_one, beliefs.rows, beliefs.count).mean, float)
    return np.moveaxis(mean[1:] - mean[0], (2, 1, 0), (0, 1, 2))


def fields_left_out(beliefs: Beliefs) -> Float[np.ndarray, "2 rows"]:
    """log p(y_n | the other rows) of rows that read whole fields, and Pareto's k.

    NaN where a site cannot leave q; k is -inf where nothing is approximate but q. With the fields f = m + R u,
    u ~ N(0, I), as q has them, a row's site is exp(s(u)), s(u) = g'u - u'Lambda u / 2, with
    g = R' E_q[grad log p(y_n | f)] and Lambda = -R' E_q[hess log p(y_n | f)] R. Without it

        q_-n(u) = N(u; 0, I) exp(-s(u)) / Z = N(u; -A^-1 g, A^-1),    A = I - Lambda,

    log Z = (g'A^-1 g - log |A|) / 2, and p(y_n | the others) = E_q[p(y_n | f) q_-n / q], of which nothing is left to
    average where the likelihood is Gaussian and the fields enter linearly. Else half of the draws are of q_-n, whose
    tails are wider, and each is weighted by the density of both (Owen and Zhou 2000).
    """
    width = _of_all(beliefs)[1].shape[1]
    most = int(np.clip(AVERAGED // (beliefs.count * width), 8, 64))
    few, many = even_normals(1 << most.bit_length() - 2, width), even_normals(FIELDS, width)
    normals = as_arrays((np.concatenate([few, -few]), many), beliefs.marginals.mean.dtype)
    alone, log_weights = as_numpy(beliefs.compile("fields left out", _of_fields)(*normals), float)
    rounded = ROUNDED * np.finfo(beliefs.marginals.mean.dtype).eps * np.abs(alone).max(axis=1)
    equal = np.ptp(alone, axis=1) < np.maximum(EQUAL, rounded)
    shapes = [-np.inf if same else smoothed(each)[1] for same, each in zip(equal, log_weights, strict=True)]
    found = np.logaddexp.reduce(log_weights, axis=1) - np.log(log_weights.shape[1])
    return np.stack([np.where(equal, alone[:, 0], found), shapes])


def _of_all(known: Beliefs) -> tuple[Float[Array, " D"], Float[Array, "D R"]]:
    """Mean of all values of all fields, and a root of their covariance."""
    marginals = known.marginals
    assert isinstance(marginals, FieldMarginals)
    assert marginals.root is not None
    return marginals.mean[0, 0], marginals.root


def _of_fields(known: Beliefs, few: Array, many: Array) -> tuple[Float[Array, "rows S"], Float[Array, "rows 2*S"]]:
    """log p(y_n | f) q_-n / q in draws of q, and with the density of both in as many of each.

    Normals: `few` that derivatives of row n are averaged over, and `many` for the draws.
    """
    mean, root = _of_all(known)

    def left_out(row: Rows) -> tuple[Float[Array, " S"], Float[Array, "2*S"]]:
        alone = jax.tree.map(lambda a: a[None], row)

        def log_likelihood(u: Float[Array, " R"]) -> Float[Array, ""]:
            scope = Scope(known.parameters, alone, (mean + root @ u)[None])
            return log_density(known.program, scope, (1,))[0]

        def derivatives(u: Float[Array, " R"]) -> tuple[Array, Array]:
            return jax.grad(log_likelihood)(u), jax.hessian(log_likelihood)(u)

        size = root.shape[1]
        told = jax.lax.map(derivatives, few, batch_size=max(AT_ONCE // size**2, 1))
        slope, curvature = (jnp.mean(each, axis=0) for each in told)
        factor = jnp.linalg.cholesky(jnp.eye(size, dtype=slope.dtype) + curvature)
        centre = -cho_solve((factor, True), slope)
        draws = jnp.concatenate([many, centre + solve_triangular(factor, many.T, lower=True, trans=1).T])
        ratio = -(draws @ slope) - 0.5 * jnp.sum(draws * (draws @ curvature), axis=1)
        ratio += 0.5 * (centre @ slope + log_det_factor(factor))
        values = jax.lax.map(log_likelihood, draws, batch_size=max(AT_ONCE // size, 1)) + ratio
        return values[: len(many)], values - jnp.logaddexp(0.0, ratio) + jnp.log(2.0)

    return jax.lax.map(left_out, known.rows)


def _slopes(beliefs: Beliefs) -> Marginals:
    """Derivatives of the expected log likelihood in the moments of q."""
    found: Marginals = jax.grad(lambda q: jnp.sum(_expected(beliefs, q)))(beliefs.marginals)
    return found


def _sites(beliefs: Beliefs) -> tuple[Array, Array]:
    """These in the means, and the precisions of sites."""
    slopes = _slopes(beliefs)
    return slopes.mean[0], site_target(beliefs.marginals, slopes).precision


def _expected(beliefs: Beliefs, q: Marginals) -> Float[Array, "1 rows"]:
    program = beliefs.program
    normals = None
    if program.sampled:
        normals = base_normals(jax.random.key(beliefs.seed), SAMPLES, 1, beliefs.count, program.latents)
    return expected_log_likelihood(program, beliefs.parameters, beliefs.rows, q, normals)


def expected_at(
    beliefs: Beliefs,
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, "rows latents"], Float[np.ndarray, "rows latents"]]:
    """Expected log likelihoods of rows whose latents are independent, their slopes in the means, and precisions of
    their sites."""

    def told(known: Beliefs) -> tuple[Array, Marginals]:
        return _expected(known, known.marginals)[0], _slopes(known)

    expected, slope = beliefs.compile("expected", told)()
    return np.asarray(expected), np.asarray(slope.mean[0]), -2.0 * np.asarray(slope.variance[0])


def _covariances(program: Program, q: Marginals) -> Float[np.ndarray, "rows basis basis"]:
    """Of what is read of the latents, without sums, of moments on the host."""
    if q.covariance is not None:
        basis = basis_columns(program)
        return np.asarray(q.covariance[0][:, basis[:, None], basis[None, :]], float)
    count = len(basis_columns(program))
    found, start = np.zeros((q.rows, count, count)), 0
    for group in program.groups:
        own = start + np.arange(group.size)
        for i, row in enumerate(covariance_table(group, q.variance[0])):
            for j, each in enumerate(row):
                found[:, own + i * group.size, own + j * group.size] = each
        start += len(group.readings.basis) * group.size
    return found


def _between(
    spread: Float[np.ndarray, "basis columns"],
    precision: Float[np.ndarray, "rows columns"] | Float[np.ndarray, "rows columns columns"],
) -> Float[np.ndarray, "rows basis basis"]:
    """Precisions of sites of all columns as those of what these are sums of."""
    if precision.ndim == 2:
        return np.einsum("ia,na,ja->nij", spread, precision, spread, optimize=True)
    return np.einsum("ia,nab,jb->nij", spread, precision, spread, optimize=True)


def _without(
    within: Float[np.ndarray, "rows basis basis"], told: Float[np.ndarray, "rows basis basis"]
) -> tuple[Float[np.ndarray, "rows basis basis"], Bool[np.ndarray, " rows"]]:
    """(S^-1 - Lambda)^-1 = R (I - R' Lambda R)^-1 R' with S = R R', of a singular S too, and where it is positive."""
    values, vectors = np.linalg.eigh(within)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    left = np.eye(within.shape[1]) - np.einsum("nki,nkl,nlj->nij", root, told, root, optimize=True)
    finite = np.all(np.isfinite(left), axis=(1, 2))
    values, vectors = np.linalg.eigh(np.where(finite[:, None, None], left, np.eye(within.shape[1])))
    fine = finite & np.all(values > LEAST, axis=1)
    turned = np.einsum("nij,njk->nik", root, vectors)
    return np.einsum("nik,nk,njk->nij", turned, 1.0 / np.maximum(values, LEAST), turned, optimize=True), fine
