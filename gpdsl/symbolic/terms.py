"""Observations → terms of the expected log likelihood, each with the way it will be computed and why."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.language.checker.monotone import course
from gpdsl.symbolic import laws
from gpdsl.symbolic.conditions import HOLDS, choose
from gpdsl.symbolic.errors import NoDerivative, NotReal, TooLarge
from gpdsl.symbolic.expectations import Term, combined, correlated, has_external, latents_in, split_terms
from gpdsl.symbolic.gaussian import pull_exponentials
from gpdsl.symbolic.laws import Law, check_cutpoints, joint_density, law_of
from gpdsl.symbolic.numeric import degree_bound
from gpdsl.symbolic.stable import stable
from gpdsl.symbolic.translate import Environment, NeedsElements, Ref, Translator, axis_key

# Transformed left sides: `t(y) ~ Normal(f, s)` has the density of t(y) and log |dt/dy| besides.


@dataclass(frozen=True)
class Warp:
    """`value` as a function of the output's `symbol`, between `low` and `high` for outputs of its kind.

    `proved` says that the signs of the parameters make it monotone; else it was tried at their initial values.
    """

    symbol: sp.Symbol
    value: sp.Expr
    slope: sp.Expr
    direction: int | None
    kind: str

    @property
    def proved(self) -> bool:
        """Whether it is monotone whatever the parameters become."""
        return self.direction is not None

    def log_slope(self) -> sp.Expr:
        """log |dt/dy|, by the rule for the sum of logarithms of a product where signs are known."""
        slope = self.slope if self.direction is None else self.direction * self.slope
        if self.direction is None:
            return sp.log(slope**2) / 2
        parts = sp.Mul.make_args(slope)
        if len(parts) > 1 and all(part.is_positive for part in parts):
            return sp.Add(*[sp.log(part) for part in parts])
        return sp.log(slope)


def warp_of(translator: Translator, observation: m.Observation, y: sp.Symbol, env: Environment) -> Warp:
    """The transform left of one observation, its slope by symbolic differentiation.

    Raises ModelError when a function in it has no derivative.
    """
    assert observation.transform is not None
    output = translator.declarations.outputs[observation.outputs[0]]
    value = translator.bounded(translator.scalar(observation.transform, env), "the left side", observation.span)
    slope = sp.diff(value, y)
    if slope.has(sp.Derivative, sp.Subs):
        raise translator.failure(NoDerivative(observation.span, output.name))
    slope = translator.bounded(slope, "the derivative of the left side", observation.span)
    found = course(translator.declarations, observation.transform)
    return Warp(y, value, slope, found.direction if found.known else None, output.kind)


MAX_ELEMENTWISE = 50_000
ELEMENT = 50
"""Operations that an observation without a generic form may have in all its elements, and what each costs besides."""

NOT_REAL = (sp.zoo, sp.nan, sp.oo, sp.I)


@dataclass(frozen=True)
class Formula:
    """A log density by formula, as a function of the output's `symbol`; `kind` is that of the output."""

    symbol: sp.Symbol
    log_density: sp.Expr
    kind: str


@dataclass(frozen=True)
class ObservationTerms:
    """The log density of one observation statement, for a generic element along `axes` (or one fixed element).

    `outputs` and `positions` say which observed values it is the density of; `law` is None for a density that is known
    by its values or its formula alone, and describes `warp` of the output when the left side is transformed. `formula`
    is the density of a `density` of the file. `reads` are the observed values of other outputs it depends on. `partial`
    densities leave out missing elements themselves. `weight`: by how much the log density of the law counts in
    `log_density` (`weighed`).
    """

    outputs: tuple[str, ...]
    positions: tuple[int | str, ...]
    axes: tuple[str, ...]
    log_density: sp.Expr
    terms: tuple[Term, ...]
    distribution: str
    law: Law | None = None
    warp: Warp | None = None
    formula: Formula | None = None
    reads: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    weight: sp.Expr = sp.S.One


def observation_terms(translator: Translator, expectations: str = "auto") -> tuple[ObservationTerms, ...]:
    """Terms of every observation of the model. `expectations` is auto, closed, quadrature or sampled."""
    found: list[ObservationTerms] = []
    for observation in translator.declarations.observations:
        own = {axis_key(axis): axis_key(axis) for axis in observation.axes}
        for chosen in _chosen(translator, observation) if observation.guards else [{}]:
            found += _observation(translator, observation, {**own, **chosen}, expectations)
    return tuple(found)


