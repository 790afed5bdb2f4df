"""Labels go into predictions by their words, and come out by them: in pictures, totals and tables of arrays."""

from __future__ import annotations

import numpy as np
import pytest

import gpdsl
from gpdsl.results.serving import offered

G = np.array(["north", "south", "west"])[np.arange(30) % 3]
X = np.linspace(-1, 1, 30)
DATA = {"x": X, "g": G, "y": X + np.array([-4.0, 1.0, 5.0])[np.arange(30) % 3]}
MODEL = """
index k in 1..K
input x : real
input g : label[k]
output y : real
param a[k] : real ~ Normal(0, 4)
latent f(x) ~ GP(0, RBF(1))
let same = 2
y ~ Normal(f + a[g], 0.1)
"""


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(MODEL).fit(DATA)


def test_each_group_has_a_panel_of_its_own_level(fit: gpdsl.Fit) -> None:
    figure = fit.plot(DATA, names=["y"])
    assert [panel.get_title() for panel in figure.axes] == ["g = north", "g = south", "g = west"]
    for word, panel in zip(("north", "south", "west"), figure.axes, strict=True):
        along, mean = panel.lines[0].get_data()
        np.testing.assert_allclose(mean, fit.predict({"x": along, "g": [word] * len(along)}).mean("y"))


def test_residuals_are_at_the_predicted_means(fit: gpdsl.Fit) -> None:
    at = fit.plot(DATA, kind="residuals").axes[0].lines[0].get_xdata()
    np.testing.assert_allclose(at, fit.predict(DATA).mean("y"))


def test_maps_and_effects_know_the_words(fit: gpdsl.Fit) -> None:
    panel = fit.plot(DATA, names=["y"], kind="maps").axes[0]
    assert np.ptp(np.asarray(panel.collections[0].get_array()).reshape(3, 40)[:, 20]) > 8
    assert [each.get_text() for each in panel.get_yticklabels()] == ["north", "south", "west"]
    (effect,) = (each for each in fit.plot(DATA, kind="partial").axes if each.get_xlabel() == "g")
    mean = effect.lines[0].get_ydata()
    middle = {"x": [np.quantile(X, 0.5, method="nearest")] * 3, "g": ["north", "south", "west"]}
    np.testing.assert_allclose(mean, fit.predict(middle).mean("y"))
    assert [each.get_text() for each in effect.get_xticklabels()] == ["north", "south", "west"]


def test_a_label_is_held_at_its_most_frequent_level(fit: gpdsl.Fit) -> None:
    """In the middle of the alphabet is `south`."""
    rows = {"x": X[:5], "g": ["west", "north", "west", "south", "north"][::-1], "y": X[:5]}
    (effect,) = (each for each in fit.plot(rows, kind="partial").axes if each.get_xlabel() == "x")
    along, mean = effect.lines[0].get_data()
    np.testing.assert_allclose(mean, fit.predict({"x": along, "g": ["north"] * len(along)}).mean("y"))


def test_what_does_not_vary_has_one_colour(fit: gpdsl.Fit) -> None:
    low, high = fit.plot(DATA, names=["same"], kind="maps").axes[0].collections[0].get_clim()
    assert low < 1.9 and high > 2.1


def test_groups_and_coordinates_are_words(fit: gpdsl.Fit) -> None:
    new = {"x": [0.0, 0.0, 1.0], "g": ["zone", "south", "east"]}
    prediction = fit.predict(new)
    total = prediction.total("y", by="g")
    assert total.groups is not None and total.groups.tolist() == ["east", "south", "zone"]
    assert abs(total["south"].mean - prediction.mean("y")[1]) < 0.1
    pytest.importorskip("xarray")
    assert prediction.to_xarray()["g"].values.tolist() == new["g"]
    assert fit.to_datatree(new, draws=2)["constant_data"]["g"].values.tolist() == new["g"]


def test_numbers_as_levels_are_told_too() -> None:
    model = gpdsl.compile(MODEL.replace(" ~ Normal(0, 4)", ""))
    numbered = DATA | {"g": 10.0 * (1 + np.arange(30) % 3)}
    fit = model.fit(numbered)
    assert [each.get_title() for each in fit.plot(numbered, names=["y"]).axes] == ["g = 10", "g = 20", "g = 30"]
    with pytest.raises(gpdsl.GpdslError, match="row 2: the fit has seen no `40`"):
        fit.predict({"x": [0.0, 0.0], "g": [10.0, 40.0]})


def test_served_inputs_are_numbers_of_levels(fit: gpdsl.Fit) -> None:
    served = offered(fit)["y"].evaluate(np.array([[0.0, 2.0]]))
    expected = fit.predict({"x": [0.0], "g": ["south"]})
    np.testing.assert_allclose(served, [[expected.mean("y")[0], np.sqrt(expected.variance("y")[0])]])
    with pytest.raises(gpdsl.GpdslError, match="`g` is the number of a level, from 1 to 3"):
        offered(fit)["y"].evaluate(np.array([[0.0, 4.0]]))


def test_simulated_labels_keep_the_words_of_the_data() -> None:
    drawn = gpdsl.compile(MODEL).sample_prior({"x": X, "g": G})
    assert drawn.data["g"].tolist() == G.tolist()


def test_words_that_only_the_data_have_are_simulated() -> None:
    """An output's own column says which words there are; without one they are numbers."""
    model = gpdsl.compile("""
index c in 1..C
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, RBF(1))
y ~ Categorical(logits = f)
""")
    assert set(model.sample_prior({"x": X, "y": G}).data["y"]) <= {"north", "south", "west"}
    with pytest.raises(gpdsl.GpdslError, match="how large `C` is"):
        model.sample_prior({"x": X, "y": [None] * 30})


def test_levels_are_points_with_bars(fit: gpdsl.Fit) -> None:
    """A line between words would say that there is something between them."""
    (effect,) = (each for each in fit.plot(DATA, kind="partial").axes if each.get_xlabel() == "g")
    assert effect.lines[0].get_linestyle() == "None" and effect.lines[0].get_marker() == "o"
    (bars,) = (each for each in effect.collections)
    low, high = fit.predict(
        {"x": [np.quantile(X, 0.5, method="nearest")] * 3, "g": ["north", "south", "west"]}
    ).quantile("y", [0.05, 0.95])
    np.testing.assert_allclose([each[:, 1] for each in bars.get_segments()], np.stack([low, high], -1))
