"""A short form of `make accuracy`: nothing that is not sampled is off by more than 1e-6."""

from __future__ import annotations

import numpy as np
import pytest

from gpdsl.language.vocabulary import DISTRIBUTIONS, KERNELS
from tests import accuracy


@pytest.mark.parametrize("part", ["distributions", "kernels"])
def test_formulas(part: str) -> None:
    with accuracy.jax.enable_x64(True):
        rows = list(getattr(accuracy, part)(2, np.random.default_rng(3)))
    assert [row for row in rows if not row[2] < accuracy.BOUND] == []


def test_lets() -> None:
    rows = list(accuracy.lets(list(accuracy.LETS)))
    assert [row for row in rows if not row[2] < accuracy.BOUND] == []


def test_no_one_is_forgotten() -> None:
    listed = {*accuracy.PLAIN, "Categorical", "Ordinal", "Mixture", "Truncated", "Censored"}
    elsewhere = {
        "MultivariateNormal",
        "Dirichlet",
        "LKJ",
    }  # tests/symbolic/test_laws.py, tests/results/test_composed.py
    assert set(DISTRIBUTIONS) == listed | elsewhere
    composed = {"ArcCosine", "SpectralMixture", "Coregion", "ChangePoint", "Patch"}  # tests/kernels/test_written.py
    assert set(KERNELS) == set(accuracy.REFERENCES) | composed
