"""Pictures can be read: texts stay inside, only what belongs together is joined, nothing is hidden, units are said."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.dates import AutoDateLocator
from matplotlib.figure import Figure

import gpdsl
from gpdsl.results.pictures.inference import _logarithmic
from gpdsl.results.pictures.maps import _Panel, _placed, axis_of
from gpdsl.results.pictures.plot import Asked, suited
from gpdsl.results.pictures.rows import Column, seen_of
from gpdsl.results.pictures.style import canvas, folded, ink, legend, unshown

RNG = np.random.default_rng(3)
ROWS = 40
X, SIZE = np.sort(RNG.uniform(0, 4, ROWS)), RNG.uniform(1, 9, ROWS)
EXPOSED = {"x": X, "size": SIZE, "y": SIZE * np.sin(X) + 0.1 * RNG.normal(size=ROWS)}

DAYS = {
    "who": np.repeat(["ann", "bo", "cy", "di"], 10),
    "day": np.tile(np.arange(10), 4),
    "took": 250 + 10 * np.tile(np.arange(10), 4) + np.repeat(RNG.normal(0, 30, 4), 10) + RNG.normal(0, 9, ROWS),
}


@pytest.fixture(scope="module")
def exposed() -> gpdsl.Fit:
    return gpdsl.compile("""
input x : real
input size : real
output y : real
param s : positive = 0.1
latent f(x) ~ GP(0, RBF(1))
let twice = 2 * f
y ~ Normal(size * f, s)
""").fit(EXPOSED)


@pytest.fixture(scope="module")
def sleepless() -> gpdsl.Fit:
    return gpdsl.compile("""
index s in 1..S
input who : label[s]
input day : real
output took : real
param mu : real
param slope : real
param tau : positive
param sigma : positive
param of[s] : real ~ Normal(mu, tau)
took ~ Normal(of[who] + slope * day, sigma)
""").fit(DAYS, standardise=True)


def inside(figure: Figure) -> bool:
    """Whether all titles and labels lie inside of the figure."""
    figure.savefig(io.BytesIO())
    width, height = figure.get_size_inches() * figure.dpi
    texts = [text for axes in figure.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    boxes = [text.get_window_extent() for text in [*texts, figure._suptitle] if text is not None and text.get_text()]
    return all(box.x0 > -1 and box.y0 > -1 and box.x1 < width + 1 and box.y1 < height + 1 for box in boxes)


def test_long_texts_go_on_in_another_line() -> None:
    figure, panels = canvas(1, 2, 3.0, 2.5, "the turnover of a shop in a town with a long name, before taxes, in 2021")
    for panel in panels.flat:
        panel.set(title="a column with a long name", xlabel="kilometres_from_the_origin_of_the_survey along a road")
        panel.set_ylabel("a_very_long_name_of_an_output in dollars per square metre and year")
    assert not inside(figure)
    assert inside(folded(figure))
    assert figure.get_suptitle().count("\n") == 1


def test_notebooks_show_a_figure_by_themselves() -> None:
    figure, _ = canvas(1, 1, 2.0, 2.0)
    assert figure._repr_png_()[:8] == b"\x89PNG\r\n\x1a\n"


def test_rows_that_differ_in_other_inputs_are_not_joined(exposed: gpdsl.Fit) -> None:
    observed, twice, f = exposed.plot(EXPOSED).axes
    dots, bars = observed.lines[0], observed.collections[0]
    assert dots.get_linestyle() == "None" and len(bars.get_segments()) == ROWS
    np.testing.assert_allclose(dots.get_ydata(), exposed.predict(EXPOSED).mean("y"))
    assert [panel.lines[0].get_linestyle() for panel in (twice, f)] == ["-", "-"]  # of x alone
    same = exposed.plot({**EXPOSED, "size": np.full(ROWS, 2.0)}, names="y").axes[0]
    assert same.lines[0].get_linestyle() == "-" and len(same.lines[0].get_xdata()) == 200


def test_effects_of_groups_are_drawn_along_what_else_varies(sleepless: gpdsl.Fit) -> None:
    figure = sleepless.plot(DAYS)
    assert [panel.get_title() for panel in figure.axes] == [f"who = {name}" for name in ("ann", "bo", "cy", "di")]
    along, mean = figure.axes[2].lines[0].get_data()
    np.testing.assert_allclose(mean, sleepless.predict({"day": along, "who": ["cy"] * len(along)}).mean("took"))
    alone = sleepless.plot(DAYS, names="of").axes[0]
    assert (alone.get_xlabel(), alone.get_ylabel()) == ("who", "of (standardised)")
    assert suited(Asked(sleepless, {**DAYS, "day": [3] * ROWS}, None, "held")) == "curves"


def test_what_each_group_has_once_is_no_axis_of_its_own() -> None:
    """Eight Schools: each has a standard error, which is no place along which effects could be drawn."""
    data = {"who": list("abcd"), "y": [28.0, 8, -3, 7], "se": [15.0, 10, 16, 11]}
    fit = gpdsl.compile("""
