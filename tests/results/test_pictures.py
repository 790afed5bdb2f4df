"""Pictures: what is drawn, against predictions, data and formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.scored import among_draws, places_drawn
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(0)
ROWS = 48

SITES = gpdsl.compile("""
model sites "Counts at $3$ sites"
input t : real
input site : count
output n : count
output y : real
param ell : positive = 1 ~ Gamma(2, 1)
param a : real = 0 ~ Normal(0, 2)
param s : positive = 0.3
latent f(t, site) ~ GP(0, RBF(ell, on = t) * RBF(1, on = site))
let rate = exp(f + a)
n ~ Poisson(rate)
y ~ Normal(f, s)
""")
T, SITE = RNG.uniform(0, 5, ROWS), np.arange(ROWS) % 3
F = np.sin(T + SITE)
AT_SITES = {"t": T, "site": SITE, "n": RNG.poisson(np.exp(F)), "y": F + 0.3 * RNG.normal(size=ROWS)}

SMOOTH = gpdsl.compile("""
input x : real[3]
output y : real
param ell : positive = 1
param s : positive = 0.1
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, s)
""")
X = RNG.uniform(10, 20, (40, 3))
SMOOTH_DATA = {"x": X, "y": 100 + 10 * np.sin(X[:, 1]) + X[:, 2]}

KINDS = gpdsl.compile("""
index c in {"low", "mid", "high"}
input x : real[2]
output y : ordinal[c]
param cut : ordered[2] = [-0.5, 0.5]
latent f(x) ~ GP(0, RBF(1))
y ~ Ordinal(probit = f, cutpoints = cut)
""")
SIDE = 6
PLACES = np.stack([each.ravel() for each in np.meshgrid(*[np.linspace(-2, 2, SIDE)] * 2)], axis=1)
KINDS_DATA = {"x": PLACES, "y": np.array(["low", "mid", "high"])[np.digitize(PLACES[:, 0], [-0.7, 0.7])]}


@pytest.fixture(scope="module")
def sites() -> gpdsl.Fit:
    return unlearnt(SITES, AT_SITES, inducing=8)


@pytest.fixture(scope="module")
def smooth() -> gpdsl.Fit:
    return SMOOTH.fit(SMOOTH_DATA, steps=3, standardise=True)


@pytest.fixture(scope="module")
def kinds() -> gpdsl.Fit:
    return KINDS.fit(KINDS_DATA, steps=2)


def test_groups_are_small_panels_with_their_own_data(sites: gpdsl.Fit) -> None:
    figure = sites.plot(AT_SITES, names=["y"])
    assert [panel.get_title() for panel in figure.axes] == ["site = 0", "site = 1", "site = 2"]
    assert figure.get_suptitle() == r"Counts at \$3\$ sites"
    for site, panel in enumerate(figure.axes):
        line, points = panel.lines
        along, mean = line.get_data()
        there = {"t": along, "site": np.full(len(along), site)}
        np.testing.assert_allclose(mean, sites.predict(there).mean("y"))
        np.testing.assert_array_equal(points.get_data(), [T[site == SITE], AT_SITES["y"][site == SITE]])


def test_maps_are_means_and_deviations(sites: gpdsl.Fit) -> None:
    figure = sites.plot(AT_SITES, names=["y"], kind="maps")
    mean, deviation = (panel.collections[0] for panel in figure.axes[:2])
    across, up = (np.linspace(T.min(), T.max(), 40), np.arange(3))
    first, second = (each.ravel() for each in np.meshgrid(across, up))
    prediction = sites.predict({"t": first, "site": second})
    np.testing.assert_allclose(np.ravel(mean.get_array()), prediction.mean("y"))
    np.testing.assert_allclose(np.ravel(deviation.get_array()), np.sqrt(prediction.variance("y")))
    np.testing.assert_array_equal(figure.axes[0].collections[1].get_array(), AT_SITES["y"])


@pytest.mark.parametrize("others", ["held", "averaged"])
def test_partial_dependence_moves_one_input(smooth: gpdsl.Fit, others: str) -> None:
    figure = smooth.plot(SMOOTH_DATA, others=others)
    assert figure.axes[0].get_xlabel() == "x[2]"  # changes most
    along, mean = figure.axes[0].lines[0].get_data()
    base = np.quantile(X, 0.5, axis=0, method="nearest")[None]
    if others == "averaged":
        base = X[np.sort(np.random.default_rng(0).choice(40, 30, replace=False))]
    for value, found in zip(along[::9], mean[::9], strict=True):
        moved = base.copy()
        moved[:, 1] = value
        assert found == pytest.approx(smooth.predict({"x": moved}).mean("y").mean())


def test_without_data_the_inputs_are_those_fitted(smooth: gpdsl.Fit) -> None:
    with_data, without = smooth.plot(SMOOTH_DATA), smooth.plot()
    for one, other in zip(with_data.axes, without.axes, strict=True):
        np.testing.assert_allclose(one.lines[0].get_data(), other.lines[0].get_data(), rtol=1e-6)


def test_levels_have_regions_and_probabilities(kinds: gpdsl.Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a region colours are the stronger, the more probable the level is."""
    monkeypatch.setattr("gpdsl.results.pictures.maps.SIDE", SIDE)
    panel = kinds.plot(KINDS_DATA, names="y").axes[0]
    assert [each.get_text() for each in panel.get_legend().get_texts()] == ["low", "mid", "high"]
    colours = np.asarray(panel.collections[0].get_array()).reshape(-1, 3)
    prediction = kinds.predict({"x": PLACES})
    chances = prediction.mean("y")
    for level in range(3):
        mine = np.argmax(chances, axis=1) == level
        assert stats.spearmanr(chances[mine, level], colours[mine].sum(axis=1)).statistic < -0.99
    shown = kinds.plot(KINDS_DATA, kind="calibration").axes[0]
    assert len(shown.containers) == 3
    monkeypatch.setattr(prediction, "mean", lambda name: np.repeat(chances, 20, axis=0))
    levels = np.array([RNG.choice(3, p=each / each.sum()) for each in np.repeat(chances, 20, axis=0)])
    found = places_drawn(prediction, "y", levels.astype(float))
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_ranks_are_places_in_the_predictive_distribution(sites: gpdsl.Fit, smooth: gpdsl.Fit) -> None:
    prediction = smooth.predict(SMOOTH_DATA)
    normal = stats.norm(prediction.mean("y"), np.sqrt(prediction.variance("y")))
    np.testing.assert_allclose(places_drawn(prediction, "y", SMOOTH_DATA["y"]), normal.cdf(SMOOTH_DATA["y"]))
    counts, prediction = AT_SITES["n"].astype(float), sites.predict(AT_SITES)
    counts[3] = np.nan
    found = places_drawn(prediction, "n", counts)
    assert np.isnan(found[3]) and np.isnan(found).sum() == 1
    for row in (0, 1, 2, 10):
        below = prediction.probability(f"n < {counts[row]:g}")[row]
        assert below <= found[row] <= prediction.probability(f"n <= {counts[row]:g}")[row]


