"""Draws of what a model has: of the latents, row by row or of all rows together, and of everything else given these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float, Int
from scipy.special import ndtr

from gpdsl.errors import GpdslError
from gpdsl.inference.fields.plan import FieldMarginals
from gpdsl.inference.posteriors.coupled import Block, TooManyRows
from gpdsl.program.cache import precision
from gpdsl.program.joint import basis_columns, with_sums
from gpdsl.results.by_formula import ByFormula
from gpdsl.results.expectation import Beliefs, mean_of, per_component
from gpdsl.results.integrals import sample_latents
from gpdsl.results.named import DRAWS, Ancestral, is_output, of_output, of_quantity, picks
from gpdsl.results.predictive import Predictive
from gpdsl.results.quantiles import monotone_of, where_reached
from gpdsl.results.warp import Warped
from gpdsl.symbolic.coupling import marginal
from gpdsl.symbolic.expectations import has_external, latents_in
from gpdsl.symbolic.kinks import jumps
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Translator, axis_key

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction


def sizes_of(beliefs: Beliefs, keys: tuple[str, ...]) -> tuple[int, ...]:
    """Lengths of the generic axes of a statement."""
    translator = beliefs.program.translator
    table = {axis_key(a): a for output in translator.declarations.outputs.values() for a in output.axes}
    return translator.shape(tuple(table[k] for k in keys))


def predictive_of(beliefs: Beliefs, o: ObservationTerms, keys: tuple[str, ...]) -> Predictive | Warped | ByFormula:
    """The predictive distribution of what one statement observes."""
    beliefs.program.verify_registered()
    law = None if o.law is None else Predictive(beliefs, o.law, keys, sizes_of(beliefs, keys))
    if o.formula is not None:
        whole = ByFormula(beliefs, o.formula, keys, sizes_of(beliefs, keys), None if o.warp else law)
        known: ByFormula = beliefs.found.setdefault((o.formula, keys), whole)
        return known
    assert law is not None
    return law if o.warp is None else Warped(beliefs, law, o.warp)


@dataclass(frozen=True, eq=False)
class Draws:
    """Some draws of all latents, and of all else at these; `component` is the one of the mixture that each is from."""

    beliefs: Beliefs
    latents: Float[Array, "S K rows latents"]
    component: Int[np.ndarray, "S rows"]
    rng: np.random.Generator
    apart: bool = False
    """Whether each statement's noise has a generator of its own, so that it does not depend on what else is drawn."""

    def values(
        self,
        expression: sp.Expr,
        keys: tuple[str, ...],
        drawn: Mapping[sp.Symbol, np.ndarray] = MappingProxyType({}),
    ) -> Float[np.ndarray, "S rows *keys"]:
        """An expression at the draws, with the outputs `drawn` before [draws, rows, *keys]."""
        beliefs, given = self.beliefs, {symbol: jnp.asarray(each)[:, None] for symbol, each in drawn.items()}
        opaque = has_external(beliefs.program.translator, expression)
        latents, externals = sample_latents(beliefs, len(self.component), opaque, self.latents)
        values = jnp.asarray(beliefs.program.evaluator(expression, beliefs.scope(latents, externals), keys, given))
        axes = values.shape[values.ndim - len(keys) :] if values.ndim >= len(keys) else (1,) * len(keys)
        every = np.broadcast_to(np.asarray(values), (*latents.shape[:2], beliefs.count, *axes))
        if every.shape[1] == 1:
            return every[:, 0]
        # on the host: JAX compiles a dozen programs for such an index of every new shape
        return every[np.arange(len(every))[:, None], self.component, np.arange(beliefs.count)]

    def of(self, name: str) -> Float[np.ndarray, "S rows *axes"]:
        """Draws of a latent, a row variable, a let or an output by its name."""
        if is_output(self.beliefs, name):
            return of_output(self.beliefs, name, lambda o, keys: self.output(o))
        return of_quantity(self.beliefs, name, self.values)

    def output(self, o: ObservationTerms) -> np.ndarray:
        """Draws of what one statement observes, at the same draws of the outputs that it reads."""
        return self._outputs.draw(o)

    @cached_property
    def _outputs(self) -> Ancestral:
        def values(expression: sp.Expr, keys: tuple[str, ...], drawn: Mapping[sp.Symbol, np.ndarray]) -> np.ndarray:
            return self.values(expression, keys, drawn)

        observations = self.beliefs.program.observations
        own = dict(zip(map(_statement, observations), self.rng.spawn(len(observations)), strict=True))

        def one(o: ObservationTerms, at: Callable[[sp.Expr], np.ndarray]) -> np.ndarray:
            return predictive_of(self.beliefs, o, o.axes).draw(at, own[_statement(o)] if self.apart else self.rng)

        return Ancestral(self.beliefs.program, values, one)


