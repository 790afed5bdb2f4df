"""What the diagnosis does not look at is said, with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.mcmc.chains import ALONE, Agreement, told
from gpdsl.results.criticism import findings
from gpdsl.results.criticism import skipped as module
from gpdsl.results.criticism.finding import SKIPPED
from gpdsl.results.criticism.findings import LOOKS, Look

X = np.linspace(0, 6, 20)
DATA = {"x": X, "y": np.sin(X)}
TEXT = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n"


def said(fit: gpdsl.Fit) -> list[str]:
    return [each.said for each in fit.diagnose() if each.name == SKIPPED]


def test_variables_of_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = gpdsl.compile(TEXT + "row e ~ Normal(0, 0.5)\ny ~ StudentT(4, f + e, 0.1)").fit(DATA)
    (found,) = said(fit)
    assert found == "evidence for latents, what is known of latents, as rows have variables of their own"
    assert not any(each.doubtful for each in fit.diagnose() if each.name == SKIPPED)
    monkeypatch.setattr(findings, "LOOKS", {name: Look(lambda *_: ()) for name in LOOKS})
    assert found in [each.said for each in fit.diagnose(DATA) if each.name == SKIPPED]


def test_a_fit_of_which_all_is_looked_at_says_nothing() -> None:
    fit = gpdsl.compile(TEXT + "y ~ Normal(f, 0.2)").fit(DATA)
    assert not said(fit) and "not looked at" not in str(fit.diagnose())


def test_every_reason_has_words_and_belongs_to_a_look() -> None:
    assert set(module.LOOKED) <= set(LOOKS)
    assert {why for each in module.LOOKED.values() for why in each} == set(module.WORDS)


@pytest.mark.parametrize("why", [None, *module.WORDS])
def test_every_reason_is_told_of_the_fits_that_have_it(why: str | None) -> None:
    """With the looks that it keeps from finding anything, and no others; nothing of looks that found something."""
    program = SimpleNamespace(
        inner={"h"} if why == "layers" else set(),
        fields=("u",) if why == "fields" else (),
        groups=[SimpleNamespace(per_row=False), SimpleNamespace(per_row=why == "row variables")],
        opaque=("solve",) if why == "opaque functions" else (),
    )
    fit: Any = SimpleNamespace(
        program=program,
        settings=object() if why == "settings" else None,
        options=SimpleNamespace(drawn=why == "draws"),
        weights=np.ones(2 if why == "mixture" else 1),
    )
    looks = [look for look, reasons in module.LOOKED.items() if why in reasons]
    found = list(module.skipped(fit, list(LOOKS)))
    assert [each.said for each in found] == ([f"{', '.join(looks)}, as {module.WORDS[why]}"] if why else [])
    assert not list(module.skipped(fit, [look for look in LOOKS if look not in looks]))


@pytest.mark.parametrize("count", [1, 4])
def test_one_chain_is_told_that_it_cannot_tell(count: int) -> None:
    chains: Any = SimpleNamespace(shape=(count, 500), divergences=0, ladder=None, sliced=False, images=1)
    about, doubts = told(chains, Agreement(1.001, 900.0, 800.0))
    assert (ALONE in doubts) is (count == 1) and ("R-hat of its halves at most 1.001" in about) is (count == 1)


def test_what_cannot_be_looked_at_is_no_matter_of_cost() -> None:
    """Of an exact fit q is the posterior; what rows with variables keep from being looked at has that reason."""
    exact = gpdsl.compile(TEXT + "y ~ Normal(f, 0.2)").fit(DATA)
    assert "q against the posterior" not in exact.summary()
    assert exact.inspection.left == ("data drawn anew", "rows left out")
    assert exact.summary().count("left for fit.diagnose(data): data drawn anew, rows left out") == 1
    rows = gpdsl.compile(TEXT + "row e ~ Normal(0, 0.5)\ny ~ StudentT(4, f + e, 0.1)").fit(DATA)
    assert "; not looked at: evidence for latents, what is known of latents, as rows have variables" in rows.summary()
    assert [str(each).split()[0] for each in rows.diagnose() if each.name == SKIPPED] == ["open"]
