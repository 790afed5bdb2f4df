"""Inducing points and features asked for latent by latent: bounds by formulas, files, starts, what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import make_parser
from gpdsl.cli.options import choices_of
from gpdsl.errors import GpdslError
from gpdsl.inference.plan.options import make_options
from gpdsl.language.inducing import per_latent

TWO = """
input x : real
output y : real
output z : real
param sf : positive = 0.3
param sg : positive = 0.5
latent f(x) ~ GP(0, Matern32(0.7))
latent g(x) ~ GP(0.2, 2 * Matern32(2))
y ~ Normal(f, sf)
z ~ Normal(g, sg)
"""
"""Latents with kernels of one form, which are computed together unless their numbers of points differ."""

SUM = """
input x : real
output y : real
param s : positive = 0.4
latent f(x) ~ GP(0, Matern32(0.7))
latent g(x) ~ GP(0.2, 2 * Matern32(2))
y ~ Normal(f + g, s)
"""
HELD = ["sf", "sg"]
ROWS = 50
KERNELS = ((0.7, 1.0), (2.0, 2.0))


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, ROWS))
    y, z = np.sin(3 * x) + 0.3 * rng.standard_normal(ROWS), np.cos(2 * x) + 0.5 * rng.standard_normal(ROWS)
    return {"x": x, "y": y, "z": z}


def matern(a: np.ndarray, b: np.ndarray, ell: float, variance: float) -> np.ndarray:
    r = np.sqrt(3) * np.abs(a[:, None] - b) / ell
    return variance * (1 + r) * np.exp(-r)


def log_normal(y: np.ndarray, covariance: np.ndarray) -> float:
    return float(-0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]))


def titsias(x: np.ndarray, y: np.ndarray, noise: float, *latents: tuple[np.ndarray, float, float]) -> float:
    """The collapsed bound of y = a sum of latents, each known by its values at points of its own, and noise."""
    explained, total = np.zeros((len(y), len(y))), 0.0
    for points, ell, variance in latents:
        cross = matern(points, x, ell, variance)
        explained += cross.T @ np.linalg.solve(matern(points, points, ell, variance), cross)
        total += len(y) * variance
    spread = explained + noise**2 * np.eye(len(y))
    return log_normal(y, spread) - 0.5 * (total - np.trace(explained)) / noise**2


def places(fit: Any) -> list[np.ndarray]:
    return [np.asarray(each.points)[:, 0] for each in fit.inducing]


def test_bounds_of_two_numbers_are_those_of_the_formula_and_below_the_evidence() -> None:
    known, model = data(), gpdsl.compile(TWO)
    x, y, z = known["x"], known["y"], known["z"] - 0.2
    exact = log_normal(y, matern(x, x, *KERNELS[0]) + 0.09 * np.eye(ROWS))
    exact += log_normal(z, matern(x, x, *KERNELS[1]) + 0.25 * np.eye(ROWS))
    bounds = []
    for few, many in ((6, 11), (12, 11), (12, 30)):
        fit = model.fit(known, inducing={"f": few, "g": many}, fixed=HELD)
        at_f, at_g = places(fit)
        assert (len(at_f), len(at_g)) == (few, many)
        wanted = titsias(x, y, 0.3, (at_f, *KERNELS[0])) + titsias(x, z, 0.5, (at_g, *KERNELS[1]))
        bounds.append(fit.elbo)
        assert fit.elbo == pytest.approx(wanted, abs=1e-4) and fit.elbo < exact
    assert bounds[0] < bounds[1] < bounds[2]
    assert model.fit(known, inducing=0, fixed=HELD).elbo == pytest.approx(exact, abs=1e-4)


def test_latents_of_one_sum_have_points_of_their_own() -> None:
    """One Gaussian across both latents, whose inducing values are 6 and 11."""
    known, model = data(), gpdsl.compile(SUM)
    x, y = known["x"], known["y"] - 0.2
    fit = model.fit(known, inducing={"f": 6, "g": 11}, fixed=["s"])
    assert fit.choice.posterior == "coupled" and [len(each) for each in fit.inducing] == [6, 11]
    wanted = titsias(x, y, 0.4, *((at, *kernel) for at, kernel in zip(places(fit), KERNELS, strict=True)))
    assert fit.elbo == pytest.approx(wanted, abs=1e-4)
    both = sum(matern(x, x, *kernel) for kernel in KERNELS) + 0.16 * np.eye(ROWS)
    assert fit.elbo < log_normal(y, both)


@pytest.mark.slow
def test_features_of_one_latent_beside_points_of_another() -> None:
    """As two fits of one latent each, as outputs read one each."""
    known, waves = data(), "fourier(12, over = [-3, 3])"
    fit = gpdsl.compile(TWO).fit(known, inducing={"f": waves, "g": 7}, fixed=HELD)
    alone = []
    for name, other, inducing in (("f", "g", waves), ("g", "f", 7)):
        output, left = ("y", "z") if name == "f" else ("z", "y")
        drop = (f"latent {other}", f"{left} ~", f"output {left}", f"param s{other}")
        text = "\n".join(line for line in TWO.splitlines() if not line.startswith(drop))
        of_one = {"x": known["x"], output: known[output]}
        alone.append(gpdsl.compile(text).fit(of_one, inducing=inducing, fixed=[f"s{name}"]).elbo)
    assert fit.elbo == pytest.approx(sum(alone), abs=1e-4)
    assert f"features {waves} of f, 7 inducing points of g" in fit.summary()
    both = gpdsl.compile(TWO + f"infer vi: inducing f = {waves}, inducing g = eigen(9)").fit(known, fixed=HELD)
    assert [len(each) for each in both.inducing] == [12, 9] and both.elbo > fit.elbo


@pytest.mark.parametrize("g", [0, None])
def test_a_latent_whose_number_is_open_has_what_the_plan_takes(g: int | None) -> None:
    """For so few rows that is a point at each, which loses nothing; and so does 0."""
    known, model = data(), gpdsl.compile(TWO)
    fit = model.fit(known, inducing={"f": 6} if g is None else {"f": 6, "g": g}, fixed=HELD)
    at_f, at_g = places(fit)
    np.testing.assert_allclose(at_g, known["x"])
    x, z = known["x"], known["z"] - 0.2
    wanted = titsias(x, known["y"], 0.3, (at_f, *KERNELS[0]))
    wanted += log_normal(z, matern(x, x, *KERNELS[1]) + 0.25 * np.eye(ROWS))
    assert fit.elbo == pytest.approx(wanted, abs=1e-4)
    said = model.explain(known, inducing={"f": 6})
    assert "6 inducing points at k-means" in said and "50 inducing points that determine all" in said
    assert "inducing: 50 rows of g at most 1500" in said


@pytest.mark.slow
def test_one_number_for_all_is_one_number() -> None:
    """However it is written: the fit is the same to the last bit, and so is what it says."""
    known, model = data(), gpdsl.compile(TWO)
    plain = model.fit(known, inducing=9)
    ways = [
        model.fit(known, inducing={"f": 9, "g": 9}),
        model.fit(known, inducing={"": 9}),
        gpdsl.compile(TWO + "infer vi: inducing f = 9, inducing g = 9").fit(known),
        gpdsl.compile(TWO + "infer vi: inducing f = 10, inducing g = 9").fit(known, inducing={"f": 9}),
    ]
    for fit in ways:
        assert fit.elbo == plain.elbo and fit.options.inducing == 9
        np.testing.assert_array_equal(fit.parameters["sf"], plain.parameters["sf"])


def test_what_is_asked_by_name_comes_before_what_is_asked_for_all() -> None:
    line = dict(gpdsl.compile(TWO + "infer vi: inducing = 50, inducing f = 10").declarations.infer.options)
    assert line["inducing"] == {"f": 10, "g": 50}
    assert make_options(line, {"inducing": {"g": 7}}, ("f", "g")).inducing == {"f": 10, "g": 7}
    assert make_options(line, {"inducing": {"": 7}}, ("f", "g")).inducing == {"f": 10, "g": 50}
    assert make_options(line, {"inducing": 7}, ("f", "g")).inducing == 7
    assert make_options({}, {"inducing": {"g": "eigen(20)"}}, ("f", "g")).inducing == {"g": "eigen(20)"}
    assert per_latent({"f": 3, "g": 3}, ("f", "g", "h")) == {"f": 3, "g": 3}
    one = TWO.replace("g(x)", "q(x)").replace("Normal(g", "Normal(q") + "infer vi: inducing f = 12"
    assert gpdsl.compile(one).declarations.infer.options["inducing"] == {"f": 12}


def test_the_command_line_names_latents() -> None:
    line = ["fit", "m.gpm", "--data", "d.csv"]
    typed = [*line, "--set", "inducing f=10", "--set", "inducing g=fourier(20)", "--set", "inducing=50"]
    assert choices_of(make_parser().parse_args(typed)) == {"inducing": {"f": 10, "g": "fourier(20)", "": 50}}
    assert choices_of(make_parser().parse_args([*line, "--set", "inducing=50"])) == {"inducing": 50}


@pytest.mark.parametrize(
    "options",
    [
        {"posterior": "full", "optimizer": "lbfgs"},
        {"batch": 20, "steps": 60},
        {"engine": "ep"},
        {"learn_inducing": True},
        {"dtype": "float32"},
        pytest.param({"posterior": "corrected"}, marks=pytest.mark.slow),
        pytest.param({"posterior": "mixture(2)", "steps": 100}, marks=pytest.mark.slow),
        pytest.param({"posterior": "diagonal", "steps": 100}, marks=pytest.mark.slow),
        pytest.param({"schedule": "alternating", "posterior": "full"}, marks=pytest.mark.slow),
        pytest.param({"inducing": {"f": "fourier(8)", "g": 5}, "engine": "ep"}, marks=pytest.mark.slow),
    ],
)
def test_every_engine_takes_them(options: dict) -> None:
    known = data()
    exact = log_normal(
        known["y"] - 0.2, sum(matern(known["x"], known["x"], *kernel) for kernel in KERNELS) + 0.16 * np.eye(ROWS)
    )
    asked = {"inducing": {"f": 6, "g": 11}, "fixed": ["s"], **options}
    fit = gpdsl.compile(SUM).fit(known, **asked)
    assert [len(each) for each in fit.inducing] == ([8, 5] if "fourier" in str(options) else [6, 11])
    assert fit.elbo < exact and np.all(np.isfinite(fit.predict(known).mean("f")))


@pytest.mark.slow
def test_chains_move_in_points_of_two_numbers() -> None:
    """Their draws have the mean of the exact Gaussian that inducing values have, as noise is known."""
    known, model = data(), gpdsl.compile(SUM)
    asked: dict[str, Any] = {"inducing": {"f": 4, "g": 6}, "fixed": ["s"]}
    chains = model.fit(known, engine="mcmc", draws=400, warm_up=200, chains=2, **asked)
    gaussian = model.fit(known, **asked)
    wide = gaussian.predict(known).sd("f")
    assert np.all(np.abs(chains.predict(known).mean("f") - gaussian.predict(known).mean("f")) < 0.35 * wide)


def test_they_are_kept_in_files(tmp_path: Path) -> None:
    known, model = data(), gpdsl.compile(TWO)
    for number, asked in enumerate([{"f": "fourier(12)", "g": 7}, {"f": 5, "g": 0}, {"g": 4}]):
        fit, path = model.fit(known, inducing=asked, fixed=HELD), tmp_path / f"{number}.gpfit"
        fit.save(path)
        for again in (gpdsl.load_fit(path), copy.deepcopy(fit)):
            assert again.options.inducing == asked and again.choice == fit.choice
            np.testing.assert_array_equal(again.predict(known).mean("g"), fit.predict(known).mean("g"))
        assert again.summary().splitlines()[1:4] == fit.summary().splitlines()[1:4]


@pytest.mark.slow
def test_a_checkpoint_of_them_goes_on(tmp_path: Path) -> None:
    known, model = data(), gpdsl.compile(TWO)
    asked: dict[str, Any] = {"inducing": {"f": 5, "g": 9}, "checkpoint": tmp_path / "a.gpfit"}
    first = model.fit(known, steps=1, **asked)
    more = model.fit(known, resume=True, **asked)
    assert more.elbo >= first.elbo and [len(each) for each in more.inducing] == [5, 9]
    with pytest.raises(GpdslError, match="fitted with another inducing"):
        model.fit(known, resume=True, **{**asked, "inducing": {"f": 5, "g": 8}})


@pytest.mark.slow
def test_a_fit_starts_where_another_has_its_points(tmp_path: Path) -> None:
    known, model = data(), gpdsl.compile(TWO)
    first = model.fit(known, inducing={"f": 5, "g": 9}, learn_inducing=True, seed=1)
    again = model.fit(known, start=first, learn_inducing=True)
    assert again.options.inducing == {"f": 5, "g": 9} and again.elbo == pytest.approx(first.elbo, abs=1e-3)
    refined = model.fit(known, start=first, inducing={"f": 15})
    assert [len(each) for each in refined.inducing] == [15, 9]
    np.testing.assert_array_equal(places(refined)[1], places(first)[1])
    assert refined.choice.own == {"f": 15, "g": 9} and refined.elbo > first.elbo
    several, path = model.fit(known, inducing={"f": 6}), tmp_path / "a.gpfit"
    same = model.fit(known, start=several)  # g has a point at each row, not as many points as there were rows
    assert same.choice.own == several.choice.own == {"f": 6, "g": 0}
    begun = model.fit(known, start=first, checkpoint=path, steps=1)
    more = model.fit(known, checkpoint=path, resume=True)
    assert more.options.inducing == begun.options.inducing == {"f": 5, "g": 9} and more.elbo >= begun.elbo
    plain = model.fit(known, start=first, inducing=7)
    assert [len(each) for each in plain.inducing] == [7] and plain.options.inducing == 7
    apart = model.fit(known, start=plain, inducing={"f": 7, "g": 12})
    np.testing.assert_array_equal(places(apart)[0], places(plain)[0])


@pytest.mark.slow
def test_points_are_shown_of_a_latent_that_has_some() -> None:
    known, model = data(), gpdsl.compile(TWO)
    for asked in ({"f": "fourier(9)", "g": 7}, {"f": 0, "g": 7}):
        picture = model.fit(known, inducing=asked, fixed=HELD, steps=2).plot(data=known, kind="inducing")
        drawn = [line for axes in picture.axes for line in axes.lines if line.get_label() == "inducing points"]
        assert [len(line.get_xdata()) for line in drawn] == [7]
    with pytest.raises(GpdslError, match="no inducing points"):
        model.fit(known, inducing="fourier(9)", fixed=HELD, steps=2).plot(data=known, kind="inducing")


def test_too_few_points_are_told_by_name() -> None:
    fit = gpdsl.compile(TWO).fit(data(), inducing={"f": 3, "g": 20}, fixed=HELD)
    assert "3 inducing points of f, 20 inducing points of g lose about" in fit.summary()
    assert "as inducing={'f': 6, 'g': 40}" in fit.summary()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"inducing": {"f": 6, "h": 5}}, "inducing of h: the model has no such latent; its latents: `f`, `g`"),
        ({"inducing": {"F": 6}}, "did you mean `f`?"),
        ({"inducing": {"f": 6, "g": "fourier(0)"}}, "expected of `g` at least one of `fourier`"),
        ({"inducing": {"f": 6, "g": "wavelets(3)"}}, "of `g` a family of features that there is, not `wavelets`"),
        ({"inducing": {"f": 2.5}}, "expected of `f` a whole number"),
        ({"inducing": {}}, "expected a whole number"),
        ({"inducing": {3: 4}}, "expected a whole number"),
        ({"inducing": {"f": 6, "g": 0}, "batch": 20}, "inducing g = 0 takes a point at all rows: set batch = 0"),
        (
            {"inducing": {"f": 6, "g": "fourier(5)"}, "learn_inducing": True},
            "features are not: leave it out, or change",
        ),
        ({"inducing": {"f": 6, "g": 0}, "learn_inducing": True}, "a latent with a point at all its rows does not have"),
        ({"inducing": {"f": 6, "g": 51}}, "ask for at most `inducing g = 50`, or leave `inducing g` out"),
        ({"inducing": {"f": 6}, "engine": "qsgp"}, "belongs to engine = vi or ep or mcmc"),
    ],
)
def test_refused(asked: dict, words: str) -> None:
    with pytest.raises(GpdslError) as caught:
        gpdsl.compile(TWO).fit(data(), **asked)
    assert words in str(caught.value)


def test_features_are_asked_of_the_latents_that_are_named() -> None:
    """`g` has none of these, and nobody asked it for any."""
    known, text = data(), TWO.replace("2 * Matern32(2)", "RBF(2)")
    fit = gpdsl.compile(text + "infer vi: inducing f = fourier(9)").fit(known, fixed=HELD)
    assert [len(each) for each in fit.inducing] == [9, ROWS]
    with pytest.raises(GpdslError, match="`g` has no inducing features of the family `fourier`"):
        gpdsl.compile(text + "infer vi: inducing f = 8, inducing g = fourier(9)").fit(known)


DEEP = """
input x : real
output y : real
param s2 : positive = 0.5
latent h(x) ~ GP(x, s2 * RBF(1))
latent f(h) ~ GP(0, RBF(1))
y ~ Normal(f, 0.2)
"""


@pytest.mark.slow
def test_layers_have_numbers_of_their_own() -> None:
    known = {"x": np.linspace(-2, 2, 300), "y": np.sin(np.linspace(-6, 6, 300))}
    model = gpdsl.compile(DEEP + "infer vi: inducing h = 7")
    said = model.explain(known)
    lines = [line.split()[0] for line in said.splitlines() if "inducing points that move" in line]
    assert lines == ["7", "150"]
    fit = model.fit(known, inducing={"f": 11}, steps=5)
    assert [len(each) for each in fit.inducing] == [7, 11]
    assert "7 inducing points of h, 11 inducing points of f" in fit.summary()
    again = model.fit(known, start=fit, inducing={"f": 11}, steps=3)
    assert [len(each) for each in again.inducing] == [7, 11]
    with pytest.raises(GpdslError, match="inducing f = 12, but start = fit has 11 .* or set inducing f = 11"):
        model.fit(known, start=fit, inducing={"f": 12}, steps=3)
    fewer = model.fit(known, inducing={"h": 9, "f": 5}, steps=5)  # than below
    assert [len(each) for each in fewer.inducing] == [9, 5]
    with pytest.raises(GpdslError, match=r"inducing f = eigen\(9\): `f` is a function of `h`"):
        model.fit(known, inducing={"f": "eigen(9)"})


def test_layers_by_recursion_have_one_number_each() -> None:
    text = """index l in 1..3
    input x : real
    output y : real
    param s2[l] : positive = 0.1
    latent h[1](x) ~ GP(x, s2[1] * RBF(1))
    latent h[l > 1](h[l - 1]) ~ GP(h[l - 1], s2[l] * RBF(1))
    latent f(h[3]) ~ GP(0, RBF(1))
    y ~ Normal(f, 0.2)
    infer vi: inducing h = 8
    """
    known = {"x": np.linspace(-2, 2, 40), "y": np.sin(np.linspace(-6, 6, 40))}
    model = gpdsl.compile(text)
    assert model.declarations.infer.options["inducing"] == {"h_1": 8, "h_2": 8, "h_3": 8}
    said = model.explain(known, inducing={"h_2": 5})
    lines = [line.split()[0] for line in said.splitlines() if "inducing points that move" in line]
    assert lines == ["8", "5", "8", "40"]
