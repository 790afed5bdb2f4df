"""Fits that are sick are found out, by what ails them, and healthy ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.diagnosis import Curvature
from gpdsl.results.criticism import findings
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.criticism.findings import LOOKS, Diagnosis
from gpdsl.results.criticism.inspected import of_curvature

RNG = np.random.default_rng(3)
X = np.linspace(0, 6, 40)
CURVE = {"x": X, "y": np.sin(2 * X) + 0.2 * RNG.standard_normal(40)}
COUNTS = {"x": X, "y": RNG.poisson(3.0 * RNG.gamma(0.5, 2.0, 40))}
TEXT = "input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF({ell}))\ny ~ {law}\n"

SICK = {
    "effective parameters": ("real", 0.02, "Normal(f, 0.2)", CURVE),
    "calibration of y": ("real", 0.8, "Normal(f, 0.03)", CURVE),
    "variance of y": ("count", 8, "Poisson(exp(f))", COUNTS),
}


def diagnosed(kind: str, ell: float, law: str, data: dict[str, np.ndarray]) -> Diagnosis:
    return gpdsl.compile(TEXT.format(kind=kind, ell=ell, law=law)).fit(data).diagnose(data)


@pytest.mark.parametrize("ails", SICK)
def test_what_ails_a_fit_is_found(ails: str) -> None:
    found = diagnosed(*SICK[ails])
    assert ails in {each.name for each in found.doubtful}
    assert f"doubtful  {ails}: " in repr(found)


def test_a_healthy_fit_is_left_alone() -> None:
    found = diagnosed("real", 0.8, "Normal(f, 0.2)", CURVE)
    assert found.doubtful == ()
    statistics = [f"{each} of y" for each in ("min", "max", "mean", "variance")]
    latents = ["symmetry", "reach of latents", "evidence for latents", "what is known of latents"]
    looked = [*latents, "effective parameters", "calibration", *statistics, "calibration of y"]
    assert [each.name for each in found.findings] == looked
    assert all(line.startswith("ok ") for line in repr(found).splitlines())


def test_notes_and_lost_evidence_are_among_the_findings() -> None:
    model = gpdsl.compile(TEXT.format(kind="count", ell=0.5, law="Poisson(exp(f))"))
    data = {"x": X, "y": RNG.poisson(np.exp(3 + 2 * np.sin(6 * X)))}
    few = model.fit(data, inducing=3).diagnose(data)
    assert "inducing points" in {each.name for each in few.doubtful}


def test_a_few_nats_lost_are_doubtful_and_counted() -> None:
    data = {"x": X, "y": np.random.default_rng(4).poisson(np.exp(np.sin(X)))}
    fit = gpdsl.compile(TEXT.format(kind="count", ell=1.5, law="Poisson(exp(f))")).fit(data, inducing=3)
    assert fit.inducing_loss is not None and 1 < fit.inducing_loss < 10
    (found,) = fit.diagnose().doubtful
    assert found.name == "inducing points" and "inducing=6" in found.remedy
    assert "checks, 1 doubtful" in fit.summary() and "inducing=6" in fit.summary()


def test_too_few_points_come_first_and_silence_what_they_explain() -> None:
    text = "param s2 : positive\nparam ell : positive\nparam sg : positive\nlatent f(x) ~ GP(0, s2 * RBF(ell))"
    data = {"x": X, "y": np.sin(5 * X) + 0.1 * np.random.default_rng(4).standard_normal(40)}
    fit = gpdsl.compile(f"input x : real\noutput y : real\n{text}\ny ~ Normal(f, sg)").fit(data, inducing=3)
    assert [each.name for each in fit.diagnose().doubtful] == ["inducing points", "note"]
    assert fit.diagnose().findings[0].name == "inducing points"
    assert "  doubtful" not in fit.summary() and "checks, 2 doubtful" in fit.summary()


def test_a_parameter_at_its_bound_is_said_once() -> None:
    text = "param sg : positive(lower = 0.5, upper = 3) = 0.6\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, sg)"
    data = {"x": X, "y": np.sin(X) + 0.1 * np.random.default_rng(4).standard_normal(40)}
    found = gpdsl.compile(f"input x : real\noutput y : real\n{text}").fit(data).diagnose()
    (said,) = (each.said for each in found.doubtful if each.name == "parameters")
    assert "`sg` is at the edge of its domain" in said


def test_overdispersed_counts_are_told_from_a_short_length_scale() -> None:
    x, rng = np.linspace(0, 6, 40), np.random.default_rng(1)
    data = {"x": x, "y": rng.poisson(5 * np.exp(0.5 * np.sin(x)) * rng.gamma(0.5, 2, 40))}
    text = "param ell : positive ~ LogNormal(0.5, 0.5)\nparam m : real\nlatent f(x) ~ GP(0, RBF(ell))"
    fit = gpdsl.compile(f"input x : real\noutput y : count\n{text}\ny ~ Poisson(exp(f + m))").fit(data, diagnose="full")
    (found,) = (each for each in fit.diagnose().doubtful if each.name == "effective parameters")
    assert "overdispersion" in found.remedy and "NegativeBinomial" in found.remedy


def test_costly_looks_come_last_and_free_ones_are_never_left_out() -> None:
    prices = [price for _, price in LOOKS.values()]
    assert prices == sorted(prices) and prices[0] == prices[4] == -np.inf


def test_what_there_is_no_time_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds, of looks that take 0.9 each; what has no price is looked at whenever its turn comes."""
    fit = gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit({"x": [0.0], "y": [1.0]})
    now, looked = [50.0], []

    def look(name: str) -> Callable[..., list[Finding]]:
        def found(*_: object) -> list[Finding]:
            now[0] += 0.9
            looked.append(name)
            return []

        return found

    prices = {"a": -np.inf, "b": 0.0, "dear": 0.7, "c": 0.0, "late": 0.0, "free": -np.inf}
    monkeypatch.setattr(findings, "LOOKS", {name: (look(name), price) for name, price in prices.items()})
    monkeypatch.setattr(findings, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert fit.inspection.left == ("dear", "late")
    assert looked == ["a", "b", "c", "free"]


def test_effective_parameters_are_the_trace_of_what_the_data_took_from_the_prior() -> None:
    """n - tr(K^-1 S), with S the posterior covariance at the rows, in NumPy."""
    data = {"x": X[::4], "y": COUNTS["y"][::4]}
    fit = gpdsl.compile(TEXT.format(kind="count", ell=1, law="Poisson(exp(f))")).fit(data)
    (found,) = (each for each in fit.diagnose(data).findings if each.name == "effective parameters")
    prior = np.exp(-0.5 * (data["x"][:, None] - data["x"]) ** 2)
    left = np.linalg.solve(prior, fit.predict(data).covariance("f"))
    assert found.number == pytest.approx(10 - np.trace(left), abs=1e-3)


def test_one_row_has_no_neighbours() -> None:
    found = (
        gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit({"x": [0.0], "y": [1.0]}).diagnose()
    )
    assert not found.doubtful


def test_parameters_that_are_open_by_themselves_are_said_in_one_sentence() -> None:
    def said(count: int) -> list[Finding]:
        names, zeros = tuple(f"ell[{n + 1}]" for n in range(count)), np.zeros(count)
        curvature = Curvature(names, zeros, np.diag(np.geomspace(1e-4, 1e-2, count)), zeros, np.ones(count))
        return [each for each in of_curvature(curvature, set()) if each.name == "parameters"]

    (many,) = said(11)
    assert many.number == pytest.approx(1e-4)
    assert many.said.startswith("`ell[1]`, `ell[2]`") and "`ell[8]` and 3 more are not determined" in many.said
    (two,), (one,) = said(2), said(1)
    assert two.said.startswith("`ell[1]` and `ell[2]` are not determined")
    assert one.said.startswith("`ell[1]` is not determined")
