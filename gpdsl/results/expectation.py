"""Expectations of any quantity of the model under predictive marginals: closed form, quadrature, or samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Bool, Float

from gpdsl.inference.posteriors.coupled import Block
from gpdsl.inference.posteriors.posterior import ROWS_AT_ONCE, Paths, Posterior, few_sizes, filled_up, parts
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import prior_means
from gpdsl.program.joint import Marginals, with_sums
from gpdsl.program.kept import on_use
from gpdsl.program.program import Program, take_rows
from gpdsl.program.quadrature import Integral, integral_of
from gpdsl.program.rows import Rows, Scope, row_count
from gpdsl.results import integrals
from gpdsl.results.integrals import Quantity
from gpdsl.results.logistic import mean_on_host
from gpdsl.results.series import series_of
from gpdsl.results.simulations import SETS, Simulations
from gpdsl.symbolic.arguments import Integrand
from gpdsl.symbolic.expectations import Product, correlated, has_external, joint_expectation, latents_in, products
from gpdsl.symbolic.gaussian import pull_exponentials

SAMPLES = 2048
"""In sets that are shifted apart, whose scatter tells the error."""

MANY, ROUGH = 16, 16
"""Components of a mixture above which they are samples themselves; nodes along a latent of each, and its samples."""

GENTLE = 1.0
"""The same of `nodes.weighted_nodes`."""

AS_MANY = 256
"""Components that the memory of a part of the rows is meant for."""

CANCELLED = 1e-6
"""Share of what is found, or of its standard deviation, that rounding may take from it."""

FEW, FEW_QUICK = 500, 2048
"""Rows up to which expectations take less time than compiling them well; and where these are of quick functions."""

QUICK = (sp.Add, sp.Mul, sp.Pow, sp.Symbol, sp.Number, sp.exp)
"""What these are made of."""


def values_of(
    paths: Paths, program: Program, rows: Rows, parameters: Mapping[str, Array], compute: Callable[..., Array]
) -> Float[Array, "draws rows latents"]:
    """Drawn functions at rows; `compute` is that of the paths, compiled for the program without sums."""
    count = row_count(rows)
    found = [compute(take_rows(rows, index), *paths.numbers)[:, skip:] for index, skip in parts(count)]
    latents = with_sums(program, jnp.concatenate(found, axis=1))
    return latents if paths.whole else latents + prior_means(program.evaluator, program.groups, parameters, rows, count)


def drawn_by_functions(
    posterior: Posterior, program: Program, rows: Rows, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draws rows latents"]:
    """All latents at rows together. Raises GpdslError for kernels that have no such draws."""
    paths = posterior.drawn_paths(draws, rng, 0)  # one seed for all settings, whose draws of the prior have one program
    compute = jit(partial(paths.compute, program.without_sums()))
    return np.asarray(values_of(paths, program, rows, posterior.numbers[0], compute))


@dataclass(frozen=True)
class Beliefs:
    """Marginals of the latents at some rows, and everything else an expression may read there."""

    program: Program
    parameters: Mapping[str, Array]
    rows: Rows
    marginals: Marginals
    weights: Float[np.ndarray, "K"]
    seed: int = 0
    simulations: Simulations | None = None
    """The evaluations of opaque functions, shared by all parts of the rows; `start` says where this one begins."""
    start: int = 0
    first: int = 0
    """Of the components, the number of the first among those of all passes through layers."""
    blocks: Callable[[], list[Block]] | None = None
    """Works out the covariances of the latents between all rows."""
    functions: Callable[[int, np.random.Generator], Float[np.ndarray, "S rows latents"]] | None = None
    drawn: Callable[[int, np.random.Generator], Float[np.ndarray, "S rows latents"]] | None = None
    """The same for more rows than `blocks` have room for, by functions that are near draws of the posterior."""
    """Draws the latents at all rows together, where rows go through layers."""
    coarse: bool = False
    """Whether nodes that make distribution functions right to `predictive.CLOSE` are enough, as under many settings."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.marginals.rows

    def part(self, index: slice | np.ndarray) -> Beliefs:
        """The beliefs about some of the rows."""
        start = self.start + (index.start or 0) if isinstance(index, slice) else self.start
        return replace(self, rows=take_rows(self.rows, index), marginals=self.marginals.part(index), start=start)

    @property
    def alike(self) -> bool:
        """Whether rows have nothing of their own: without inputs they share their marginals' memory."""
        moments = jax.tree.leaves(self.marginals)
        apart = self.rows.inputs or self.simulations is not None
        return not apart and all(isinstance(a, np.ndarray) and a.strides[1] == 0 for a in moments)

    @property
    def rough(self) -> bool:
        """Whether components are many samples of one posterior, which need no fine quadrature each."""
        return len(self.weights) > MANY

    @property
    def samples(self) -> int:
        """Of each component."""
        return ROUGH if self.rough else SAMPLES

    @property
    def at_once(self) -> int:
        """Rows of which quantities are computed together."""
        return max(1, ROWS_AT_ONCE * AS_MANY // max(AS_MANY, len(self.weights)))

    def sets(self) -> list[Beliefs]:
        """The passes through layers in sets: what is found from each of them alone scatters by their error."""
        sets = []
        for index in np.split(np.arange(len(self.weights)), SETS):
            marginals, weights = jax.tree.map(lambda a, i=index: a[i], self.marginals), self.weights[index]
            sets.append(replace(self, marginals=marginals, weights=weights / weights.sum(), first=int(index[0])))
        return sets

    def folded(self) -> Beliefs:
        """The rows once for each component, one component after the other, with that alone."""
        if len(self.weights) == 1:
            return self
        rows = take_rows(self.rows, np.tile(np.arange(self.count), len(self.weights)))
        marginals = jax.tree.map(lambda a: a.reshape(1, -1, *a.shape[2:]), self.marginals)
        return replace(self, rows=rows, marginals=marginals, weights=np.ones(1))

    def compile(self, key: Hashable, function: Callable[..., Any], few: int = FEW) -> Callable[..., Any]:
        """`function(beliefs, ...)` at these beliefs, compiled once for as many rows and components of the program.

        Equal keys mean equal functions. They read no weights and call nothing opaque: arrays are parameters, rows and
        marginals alone, and what is compiled outlives these beliefs. Of `few` rows it is compiled briefly.
        """
        shell, components = self.shell(), len(self.weights)
        brief = self.count <= FEW or self.count * components <= few
        known = self.program.known_by, key, self.count, components, self.seed
        made = on_use(known, lambda: lambda arrays, *others: function(shell.about(*arrays), *others), brief)
        return partial(made, (self.parameters, self.rows, self.marginals))

    @cached_property
    def filled_up(self) -> Beliefs:
        """The beliefs about these rows and more, the last of them again, up to a number that programs are made for.

        Their marginals are where programs take them from: of many components they are large.
        """
        size = self.count if self.marginals.together else few_sizes(self.count)
        whole = self if size == self.count else self.part(filled_up(self.count, size))
        return replace(whole, marginals=jax.device_put(whole.marginals))

    @cached_property
    def found(self) -> dict[Any, Any]:
        """Expectations that several moments of these beliefs have in common, by expression and axes."""
        return {}

    @cached_property
    def widest(self) -> Float[np.ndarray, "1 1 latents"]:
        """The largest standard deviations of the latents in any row."""
        return np.sqrt(np.max(np.asarray(self.marginals.variance), axis=(0, 1), keepdims=True))

    def shell(self) -> Beliefs:
        """What is compiled knows of these beliefs."""
        shell = replace(
            self, weights=np.full(len(self.weights), np.nan), simulations=None, blocks=None, functions=None, drawn=None
        )
        return shell.about({}, Rows({}, {}, {}), None)

    def about(self, parameters: Mapping[str, Array], rows: Rows, marginals: Any) -> Beliefs:
        """The same beliefs with other (traced) arrays."""
        return replace(self, parameters=parameters, rows=rows, marginals=marginals)

    def scope(self, latents: Array | None = None, externals: Mapping[str, Array] | None = None) -> Scope:
        """Where expressions are evaluated at these latent values."""
        return Scope(self.parameters, self.rows, latents, externals or {})

    def closed(self, expression: sp.Expr, latents: Sequence[sp.Symbol]) -> sp.Expr | None:
        """The expectation of an expression by these latents, in their moments; None where it has no formula."""
        coupled, translator = self.marginals.covariance is not None, self.program.translator
        return joint_expectation(translator, pull_exponentials(expression), latents, coupled, probits=True)

    def integral(
        self, integrand: Integrand, keys: tuple[str, ...], given: Mapping[sp.Symbol, Array] = MappingProxyType({})
    ) -> Integral:
        """The expectation of an integrand, with some symbols given."""
        return integral_of(self.program, integrand, self.marginals, keys, self.scope(), given)


def mean_of(beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...]) -> Float[np.ndarray, "rows *keys"]:
    """E[expression] at every row."""
    if expression.is_Number:
        return np.full((beliefs.count, *(1,) * len(keys)), float(expression))
    exact, open_rows = by_factors(beliefs, expression, keys, "mean") or (None, np.ones(1, bool))
    if exact is not None and not open_rows.any():
        return exact
    means = [_mixed(beliefs, per_component(beliefs, each, keys, {}), keys) for each in terms_of(beliefs, expression)]
    mean = sum(means[1:], start=means[0])
    return mean if exact is None else np.where(open_rows, mean, exact)


