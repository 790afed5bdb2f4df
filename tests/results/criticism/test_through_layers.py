"""Rows left out where latents are functions of others or of variables of rows, beside the exact GP that these are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.layered import planning
from gpdsl.program.cache import precision
from gpdsl.results.criticism import through_layers
from gpdsl.results.criticism.finding import SPEED, Inspected
from gpdsl.results.criticism.findings import LOOKS
from gpdsl.results.criticism.places import learn_noise, of_both
from gpdsl.results.criticism.seen import Seen
from gpdsl.results.criticism.through_layers import Variables, _without, drawn_densities, multiplications
from gpdsl.results.fit import Fit
from gpdsl.results.fitting import prepare
from tests.inference.problems import looked_at

TEXT = """model m "M"
input x : real
output y : real
param ell : positive = 0.8
{first}
latent f({arguments}) ~ GP(0, 1.2 * {kernel})
y ~ Normal(f, {sd})
"""
X = np.linspace(-2, 2, 15)
DATA = {"x": X, "y": np.sin(2 * X) + 0.3 * np.random.default_rng(5).standard_normal(15)}


@cache
def _fit(first: str, arguments: str, kernel: str, sd: float = 0.4, ell: float = 0.8, steps: int = 150) -> Fit:
    text = TEXT.format(first=first, arguments=arguments, kernel=kernel, sd=sd)
    return gpdsl.compile(text).fit(DATA, fixed=["ell"], steps=steps, init={"ell": ell})


ALONE = ("row w ~ Normal(0, 1)", "x, w", "RBF(ell, on = x) * RBF(1000, on = w)")
INNER = ("latent h(x) ~ GP(x, 1e-10 * RBF(1))", "h", "RBF(ell)")


@pytest.mark.filterwarnings("ignore:waic")
@pytest.mark.parametrize(
    ("layers", "sd"), [(ALONE, 0.4), pytest.param(ALONE, 0.1, marks=pytest.mark.slow), (INNER, 0.4)]
)
def test_layers_that_change_nothing_leave_rows_out_as_one_does(layers: tuple[str, str, str], sd: float) -> None:
    """By sites, which weights of draws do not reach: with noise of .1 they are 7 nats off in a row."""
    exact, fit = _fit("", "x", "RBF(ell)", sd), _fit(*layers, sd)
    found, known = fit.loo(DATA, refits=0), exact.loo(DATA)
    assert fit.elbo == pytest.approx(exact.elbo, abs=0.02)
    np.testing.assert_allclose(found.of_itself, known.of_itself, atol=0.05)
    np.testing.assert_allclose(found.pointwise, known.pointwise, atol=2e-3)
    np.testing.assert_allclose(found.pit("y"), known.pit("y"), atol=0.05)  # of 1024 draws
    assert known.of_itself.sum() - known.elpd > 3  # of which rows left out are to be told apart
    if sd == 0.4:  # else a variance over draws is none
        assert fit.waic(DATA).elpd == pytest.approx(exact.waic(DATA).elpd, abs=0.3)


def test_a_last_layer_that_is_a_constant_is_named() -> None:
    """Of the layer below it is only known where it leads, which is where the inducing points are."""
    flat, curved = (_fit(*INNER[:2], kernel, steps=6).diagnose() for kernel in ("RBF(2000)", "RBF(ell)"))
    (found,) = (each for each in flat.doubtful if each.name == "reach of latents")
    assert found.said.startswith("`f` is the same at its inducing points") and found.number > 0.9995
    assert not {"reach of latents", "inducing points"} & {each.name for each in curved.doubtful}


def test_what_few_points_under_layers_lose_is_told() -> None:
    """Beside the exact evidence of the one layer that these are, which lies so far above the bound."""
    exact = gpdsl.compile(TEXT.format(first="", arguments="x", kernel="RBF(ell)", sd=0.1)).fit(DATA, fixed=["ell"])
    text = TEXT.format(first=INNER[0], arguments="h", kernel="RBF(ell)", sd=0.1)
    fit = gpdsl.compile(text).fit(DATA, fixed=["ell"], steps=150, inducing=4, diagnose="no")
    found = looked_at(fit, DATA, "inducing points")["inducing points"]
    lost = exact.elbo - fit.elbo
    assert found.doubtful and 0.5 * lost < found.number < 2 * lost


@pytest.mark.slow
def test_a_last_layer_that_is_too_stiff_leaves_neighbours_alike() -> None:
    """Intervals are as wide as they have to be, and which values they miss has a shape."""
    x = np.linspace(-2, 2, 40)
    text = TEXT.format(first=INNER[0], arguments="h", kernel="RBF(9)", sd=0.7)
    fit = gpdsl.compile(text).fit({"x": x, "y": np.sin(4 * x)}, fixed=["ell"], steps=20, inducing=10, diagnose="full")
    (found,) = (each for each in fit.diagnose().doubtful if each.name == "calibration of y")
    assert "neighbours along `x` miss alike" in found.said


def test_only_noise_that_is_fixed_is_to_be_learnt() -> None:
    text = TEXT.format(first="param s : positive = 1", arguments="x", kernel="RBF(ell)", sd="{sd}")
    asked = {"0.4": (), "2 * s": (), "3 * s": ("s",), "exp(f)": ()}
    programs = [
        prepare(gpdsl.compile(text.format(sd=sd)), DATA, {}, {"fixed": list(fixed)})[0] for sd, fixed in asked.items()
    ]
    assert [bool(learn_noise(program)) for program in programs] == [True, False, True, False]


def test_sites_that_cannot_be_taken_out_leave_rows_to_draws() -> None:
    fit = _fit(*ALONE, steps=5)
    bound = fit.bind(DATA, None, outputs=True)
    with precision("float64"):
        every = Variables(fit, bound)
    root, slope = np.array([[1.0], [0.5]]), np.array([0.3, -0.1])
    moved = _without(root, slope, np.array([0.4, 0.4]))
    assert moved is not None
    left = 1 / (1 - 0.4 * 1.25)  # by hand: u ~ N(-left g, left)
    np.testing.assert_allclose(moved[0], -root[:, 0] * left * (root[:, 0] @ slope))
    np.testing.assert_allclose(moved[1], root[:, 0] ** 2 * left)
    assert _without(root, slope, np.array([0.8, 0.8])) is None  # more than there is
    with precision("float64"):
        by_draws, by_site = every.by_draws(7), every.by_site(7)
    assert by_site is not None and np.isnan(by_site.numbers[2]) and np.isfinite(by_draws.numbers[2])
    np.testing.assert_allclose(by_draws.numbers[:2], by_site.numbers[:2], atol=0.1)
    np.testing.assert_allclose(np.exp(by_draws.log_weights).sum(), 1)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param("row w ~ Normal(0, 1)", marks=pytest.mark.slow),
        "row w ~ Normal(0.5 * x, 0.7)\nlatent h(w) ~ GP(w, 0.1 * RBF(1))",
    ],
)
def test_nodes_of_the_variables_of_rows_average_over_their_prior(row: str) -> None:
    """Over draws of functions densities are what passes through the layers say of a row that has not been seen."""
    fit = _fit(row, "x, h" if "h(" in row else "x, w", "RBF(ell)")
    bound = fit.bind(DATA, None, outputs=True)
    drawn = drawn_densities(fit, bound, np.arange(15))
    found, error = np.exp(drawn).mean(axis=0), np.exp(drawn).std(axis=0) / np.sqrt(len(drawn))
    expected = np.exp(fit.log_predictive_density(DATA))
    assert np.max(np.abs(found - expected) / (error + 0.01 * expected)) < 4
    some = drawn_densities(fit, bound, np.array([3, 11]))
    np.testing.assert_allclose(np.exp(some).mean(axis=0), found[[3, 11]], atol=5 * error[[3, 11]].max())


def test_nodes_have_the_moments_of_the_prior_and_of_q(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two variables beside a latent, in three rows, of which q knows one well and another hardly."""
    q = np.array([[0.0, 0.0], [1.2, -0.5], [0.3, 0.8]]), np.array([[1.0, 1.0], [0.04, 0.5], [0.6, 0.2]])
    around, scale = np.array([[0.0, 3.0], [1.0, 2.0], [-2.0, 0.0]]), np.array([2.0, 0.5])
    monkeypatch.setattr(through_layers, "white_of_fitted", lambda *_: q)
    monkeypatch.setattr(through_layers, "prior_of", lambda *_: (around, scale))
    groups = [SimpleNamespace(per_row=False), SimpleNamespace(per_row=True, size=2, start=1, stop=3)]
    fit: Any = SimpleNamespace(predicting=SimpleNamespace(latents=3, groups=groups))
    nodes = through_layers._nodes(fit, {}, {}, 2048, 3)  # type: ignore[arg-type]
    white = (nodes.values[..., 1:] - around[:, None]) / scale
    for weights, (mean, variance) in ((np.exp(nodes.prior), (0.0 * q[0], 1.0 + 0.0 * q[1])), (nodes.q, q)):
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        found = np.einsum("rn,rnd->rd", weights, white)
        np.testing.assert_allclose(found, mean, atol=0.03)
        spread = np.einsum("rn,rnd->rd", weights, (white - found[:, None]) ** 2)
        np.testing.assert_allclose(spread, variance, rtol=0.1, atol=0.01)
    assert not nodes.values[..., 0].any()
    np.testing.assert_allclose(nodes.divergence, [_divergence(*each) for each in zip(*q, strict=True)])


