"""An order of rows that their values alone tell: choices among rows do not depend on how a table was sorted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, UInt64

ODD = 0x9E3779B97F4A7C15
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Constants of SplitMix64 (Steele, Lea and Flood, 2014)."""


def hashes(rows: Float[np.ndarray, "n D"]) -> UInt64[np.ndarray, "n"]:
    """A number for each row that looks random, equal for equal rows: the ranks of its values in their columns, mixed.

    Ranks are the same in any units, and in single precision, but for values that it does not tell apart.
    """
    mixed = np.full(len(rows), ODD, np.uint64)
    for column in np.asarray(rows).T:
        mixed ^= np.unique(column, return_inverse=True)[1].astype(np.uint64)
        mixed += np.uint64(ODD)
        for shift, factor in MIXERS:
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def distinct(rows: Float[np.ndarray, "n D"], most: int | None = None) -> Float[np.ndarray, "at_most_n D"]:
    """The distinct rows, or so many of them, in an order that looks random and that no order of the rows changes."""
    return rows[first_numbers(rows)[:most]]


def first_numbers(rows: Float[np.ndarray, "n D"]) -> Int[np.ndarray, "at_most_n"]:
    """The numbers of the distinct rows, in that order."""
    return np.unique(hashes(rows), return_index=True)[1]
