"""Means and variances of sums of terms that are each linear in all latents but one, where latents are correlated.

With z the standardised latent that a term bends in, and r_d what z leaves of the others, each term is

    t = A(z) + sum_d b_d(z) r_d,    r_d independent of z.

Of two standard normals with correlation rho, E[u(z) w(z')] = sum_k rho^k u_k w_k in the coefficients of Hermite
polynomials (Mehler), and E[r u(z)] = Cov(r, z) E[u'(z)] (Stein). So two terms' covariance needs a few coefficients of
each: numbers of one latent, whatever the number of latents is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.program.quadrature import gauss_hermite
from gpdsl.results.integrals import ROUNDING, Moment, source_of
from gpdsl.symbolic.expectations import MOST_TERMS, has_external, is_linear, latents_in
from gpdsl.symbolic.numeric import evaluate

if TYPE_CHECKING:
    from gpdsl.results.expectation import Beliefs

Array = np.ndarray

Known = TypeVar("Known")

NODES, ORDERS = 24, 16
"""Of a Gauss-Hermite rule, and coefficients that are taken from it."""

LAST, FAR = 2, 1e3
"""Coefficients at the end that tell what is left out, and how many times what they do counts as lost."""

REACH, POINTS, NUMBERS = 9.0, (41, 1801), 40_000
"""Of a line along which it is looked for what happens between nodes, at so many points, so many numbers in all."""

FINE, MORE_ORDERS, MOST_NUMBERS = 481, 64, 1 << 22
"""Points of a line, so many numbers at most, that are a rule where the nodes miss something, and coefficients then."""

SAME = 1e-7
"""Share of the size by which the averages over all these points and over half of them may differ."""

TELL, SEEN = 30.0, 1e-6
"""Times what is told to be left out, and share of the size, by which means may differ there."""

NOTHING = 1e-17
"""Share of the largest coefficient that changes no digit."""


@dataclass(frozen=True, eq=False)
class Term:
    """A term, the latent that it bends in, the others, and the coefficients of A, of b_d, and of their derivatives.

    Where coefficients fall slowly it has E[A^2], E[A b_d], ... and E[b_d b_e] too, `squares`, of A and all b_d.
    """

    bent: sp.Symbol
    others: tuple[sp.Symbol, ...]
    level: Float[Array, "orders K rows *keys"]
    slopes: tuple[Float[Array, "orders K rows *keys"], ...]
    squares: Float[Array, "functions functions K rows *keys"] | None = None

    @cached_property
    def level_slope(self) -> Array:
        """Of the derivative of A."""
        return _derivative(self.level)

    @cached_property
    def slopes_slope(self) -> tuple[Array, ...]:
        """Of those of b_d."""
        return tuple(map(_derivative, self.slopes))


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of latents under beliefs, [K, rows, *keys], and what is computed by them; what is known is kept there."""

    beliefs: Beliefs
    keys: tuple[str, ...]

    def mean(self, latent: sp.Symbol) -> Float[Array, "K rows *keys"]:
        """Of a latent."""
        return np.asarray(self.beliefs.marginals.mean, float)[..., self._columns(latent)]

    def covariance(self, f: sp.Symbol, g: sp.Symbol) -> Float[Array, "K rows *keys"]:
        """Of two latents."""

        def compute() -> Array:
            whole = np.asarray(self.beliefs.marginals.covariance, float)
            return whole[..., self._columns(f), self._columns(g)]

        return self.once(("covariance", f, g), compute)

    def sd(self, latent: sp.Symbol) -> Float[Array, "K rows *keys"]:
        """Of a latent, above zero."""
        least = np.finfo(float).tiny
        return self.once(("deviation", latent), lambda: np.sqrt(np.maximum(self.covariance(latent, latent), least)))

    def across(self, bent: sp.Symbol) -> Callable[[sp.Symbol], Array]:
        """Covariances of a latent with the standardised one."""
        return lambda f: self.covariance(f, bent) / self.sd(bent)

    def correlation(self, f: sp.Symbol, g: sp.Symbol) -> Float[Array, "K rows *keys"]:
        """Of two latents."""
        return np.clip(self.covariance(f, g) / (self.sd(f) * self.sd(g)), -1.0, 1.0)

    def values(self, expression: sp.Expr, latents: dict[sp.Symbol, Array]) -> Array | None:
        """An expression at values of latents, [..., K, rows, *keys]; None where it reads what is not on the host."""
        table = dict(latents)
        for symbol in expression.free_symbols - latents.keys():
            value = source_of(self.beliefs, symbol, self.keys)
            if value is None:
                return None
            table[symbol] = value
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(evaluate(expression, table), float)
        except KeyError:  # a function that the host does not have
            return None
        return value.reshape((1,) * (3 + len(self.keys) - value.ndim) + value.shape)

    def once(self, key: tuple[Hashable, ...], compute: Callable[[], Known]) -> Known:
        """What these beliefs know already, or will from now on."""
        key = *key, self.keys
        if key not in self.beliefs.found:
            self.beliefs.found[key] = compute()
        known: Known = self.beliefs.found[key]
        return known

    def _columns(self, latent: sp.Symbol) -> Array:
        """Where a latent's elements stand along the axes, [*keys]."""
        numbers = np.arange(self.beliefs.marginals.mean.shape[-1])[None]
        of_latent = self.beliefs.program.evaluator.of_latent
        return self.once(("columns", latent), lambda: np.asarray(of_latent(latent, numbers, self.keys))[0])