def row_by_row(beliefs: Beliefs, count: int, rng: np.random.Generator, apart: bool = False) -> Draws:
    """Draws of each row on its own: O(rows)."""
    marginals = beliefs.marginals
    component = rng.choice(len(beliefs.weights), size=(count, beliefs.count), p=beliefs.weights)
    if beliefs.rough:  # a draw of every component would take the memory of hundreds
        chosen = jax.tree.map(lambda a: a[component, np.arange(beliefs.count)], marginals)
        normals = jnp.asarray(rng.standard_normal((1, *chosen.mean.shape)), marginals.mean.dtype)
        return _one_each(beliefs, chosen.at(beliefs.program, normals)[0], rng, apart)
    normals = jnp.asarray(rng.standard_normal((count, *marginals.mean.shape)))
    return Draws(beliefs, marginals.at(beliefs.program, normals), component, rng, apart)


def _one_each(
    beliefs: Beliefs, latents: Float[Array, "S rows latents"], rng: np.random.Generator, apart: bool
) -> Draws:
    """Draws that are what they are, whatever component they are from."""
    return Draws(beliefs, latents[:, None], np.zeros(latents.shape[:2], int), rng, apart)


@dataclass(frozen=True, eq=False)
class Together:
    """The latents at all rows of a prediction, under one Gaussian or a mixture of some: O(rows^3) once."""

    beliefs: Beliefs

    @cached_property
    def blocks(self) -> list[Block]:
        """The covariances. Raises GpdslError for too many rows."""
        assert self.beliefs.blocks is not None
        return self.beliefs.blocks()

    @cached_property
    def _roots(self) -> list[list[np.ndarray]]:
        """Of each block, for each component."""
        return [[block.root(k) for k in range(len(self.beliefs.weights))] for block in self.blocks]

    def draws(self, count: int, rng: np.random.Generator) -> Draws:
        """Draws of all rows together."""
        beliefs, program = self.beliefs, self.beliefs.program
        # A draw of fields is one of all rows, and nothing else joins them.
        if beliefs.marginals.together or not program.latents:
            return row_by_row(beliefs, count, rng, apart=True)
        if beliefs.functions is not None:
            drawn = jnp.asarray(beliefs.functions(count, rng), beliefs.marginals.mean.dtype)
            return _one_each(beliefs, drawn, rng, apart=True)
        try:
            pairs = list(zip(self.blocks, self._roots, strict=True))
        except TooManyRows as refused:
            if beliefs.drawn is None:
                raise
            try:
                drawn = jnp.asarray(beliefs.drawn(count, rng), beliefs.marginals.mean.dtype)
            except GpdslError:  # of these latents no function is a draw
                raise refused from None
            return _one_each(beliefs, drawn, rng, apart=True)
        component = rng.choice(len(beliefs.weights), size=count, p=beliefs.weights)
        basis = basis_columns(program)
        latents = np.repeat(np.asarray(beliefs.marginals.mean[None, :, :, basis], float), count, axis=0)
        for block, roots in pairs:
            normals = rng.standard_normal((count, max(root.shape[1] for root in roots)))
            moved = np.stack([normals[:, : root.shape[1]] @ root.T for root in roots], axis=1)
            apart = moved.reshape(*moved.shape[:2], len(block.columns), beliefs.count)
            latents[..., list(block.columns)] += np.swapaxes(apart, 2, 3)
        at = jnp.asarray(latents, beliefs.marginals.mean.dtype)
        return Draws(beliefs, with_sums(program, at), np.repeat(component[:, None], beliefs.count, axis=1), rng, True)

    def covariance(self, slopes: Float[np.ndarray, "columns rows *axes"]) -> Float[np.ndarray, "rows *axes rows *axes"]:
        """Covariances between all rows and elements of what is linear in the latents, with these slopes."""
        weights = self.beliefs.weights
        columns, rows, *axes = slopes.shape
        if isinstance(self.beliefs.marginals, FieldMarginals):
            return np.tensordot(slopes, slopes, axes=(0, 0))
        apart = slopes.reshape(columns, rows, math.prod(axes))
        basis = basis_columns(self.beliefs.program)
        means = np.einsum("cne,knc->kne", apart, np.asarray(self.beliefs.marginals.mean[:, :, basis], float))
        centred = means - np.tensordot(weights, means, axes=1)
        if self.beliefs.functions is not None:  # blocks say how components differ, too
            weights, centred = np.ones(1), np.zeros_like(centred[:1])
        total = np.einsum("k,kne,kmf->nemf", weights, centred, centred)
        for block in self.blocks:
            own = apart[list(block.columns)]
            among = np.tensordot(weights, np.asarray(block.covariance, float), axes=1)
            total += np.einsum("cne,cndm,dmf->nemf", own, among, own, optimize=True)
        return total.reshape(rows, *axes, rows, *axes)


