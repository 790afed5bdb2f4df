"""How the expectation of each part of a log density is computed and why: closed form, quadrature, samples, scores.

Several readings of one latent in one term: linear functionals are closed under linear combination, so that a term that
depends on f(a) and f(b) only through their difference depends on one univariate Gaussian. Otherwise
s_i = m_i + sum_j R_ij z_j with independent standard normals z and R the root of the readings' covariance, so that all
that holds for independent latents holds for z.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, prod

import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.symbolic.arguments import MOST, Integrand, integrand_of
from gpdsl.symbolic.closed import expectation, probit_expectation
from gpdsl.symbolic.functions import floor, mills, ndtr
from gpdsl.symbolic.gaussian import Moments, joint_moments_of, moments_of
from gpdsl.symbolic.kinks import jumps, refuse_quadrature
from gpdsl.symbolic.numeric import written
from gpdsl.symbolic.readings import added, elements_of
from gpdsl.symbolic.translate import Translator

Correlated = tuple[sp.Symbol, ...]
"""Two or more readings of the same latent element."""


def correlated(translator: Translator, latents: Sequence[sp.Symbol]) -> tuple[Correlated, ...]:
    """The sets of readings that are not independent of each other."""
    found: dict[tuple, list[sp.Symbol]] = {}
    for symbol in latents:
        ref = translator.references[symbol]
        found.setdefault((ref.name, ref.positions), []).append(symbol)
    return tuple(tuple(symbols) for symbols in found.values() if len(symbols) > 1)


def sum_of(translator: Translator, a: sp.Symbol, b: sp.Symbol) -> sp.Symbol:
    """The reading a + b: its variance tells the covariance, (Var(a + b) - Var a - Var b) / 2."""
    first, second = translator.references[a], translator.references[b]
    return translator.symbol(replace(first, reading=added([(first.reading, 1.0), (second.reading, 1.0)])))


def root_symbol(a: sp.Symbol, b: sp.Symbol) -> sp.Symbol:
    """The entry of the lower Cholesky factor of the readings' covariance in the row of `a`, the column of `b`."""
    return sp.Symbol(f"root({a.name}, {b.name})", real=True)


def combined(translator: Translator, expression: sp.Expr) -> sp.Expr:
    """The expression with a linear combination of readings as one reading, where it depends on nothing else of them."""
    for symbols in correlated(translator, latents_in(translator, expression)):
        expression = _combine(translator, expression, symbols)
    return expression


def _combine(translator: Translator, expression: sp.Expr, symbols: Correlated) -> sp.Expr:
    for node in sp.preorder_traversal(expression):
        ratios = _linear(node, symbols) if node.is_Add else None
        if ratios is None:
            continue
        new, whole = _as_one(translator, expression, ratios)
        if new.free_symbols.isdisjoint(ratios):
            return new
        translator.references.pop(whole, None)
        return expression
    return expression


def _linear(node: sp.Add, symbols: Correlated) -> dict[sp.Symbol, float] | None:
    """Weights of two or more readings in a sum, relative to the first, when they are numbers."""
    weights: dict[sp.Symbol, sp.Expr] = {}
    for argument in node.args:
        inside = [s for s in symbols if s in argument.free_symbols]
        if len(inside) == 1 and inside[0] not in weights:
            weights[inside[0]] = argument / inside[0]
    if len(weights) < 2:
        return None
    first = min(weights, key=lambda s: s.name)
    ratios = {s: weights[s] / weights[first] for s in sorted(weights, key=lambda s: s.name)}
    return {s: float(r) for s, r in ratios.items()} if all(r.is_Number for r in ratios.values()) else None


def _as_one(
    translator: Translator, expression: sp.Expr, ratios: Mapping[sp.Symbol, float]
) -> tuple[sp.Expr, sp.Symbol]:
    first, *others = ratios
    readings = [(translator.references[s].reading, weight) for s, weight in ratios.items()]
    whole = translator.symbol(replace(translator.references[first], reading=added(readings)))
    exact = {s: sp.nsimplify(weight, rational=True) for s, weight in ratios.items()}
    new = expression.xreplace({first: whole - sp.Add(*[exact[s] * s for s in others])})
    if not new.free_symbols.isdisjoint(others):
        new = new.replace(lambda e: e.is_Add and not e.free_symbols.isdisjoint(others), sp.expand_mul)
    return new, whole


