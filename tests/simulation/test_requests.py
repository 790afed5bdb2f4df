"""What the user may choose, what is chosen for him, and what is refused; every model can be drawn and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.data.errors import DataError
from gpdsl.errors import GpdslError
from gpdsl.language.vocabulary import FUNCTIONS, REDUCTIONS
from gpdsl.simulation.interpreter import ELEMENTARY, REDUCTIONS as FOLDS
from tests.goldens import assert_golden

from . import models


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    above = np.concatenate([np.zeros((len(depth), 1)), depth[:, :-1]], axis=1)
    return np.cumsum(2 * (depth - above) / velocity, axis=1)


FORWARD = {"travel_time": travel_time}


def zoo_model(name: str) -> gpdsl.Model:
    declared = gpdsl.zoo(name).declarations.externals
    return gpdsl.zoo(name, externals={each: FORWARD[each] for each in declared})


@pytest.mark.parametrize("name", gpdsl.zoo_names())
def test_every_zoo_model_is_drawn_and_its_data_are_accepted(name: str, tmp_path: Path) -> None:
    model = zoo_model(name)
    if model.declarations.likelihoods:
        with pytest.raises(DataError, match="D132"):
            model.sample_prior()
        return
    drawn = model.sample_prior(rows=210, seed=3)
    assert all(np.isfinite(values).all() for values in drawn.truth().values())
    path = tmp_path / "data.csv"
    drawn.save(path)
    assert name in model.explain(str(path))


@pytest.mark.parametrize("name", models.DRAWN)
def test_every_feature_is_drawn_and_read_back_exactly(name: str, tmp_path: Path) -> None:
    model = gpdsl.compile(models.DRAWN[name])
    drawn = model.sample_prior(rows=30, seed=1)
    again = model.sample_prior(rows=30, seed=1)
    other = model.sample_prior(rows=30, seed=2)
    assert any(np.any(drawn.data[each] != other.data[each]) for each in drawn.data)
    for suffix in (".csv", ".parquet", ".tsv"):
        drawn.save(tmp_path / f"data{suffix}")
        table = gpdsl.data.read_table(str(tmp_path / f"data{suffix}"))
        for column, values in again.table().items():
            assert table.columns[column].tolist() == values.tolist()


def test_inputs_are_taken_from_data_and_outputs_are_not(tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text("place,y\n0.5,oops\n1.5,\n2.5,3\n")
    drawn = gpdsl.compile(models.REGRESSION).sample_prior(str(path), columns={"x": "place"})
    np.testing.assert_array_equal(drawn.data["x"], [0.5, 1.5, 2.5])
    assert drawn.drawn == ()
    assert np.isfinite(drawn.data["y"]).all()


def test_some_inputs_given_by_name() -> None:
    model = gpdsl.compile(models.PREFERENCE)
    drawn = model.sample_prior(inputs={"a": np.zeros((4, 2)) + np.arange(4)[:, None]})
    assert drawn.drawn == ("b",)
    assert drawn.data["b"].shape == (4, 2)


def test_sizes_and_parameters_as_asked() -> None:
    model = gpdsl.zoo("boston")
    drawn = model.sample_prior(rows=20, sizes={"D": 5}, parameters={"sigma": 1e-6, "ell": [1, 2, 3, 4, 5]})
    assert drawn.data["x"].shape == (20, 5)
    assert drawn.assumed == {}
    np.testing.assert_allclose(drawn.data["y"], drawn.latents["f"], atol=1e-4)
    assert model.sample_prior(rows=20).assumed == {"D": 2}


@pytest.mark.parametrize("ell", [1e-3, 0.5, 2000.0])
def test_drawn_inputs_suit_the_length_scale(ell: float) -> None:
    """Neighbours are correlated, the ends are not."""
    drawn = gpdsl.compile(models.REGRESSION).sample_prior(rows=200, parameters={"ell": ell})
    x = drawn.data["x"]
    assert np.all(np.diff(x) >= 0)
    assert 8 * ell < np.ptp(x) < 10.5 * ell
    assert np.corrcoef(drawn.latents["f"][1:], drawn.latents["f"][:-1])[0, 1] > 0.8


def test_missing_elements_stay_missing() -> None:
    text = models.CHAINED.replace("t[p > 1] ~ Normal(t[p-1] + f[p], 0.1)", "t[3] ~ Normal(f[3], 0.1)")
    drawn = gpdsl.compile(text).sample_prior(rows=5)
    assert np.isnan(drawn.data["t"]).any(axis=0).tolist() == [False, True, False, True]


REFUSED: dict[str, tuple[str, str, dict]] = {
    "external_likelihood": ("D132", models.OPAQUE_LIKELIHOOD, {}),
    "too_many_rows": ("D133", models.REGRESSION, {"rows": 20_000}),
    "hostile_rows": ("D133", models.REGRESSION, {"rows": 10**11}),
    "not_finite_covariance": (
        "D134",
        models.REGRESSION.replace("RBF(ell)", "Linear(ell)"),
        {"inputs": {"x": [1e200, 2e200]}},
    ),
    "negative_deviation": ("D135", models.REGRESSION.replace("Normal(f, sigma)", "Normal(f, f)"), {}),
    "mixture_argument": ("D135", models.MIXTURE.replace("Normal(f, 0.1)", "Normal(f, f - 9)"), {}),
    "out_of_reach": ("D136", models.WARPED.replace("Normal(f, 0.1)", "Normal(f, 1e4)"), {}),
    "no_density": ("D136", models.BY_FORMULA.replace("-abs(y - mu) / s", "log(-1 - y^2 - mu^2 - s)"), {}),
    "unknown_parameter": ("D137", models.REGRESSION, {"parameters": {"sigm": 1}}),
    "unknown_input": ("D137", models.REGRESSION, {"inputs": {"z": [1]}}),
    "unknown_size": ("D137", models.REGRESSION, {"sizes": {"D": 3}}),
    "no_rows": ("D138", models.REGRESSION, {"rows": 0}),
    "negative_seed": ("D138", models.REGRESSION, {"seed": -1}),
    "too_large_a_size": ("D138", gpdsl.zoo_text("boston"), {"sizes": {"D": 10**9}}),
    "rows_of_the_inputs": ("D138", models.REGRESSION, {"rows": 3, "inputs": {"x": [1.0, 2.0]}}),
    "prior_outside": ("D138", models.PRIORS.replace("~ Normal(1, 1)", "~ Normal(-100, 1)"), {"draw_parameters": True}),
    "missing_input": ("D101", models.REGRESSION, {"data": {"z": [1.0, 2.0]}}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    code, text, options = REFUSED[name]
    externals = {"odd": lambda y, f: -((y - f) ** 2)} if "odd" in text else None
    with pytest.raises(GpdslError) as caught:
        gpdsl.compile(text, externals=externals).sample_prior(**options)
    assert f"error[{code}]" in str(caught.value)
    assert_golden(f"simulation/{name}.txt", str(caught.value))


def test_too_large_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpdsl.simulation.interpreter.MAX_VISITS", 10_000)
    with pytest.raises(DataError, match="D139") as caught:
        gpdsl.compile("index p in 1..9000\n" + models.REGRESSION + "let a = sum(p, p * f)\n").sample_prior(rows=2)
    assert_golden("simulation/too_large.txt", str(caught.value))


def test_every_function_of_the_language_has_a_value() -> None:
    assert set(FUNCTIONS) - set(ELEMENTARY) == set()
    assert set(REDUCTIONS) - set(FOLDS) == set()


def test_columns_are_told_apart() -> None:
    """`x1` is the first element of `x`, unless another quantity has that name."""
    text = "input x : real[2]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n"
    assert list(gpdsl.compile(text).sample_prior(rows=2).table()) == ["x1", "x2", "y"]
    two = text.replace("output", "input x1 : real\noutput").replace("Normal(f", "Normal(f + x1")
    assert list(gpdsl.compile(two).sample_prior(rows=2).table()) == ["x[1]", "x[2]", "x1", "y"]
