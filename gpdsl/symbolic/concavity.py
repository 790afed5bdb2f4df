"""Whether a likelihood is log-concave in its latents, which QSGP's Theorem 3 needs: proved, checked on a grid, or not.

The proof composes functions whose curvature is known (log Phi is concave and increasing, so it is concave in anything
concave), and where no rule applies takes the sign of a second derivative that SymPy can tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import sympy as sp

from gpdsl.symbolic import functions as f
from gpdsl.symbolic.conditions import choose, condition
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.functions import differentiated, expanded
from gpdsl.symbolic.kernel_values import start_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.stable import shows_positive
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator

# A log density with what is known of the observed value put in: 0 or 1, one level of several, a count, one of n.

COUNT = sp.Symbol("count", integer=True, nonnegative=True)
FAILURES = sp.Symbol("failures", integer=True, nonnegative=True)
"""Trials of a binomial distribution that did not succeed."""


def outcomes(translator: Translator, observation: ObservationTerms) -> tuple[sp.Expr, ...]:
    """The log density for each outcome of an output that has few of them; one expression for the others."""
    density = observation.log_density
    refs = {symbol: translator.references[symbol] for symbol in density.free_symbols}
    own = [symbol for symbol, ref in refs.items() if ref.kind == "output" and ref.name in observation.outputs]
    levels = sorted((symbol for symbol, ref in refs.items() if ref.kind == "indicator"), key=str)
    if levels:
        chosen = [{symbol: sp.Integer(symbol == level) for symbol in levels} for level in levels]
        return tuple(density.subs(each) for each in chosen)
    kinds = {symbol: translator.declarations.outputs[refs[symbol].name].kind for symbol in own}
    values = {symbol: _values(observation, symbol, kind) for symbol, kind in kinds.items()}
    trials = _trials(observation)
    if isinstance(trials, sp.Symbol):
        density = density.subs(trials, COUNT + FAILURES)
    return tuple(density.subs(dict(zip(values, case, strict=True))) for case in itertools.product(*values.values()))


def _trials(observation: ObservationTerms) -> sp.Expr | None:
    law = observation.law
    return law.arguments["trials"] if law is not None and law.name == "Binomial" else None


def _values(observation: ObservationTerms, symbol: sp.Symbol, kind: str) -> tuple[sp.Expr, ...]:
    """The outcomes to look at: what is concave at the fewest and the most of known trials is so between them."""
    trials = _trials(observation)
    if kind == "binary":
        return sp.Integer(0), sp.Integer(1)
    if kind == "count":
        return (sp.Integer(0), trials) if trials is not None and trials.is_Number else (COUNT,)
    return (symbol,)


# Where a log density has a positive second derivative: looked for on a grid of latents, data and parameters.

SETS = 24
"""Draws of the data, of the parameters, and of the direction in which several latents move."""
PLACES = np.linspace(-12.0, 12.0, 961)
"""Of the latent, in steps small enough for a second difference."""
TOLERANCE = 1e-6
ROUNDING = 1e-10
"""Curvatures below these, as parts of the largest one and of the density itself, are zero but for rounding."""


def positive_curvature(translator: Translator, cases: Sequence[sp.Expr], latents: Sequence[sp.Symbol]) -> str | None:
    """The place with the largest positive second difference, in words; None when there is none."""
    rng = np.random.default_rng(0)
    worst, told = 0.0, None
    for case in cases:
        for number in range(SETS):
            known = _known(translator, case, latents, rng, wild=number > 0)
            centre = {s: 0.0 if number == 0 else rng.normal() for s in latents}
            along = {s: 1.0 if len(latents) == 1 else rng.normal() for s in latents}
            at = {s: np.asarray(centre[s] + along[s] * PLACES) for s in latents}
            curvature = _curvature(case, known | at)
            place = int(np.argmax(curvature))
            if curvature[place] > worst:
                worst = float(curvature[place])
                told = _told(worst, known, {s: float(at[s][place + 1]) for s in latents})
    return told


def _curvature(case: sp.Expr, values: dict[sp.Symbol, np.ndarray]) -> np.ndarray:
    """Second differences over the squared step; 0 where they are not certain, or are not finite."""
    density = np.broadcast_to(np.asarray(evaluate(case, values), float), PLACES.shape)
    step = PLACES[1] - PLACES[0]
    with np.errstate(all="ignore"):
        second = (density[2:] - 2 * density[1:-1] + density[:-2]) / step**2
        noise = ROUNDING * np.max(np.abs([density[2:], density[1:-1], density[:-2]]), axis=0) / step**2
    finite = np.isfinite(second)
    largest = np.max(np.abs(second[finite]), initial=0.0)
    return np.where(finite & (second > noise + TOLERANCE * largest), second, 0.0)


def _known(
    translator: Translator, case: sp.Expr, latents: Sequence[sp.Symbol], rng: np.random.Generator, *, wild: bool
) -> dict[sp.Symbol, np.ndarray]:
    """A number for every other symbol: the parameters' initial values the first time, then random ones."""
    found: dict[sp.Symbol, np.ndarray] = {}
    for symbol in sorted(case.free_symbols - set(latents), key=str):
        if symbol in (COUNT, FAILURES):
            value = float(rng.poisson(3.0))
        elif translator.references[symbol].kind == "param":
            value = start_of(translator, symbol, rng if wild else None)
        else:
            value = float(np.exp(rng.normal()) if symbol.is_positive else 3.0 * rng.normal())
        found[symbol] = np.asarray(value)
    return found


