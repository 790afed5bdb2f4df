"""What a family of posteriors cannot hold, and kernels that do not go with the inputs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import integrate

import gpdsl
from gpdsl.data import Data
from gpdsl.kernels.form import Base
from gpdsl.program.cache import precision
from gpdsl.results.criticism import seen, structure
from gpdsl.results.criticism.finding import Diagnosis
from gpdsl.results.criticism.left_out import fitted_rows
from gpdsl.results.criticism.places import ROWS, Line, alike, line_of, of_elements, shifted
from gpdsl.results.criticism.seen import Seen
from gpdsl.results.criticism.structure import _reaches, reach, rows_and_levels, symmetry
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(8)
UNCENSORED: Any = SimpleNamespace(program=SimpleNamespace(declarations=SimpleNamespace(observations=())))
X = np.linspace(0, 6, 40)
CURVE = {"x": X, "y": np.sin(2 * X) + 0.2 * RNG.standard_normal(40)}
TEXT = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, 0.2)\n"


def findings(kernel: str) -> Diagnosis:
    return gpdsl.compile(TEXT.format(kernel=kernel)).fit(CURVE).diagnose()


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("RBF(0.005)", "to it, rows are all unrelated"),
        ("RBF(2000)", "is the same at all rows"),
        ("4 * Matern32(0.005)", "to it, rows are all unrelated"),
    ],
)
def test_a_length_scale_in_the_wrong_unit_is_named(kernel: str, says: str) -> None:
    (found,) = (each for each in findings(kernel).doubtful if each.name == "reach of latents")
    assert found.said.startswith("`f` ")
    assert says in found.said


@pytest.mark.parametrize("kernel", ["RBF(1)", "Linear() + RBF(1)", "2 * Constant() + RBF(1)", "Periodic(3, 1)"])
def test_kernels_that_go_with_the_inputs_are_left_alone(kernel: str) -> None:
    assert "reach of latents" not in {each.name for each in findings(kernel).doubtful}


def test_groups_of_one_row_each_have_no_length_scale() -> None:
    """Of counts each row's own effect is their overdispersion, as in the models of Besag, York and Mollié."""
    for law in ("Normal", "Poisson"):
        program: Any = SimpleNamespace(observations=[SimpleNamespace(distribution=law)])
        (found,) = _reaches("u", np.eye(5), np.eye(5), Base("Same", (), (), ()), program)
        assert found.doubtful == (law == "Normal")
        assert "noise by another name" in found.said and "length-scale" not in found.remedy