@dataclass(frozen=True)
class Innovations:
    """Readings written through independent symbols: `latents` are those, with their `moments`."""

    substitution: Mapping[sp.Symbol, sp.Expr]
    latents: tuple[sp.Symbol, ...]
    moments: Moments


def innovations(translator: Translator, latents: Sequence[sp.Symbol]) -> Innovations:
    """Independent symbols behind some readings: standard normals behind correlated ones, the others themselves."""
    moments = moments_of(latents)
    mean, variance = dict(moments.mean), dict(moments.variance)
    substitution: dict[sp.Symbol, sp.Expr] = {}
    independent = list(latents)
    for symbols in correlated(translator, latents):
        normals = {s: sp.Dummy(f"z({s.name})", real=True) for s in symbols}
        for i, s in enumerate(symbols):
            parts = [root_symbol(s, t) * normals[t] for t in symbols[: i + 1]]
            substitution[s] = moments.mean[s] + sp.Add(*parts)
        for s, z in normals.items():
            independent[independent.index(s)] = z
            mean[z], variance[z] = sp.Integer(0), sp.Integer(1)
    return Innovations(substitution, tuple(independent), Moments(mean, variance))


def joint_expectation(
    translator: Translator,
    expression: sp.Expr,
    latents: Sequence[sp.Symbol],
    coupled: bool = False,
    probits: bool = False,
) -> sp.Expr | None:
    """E[expression] in the readings' means, variances and roots of covariances; None outside the closed family.

    Where all latents are correlated with each other (`coupled`), it is written in their covariances. The family holds
    `probits` where these are asked for.
    """
    if coupled or not correlated(translator, latents):
        return independent_expectation(expression, tuple(latents), coupled, probits)
    behind = innovations(translator, latents)
    moved = expression.xreplace(dict(behind.substitution))
    found = expectation(moved, behind.latents, behind.moments)
    return probit_expectation(moved, behind.latents, behind.moments) if found is None and probits else found


@functools.lru_cache(maxsize=1024)
def independent_expectation(
    expression: sp.Expr, latents: tuple[sp.Symbol, ...], coupled: bool, probits: bool
) -> sp.Expr | None:
    """The same of latents that are independent of each other, or `coupled`: every prediction asks for it again."""
    moments = joint_moments_of(latents) if coupled else moments_of(latents)
    found = expectation(expression, latents, moments)
    return probit_expectation(expression, latents, moments) if found is None and probits else found


SHOWN = 200

SMOOTH = "polynomial × exp(linear) in the latents"
PIECES = f"{SMOOTH} between thresholds"


@dataclass(frozen=True)
class Term:
    """One additive part of a log density.

    `method` is closed, quadrature, pathwise or score; `closed` holds the expectation when the method is closed,
    `integrand` what a quadrature integrates. `fine` says that it tells steep places apart.
    """

    expression: sp.Expr
    latents: tuple[sp.Symbol, ...]
    method: str
    reason: str
    closed: sp.Expr | None = None
    integrand: Integrand | None = None
    fine: bool = False

    @property
    def refinable(self) -> bool:
        """Whether it can be `fine`: one argument, which does not step at whole numbers, or two of a smooth function."""
        if self.integrand is None:
            return False
        kinks = self.integrand.kinks or ()
        return not any(k.has(floor) for k in kinks) if len(self.integrand.arguments) == 1 else not kinks


