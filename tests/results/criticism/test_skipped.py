"""What the diagnosis does not look at is said, with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.mcmc.chains import ALONE, Agreement, told
from gpdsl.results.criticism import skipped as module
from gpdsl.results.criticism.findings import LOOKS

X = np.linspace(0, 6, 20)
DATA = {"x": X, "y": np.sin(X)}
TEXT = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n"


def said(fit: gpdsl.Fit) -> list[str]:
    return [each.said for each in fit.diagnose() if each.name == module.SKIPPED]


def test_variables_of_rows_are_named() -> None:
    fit = gpdsl.compile(TEXT + "row e ~ Normal(0, 0.5)\ny ~ StudentT(4, f + e, 0.1)").fit(DATA)
    (found,) = said(fit)
    assert found == "evidence for latents, what is known of latents, as rows have variables of their own"
    assert not any(each.doubtful for each in fit.diagnose() if each.name == module.SKIPPED)


def test_a_fit_of_which_all_is_looked_at_says_nothing() -> None:
    fit = gpdsl.compile(TEXT + "y ~ Normal(f, 0.2)").fit(DATA)
    assert not said(fit) and "not looked at" not in str(fit.diagnose())


def test_every_reason_has_words_and_belongs_to_a_look() -> None:
    assert set(module.LOOKED) <= set(LOOKS)
    assert {why for each in module.LOOKED.values() for why in each} == set(module.WORDS)


@pytest.mark.parametrize("count", [1, 4])
def test_one_chain_is_told_that_it_cannot_tell(count: int) -> None:
    chains: Any = SimpleNamespace(shape=(count, 500), divergences=0, ladder=None, sliced=False, images=1)
    about, doubts = told(chains, Agreement(1.001, 900.0, 800.0))
    assert (ALONE in doubts) is (count == 1) and ("R-hat of its halves at most 1.001" in about) is (count == 1)
