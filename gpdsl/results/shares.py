"""Distribution functions of latents and outputs, [rows, *axes], where they have formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from scipy.special import ndtr

from gpdsl.program.cache import precision
from gpdsl.results import expectation as ex
from gpdsl.results.ancestral import picks
from gpdsl.results.draws import law_of_output
from gpdsl.results.named import of_output, of_quantity
from gpdsl.results.predictive import Predictive
from gpdsl.results.quantiles import monotone_of, where_reached
from gpdsl.results.warp import Warped
from gpdsl.symbolic.terms import ObservationTerms

if TYPE_CHECKING:
    from gpdsl.results.prediction import Prediction

Keys = tuple[str, ...]


class NoLawError(Exception):
    """There is no distribution function."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Those at some rows; what they are made of is computed once."""

    beliefs: ex.Beliefs
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
        return max(each.nodes for each in self.kept.values() if isinstance(each, Predictive | Warped))

    def _of_output(self, at: np.ndarray, operator: str, o: ObservationTerms, keys: Keys) -> np.ndarray:
        law = self._once((o.outputs, o.positions), lambda: law_of_output(self.beliefs, o, keys))
        if not isinstance(law, Predictive | Warped) or len(o.positions) != at.ndim - 1:
            raise NoLawError
        found = law.share(at[picks(o.positions)], above=operator[0] == ">", reached=operator[-1] == "=")
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
        means = ex.per_component(self.beliefs, expression, keys, {})
        spread = ex.per_component(self.beliefs, (expression - centre) ** 2, keys, {centre: means})
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
