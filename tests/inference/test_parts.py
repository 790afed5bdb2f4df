"""Parts of the engines on their own: acceleration, spanning rows, k-means starts, options, the plan as text."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference import infer, resolution, unrelated_rows
from gpdsl.inference.ascent import adam, joint as alternating, lbfgs
from gpdsl.inference.ascent.lbfgs import maximise
from gpdsl.inference.exact.gridded import Gridded
from gpdsl.inference.inducing import featured
from gpdsl.inference.inducing.start import kmeans_centres, spanning_rows
from gpdsl.inference.layered.propagation import Layers
from gpdsl.inference.natural import profiled, refine, refine as anderson, row_space
from gpdsl.inference.opaque import stochastic
from gpdsl.inference.opaque.budget import Spent
from gpdsl.inference.plan.explain import WIDEST, _shorten
from gpdsl.inference.plan.options import Choice, Options, decide, make_options
from gpdsl.inference.problem import Result
from gpdsl.inference.quadruply_stochastic.unsampled import SolvedFit
from gpdsl.inference.quadruply_stochastic.weights import Weights
from gpdsl.kernels.functionals import Derivatives, Values
from gpdsl.language.inducing import Written
from gpdsl.results.summary import more_points
from gpdsl.symbolic.laws import Law

Case = tuple[gpdsl.Model, dict[str, np.ndarray]]


def test_anderson_solves_a_linear_fixed_point_in_as_many_steps_as_dimensions(rng: np.random.Generator) -> None:
    basis, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    matrix, offset = basis @ np.diag([0.99, 0.9, 0.5, 0.1]) @ basis.T, rng.normal(size=4)
    solution = np.linalg.solve(np.eye(4) - matrix, offset)
    point, memory = jnp.zeros(4), anderson.empty(4, jnp.float64)
    residual = matrix @ point + offset - point
    for _ in range(6):
        new = anderson.propose(memory, point, residual)
        after = matrix @ new + offset - new
        memory, point, residual = anderson.remember(memory, new - point, after - residual), new, after
    assert np.abs(point - solution).max() < 1e-3 * np.abs(solution).max()


def test_spanning_rows_explain_all_the_others(rng: np.random.Generator) -> None:
    x = np.sort(rng.uniform(0, 5, 80))
    k = np.exp(-0.5 * (x[:, None] - x) ** 2)
    rows = spanning_rows(k, 1e-8)
    assert len(rows) < 30
    cross = k[:, rows]
    residual = np.diag(k) - np.sum(
        cross * np.linalg.solve(k[np.ix_(rows, rows)] + 1e-12 * np.eye(len(rows)), cross.T).T, 1
    )
    assert residual.max() < 1e-6


def test_spanning_rows_keep_what_is_independent() -> None:
    assert sorted(spanning_rows(np.eye(7), 1e-8)) == list(range(7))


def test_kmeans_centres_are_distinct_and_inside(rng: np.random.Generator) -> None:
    inputs = np.repeat(rng.normal(size=(30, 2)), 5, axis=0)
    centres = kmeans_centres(inputs, 12, rng)
    assert centres.shape == (12, 2) and len(np.unique(centres, axis=0)) == 12
    assert (centres.min(0) >= inputs.min(0) - 1e-9).all() and (centres.max(0) <= inputs.max(0) + 1e-9).all()
    assert kmeans_centres(inputs, 60, rng).shape == (30, 2)


def test_lbfgs_backs_off_from_values_that_are_not_finite() -> None:
    def objective(point: dict) -> tuple[float, dict]:
        x = float(point["x"])
        if x > 3:
            return float("nan"), {"x": np.asarray(np.nan)}
        return -((x - 2.9) ** 2), {"x": np.asarray(-2 * (x - 2.9))}

    outcome = maximise(objective, {"x": np.asarray(-40.0)}, steps=100, tolerance=1e-12, report=lambda *_: None)
    assert float(outcome.point["x"]) == pytest.approx(2.9, abs=1e-4)


@pytest.mark.parametrize(
    "given,message",
    [
        ({"posteror": "full"}, "unknown option `posteror`; did you mean `posterior`?"),
        ({"optimizer": "sgd"}, "optimizer = 'sgd': expected one of auto, natural, lbfgs, adam"),
        ({"samples": 1}, "samples = 1: expected a whole number of at least 2"),
        ({"inducing": 2.5}, "inducing = 2.5: expected a whole number of at least 0"),
        ({"steps": True}, "steps = True: expected a whole number of at least 1"),
        ({"learn_inducing": "yes"}, "learn_inducing = 'yes': expected true or false"),
    ],
)
def test_options_are_checked(given: dict, message: str) -> None:
    with pytest.raises(GpdslError, match="^" + __import__("re").escape(message)):
        make_options({}, given)


def test_what_the_caller_gives_overrides_the_model() -> None:
    options = make_options({"samples": 7, "seed": 1}, {"samples": 9, "batch": None})
    assert (options.samples, options.seed, options.batch) == (9, 1, None)


@pytest.mark.parametrize(
    "options,rows,expected",
    [
        (Options(), 300, (True, 0, "natural")),
        (Options(), 5000, (False, 0, "natural")),
        (Options(), 100_000, (False, 1000, "natural")),
        (Options(posterior="diagonal"), 300, (True, 0, "lbfgs")),
    ],
)
def test_the_plan_follows_the_size_of_the_data(options: Options, rows: int, expected: tuple) -> None:
    choice = decide(options, rows, opaque=False)
    assert (choice.dense, choice.batch, choice.optimizer) == expected


EP = Options(engine="ep")


@pytest.mark.parametrize(
    ("options", "rows", "steps", "samples", "rate"),
    [
        (Options(), 300, 200, 100, 0.01),
        (Options(), 100_000, 1000, 100, 0.05),
        (Options(posterior="diagonal"), 300, 2000, 100, 0.01),
        (Options(schedule="alternating"), 300, 200, 100, 0.01),
        (EP, 300, 200, 512, 0.05),
        (replace(EP, batch=100, inducing=9), 10_000, 1000, 512, 0.05),
        (replace(EP, batch=100, inducing=9), 100_050, 5005, 512, 0.05),
        (replace(EP, batch=100, inducing=9, steps=7, samples=9, learning_rate=0.3), 100_050, 7, 9, 0.3),
        (Options(steps=7, samples=9, learning_rate=0.3), 300, 7, 9, 0.3),
    ],
)
def test_what_is_left_open_of_a_search(options: Options, rows: int, steps: int, samples: int, rate: float) -> None:
    choice = decide(options, rows, opaque=False)
    assert (choice.steps, choice.samples, choice.learning_rate) == (steps, samples, rate)


def test_an_opaque_search_has_more_steps_and_samples() -> None:
    choice = decide(Options(), 300, opaque=True)
    assert (choice.steps, choice.samples, choice.optimizer) == (300, 200, "natural")


@pytest.mark.parametrize(
    ("rows", "learnt", "latents", "levels", "batch", "inducing"),
    [
        (2000, 2, 1, 1, 0, 0),
        (2001, 2, 1, 1, 0, 200),
        (1500, 2, 2, 1, 0, 0),
        (1501, 2, 2, 1, 0, 200),
        (750, 2, 2, 2, 0, 0),
        (751, 2, 2, 2, 0, 200),
        (10_000, 500, 2, 1, 0, 200),  # at once, as there are few minibatches of them
        (10_001, 13, 2, 1, 0, 200),  # 2 * 10,001 * (20 + 6 * 13) visits are fewer than those of 2 * 1000 minibatches
        (10_001, 14, 2, 1, 1000, 200),
        (20_000, 0, 2, 1, 0, 200),
        (20_001, 0, 2, 1, 1000, 200),
    ],
)
def test_rows_up_to_which_all_are_taken_at_once_and_a_posterior_is_dense(
    rows: int, learnt: int, latents: int, levels: int, batch: int, inducing: int
) -> None:
    choice = decide(Options(), rows, opaque=False, learnt=learnt, latents=latents, levels=levels)
    assert (choice.batch, choice.inducing, choice.dense) == (batch, inducing, inducing == 0)


@pytest.mark.parametrize(
    "options",
    [
        Options(optimizer="natural", posterior="diagonal"),
        Options(optimizer="lbfgs", batch=10, inducing=5),
        Options(inducing=0, batch=10),
        Options(learn_inducing=True, inducing=0),
    ],
)
def test_combinations_that_cannot_work_are_refused(options: Options) -> None:
    with pytest.raises(GpdslError):
        decide(options, 100, opaque=False)


def test_more_inducing_points_than_rows_is_an_error(counts: Case) -> None:
    model, data = counts
    with pytest.raises(GpdslError, match="36") as raised:
        model.fit(data, inducing=36)
    assert "35" in str(raised.value)


@pytest.mark.parametrize("searched", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_bound_that_is_nowhere_finite_ends_in_an_error_that_names_the_row(
    searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not searched:
        nothing = Result({}, [], [], np.ones(1), np.nan, np.nan)
        monkeypatch.setattr(infer, "attempt", lambda problem, engine: nothing)
    model = gpdsl.compile("input x : real\noutput n : count\nlatent f(x) ~ GP(900, RBF(1))\nn ~ Poisson(exp(f))\n")
    with pytest.raises(GpdslError, match="Poisson is not finite in row 1") as raised:
        model.fit({"x": [1.0, 2.0], "n": [1, 2]})
    assert "help:" in str(raised.value)


def test_explain_says_how_each_term_is_computed(counts: Case) -> None:
    model, data = counts
    text = model.explain(data)
    assert "closed form" in text and "polynomial × exp(linear)" in text and "Matern52(ell)" in text
    assert "Gauss–Hermite quadrature, 32 nodes" in model.explain(data, expectations="quadrature")
    assert "25 quasi-Monte-Carlo samples" in model.explain(data, expectations="sampled", samples=25)
    assert "10 inducing points at k-means centres" in model.explain(data, inducing=10)
    assert "mixture of 3 diagonal Gaussians" in model.explain(data, posterior="mixture(3)")


@pytest.mark.parametrize("given", [{"sigma": 5.0}, 3, [1.0]])
def test_what_is_fixed_are_names(given: object) -> None:
    with pytest.raises(GpdslError, match="expected names of parameters; their values are given by init"):
        make_options({}, {"fixed": given})
    assert make_options({}, {"fixed": "sigma"}).fixed == make_options({}, {"fixed": ["sigma"]}).fixed == ("sigma",)


def test_long_formulas_of_a_plan_are_cut_to_its_width() -> None:
    assert _shorten("x" * WIDEST) == "x" * WIDEST
    assert _shorten("x" * (WIDEST + 1)) == "x" * (WIDEST - 1) + "…"


def test_a_line_search_without_a_base_comes_back_from_what_has_no_value() -> None:
    """From further above than all that it has seen."""
    nothing: Any = {"base": None, "scale": 1.0, "unravel": lambda x: x, "objective": lambda x: (np.nan, x)}
    for worst, level in ((5.0, 5.0 + lbfgs.ABYSS), (-5.0, lbfgs.ABYSS)):
        search: Any = SimpleNamespace(worst=worst, outcome=SimpleNamespace(value=-np.inf, evaluations=0), **nothing)
        told, slope = lbfgs._Negative.__call__(search, np.ones(2))
        assert told == level > 0 and search.refused and not slope.any()


@pytest.mark.parametrize(
    ("tolerance", "said"), [(1e-9, "all rounds done"), (1e-3, "converged: the bound changed by less")]
)
def test_rounds_end_where_one_changes_next_to_nothing(tolerance: float, said: str) -> None:
    bounds, told = iter([-100.0, -50.0, -49.99, -49.0]), list[tuple[int, float]]()
    monitor = SimpleNamespace(report=lambda number, value: told.append((number, value)))
    problem = SimpleNamespace(
        options=SimpleNamespace(tolerance=tolerance), choice=SimpleNamespace(steps=4), monitor=monitor
    )
    search: Any = SimpleNamespace(problem=problem, blocks=[], point=None, _whole=lambda: next(bounds))
    assert alternating.AlternatingSearch.run(search).startswith(said)
    assert told == [(1, -100.0), (2, -50.0), (3, -49.99), (4, -49.0)][: 3 if "converged" in said else 4]


def test_steps_of_some_rows_visit_every_row_once_in_an_epoch() -> None:
    def batches(size: int) -> np.ndarray:
        problem: Any = SimpleNamespace(
            choice=SimpleNamespace(batch=size), data_rows=6, count=6, options=SimpleNamespace(seed=0)
        )
        steps: Any = SimpleNamespace(problem=problem, draws=adam._batches(problem), size=3)
        return np.asarray(adam.ScannedSteps._indices(steps))

    found = batches(2)
    assert found.shape == (3, 2) and sorted(found.ravel()) == list(range(6)) and list(found.ravel()) != list(range(6))
    assert batches(6).shape == (3, 1)


def test_a_search_that_follows_its_samples_gives_way_to_an_earlier_end() -> None:
    """Where its bound is lower by fresh samples; of a bound without samples the last end is the best."""
    ends: Any = [SimpleNamespace(point=n, sites=None, elbo=float(n), message=f"end {n}") for n in range(3)]
    fresh = [(-1.0, 0.1), (-5.0, 0.1), (-2.0, 0.1)]
    problem: Any = SimpleNamespace(program=SimpleNamespace(sampled=True), choice=SimpleNamespace(samples=8))
    problem.reassessed = lambda bound, known: fresh[int(known)]
    best, said, assessed = refine.attained(problem, ends, lambda *_: None)  # type: ignore[arg-type,return-value]
    assert best is ends[0] and assessed == fresh[0] and said.startswith("end 0; ") and "8" in said
    problem.program.sampled = False
    assert refine.attained(problem, ends, lambda *_: None) == (ends[2], "", fresh[2])  # type: ignore[arg-type,return-value]


def test_a_budget_that_ends_a_stochastic_search_is_told_with_the_bound_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def spent() -> None:
        raise Spent

    monkeypatch.setattr(stochastic, "fresh_bound", lambda problem, look, seed: (-3.0, seed))
    problem = SimpleNamespace(options=SimpleNamespace(seed=4))
    search: Any = SimpleNamespace(point={}, accelerated=spent, problem=problem, look=None)
    assert stochastic.StochasticSearch.run(search) == "the budget of evaluations is used up"
    assert search.bound == (-3.0, 4)


def test_replicas_of_a_row_see_the_normals_of_the_first() -> None:
    normals = jnp.arange(12.0).reshape(6, 2, 1)
    for replicas, expected in ((1, normals), (3, normals[jnp.array([0, 0, 0, 3, 3, 3])])):
        layers: Any = SimpleNamespace(replicas=replicas)
        np.testing.assert_array_equal(Layers._in_sets(layers, normals), expected)


def test_sets_of_inducing_variables_are_named_by_their_latents() -> None:
    own = Choice.support.fget(SimpleNamespace(own={"f": 12, "g": 0, "h": "patches(5)"}))  # type: ignore[attr-defined]
    assert own == "12 inducing points of f, points at all rows of g, features patches(5) of h"


@pytest.mark.parametrize(
    ("families", "own", "asked", "said"),
    [
        (("fourier",), {}, None, "more of them take longer and lose less"),
        ((), {"f": 3, "g": 5}, {"f": 3, "g": 5}, "ask for more, as inducing={'f': 6, 'g': 10}"),
        ((), {}, None, "more, as inducing=8, take longer and lose less"),
        ((), {}, 4, "leave `inducing` out for as many as it takes, or ask for more, as inducing=8"),
    ],
)
def test_what_loses_evidence_is_told_how_to_lose_less(families: tuple, own: dict, asked: Any, said: str) -> None:
    choice = SimpleNamespace(families=families, own=own, inducing=4)
    fit: Any = SimpleNamespace(choice=choice, options=SimpleNamespace(inducing=asked))
    assert more_points(fit) == said


def test_climbs_from_where_there_is_no_value_come_back_with_nothing() -> None:
    model: Any = SimpleNamespace(rows=SimpleNamespace(outputs={"y": np.zeros(3)}), constrained=dict)
    for value, found in ((lambda at, _: np.nan * at["s"], None), (lambda at, _: -((at["s"] - 2.0) ** 2), 2.0)):
        model.value = value
        climbed = unrelated_rows._climb(model, {"s": np.array(0.5)}, ["s"], 0)
        assert (
            climbed is None
            if found is None
            else climbed is not None and climbed[1]["s"] == pytest.approx(found, abs=1e-4)
        )


def test_states_of_searches_are_where_these_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one with sites the last end; of steps the place that is reached, with the mean bound of the last."""
    monkeypatch.setattr(profiled, "at_sites", lambda _, *found: found)
    ends = [SimpleNamespace(point=n, sites=f"sites {n}", elbo=-float(n)) for n in range(2)]
    search: Any = SimpleNamespace(problem=None, ends=ends)
    assert profiled.ProfiledSearch.state(search) == (1, "sites 1", -1.0)  # type: ignore[comparison-overlap]
    monkeypatch.setattr(adam, "finish", lambda _, *found: found)
    steps: Any = SimpleNamespace(problem=SimpleNamespace(monitor=SimpleNamespace(last=-7.0)), point="here")
    assert adam.ScannedSteps.state(steps) == ("here", -7.0, 0.0)  # type: ignore[comparison-overlap]


