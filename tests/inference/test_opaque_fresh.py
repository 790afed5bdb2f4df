"""The bound of opaque likelihoods by evaluations that led nowhere, against its parts in NumPy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.expectation_propagation import engine as expectation_propagation
from gpdsl.inference.natural import refine
from gpdsl.inference.natural.sites import Sites
from gpdsl.inference.opaque import budget, simulator
from gpdsl.inference.opaque.budget import HELD_OUT
from gpdsl.inference.opaque.evaluations import Batch, Gaussian, Judged
from gpdsl.inference.opaque.steps import Steps
from gpdsl.inference.opaque.stochastic import (
    AVERAGED,
    WARM_UP,
    WINDOW,
    Step,
    StochasticSearch,
    _fast,
    _remember,
    _settled,
)
from gpdsl.inference.opaque.surrogate import FAILED, Anchors, Reads, Surrogate
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.problem import FRESH_SETS
from gpdsl.inference.sampling import some_rows_sum_and_error
from gpdsl.program.joint import Marginals
from gpdsl.program.rows import Rows
from tests.inference.problems import problem_of

ROWS, WIDTH = 5, 2


def surrogate_of(rng: np.random.Generator, features: int, anchors: Anchors | None = None) -> Surrogate:
    """Polynomials of two values of one call, and a residual."""
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    centre, inverse, curved = normal(ROWS, WIDTH), normal(ROWS, WIDTH, WIDTH), normal(ROWS, WIDTH, WIDTH)
    known = {"g": normal(ROWS, features, 2)}
    return Surrogate(
        centre,
        inverse,
        curved,
        known,
        normal(ROWS),
        normal(ROWS, WIDTH),
        curved,
        anchors,
        Reads((0, 1)),
        (("g", (2,)),),
    )


def test_the_expected_residual_is_that_of_a_quadratic(rng: np.random.Generator) -> None:
    """E[a + b'z + z'Cz / 2], z = x - centre: C / 2 are slopes in covariances; without C the mean may move."""
    linear, hessian = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 2, 2))
    hessian += np.swapaxes(hessian, 1, 2)
    known, covariance = (np.array([np.cov(rng.normal(size=(2, 9))) for _ in range(ROWS)]) for _ in range(2))
    level, moved = rng.normal(size=ROWS), rng.normal(size=(ROWS, 2))
    with jax.enable_x64(True):
        for curved, away in ((hessian, 0.0), (0.0 * hessian, moved)):
            at_centre = level + 0.5 * np.einsum("nij,nji->n", curved, known)
            told = replace(
                surrogate_of(rng, 3), covariance=known, level=at_centre, slope=linear, curvature=0.5 * curved
            )
            mean = np.asarray(told.centre) + away
            q: Any = SimpleNamespace(mean=jnp.asarray(mean)[None], covariance=jnp.asarray(covariance)[None])
            found = told.residual(SimpleNamespace(), {}, q)[0]  # type: ignore[arg-type]
            expected = level + np.sum(linear * away, axis=1) + 0.5 * np.einsum("nij,nji->n", curved, covariance)
            np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("quadratic", [False, True])
def test_values_of_polynomials_are_theirs_about_the_centre(rng: np.random.Generator, quadratic: bool) -> None:
    surrogate, x = surrogate_of(rng, 6 if quadratic else 3), rng.normal(size=(4, ROWS, WIDTH))
    found = simulator._said(surrogate, x)["g"]
    for s in range(4):
        for n in range(ROWS):
            a, b = np.asarray(surrogate.inverse[n]) @ (x[s, n] - np.asarray(surrogate.centre[n]))
            features = [1, a, b, (a**2 - 1) / np.sqrt(2), (b**2 - 1) / np.sqrt(2), a * b][: 6 if quadratic else 3]
            np.testing.assert_allclose(
                found[s, n, 0], features @ np.asarray(surrogate.coefficients["g"][n]), rtol=1e-12
            )


def test_the_polynomials_alone_have_no_residual(rng: np.random.Generator) -> None:
    anchors = Anchors(jnp.ones((1, 1, ROWS, 2)), {}, {}, jnp.ones((1, ROWS)), jnp.ones(ROWS))
    for own in (None, anchors):
        before = surrogate_of(rng, 3, own)
        alone = simulator.without_residual(before)
        for name in ("level", "slope", "curvature"):
            assert not np.any(getattr(alone, name)) and getattr(alone, name).shape == getattr(before, name).shape
        assert alone.centre is before.centre and alone.coefficients is before.coefficients
        assert (alone.anchors is None) == (own is None)
        if alone.anchors is not None:
            assert not np.any(alone.anchors.weights) and not np.any(alone.anchors.level)
            assert alone.anchors.latents is anchors.latents


@pytest.mark.parametrize("points", [9, 2])
def test_the_held_out_bound_adds_what_true_values_do(rng: np.random.Generator, points: int) -> None:
    """Sets of samples for the surrogates, numbered from one, and sets of new points for what they leave open."""
    surrogate, asked = surrogate_of(rng, 3), list[int]()
    q = Gaussian(rng.normal(size=(ROWS, WIDTH)), np.tile(np.eye(WIDTH), (ROWS, 1, 1)))
    bounds, seen = rng.normal(size=FRESH_SETS + 2), dict[str, Any]()

    def bound(point: Any, sites: Any, number: Any, alone: Surrogate) -> float:
        assert not np.any(alone.slope)
        asked.append(number)
        return float(bounds[number])

    def evaluate(point: Any, place: Gaussian, z: np.ndarray, *, values_only: bool) -> Batch:
        seen["z"] = z
        return Batch(place, place.at(z), {"g": np.zeros((*z.shape[:2], 2))})

    def residual(point: Any, batch: Batch, said: dict[str, np.ndarray]) -> np.ndarray:
        assert said["g"].shape == (len(seen["z"]), ROWS, 1, 2)
        return seen["z"][..., 0] ** 3 + np.arange(ROWS)

    stands_in: Any = SimpleNamespace(
        bound=bound, evaluate=evaluate, residual=residual, reads=SimpleNamespace(columns=(0,))
    )
    place: Any = None, None, q
    numbered: Any = lambda number: number  # noqa: E731
    value, error = simulator.held_out_bound(stands_in, place, surrogate, points, numbered, [1, 2])
    assert asked == list(range(1, FRESH_SETS + 1))
    sets, z = min(HELD_OUT, points), seen["z"]
    assert z.shape == (points // sets * sets, ROWS, WIDTH) and not np.any(z[..., 1]) and np.std(z[..., 0]) > 0.3
    left = (z[..., 0] ** 3 + np.arange(ROWS)).reshape(sets, -1, ROWS).mean(axis=1)
    said = bounds[1 : FRESH_SETS + 1]
    assert value == pytest.approx(said.mean() + left.mean(axis=0).sum(), rel=1e-12)
    least = np.sqrt(said.var(ddof=1) / FRESH_SETS + np.sum(left.var(axis=0, ddof=1)) / sets)
    assert least <= error < 2.5 * least


def test_a_residual_moves_q_as_its_slopes_do_and_goes_along_at_the_first_points(rng: np.random.Generator) -> None:
    """Slopes b in means and C in covariances change natural parameters by b - 2 C m and by 2 C."""
    mean, roots = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3, 3))
    covariance = roots @ np.swapaxes(roots, 1, 2)
    moments = mean[None], np.diagonal(covariance, axis1=1, axis2=2)[None], covariance[None]
    sites = Sites(jnp.asarray(rng.normal(size=(ROWS, 3))), jnp.asarray(rng.normal(size=(ROWS, 3, 3))))
    slope, bend = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 2, 2))
    bend = bend + np.swapaxes(bend, 1, 2)
    stand_in: Any = SimpleNamespace(
        reads=Reads((0, 2)),
        problem=SimpleNamespace(program=None, choice=SimpleNamespace(samples=4)),
        _marginals=lambda *_: Marginals(*map(jnp.asarray, moments)),
        place=lambda point, moved, rows, held: (moved.linear - sites.linear, moved.precision - sites.precision),
        latents=lambda x: x[:, None],
        shaped=lambda latents, values: dict(values),
    )
    shaken = jax.jit(lambda slope, bend: Steps.shaken(stand_in, None, sites, None, None, slope, bend))
    linear, precision = map(np.asarray, shaken(slope, bend))
    np.testing.assert_allclose(precision[:, [[0], [2]], [0, 2]], -2 * bend, rtol=1e-5)
    moved = slope - 2 * np.einsum("nij,nj->ni", bend, mean[:, [0, 2]])
    np.testing.assert_allclose(linear[:, [0, 2]], moved, rtol=1e-4, atol=1e-5)
    assert not np.any(linear[:, 1]) and not np.any(precision[:, 1])

    stand_in.steps, points = stand_in, rng.normal(size=(6, ROWS, 2))
    failed, w, r = rng.integers(0, 2, (6, ROWS)).astype(float), rng.uniform(size=(6, ROWS)), rng.normal(size=(6, ROWS))
    batch = Batch(Gaussian(mean, roots), points, {"g": points[..., :1]}, failed)
    found = simulator.Simulator.anchors(stand_in, batch, {"g": points[..., None, 1:]}, w, r)
    np.testing.assert_allclose(found.weights, w[:4] / w[:4].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.level, (w[:4] * r[:4]).mean(axis=0) / w[:4].mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found.true[FAILED][:, 0], failed[:4])
    for place, each in ((slice(2), found.latents[:, 0]), (slice(1), found.true["g"]), (slice(1, 2), found.said["g"])):
        np.testing.assert_allclose(each, points[:4, :, place], rtol=1e-6)


def test_all_points_of_all_rounds_stay_with_tilted_moments_filled_up_without_weight(rng: np.random.Generator) -> None:
    """Three points and two that go on as eight, a power of two times those of a round."""
    points, w = rng.normal(size=(5, ROWS, 1)), rng.uniform(size=(5, ROWS))
    q, failed = Gaussian(np.zeros((ROWS, 1)), np.ones((ROWS, 1, 1))), np.ones((2, ROWS))
    first = Batch(q, points[:3], {"g": points[:3] ** 2})
    batches: Any = SimpleNamespace(batches=[first, Batch(q, points[3:], {"g": points[3:] ** 2}, failed)], weights=w)
    stand_in: Any = SimpleNamespace(problem=SimpleNamespace(choice=SimpleNamespace(samples=2)))
    stand_in.steps = SimpleNamespace(latents=lambda x: x[:, None], shaped=lambda latents, values: dict(values))
    said = [{"g": -part[..., None]} for part in (points[:3], points[3:])]
    found = expectation_propagation._Simulator.anchored(stand_in, batches, said, [])
    np.testing.assert_allclose(found.weights, np.concatenate([w, np.zeros((3, ROWS))]), rtol=1e-6)
    every = np.concatenate([points, np.repeat(points[:1], 3, axis=0)])
    for each, expected in ((found.latents[:, 0], every), (found.true["g"], every**2), (found.said["g"], -every)):
        np.testing.assert_allclose(each, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.true[FAILED][:, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0])


def test_the_evidence_at_the_end_is_the_mean_over_samples_it_was_not_chosen_for() -> None:
    """Its error is what the evaluations leave open and that of a mean of as many sets of samples."""
    bounds = np.random.default_rng(0).normal(-5.0, 1.0, FRESH_SETS + 1)
    stand_in: Any = SimpleNamespace(
        fitted=SimpleNamespace(surrogate="emulator"),
        best=SimpleNamespace(point="point", sites="sites"),
        normals=lambda number: number,
        judged=Judged(-9.0, 0.3),
        simulator=SimpleNamespace(bound=lambda point, sites, number, surrogate: bounds[number]),
    )
    expectation_propagation.EpOpaque.confirm(stand_in)
    assert stand_in.judged.value == pytest.approx(bounds[1:].mean())
    assert 0.3**2 + bounds[1:].var(ddof=1) / FRESH_SETS <= stand_in.judged.error**2
    before, stand_in.fitted = stand_in.judged, None
    expectation_propagation.EpOpaque.confirm(stand_in)
    assert stand_in.judged is before


def test_halves_of_samples_are_estimates_of_their_own(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expected(program: Any, parameters: Any, rows: Any, q: Any, normals: Any, values: Any) -> Any:
        assert (program, parameters, rows, q) == ("program", {}, "rows", "q")
        return jnp.mean(normals[..., 0] * values["g"], axis=0)

    monkeypatch.setattr(simulator, "expected_log_likelihood", expected)
    problem: Any = SimpleNamespace(program="program")
    normals, values, weights = rng.normal(size=(7, 2, ROWS, 2)), rng.normal(size=(7, 2, ROWS)), np.array([0.3, 0.7])
    given: Any = "rows", "q", jnp.asarray(weights), jnp.asarray(normals), {"g": jnp.asarray(values)}
    found = simulator.by_halves(problem, {}, *given)
    each = np.einsum("skn,k->sn", normals[..., 0] * values, weights)
    np.testing.assert_allclose(found, [each[:3].mean(axis=0), each[3:].mean(axis=0)], rtol=1e-12)


@pytest.mark.parametrize("some", [4, 7])
def test_looks_at_some_rows_stand_for_all(monkeypatch: pytest.MonkeyPatch, some: int) -> None:
    """The sum over seven rows from estimates of some of them, by three looks; what is besides counts once."""
    monkeypatch.setattr(simulator, "assessing", lambda *_: 5)
    monkeypatch.setattr(simulator, "looks", lambda program, asked: 3 if asked == 5 else 0)
    monkeypatch.setattr(simulator, "assessed_rows", lambda *_: some)
    rows = Rows({"x": jnp.arange(7.0)}, {}, {}, {})
    problem: Any = SimpleNamespace(count=7, choice=None, program=None, rows=rows)
    told, keys = [], []

    def look(part: Rows, key: Any) -> tuple[Any, float]:
        keys.append(tuple(np.asarray(jax.random.key_data(key))))
        told.append(np.stack([10 + np.asarray(part.inputs["x"]) + 0.1 * len(keys), np.asarray(part.inputs["x"])]))
        return told[-1], -2.5

    value, error = simulator.fresh_bound(problem, look, 3) or (0.0, 0.0)
    assert len(set(keys)) == 3
    places = told[0][1]
    assert len(places) == some and np.all(np.diff(places) > 0)
    estimates = np.concatenate(told)
    assert value == pytest.approx(7 * estimates.mean() - 2.5)
    assert error == pytest.approx(some_rows_sum_and_error(estimates, 7)[1])
    monkeypatch.setattr(simulator, "looks", lambda *_: 0)
    assert simulator.fresh_bound(problem, look, 3) is None


def test_a_search_is_settled_where_the_mean_of_a_window_no_longer_rises() -> None:
    rng = np.random.default_rng(0)
    window = 3 * WINDOW
    flat = list(rng.normal(size=4 * window))
    assert not _settled(flat[: 2 * window]), "too few"
    assert not _settled([*flat, 0.0]), "not a whole window"
    level = np.concatenate([flat[: 2 * window], np.zeros(window), np.full(window, 0.0)]) + 1e-3 * np.tile([1, -1], 60)
    assert _settled(list(level))
    level[-window:] += 1.0
    assert not _settled(list(level)), "it rises"
    level[-window:] -= 2.0
    assert _settled(list(level)), "it falls"
    for errors in (0.95, 1.05):  # of the difference of two means of values that are one away from theirs
        rising = np.tile([1.0, -1.0], 2 * window) + np.repeat([0.0, errors * np.sqrt(2 / window)], [3 * window, window])
        assert _settled(list(rising)) == (errors < 1.0)


@pytest.mark.parametrize(("steps", "first"), [(43, 3), (20, 1)])
def test_a_search_spends_its_steps_and_ends_at_a_mean(monkeypatch: pytest.MonkeyPatch, steps: int, first: int) -> None:
    """Half way to each target at first; the last steps, t of them, leave the mean of their targets and the start."""
    text = "input x : real\noutput y : real\nparam s : positive = 0.5\nexternal g(f: real) -> real\n"
    model = gpdsl.compile(text + "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(g(f), s)\n", externals={"g": np.sin})
    problem = problem_of(model, {"x": np.arange(3.0), "y": np.ones(3)}, gradients="score", steps=steps)
    search, weights, keys, place = StochasticSearch(problem), list[float](), list[Any](), [0.0]

    def evaluate(key: Any, *, learn: bool) -> Step:
        keys.append((tuple(np.asarray(jax.random.key_data(key))), learn))
        return Step(-1.0, len(keys))  # type: ignore[arg-type]

    def step_to(target: Any, weight: float) -> None:
        weights.append(weight)
        place[0] += weight * (target - place[0])

    monkeypatch.setattr(search, "evaluate", evaluate)
    monkeypatch.setattr(search, "step_to", step_to)
    assert search.joint() == "all steps done"
    assert weights == [0.5] * first
    place[0] = 100.0
    search.averaged()
    assert place[0] == pytest.approx((100.0 + np.sum(first + 1 + np.arange(AVERAGED))) / (AVERAGED + 1))
    assert len(weights) == first + AVERAGED and len({key for key, _ in keys}) == len(keys)
    assert [learn for _, learn in keys] == [True] * first + [False] * AVERAGED


def test_a_search_that_stands_still_ends_after_twice_its_warm_up() -> None:
    asked: list[int] = []

    def evaluate(key: object, *, learn: bool) -> Step:
        asked.append(len(asked))
        return Step(-3.0, None)  # type: ignore[arg-type]

    nothing: Any = lambda *_: None  # noqa: E731
    still: Any = SimpleNamespace(
        **dict.fromkeys(("nothing", "step_to", "fast", "remember"), nothing),
        **dict.fromkeys(("key", "sites", "units")),
        evaluate=evaluate,
        budget=1000,
    )
    assert StochasticSearch.accelerated(still).startswith("converged")
    assert len(asked) == 2 * WARM_UP + 1 > WINDOW


def spending(spent: int) -> Any:
    """A program with two opaque numbers in a row, of which so many evaluations have been made."""
    account = SimpleNamespace(evaluations=spent, remaining=35)
    return SimpleNamespace(uses=lambda: [SimpleNamespace(result=())] * 2, account=account)


def wanting(**options: Any) -> Any:
    return SimpleNamespace(**{"engine": "vi", "samples": None, "evaluations": None, **options})


CHOICE = Choice(dense=False, inducing=5, batch=0, samples=50, optimizer="natural", steps=1000, reasons={})


@pytest.mark.parametrize(
    ("evaluations", "spent", "samples"),
    [(100_000, 0, 60), (1600, 0, 20), (1600, 160, 18), (20 * (12 + HELD_OUT), 0, 12), (20 * (5 + HELD_OUT), 0, 5)],
)
def test_points_of_a_round_are_a_fourth_of_what_is_left_and_enough_for_a_plane(
    monkeypatch: pytest.MonkeyPatch, evaluations: int, spent: int, samples: int
) -> None:
    """Of ten rows, in which a point costs 20: 60 points are as many as help, and 12 tell a plane."""
    monkeypatch.setattr(budget, "is_simulated", lambda *_: True)
    monkeypatch.setattr(budget, "has_slopes", lambda _: False)
    monkeypatch.setattr(budget, "opaque_reads", lambda *_, **__: SimpleNamespace(width=3))
    monkeypatch.setattr(budget, "points_for", lambda width, quadratic=True, slopes=False: 60 if quadratic else 12)
    found = budget.within_budget(spending(spent), wanting(evaluations=evaluations), CHOICE, 10)
    assert (found.samples, found.steps) == (samples, CHOICE.steps)


def test_steps_are_those_that_leave_a_look_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 rows with 50 samples of 2 functions each: 1000 evaluations a step, and for the bound."""
    monkeypatch.setattr(budget, "is_simulated", lambda *_: False)
    given = {"samples": 50, "evaluations": 5500}
    assert budget.within_budget(spending(0), wanting(**given), CHOICE, 10).steps == 4
    assert budget.within_budget(spending(501), wanting(**given), CHOICE, 10).steps == 3
    assert budget.within_budget(spending(0), wanting(samples=50), CHOICE, 10).steps == CHOICE.steps
    with pytest.raises(gpdsl.GpdslError, match="one step takes 1000 .50 samples of 20 evaluations., and .* end 1000"):
        budget.within_budget(spending(3501), wanting(**given), CHOICE, 10)
    assert [budget.looks(spending(0), each) for each in (0, 10, 36)] == [min(35, FRESH_SETS), 3, 0]