def _chosen(translator: Translator, observation: m.Observation) -> list[dict[str, int]]:
    """Positions of the indices that conditions on the left restrict, one by one; the others stay generic."""
    axes = {guard.index: axis for guard, axis in zip(observation.guards, observation.axes, strict=False)}
    restricted = [guard for guard in observation.guards if guard.operator != "all"]
    choices = [
        [i for i in range(1, translator.size(axes[guard.index]) + 1) if HOLDS[guard.operator](i, guard.value)]
        for guard in restricted
    ]
    if prod(map(len, choices)) > MAX_ELEMENTWISE // ELEMENT:
        raise translator.failure(
            TooLarge(observation.span, f"every element of `{observation.outputs[0]}`", MAX_ELEMENTWISE)
        )
    keys = [axis_key(axes[guard.index]) for guard in restricted]
    return [dict(zip(keys, positions, strict=True)) for positions in itertools.product(*choices)]


def _observation(
    translator: Translator, observation: m.Observation, env: Environment, expectations: str
) -> list[ObservationTerms]:
    try:
        return [_one(translator, observation, env, expectations)]
    except NeedsElements as need:
        axis = next(a for a in observation.axes if axis_key(a) == need.axis)
        found: list[ObservationTerms] = []
        total = 0
        for i in range(1, translator.size(axis) + 1):
            new = _observation(translator, observation, {**env, need.axis: i}, expectations)
            total += sum(ELEMENT + translator.extent(each.log_density)[0] for each in new)
            if total > MAX_ELEMENTWISE:
                what = f"every element of `{observation.outputs[0]}`"
                raise translator.failure(TooLarge(observation.span, what, MAX_ELEMENTWISE)) from None
            found += new
        return found


def _one(translator: Translator, observation: m.Observation, env: Environment, expectations: str) -> ObservationTerms:
    call = observation.distribution
    positions = tuple(translator.position(s, env) for s in observation.subscripts)
    law: Law | None = None
    warp: Warp | None = None
    formula: Formula | None = None
    if call.external:
        use = translator.external(call.name, tuple(call.arguments.values()), observation.outputs)
        log_density: sp.Expr = translator.symbol(Ref("external", use.key))
        positions = ()
    elif call.name == "MultivariateNormal":
        law, log_density = joint_density(translator, observation)
        positions = ()
    elif call.log_density is not None or observation.transform is not None:
        y = translator.output(observation.outputs[0], positions)
        warp, law, log_density = _of_number(translator, observation, y, env)
    else:
        law, log_density = _density(translator, observation, positions, env)
    # Predictions integrate the density of a formula, or of a registered law that does not give all they ask for; a
    # censored one has no density at its bounds.
    plain = law is not None and (not law.registered or law.name == "Censored" or (warp is None and law.valued))
    if not call.external and not plain:
        y = translator.output(observation.outputs[0], positions)
        formula = Formula(y, stable(log_density), translator.declarations.outputs[observation.outputs[0]].kind)
    if log_density.has(*NOT_REAL):
        raise translator.failure(NotReal(call.span, f"the density of `{call.name}`"))
    log_density = combined(translator, stable(pull_exponentials(log_density)))
    return ObservationTerms(
        outputs=observation.outputs,
        positions=positions,
        axes=tuple(p for p in positions if isinstance(p, str)),
        log_density=log_density,
        terms=split_terms(translator, log_density, expectations),
        distribution=call.name,
        law=law,
        warp=warp,
        formula=formula,
        reads=_reads(translator, log_density, observation.outputs[0], positions),
    )


def with_law(
    translator: Translator, observation: ObservationTerms, law: Law, expectations: str = "auto"
) -> ObservationTerms:
    """The same observation of a number, or of a `warp` of it, under another law."""
    slope = None if observation.warp is None else observation.warp.log_slope()
    density = laws.log_density(law, output_value(translator, observation), slope)
    log_density = observation.weight * combined(translator, stable(pull_exponentials(density)))
    return replace(
        observation, law=law, log_density=log_density, terms=split_terms(translator, log_density, expectations)
    )


def weighed(
    translator: Translator, observation: ObservationTerms, weight: sp.Expr, expectations: str = "auto"
) -> ObservationTerms:
    """The same observation, whose log density counts `weight` times."""
    log_density = weight * observation.log_density
    terms = split_terms(translator, log_density, expectations)
    return replace(observation, weight=weight, log_density=log_density, terms=terms)


def output_value(translator: Translator, observation: ObservationTerms) -> sp.Expr:
    """The observed number that the law of an observation describes, or the `warp` of it."""
    if observation.warp is not None:
        return observation.warp.value
    return translator.output(observation.outputs[0], observation.positions)


def _law_density(law: Law, y: sp.Expr, warp: Warp | None) -> sp.Expr:
    return laws.log_density(law, y) if warp is None else laws.log_density(law, warp.value, warp.log_slope())


