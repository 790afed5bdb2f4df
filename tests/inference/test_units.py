"""Results do not depend on the units of the data, and a fit does not stop where latents explain nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import gpdsl
from gpdsl.inference.resolution import NO_NOISE, notes_on_noise
from gpdsl.program.starts import loadings, start_from_data
from gpdsl.results.fitting import prepare
from gpdsl.symbolic.data_scales import log_size, log_spread
from tests.inference.unit_models import CHANGES, MODELS, STUDENT, Change, changed, data_for

ROUNDING = 1e-14
"""And by as many times the shift of an output: where q is no closed form, values of latents are as far from zero."""

QUICK = ("rbf", "matern32 ard", "counts", "all starts at one")
INVARIANT = 1e-6
"""Nats by which the evidence may change beside the Jacobian where the start is the data's."""

REGRESSION = """
input x : real
output y : real
param m : real{level}
param s2 : positive{one}
param ell : positive{one}
param sigma : positive{one}
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
GIVEN = REGRESSION.format(level=" = 0", one=" = 1")
MISSING = REGRESSION.format(level="", one="")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_other_units_change_the_evidence_by_the_jacobian(name: str) -> None:
    case = MODELS[name]
    data, model = data_for(case), gpdsl.compile(case.text)
    changes = (Change(), CHANGES[3], CHANGES[6]) if name in QUICK else (Change(), *CHANGES)
    values = []
    for change in changes:
        other, jacobian = changed(case, data, change)
        values.append(model.fit(other).elbo - jacobian)
    rounding = ROUNDING * max(change.y_shift for change in changes)
    np.testing.assert_allclose(values, values[0], rtol=0, atol=INVARIANT + rounding)


def _rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = np.sort(rng.uniform(-3, 3, 40))
    return x, np.sin(2 * x) + 0.3 * rng.standard_normal(40)


@pytest.mark.parametrize("text", [GIVEN, MISSING], ids=["all starts at 1", "no starts"])
@pytest.mark.parametrize("units", [(1.0, 1e3), (1e6, 1.0)], ids=["y in thousandths", "x in millionths"])
def test_units_do_not_lead_to_the_null_model(text: str, units: tuple[float, float], rng: np.random.Generator) -> None:
    x, y = _rows(rng)
    model = gpdsl.compile(text)
    usual = model.fit({"x": x, "y": y}).elbo
    fit = model.fit({"x": units[0] * x, "y": units[1] * y})
    assert fit.elbo + 40 * np.log(units[1]) == pytest.approx(usual, abs=1e-4)
    assert ("best of 2 starts (nats below it: " in fit.message) == (text is GIVEN)
    assert text is MISSING or "0.0 from " in fit.message


def test_a_good_start_is_searched_from_once(rng: np.random.Generator) -> None:
    x, y = _rows(rng)
    fit = gpdsl.compile(GIVEN).fit({"x": x, "y": y})
    assert fit.message == "converged"
    steps = fit.history[:, 0]
    np.testing.assert_array_equal(steps, np.arange(1, len(steps) + 1))


def test_noise_alone_is_said_to_be_explained_by_nothing(rng: np.random.Generator) -> None:
    x, y = rng.uniform(-3, 3, 40), rng.standard_normal(40)
    fit = gpdsl.compile(MISSING).fit({"x": x, "y": 100 * y}, standardise=["y"])
    assert fit.elbo == pytest.approx(-20 * np.log(2 * np.pi * np.e * np.var(100 * y)), abs=0.04)
    assert "the latents explain nothing: unrelated rows are worth as much\n" in fit.summary()


def test_counts_without_a_level_are_told_to_have_one(rng: np.random.Generator) -> None:
    text = (
        "input x : real\noutput y : count\nparam v : positive\nparam ell : positive\n"
        "latent f(x) ~ GP(0, v * RBF(ell))\ny ~ Poisson(exp(f))\n"
    )
    fit = gpdsl.compile(text).fit({"x": np.linspace(0, 4, 40), "y": rng.poisson(50.0, 40)})
    remedies = [line for line in fit.summary().splitlines() if "add a level, `a : real`, as in `f + a`" in line]
    assert remedies and {line.split()[0] for line in remedies} <= {"note", "doubtful"}
    assert (
        "add a level"
        not in gpdsl.compile(text.replace("f)", "f + a)").replace("latent", "param a : real\nlatent"))
        .fit({"x": np.linspace(0, 4, 40), "y": rng.poisson(50.0, 40)})
        .summary()
    )


def test_parameters_of_a_density_by_formula_start_from_the_data(rng: np.random.Generator) -> None:
    """As those of the distribution by name do; what says how heavy its tails are has no unit."""
    x, y = _rows(rng)
    by_name = GIVEN.replace(" = 0", "").replace(" = 1", "").replace("Normal", "StudentT").replace("f, s", "4, f, s")
    by_formula = STUDENT + MISSING.replace("Normal(f, sigma)", "d(f, sigma, nu)") + "param nu : positive\n"
    for unit, shift in ((1.0, 0.0), (1e5, 0.0), (1e-3, 1e3)):
        data = {"x": x, "y": unit * y + shift}
        expected = prepare(gpdsl.compile(by_name), data, {}, {})[0].parameters.initial
        found = prepare(gpdsl.compile(by_formula), data, {}, {})[0].parameters.initial
        assert {n: found[n] / v for n, v in expected.items() if n != "m"} == (
            pytest.approx(dict.fromkeys(("s2", "ell", "sigma"), 1.0), rel=0.5)
        )
        assert 0.3 < found["nu"] < 3


def test_given_values_are_where_the_search_starts(rng: np.random.Generator) -> None:
    """What the user wrote or passed is the start; what nobody gave comes from the data."""
    x, y = _rows(rng)
    model = gpdsl.compile(MISSING.replace("param ell : positive", "param ell : positive = 0.123"))
    program, _, _ = prepare(model, {"x": 50 * x, "y": 70 * y}, {}, {"init": {"sigma": 0.456}})
    start = program.parameters.initial
    assert start["ell"] == 0.123 and start["sigma"] == 0.456
    assert start["s2"] == pytest.approx(np.var(70 * y))


SCALES = """
index p in 1..2
input x : real[D]
input t : positive
output y[p] : real
output n : count
param s2[p] : positive
param ell[p] : positive[D]
param per : positive
param b[p] : positive
param w : positive
param sigma[p] : positive
param rate : positive
latent f[p](x) ~ GP(0, s2[p] * RBF(ell[p]))
latent g(t) ~ GP(0, w * Periodic(1, per))
y[p] ~ Normal(f[p] + b[p] * t, sigma[p])
n ~ Poisson(rate * exp(g))
"""


def test_scales_follow_from_dimensional_analysis(rng: np.random.Generator) -> None:
    data = {
        "x": rng.standard_normal((50, 2)) * [3.0, 2e5],
        "t": rng.uniform(1, 9, 50) * 1e-4,
        "y": rng.standard_normal((50, 2)) * [1e-3, 40.0],
        "n": rng.poisson(30, 50).astype(float),
    }
    program, _, _ = prepare(gpdsl.compile(SCALES), data, {}, {})
    start = program.parameters.initial
    size_t, size_y = np.sqrt(np.mean(data["t"] ** 2)), np.sqrt(np.mean(data["y"] ** 2, axis=0))
    np.testing.assert_allclose(start["s2"], size_y**2)
    np.testing.assert_allclose(start["ell"], np.tile(np.std(data["x"], axis=0) * np.sqrt(2), (2, 1)))
    np.testing.assert_allclose(start["b"], size_y / size_t)
    np.testing.assert_allclose(start["sigma"], 0.3 * np.std(data["y"], axis=0))
    assert start["per"] == pytest.approx(np.std(data["t"]))
    assert start["rate"] == pytest.approx(np.sqrt(np.mean(data["n"] ** 2)))
    assert start["w"] == pytest.approx(1.0)


def test_sizes_are_root_mean_squares_and_spreads_those_about_the_mean() -> None:
    """Of what is known, also of numbers whose squares are none; of equal values the size stands for the spread."""
    for unit in (1.0, 1e300, 1e-300):
        values = unit * np.array([0.0, 3.0, np.nan, -4.0, 2.0])
        assert log_size(values) == pytest.approx(np.log(unit) + 0.5 * np.log(29 / 4))
    known = np.array([0.0, 3.0, -4.0, 2.0])
    assert log_spread(np.append(known, np.nan)) == pytest.approx(np.log(np.std(known)))
    assert log_spread(np.full(3, -5.0)) == log_size(np.full(3, -5.0)) == pytest.approx(np.log(5))
    assert log_spread(1e9 + known) == pytest.approx(np.log(np.std(known)), rel=1e-6)
    assert log_size(np.zeros(3)) == log_size(np.full(2, np.nan)) == log_spread(np.full(2, np.nan)) == 0.0


def test_a_length_scale_of_several_columns_starts_from_their_mean_square(rng: np.random.Generator) -> None:
    text = MISSING.replace("input x : real", "input x : real[3]")
    data = {"x": rng.standard_normal((50, 3)) * [3.0, 5.0, 8.0], "y": rng.standard_normal(50)}
    program, _, _ = prepare(gpdsl.compile(text), data, {}, {})
    expected = np.sqrt(np.mean(np.var(data["x"], axis=0))) * np.sqrt(3)
    assert program.parameters.initial["ell"] == pytest.approx(expected)


def test_starts_move_with_the_units(rng: np.random.Generator) -> None:
    """Every start is its old value in the new units, whatever these are."""
    x, y = _rows(rng)
    program, bound, _ = prepare(gpdsl.compile(MISSING), {"x": x, "y": y}, {}, {})
    other, moved, _ = prepare(gpdsl.compile(MISSING), {"x": 7e5 * x, "y": 3e-4 * y}, {}, {})
    ratios = {n: other.parameters.initial[n] / v for n, v in program.parameters.initial.items() if n != "m"}
    assert ratios == pytest.approx({"s2": 9e-8, "ell": 7e5, "sigma": 3e-4})
    assert start_from_data(program.parameters, program.translator, moved, frozenset(), 0).initial["ell"] == (
        pytest.approx(other.parameters.initial["ell"])
    )
    assert bound.rows == moved.rows


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_products_beside_numbers_start_from_the_larger_part(rng: np.random.Generator, unit: float) -> None:
    """(1 + x x')^2 is a constant where x is small: its variance starts from that of y, and not from y^2 / x^4."""
    x = unit * np.linspace(-2, 3, 30)
    y = np.sin(x / unit) + 0.1 * rng.standard_normal(30)
    model = gpdsl.compile(
        "input x : real\noutput y : real\nparam s2 : positive\nparam sigma : positive\n"
        "latent f(x) ~ GP(0, s2 * Polynomial(degree = 2))\ny ~ Normal(f, sigma)\n"
    )

    def loss(logs: np.ndarray) -> float:
        total = np.exp(logs[0]) * (1 + np.outer(x, x)) ** 2 + np.exp(2 * logs[1]) * np.eye(30)
        return float(0.5 * y @ np.linalg.solve(total, y) + 0.5 * np.linalg.slogdet(2 * np.pi * total)[1])

    best = min(minimize(loss, [start, -1.0], method="Nelder-Mead", tol=1e-8).fun for start in (0.0, -3.0, -6.0))
    assert model.fit({"x": x, "y": y}).elbo == pytest.approx(-best, abs=1e-3)


@pytest.mark.parametrize("options", [{}, pytest.param({"inducing": 5}, marks=pytest.mark.slow)])
def test_outputs_that_are_all_the_same_are_said_to_tell_nothing(options: dict) -> None:
    data = {"x": np.arange(12.0), "y": np.full(12, 3.0)}
    fit = gpdsl.compile(MISSING).fit(data, **options)
    assert any("all 12 values of `y` are 3: nothing tells signal from noise" in note for note in fit.notes)
    assert "all 12 values" in fit.summary()
    held = gpdsl.compile(GIVEN).fit(data, fixed=["m", "s2", "ell", "sigma"], **options)
    assert not any("nothing tells" in note for note in held.notes)


def test_slopes_that_are_held_at_zero_are_no_outputs_without_noise() -> None:
    text = "input x : real\noutput y : real\nparam r : real = 0.5\nlatent f(x) ~ GP(0, RBF(2))\n"
    text += "y ~ Normal(D(f, x) - r * f, 0.05)"
    fit = gpdsl.compile(text).fit({"x": np.arange(12.0), "y": np.zeros(12)})
    assert not any("nothing tells" in note for note in fit.notes)


PRODUCTS = "param v : positive\nparam c : positive\nparam sigma : positive\nlatent f(x) ~ GP(0, {kernel})\n"
OTHERS = {"W": "real[level, 2]", "kappa": "positive[level]", "per": "positive", "at": "real"}
OTHERS |= dict.fromkeys(("weights", "means", "sds"), "positive[2]")


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ArcCosine(weight = v, bias = c, order = 1)", {"v": (-2, 2), "c": (0, 2)}),
        ("Polynomial(degree = 2, ell = v, offset = c)", {"v": (1, -0.5), "c": (0, 1)}),
        ("sigma^2 * Polynomial(degree = 2, ell = v, offset = c)", {"v": (1, 0), "c": (0, 0)}),
        ("v * Linear() + c^2 * Constant()", {"v": (-2, 2), "c": (0, 1)}),
        ("v^2 * RationalQuadratic(1, c)", {"v": (0, 1), "c": (0, 0)}),
        ("v * RBF(c) * Periodic(1, c)", {"v": (0, 2), "c": (1, 0)}),
        ("v^2 * Periodic(c, 2 * per)", {"v": (0, 1), "c": (0, 0), "per": (1, 0)}),
        ("v * (Cosine(per) + Matern12(c))", {"v": (0, 2), "per": (1, 0), "c": (1, 0)}),
        ("SpectralMixture(weights, means, sds)", {"weights": (0, 2), "means": (-1, 0), "sds": (-1, 0)}),
        ("RBF(c, on = x) * Coregion(W, kappa, on = k)", {"W": (0, 1), "kappa": (0, 2), "c": (1, 0)}),
        ("ChangePoint(v * RBF(c), 2 * v * Matern32(3 * c), at, per)", {"v": (0, 2), "at": (1, 0), "per": (1, 0)}),
    ],
)
def test_kernels_of_products_have_the_unit_of_the_variance(
    kernel: str, expected: dict[str, tuple[float, float]], rng: np.random.Generator
) -> None:
    """Powers of the units of x and y by which weights, length-scales and offsets move, with a factor and without.

    And periods, frequencies and places, which have the unit of x or that of what is one by it.
    """
    x, y = _rows(rng)
    places = {"k": np.arange(len(x)) % 3 + 1} if "k)" in kernel else {}
    more = "".join(f"param {name} : {of}\n" for name, of in OTHERS.items() if name in kernel)
    text = PRODUCTS.replace("f(x)", "f(x, k)") if places else PRODUCTS
    more = "index level in 1..3\ninput k : label[level]\n" * bool(places) + more
    model = gpdsl.compile(
        "input x : real\noutput y : real\n" + more + text.format(kernel=kernel) + "y ~ Normal(f, sigma)\n"
    )
    starts = [
        prepare(model, {"x": a * x, "y": b * y, **places}, {}, {})[0].parameters.initial
        for a, b in ((1, 1), (1e3, 1), (1, 1e4))
    ]
    for name, (of_x, of_y) in expected.items():
        assert starts[1][name] / starts[0][name] == pytest.approx(1e3**of_x, rel=1e-3)
        assert starts[2][name] / starts[0][name] == pytest.approx(1e4**of_y, rel=1e-3)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ("f + 2 * v", {"v": (0, 1)}),
        ("f + v * x / 3", {"v": (-1, 1)}),
        ("f + v * exp(-x / c)", {"v": (0, 1), "c": (1, 0)}),
        ("f + v * sqrt(x) + 3 * c", {"v": (-0.5, 1), "c": (0, 1)}),
    ],
)
def test_what_stands_beside_a_latent_has_the_unit_of_the_output(
    mean: str, expected: dict[str, tuple[float, float]], rng: np.random.Generator
) -> None:
    x, y = _rows(rng)
    text = "input x : positive\noutput y : real\n" + PRODUCTS.format(kernel="s2 * RBF(1)")
    model = gpdsl.compile(f"{text}param s2 : positive\ny ~ Normal({mean}, sigma)")
    starts = [
        prepare(model, {"x": a * np.exp(x), "y": b * y}, {}, {})[0].parameters.initial
        for a, b in ((1, 1), (1e3, 1), (1, 1e4))
    ]
    for name, (of_x, of_y) in expected.items():
        assert starts[1][name] / starts[0][name] == pytest.approx(1e3**of_x, rel=1e-3)
        assert starts[2][name] / starts[0][name] == pytest.approx(1e4**of_y, rel=1e-3)