def test_shares_of_draws_are_uniform_where_the_model_is_right(sites: gpdsl.Fit) -> None:
    prediction = sites.predict({"t": np.repeat(T, 10), "site": np.repeat(SITE, 10)})
    low, high = among_draws(prediction, "n", prediction.sample("n", 1, seed=3)[0])
    assert np.all(low < high)
    assert stats.kstest(low + RNG.random(len(low)) * (high - low), "uniform").pvalue > 0.01


def test_residuals_calibration_and_counts() -> None:
    sites = SITES.fit(AT_SITES, inducing=8, steps=4)
    left, right, *_ = sites.plot(AT_SITES, kind="residuals").axes
    drawn = left.lines[0].get_ydata()
    np.testing.assert_allclose(np.sort(drawn), right.lines[0].get_ydata())
    share = sites.plot(AT_SITES, names=["y"], kind="calibration").axes[0].lines[-1].get_ydata()
    assert np.all(np.diff(share) >= 0) and 0.8 < share[-1] <= 1
    bars = sites.plot(AT_SITES, kind="rootogram").axes[0].patches
    assert sum(bar.get_height() ** 2 for bar in bars) == pytest.approx(ROWS)
    assert bars[0].get_height() ** 2 == pytest.approx(np.sum(AT_SITES["n"] == 0))


def test_the_way_of_inference(sites: gpdsl.Fit, smooth: gpdsl.Fit) -> None:
    steps, value = sites.plot(kind="bound").axes[0].lines[0].get_data()
    np.testing.assert_array_equal([steps, value], sites.history[:, :2].T)
    data, points = sites.plot(AT_SITES, kind="inducing").axes[0].lines
    np.testing.assert_array_equal(data.get_data(), [T, SITE])
    np.testing.assert_allclose(np.stack(points.get_data(), axis=1), np.asarray(sites.inducing[0].points))
    with pytest.raises(gpdsl.GpdslError, match="has no inducing points"):
        smooth.plot(kind="inducing")
    with pytest.raises(gpdsl.GpdslError, match="no steps"):
        replace(smooth, history=np.zeros((0, 3))).plot(kind="bound")


