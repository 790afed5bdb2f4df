"""Moments and quantiles of outputs: by the law left when the outputs that it reads are integrated out, or by draws."""

from __future__ import annotations

import numpy as np

from gpdsl.results.ancestral import DRAWS
from gpdsl.results.draws import predictive_of, row_by_row
from gpdsl.results.expectation import Beliefs
from gpdsl.results.formula import ByFormula
from gpdsl.results.predictive import Predictive
from gpdsl.results.warp import Warped
from gpdsl.symbolic.sources import marginal
from gpdsl.symbolic.terms import ObservationTerms

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


def output_quantile(beliefs: Beliefs, p: float, o: ObservationTerms, keys: Keys) -> np.ndarray:
    """One quantile."""
    law = law_of_output(beliefs, o, keys)
    return np.quantile(_draws(beliefs, o), p, axis=0) if law is None else law.quantile(p)


def _draws(beliefs: Beliefs, o: ObservationTerms) -> np.ndarray:
    """Many draws of an output that reads others, always the same ones."""
    return row_by_row(beliefs, DRAWS, np.random.default_rng(beliefs.seed)).output(o)