@dataclass(frozen=True, eq=False)
class Series:
    """A sum of such terms of latents that are correlated, and what it has besides."""

    moments: Moments
    terms: tuple[Term, ...]
    constant: Float[Array, "K rows *keys"]

    def mean(self) -> Moment:
        """The sum of the A_0."""
        parts = [self.constant, *(term.level[0] for term in self.terms)]
        left = sum(np.abs(t.level[-LAST:]).sum(axis=0) for t in self.terms if t.squares is None)
        return sum(parts), ROUNDING * sum(map(np.abs, parts)) + left

    def variance(self) -> Moment:
        """The sum of the covariances of all pairs."""
        total, lost = np.zeros(()), np.zeros(())
        for place, term in enumerate(self.terms):
            for other in self.terms[: place + 1]:
                known = other is term and term.squares is not None
                parts = self._own(term) if known else self._covariance(term, other)
                twice = 1.0 if other is term else 2.0
                total = total + twice * sum(each[0] for each in parts)
                lost = lost + sum(ROUNDING * np.abs(value) + FAR * last for value, last in parts)
        return total, lost

    def _own(self, term: Term) -> list[tuple[Array, Array]]:
        """The variance of a term: E[A^2] - E[A]^2 and E[b_d b_e] Cov(r_d, r_e)."""
        assert term.squares is not None
        across = self.moments.across(term.bent)
        whole = term.squares[0, 0]
        parts = [(whole - term.level[0] ** 2, ROUNDING * whole)]
        for i, d in enumerate(term.others, start=1):
            for j, e in enumerate(term.others, start=1):
                rest = self.moments.covariance(d, e) - across(d) * across(e)
                parts.append((rest * term.squares[i, j], np.zeros(())))
        return parts

    def _covariance(self, s: Term, t: Term) -> list[tuple[Array, Array]]:
        """In parts, each with what its last coefficients do: A A', A b_e r_e, b_d r_d A', b_d r_d b_e r_e."""
        across, beside, between = self.moments.across(s.bent), self.moments.across(t.bent), self.moments.covariance
        rho = self.moments.correlation(s.bent, t.bent)
        whole, last = _paired(s.level, t.level, rho)
        parts = [(whole - s.level[0] * t.level[0], last)]
        for e, own in zip(t.others, zip(t.slopes, t.slopes_slope, strict=True), strict=True):
            reach = across(e) - beside(e) * rho  # Cov(r_e, z_s)
            parts.append(_scaled(reach, _paired(s.level_slope, own[0], rho)))
            for d, mine in zip(s.others, zip(s.slopes, s.slopes_slope, strict=True), strict=True):
                back = beside(d) - across(d) * rho  # Cov(r_d, z_t)
                rest = between(d, e) - across(d) * between(e, s.bent) / self.moments.sd(s.bent)
                rest = rest - beside(e) * back  # Cov(r_d, r_e)
                parts.append(_scaled(rest, _paired(mine[0], own[0], rho)))
                parts.append(_scaled(back * reach, _paired(mine[1], own[1], rho)))
        for d, slope in zip(s.others, s.slopes, strict=True):
            back = beside(d) - across(d) * rho
            parts.append(_scaled(back, _paired(slope, t.level_slope, rho)))
        return parts


