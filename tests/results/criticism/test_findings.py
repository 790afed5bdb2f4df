"""Fits that are sick are found out, by what ails them, and healthy ones are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import plural
from gpdsl.inference.diagnosis import Curvature
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.program.cache import precision
from gpdsl.results.criticism import findings
from gpdsl.results.criticism.finding import (
    EVALUATIONS,
    MOST,
    SPEED,
    Finding,
    Inspection,
    Kind,
    affordable,
    allows_errors,
    cut_short,
    judged,
    of_curvature,
)
from gpdsl.results.criticism.findings import Diagnosis, Look
from tests.inference.problems import looked_at, unlearnt

RNG = np.random.default_rng(3)
X = np.linspace(0, 6, 40)
CURVE = {"x": X, "y": np.sin(2 * X) + 0.2 * RNG.standard_normal(40)}
ONE = {"x": [0.0], "y": [1.0]}
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


WALK = np.cumsum(np.random.default_rng(5).standard_normal(60))
NOISES = np.random.default_rng(7).standard_normal((60, 2))
AUTOREGRESSION = np.array([NOISES[: k + 1, 0] @ 0.8 ** np.arange(k, -1, -1) for k in range(60)]) + 0.5 * NOISES[:, 1]
FOLLOWED = {  # values, kernel, noise, whether that is to be doubted
    "an autoregression and noise": (AUTOREGRESSION, "s2 * Matern12(ell)", "sg", False),
    "a walk": (WALK, "s2 * Matern12(ell)", "sg", False),
    "a walk and a little noise": (
        WALK + 0.3 * np.random.default_rng(6).standard_normal(60),
        "s2 * Matern12(ell)",
        "sg",
        False,
    ),
    "noise that is given, too small": (None, "s2 * RBF(ell)", "0.01", True),
    "noise that is given, taken for a walk": (None, "s2 * Matern12(ell)", "0.01", True),
    "a short length-scale beside a level": (None, "s2 * RBF(1.5) + 1000 * Constant()", "sg", True),
    "a walk that comes back at once": (None, "s2 * Matern12(2)", "sg", True),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_values_that_others_tell_are_not_followed_one_by_one(name: str) -> None:
    """Effective parameters are as many as values of what has no noise; then the others tell most of each."""
    values, kernel, noise, doubted = FOLLOWED[name]
    x, noisy = np.arange(60.0), np.sin(np.arange(60) / 10) + 0.3 * np.random.default_rng(1).standard_normal(60)
    learnt = "".join(f"param {each} : positive\n" for each in ("s2", "ell", "sg") if each in kernel + noise)
    text = f"input x : real\noutput y : real\n{learnt}latent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, {noise})"
    data = {"x": x, "y": noisy if values is None else values}
    fit = gpdsl.compile(text).fit(data, diagnose="no")
    found = looked_at(fit, data, "effective parameters")["effective parameters"]
    assert found.number > 30 and found.doubtful == doubted
    assert ("of whose spread the others tell " in found.said) == (noise == "sg")


def test_the_share_that_others_tell_is_that_of_dense_matrices() -> None:
    text = "param sg : positive\nlatent f(x) ~ GP(0, 4 * Matern12(5) + 100 * Constant())\ny ~ Normal(f, sg)"
    fit = gpdsl.compile(f"input x : real\noutput y : real\n{text}").fit(
        {"x": X, "y": WALK[:40] / 9}, fixed=["sg"], init={"sg": 0.2}
    )
    assert not any("of whose spread" in each.said for each in fit.diagnose())
    data = {"x": X, "y": WALK[:40] / 9}
    free = gpdsl.compile(f"input x : real\noutput y : real\n{text}").fit(data, diagnose="no")
    whole = 4 * np.exp(-abs(X[:, None] - X) / 5) + float(free.parameters["sg"]) ** 2 * np.eye(40)
    left = np.sum(1 / np.diagonal(np.linalg.inv(whole + 100)))
    found = looked_at(free, data, "effective parameters")["effective parameters"]
    assert found.said.endswith(f"tell {1 - left / (np.trace(whole) - whole.sum() / 40):.0%}")


def test_a_healthy_fit_is_left_alone() -> None:
    found = diagnosed("real", 0.8, "Normal(f, 0.2)", CURVE)
    assert found.doubtful == ()
    statistics = [f"{each} of y" for each in ("min", "max", "mean", "variance")]
    latents = ["symmetry", "reach of latents", "evidence for latents", "what is known of latents"]
    looked = [*latents, "effective parameters", "calibration", "calibration of y", *statistics]
    assert [each.name for each in found.findings] == looked
    assert all(line.startswith("ok ") for line in repr(found).splitlines())


@pytest.mark.parametrize("ask", [lambda fit: fit.diagnose("full"), lambda fit: fit.diagnose(full=True)])
def test_everything_is_asked_for_with_the_data(ask: Callable[[gpdsl.Fit], Diagnosis]) -> None:
    """A fit keeps none, and `full` is no name of a file."""
    fit = gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit(ONE, diagnose="no")
    with pytest.raises(gpdsl.GpdslError, match=r"fit\.diagnose\(data\); or ask before, .*diagnose='full'"):
        ask(fit)
    assert repr(fit.diagnose(ONE, full=True)) == repr(fit.diagnose(ONE))


@pytest.mark.parametrize("layers", [False, True])
def test_an_interrupted_fit_is_said_to_be_unfinished_first(layers: bool) -> None:
    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    text = TEXT.format(kind="count", ell=1, law="Poisson(exp(f))")
    if layers:
        text = "input x : real\noutput y : count\nlatent g(x) ~ GP(x, RBF(1))\nlatent f(g) ~ GP(0, RBF(1))\n"
        text += "y ~ Poisson(exp(f))"
    data = {"x": X[::4], "y": COUNTS["y"][::4]}
    fit = gpdsl.compile(text).fit(data, callback=stop)
    first = fit.diagnose().findings[0]
    assert fit.interrupted and first.doubtful and first.name == "unfinished"
    assert "interrupted by the user" in first.said and "model.fit(data, start=fit)" in first.remedy
    assert f"  doubtful    {first.doubt}\n" in fit.summary() and fit.diagnose(data).findings[0] == first
    after = replace(fit, message="converged").diagnose(data).findings[0]  # Ctrl-C between one search and the next
    assert after.said.startswith("interrupted by the user: this is what a search ended with, before all else was tried")


def test_one_and_many_are_told_apart() -> None:
    assert [plural(n, "check") for n in (0, 1, 2)] == ["0 checks", "1 check", "2 checks"]
    assert [plural(x, "nat", ".2g") for x in (0.3, 0.996, 1.2)] == ["0.3 nats", "1 nat", "1.2 nats"]
    assert [plural(x, "nat", ".2g") for x in (123.4, 5678.0, 1.2e7)] == ["120 nats", "5,700 nats", "1.2e+07 nats"]
    one = gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit(ONE)
    assert (
        "of 1 observed value\n" in one.summary() and ": 1 row, " in repr(one) and "for 1 value" in repr(one.diagnose())
    )
    assert ": 1 row of " in repr(one.predict(ONE)) and "plan for model: 1 row\n" in str(one.model.explain(ONE))


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


def test_a_share_of_nothing_is_told_to_be_left_out_and_not_to_have_wider_bounds() -> None:
    model = gpdsl.compile("output y : real\nparam w : unit = 0.3\ny ~ Normal(3 * w, 1)")
    found = model.fit({"y": -np.ones(20) - 0.1 * np.arange(20)}).diagnose()
    (said,) = (each for each in found.doubtful if "edge" in each.said)
    assert "leave it out" in said.remedy and "widen" not in said.remedy


def test_overdispersed_counts_are_told_from_a_short_length_scale() -> None:
    x, rng = np.linspace(0, 6, 40), np.random.default_rng(1)
    data = {"x": x, "y": rng.poisson(5 * np.exp(0.5 * np.sin(x)) * rng.gamma(0.5, 2, 40))}
    text = "param ell : positive ~ LogNormal(0.5, 0.5)\nparam m : real\nlatent f(x) ~ GP(0, RBF(ell))"
    fit = gpdsl.compile(f"input x : real\noutput y : count\n{text}\ny ~ Poisson(exp(f + m))").fit(data, diagnose="full")
    (found,) = (each for each in fit.diagnose().doubtful if each.name == "effective parameters")
    assert "overdispersion" in found.remedy and "NegativeBinomial" in found.remedy


def look(price: float, seen: list[str], name: str) -> Look:
    """One that says nothing, and leaves its name."""

    def find(*_: object) -> Iterator[Finding]:
        seen.append(name)
        yield from ()

    return Look(find, lambda *_: price)


def test_what_is_not_affordable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two seconds; what costs nothing is looked at whenever its turn comes."""
    fit, looked = gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit(ONE), list[str]()
    prices = {"a": 0.0, "b": 0.9, "dear": 1.2, "c": 1.0, "late": 0.2, "free": 0.0}
    monkeypatch.setattr(findings, "LOOKS", {name: look(price, looked, name) for name, price in prices.items()})
    monkeypatch.setattr(findings, "affordable", lambda _: 2.0)
    assert fit.inspection.left == ("dear", "late") and not fit.inspection.failed
    assert looked == ["a", "b", "c", "free"]