def _of_number(
    translator: Translator, observation: m.Observation, y: sp.Expr, env: Environment
) -> tuple[Warp | None, Law | None, sp.Expr]:
    """The warp, the law and the log density of an observed number `y`, by a `density` of the file or by a law."""
    call, transformed = observation.distribution, observation.transform is not None
    warp = warp_of(translator, observation, y, env) if transformed else None
    if call.log_density is not None:
        written = translator.scalar(call.log_density, env)
        density = translator.bounded(written, f"the density `{call.name}`", call.span)
        return warp, None, density + (warp.log_slope() if warp else 0)
    law = law_of(translator, call, env, {axis_key(axis) for axis in observation.axes})
    return warp, law, _law_density(law, y, warp)


def density_formula(translator: Translator, observation: m.Observation, env: Environment) -> Formula:
    """The log density of one element of an observed number, which is not censored."""
    positions = tuple(translator.position(subscript, env) for subscript in observation.subscripts)
    y = translator.output(observation.outputs[0], positions)
    warp, law, log_density = _of_number(translator, observation, y, env)
    if law is not None and law.name == "Censored":
        log_density = _law_density(law.components[0], y, warp)
    return Formula(y, stable(log_density), translator.declarations.outputs[observation.outputs[0]].kind)


def _density(
    translator: Translator, observation: m.Observation, positions: tuple[int | str, ...], env: Environment
) -> tuple[Law, sp.Expr]:
    call, output = observation.distribution, translator.declarations.outputs[observation.outputs[0]]
    law = law_of(translator, call, env, {axis_key(axis) for axis in observation.axes})
    if output.label is not None:
        levels = range(1, translator.size(output.label) + 1)
        check_cutpoints(translator, observation, law, len(levels))
        indicators = [translator.symbol(Ref("indicator", output.name, (*positions, c))) for c in levels]
        return law, laws.observed_level(indicators, law)
    return law, laws.log_density(law, translator.output(observation.outputs[0], positions))


def _reads(
    translator: Translator, log_density: sp.Expr, own: str, positions: tuple[int | str, ...]
) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
    """The observed values a log density depends on besides its own: one element, or (without positions) all of them."""
    refs = [translator.references[symbol] for symbol in log_density.free_symbols]
    others = [ref for ref in refs if ref.kind == "output" and (positions or ref.name != own)]
    found = {(ref.name, ref.positions) for ref in others} - {(own, positions)}
    return tuple(sorted(found, key=str))


# Which gradients sampled expectations have: through the samples, or from values alone, when the user says so.

SAMPLED = {"pathwise", "score"}


def with_gradients(
    translator: Translator, observations: Sequence[ObservationTerms], gradients: str
) -> tuple[ObservationTerms, ...]:
    """The observations with every sampled term estimated as `gradients` says: auto, pathwise or score.

    Raises GpdslError where that is impossible, or where nothing is sampled.
    """
    if gradients == "auto":
        return tuple(observations)
    if not any(term.method in SAMPLED for each in observations for term in each.terms):
        raise GpdslError(
            f"gradients = {gradients} is about expectations that are sampled, and all of this model's are exact; "
            "add expectations = sampled, or leave it out"
        )
    return tuple(
        replace(each, terms=tuple(_forced(translator, term, gradients) for term in each.terms)) for each in observations
    )


def _forced(translator: Translator, term: Term, gradients: str) -> Term:
    if term.method not in SAMPLED or term.method == gradients:
        return term
    if gradients == "pathwise":
        why = "an opaque function" if has_external(translator, term.expression) else "the jump of a condition"
        raise GpdslError(f"gradients = pathwise cannot pass through {why}; use gradients = auto or score")
    for symbols in correlated(translator, term.latents):
        name = translator.references[symbols[0]].name
        raise GpdslError(
            f"gradients = score takes one value of each latent in a row, and a term reads several of `{name}`: "
            f"{', '.join(s.name for s in symbols)}; use gradients = auto"
        )
    return replace(term, method="score", reason=f"values only, as asked ({term.reason})")


def quadratic(translator: Translator, densities: Sequence[sp.Expr]) -> bool:
    """Whether every log density is a polynomial of degree two at most in the latents together, where data decide."""
    for each in densities:
        latents = latents_in(translator, each)
        if has_external(translator, each):
            return False
        density = _added(each, latents) if each.has(choose) else each
        if degree_bound(density, latents) <= 2:
            continue
        if not density.is_polynomial(*latents) or sp.Poly(density, *latents).total_degree() > 2:
            return False
    return True


def _added(density: sp.Expr, latents: Collection[sp.Symbol]) -> sp.Expr:
    """Of the same degree, with sums of both branches for what latents have no part in choosing."""
    return density.replace(
        lambda e: isinstance(e, choose) and e.args[0].free_symbols.isdisjoint(latents),
        lambda e: e.args[0] * e.args[1] + (1 - e.args[0]) * e.args[2],
    )
