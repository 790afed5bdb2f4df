"""Priors of a first model: without them few rows are fitted best by a curve through each, and no noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpdsl.data.looks import Look, output_kind

LOGITS = 2.0
"""How far log odds, or what cutpoints divide, differ, in a model of which nothing is known."""


def spread(target: Look) -> float:
    """How far the latent of an output varies: 1 of one that is standardised, else as far as the data on its scale."""
    kind, known = output_kind(target), target.known
    if kind in ("binary", "label", "ordinal"):
        return LOGITS
    if kind == "real":
        return 1.0
    if kind == "unit":
        scaled = np.log(known) - np.log1p(-known)
    else:
        scaled = np.log(known + 0.5) if kind == "count" else np.log(known)
    return float(np.std(scaled)) or 1.0


@dataclass(frozen=True)
class Weak:
    """The priors that follow from how far a latent varies, each as a declaration of a parameter ends."""

    spread: float

    @property
    def variance(self) -> str:
        """Of one of several functions that add up: from nearly nothing to ten times what there is."""
        return _log_normal(2 * math.log(self.spread) - 1, 1.5)

    @property
    def noise(self) -> str:
        """Of the noise, as a standard deviation: a tenth to all of what there is, less where many rows say so."""
        return _log_normal(math.log(self.spread) - 0.2, 0.8)

    @property
    def effect(self) -> str:
        """Of how far the levels of words differ."""
        return _log_normal(math.log(self.spread) - 1, 1)

    def drift(self, span: float) -> str:
        """Of the time in which steady growth comes to 1, of moments that last `span`; it starts at the span."""
        return _start(span) + _log_normal(math.log(3 * span / self.spread), 1.5)

    @staticmethod
    def turns(span: float) -> str:
        """Of the time in which a trend turns: seldom as short as few moments, seldom longer than all."""
        return _start(span / 3) + _log_normal(math.log(span / 3), 1)


def lengths(columns: int) -> str:
    """Of the length-scales of standardised columns: no shorter than rows are apart, which is more of more columns."""
    return _log_normal(1.5 + math.log(columns) / 4, 1)


def _start(value: float) -> str:
    return f" = {float(f'{value:.2g}'):g}"


def _log_normal(mean: float, sd: float) -> str:
    return f" ~ LogNormal({round(mean, 1) + 0.0:g}, {sd:g})"