def test_a_look_that_fails_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> Iterator[Finding]:
        raise ValueError("no such row")
        yield

    fit = gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit(ONE)
    monkeypatch.setattr(
        findings, "LOOKS", {**findings.LOOKS, "odd (one)": Look(find), "dear": Look(find, lambda *_: 9.0)}
    )
    found = fit.inspection
    assert found.left[-1] == "dear" and found.failed == ("odd (one) (ValueError: no such row)",)
    assert "could not be looked at: odd (one) (ValueError: no such row)" in fit.summary()
    again = Inspection.of_plain(found.plain(), {})
    assert (again.left, again.failed) == (found.left, found.failed)
    assert list(map(repr, again.findings)) == list(map(repr, found.findings))  # no nan equals another


LEARNT = "param s2 : positive\nparam m : real\nlatent f(x) ~ GP(0, s2 * RBF({}))\ny ~ Poisson(exp(f + m))"


def test_the_default_diagnosis_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program, and an evaluation of the evidence beside one for each parameter; of another fit no program."""
    model = gpdsl.compile(f"input x : real\noutput y : count\n{LEARNT.format(0.71)}")
    programs, evaluations, jit = [], [], jax.jit
    for new in (True, False):
        fit = model.fit({"x": X, "y": COUNTS["y"]})
        ended = fit.inspected.ended
        assert ended is not None and ended.profile is not None
        with precision("float64"):
            profile = ended.profile()
        programs.clear()
        monkeypatch.setattr(jax, "jit", lambda function, **more: programs.append(function) or jit(function, **more))
        counted = lambda learnt, of=profile: evaluations.append(learnt) or of(learnt)  # noqa: E731
        fit.inspected.ended = replace(ended, profile=lambda counted=counted: counted)
        assert set(fit.standard_errors) == {"s2", "m"} and len(fit.inspection.findings) > 5
        assert len(programs) == new
        monkeypatch.undo()
    assert len(evaluations) == 2 * (1 + 2)


def test_what_is_looked_at_does_not_depend_on_the_clock() -> None:
    model, data = gpdsl.compile(TEXT.format(kind="count", ell=1, law="Poisson(exp(f))")), {"x": X, "y": COUNTS["y"]}
    fit = model.fit(data)
    slow = replace(fit, seconds=1e4, inspected=replace(fit.inspected))
    assert slow.inspection.findings == fit.inspection.findings and not fit.inspection.failed
    assert (
        slow.inspection.left == fit.inspection.left == ("rows left out", "data drawn anew", "q against the posterior")
    )
    full = model.fit(data, diagnose="full")
    assert not full.inspection.left and len(full.inspection.findings) > len(fit.inspection.findings)


def test_a_tenth_of_the_search_is_affordable_and_no_more_than_a_few_seconds() -> None:
    """By steps and sizes: of 1000 rows and 200 inducing values, 2 * 5 * (1000 + 200) * 200^2 multiplications a step."""
    fit = gpdsl.compile(TEXT.format(kind="count", ell=1, law="Poisson(exp(f))")).fit({"x": X, "y": COUNTS["y"]})
    wide = Whitened(np.zeros((1, 1, 200)), np.zeros((1, 1, 200, 200)))

    def seconds(steps: int) -> float:
        return affordable(replace(fit, posterior=(wide,), rows=1000, history=np.zeros((steps, 3))))

    assert fit.choice.optimizer == "natural"
    assert seconds(50) == pytest.approx(0.1 * 50 * 5 * 2 * 1200 * 200**2 / SPEED)
    assert seconds(10**6) == MOST
    assert affordable(replace(fit, options=replace(fit.options, diagnose="full"))) == np.inf


def test_many_parameters_have_standard_errors_where_the_search_took_long_or_they_are_asked_for() -> None:
    fit = gpdsl.compile(TEXT.format(kind="count", ell=1, law="Poisson(exp(f))")).fit({"x": X, "y": COUNTS["y"]})
    assert allows_errors(fit, EVALUATIONS) and not allows_errors(fit, EVALUATIONS + 1)
    long = replace(fit, history=np.zeros((1000, 3)))
    assert allows_errors(long, 100) and not allows_errors(long, 101)
    assert not allows_errors(replace(fit, rows=10**9), 3)
    assert allows_errors(replace(fit, options=replace(fit.options, diagnose="full")), 101)


def test_effective_parameters_are_the_trace_of_what_the_data_took_from_the_prior() -> None:
    """n - tr(K^-1 S), with S the posterior covariance at the rows, in NumPy."""
    data = {"x": X[::4], "y": COUNTS["y"][::4]}
    fit = unlearnt(TEXT.format(kind="count", ell=1, law="Poisson(exp(f))"), data, diagnose="no")
    found = looked_at(fit, data, "effective parameters")["effective parameters"]
    prior = np.exp(-0.5 * (data["x"][:, None] - data["x"]) ** 2)
    left = np.linalg.solve(prior, fit.predict(data).covariance("f"))
    assert found.number == pytest.approx(10 - np.trace(left), abs=1e-3)


def test_one_row_has_no_neighbours() -> None:
    found = (
        gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 0.5)")).fit({"x": [0.0], "y": [1.0]}).diagnose()
    )
    assert not found.doubtful


def test_a_scale_that_has_gone_to_nothing_may_be_left_out() -> None:
    rng, x = np.random.default_rng(2), np.linspace(0, 10, 40)
    text = "input x : real\noutput y : real\nparam s : positive\nparam t : positive\n"
    text += "latent f(x) ~ GP(0, RBF(1.5) + s * Periodic(0.7, 1))\ny ~ Normal(f, 0.2 * t)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(x) + 0.2 * rng.standard_normal(40)}, progress=False)
    (found,) = (each for each in fit.diagnose() if each.name == "parameters")
    assert found.said.startswith("`s` is not determined")
    assert found.remedy.startswith("it is next to 0: leave out what it scales, or give `s` a prior")


def test_parameters_that_are_open_together_are_said_with_the_way_they_go() -> None:
    def said(sign: float) -> Finding:
        matrix = np.array([[1.0, -sign], [-sign, 1.0]]) * 100 + 1e-3 * np.eye(2)
        found = of_curvature(Curvature(("s2", "ell"), np.zeros(2), matrix, np.zeros(2), np.ones(2)), set())
        return next(each for each in found if each.name == "parameters")

    for sign, way in ((1.0, "together"), (-1.0, "against each other")):
        found = said(sign)
        assert found.doubtful and found.number == pytest.approx(1e-3)
        assert f"are confounded: moved {way}, they change next to nothing" in found.said
        assert "`s2`" in found.said and "`ell`" in found.said


def test_parameters_that_are_open_in_all_directions_are_open_one_by_one() -> None:
    """Two flat directions of two parameters leave both open: fixing one of the two was the remedy, said twice."""
    turn = np.array([[0.8, 0.6], [-0.6, 0.8]])
    matrix = np.diag([100.0, 0.0, 0.0])
    matrix[1:, 1:] = turn @ np.diag([1e-4, 1e-2]) @ turn.T
    curvature = Curvature(("s2", "ell", "alpha"), np.zeros(3), matrix, np.zeros(3), np.ones(3))
    (found,) = (each for each in of_curvature(curvature, set()) if each.name == "parameters")
    assert "`alpha` are not determined" in found.said and "`ell`" in found.said and "`s2`" not in found.said


def test_what_is_asked_for_in_full_may_cost_what_it_does() -> None:
    assert affordable(SimpleNamespace(options=SimpleNamespace(diagnose="full"))) == np.inf  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [None, "full"])
def test_everything_is_looked_at_where_the_rows_are_there(data: str | None) -> None:
    with pytest.raises(gpdsl.GpdslError, match="a fit keeps no data.*gets the rows that were fitted"):
        findings.diagnose(SimpleNamespace(inspection=None), data, full=data is None)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("bounds", "steps", "doubted"),
    [
        ([-900.0, -700.0], 100, True),
        ([-900.0], 30, True),
        ([-300.7, -300.2], 2, True),
        ([-900.0, -400.0, -310.0, -300.0, -301.0, -299.5, -300.5, -300.0], 400, False),
        (-300.0 + np.linspace(0, 90, 40) + np.resize([3.0, -3.0], 40), 2000, True),
        ([-900.0, -700.0], None, False),
    ],
)
def test_searches_that_their_steps_have_ended_are_doubted_while_they_rise(
    bounds: list[float], steps: int | None, doubted: bool
) -> None:
    """Minibatches that ended 18,000 nats below the best were not doubted, or their latents told to be chance."""
    history = np.stack([np.arange(len(bounds)), bounds, np.zeros(len(bounds))], axis=1)
    fit: Any = SimpleNamespace(
        message="all steps done", options=SimpleNamespace(steps=steps), interrupted=False, history=history, rows=1000
    )
    fit.program = SimpleNamespace(
        declarations=gpdsl.compile(TEXT.format(kind="real", ell=1, law="Normal(f, 1)")).declarations
    )
    found = list(cut_short(fit))
    assert [each.name for each in found] == ["unfinished"] * doubted
    worth = Finding("evidence for latents", -9.0, True, "")
    assert (worth in judged(fit, [worth, *found])) == (not doubted)


@pytest.mark.parametrize(("rise", "doubted"), [(3.3, True), (2.7, False)])
def test_noise_of_bounds_is_told_from_their_rise(rise: float, doubted: bool) -> None:
    """Three standard deviations of the difference of two means of 1,000 bounds each."""
    halves = 30.0 * np.random.default_rng(0).standard_normal((2, 1000))
    halves += np.array([[0.0], [rise * 30.0 * np.sqrt(2 / 1000)]]) - halves.mean(axis=1, keepdims=True)
    history = np.stack([np.concatenate([np.full(1999, -900.0), [0.0], *halves])] * 3, axis=1)
    fit: Any = SimpleNamespace(
        message="all steps done", options=SimpleNamespace(steps=4000), interrupted=False, history=history, rows=1000
    )
    assert bool(list(cut_short(fit))) == doubted


def test_inputs_that_the_model_does_not_read_come_first() -> None:
    """Counts without their exposure were told to take a shorter length-scale, whose input is another one."""
    text = "input x : real\ninput e : positive\noutput y : count\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Poisson({}exp(f))"
    doubt = Finding("values of y", 0.8, True, "neighbours in the inputs miss alike", "add a kernel", Kind.PATTERN)
    for exposure in ("", "e * "):
        declarations = gpdsl.compile(text.format(exposure)).declarations
        fit: Any = SimpleNamespace(program=SimpleNamespace(declarations=declarations), rows=10)
        (found,) = judged(fit, [doubt])
        assert ("reads no `e`" in found.remedy) == (not exposure)