def by_factors(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], of: str
) -> tuple[Float[np.ndarray, "rows *keys"], Bool[np.ndarray, "rows *keys"]] | None:
    """The mean or variance from moments of factors, and where terms cancel so far that it is open; None without them.

    Only what would be sampled is found like this, or what correlated latents would have a program of its own for.
    """
    known = _factors_of(beliefs, expression, keys, of)
    if known is None:
        return None
    means, lost = known[0]()
    mean, lost = _mixed(beliefs, means, keys), _mixed(beliefs, lost, keys)
    if of == "mean" and not np.any(lost > CANCELLED * np.abs(mean)):
        return mean, np.zeros(mean.shape, bool)
    within, lost_within = known[1]()
    variance, lost_within = _mixed(beliefs, within + (means - mean) ** 2, keys), _mixed(beliefs, lost_within, keys)
    if of == "variance":
        return variance, lost_within > CANCELLED * np.abs(variance)
    return mean, lost > CANCELLED * np.maximum(np.abs(mean), np.sqrt(np.maximum(variance - lost_within, 0.0)))


def _factors_of(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], of: str
) -> tuple[Callable[[], integrals.Moment], Callable[[], integrals.Moment]] | None:
    """What computes the mean and the variance under every component from factors of one latent each."""
    series = series_of(beliefs, expression, keys)
    if series is not None:
        return series.mean, series.variance
    sampled = is_sampled(beliefs, expression if of == "mean" else expression**2)
    terms = products_of(beliefs, expression) if sampled else None
    if terms is None:
        return None
    each: integrals.Each = lambda expressions, given: each_component(beliefs, expressions, keys, given)  # noqa: E731
    return partial(integrals.separated_mean, terms, each), partial(integrals.separated_variance, terms, each)