def test_parameters_have_their_priors(sites: gpdsl.Fit) -> None:
    positive, rest = sites.plot(kind="parameters").axes
    prior, names = positive.lines[0], [each.get_text() for each in positive.get_yticklabels()]
    values = next(each for each in positive.lines if each.get_label() == "learnt")
    assert names == ["ell", "s"] and rest.get_yticklabels()[0].get_text() == "a"
    np.testing.assert_allclose(prior.get_xdata(), stats.gamma(2, scale=1).ppf([0.05, 0.95]), rtol=2e-3)
    np.testing.assert_allclose(values.get_xdata(), [float(sites.parameters[name]) for name in names])
    np.testing.assert_allclose(rest.lines[0].get_xdata(), stats.norm(0, 2).ppf([0.05, 0.95]), rtol=2e-2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "residual"}, "did you mean 'residuals'"),
        ({"kind": 3}, "kind: there is no 3; expected one of curves,"),
        ({"others": "fixed"}, "others: there is no"),
        ({"names": ["z"]}, "names: there is no 'z'; expected one of f, rate, n, y"),
        ({"names": np.array(["f", "z"])}, "names: there is no .*'z'"),
        ({"names": 0}, "`names`: expected a list of texts or a text, got 0"),
        ({"kind": "curves"}, r"expected 1 input column to vary, found 2 \(t,site\)"),
        ({"kind": "fields"}, "this picture is of fields; the model has none"),
        ({"kind": "rootogram", "names": ["y"]}, "`y`: this picture is of outputs of type count; it has n"),
        ({"kind": "residuals", "data": {"t": [1.0], "site": [1]}}, "no value of `n`"),
        ({"kind": "residuals", "data": None}, "--data FILE"),
    ],
)
def test_what_cannot_be_drawn_says_so(sites: gpdsl.Fit, options: dict[str, Any], words: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=words):
        sites.plot(**{"data": AT_SITES, **options})


def test_of_many_rows_a_part_is_drawn(sites: gpdsl.Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {name: np.resize(values, 200_000) for name, values in AT_SITES.items()}
    predicted: list[int] = []
    before = gpdsl.Fit.predict_bound
    monkeypatch.setattr(
        gpdsl.Fit, "predict_bound", lambda fit, data, *rest: (predicted.append(data.rows), before(fit, data, *rest))[1]
    )
    panel = sites.plot(many, names=["y"]).axes[0]
    assert len(panel.lines[1].get_xdata()) == 5000 and panel.lines[1].get_rasterized()
    sites.plot(many, kind="residuals", names=["y"])
    assert predicted == [600, 2000]


def test_rows_are_where_their_variables_put_them() -> None:
    rng = np.random.default_rng(0)
    data = {"y": rng.normal(size=(9, 1)) * [1.0, -1.0] + 0.1 * rng.normal(size=(9, 2))}
    fit = unlearnt(gpdsl.zoo("latent_variable"), data)
    (panel,) = fit.plot(data).axes
    found = fit.row_variables(data)["w"].mean
    np.testing.assert_allclose(np.stack(panel.lines[0].get_data(), axis=1), found)
    assert [panel.get_xlabel(), panel.get_ylabel()] == ["w[1]", "w[2]"]
    for names, kind in ((["f"], "embedding"), (None, "curves")):
        with pytest.raises(gpdsl.GpdslError):
            fit.plot(data, names, kind=kind)


def test_one_variable_of_rows_stands_above_them() -> None:
    text = "input x : real\noutput y : real\nrow w ~ Normal(0, 1)\nlatent f(x, w) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    data = {"x": np.arange(5.0), "y": np.sin(np.arange(5.0))}
    fit = unlearnt(text, data)
    (panel,) = fit.plot(fit.bind(data, None, outputs=False), kind="embedding").axes  # as a command has the rows
    np.testing.assert_allclose(panel.lines[0].get_ydata(), fit.row_variables(data)["w"].mean)
    with pytest.raises(gpdsl.GpdslError, match="pass the data"):
        fit.plot(kind="embedding")


def test_panels_of_groups_are_as_fine_as_all_rows() -> None:
    """Each has few rows of its own: a grid of these would pass by the cycles that the others have."""
    model = gpdsl.compile(
        "index s in 1..S\ninput x : real\ninput g : label[s]\noutput y : real\n"
        "param a[s] : real ~ Normal(0, 1)\nlatent f(x) ~ GP(0, Periodic(1, 0.1))\ny ~ Normal(f + a[g], 0.1)\n"
    )
    x = np.linspace(0.0, 9.0, 300)
    fit = model.fit({"x": x, "g": np.arange(300) % 3, "y": np.sin(20.0 * np.pi * x)}, steps=1, diagnose="no")
    panels = fit.plot({"x": x, "g": np.arange(300) % 3}).axes
    assert [len(panel.lines[0].get_xdata()) for panel in panels] == [300, 300, 300]