def _divergence(mean: np.ndarray, variance: np.ndarray) -> float:
    """KL of independent normals from standard ones, by quadrature."""
    z = np.linspace(-12, 12, 20_001)
    q, p = stats.norm(mean[:, None], np.sqrt(variance)[:, None]), stats.norm()
    return float(np.trapezoid(q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), z, axis=1).sum())


def test_what_one_gaussian_for_a_variable_of_two_peaks_loses_is_told() -> None:
    """Of y = w^2 + e the bound lies below the evidence by what q of w costs, which is found by quadrature."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(12) ** 2 + 0.3 * rng.standard_normal(12)
    text = TEXT.format(first="row w ~ Normal(0, 1)", arguments="x, w", kernel="RBF(ell)", sd=0.3)
    data = {"x": np.linspace(-1, 1, 12), "y": y}
    fit = gpdsl.compile(text.replace("GP(0, 1.2", "GP(w^2, 1e-8")).fit(data, fixed=["ell"], steps=400, diagnose="no")
    w = np.linspace(-6, 6, 4001)
    exact = np.log(np.trapezoid(stats.norm.pdf(w) * stats.norm.pdf(y[:, None], w**2, 0.3), w, axis=1)).sum()
    found = looked_at(fit, data, "rows left out")["q of row variables"]
    assert found.doubtful and found.number == pytest.approx((exact - fit.elbo) / 12, abs=0.08)  # of 256 nodes


def test_noise_that_is_too_small_is_found() -> None:
    wide = {each.name: each for each in _fit(*INNER, 0.4).diagnose(DATA).findings}
    assert {"max of y", "effective parameters", "calibration of y"} <= wide.keys()
    assert not any(each.doubtful for name, each in wide.items() if name != "note")
    told = {each.name: each for each in _fit(*INNER, 0.02, ell=6.0).diagnose(DATA).findings}
    assert told["calibration of y"].doubtful and "too narrow" in str(told["calibration of y"])


def test_places_by_the_other_rows_tell_what_those_of_seen_rows_cannot() -> None:
    """Two peaks of outputs about a curve, with as much noise as they are apart: places avoid both ends and the middle,
    none lies outside. What weights do not tell counts for the model."""
    rng = np.random.default_rng(0)
    peaks = stats.norm.cdf(rng.choice([-1.0, 1.0], 60) + 0.1 * rng.standard_normal(60))
    every = np.ones(60, bool)
    told = of_both("y", peaks, every)
    assert told.doubtful and "not where the values are" in told.remedy and "from the other rows hold" in told.said
    half = np.arange(60) < 30
    assert not of_both("y", peaks, half).doubtful and not of_both("y", peaks, ~every).doubtful
    even = rng.uniform(size=60)
    assert not of_both("y", even, every).doubtful
    narrow = np.where(half, even, np.where(even < 0.5, 0.01, 0.99))  # of the rows that weights do not tell of
    told = of_both("y", narrow, half)
    assert told.doubtful and "too narrow" in told.remedy and "or all where weights do not tell" in told.said
    assert "from all rows hold" in of_both("y", narrow, ~every).said


def test_two_peaks_of_outputs_under_layers_are_found() -> None:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([-1.0, 1.0], 40)) + 0.1 * rng.standard_normal(80)
    data = {"x": np.linspace(-1.5, 1.5, 80), "y": y}
    text = TEXT.format(first=INNER[0], arguments="h", kernel="RBF(ell)", sd=1.0)
    fit = gpdsl.compile(text).fit(data, fixed=["ell"], steps=10)
    found = fit.diagnose(data)
    (told,) = (each for each in found.doubtful if each.name == "calibration of y")
    assert "from the other rows hold 99%" in told.said and "not where the values are" in told.remedy
    loo = fit.loo(data, refits=0)
    assert np.max(loo.k) < 0.7 and not np.any((loo.pit("y") > 0.4) & (loo.pit("y") < 0.6))
    with pytest.raises(GpdslError, match="pit of `f`: expected an output, of which there are `y`"):
        loo.pit("f")


def test_a_search_that_took_long_enough_pays_for_rows_left_out() -> None:
    """Steps count, of which the history has one in 25, and passes of each."""
    fit = _fit(*INNER, steps=5)
    long = replace(fit, history=np.array([[200_000.0, fit.elbo, 1.0]]), inspected=Inspected(ended=fit.inspected.ended))
    told = [{each.name for each in of.inspection.findings} for of in (fit, long)]
    assert ["calibration of y" in names for names in told] == [False, True]
    assert fit.inspection.left == ("rows left out", "data drawn anew")
    assert long.inspection.left == ("data drawn anew",)


def test_draws_through_layers_of_variables_of_rows_are_paid_for() -> None:
    """Covariances of each draw at all nodes of each row: 80 rows and points took 20 seconds by default."""
    layers = "row w ~ Normal(0, 1)\nlatent h(x) ~ GP(x, 0.1 * RBF(1))"
    deep, one = (
        _fit(first, "h, w" if "h(x)" in first else "x, w", "RBF(ell)", steps=5) for first in (layers, ALONE[0])
    )
    prices = [LOOKS["rows left out"].price(fit, Seen(fit, fit.bind(DATA, None, outputs=True))) for fit in (deep, one)]
    assert prices[0] - prices[1] == pytest.approx(5 * 15 * 256 * 64 * 2 * 15**2 / SPEED)


def test_draws_through_layers_and_variables_multiply_matrices_of_points() -> None:
    """Of each draw at each node of each row: of layers alone, or variables alone, these are made once."""
    groups = [SimpleNamespace(size=2, per_row=False), SimpleNamespace(size=1, per_row=True)]
    program = SimpleNamespace(groups=groups, inner={"h", "w"}, declarations=SimpleNamespace(rows={"w": None}))
    fit: Any = SimpleNamespace(program=program, predicting=program, inducing=[range(10), range(40)])
    assert multiplications(fit, 3) == 5 * 3 * 256 * 64 * 2 * 10**2
    program.inner = {"w"}
    assert multiplications(fit, 3) == 0.0


def test_densities_of_draws_are_those_of_each_row_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows have variables: every row has draws of its own of these."""
    drawn = lambda row: (None, np.array([row, -row], float))  # noqa: E731
    monkeypatch.setattr(through_layers, "Variables", lambda *_: SimpleNamespace(drawn=drawn))
    monkeypatch.setattr(through_layers, "_has_variables", lambda _: True)
    fit: Any = SimpleNamespace(options=SimpleNamespace(dtype="float64"))
    found = drawn_densities(fit, None, np.array([2, 5]))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, [[2, 5], [-2, -5]])


