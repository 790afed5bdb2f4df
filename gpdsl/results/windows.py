"""Distributions between two bounds: probabilities and places counted from the nearer tail."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from gpdsl.results.log_tails import LOG_2, Arguments, Array, LogTails, log_difference, tails_of


@dataclass(frozen=True, eq=False)
class Window:
    """A distribution between two bounds, of probability exp(`log_width`).

    Every place is counted from the nearer tail, so that nothing cancels; `right` says that it is the upper one.
    """

    name: str
    arguments: Arguments
    lower: Array
    upper: Array

    @property
    def _tails(self) -> LogTails:
        return tails_of(self.name)

    def log_below(self, y: Array) -> Array:
        """log P(Y <= y), bounds apart."""
        with np.errstate(all="ignore"):
            return self._tails.below(y, self.arguments)

    def log_above(self, y: Array) -> Array:
        """log P(Y > y), bounds apart."""
        with np.errstate(all="ignore"):
            return self._tails.above(y, self.arguments)

    @functools.cached_property
    def under(self) -> Array:
        """log P(Y <= lower)."""
        return self.log_below(self.lower)

    @functools.cached_property
    def over(self) -> Array:
        """log P(Y > upper)."""
        return self.log_above(self.upper)

    @functools.cached_property
    def right(self) -> Array:
        """Whether the whole window lies in the upper tail."""
        return self.under > -LOG_2

    @functools.cached_property
    def log_width(self) -> Array:
        """log P(lower < Y <= upper)."""
        return np.where(self.right, self._fallen(self.lower), self._risen(self.upper))

    def _risen(self, y: Array) -> Array:
        return log_difference(self.log_below(y), self.under)

    def _fallen(self, y: Array) -> Array:
        return log_difference(self.log_above(y), self.over)

    def share(self, y: Array) -> Array:
        """P(Y <= y) given that Y is inside."""
        with np.errstate(all="ignore"):
            fallen, risen = self._fallen(y) - self.log_width, self._risen(y) - self.log_width
            inside = np.where(self.right, -np.expm1(fallen), np.exp(risen))
        return np.clip(inside, 0.0, 1.0)

    def at(self, log_share: Array, log_rest: Array) -> Array:
        """Where that share of the distribution inside lies below, and the rest, 1 - share, above; both logarithms."""
        with np.errstate(all="ignore"):
            left = np.logaddexp(self.under, log_share + self.log_width)
            right = np.logaddexp(self.over, log_rest + self.log_width)
            low = self._tails.at_below(np.minimum(left, 0.0), self.arguments)
            high = self._tails.at_above(np.minimum(right, 0.0), self.arguments)
        return np.clip(np.where(left < right, low, high), self.lower, self.upper)