def _statement(o: ObservationTerms) -> tuple:
    """What tells statements apart."""
    return o.outputs, o.positions


# Moments and quantiles of outputs: by the law left when the outputs that it reads are integrated out, or by draws.

Keys = tuple[str, ...]


def law_of_output(beliefs: Beliefs, o: ObservationTerms, keys: Keys) -> Predictive | Warped | ByFormula | None:
    """The predictive distribution of a statement; None where what it reads of other outputs leaves no formula."""
    known = marginal(beliefs.program.translator, beliefs.program.observations, o)
    return None if known is None else predictive_of(beliefs, known, keys)


def output_mean(beliefs: Beliefs, o: ObservationTerms, keys: Keys) -> np.ndarray:
    """The mean, or the probabilities of levels."""
    law = law_of_output(beliefs, o, keys)
    return _draws(beliefs, o).mean(axis=0) if law is None else law.mean()


def output_variance(beliefs: Beliefs, o: ObservationTerms, keys: Keys) -> np.ndarray:
    """The variance, or that of the indicators of levels."""
    law = law_of_output(beliefs, o, keys)
    return _draws(beliefs, o).var(axis=0) if law is None else law.variance()


def output_quantile(beliefs: Beliefs, p: float, known: dict[Any, Any], o: ObservationTerms, keys: Keys) -> np.ndarray:
    """One quantile, by the law of the statement that is `known`, or will be for the next one."""
    if id(o) not in known:
        known[id(o)] = law_of_output(beliefs, o, keys)
    law = known[id(o)]
    found: np.ndarray = np.quantile(_draws(beliefs, o), p, axis=0) if law is None else law.quantile(p)
    return found


def _draws(beliefs: Beliefs, o: ObservationTerms) -> np.ndarray:
    """Many draws of an output that reads others, always the same ones."""
    return row_by_row(beliefs, DRAWS, np.random.default_rng(beliefs.seed)).output(o)


# Covariances between rows of what is linear in the latents: exact, for the Gaussian or the mixture that q is.


class NotLinearError(Exception):
    """Why something is not linear in the latents with normal noise."""