@pytest.mark.slow
def test_rows_of_small_groups_find_each_other_among_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of the rows has next to no two of one group where there are thousands."""
    monkeypatch.setattr(seen, "NEAR", 10)
    text = (
        "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
        "y ~ Normal(a[site], 0.3)"
    )
    fit = unlearnt(text, {"site": np.repeat(np.arange(600), 2), "y": np.repeat(np.sin(np.arange(600)), 2)})
    assert all("noise by another name" not in each.said for each in fit.diagnose())


def test_the_reach_is_that_of_the_kernel() -> None:
    fit = gpdsl.compile(TEXT.format(kernel="2 * RBF(0.5)")).fit(CURVE)
    (found,) = (each for each in fit.diagnose() if each.name == "reach of latents")
    apart = X[1] - X[0]
    assert found.number == pytest.approx(np.exp(-0.5 * (apart / 0.5) ** 2), rel=1e-6)


TWO = """
input x : real[2]
input z : real
output y : real
{own}
latent f(x, z) ~ GP(0, {kernel})
y ~ Normal(f, 0.2)
"""


@pytest.mark.parametrize(
    ("kernel", "own", "wide", "said"),
    [
        ("RBF(ell)", "param ell : positive = 1", 400.0, "`x2` has 4e+02 times the spread of `z`"),
        ("2 * Matern32(1) + RBF(2)", "", 400.0, "`x2` has 4e+02 times the spread of `z`"),
        ("RBF(ell)", "param ell : positive = 1", 20.0, ""),
        ("RBF(ell)", "param ell : positive[3] = 1", 400.0, ""),
        ("RBF(1) + Linear()", "", 400.0, ""),  # not by the distance
    ],
)
def test_columns_that_one_length_scale_overlooks_are_named(kernel: str, own: str, wide: float, said: str) -> None:
    rng = np.random.default_rng(2)
    z = np.linspace(-1, 1, 30)
    x = np.stack([0.5 + 2 * rng.permutation(z), wide * rng.permutation(z)], axis=1)
    data = {"x1": x[:, 0], "x2": x[:, 1], "z": z, "y": rng.standard_normal(30)}
    fit = unlearnt(TWO.format(kernel=kernel, own=own), data)
    with precision("float64"):
        found = [
            each.said for each in reach(fit, Seen(fit, fitted_rows(fit, data, ""))) if each.name == "spread of columns"
        ]
    whole = f"`f` measures all columns by one length-scale, but {said}, which hardly counts beside it"
    assert found == ([whole] if said else [])


def test_columns_that_are_standardised_are_none_of_them() -> None:
    rng = np.random.default_rng(2)
    data = {"x1": rng.normal(size=20), "x2": 900 * rng.normal(size=20), "z": rng.normal(size=20), "y": X[:20]}
    model = gpdsl.compile(TWO.format(kernel="RBF(1)", own=""))
    names = [{each.name for each in model.fit(data, **options).diagnose()} for options in ({}, {"standardise": True})]
    assert ["spread of columns" in each for each in names] == [True, False]


PRODUCT = """
input x : real
output y : real
latent f(x) ~ GP(2, RBF(1))
latent g(x) ~ GP(3, RBF(1))
y ~ Normal(f * g, 0.5)
"""


def test_correlation_that_a_factorised_posterior_leaves_out_is_that_of_quadrature() -> None:
    """Of one row: the posterior of two numbers by brute force."""
    data = {"x": np.zeros(1), "y": np.array([6.0])}
    fit = gpdsl.compile(PRODUCT).fit(data, posterior="full")
    (found,) = (each for each in fit.diagnose() if each.name == "correlation between latents")

    def moment(i: int, j: int) -> float:
        def density(g: float, f: float) -> float:
            return f**i * g**j * np.exp(-0.5 * ((f - 2) ** 2 + (g - 3) ** 2 + ((6 - f * g) / 0.5) ** 2))

        return float(integrate.dblquad(density, -2, 6, -2, 8)[0])

    one, f, g, ff, gg, fg = (moment(*at) for at in [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)])
    f, g, ff, gg, fg = (each / one for each in (f, g, ff, gg, fg))
    exact = -(fg - f * g) / np.sqrt((ff - f**2) * (gg - g**2))
    assert exact > 0.7
    assert found.doubtful and "that of `f` and `g`" in str(found)
    assert found.number == pytest.approx(exact, abs=0.1)


def test_the_two_latents_that_go_together_most_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group of two and one of one: norms of R_a' C R_b, summed over what the two are read by."""
    rng = np.random.default_rng(5)
    a, b, c, other = rng.normal(size=(4, 6, 2))  # [rows, columns] of what latents are read by
    bent, steps = rng.normal(size=(4, 4, 6)), list[np.ndarray]()
    monkeypatch.setattr(structure, "bends", lambda *given: steps.append(given[-1]) or bent)
    program = SimpleNamespace(
        groups=[SimpleNamespace(start=0, size=2), SimpleNamespace(start=2, size=1)],
        latent_names=("f[1]", "f[2]", "g"),
        opaque=False,
    )
    fit: Any = SimpleNamespace(program=program, parameters={}, choice=SimpleNamespace(posterior="full"))
    spread = np.array([[1e-9, 2.0]] * 5 + [[1.0, 4.0]])
    looked: Any = SimpleNamespace(
        compares=True, rows=None, at_readings=([{0: a}, {1: b}, {2: c, 3: other}], np.zeros((6, 2)), spread)
    )
    pairs = (
        [(a, b, bent[0, 1])],
        [(a, c, bent[0, 2]), (a, other, bent[0, 3])],
        [(b, c, bent[1, 2]), (b, other, bent[1, 3])],
    )
    norms = [np.linalg.svd(sum(left.T @ np.diag(d) @ right for left, right, d in each))[1][0] for each in pairs]
    found = structure._correlations(fit, looked)
    assert found is not None
    np.testing.assert_allclose([found[0, 1], found[0, 2], found[1, 2]], norms)
    least = np.maximum(spread, structure.LEAST * np.array([1.0, 4.0]))
    np.testing.assert_allclose(steps[0], structure.STEP * least)
    for place, names in (((0, 1), "`f[1]` and `f[2]`"), ((1, 2), "`f[2]` and `g`")):
        most = np.zeros((3, 3))
        most[place] = 0.6
        monkeypatch.setattr(structure, "_correlations", lambda *_, most=most: most)
        (told,) = structure.correlation(fit, looked)
        assert told.number == 0.6 and names in told.said