index s in 1..S
input who : label[s]
input se : real
output y : real
param effect[s] : real ~ Normal(8, 10)
y ~ Normal(effect[who], se)
""").fit(data)
    assert [panel.get_xlabel() for panel in fit.plot(data).axes] == ["who", "who"]
    assert fit.plot(data).axes[0].lines[0].get_linestyle() == "None"


def test_observed_values_stand_beside_the_bar_of_their_label(sleepless: gpdsl.Fit) -> None:
    panel = sleepless.plot({**DAYS, "day": [3] * ROWS}, names="took").axes[0]
    at = panel.lines[-1].get_xdata()
    assert set(np.round(at - np.repeat([1, 2, 3, 4], 10), 6)) == {0.15}


def test_parameters_have_intervals_in_the_units_of_the_data(sleepless: gpdsl.Fit) -> None:
    positive, rest = sleepless.plot(kind="parameters").axes
    values, errors, units = sleepless.parameters, sleepless.standard_errors, sleepless.parameters_in_data_units
    assert [each.get_text() for each in positive.get_yticklabels()] == ["tau", "sigma"]
    *intervals, points = positive.lines[:3]
    np.testing.assert_allclose(points.get_xdata(), [units["tau"], units["sigma"]])
    for line, name in zip(intervals, ("tau", "sigma"), strict=True):
        ends = units[name] * np.exp(1.645 * np.array([-1, 1]) * errors[name] / values[name])
        np.testing.assert_allclose(line.get_xdata(), ends)
    assert [each.get_text() for each in rest.get_yticklabels()] == ["mu (standardised)", "slope (standardised)"]
    ends = values["slope"] + 1.645 * np.array([-1, 1]) * errors["slope"]
    np.testing.assert_allclose(rest.lines[1].get_xdata(), ends)


def test_a_bound_that_does_not_move_has_no_false_digits(sleepless: gpdsl.Fit) -> None:
    still = replace(sleepless, history=np.array([[1.0, -394.3, 6.1], [2.0, -394.3 + 1e-10, 6.2]]))
    low, high = still.plot(kind="bound").axes[0].get_ylim()
    assert (low, high) == pytest.approx((-394.4, -394.2))


def test_a_mean_and_its_deviation_stand_together() -> None:
    values = np.zeros((2, 2))
    regions = _Panel("regions", values)
    pairs = [_Panel(name, values, spread=spread) for name in "abc" for spread in (False, True)]
    assert _placed([regions, *pairs[:2]]) == ([regions, *pairs[:2]], 3)
    assert _placed([regions, *pairs]) == ([regions, None, *pairs], 2)
    assert _placed(pairs[:4]) == (pairs[:4], 2)
    assert _placed([regions] * 4) == ([*[regions] * 4, None, None], 3)
    assert _placed([*pairs, regions]) == ([*pairs, regions, None], 2)
    two = [*pairs, *pairs[:2]]
    assert _placed(two) == (two, 4)


def test_dates_of_a_narrow_panel_do_not_run_into_each_other() -> None:
    days = np.datetime64("1935-01-01") + 365 * np.arange(20)
    for width, most in ((3.0, 4), (9.0, 12)):
        panel = Figure(figsize=(width, 2)).subplots()
        panel.plot(days, np.zeros(20))
        axis_of(panel.xaxis, SimpleNamespace(label="t", kind="time", distinct=days))
        assert 2 <= len(panel.get_xticks()) <= most


def column(kind: str, values: np.ndarray, words: tuple = ()) -> Column:
    return Column("x", (), "x", values, kind, words)


def test_even_steps_do_not_beat_with_cycles() -> None:
    """Steps of whole cycles would draw a wave as a line."""
    days = column("time", np.arange(0, 1000, 1 / 24))
    wave = np.sin(2 * np.pi * days.grid(1000))
    assert np.ptp(wave) < 2 and np.ptp(wave[:300]) < 1.1
    uneven = days.grid(1000, uneven=True)
    assert np.ptp(np.sin(2 * np.pi * uneven[:300])) > 1.9
    assert np.all(np.diff(uneven) > 0) and [*uneven[[0, -1]]] == [*days.distinct[[0, -1]]]


def test_a_positive_input_over_decades_has_a_logarithmic_axis() -> None:
    doses = column("positive", np.geomspace(1e-3, 1e5, 50))
    np.testing.assert_allclose(doses.grid(9), 10.0 ** np.arange(-3, 6))
    panel = Figure(figsize=(4, 3)).subplots()
    axis_of(panel.xaxis, doses)
    axis_of(panel.yaxis, column("positive", np.linspace(1, 2000, 50)))
    assert (panel.get_xscale(), panel.get_yscale()) == ("log", "linear")


def test_words_of_a_narrow_panel_do_not_run_into_each_other() -> None:
    words = tuple(f"site {number}" for number in range(500))
    for width in (3.0, 8.0):
        panel = Figure(figsize=(width, 2)).subplots()
        axis_of(panel.xaxis, column("label", np.arange(1.0, 501), words))
        assert len(panel.get_xticks()) <= 3 * width


def test_numbers_of_a_logarithmic_axis_do_not_run_into_each_other() -> None:
    figure = Figure(figsize=(3.6, 2))
    panel = figure.subplots()
    values = np.array([1e-3, 1e22])
    _logarithmic(panel, values)
    panel.plot(values, [0, 1])
    figure.canvas.draw()
    low, high = panel.get_xlim()
    texts = [each for each in panel.get_xticklabels() if low <= each.get_position()[0] <= high]
    boxes = [each.get_window_extent() for each in texts]
    assert len(boxes) > 2
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))


def test_greys_are_of_the_texts_and_legends_tell_what_is_left_out() -> None:
    import matplotlib as mpl

    with mpl.rc_context({"text.color": "white"}):
        assert ink(0.5) == (1.0, 1.0, 1.0, 0.5)
    panel = Figure().subplots()
    panel.plot([0, 1], [0, 1], ".", ms=2, label="data")
    legend(panel, unshown((3, 4), 8))
    key = panel.get_legend()
    assert key is not None
    assert [each.get_text() for each in key.get_texts()] == ["data", "and 4 more"]
    assert key.get_lines()[0].get_markersize() > 4
    assert unshown((), 8) == 0


def test_rows_are_few_where_each_is_asked_of_many_settings(exposed: gpdsl.Fit) -> None:
    asked = seen_of(exposed, EXPOSED)
    assert asked.reach(2000, ["y"]) == 2000
    averaged = replace(asked, fit=replace(exposed, settings=SimpleNamespace(each=range(100))))
    assert [averaged.reach(1000, ["y", "f"]), averaged.reach(1000, ["y"], 10), averaged.reach(20)] == [250, 25, 20]


def test_checks_are_of_the_outputs_that_the_data_have() -> None:
    text = "output a : real\noutput b : real\nparam s : positive\na ~ Normal(0, s)\nb ~ Normal(0, s)\n"
    fit = gpdsl.compile(text).fit({"a": X, "b": X})
    assert Asked(fit, {"a": X}, None, "held").outputs() == ["a"]
    assert Asked(fit, {"a": X}, ("b",), "held").outputs() == ["b"]  # which is then said to be missing
    assert Asked(fit, None, None, "held").outputs() == ["a", "b"]


def test_a_bound_of_one_step_says_so(sleepless: gpdsl.Fit) -> None:
    with pytest.raises(gpdsl.GpdslError, match="at one step alone"):
        replace(sleepless, history=np.array([[1.0, -394.3, 6.1]])).plot(kind="bound")


@pytest.mark.slow
def test_a_chance_says_of_what_and_all_panels_are_counted() -> None:
    fit = gpdsl.compile("""