def covariances(together: Together, name: str) -> Float[np.ndarray, "rows *axes rows *axes"]:
    """Of a latent, a let or an output. Raises GpdslError where that is not linear in the latents."""
    beliefs = together.beliefs
    try:
        if not is_output(beliefs, name):
            return together.covariance(of_quantity(beliefs, name, partial(slopes_of, beliefs)))
        found = together.covariance(of_output(beliefs, name, partial(_mean_slopes, beliefs)))
        noise = of_output(beliefs, name, partial(_noise, beliefs))
    except NotLinearError as problem:
        raise GpdslError(
            f"covariance of `{name}`: {problem}, so that there is no formula; "
            f"np.cov(prediction.draws({name!r}, 4000).T) estimates it"
        ) from problem
    return found + np.diag(noise.ravel()).reshape(found.shape)


def slopes_of(beliefs: Beliefs, expression: sp.Expr, keys: Keys) -> Float[np.ndarray, "columns rows *keys"]:
    """Slopes of an expression in all that is read of the latents; of fields in the columns of their root."""
    program, marginals = beliefs.program, beliefs.marginals
    _verify_linear(program.translator, expression)
    fields = marginals.root if isinstance(marginals, FieldMarginals) else None
    columns = np.eye(len(basis_columns(program))) if fields is None else np.asarray(fields).T
    at = jnp.asarray(np.pad(columns, ((1, 0), (0, 0)))[:, None, None], marginals.mean.dtype)
    at, every = with_sums(program, at) if fields is None else at, np.zeros((len(at), beliefs.count), int)
    values = np.asarray(Draws(beliefs, at, every, np.random.default_rng()).values(expression, keys), float)
    return values[1:] - values[0]  # of what is linear


def _verify_linear(translator: Translator, expression: sp.Expr) -> None:
    """Raise NotLinearError for what is not linear in the latents, or not plainly so."""
    if has_external(translator, expression):
        raise NotLinearError("it calls an opaque function")
    read = [symbol for symbol in expression.free_symbols if latents_in(translator, symbol)]
    names = {translator.references[symbol].name for symbol in read}
    kept = [each for name, each in translator.reduced.items() if name in names]
    bent = any(latents_in(translator, sp.diff(expression, symbol)) for symbol in read)
    if bent or jumps(expression, read) or any(each.operator not in {"sum", "mean"} for each in kept):
        raise NotLinearError("it is not linear in the latents")
    for each in kept:
        _verify_linear(translator, each.body)


def _normal(beliefs: Beliefs, o: ObservationTerms) -> dict[str, sp.Expr]:
    """The arguments of a statement whose noise is normal and the same whatever the latents."""
    program = beliefs.program
    known = marginal(program.translator, program.observations, o)
    if known is None or known.law is None or known.warp is not None:
        raise NotLinearError("it is not a latent with normal noise")
    if known.law.name != "Normal":
        raise NotLinearError(f"its noise is not one number, and normal, but {known.law.name}")
    if latents_in(program.translator, known.law.arguments["sd"]):
        raise NotLinearError("its noise depends on the latents")
    return dict(known.law.arguments)


def _mean_slopes(beliefs: Beliefs, o: ObservationTerms, keys: Keys) -> Float[np.ndarray, "columns rows *keys"]:
    found = slopes_of(beliefs, _normal(beliefs, o)["mean"], keys)
    return np.broadcast_to(found, (*found.shape[:2], *sizes_of(beliefs, keys)))


def _noise(beliefs: Beliefs, o: ObservationTerms, keys: Keys) -> Float[np.ndarray, "rows *keys"]:
    # A variance that depends on no latent, one for all rows where it is the same.
    variance = np.asarray(mean_of(beliefs, _normal(beliefs, o)["sd"] ** 2, keys), float)
    return np.broadcast_to(variance, (beliefs.count, *sizes_of(beliefs, keys)))