def test_a_kernel_that_is_none_has_no_bound_and_costs_no_iteration() -> None:
    good, none = np.eye(2)[None], np.array([[[1.0, 2.0], [2.0, 1.0]]])
    begun = SimpleNamespace(done=True, iterations=0, elbo=-3.0, sites="settled")
    for matrix in (good, none):
        ascent: Any = SimpleNamespace(_unknown=None, _gradient=None)
        ascent._begin = lambda *_, matrix=matrix: ([matrix], 0.5, begun, None, None)
        bound, _, sites, settled = row_space.Ascent.__call__(ascent, {}, "sites", None, None, 1e-6, 5)  # type: ignore[arg-type]
        assert settled and (np.isnan(bound), sites) == ((True, "sites") if matrix is none else (False, "settled"))
        assert matrix is none or float(bound) == -2.5


def test_a_fit_on_a_grid_starts_no_variational_one() -> None:
    held: Any = SimpleNamespace(held=SimpleNamespace(sizes=(40, 2)))
    with pytest.raises(GpdslError, match="exact posterior of 42 values on a grid starts no fit that is variational"):
        Gridded._at_inducing(held, 1e-6)


def test_a_law_without_symmetry_has_no_best_value_at_its_mean() -> None:
    for law in (None, Law("Poisson", {"mean": sp.Symbol("f")})):
        assert (
            resolution._best(SimpleNamespace(program=SimpleNamespace(translator=None)), SimpleNamespace(law=law))
            is None
        )  # type: ignore[arg-type]


def test_features_beside_points_are_values_and_slopes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(featured, "_refuse_rough", lambda *_: None)
    where, nothing = np.zeros((3, 2)), None
    for family, expected in (("points", [Values(where)]), ("slopes", [Derivatives(where, (n,)) for n in range(2)])):
        found = featured._kind(nothing, nothing, Written(family, 3), where)  # type: ignore[arg-type]
        assert [type(each) for each in found] == [type(each) for each in expected]
        assert [getattr(each, "columns", None) for each in found] == [
            getattr(each, "columns", None) for each in expected
        ]
        assert all(each.points is where for each in found)


def test_a_shorter_step_of_weights_is_a_share_of_the_whole_one() -> None:
    here, there = (Weights(np.full((2, 3), value), np.full(3, 10 * value)) for value in (1.0, 5.0))
    solved: Any = SimpleNamespace(q=here)
    found = SolvedFit._between(solved, there, 0.25)
    assert np.all(found.vectors == 2.0) and np.all(found.curvature == 20.0)