def test_steps_are_remembered_by_how_places_and_residuals_have_changed() -> None:
    """Of a map with one slope, what is remembered leads to its fixed point at once; without it, to where it leads."""
    fixed, slope = np.array([1.0, -2.0, 0.5, 3.0]), 0.8
    units = Sites(jnp.asarray([2.0]), jnp.asarray([0.5]))

    def sites(values: np.ndarray) -> Sites:
        return Sites(jnp.asarray(values[:2, None]), jnp.asarray(values[2:, None]))

    def led(values: np.ndarray) -> np.ndarray:
        return fixed + slope * (values - fixed)

    with jax.enable_x64(True):
        old, new = np.array([3.0, 0.0, 1.0, 2.0]), led(np.array([3.0, 0.0, 1.0, 2.0]))
        nothing = refine.empty(4, jnp.dtype("float64"))
        plain = _fast(nothing, sites(old), sites(led(old)), units)
        np.testing.assert_allclose(np.concatenate([plain.linear, plain.precision])[:, 0], led(old), rtol=1e-9)
        given = map(sites, (old, led(old), new, led(new)))
        known = _remember(nothing, *given, units)
        fast = _fast(known, sites(new), sites(led(new)), units)
    np.testing.assert_allclose(np.concatenate([fast.linear, fast.precision])[:, 0], fixed, rtol=1e-6)