def test_what_divides_a_log_normal_output_has_its_unit(rng: np.random.Generator) -> None:
    x, y = _rows(rng)
    model = gpdsl.compile(
        "input x : real\noutput y : positive\nparam b : positive\nparam ell : positive\n"
        "latent f(x) ~ GP(0, RBF(ell))\ny / b ~ LogNormal(f, 0.3)\n"
    )
    starts = [prepare(model, {"x": x, "y": unit * np.exp(y)}, {}, {})[0].parameters.initial for unit in (1.0, 1e5)]
    assert starts[1]["b"] / starts[0]["b"] == pytest.approx(1e5)
    assert starts[0]["b"] == pytest.approx(np.sqrt(np.mean(np.exp(2 * y))))


def test_what_is_fixed_needs_a_value(rng: np.random.Generator) -> None:
    """It was fixed at one, whatever the units of the data."""
    x, y = _rows(rng)
    model = gpdsl.compile(MISSING)
    with pytest.raises(gpdsl.GpdslError, match="fixed: parameter `sigma` has no value to be fixed at; give it one"):
        model.fit({"x": x, "y": y}, fixed=["sigma"])
    program, _, _ = prepare(model, {"x": x, "y": y}, {}, {"fixed": ["sigma"], "init": {"sigma": 0.2}})
    assert program.parameters.held["sigma"] == 0.2


