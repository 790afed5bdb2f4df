"""Observations → terms of the expected log likelihood, each with the way it will be computed and why."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import sympy as sp

from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.symbolic import laws
from gpdsl.symbolic.cases import HOLDS
from gpdsl.symbolic.errors import NotReal, TooLarge
from gpdsl.symbolic.gaussian import pull_exponentials
from gpdsl.symbolic.joint import combined, correlated, joint_expectation
from gpdsl.symbolic.jumps import jumps, refuse_quadrature
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.likelihoods import check_cutpoints, law_of
from gpdsl.symbolic.multivariate import joint_density
from gpdsl.symbolic.translate import POSITIVE, Environment, NeedsElements, Ref, Translator, axis_key
from gpdsl.symbolic.warps import Warp, warp_of

QUADRATURE_LATENTS = 2
SHOWN = 200
MAX_ELEMENTWISE = 50_000
ELEMENT = 50
"""Operations that an observation without a generic form may have in all its elements, and what each costs besides."""

NOT_REAL = (sp.zoo, sp.nan, sp.oo, sp.I)


@dataclass(frozen=True)
class Term:
    """One additive part of a log density.

    `method` is closed, quadrature, pathwise or score; `closed` holds the expectation when the method is closed.
    """

    expression: sp.Expr
    latents: tuple[sp.Symbol, ...]
    method: str
    reason: str
    closed: sp.Expr | None = None


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
    densities leave out missing elements themselves.
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

    @property
    def partial(self) -> bool:
        """Whether rows with missing elements count, with what they have."""
        return self.distribution == "MultivariateNormal"


def observation_terms(translator: Translator, expectations: str = "auto") -> tuple[ObservationTerms, ...]:
    """Terms of every observation of the model. `expectations` is auto, closed, quadrature or sampled."""
    found: list[ObservationTerms] = []
    for observation in translator.declarations.observations:
        own = {axis_key(axis): axis_key(axis) for axis in observation.axes}
        for chosen in _chosen(translator, observation):
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
            total += sum(ELEMENT + translator.operations(each.log_density) for each in new)
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
        y = output_symbol(translator, observation, positions)
        warp = warp_of(translator, observation, y, env) if observation.transform is not None else None
        if call.log_density is not None:
            what = f"the density `{call.name}`"
            log_density = translator.bounded(translator.scalar(call.log_density, env), what, call.span)
        else:
            law = law_of(translator, call, env, {axis_key(axis) for axis in observation.axes})
            log_density = laws.log_density(law, warp.value if warp is not None else y)
        log_density = log_density + warp.log_slope() if warp is not None else log_density
        kind = translator.declarations.outputs[observation.outputs[0]].kind
        formula = Formula(y, log_density, kind) if law is None else None
    else:
        law, log_density = _density(translator, observation, positions, env)
    if log_density.has(*NOT_REAL):
        raise translator.failure(NotReal(call.span, f"the density of `{call.name}`"))
    log_density = pull_exponentials(log_density)
    log_density = combined(translator, log_density, latents_in(translator, log_density))
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
    return law, laws.log_density(law, output_symbol(translator, observation, positions))


def output_symbol(translator: Translator, observation: m.Observation, positions: tuple[int | str, ...]) -> sp.Symbol:
    """The observed value that a statement is about."""
    output = translator.declarations.outputs[observation.outputs[0]]
    return translator.symbol(Ref("output", output.name, positions), positive=output.kind in POSITIVE)


def _reads(
    translator: Translator, log_density: sp.Expr, own: str, positions: tuple[int | str, ...]
) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
    """The observed values a log density depends on besides its own: one element, or (without positions) all of them."""
    refs = [translator.references[symbol] for symbol in log_density.free_symbols]
    others = [ref for ref in refs if ref.kind == "output" and (positions or ref.name != own)]
    found = {(ref.name, ref.positions) for ref in others} - {(own, positions)}
    return tuple(sorted(found, key=str))


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
    return tuple(sorted(found, key=lambda s: s.name))


def has_external(translator: Translator, expression: sp.Expr) -> bool:
    """Whether an opaque function's value enters the expression."""
    return any(translator.references[s].kind == "external" for s in expression.free_symbols)


def split_terms(translator: Translator, log_density: sp.Expr, expectations: str) -> tuple[Term, ...]:
    """Split a log density into additive terms and choose how to compute each one's expectation."""
    if expectations == "sampled":
        term = _choose(translator, log_density, "sampled")
        return (term,)
    merged: dict[tuple, Term] = {}
    for part in _additive_parts(translator, log_density):
        term = _choose(translator, part, expectations)
        key = (term.method, () if term.method == "closed" else term.latents)
        merged[key] = _join(merged[key], term) if key in merged else term
    return tuple(merged.values())


def _additive_parts(translator: Translator, log_density: sp.Expr) -> list[sp.Expr]:
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


def _join(a: Term, b: Term) -> Term:
    closed = None if a.closed is None or b.closed is None else a.closed + b.closed
    latents = tuple(sorted({*a.latents, *b.latents}, key=lambda s: s.name))
    reason = max(a.reason, b.reason, key=len)  # the more telling one
    return replace(a, expression=a.expression + b.expression, closed=closed, latents=latents, reason=reason)


def _shortened(expression: sp.Expr) -> str:
    text = str(expression)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _refuse_joint(translator: Translator, latents: Sequence[sp.Symbol]) -> None:
    for symbols in correlated(translator, latents):
        name = translator.references[symbols[0]].name
        raise GpdslError(
            f"an opaque function depends on several values of latent `{name}` in one row "
            f"({', '.join(s.name for s in symbols)}), which score-function gradients do not cover; "
            "pass it one value of each latent"
        )


def _choose(translator: Translator, part: sp.Expr, expectations: str) -> Term:
    part = combined(translator, part, latents_in(translator, part))
    latents = latents_in(translator, part)
    if not latents:
        return Term(part, (), "closed", "no latent value in it", part)
    if has_external(translator, part):
        if expectations in {"closed", "quadrature"}:
            raise GpdslError(
                f"expectations = {expectations} is impossible here: the likelihood calls an opaque function; "
                "use expectations = auto or sampled"
            )
        _refuse_joint(translator, latents)
        return Term(part, latents, "score", "an opaque function: evaluations only")
    if expectations in {"auto", "closed"}:
        closed = joint_expectation(translator, part, latents)
        if closed is not None:
            return Term(part, latents, "closed", "polynomial × exp(linear) in the latents", closed)
        if expectations == "closed":
            raise GpdslError(
                f"no closed-form expectation for the term {_shortened(part)}: it is not polynomial × exp(linear) in "
                f"{', '.join(f.name for f in latents)}; use expectations = auto"
            )
    if jumps(part, latents):
        refuse_quadrature(expectations)
        _refuse_joint(translator, latents)
        return Term(part, latents, "score", "a jump where a latent crosses a condition: values only")
    if expectations in {"auto", "quadrature"} and len(latents) <= QUADRATURE_LATENTS:
        return Term(part, latents, "quadrature", f"not in the closed family; {len(latents)} latent value(s)")
    if expectations == "quadrature":
        raise GpdslError(
            f"expectations = quadrature needs at most {QUADRATURE_LATENTS} latent values in a term, this one has "
            f"{len(latents)}; use expectations = auto"
        )
    reason = "as asked" if expectations == "sampled" else f"{len(latents)} latent values in one term"
    return Term(part, latents, "pathwise", reason)