def test_a_coupled_posterior_leaves_nothing_out() -> None:
    data = {"x": X[:6], "y": CURVE["y"][:6] + 6}
    names = {each.name for each in gpdsl.compile(PRODUCT).fit(data).diagnose()}
    assert "correlation between latents" not in names


def test_a_posterior_with_two_modes_is_named_unless_it_has_both() -> None:
    model = gpdsl.compile(TEXT.format(kernel="RBF(1)").replace("(f,", "(f^2,"))
    data = {"x": X, "y": CURVE["y"] ** 2 + 1}
    one, both = model.fit(data), model.fit(data, posterior="mixture_full(2)", steps=20)
    (found,) = (each for each in one.diagnose() if each.name == "symmetry")
    assert found.doubtful
    assert found.said.startswith("`f` may change its sign")
    assert "symmetry" not in {each.name for each in both.diagnose().doubtful}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"engine": "mcmc", "chains": 2, "draws": 20}, {"posterior": "corrected"}])
def test_draws_are_at_both_modes(options: dict[str, Any]) -> None:
    model = gpdsl.compile(TEXT.format(kernel="RBF(1)").replace("(f,", "(f^2,"))
    fit = model.fit({"x": X[:8], "y": CURVE["y"][:8] ** 2 + 1}, **options)
    (found,) = (each for each in fit.diagnose() if each.name == "symmetry")
    assert not found.doubtful
    assert found.said.endswith("what is told is of both")


def test_the_summary_names_what_is_doubtful_in_a_line_each() -> None:
    lines = gpdsl.compile(TEXT.format(kernel="RBF(2000)")).fit(CURVE).summary().splitlines()
    assert any(line.startswith("  doubtful    reach of latents: `f` is the same at all rows") for line in lines)
    assert any(line.startswith("  diagnosis   ") and " doubtful" in line for line in lines)


@pytest.mark.parametrize(
    ("latent", "offset", "times", "named"),
    [
        ("GP(0, 2 * RBF(1))", 1e4, 1, {"level of y"}),
        ("GP(1e4, 2 * RBF(1))", 1e4, 1, set()),
        ("GP(0, 1e8 * Constant() + RBF(1))", 1e4, 1, set()),
        ("GP(0, 2 * RBF(1))", 0.0, 2, {"repeated rows"}),
        ("GP(0, 2 * RBF(1))", 0.0, 1, set()),
    ],
)
def test_a_level_that_has_no_place_and_rows_that_are_there_twice(
    latent: str, offset: float, times: int, named: set[str]
) -> None:
    x, rng = np.linspace(0, 5, 12), np.random.default_rng(0)
    y = np.sin(x) + offset + 0.1 * rng.standard_normal(12)
    data = {"x": np.repeat(x, times), "y": np.repeat(y, times)}
    fit = unlearnt(f"input x : real\noutput y : real\nlatent f(x) ~ {latent}\ny ~ Normal(f, 0.1)", data)
    found = list(rows_and_levels(fit, Seen(fit, fitted_rows(fit, data, ""))))
    assert {each.name for each in found} == named and all(each.doubtful for each in found)