def is_linear(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    """Whether it is linear in the latents together; false where that is not plain, as of `abs(f)`."""
    if latents and not expression.is_polynomial(*latents):
        return False
    return all(sp.diff(expression, f, g) == 0 for i, f in enumerate(latents) for g in latents[i:])


def latents_in(translator: Translator, expression: sp.Expr) -> tuple[sp.Symbol, ...]:
    """Latent values an expression reads, through opaque functions too, in a fixed order."""
    kinds = translator.references
    found: set[sp.Symbol] = set()
    for symbol in expression.free_symbols:
        ref = kinds[symbol]
        if ref.kind == "latent":
            found.add(symbol)
        elif ref.kind == "external":
            for _, elements in translator.externals[ref.name].arguments:
                for element in elements:
                    found.update(latents_in(translator, element))
        elif ref.kind == "reduced":
            whole = translator.reduced[ref.name]
            for inside in latents_in(translator, whole.body):
                found.update(elements_of(translator, whole, inside))
    return tuple(sorted(found, key=lambda s: s.name))


def has_external(translator: Translator, expression: sp.Expr) -> bool:
    """Whether an opaque function's value enters the expression."""
    return any(translator.references[s].kind == "external" for s in expression.free_symbols)


def has_opaque(translator: Translator, expression: sp.Expr) -> bool:
    """Whether the value of a function that can only be called enters the expression, through others too."""
    for symbol in expression.free_symbols:
        ref = translator.references[symbol]
        if ref.kind == "external":
            use = translator.externals[ref.name]
            inner = (element for _, elements in use.arguments for element in elements)
            if use.function not in translator.traced or any(has_opaque(translator, each) for each in inner):
                return True
    return False


def split_terms(
    translator: Translator, log_density: sp.Expr, expectations: str, coupled: bool = False
) -> tuple[Term, ...]:
    """Split a log density into additive terms and choose how to compute each one's expectation.

    `coupled` says that the latents are correlated with each other, not only the readings of one.
    """
    if expectations == "sampled":
        term = _choose(translator, log_density, "sampled", coupled)
        return (term,)
    merged: dict[tuple, Term] = {}
    for part in additive_parts(translator, log_density):
        term = _choose(translator, part, expectations, coupled)
        arguments = frozenset(term.integrand.arguments) if term.integrand else term.latents
        key = (term.method, () if term.method == "closed" else arguments)
        if key in merged:
            other = merged[key]
            term = replace(
                other,
                expression=other.expression + term.expression,
                closed=None if other.closed is None or term.closed is None else other.closed + term.closed,
                latents=tuple(sorted({*other.latents, *term.latents}, key=lambda s: s.name)),
                reason=max(other.reason, term.reason, key=len),  # the more telling one
                integrand=other.integrand.plus(term.integrand) if other.integrand and term.integrand else None,
            )
        merged[key] = term
    return tuple(merged.values())


def additive_parts(translator: Translator, log_density: sp.Expr) -> list[sp.Expr]:
    """Its terms; `data * (a + b)` counts as two, so that one open part does not open the rest."""
    found = []
    for part in sp.Add.make_args(log_density):
        factors = [f for f in sp.Mul.make_args(part) if latents_in(translator, f)]
        if len(factors) == 1 and factors[0].is_Add:
            rest = sp.Mul(*[f for f in sp.Mul.make_args(part) if f is not factors[0]])
            found += [rest * each for each in factors[0].args]
        else:
            found.append(part)
    return found


def _shortened(expression: sp.Expr) -> str:
    text = written(expression)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _counted(integrand: Integrand) -> str:
    what = "linear function(s) of latents" if integrand.reduced else "latent value(s)"
    return f"{len(integrand.arguments)} {what}"


def refuse_joint(translator: Translator, latents: Sequence[sp.Symbol]) -> None:
    """Raise GpdslError where score functions of independent latents would meet several values of one."""
    for symbols in correlated(translator, latents):
        name = translator.references[symbols[0]].name
        raise GpdslError(
            f"an opaque function depends on several values of latent `{name}` in one row "
            f"({', '.join(s.name for s in symbols)}), which score-function gradients do not cover; "
            "pass it one value of each latent, or leave optimizer, engine and estimators to the plan"
        )


def _choose(translator: Translator, part: sp.Expr, expectations: str, coupled: bool) -> Term:
    part = combined(translator, part)
    latents = latents_in(translator, part)
    if not latents:
        return Term(part, (), "closed", "no latent value in it", part)
    calls = has_external(translator, part)
    if calls and has_opaque(translator, part):
        if expectations in {"closed", "quadrature"}:
            raise GpdslError(
                f"expectations = {expectations} is impossible here: the likelihood calls an opaque function; "
                "use expectations = auto or sampled"
            )
        return Term(part, latents, "score", "an opaque function: evaluations only")
    if expectations in {"auto", "closed"}:
        closed = None if calls else joint_expectation(translator, part, latents, coupled)
        if closed is not None:
            return Term(part, latents, "closed", PIECES if closed.has(mills, ndtr) else SMOOTH, closed)
        if expectations == "closed":
            raise GpdslError(
                f"no closed-form expectation for the term {_shortened(part)}: it is not polynomial × exp(linear) in "
                f"{', '.join(f.name for f in latents)}; use expectations = auto"
            )
    integrand = integrand_of(translator, part, latents) if expectations in {"auto", "quadrature"} else None
    if integrand is not None and integrand.kinks:
        return Term(part, latents, "quadrature", f"{_counted(integrand)}, split at thresholds", integrand=integrand)
    if jumps(part, latents):
        refuse_quadrature(expectations)
        refuse_joint(translator, latents)
        return Term(part, latents, "score", "a jump where a latent crosses a condition: values only")
    if integrand is not None and len(integrand.arguments) <= MOST:
        return Term(
            part, latents, "quadrature", f"not in the closed family; {_counted(integrand)}", integrand=integrand
        )
    if expectations == "quadrature":
        raise GpdslError(
            f"expectations = quadrature needs at most {MOST} latent values in a term, this one has "
            f"{len(latents)}; use expectations = auto"
        )
    reason = "as asked" if expectations == "sampled" else f"{len(latents)} latent values in one term"
    return Term(part, latents, "pathwise", reason)


# Sums of products of functions of one latent each, like d / v + (e - d) / w.

MOST_TERMS = 64
"""Of a sum that is taken apart, and operations in it."""

MULTIPLIED_OUT = 1024
"""Terms up to which a product of sums is multiplied out, of which some may cancel."""


@dataclass(frozen=True)
class Product:
    """c prod_f g_f(f): the coefficient reads no latent, and each factor the one that it belongs to."""

    coefficient: sp.Expr
    factors: Mapping[sp.Symbol, sp.Expr]


def products(expression: sp.Expr, latents: Sequence[sp.Symbol]) -> tuple[Product, ...] | None:
    """The expression as a sum of such products; None where it is none, or one of too many.

    Nothing is multiplied out that need not be: d^2 - 2 d e + e^2 has digits less than (d - e)^2.
    """
    if sp.count_ops(expression) > MOST_TERMS:
        return None
    found: list[Product | None] = []
    for term in sp.Add.make_args(expression):
        known = _product(term, latents)
        parts = [known] if known is not None else [_product(each, latents) for each in _multiplied_out(term, latents)]
        found += parts
        if len(found) > MOST_TERMS or any(each is None for each in parts):
            return None
    return tuple(each for each in found if each is not None)


def _multiplied_out(term: sp.Expr, latents: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """A product as a sum of products, by those of its factors that read several latents."""
    factors = sp.Mul.make_args(term)
    several = [each for each in factors if sum(each.has(latent) for latent in latents) > 1]
    if prod(map(_terms, several)) > MULTIPLIED_OUT:
        return [term]
    others = sp.Mul(*(each for each in factors if each not in several))
    whole = sp.expand(sp.Mul(*several), power_base=False, log=False)
    return [each * others for each in sp.Add.make_args(whole)]


def _terms(factor: sp.Expr) -> int:
    """Of a power of a sum, when it is multiplied out."""
    base, power = factor.as_base_exp()
    several = power.is_Integer and power > 0
    return comb(len(sp.Add.make_args(base)) + int(power) - 1, int(power)) if several else 1


def _product(term: sp.Expr, latents: Sequence[sp.Symbol]) -> Product | None:
    coefficient, factors = sp.Integer(1), dict[sp.Symbol, sp.Expr]()
    for factor in sp.Mul.make_args(term):
        inside = [latent for latent in latents if factor.has(latent)]
        if len(inside) > 1:
            return None
        if inside:
            factors[inside[0]] = factors.get(inside[0], sp.Integer(1)) * factor
        else:
            coefficient *= factor
    return Product(coefficient, factors)
