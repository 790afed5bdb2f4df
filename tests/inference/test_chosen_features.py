"""Features that are not points, chosen without being asked for where they leave less open, or let rows be summed up."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference import summed
from gpdsl.inference.exact import engine
from gpdsl.inference.inducing import choosing, growth
from gpdsl.inference.plan import options
from tests.inference.conftest import COUNTS
from tests.inference.test_inducing import SERIES, evidence, series

PAIR = """
input x : real
output n : count
output y : real
param short : positive = 0.5
param long : positive = 3
latent rough(x) ~ GP(0, Matern32(short))
latent smooth(x) ~ GP(0, RBF(long))
n ~ Poisson(exp(rough))
y ~ StudentT(4, smooth, 0.3)
"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of rows and inducing variables that decide, a tenth as large or less."""
    for module, name, value in [
        (options, "DENSE_ROWS", 150),
        (options, "DENSE_ALONE", 150),
        (options, "DEFAULT_INDUCING", 20),
        (summed, "DEFAULT_INDUCING", 20),
        (summed, "EXACT_ROWS", 150),
        (growth, "EXACT_ROWS", 150),
        (engine, "EXACT_VALUES", 100),
        (choosing, "FEW", 60),
    ]:
        monkeypatch.setattr(module, name, value)


def dense(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Twenty rows in each length-scale."""
    data = series(rng, rows)
    return {"x": data["x"] / 4, "y": np.interp(data["x"] / 4, data["x"], data["y"]) + 0.2 * rng.normal(size=rows)}


def counts(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    data = series(rng, rows)
    return {"x": data["x"], "n": rng.poisson(np.exp(1 + data["y"]))}


def test_what_many_rows_lose_is_little_at_once(small: None, rng: np.random.Generator) -> None:
    data = dense(rng, 600)
    data["x"] /= 3
    fit = gpdsl.compile(SERIES.replace("0.5", "0.3")).fit(data, fixed=["ell", "s2", "sigma"], diagnose="no")
    assert fit.choice.features and 0.0 < evidence(data) - fit.elbo < 2.0


def test_rows_without_a_value_are_not_counted(small: None, rng: np.random.Generator) -> None:
    """Half of the rows are few enough to be exact; all of them would be summed up."""
    data, model = dense(rng, 180), gpdsl.compile(SERIES)
    data["y"][::2] = np.nan
    known = {name: values[1::2] for name, values in data.items()}
    fit, dropped = (model.fit(each, fixed=["ell", "s2", "sigma"], diagnose="no") for each in (data, known))
    assert fit.choice.exact == dropped.choice.exact == (90,)
    np.testing.assert_allclose(fit.elbo, dropped.elbo, rtol=1e-9)


@pytest.mark.slow
def test_many_rows_of_one_process_are_summed_up(small: None, rng: np.random.Generator, tmp_path: Path) -> None:
    data, model = dense(rng, 450), gpdsl.compile(SERIES)
    said = model.explain(data)
    assert "20 inducing variables fourier(20), Fourier features" in said
    assert "inducing: 450 rows above 150, which these features let be summed up once" in said
    fit, exact = model.fit(data), model.fit(data, inducing=0)
    assert fit.choice.features == f"fourier({fit.choice.inducing})" and fit.options.inducing is None
    assert 0.0 < exact.elbo - fit.elbo < 3.0
    assert model.fit(data, inducing=fit.choice.inducing).elbo < fit.elbo
    assert fit.plot() is not None
    new = {"x": np.array([-1.0, 3.3, 18.0, 24.0])}
    np.testing.assert_allclose(fit.predict(new).mean("f"), exact.predict(new).mean("f"), atol=0.05)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    np.testing.assert_array_equal(again.predict(new).mean("f"), fit.predict(new).mean("f"))
    further = model.fit(data, start=again)
    assert further.choice.features == fit.choice.features
    assert further.elbo == pytest.approx(fit.elbo, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ({}, {"dtype": "float32"}),
        ({}, {"batch": 100}),
        ({}, {"inducing": 20}),
        ({"Normal(f, sigma)": "StudentT(4, f, sigma)"}, {}),
        ({"Matern32(ell)": "Matern32(ell) * Matern12(2 * ell)"}, {}),
        ({"Matern32(ell)": "RBF(ell)"}, {}),
        ({"Normal(f, sigma)": "Normal(f + x, sigma)"}, {}),
    ],
)
def test_rows_that_cannot_be_summed_up_have_points(
    small: None, rng: np.random.Generator, change: dict[str, str], given: dict[str, Any]
) -> None:
    text = SERIES
    for old, new in change.items():
        text = text.replace(old, new)
    assert "20 inducing points" in gpdsl.compile(text).explain(series(rng, 300), **given)


def test_few_distinct_inputs_and_elements_of_outputs_have_points(small: None, rng: np.random.Generator) -> None:
    data = series(rng, 300)
    assert "20 inducing points" in gpdsl.compile(SERIES).explain(data | {"x": np.arange(300.0) % 20})
    text = "index p in 1..2\n" + SERIES.replace("output y : real", "output y[p] : real").replace("y ~", "y[1] ~")
    assert "20 inducing points" in gpdsl.compile(text).explain(data | {"y": np.stack([data["y"]] * 2, axis=1)})


def test_sums_of_rows_do_not_round_away_what_a_large_offset_leaves(rng: np.random.Generator) -> None:
    data, bounds = dense(rng, 100), []
    for offset in (0.0, 1e7):
        model = gpdsl.compile(SERIES.replace("Normal(f, sigma)", f"Normal(f + {offset}, sigma)"))
        given = data | {"y": data["y"] + offset}
        bounds.append(model.fit(given, inducing="fourier(20)", fixed=["ell", "s2", "sigma"]).elbo)
    assert bounds[1] == pytest.approx(bounds[0], abs=1e-4)


@pytest.mark.slow
def test_points_take_over_where_the_rows_are_in_one_place(small: None, rng: np.random.Generator) -> None:
    data = dense(rng, 450)
    data["x"][0] = 2000.0
    model = gpdsl.compile(SERIES)
    fit = model.fit(data)
    assert not fit.choice.features and model.fit(data, inducing=0).elbo - fit.elbo < 3.0


@pytest.mark.parametrize(
    ("kernel", "terms"),
    [("Matern12(ell) + 0.5 * Matern52(3 * ell)", 2), ("s2 * (Matern32(ell) + Constant())", 1), ("RBF(ell)", 0)],
)
def test_kernels_side_by_side_share_the_number_of_features(
    small: None, rng: np.random.Generator, kernel: str, terms: int
) -> None:
    said = gpdsl.compile(SERIES.replace("s2 * Matern32(ell)", kernel)).explain(series(rng, 300))
    assert (f"fourier({20 // terms})" in said) if terms else ("20 inducing points" in said)


@pytest.mark.slow
def test_features_are_chosen_where_they_leave_clearly_less_open(
    small: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "BUDGET", 450 * 60.0**2)
    data, model = counts(rng, 450), gpdsl.compile(COUNTS.replace("RBF", "Matern32"))
    fit = model.fit(data)
    assert fit.choice.features == f"eigen({fit.choice.inducing})"
    assert fit.elbo > model.fit(data, inducing=fit.choice.inducing).elbo + 1.0
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    assert not model.fit(data).choice.features
    smooth = gpdsl.compile(COUNTS).fit(data)
    assert smooth.choice.inducing > 20 and not smooth.choice.features


@pytest.mark.slow
def test_each_latent_has_what_is_better_for_it(
    small: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choosing, "BUDGET", 2 * 500 * 60.0**2)
    data = dense(rng, 500)
    data |= {"n": rng.poisson(np.exp(1 + data["y"])), "y": rng.standard_t(4, size=500)}
    model = gpdsl.compile(PAIR)
    fit = model.fit(data)
    assert str(fit.choice.own["rough"]).startswith("eigen(") and isinstance(fit.choice.own["smooth"], int)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    new = {"x": np.array([0.5, 30.0])}
    np.testing.assert_array_equal(again.predict(new).mean("rough"), fit.predict(new).mean("rough"))
    further = model.fit(data, start=again)
    assert further.choice.own == fit.choice.own and further.elbo == pytest.approx(fit.elbo, abs=0.1)


def test_features_of_a_family_are_made_fewer_until_they_are_few_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two kernels side by side are twice as many as asked for, those of a product their square."""
    asked = list[str]()

    def made(count: int) -> list[None]:
        return [None] * count

    def featured(of: Any, program: Any, group: Any, written: str, *_: Any) -> list[None]:
        asked.append(written)
        return made(of(int(written[written.index("(") + 1 : -1])))

    seen: Any = SimpleNamespace(program=None, group=None, data=None, every=None, rng=None)
    for of, tried, size in ((lambda n: n, [50], 50), (lambda n: n**2, [50, 7], 49), (lambda n: 2 * n, [50, 27], 54)):
        asked.clear()
        monkeypatch.setattr(choosing, "featured", partial(featured, of))
        found: Any = choosing._Seen.sized(seen, "eigen", 50 if size <= 50 else 55)
        assert len(found) == size and asked[-1] == f"eigen({tried[-1]})", asked
    monkeypatch.setattr(choosing, "featured", partial(featured, lambda n: n + 9))
    assert choosing._Seen.sized(seen, "eigen", 8) is None


@pytest.mark.parametrize(("best", "taken"), [(0.89, True), (0.91, False)])
def test_eigen_features_stand_in_for_points_that_leave_clearly_more_open(best: float, taken: bool) -> None:
    open_ = {"points": 1.0, "eigen": best, "fewer": 2.0 * best}
    seen: Any = SimpleNamespace(
        sized=lambda family, size: "eigen" if size == 6 else "fewer", left_open=open_.__getitem__
    )
    seen.fewest = partial(choosing._Seen.fewest, seen)
    points: Any = type("Points", (str,), {"__len__": lambda self: 6})("points")
    assert choosing._Seen.features(seen, points, 0.1) == ("eigen" if taken else None)
    assert choosing._Seen.features(seen, points, 2.0 * best) == ("fewer" if taken else None)


def test_points_are_as_many_as_leave_no_more_open_than_the_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy ones or centres, whichever leave less; centres where few points determine all rows and a bent kernel."""
    some, made = np.arange(40.0)[:, None], list[int]()

    def centres(every: np.ndarray, count: int, rng: Any) -> np.ndarray:
        made.append(count)
        return np.full((count, 1), -1.0)

    order = SimpleNamespace(open=np.array([1.0, 0.5, 0.2, 0.05, 0.01]), prior=2.0, chosen=np.array([7, 3, 9, 1, 5]))
    monkeypatch.setattr(choosing, "pivots", lambda *_: order)
    monkeypatch.setattr(choosing, "kmeans_centres", centres)
    rest = {"program": None, "group": None, "dtype": "float64", "every": some, "rng": None}

    def points(goal: float, most: int, least: int, centres_open: float) -> list[float]:
        made.clear()
        seen: Any = SimpleNamespace(some=some, left_open=lambda z: centres_open if z.points[0, 0] < 0 else 0.5, **rest)
        return choosing._Seen.points(seen, most, goal, least).points[:, 0].tolist()

    assert points(0.2, 30, 1, 0.6) == [7, 3, 9, 1] and made == [4]
    assert points(0.2, 30, 1, 0.4) == [-1] * 4
    assert points(0.09, 3, 1, 0.6) == [7, 3, 9] and made == [3]
    assert points(0.2, 30, 5, 0.6) == [7, 3, 9, 1, 5]
    assert points(0.2, 30, 20, 0.6) == [-1] * 20 and made == [20]  # five determine all: too few for what is lost
    assert points(0.2, 30, 8, 0.6) == [7, 3, 9, 1, 5] and points(0.2, 30, 9, 0.6) == [-1] * 9