def _told(curvature: float, known: dict[sp.Symbol, np.ndarray], latents: dict[sp.Symbol, float]) -> str:
    numbers = latents | {symbol: float(value) for symbol, value in known.items()}
    places = [f"{symbol.name} = {value:.3g}" for symbol, value in numbers.items()]
    return f"its second derivative is {curvature:.3g} at {', '.join(places)}"


Verdict = Literal["proved", "checked", "refused"]
MOST_NODES, MOST_IN_DERIVATIVE = 40, 120
"""Size of what is differentiated twice, and of the derivatives: SymPy takes its time over the sign of large ones."""


@dataclass(frozen=True)
class Concavity:
    """Whether the log density of an observation is concave in the latents, and why it is thought so."""

    verdict: Verdict
    reason: str

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return self.verdict != "refused"


def log_concavity(translator: Translator, observations: Sequence[ObservationTerms]) -> Concavity:
    """The weakest verdict on any observation: what does not hold, or else what is only checked, or else proofs."""
    found = [_of(translator, each) for each in observations]
    order: tuple[Verdict, ...] = ("refused", "checked", "proved")
    verdict: Verdict = min((each.verdict for each in found), key=order.index, default="proved")
    return Concavity(verdict, "; ".join(dict.fromkeys(each.reason for each in found if each.verdict == verdict)))


def _of(translator: Translator, observation: ObservationTerms) -> Concavity:
    name, density = observation.distribution, observation.log_density
    latents = latents_in(translator, density)
    if has_external(translator, density):
        return Concavity("refused", f"`{name}` calls an opaque function, whose curvature is not known")
    cases = outcomes(translator, observation)
    if all(concave(case, latents) for case in cases):
        return Concavity("proved", f"the log density of `{name}` is concave in the latent")
    witness = positive_curvature(translator, cases, latents)
    if witness is not None:
        return Concavity("refused", f"the log density of `{name}` is not concave in the latent: {witness}")
    return Concavity(
        "checked",
        f"the log density of `{name}` has no positive second derivative on a grid of latents, data and parameters "
        "(a numerical check, not a proof)",
    )


def one_way(translator: Translator, observations: Sequence[ObservationTerms]) -> bool:
    """Whether every argument of every law moves one way with one combination of the latents that it reads.

    A product of latents, or a square, has the same value at places apart, and the posterior modes at these.
    """
    laws = [observation.law for observation in observations]
    return all(
        law is not None
        and not law.components
        and all(_one_way(argument, latents_in(translator, argument)) for argument in law.arguments.values())
        for law in laws
    )


def _one_way(argument: sp.Expr, latents: Sequence[sp.Symbol]) -> bool:
    slopes = [sp.diff(argument, latent) for latent in latents]
    shares = [slope / slopes[0] for slope in slopes[1:]]
    moving = [factor for slope in slopes[:1] for factor in sp.Mul.make_args(slope) if factor.has(*latents)]
    return all(map(shows_positive, moving)) and not any(sp.simplify(share).has(*latents) for share in shares)


def concave(expression: sp.Expr, variables: Iterable[sp.Symbol]) -> bool:
    """Whether it is proved to be concave in the variables together."""
    return _Curvature(tuple(variables)).bends(expression, -1)


Sign = int
"""1 for convex, -1 for concave."""


@dataclass(frozen=True)
class Atom:
    """A convex (1) or concave (-1) function of one argument, and how it grows: 1, -1, or 0 for neither."""

    bends: Sign
    grows: int


ATOMS: Mapping[type, Atom] = {
    sp.exp: Atom(1, 1),
    f.expm1: Atom(1, 1),
    f.softplus: Atom(1, 1),
    f.absolute: Atom(1, 0),
    sp.Abs: Atom(1, 0),
    sp.cosh: Atom(1, 0),
    f.log_ndtr: Atom(-1, 1),
    sp.log: Atom(-1, 1),
    f.log1p: Atom(-1, 1),
    f.log1mexp: Atom(-1, 1),
}
"""Known curvatures of functions of one argument. `log_ndtr`: Phi is log-concave, as the density it integrates is."""