def test_what_is_declared_fixed_needs_a_value_as_well() -> None:
    text = "input x : real\noutput y : real\nparam s : positive fixed\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)\n"
    model, data = gpdsl.compile(text), {"x": np.arange(5.0), "y": np.arange(5.0)}
    for refused in (model.fit, model.explain):
        with pytest.raises(gpdsl.GpdslError, match="parameter `s` has no value to be fixed at"):
            refused(data)
    assert float(model.fit(data, init={"s": 0.5}).parameters["s"]) == 0.5


def test_values_without_a_rest_are_said_to_tell_nothing_of_the_noise() -> None:
    """One row, or a line: the noise that is learnt goes to 0, and the bound says nothing."""
    head = "model line\ninput x : real\noutput y : real\nparam b : real\nparam s2 : positive\nparam s : positive"
    model = gpdsl.compile(f"{head}\nlatent f(x) ~ GP(b * x, s2 * RBF(1))\ny ~ Normal(f, s)\n")
    for x in (np.array([1.0]), np.arange(12.0)):
        fit = model.fit({"x": x, "y": 2 * x})
        assert fit.parameters["s"] < 1e-12
        assert any("its values are explained without a rest" in note for note in fit.notes)
    noisy = 2 * np.arange(12.0) + np.random.default_rng(0).normal(size=12)
    assert not model.fit({"x": np.arange(12.0), "y": noisy}).notes