# Distribution functions of latents and outputs, [rows, *axes], where they have formulas.


class NoLawError(Exception):
    """There is no distribution function."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Those at some rows; what they are made of is computed once."""

    beliefs: Beliefs
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def beyond(self, name: str, at: np.ndarray, operator: str) -> np.ndarray | None:
        """P(name < at), or by another sign, [rows, *axes]; None where there is no formula."""
        declared = self.beliefs.program.declarations
        try:
            if name in declared.outputs:
                return of_output(self.beliefs, name, partial(self._of_output, at, operator))
            if name in declared.lets:
                places = np.ndindex(at.shape[1:])
                return of_quantity(self.beliefs, name, partial(self._of_let, at, places, operator))
        except NoLawError:
            return None
        means, sds = self._once(name, lambda: of_quantity(self.beliefs, name, self._moments))
        return self._normal(means, sds, at, operator[0] == ">")

    @property
    def nodes(self) -> int:
        """How many conditional distributions those so far have been averages of."""
        return max(each.nodes for each in self.kept.values() if isinstance(each, Predictive | Warped | ByFormula))

    def law(self, o: ObservationTerms, keys: Keys) -> Predictive | Warped | ByFormula | None:
        """That of a statement: see `law_of_output`."""
        return self._once((o.outputs, o.positions), lambda: law_of_output(self.beliefs, o, keys))  # type: ignore[no-any-return]

    def _of_output(self, at: np.ndarray, operator: str, o: ObservationTerms, keys: Keys) -> np.ndarray:
        law = self.law(o, keys)
        fits, sides = len(o.positions) == at.ndim - 1, {"above": operator[0] == ">", "reached": operator[-1] == "="}
        found = law.share(at[picks(o.positions)], **sides) if law is not None and fits else None
        if found is None:
            raise NoLawError
        return found

    def _of_let(
        self, at: np.ndarray, places: Iterator[tuple[int, ...]], operator: str, expression: sp.Expr, keys: Keys
    ) -> np.ndarray:
        """Of a function of one latent that is known to rise, or to fall: where it reaches the value, of the latent."""
        own = at if len(keys) == at.ndim - 1 else np.moveaxis(at, 0, -1)[next(places)]
        known = self._once((expression, keys), lambda: monotone_of(self.beliefs, expression, keys))
        if known is None:
            raise NoLawError
        reached = where_reached(known.function, own, rising=known.rising)
        return self._normal(known.mean, known.sd, reached, (operator[0] == ">") == known.rising)

    def _normal(self, means: np.ndarray, sds: np.ndarray, at: np.ndarray, above: bool) -> np.ndarray:
        """The share of the mixture of normals [components, rows, *axes] on a side of values [rows, *axes]."""
        with np.errstate(divide="ignore"):  # in a pass through layers, a latent may be what it is
            away = (at - means) / sds
        return np.tensordot(self.beliefs.weights, ndtr(-away if above else away), axes=1)

    def _moments(self, expression: sp.Expr, keys: Keys) -> np.ndarray:
        centre = sp.Dummy("centre", real=True)
        means = per_component(self.beliefs, expression, keys, {})
        spread = per_component(self.beliefs, (expression - centre) ** 2, keys, {centre: means})
        return np.stack([np.asarray(means), np.sqrt(np.asarray(spread))])

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = compute()
        return self.kept[key]


def falls_below(prediction: Prediction, name: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """P(Y < y) and P(Y <= y) of an output at values [rows, *axes] of the data; None where there is no formula."""
    at, total = prediction.standardised.into(name, values), np.zeros((2, *values.shape))
    for weight, each in prediction.weighted:
        shares = Shares(each.beliefs)
        with precision(prediction.dtype):
            found = [shares.beyond(name, at, operator) for operator in ("<", "<=")]
        if found[0] is None or found[1] is None:
            return None
        total += weight * np.stack([found[0], found[1]])
    return total[0], total[1]