SEVERAL: Mapping[type, Atom] = {f.logsumexp: Atom(1, 1), f.maximum: Atom(1, 1), f.minimum: Atom(-1, 1)}
"""And of several."""

PROJECTIONS = (f.log_ndtr_interval,)
"""Integrals of a log-concave density between affine limits: log-concave themselves (Prekopa 1973)."""

LOG_CONCAVE = (f.softplus, f.sigmoid, f.ndtr, sp.exp)
"""Functions whose logarithm is concave: a log-concave density, its integral, and the integral of that."""


@dataclass(frozen=True)
class _Curvature:
    variables: tuple[sp.Symbol, ...]

    def bends(self, expression: sp.Expr, sign: Sign) -> bool:
        """Whether it is proved to be convex (1) or concave (-1)."""
        if self.affine(expression):
            return True
        rules: tuple[Callable[[sp.Expr, Sign], bool], ...] = (self._composed, self._by_derivative)
        if any(rule(expression, sign) for rule in rules):
            return True
        flat = expanded(expression)
        return flat != expression and any(rule(flat, sign) for rule in rules)

    def affine(self, expression: sp.Expr) -> bool:
        """Whether it is affine in the variables, those of no influence included."""
        inside = expression.free_symbols & set(self.variables)
        if not inside:
            return True
        return bool(expression.is_polynomial(*inside)) and sp.Poly(expression, *inside).total_degree() <= 1

    def _composed(self, expression: sp.Expr, sign: Sign) -> bool:
        if isinstance(expression, sp.Add):
            return all(self.bends(term, sign) for term in expression.args)
        if isinstance(expression, sp.Mul):
            return self._scaled(expression, sign)
        if isinstance(expression, sp.Pow):
            return self._power(expression, sign)
        if isinstance(expression, f.times_log):
            count, inside = expression.args
            free = not count.free_symbols & set(self.variables)
            return free and bool(count.is_nonnegative) and self.bends(sp.log(inside), sign)
        if isinstance(expression, sp.log) and isinstance(expression.args[0], LOG_CONCAVE):
            return sign < 0 and self.affine(expression.args[0].args[0])
        if isinstance(expression, choose):
            holds, *branches = expression.args
            free = not holds.free_symbols & set(self.variables)
            return free and all(self.bends(each, sign) for each in branches)
        if isinstance(expression, PROJECTIONS):
            return sign < 0 and all(map(self.affine, expression.args))
        atom = ATOMS.get(expression.func) or SEVERAL.get(expression.func)
        if atom is None or atom.bends != sign:
            return False
        # A convex increasing function of something convex is convex; of something affine whether it grows or not.
        return all(
            self.affine(each) or (atom.grows != 0 and self.bends(each, sign * atom.grows)) for each in expression.args
        )

    def _scaled(self, product: sp.Mul, sign: Sign) -> bool:
        factor, rest = product.as_independent(*self.variables, as_Add=False)
        if factor == 1 or rest == product:
            return False
        if factor.is_nonnegative:
            return self.bends(rest, sign)
        return bool(factor.is_nonpositive) and self.bends(rest, -sign)

    def _power(self, power: sp.Pow, sign: Sign) -> bool:
        base, exponent = power.base, power.exp
        even = exponent.is_integer and exponent.is_even and exponent.is_positive
        return bool(even) and sign > 0 and self.affine(base)

    def _by_derivative(self, expression: sp.Expr, sign: Sign) -> bool:
        """By a second derivative whose sign SymPy tells; along every direction, so of one variable only."""
        inside = expression.free_symbols & set(self.variables)
        if len(inside) != 1 or _larger(expression, MOST_NODES) or expression.has(*KINKED):
            return False
        (variable,) = inside
        slope = differentiated(expression, variable)
        if slope is None or _larger(slope, MOST_IN_DERIVATIVE):
            return False
        second = differentiated(slope, variable)
        if second is None or _larger(second, MOST_IN_DERIVATIVE):
            return False
        return any(
            bool(form.is_nonnegative if sign > 0 else form.is_nonpositive) for form in (second, expanded(second))
        )


def _larger(expression: sp.Expr, most: int) -> bool:
    """Whether it has more parts than this."""
    return any(number >= most for number, _ in enumerate(sp.preorder_traversal(expression)))


KINKED = (f.absolute, sp.Abs, f.maximum, f.minimum, f.floor, sp.sign, condition)
"""Functions with kinks or jumps, of which the second derivative does not tell."""