def series_of(beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...]) -> Series | None:
    """The expression as such a sum; None where it is none, or where latents are not correlated."""
    translator, marginals = beliefs.program.translator, beliefs.marginals
    if marginals.covariance is None or marginals.together or beliefs.rough or has_external(translator, expression):
        return None
    if sp.count_ops(expression) > MOST_TERMS:
        return None
    terms, constant, moments = [], sp.Integer(0), Moments(beliefs, keys)
    for each in sp.Add.make_args(expression):
        if not latents_in(translator, each):
            constant += each
            continue
        terms.append(moments.once(("series", each), partial(_term, moments, each)))
    level = moments.values(constant, {})
    known = tuple(each for each in terms if each is not None)
    if level is None or not known or len(known) < len(terms):
        return None
    return Series(moments, known, level[0])


def _term(moments: Moments, term: sp.Expr) -> Term | None:
    latents = latents_in(moments.beliefs.program.translator, term)
    bent = _bent_in(term, latents)
    if bent is None:
        return None
    nodes, weights = gauss_hermite(1, NODES)
    sd, others = moments.sd(bent), tuple(each for each in latents if each != bent)
    asked = (term, *(sp.diff(term, each) for each in others))

    def along(z: Array) -> list[Array] | None:
        """A and the b_d at values of the standardised latent."""
        z = z.reshape(-1, *(1,) * (2 + len(moments.keys)))
        at = {bent: moments.mean(bent) + sd * z}
        for each in others:
            at[each] = moments.mean(each) + moments.covariance(each, bent) / sd * z
        found = [moments.values(each, at) for each in asked]
        if any(each is None for each in found):
            return None
        shape = np.broadcast_shapes(*(each.shape[1:] for each in found if each is not None), sd.shape)
        return [np.broadcast_to(each, (len(z), *shape)) for each in found if each is not None]

    found = along(nodes[:, 0])
    line = np.linspace(-REACH, REACH, int(np.clip(NUMBERS // max(sd.size, 1), *POINTS)))
    between = along(line)
    if found is None or between is None:
        return None
    known = None
    if all(np.isfinite(each).all() for each in found):
        analysis = _hermite(nodes[:, 0]) * weights
        coefficients = [_shortened(np.tensordot(analysis, each, axes=1)) for each in found]
        missed = any(_is_missed(line, v, c) for v, c in zip(between, coefficients, strict=True))
        known = None if missed else Term(bent, others, coefficients[0], tuple(coefficients[1:]))
        if known is not None and not any(map(_falls_slowly, coefficients)):
            return known
    few = FINE * between[0][0].size <= MOST_NUMBERS
    return (_on_line(bent, others, along) if few else None) or known


def _on_line(
    bent: sp.Symbol, others: tuple[sp.Symbol, ...], along: Callable[[Array], list[Array] | None]
) -> Term | None:
    """A term by the trapezoidal rule, which has all digits of what is smooth within a few of its points; None else."""
    line = np.linspace(-REACH, REACH, FINE)
    weights = np.exp(-0.5 * line**2)
    weights /= weights.sum()
    found = along(line)
    if found is None or not all(np.isfinite(each).all() for each in found):
        return None
    half = weights[::2] / weights[::2].sum()
    squares = np.stack([[np.tensordot(weights, u * v, axes=1) for u in found] for v in found])
    rougher = np.stack([[np.tensordot(half, u[::2] * v[::2], axes=1) for u in found] for v in found])
    sizes = np.sqrt(np.einsum("ii...->i...", squares))
    means = [np.tensordot(weights, each, axes=1) - np.tensordot(half, each[::2], axes=1) for each in found]
    apart = np.abs(squares - rougher) > SAME * sizes[:, None] * sizes
    if np.any(apart) or any(np.any(np.abs(m) > SAME * size) for m, size in zip(means, sizes, strict=True)):
        return None
    analysis = _hermite(line, MORE_ORDERS) * weights
    coefficients = [_shortened(np.tensordot(analysis, each, axes=1)) for each in found]
    return Term(bent, others, coefficients[0], tuple(coefficients[1:]), squares)


def _falls_slowly(coefficients: Array) -> bool:
    """Whether the last coefficients do so much to the variance of a function that it would count as lost."""
    last, whole = (np.sum(each**2, axis=0) for each in (coefficients[-LAST:], coefficients[1:]))
    return bool(np.any(FAR * last > SEEN * whole))


def _is_missed(line: Array, values: Array, coefficients: Array) -> bool:
    """Whether a function has another mean on a line than at the nodes, by more than its last coefficients tell.

    What is narrower than the nodes are apart has coefficients of nothing.
    """
    weights = np.exp(-0.5 * line**2) * (line[1] - line[0]) / np.sqrt(2 * np.pi)
    known = np.broadcast_to(np.where(np.isfinite(values), values, 0.0), (len(line), *coefficients.shape[1:]))
    off = np.abs(np.tensordot(weights, known, axes=1) - coefficients[0])
    size = np.sqrt(np.tensordot(weights, known**2, axes=1))
    return bool(np.any(off > TELL * np.abs(coefficients[-LAST:]).sum(axis=0) + SEEN * size))


def _shortened(coefficients: Array) -> Array:
    """Without those at the end that are rounding, but for as many as tell what is left out."""
    sizes = np.max(np.abs(coefficients), axis=tuple(range(1, coefficients.ndim)))
    told = np.flatnonzero(~(sizes <= NOTHING * np.max(sizes)))
    return coefficients[: (told[-1] if len(told) else 0) + 1 + LAST]


def _bent_in(term: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Symbol | None:
    """The one latent that a term is not linear in, given which it is linear in the others together; None of several."""
    for bent in latents:
        others = [each for each in latents if each != bent]
        if is_linear(term, others):
            return bent
    return None


def _hermite(z: Float[Array, " nodes"], orders: int = ORDERS) -> Float[Array, "orders nodes"]:
    """Hermite polynomials that are orthonormal under the standard normal."""
    found = [np.ones_like(z), z]
    for k in range(1, orders - 1):
        found.append((z * found[k] - np.sqrt(k) * found[k - 1]) / np.sqrt(k + 1))
    return np.stack(found)


def _derivative(coefficients: Array) -> Array:
    """Coefficients of the derivative: h_k' = sqrt(k) h_(k-1)."""
    orders = np.sqrt(np.arange(1.0, len(coefficients)))
    return coefficients[1:] * orders.reshape(-1, *(1,) * (coefficients.ndim - 1))


def _paired(u: Array, w: Array, rho: Array) -> tuple[Array, Array]:
    """E[u(z) w(z')] by Horner's rule, and the size of its last terms."""
    count = min(len(u), len(w))
    parts = u[:count] * w[:count]
    total = np.zeros_like(parts[0])
    for part in parts[::-1]:
        total *= rho
        total += part
    return total, np.abs(parts[-LAST:]).sum(axis=0) * np.abs(rho) ** max(count - LAST, 0)


def _scaled(factor: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
    return factor * pair[0], np.abs(factor) * pair[1]