def products_of(beliefs: Beliefs, expression: sp.Expr) -> tuple[Product, ...] | None:
    """The expression as a sum of products of functions of independent latents, whose moments are then no samples."""
    translator = beliefs.program.translator
    latents = latents_in(translator, expression)
    if len(latents) < 2 or beliefs.rough or beliefs.marginals.covariance is not None or beliefs.marginals.together:
        return None
    if has_external(translator, expression) or correlated(translator, latents):
        return None
    found = products(expression, latents)
    if found is None or any(is_sampled(beliefs, g) for each in found for g in each.factors.values()):
        return None
    return found


def terms_of(beliefs: Beliefs, expression: sp.Expr) -> tuple[sp.Expr, ...]:
    """Terms of which the means are found one by one: quadratures where the whole expression has to be sampled."""
    terms = sp.Add.make_args(expression)
    apart = len(terms) > 1 and is_sampled(beliefs, expression) and not any(is_sampled(beliefs, each) for each in terms)
    return terms if apart else (expression,)


def is_sampled(beliefs: Beliefs, expression: sp.Expr) -> bool:
    """Whether an expectation is an average over samples, and has their error."""
    return Quantity(beliefs, expression).sampled


def variance_of(beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...]) -> Float[np.ndarray, "rows *keys"]:
    """Var[expression] at every row, as E[(expression - mean)^2] so that nothing cancels."""
    if not latents_in(beliefs.program.translator, expression):
        return np.zeros((beliefs.count, *(1,) * len(keys)))
    exact, open_rows = by_factors(beliefs, expression, keys, "variance") or (None, np.ones(1, bool))
    if exact is not None and not open_rows.any():
        return exact
    mean = mean_of(beliefs, expression, keys)
    centre = sp.Dummy("mean", real=True)
    variance = _mixed(beliefs, per_component(beliefs, (expression - centre) ** 2, keys, {centre: mean}), keys)
    return variance if exact is None else np.where(open_rows, variance, exact)


