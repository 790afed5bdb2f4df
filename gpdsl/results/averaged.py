"""Predictions averaged over settings of the learnt parameters, each with a posterior of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import sympy as sp
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from gpdsl.data.bound import Standardised
from gpdsl.errors import GpdslWarning
from gpdsl.inference.posteriors.posterior import by_parts
from gpdsl.language.calls import spoken
from gpdsl.program.cache import in_precision
from gpdsl.results.draws import NoLawError, Shares
from gpdsl.results.expectation import Beliefs
from gpdsl.results.named import check_draws, of_output, of_quantity
from gpdsl.results.prediction import Origin, Prediction
from gpdsl.results.predictive import Average, Predictive
from gpdsl.results.quantiles import invert, quantile_over
from gpdsl.results.settings import shared_out
from gpdsl.symbolic.readings import field_quantities
from gpdsl.symbolic.terms import ObservationTerms

PROBITS = (-4.0, -3.0, -2.2, -1.6, -1.1, -0.7, -0.45, -0.2, 0.0, 0.2, 0.45, 0.7, 1.1, 1.6, 2.2, 3.0, 4.0)
"""Where distribution functions without a formula are known, in standard normal deviates around the one asked for."""


SOME, MANY = 16, 4
"""Settings of the most weight, among whose quantiles a search begins; they alone are searched first where all are so
many times as many.
"""

AT_ONCE = 1 << 17
"""Rows times settings of which quantiles are searched for together: a law of counts has some 400 numbers for each."""

FEW = 0.01
"""Probability of the settings from which most of a mean or variance is not to come: that of `exp(f)` beyond the data,
or of an unseen group, is made by the widest of them, and infinite under many a prior."""

BOUNDED = {"binary", "label", "ordinal", "unit"}

APART = 7919
"""Between the seeds of settings, whose draws have nothing to do with each other."""


@dataclass(frozen=True, eq=False)
class Mixed(Predictive):
    """A law under several settings, whose nodes and components are those of all of them, by their shares."""

    each: tuple[Predictive, ...]
    shares: Float[np.ndarray, " settings"]

    @property
    def weights(self) -> np.ndarray:
        """Of the components of all."""
        return np.concatenate([share * one.weights for share, one in zip(self.shares, self.each, strict=True)])

    @property
    def elements(self) -> tuple[Mixed, ...]:
        """The elements of a multivariate output, each on its own."""
        return tuple(self._of(one) for one in zip(*(each.elements for each in self.each), strict=True))

    def _of(self, each: Sequence[Predictive]) -> Mixed:
        return replace(self, law=each[0].law, each=tuple(each))

    def mean(self) -> np.ndarray:
        """Mean, or the probabilities of the levels."""
        return np.tensordot(self.shares, np.stack([each.mean() for each in self.each]), axes=1)

    @cached_property
    def chances(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a Bernoulli output, how probable 1 is, and 0."""
        one, none = np.tensordot(self.shares, np.stack([each.chances for each in self.each]), axes=1)
        return one, none

    @cached_property
    def of_log(self) -> Mixed | None:
        """The logarithm of a log-normal output, which is normal."""
        logarithms = [each.of_log for each in self.each if each.of_log is not None]
        return self._of(logarithms) if logarithms else None

    @cached_property
    def normal(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Means and variances of the components of all."""
        known = [each.normal for each in self.each if each.normal is not None]
        if len(known) < len(self.each):
            return None
        means, variances = (np.concatenate([np.asarray(one) for one in part]) for part in zip(*known, strict=True))
        return means, variances

    @cached_property
    def average(self) -> Average:
        """Over the nodes of all."""
        each = [one.average for one in self.each]
        leaves = zip(*(one.law.leaves() for one in each), strict=True)
        law = each[0].law.filled(np.concatenate(own) for own in leaves)
        return Average(law, np.concatenate([s * one.weights for s, one in zip(self.shares, each, strict=True)]))

    @cached_property
    def around(self) -> tuple[np.ndarray, np.ndarray]:
        """Where a search begins."""
        means, spreads = np.stack([each.around for each in self.each], axis=1)
        centre = np.tensordot(self.shares, means, axes=1)
        return centre, np.sqrt(np.tensordot(self.shares, spreads**2 + (means - centre) ** 2, axes=1))


@spoken
class Averaged(Prediction):
    """A prediction whose mean, variance, quantiles, draws and probabilities are those of a mixture over settings."""

    def __init__(
        self,
        weights: Float[np.ndarray, " settings"],
        each: Sequence[Beliefs],
        dtype: str,
        standardised: Standardised,
        origin: Origin | None,
    ) -> None:
        super().__init__(each[int(np.argmax(weights))], dtype, standardised, origin)
        self.weights, self.each = weights, each

    @cached_property
    def settings(self) -> list[Prediction]:
        """What each setting says."""
        return [Prediction(beliefs, self.dtype, self.standardised, self.origin) for beliefs in self.each]

    @property
    def weighted(self) -> list[tuple[float, Prediction]]:
        """What each setting says, with its weight."""
        return list(zip(self.weights.tolist(), self.settings, strict=True))

    def _means(self, name: str) -> Float[np.ndarray, "settings *shape"]:
        return np.stack([each.mean(name) for each in self.settings])

    def first_rows(self, rows: slice) -> Prediction:
        """The same of some rows."""
        return self._some(rows, None if self.origin is None else self.origin.first_rows(rows))

    def _some(self, rows: slice, origin: Origin | None = None) -> Averaged:
        each = [beliefs.part(rows) for beliefs in self.each]
        return Averaged(self.weights, each, self.dtype, self.standardised, origin)

    @in_precision
    def mean(self, name: str) -> np.ndarray:
        """Posterior (predictive) mean; probabilities for a label output.

        With a warning where it comes from few settings: see `FEW`.
        """
        return self._average(name, "mean", self._means(name))

    @in_precision
    def variance(self, name: str) -> np.ndarray:
        """Posterior (predictive) variance: within settings, and between them; with a warning as that of `mean`."""
        means = self._means(name)
        mean = np.tensordot(self.weights, means, axes=1)
        if name in self._declarations.outputs and self._declarations.outputs[name].label is not None:
            return mean * (1.0 - mean)
        within = np.stack([each.variance(name) for each in self.settings])
        return self._average(name, "variance", within + (means - mean) ** 2)

    def _average(self, name: str, what: str, parts: Float[np.ndarray, "settings *shape"]) -> np.ndarray:
        found: np.ndarray = np.tensordot(self.weights, parts, axes=1)
        kinds = [each.kind for each in self._declarations.outputs.values() if each.name == name]
        if not {*kinds} & BOUNDED:
            order = np.argsort(-parts, axis=0)
            weights = self.weights[order]
            most = np.where(np.cumsum(weights, axis=0) <= FEW, weights * np.take_along_axis(parts, order, axis=0), 0.0)
            doubtful = (np.sum(most, axis=0) > 0.5 * found) & (np.min(parts, axis=0) >= 0.0)
            if places := int(np.sum(doubtful)):
                warnings.warn(
                    f"the {what} of `{name}` is not to be relied on in {places} of {found.size} places: most of it is "
                    "that of values of the parameters with 1% of the probability, and it may be infinite; read "
                    "`quantile` or `interval` there, or give what is wide there a tighter prior",
                    GpdslWarning,
                    stacklevel=4,
                )
        return found

    @cached_property
    def _laws(self) -> list[Shares]:
        """The laws of outputs under each setting."""
        return [Shares(replace(beliefs, coarse=True)) for beliefs in self.each]

    @cached_property
    def _mixed(self) -> dict[Any, Mixed | None]:
        """The laws of statements whose quantiles were asked for; None of those without a formula."""
        return {}

    def _of_law(self, probability: float, o: ObservationTerms, keys: tuple[str, ...]) -> np.ndarray:
        """A quantile of a statement."""
        if id(o) not in self._mixed:
            laws = [shares.law(o, keys) for shares in self._laws]
            known = tuple(each for each in laws if isinstance(each, Predictive))
            every = Mixed(known[0].beliefs, known[0].law, keys, known[0].sizes, known, self.weights) if known else None
            self._mixed[id(o)] = every if len(known) == len(laws) else None
        if (law := self._mixed[id(o)]) is None:
            raise NoLawError
        return law.quantile(probability)

    @in_precision
    def _quantiles(self, name: str, several: Sequence[float] | np.ndarray) -> np.ndarray:
        """Quantiles of the mixture, [probabilities, rows, *axes], of some rows at a time: laws hold many numbers."""
        size = max(1, AT_ONCE // len(self.each))
        if self.beliefs.count > size and name not in field_quantities(self._declarations):
            return by_parts(self.beliefs.count, lambda _, rows: self._some(rows)._quantiles(name, several), 1, size)
        return np.stack([self._one_quantile(name, float(p)) for p in several])

    def _of_all(self, name: str, probability: float) -> np.ndarray | None:
        """The quantile of an output by a formula, or of what rises or falls with one latent, of all settings together.

        None of anything else.
        """

        def compute(expression: sp.Expr, keys: tuple[str, ...]) -> np.ndarray:
            found = quantile_over(self.each, self.weights, expression, keys, probability)
            if found is None:
                raise NoLawError
            return found

        try:
            if name in self._declarations.outputs:
                return self.standardised.back(name, of_output(self.beliefs, name, partial(self._of_law, probability)))
            found = self.standardised.back(name, of_quantity(self.beliefs, name, compute))
            return found[0] if name in field_quantities(self._declarations) else found
        except NoLawError:
            return None

    def _one_quantile(self, name: str, probability: float) -> np.ndarray:
        if (known := self._of_all(name, probability)) is not None:
            return known
        some = np.argsort(-self.weights)[:SOME]
        beside = 0.5 if abs(probability - 0.5) > 0.1 else 0.2
        ends, others = np.stack(
            [self.settings[place]._quantiles(name, [probability, beside]) for place in some], axis=1
        )
        low, high = ends.min(axis=0), ends.max(axis=0)
        if len(some) == len(self.weights) and np.array_equal(low, high):
            return low
        scale = np.max(np.abs(ends - others), axis=0)
        rows = name not in field_quantities(self._declarations)
        has_formula = rows and self._laws[some[0]].beyond(name, self.standardised.into(name, high), "<=") is not None
        shares = [
            partial(self._share, law, name) if has_formula else self._below(each, name, probability)
            for law, each in zip(self._laws, self.settings, strict=True)
        ]

        def cdf(y: np.ndarray, places: np.ndarray) -> np.ndarray:
            weights = self.weights[places] / self.weights[places].sum()
            return np.tensordot(weights, np.stack([shares[place](y) for place in places]), axes=1)

        declared = self._declarations.outputs.get(name)
        discrete = declared is not None and declared.kind in {"count", "binary", "ordinal"}
        rough = partial(cdf, places=some) if MANY * len(some) <= len(self.weights) else None
        whole = partial(cdf, places=np.arange(len(self.weights)))
        return invert(whole, probability, low - 0.1 * scale, high + 0.1 * scale, discrete=discrete, rough=rough)

    def _share(self, law: Shares, name: str, y: np.ndarray) -> np.ndarray:
        """The distribution function of a name under one setting, by its formula."""
        return np.asarray(law.beyond(name, self.standardised.into(name, y), "<="))

    def _below(self, each: Prediction, name: str, probability: float) -> Callable[[np.ndarray], np.ndarray]:
        """That of a name without a formula: between quantiles."""
        deviates = ndtri(probability) + np.asarray(PROBITS)
        quantiles = np.asarray(each._quantiles(name, ndtr(deviates)))
        return lambda y: _between(quantiles, deviates, y)

    def error(self, name: str, of: str | float = "mean") -> np.ndarray:
        """Standard error: that of one setting, of the most weight, and of a mean or variance over finitely many draws.

        Weighted settings that are no draws have no such error, and of a quantile there is the former alone. See
        `Prediction.error`.
        """
        own = self.settings[int(np.argmax(self.weights))].error(name, of)
        fit = None if self.origin is None else self.origin.fit
        if fit is None or fit.settings is None or not fit.options.drawn or of not in ("mean", "variance"):
            return own
        each = self._means(name)
        if of == "variance":
            apart = (each - np.tensordot(self.weights, each, axes=1)) ** 2
            each = apart + np.stack([one.variance(name) for one in self.settings])
        spread = np.tensordot(self.weights, (each - np.tensordot(self.weights, each, axes=1)) ** 2, axes=1)
        return np.hypot(own, np.sqrt(spread / min(1.0 / np.sum(self.weights**2), fit.settings.effective)))

    @in_precision
    def sample(self, name: str, count: int, seed: int = 0) -> np.ndarray:
        """`count` draws [count, rows, *axes], each row on its own."""
        return self.over_settings(count, seed, lambda each, number, own: each.sample(name, number, own))

    @in_precision
    def draws(self, name: str, count: int, seed: int = 0) -> np.ndarray:
        """`count` draws [count, rows, *axes] of all rows together: settings as often as their weights say."""
        return self.over_settings(count, seed, lambda each, number, own: each.draws(name, number, own))

    def over_settings(self, count: int, seed: int, draw: Callable[[Prediction, int, int], np.ndarray]) -> np.ndarray:
        """`draw(prediction, count, seed)` of each setting, as often as its weight says, in one order for a seed."""
        seed = check_draws("draws", count, seed, self.beliefs.marginals.mean[0].size)
        numbers, order = shared_out(count, self.weights, np.random.default_rng(seed))
        parts = [
            draw(each, int(number), seed + APART * place)
            for place, (each, number) in enumerate(zip(self.settings, numbers, strict=True))
            if number
        ]
        return np.concatenate(parts)[order]

    def of_each(self, seed: int, draw: Callable[[Prediction, int, int], np.ndarray]) -> np.ndarray:
        """`draw(prediction, 1, seed)` of every setting once, in their order."""
        return np.concatenate([draw(each, 1, seed + APART * place) for place, each in enumerate(self.settings)])

    @in_precision
    def covariance(self, name: str) -> np.ndarray:
        """Posterior covariances between rows: within settings, and between them."""
        means = self._means(name)
        apart = means - np.tensordot(self.weights, means, axes=1)
        flat = apart.reshape(len(apart), -1)
        among = ((flat.T * self.weights) @ flat).reshape(*apart.shape[1:], *apart.shape[1:])
        within = np.stack([each.covariance(name) for each in self.settings])
        return np.tensordot(self.weights, within, axes=1) + among

    @in_precision
    def probability(self, condition: str, *, draws: int = 4096, seed: int = 0, error: bool = False) -> np.ndarray:
        """P(condition) in each row; see `Prediction.probability`."""
        seed = check_draws("probability", draws, seed)
        count, power = max(draws // len(self.settings), 256), 2 if error else 1
        asked = [
            weight * each.probability(condition, draws=count, seed=seed + APART * place, error=error)
            for place, (weight, each) in enumerate(self.weighted)
        ]
        return np.sum(np.stack(asked) ** power, axis=0) ** (1 / power)


def _between(quantiles: np.ndarray, deviates: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A distribution function by its normal deviates, linear between quantiles [levels, ...] and beyond them."""
    place = np.clip(np.sum(quantiles <= y, axis=0), 1, len(deviates) - 1)
    low = np.take_along_axis(quantiles, place[None] - 1, axis=0)[0]
    high = np.take_along_axis(quantiles, place[None], axis=0)[0]
    width = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (y - low) / width, (y >= high).astype(float))
    return ndtr(deviates[place - 1] + share * (deviates[place] - deviates[place - 1]))