index p in 1..20
input x : real
input z : real
output ill : binary
latent f[p](x, z) ~ GP(0, RBF(1))
ill ~ Bernoulli(probit = f[1])
""").fit({"x": X[:4], "z": SIZE[:4], "ill": ["no", "yes", "no", "yes"]})
    data = {"x": X[:4], "z": SIZE[:4]}
    figure = fit.plot(data)
    assert figure.axes[0].get_title() == "probability of ill = yes"
    assert "9 of 41 panels" in figure.get_suptitle().replace("\n", " ")
    effect = fit.plot(data, names="ill", kind="partial").axes[0]
    assert effect.get_ylabel().replace("\n", " ") == "probability of ill = yes"
    low, high = effect.get_ylim()  # a probability of 0.5 along x stays in the middle
    assert low < 0 and 0.9 < high <= 1.02


@pytest.mark.slow
def test_inducing_points_in_time_are_at_dates() -> None:
    days = np.datetime64("2024-01-01") + np.arange(30)
    text = "input t : time\noutput y : real\nlatent f(t) ~ GP(0, RBF(9))\ny ~ Normal(f, 1)\n"
    fit = gpdsl.compile(text).fit({"t": days, "y": np.zeros(30)}, inducing=3, steps=1)
    with_data, alone = (fit.plot(data, kind="inducing").axes[0] for data in ({"t": days}, None))
    assert all(isinstance(panel.xaxis.get_major_locator(), AutoDateLocator) for panel in (with_data, alone))
    assert len(with_data.patches) == 1 and not alone.patches  # without data there is no picture of them


def test_marks_of_the_first_and_last_label_stand_inside(sleepless: gpdsl.Fit) -> None:
    panel = sleepless.plot({**DAYS, "day": [3] * ROWS}, names="took").axes[0]
    assert panel.get_xlim()[0] < 0.9 and panel.get_xlim()[1] > 4.1