def _mixed(beliefs: Beliefs, values: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    values = np.broadcast_to(values, (len(beliefs.weights), beliefs.count, *values.shape[values.ndim - len(keys) :]))
    return np.tensordot(beliefs.weights, values, axes=1)


def means_of(
    beliefs: Beliefs, expressions: Sequence[sp.Expr], keys: tuple[str, ...]
) -> list[Float[np.ndarray, "rows *keys"]]:
    """E[expression] of several expressions, compiled together."""
    if any(has_external(beliefs.program.translator, e) for e in expressions):
        return [_mixed(beliefs, per_component(beliefs, e, keys, {}), keys) for e in expressions]
    return [_mixed(beliefs, values, keys) for values in each_component(beliefs, expressions, keys)]


def per_component(
    beliefs: Beliefs, expression: sp.Expr, keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> Float[np.ndarray, "K rows *keys"]:
    """Expectation under each mixture component; `given` are symbols that already have values."""
    quantity = Quantity(beliefs, expression, keys, given)
    if quantity.opaque:
        return np.asarray(quantity.sampled_mean())
    return each_component(beliefs, (expression,), keys, given)[0]


def each_component(
    beliefs: Beliefs,
    expressions: Sequence[sp.Expr],
    keys: tuple[str, ...],
    given: Mapping[sp.Symbol, Any] = MappingProxyType({}),
) -> list[Float[np.ndarray, "K rows *keys"]]:
    """The same of several expressions without opaque functions, compiled together; finely where that is needed."""
    places = {symbol: sp.Symbol(f"given {place}", real=True) for place, symbol in enumerate(given)}
    named = {places[symbol]: values for symbol, values in given.items()}  # equal formulas have equal names
    asked = [each.xreplace(places) for each in expressions]
    found = {} if given else {each: beliefs.found[each, keys] for each in asked if (each, keys) in beliefs.found}
    for each in asked:
        if each not in found and (simple := mean_on_host(Quantity(beliefs, each, keys, named))) is not None:
            found[each] = simple
    rest = [each for each in dict.fromkeys(asked) if each not in found]
    if rest:
        found |= zip(rest, _compiled(beliefs, rest, keys, named), strict=True)
    if not given:
        beliefs.found.update(((each, keys), found[each]) for each in rest)
    return [found[each] for each in asked]


def _compiled(
    beliefs: Beliefs, expressions: Sequence[sp.Expr], keys: tuple[str, ...], given: Mapping[sp.Symbol, Any]
) -> list[Float[np.ndarray, "K rows *keys"]]:
    read = sp.Tuple(*expressions).free_symbols
    symbols = [symbol for symbol in given if symbol in read]  # of those that others read the program knows nothing
    steep = tuple(Quantity(beliefs, each, keys, given).is_steep() for each in expressions)
    count, beliefs = beliefs.count, beliefs.filled_up
    numbers = [_filled_up(each, -1 - len(keys), count, beliefs.count) for each in map(given.__getitem__, symbols)]
    few = FEW_QUICK if all(_is_quick(Quantity(beliefs, each, keys, given)) for each in expressions) else FEW
    for fine in (False, True):

        def compute(known: Beliefs, values: list[Array], fine: bool = fine) -> list[Any]:
            table, asked = dict(zip(symbols, values, strict=True)), zip(expressions, steep, strict=True)
            return [Quantity(known, each, keys, table).expectation(at, fine) for each, at in asked]

        found = beliefs.compile((tuple(expressions), keys, steep, fine), compute, few)(numbers)
        if all(right is None or bool(right) for _, right in found):
            break
    return [np.asarray(values)[:, :count] for values, _ in found]


def _is_quick(quantity: Quantity) -> bool:
    """Whether it is no average over samples, and of functions that take little time."""
    if quantity.beliefs.marginals.together or quantity.sampled:
        return False
    return all(isinstance(each, QUICK) for each in sp.preorder_traversal(quantity.expression))


def _filled_up(values: Any, axis: int, count: int, size: int) -> np.ndarray:
    """Values of rows, which lie along an axis, for more of them; one for all rows stays one."""
    values = np.asarray(values)
    return values if values.shape[axis] < count else np.take(values, filled_up(count, size), axis=axis)
