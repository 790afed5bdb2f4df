"""What the diagnosis does not look at is said, with the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.mcmc.chains import ALONE, Agreement, told
from gpdsl.results.criticism import findings, importance as module, plugged
from gpdsl.results.criticism.finding import SKIPPED
from gpdsl.results.criticism.findings import LOOKS, Look

X = np.linspace(0, 6, 20)
DATA = {"x": X, "y": np.sin(X)}
TEXT = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n"


def said(fit: gpdsl.Fit) -> list[str]:
    return [each.said for each in fit.diagnose() if each.name == SKIPPED]


def test_variables_of_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = gpdsl.compile(TEXT + "row e ~ Normal(0, 0.5)\ny ~ StudentT(4, f + e, 0.1)").fit(DATA)
    found = said(fit)[0]
    assert found == "evidence for latents, what is known of latents, as rows have variables of their own"
    assert not any(each.doubtful for each in fit.diagnose() if each.name == SKIPPED)
    monkeypatch.setattr(findings, "LOOKS", {name: Look(lambda *_: ()) for name in LOOKS})
    assert found in [each.said for each in fit.diagnose(DATA) if each.name == SKIPPED]


def test_a_fit_of_which_all_is_looked_at_says_nothing() -> None:
    fit = gpdsl.compile(TEXT + "y ~ Normal(f, 0.2)").fit(DATA)
    assert "not looked at" not in str(fit.diagnose(DATA))
    assert said(fit) == ["rows left out, data drawn anew, as that takes longer: fit.diagnose(data) does"]


def test_standard_errors_take_an_evaluation_for_each_number_and_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugged, "allows_errors", lambda fit, evaluations: evaluations <= 5)
    fit: Any = SimpleNamespace(options=SimpleNamespace(beta=1, dtype="float64"), settings=None, interrupted=False)
    ended: Any = SimpleNamespace(learnt={"a": np.zeros((2, 2)), "b": np.array(0.3)}, profile=lambda: None)
    with pytest.raises(findings.Unknown, match="they take 6 evaluations of the evidence"):
        plugged.curvature_of(fit, ended)


def test_of_classes_no_statistics_are_compared() -> None:
    text = "input x : real\noutput y : binary\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Bernoulli(probit = f)"
    told = said(gpdsl.compile(text).fit({"x": X, "y": np.sin(X) > 0}))[0]
    assert told.startswith("data drawn anew, as no output is a number: fit.check_predictive(data, statistic) takes")


def test_every_reason_has_words_and_belongs_to_a_look() -> None:
    assert set(module.LOOKED) <= set(LOOKS)
    assert {why for _, reasons in module.LOOKED.values() for why in reasons} == set(module.REASONS)


SAID_NOTHING = {
    "notes",
    "inducing points",
    "rows and levels",
    "values seen",  # in place of rows left out, until these are asked for
    "certainty of classes",
    "mixture against one Gaussian",
}
"""Looks that have something to say of few fits, and of these always."""

QUICK = {"plain", "slopes"}

FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (TEXT + "y ~ Normal(f, 0.2)", {}),
    "Student": (TEXT + "y ~ StudentT(4, f, 0.2)", {}),
    "apart": (TEXT + "latent g(x) ~ GP(0, RBF(2))\ny ~ StudentT(4, f + g, 0.2)", {"posterior": "full"}),
    "mixture": (TEXT + "y ~ StudentT(4, f, 0.2)", {"posterior": "mixture_full(2)"}),
    "diagonal": (TEXT + "y ~ StudentT(4, f, 0.2)", {"posterior": "diagonal"}),
    "tempered": (TEXT + "y ~ StudentT(4, f, 0.2)", {"beta": 0.5}),
    "slopes": (TEXT + "output w : real\ny ~ Normal(f, 0.2)\nw ~ Normal(D(f, x), 0.2)", {}),
    "white": ("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1) + White())\ny ~ StudentT(4, f, 0.2)", {}),
    "rows": (TEXT + "row e ~ Normal(0, 1)\ny ~ StudentT(4, f + e, 0.2)", {}),
    "layers": (
        "input x : real\noutput y : real\nlatent g(x) ~ GP(x, RBF(1))\nlatent f(g) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.2)",
        {"steps": 20},
    ),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in FITS])
@pytest.mark.parametrize("rows", [1, 20])
def test_no_look_is_silent(name: str, rows: int) -> None:
    """Each that a fit gives cause for has found something, or is named, whether it is asked for or not."""
    text, options = FITS[name]
    data = {key: values[:rows] for key, values in {**DATA, "w": np.cos(X)}.items()}
    fit = gpdsl.compile(text).fit(data, **options)
    for found in (fit.diagnose(), fit.diagnose(data)):
        told = " ".join(f"{each.name} {each.said}" for each in found)
        told += " data drawn anew" * ("mean of y" in told) + " rows left out" * ("calibration of y" in told)
        told += " correlation between latents" * (name != "apart")
        told += " q against the posterior" * bool(fit.choice.exact)
        assert [look for look in LOOKS if look not in SAID_NOTHING and look not in told] == []


def test_reasons_are_told_once_each() -> None:
    text, options = FITS["slopes"]
    assert said(gpdsl.compile(text).fit({**DATA, "w": np.cos(X)}, **options))[0] == (
        "what is known of latents, as rows read slopes, integrals, sums or several values of a latent"
    )
    (one, *_) = said(gpdsl.compile(TEXT + "y ~ StudentT(4, f, 0.2)").fit(DATA, beta=0.5))
    assert one == "evidence for latents, q against the posterior, as no bound of the evidence is known"


@pytest.mark.parametrize("count", [1, 4])
def test_one_chain_is_told_that_it_cannot_tell(count: int) -> None:
    chains: Any = SimpleNamespace(shape=(count, 500), divergences=0, ladder=None, sliced=False, images=1)
    about, doubts = told(chains, Agreement(1.001, 900.0, 800.0))
    assert (ALONE in doubts) is (count == 1) and ("R-hat of its halves at most 1.001" in about) is (count == 1)


def test_what_cannot_be_looked_at_is_no_matter_of_cost() -> None:
    """Of an exact fit q is the posterior; what rows with variables keep from being looked at has that reason."""
    exact = gpdsl.compile(TEXT + "y ~ Normal(f, 0.2)").fit(DATA)
    assert "q against the posterior" not in exact.summary()
    assert exact.inspection.left == ("rows left out", "data drawn anew")
    assert exact.summary().count("left for fit.diagnose(data): rows left out, data drawn anew") == 1
    rows = gpdsl.compile(TEXT + "row e ~ Normal(0, 0.5)\ny ~ StudentT(4, f + e, 0.1)").fit(DATA)
    assert "; not looked at: evidence for latents, what is known of latents, as rows have variables" in rows.summary()
    assert [str(each).split()[0] for each in rows.diagnose() if each.name == SKIPPED] == ["open"] * 2