def test_reach_is_that_of_functions_of_inputs() -> None:
    (found,) = looked_at(_fit(*ALONE, steps=5), DATA, "reach of latents").values()
    assert "reach of latents, as no latent is a function of inputs alone" in str(found)


@pytest.mark.parametrize(("inner", "last"), [(15, 15), (4, 7)])
def test_layers_are_cross_validated_from_as_many_points_as_they_had(
    inner: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers of many rows have more points of the last one."""
    monkeypatch.setattr(planning, "INDUCING", inner)
    fit = _fit.__wrapped__("latent h(x) ~ GP(x, 0.1 * RBF(1))", "h", "RBF(ell)", steps=3)
    assert sorted(map(len, fit.inducing)) == [inner, last]
    assert np.isfinite(fit.cross_validate(DATA, folds=2).pointwise).all()


@pytest.mark.slow
def test_rows_that_move_the_fit_are_left_out_by_fits() -> None:
    y = DATA["y"].copy()
    y[7] += 2
    fit = gpdsl.compile(TEXT.format(first=ALONE[0], arguments="x, w", kernel="RBF(ell)", sd=0.4)).fit(
        {"x": X, "y": y}, fixed=["ell"]
    )
    found = fit.loo({"x": X, "y": y})
    assert 7 in found.without and len(found.without) <= 5
    each = fit.cross_validate({"x": X, "y": y}, folds=15)
    assert abs(found.elpd - each.elpd) < found.elpd_error + 0.5
    assert found.pit("y")[7] > 0.98