def test_counts_that_are_there_twice_and_classes_that_are_numbers_are_told() -> None:
    """As repeated rows of real outputs are; two classes under normal noise were told to let that noise change."""
    for kind, law, y in (
        ("count", "Poisson(exp(f))", np.arange(12) % 4),
        ("real", "Normal(f, 0.3)", np.arange(24) % 2),
    ):
        data = {"x": np.repeat(np.arange(12.0), 2), "y": np.resize(np.repeat(y, 24 // len(y)), 24)}
        fit = unlearnt(f"input x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\ny ~ {law}", data)
        found = [each for each in rows_and_levels(fit, Seen(fit, fitted_rows(fit, data, ""))) if each.doubtful]
        assert [each.name for each in found] == ["repeated rows" if kind == "count" else "kind of y"]


@pytest.mark.slow
def test_names_by_chance_are_told_where_one_of_both_modes_is_known() -> None:
    rng, x = np.random.default_rng(0), np.linspace(0, 4, 30)
    y = np.where(rng.random(30) < 0.5, 2 + np.sin(x), -1.0) + 0.2 * rng.standard_normal(30)
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, 4 * RBF(1))\nlatent g(x) ~ GP(0, 4 * RBF(1))\n"
    text += "y ~ Mixture([0.5, 0.5], Normal(f, 0.2), Normal(g, 0.2))\n"
    one, both = (
        gpdsl.compile(text).fit({"x": x, "y": y}, posterior=each, progress=False)
        for each in ("auto", "mixture_full(2)")
    )
    assert both.elbo - one.elbo == pytest.approx(np.log(2), abs=0.01)
    assert "symmetry" not in {each.name for each in both.diagnose().doubtful}
    (found,) = (each for each in one.diagnose().doubtful if each.name == "symmetry")
    assert found.said.startswith("`f` and `g` may be exchanged") and "mixture_full(2)" in found.remedy
    twice: Any = [replace(q, mean=np.repeat(np.asarray(q.mean)[:1], 2, axis=0)) for q in both.posterior]
    again: Any = SimpleNamespace(
        program=both.program, choice=both.choice, options=both.options, posterior=twice, weights=both.weights
    )
    (found,) = (each for each in symmetry(again, cast(Any, None)) if each.doubtful)
    assert "posterior = corrected" in found.remedy


def test_what_neighbours_share_is_looked_for_on_the_other_side_of_the_length_scale() -> None:
    """Where latents follow single values a shorter one is no remedy."""
    places = np.sin(np.linspace(0, 20, 80)) + 0.1 * np.random.default_rng(0).standard_normal(80)
    line = Line("along `x`", np.arange(79), np.arange(1, 80), {})
    remedies = [getattr(alike("calibration", places, line, short), "remedy", "") for short in (False, True)]
    assert ["shorter length-scale" in each for each in remedies] == [True, False]
    assert "from a longer one by init" in remedies[1]


@pytest.mark.parametrize("few", [True, False])
def test_what_differs_with_an_input_is_told(few: bool) -> None:
    """As the groups of a label that the model does not read, whose rows are not neighbours in any other input."""
    rng = np.random.default_rng(0)
    noise, column, beside = rng.standard_normal(80), rng.uniform(0, 4, 80), rng.standard_normal(80)
    column = np.floor(column) if few else column
    assert shifted("calibration", noise, {"g": column, "x": beside}) is None
    found = shifted("calibration", noise + np.where(column > 1.5, 1.0, -1.0), {"g": column, "x": beside})
    assert found is not None and found.said.startswith("values lie")
    assert f"higher {'at one value' if few else 'in one part'} of `g` than" in found.said


def test_what_changes_along_the_rows_and_with_no_input_is_told() -> None:
    """A drift while rows were measured whose inputs are in any order."""
    noise = np.random.default_rng(0).standard_normal(80)
    order = np.random.default_rng(1).permutation(80)
    line = Line("along `x`", order[:-1], order[1:], {})
    found = [alike("calibration", noise + drift, line) for drift in (0.0, np.linspace(-2, 2, 80))]
    assert found[0] is None and found[1] is not None
    assert found[1].said.startswith("rows that follow each other miss alike") and "read it as one" in found[1].remedy
    rounding = np.linspace(0, 1e-14, 80)
    assert alike("calibration", 0.3 + rounding, line) is None, "values all alike have neither"
    moved = shifted("calibration", noise + np.linspace(-1, 1, 80), {"x": noise[order], ROWS: np.arange(80.0)})
    assert (
        moved is not None and "higher in one part of the rows than" in moved.said and "read it as one" in moved.remedy
    )


def test_each_element_of_several_outputs_has_rows_of_its_own() -> None:
    """A step in the rows of one of three series, two of them of one output with gaps: it was told of none."""
    rng, known = np.random.default_rng(3), with_gaps(80)
    data = Data(80, {"x": rng.uniform(0, 9, 80)}, {}, {"y": known, "z": np.ones(80, bool)}, {}, {}, {})
    data = replace(data, outputs={name: rng.standard_normal(each.shape) for name, each in data.observed.items()})
    places = rng.standard_normal((80, 2))
    assert of_elements(UNCENSORED, "calibration of y", places[known], known, data, normal=True) is None
    found = of_elements(
        UNCENSORED, "calibration of y", (places + np.outer(np.arange(80) > 40, [0, 2]))[known], known, data
    )
    assert found is not None and found.doubtful and found.said.startswith("of element 2, rows that follow each other")
    assert of_elements(UNCENSORED, "", places[known], known, data, follow=False) is None
    wide = of_elements(
        UNCENSORED, "", (places * [4, 1] ** (np.arange(80) > 40)[:, None])[known], known, data, False, True
    )
    assert wide is not None and wide.said.startswith("of element 1, ")


def with_gaps(rows: int) -> np.ndarray:
    """Which of two values each row has."""
    return np.stack([np.ones(rows, bool), np.arange(rows) % 7 > 0], axis=1)


def test_rows_in_the_order_of_their_values_follow_each_other_for_no_reason_of_the_model() -> None:
    """As a table that was sorted by its output; where an input has the order, it is no other one either."""
    rng = np.random.default_rng(2)
    x, y, known = rng.uniform(0, 9, 60), rng.standard_normal(60), np.ones(60, bool)
    known[[3, 9]] = False

    def line(x: np.ndarray, y: np.ndarray) -> Line:
        data = Data(60, {"x": x}, {"y": np.where(known, y, 0.0)}, {"y": known}, {}, {}, {})
        found = line_of(UNCENSORED, data, 58)
        assert found is not None
        return found

    plain, by_value, by_input = line(x, y), line(x, np.sort(y)), line(-np.sort(x), y)
    assert [[*each.columns] for each in (plain, by_value, by_input)] == [["x", ROWS], ["x"], ["x"]]
    np.testing.assert_array_equal(plain.columns["x"], x[known])
    np.testing.assert_array_equal(plain.one, np.argsort(x[known])[:-1])
    drift = rng.standard_normal(58) + np.linspace(-2, 2, 58)
    assert alike("calibration", drift, plain) is not None and alike("calibration", drift, by_value) is None


@pytest.mark.parametrize("start", ["= 40", pytest.param("", marks=pytest.mark.slow)])
def test_a_period_of_several_cycles_is_told(start: str) -> None:
    """From 40 the search ends at 36, tens of nats below 12, of which three are one of it."""
    rng, x = np.random.default_rng(0), np.arange(72.0)
    y = np.sin(x * np.pi / 6) + 0.5 * np.cos(x * np.pi / 3) + 0.4 * rng.standard_normal(72)
    text = f"input x : real\noutput y : real\nparam p : positive {start}\nparam s2 : positive\nparam sigma : positive\n"
    text += "latent f(x) ~ GP(0, s2 * Periodic(1, p))\ny ~ Normal(f, sigma)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, progress=False)
    found = [each for each in fit.diagnose() if "takes several cycles for one" in each.said]
    assert len(found) == bool(start)
    if found:
        assert 11.5 < float(found[0].remedy.split("'p': ")[1].rstrip("}")) < 12.5 and found[0].number > 10


def test_a_period_of_several_cycles_is_told_where_functions_of_one_are_smoother() -> None:
    """Three cycles in one take a third of the length-scale, with which one cycle alone is worth no more."""
    rng, x = np.random.default_rng(0), np.linspace(0, 20, 40)
    y = np.sin(2 * np.pi * x / 2.9) + 0.2 * rng.normal(size=40)
    text = (
        "input x : real\noutput y : real\nparam p : positive = 8.7\nparam ell : positive = 1\nparam sigma : positive\n"
    )
    text += "latent f(x) ~ GP(0, Periodic(ell, p))\ny ~ Normal(f, sigma)\n"
    fit = gpdsl.compile(text).fit({"x": x, "y": y}, progress=False)
    (found,) = (each for each in fit.diagnose().doubtful if "takes several cycles for one" in each.said)
    assert found.said.endswith("but for `ell`, 3 times as large") and "'p': 2.896" in found.remedy
