"""Predictive distributions of outputs observed through a `density` of the file, integrated numerically."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp

from gpdsl.errors import GpdslWarning
from gpdsl.results import expectation as ex
from gpdsl.results.integrals import Quantity
from gpdsl.results.nodes import SPREAD_STEPS, joint_weights, nodes_of, weighted_nodes
from gpdsl.results.predictive import LOOKED_AT, Predictive, ValuesOf
from gpdsl.results.quantiles import invert
from gpdsl.symbolic.counts import Curve
from gpdsl.symbolic.density_mass import TOLERANCE
from gpdsl.symbolic.kinks import bends
from gpdsl.symbolic.standard import curve_of, standard_of
from gpdsl.symbolic.terms import Formula

AT_ONCE, KEPT = 2048, 1 << 22
"""Distributions put on a grid together, and numbers that are kept of them for another question."""

STEPS, CLOSE = (8, 4, 1), 1e-7
"""Of evenly spaced nodes of a latent one of so many is tried: where averages over each second of these are as near."""

POINTS, PARTS = 1000, 10
"""About how many values each is computed at, and how many of these take as long as its distribution function."""


@dataclass(frozen=True, eq=False)
class ByFormula:
    """One observation at the rows of `beliefs`, like `Predictive`; each density is normalised numerically.

    That of a registered distribution has a `law`, by which its moments and draws are those it was registered with.
    """

    beliefs: ex.Beliefs
    formula: Formula
    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    law: Predictive | None = None

    def mean(self) -> np.ndarray:
        """Predictive mean."""
        return self._moments[0] if self.law is None else self.law.mean()

    def variance(self) -> np.ndarray:
        """Predictive variance."""
        return self._moments[1] if self.law is None else self.law.variance()

    def quantile(self, p: float) -> np.ndarray:
        """The smallest value whose predictive distribution function reaches `p`."""
        found = []
        for curves, weights in self._curves(whole=True):
            nodes = len(weights)

            def mixture(y: np.ndarray, curves: Curve = curves, weights: np.ndarray = weights) -> np.ndarray:
                return curves.cdf(np.repeat(y, nodes)).reshape(-1, nodes) @ weights  # noqa: B023

            ends = curves.quantile(np.asarray(p)).reshape(-1, nodes)
            low, high = ends.min(axis=1), ends.max(axis=1)
            widen = 0.0 if curves.discrete else 1e-9 * (1 + np.abs(high - low))
            found.append(invert(mixture, p, low - widen, high + widen, discrete=curves.discrete))
        return np.concatenate(found).reshape(self.beliefs.count, *self.sizes)

    def share(self, y: np.ndarray, *, above: bool, reached: bool) -> np.ndarray | None:
        """P(Y < y) or P(Y > y), or also Y = y where `reached`, for y [rows, *keys]; None of one setting of many."""
        if self.beliefs.coarse:
            return None
        at = np.broadcast_to(np.where(np.isnan(y), 0.0, y), (self.beliefs.count, *self.sizes)).reshape(-1)
        found, first = [], 0
        for curves, weights in self._curves(whole=True):
            nodes = len(weights)
            own = at[first : first + len(curves.log_mass) // nodes]
            first += len(own)
            own = np.ceil(own) - 1.0 if curves.discrete and above == reached else own
            found.append(curves.cdf(np.repeat(own, nodes)).reshape(-1, nodes) @ weights)
        below = np.clip(np.concatenate(found), 0.0, 1.0).reshape(self.beliefs.count, *self.sizes)
        return 1.0 - below if above else below

    @property
    def nodes(self) -> int:
        """How many values the distribution function is an average of; few where its parts are known already."""
        if True in self._kept:
            return PARTS * max(len(weights) for _, weights in self._kept[True])
        return POINTS * self._at_nodes(True)[1].size

    def draw(self, values: ValuesOf, generator: np.random.Generator) -> np.ndarray:
        """Draws [count, rows, *keys], where `values` gives an expression at drawn latents."""
        if self.law is not None:
            return self.law.draw(values, generator)
        leaves = {symbol: np.asarray(values(symbol)) for symbol in self._symbols()}
        shape = np.broadcast_shapes(*(each.shape for each in leaves.values()), (1, self.beliefs.count, *self.sizes))
        flat = {symbol: np.broadcast_to(each, shape).reshape(-1) for symbol, each in leaves.items()}
        uniform = generator.random(shape).reshape(shape[0], -1)

        def of(first: int, size: int, chosen: np.ndarray) -> np.ndarray:
            return self._curve({s: each[first : first + size] for s, each in flat.items()}, size).quantile(chosen)

        if shape[0] > 1 and all(np.all(each == each[:1]) for each in leaves.values()):  # one for all draws of a row
            return np.stack([of(at, 1, own) for at, own in enumerate(uniform.T)], axis=1).reshape(shape)
        parts = {at: uniform.ravel()[at : at + AT_ONCE] for at in range(0, uniform.size, AT_ONCE)}
        return np.concatenate([of(at, len(part), part) for at, part in parts.items()]).reshape(shape)

    @functools.cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, variances = [], []
        for curves, weights in self._curves():
            mean, variance = (each.reshape(-1, len(weights)) for each in curves.moments())
            centre = mean @ weights
            means.append(centre)
            variances.append((variance + (mean - centre[:, None]) ** 2) @ weights)
        shape = (self.beliefs.count, *self.sizes)
        return np.concatenate(means).reshape(shape), np.concatenate(variances).reshape(shape)

    def _symbols(self) -> list[sp.Symbol]:
        symbols = self.formula.log_density.free_symbols - {self.formula.symbol}
        return sorted(symbols, key=lambda each: each.name)

    @property
    def _count(self) -> int:
        return self.beliefs.count * int(np.prod(self.sizes))

    def _at_nodes(self, whole: bool) -> tuple[dict[sp.Symbol, np.ndarray], np.ndarray]:
        """What the density reads, [elements, S, K], and the nodes' weights [S, K].

        Where a jump of the density passes by, the `whole` distribution bends along the latents, and has steps where the
        density is narrow beside them; moments do not. Of what is moved by latents many nodes cost nothing.
        """
        log_density, beliefs = self.formula.log_density, self.beliefs
        named, quantity = dict(enumerate(self._symbols())), Quantity(beliefs, log_density, self.keys)
        even = len(quantity.integrand.arguments) == 1 and (not beliefs.rough or quantity.is_steep(ex.GENTLE))
        even = even or (whole and (bends(log_density, (self.formula.symbol,)) or self._is_moved(quantity.latents)))
        asked = {str(place): symbol for place, symbol in named.items()}
        values, weights = (nodes_of if even else weighted_nodes)(beliefs, asked, self.keys)
        joint = joint_weights(weights, beliefs)
        full = (np.broadcast_to(np.asarray(each), (*each.shape[:3], *self.sizes)) for each in values.values())
        flat = (np.moveaxis(each.reshape(*joint.shape, self._count), -1, 0) for each in full)
        return dict(zip(named.values(), flat, strict=True)), joint

    def _is_moved(self, latents: Collection[sp.Symbol]) -> bool:
        standard = standard_of(self.formula.log_density, self.formula.symbol, self.formula.kind)
        return standard is not None and standard.formula.free_symbols.isdisjoint(latents)

    def _curves(self, *, whole: bool = False) -> Iterator[tuple[Curve, np.ndarray]]:
        """The conditional distributions at the nodes of the latents, some rows at a time, and the nodes' weights."""
        if whole in self._kept:
            yield from self._kept[whole]
            return
        flat, joint = self._at_nodes(whole)
        steps, first, doubt = list(STEPS) if len(joint) == SPREAD_STEPS + 1 else [1], 0, []
        kept: list[tuple[Curve, np.ndarray]] = []
        while first < self._count:
            weights = joint[:: steps[0]] / joint[:: steps[0]].sum()
            rows = slice(first, min(first + max(1, AT_ONCE // weights.size), self._count))
            part = {symbol: each[rows, :: steps[0]].reshape(-1) for symbol, each in flat.items()}
            found = self._curve(part, (rows.stop - first) * weights.size)
            if len(steps) > 1 and not _enough(found, weights):
                del steps[0]
                continue
            first, one = rows.stop, weights.reshape(-1)
            doubt.append(found.doubt.reshape(-1, one.size) @ one)
            kept += [(found, one)] if sum(each.mass.size for each, _ in kept) < KEPT else []
            yield found, one
        self._say(np.concatenate(doubt))
        if sum(len(each.log_mass) // one.size for each, one in kept) == self._count:
            self._kept[whole] = kept

    @functools.cached_property
    def _kept(self) -> dict[bool, list[tuple[Curve, np.ndarray]]]:
        return {}

    def _say(self, doubt: np.ndarray) -> None:
        """A warning of distributions [n] whose mass is not one."""
        if some := int(np.count_nonzero(~(doubt < TOLERANCE))):
            warnings.warn(
                f"the density of `{self.formula.symbol}` integrates to one but for {np.max(doubt):.2g} in {some} of "
                f"{len(doubt)} places: it is not normalised, or has narrow tops that were not found; predictions are "
                "of the mass that was found. The terms of a sum are looked at one by one: log(exp(...) + exp(...))",
                GpdslWarning,
                stacklevel=6,
            )

    def _curve(self, leaves: dict[sp.Symbol, np.ndarray], size: int) -> Curve:
        formula = self.formula
        return curve_of(formula.log_density, formula.symbol, leaves, size, formula.kind)


def _enough(curves: Curve, weights: np.ndarray) -> bool:
    """Whether averages over nodes with these weights [S, K] are those over every second of them.

    Of moments, and of the distribution function at some places. Where curves are smooth along the nodes, the error of
    a trapezoidal rule is squared where nodes are halfway closer; where they bend, it is an eighth.
    """
    few = weights.reshape(-1), (weights * (np.arange(len(weights)) % 2 == 0)[:, None]).reshape(-1)
    whole, some = (each / each.sum() for each in few)
    places = np.searchsorted(np.cumsum(weights.sum(axis=1)), LOOKED_AT) * weights.shape[1]

    def apart(values: np.ndarray) -> np.ndarray:
        return np.abs(values.reshape(-1, whole.size) @ (whole - some))

    with np.errstate(all="ignore"):
        middles = curves.quantile(np.asarray(0.5)).reshape(-1, whole.size)
        shares = [apart(curves.cdf(np.repeat(middles[:, place], whole.size))) for place in places]
        mean, variance = curves.moments()
        spread = np.sqrt((variance + mean**2).reshape(-1, whole.size) @ whole)
        errors = [*shares, apart(mean) / spread, apart(variance + mean**2) / spread**2]
    return all(np.nanmax(each, initial=0.0) < CLOSE for each in errors)