def test_noise_is_none_below_a_share_of_the_range_or_what_rounding_is_and_of_one_where_all_are_zero() -> None:
    rounding = 2.0**-52 * (1e12 + 3)
    for y, size in (
        (np.array([0.0, 3e6, -5e6, 2.0]), 8e6),
        (np.zeros(4), 1.0),
        (1e12 + np.arange(4.0), rounding / NO_NOISE),
    ):
        program, bound, _ = prepare(gpdsl.compile(MISSING), {"x": np.arange(4.0), "y": y}, {}, {})
        said = [len(notes_on_noise(program, bound, {"sigma": share * NO_NOISE * size})) for share in (0.9, 1.1)]
        assert said == [1, 0]


@pytest.mark.parametrize("shape", [(6, 3), (3, 3), (2, 5, 3)])
def test_columns_of_random_loadings_are_at_right_angles_and_of_size_one(shape: tuple[int, ...]) -> None:
    """What independent values of unit variance make of them has unit variance on average; of a vector each number."""
    found = loadings(shape, np.random.default_rng(0))
    products = np.swapaxes(found, -1, -2) @ found
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(3) * shape[-2] / 3, products.shape), atol=1e-12)
    np.testing.assert_allclose(np.mean(np.sum(found**2, axis=-1), axis=-1), 1.0)
    drawn = loadings((4000,), np.random.default_rng(1))
    assert abs(np.mean(np.sign(drawn))) < 0.05 and np.sqrt(np.mean(drawn**2)) == pytest.approx(1.0, abs=0.1)
    assert np.min(np.abs(drawn)) > 0.3  # none is lost at zero
