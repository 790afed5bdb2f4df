"""Rows that move a fit much, left out by fits without them: against fits of the other rows alone, from the start."""

from __future__ import annotations

import signal
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl import GpdslWarning
from gpdsl.inference.plan.options import Options
from gpdsl.results.criticism import left_out, reference, without
from gpdsl.results.criticism.left_out import LeaveOneOut
from gpdsl.results.criticism.without import NEAR, OFF_AT_MOST

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 40))
F = np.sin(X)
HEAD = "input x : real\noutput y : {}\n"
ODD = {"student": [5, 20], "counts": [10, 30], "classes": [4, 25], "noise that varies": [12, 33]}
TEXTS = {
    "student": HEAD.format("real") + "latent f(x) ~ GP(0, RBF(1))\ny ~ StudentT(4, f, 0.2)",
    "counts": HEAD.format("count") + "latent f(x) ~ GP(1, RBF(0.7))\ny ~ Poisson(exp(f))",
    "classes": HEAD.format("binary") + "latent f(x) ~ GP(0, 9 * RBF(1))\ny ~ Bernoulli(logit = f)",
    "noise that varies": HEAD.format("real")
    + "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(-1, RBF(2))\ny ~ Normal(f, exp(g))",
}
COUNTS = RNG.poisson(np.exp(1 + F)).astype(float)
COUNTS[[10, 30]] = [25, 18]


def values(name: str) -> np.ndarray:
    """With two values far from what their neighbours say."""
    rng, (one, other) = np.random.default_rng(1), ODD[name]
    if name == "counts":
        return COUNTS
    if name == "classes":
        y = (F + 0.3 * rng.standard_normal(40) > 0).astype(float)
        y[[one, other]] = 1 - y[[one, other]]
        return y
    y = F + 0.2 * rng.standard_t(4, 40) if name == "student" else F + np.exp(-1.5 + np.cos(X)) * rng.standard_normal(40)
    y[[one, other]] += [3.0, -2.5]
    return y


def brute(text: str, y: np.ndarray, row: int, **options: Any) -> float:
    """Of a fit from the start to all other rows."""
    keep = np.arange(40) != row
    fit = gpdsl.compile(text).fit({"x": X[keep], "y": y[keep]}, diagnose="no", **options)
    return float(fit.log_predictive_density({"x": X[[row]], "y": y[[row]]})[0])


@pytest.mark.parametrize("name", TEXTS)
def test_rows_that_move_a_fit_are_predicted_as_by_fits_without_them(name: str) -> None:
    y = values(name)
    fit = gpdsl.compile(TEXTS[name]).fit({"x": X, "y": y}, diagnose="no")
    found, before = fit.loo({"x": X, "y": y}), fit.loo({"x": X, "y": y}, refits=0)
    worst = int(np.nanargmax(before.of_itself - before.pointwise))
    assert worst in found.without
    for row in {worst, *ODD[name]} & set(found.without):
        exact = brute(TEXTS[name], y, row)
        near = abs(exact - (fit.elbo - found.without[row].elbo)) < NEAR
        assert found.pointwise[row] == pytest.approx(exact, abs=5e-3) or not near
        moved = before.of_itself[row] - before.pointwise[row]
        assert abs(before.pointwise[row] - exact) < 0.7 * moved + 0.05
    others = [row for row in range(40) if row not in found.without]
    np.testing.assert_array_equal(found.pointwise[others], before.pointwise[others])
    assert found.error is not None and before.error is not None and not before.without
    assert np.all(found.error[others] > 0)
    for row, one in found.without.items():
        apart = abs(float(one.log_predictive_density({"x": X[[row]], "y": y[[row]]})[0]) - (fit.elbo - one.elbo))
        expected = min(apart / 2, OFF_AT_MOST) if apart > NEAR else apart
        assert found.error[row] == pytest.approx(expected, abs=1e-9)
    assert f"{len(found.without)} of them by fits without them, within" in repr(found)


@pytest.mark.parametrize("engine", ["vi", "ep"])
def test_far_out_a_row_is_worth_what_the_bounds_say(engine: str) -> None:
    """A count far above what its neighbours allow, beside a prior of a parameter: by a grid over three latents."""
    x, y = np.array([-0.6, 0.1, 0.5]), np.array([1, 25, 2])
    text = HEAD.format("count") + "param s : positive ~ LogNormal(0.7, 0.1)\nlatent f(x) ~ GP(0, s^2 * RBF(1))\n"
    fit = gpdsl.compile(text + "y ~ Poisson(exp(f))").fit({"x": x, "y": y}, engine=engine, diagnose="no")
    found = fit.loo({"x": x, "y": y})
    white = np.stack(np.meshgrid(*[np.linspace(-8, 8, 161)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    covariance = fit.parameters["s"] ** 2 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    each = stats.poisson.logpmf(y, np.exp(white @ np.linalg.cholesky(covariance).T))
    each[:, 0] += stats.norm.logpdf(white).sum(axis=1)
    exact = np.logaddexp.reduce(each.sum(axis=1)) - np.logaddexp.reduce(each[:, 0] + each[:, 2])
    tail = float(found.without[1].log_predictive_density({"x": x[[1]], "y": y[[1]]})[0])
    assert found.pointwise[1] == pytest.approx(exact, abs=0.06) and abs(tail - exact) > 1
    assert found.error is not None and found.error[1] == OFF_AT_MOST


def drawn_evidence(y: np.ndarray, rows: np.ndarray) -> float:
    """log p of some counts, by weighted draws about the mode: the density of whitened values is log-concave."""
    prior = np.exp(-0.5 * ((X[:, None] - X) / 0.7) ** 2) + 1e-8 * np.eye(40)
    to, w = np.linalg.cholesky(prior)[rows], np.zeros(40)
    for _ in range(60):
        rate = np.exp(1 + to @ w)
        bend = np.eye(40) + to.T @ (rate[:, None] * to)
        w += 0.5 * np.linalg.solve(bend, to.T @ (y[rows] - rate) - w)
    root, z = np.linalg.cholesky(np.linalg.inv(bend)), np.random.default_rng(0).standard_normal((40_000, 40))
    drawn = w + z @ root.T
    logs = 0.5 * (z**2 - drawn**2).sum(axis=1) + stats.poisson.logpmf(y[rows], np.exp(1 + drawn @ to.T)).sum(axis=1)
    return float(np.logaddexp.reduce(logs) - np.log(len(z)) + np.log(np.diag(root)).sum())


def test_taking_sites_away_was_far_off_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a quarter of a nat, of counts of which one is far above its neighbours'; where no fit can be made
    without it, the term stays what it was, and may be off by all that its value is worth."""
    fit = gpdsl.compile(TEXTS["counts"]).fit({"x": X, "y": COUNTS}, diagnose="no")
    exact = brute(TEXTS["counts"], COUNTS, 30)
    assert abs(fit.loo({"x": X, "y": COUNTS}, refits=0).pointwise[30] - exact) > 0.2
    found, rows = fit.loo({"x": X, "y": COUNTS}, refits=1), np.arange(40)
    truth = drawn_evidence(COUNTS, rows) - drawn_evidence(COUNTS, np.delete(rows, 30))
    assert found.pointwise[30] == pytest.approx(truth, abs=0.02) and abs(exact - truth) > 1
    assert list(found.without) == [30]

    def fails(*_: Any, **__: Any) -> None:
        raise gpdsl.GpdslError("the bound is not a finite number")

    monkeypatch.setattr(without, "refitted", fails)
    with pytest.warns(GpdslWarning, match="row 31 left out, 1 of 1: its term is the approximate one, as the b"):
        found = fit.loo({"x": X, "y": COUNTS}, refits=1)
    assert not found.without and not found.not_made and found.error is not None
    assert abs(found.pointwise[30] - truth) > 0.2
    assert found.error[30] == pytest.approx(found.of_itself[30] - found.pointwise[30])


def test_parameters_stay_those_of_the_fit() -> None:
    text = (
        TEXTS["counts"]
        .replace("latent", "param m : real\nparam s : positive\nlatent")
        .replace("GP(1, ", "GP(m, s^2 * ")
    )
    fit = gpdsl.compile(text).fit({"x": X, "y": COUNTS}, diagnose="no")
    found = fit.loo({"x": X, "y": COUNTS}, refits=1)
    ((row, one),) = found.without.items()
    assert {name: float(each) for name, each in one.parameters.items()} == pytest.approx(
        {name: float(each) for name, each in fit.parameters.items()}
    )
    exact = brute(text, COUNTS, row, fixed=("m", "s"), init=dict(fit.parameters))
    assert float(one.log_predictive_density({"x": X[[row]], "y": COUNTS[[row]]})[0]) == pytest.approx(exact, abs=5e-3)


def test_draws_whose_k_is_high_are_mended_too() -> None:
    """Expectation propagation, whose rows leave by weighted draws."""
    fit = gpdsl.compile(TEXTS["counts"]).fit({"x": X, "y": COUNTS}, engine="ep", diagnose="no")
    before, found = (fit.loo({"x": X, "y": COUNTS}, refits=most) for most in (0, 3))
    assert before.doubtful[30] and not found.doubtful[30]
    tail, rows = brute(TEXTS["counts"], COUNTS, 30, engine="ep"), np.arange(40)
    exact = drawn_evidence(COUNTS, rows) - drawn_evidence(COUNTS, np.delete(rows, 30))
    assert found.pointwise[30] == pytest.approx(exact, abs=0.01) and abs(tail - exact) > 2
    theirs = found.without[30].log_predictive_density({"x": X[[30]], "y": COUNTS[[30]]})
    assert float(theirs[0]) == pytest.approx(tail, abs=0.01)
    assert np.isnan(found.k[30]) and before.error is not None and before.error[30] > abs(before.pointwise[30] - exact)


def test_places_are_those_of_the_fits_without_the_rows() -> None:
    y = values("student")
    fit = gpdsl.compile(TEXTS["student"]).fit({"x": X, "y": y}, diagnose="no")
    found = fit.loo({"x": X, "y": y}, refits=1)
    ((row, one),) = found.without.items()
    alone = one.predict({"x": X[[row]]}).pit("y", y[[row]])[0]
    assert found.pit("y")[row] == pytest.approx(alone, abs=1e-9)
    assert found.pit("y")[row] != pytest.approx(fit.loo({"x": X, "y": y}, refits=0).pit("y")[row], abs=1e-9)


@pytest.mark.parametrize(("far", "close"), [(1.0, 0.1), (4.0, 0.0)])
def test_settings_are_weighed_anew_where_a_row_moves_them(far: float, close: float) -> None:
    """Under normal noise: the evidence of all rows over that of the others, by a grid over the noise. Of a value that
    no setting of the others allows it is said that it is not known."""
    text = HEAD.format("real") + "param s : positive ~ LogNormal(-1, 1)\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)"
    y = F + 0.1 * np.random.default_rng(3).standard_normal(40)
    y[7] += far
    fit = gpdsl.compile(text).fit({"x": X, "y": y}, hyperparameters="integrated", diagnose="no")
    found = fit.loo({"x": X, "y": y})
    logs, prior, keep = np.linspace(-4, 2, 400), np.exp(-0.5 * (X[:, None] - X) ** 2), np.arange(40) != 7

    def evidence(rows: np.ndarray) -> float:
        values, vectors = np.linalg.eigh(prior[np.ix_(rows, rows)])
        total = values + np.exp(2 * logs)[:, None]
        each = -0.5 * (np.log(2 * np.pi * total) + (vectors.T @ y[rows]) ** 2 / total).sum(axis=1)
        return float(np.logaddexp.reduce(each + stats.norm.logpdf(logs, -1, 1)))

    assert 7 in found.without
    off = abs(found.pointwise[7] - (evidence(np.arange(40)) - evidence(np.flatnonzero(keep))))
    assert found.error is not None and off < (close if close else found.error[7])
    assert found.error[7] < 0.5 or not close


def test_exact_fits_need_none_and_what_is_no_number_is_refused() -> None:
    text = HEAD.format("real") + "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.2)"
    y = values("student")
    fit = gpdsl.compile(text).fit({"x": X, "y": y}, diagnose="no")
    found = fit.loo({"x": X, "y": y}, refits=40)
    assert not found.without and found.elpd_error == 0.0 and "within" not in repr(found)
    for wrong in (-1, True, 2.5):
        with pytest.raises(gpdsl.GpdslError, match="expected how many rows fits may leave out"):
            fit.loo({"x": X, "y": y}, refits=wrong)  # type: ignore[arg-type]


def test_of_layers_a_search_that_ends_higher_without_a_row_tells_nothing() -> None:
    """A row of density 1 was said to have one of exp(-47): the search without it had found a bound so much higher."""
    layers = SimpleNamespace(program=SimpleNamespace(inner={"h"}), options=Options(), settings=None, elbo=-132.0)
    whole = SimpleNamespace(**vars(layers), log_prior=0.0)
    found: Any = SimpleNamespace(fit=whole, densities=None, pointwise=[-0.4], data=SimpleNamespace(take=lambda _: None))
    for elbo, error in ((-85.0, 0.4), (-132.1, 0.1)):
        one: Any = SimpleNamespace(log_predictive_density=lambda _: [0.0], settings=None, elbo=elbo, log_prior=0.0)
        assert without._density(found, one, 0) == (0.0, pytest.approx(error))


def weighed(weights: list[float], **more: Any) -> Any:
    """A fit of which nothing is known but the weights of its settings."""
    return SimpleNamespace(settings=SimpleNamespace(weights=np.array(weights)), **more)


def bridged(
    monkeypatch: pytest.MonkeyPatch, low: list[float], high: list[float], theirs: Any, own: Any, offset: float
) -> tuple[float, float]:
    """The density of a row in units of the data, which are those of the fit times exp(offset)."""
    units = SimpleNamespace(log_jacobian=lambda _: np.array([offset]))
    some = SimpleNamespace(observed={})
    found: Any = SimpleNamespace(
        data=SimpleNamespace(take=lambda _: some),
        fit=weighed(high, standardised=units),
        densities=np.array(own)[:, None],
    )
    below = float(np.log(np.dot(low, np.exp(theirs)))) - offset
    one = weighed(low, log_predictive_density=lambda _: np.array([below]))
    monkeypatch.setattr(left_out, "densities_of_settings", lambda *_: np.array(theirs))
    return without._density(found, one, 0)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_a_bridge_between_two_averages_is_exact_on_the_same_settings(
    offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Bayes: settings of all rows weigh as much as those of the others times the row's density, in any units."""
    low, logs = np.array([0.5, 0.3, 0.2]), np.array([-1.0, -2.5, 0.5])
    true = np.log(low @ np.exp(logs))
    high = low * np.exp(logs - true)
    value, error = bridged(monkeypatch, list(low), list(high), logs, logs, offset)
    assert value == pytest.approx(true - offset, abs=1e-12)
    ahead, back = np.exp(logs) / (np.exp(logs) + np.exp(true)), 1 / (np.exp(logs) + np.exp(true))
    parts = [np.sum((w * t / (w @ t) - w) ** 2) for w, t in ((low, ahead), (high, back))]
    assert error == pytest.approx(np.sqrt(sum(parts)))


def test_draws_without_a_row_tell_it_by_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those with it do: by their own values of its latents a bridge between both was 0.8 nats off."""
    monkeypatch.setattr(left_out, "_settings", lambda *_: [(None, None)])
    monkeypatch.setattr(left_out, "_known", lambda _: True)
    among = SimpleNamespace(densities=np.array([[1.0, 2.0], [3.0, 4.0]]))
    monkeypatch.setattr(left_out, "leave_one_bound", lambda *_: among)
    fit: Any = SimpleNamespace(options=SimpleNamespace(dtype="float64"), beliefs=lambda *_, **__: None)
    data: Any = SimpleNamespace(take=lambda _: None)
    np.testing.assert_array_equal(left_out.densities_of_settings(fit, data, 1), [2.0, 4.0])


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_settings_that_have_none_in_common_say_how_far_apart_their_averages_are(
    offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, theirs, own = [0.5, 0.5], np.array([-40.0, -20.0]), np.array([-1.0, -2.0])
    value, error = bridged(monkeypatch, weights, weights, theirs, own, offset)
    below, above = np.log(0.5 * np.exp(theirs).sum()), -np.log(0.5 * np.exp(-own).sum())
    assert below < value + offset < above
    assert error == pytest.approx(above - below)


@pytest.mark.parametrize(("moved", "error"), [(0.0, 0.0), (0.5, 0.3)])
def test_with_inducing_points_fits_without_a_row_are_believed(
    moved: float, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are exact where taking the site away says the same; else as far off as bounds with the row and without."""
    monkeypatch.setattr(without, "_worth", lambda *_: -2.3)
    one: Any = SimpleNamespace(settings=None, log_predictive_density=lambda _: np.array([-2.0]))
    fit = SimpleNamespace(inducing_loss=0.1, program=SimpleNamespace(inner=frozenset()))
    found: Any = SimpleNamespace(data=SimpleNamespace(take=lambda _: None), fit=fit, densities=None)
    found.pointwise = np.array([-2.0 + moved])
    assert without._density(found, one, 0) == (-2.0, pytest.approx(error))


@pytest.mark.parametrize(("own", "told"), [({}, 7), ({"f": 5, "g": 9}, {"f": 5, "g": 9})])
def test_fits_of_other_rows_have_as_many_points_as_the_fit(own: dict[str, int], told: Any) -> None:
    choice = SimpleNamespace(weights=None, exact=False, dense=False, own=own, inducing=7)
    chosen = Options(init={"ell": 1.0})
    fit: Any = SimpleNamespace(options=chosen, choice=choice, parameters={"ell": 3.0, "s": 1.0})
    found = without.options_anew(fit)
    assert (found.inducing, found.init, found.diagnose) == (told, {"ell": 3.0}, "no")
    choice.dense = True
    assert without.options_anew(fit).inducing is None


def test_rows_are_left_out_the_least_trusted_first() -> None:
    """Those whose k is high, then those that move most; none of which nothing is observed."""
    found: Any = SimpleNamespace(
        method="leave-one-out",
        fit=SimpleNamespace(choice=SimpleNamespace(exact=False)),
        pointwise=np.array([-1.0, -1.0, -1.0, -np.inf, np.nan, -1.0, -1.0]),
        of_itself=np.array([-0.9, 0.0, -0.5, 0.0, np.nan, -0.9, -0.5]),
        doubtful=np.array([False, False, False, False, False, True, True]),
    )
    np.testing.assert_array_equal(without._rows(found), [6, 5, 3, 1, 2])


def test_rows_that_no_fit_has_left_out_may_be_off_by_all_that_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their k is high; the others by the share that those were off by which a fit has left out."""
    fit: Any = SimpleNamespace(choice=SimpleNamespace(exact=False))
    before, itself = np.array([-1.0, -2.0, -3.0, -4.0]), np.array([0.0, -1.5, -1.0, -3.9])
    k = np.array([0.9, 0.2, 0.8, 0.1])
    found = LeaveOneOut(fit, fit, before, itself, "loo", k, np.zeros((1, 4)), [])
    monkeypatch.setattr(without, "_density", lambda *_: (-1.6, 0.02))
    after = without._told(found, {0: fit})
    np.testing.assert_allclose(after.pointwise, [-1.6, -2.0, -3.0, -4.0])
    np.testing.assert_allclose(after.k, [np.nan, 0.2, 0.8, 0.1])
    assert after.error is not None
    np.testing.assert_allclose(after.error, [0.02, 0.6 * 0.5, 2.0, 0.6 * 0.1])
    assert after.elpd_error == pytest.approx(2.38) and list(np.flatnonzero(after.doubtful)) == [2]


@pytest.mark.parametrize(
    ("count", "options", "more"),
    [
        (without.MOST, {}, {}),
        (without.MOST, {"engine": "ep"}, {}),
        (without.FEWER, {"posterior": "corrected"}, {}),
        (without.FEWER, {}, {"settings": object()}),
        (without.FEWER, {}, {"program": SimpleNamespace(opaque=(), fields=(), inner=("h",))}),
        (0, {"engine": "mcmc"}, {}),
        (0, {"batch": 10}, {}),
        (0, {"parameters": "gaussian"}, {}),
        (0, {}, {"rows": without.LARGEST + 1}),
        (0, {}, {"program": SimpleNamespace(opaque=("solve",), fields=(), inner=())}),
        (0, {}, {"program": SimpleNamespace(opaque=(), fields=("u",), inner=())}),
    ],
)
def test_fits_that_take_long_are_not_made_without_being_asked_for(
    count: int, options: dict[str, Any], more: dict[str, Any]
) -> None:
    asked = SimpleNamespace(**{"engine": "vi", "batch": None, "parameters": "point", "posterior": "full", **options})
    plain = {
        "options": asked,
        "program": SimpleNamespace(opaque=(), fields=(), inner=()),
        "rows": without.LARGEST,
        "settings": None,
    }
    fit: Any = SimpleNamespace(**{**plain, **more})
    assert without._by_itself(fit) == count


def test_how_far_others_are_off_is_told_from_rows_that_were_fitted() -> None:
    before, after, moved = np.array([-1.0, -2.0, -3.0]), np.array([-1.0, -2.6, -3.8]), np.array([0.1, 1.0, 2.0])
    assert without._share(before, after, moved, [1, 2]) == pytest.approx(np.sqrt((0.6**2 + 0.4**2) / 2))
    assert without._share(before, after, moved, []) == without.SHARE


@pytest.mark.parametrize("count", [30, 100])
def test_the_tail_of_a_gaussian_has_an_error_that_the_bounds_tell(count: int) -> None:
    """Of two rows, against quadrature over both latents: 0.04 and 0.2 nats."""
    data = {"x": np.array([0.0, 1.0]), "k": np.array([1, count])}
    text = "input x : real\nlatent f(x) ~ GP(1, RBF(1))\noutput k : count\nk ~ Poisson(exp(f))"
    found = gpdsl.compile(text).fit(data, diagnose="no").loo(data)
    z, w = np.polynomial.hermite_e.hermegauss(150)
    near = np.exp(-0.5)
    first, second = 1 + z[:, None], 1 + near * z[:, None] + np.sqrt(1 - near**2) * z
    beside = np.outer(w, w) * stats.poisson.pmf(1, np.exp(first))
    truth = np.log(np.sum(beside * stats.poisson.pmf(count, np.exp(second))) / np.sum(beside))
    assert 1 in found.without
    tail = float(found.without[1].log_predictive_density({name: each[[1]] for name, each in data.items()})[0])
    assert abs(found.pointwise[1] - truth) < max(0.1 * abs(tail - truth), 0.05) and found.error[1] < OFF_AT_MOST


def test_rows_leave_the_sparse_model_exactly_under_normal_noise() -> None:
    """By its best q without the row at the same points, in dense algebra (Titsias 2009); outliers are fitted anew."""
    x = np.linspace(0, 6, 40)
    y = np.sin(2 * x) + 0.1 * np.cos(37 * x)
    y[[10, 25]] += 1.0, -1.2
    data = {"x": x, "y": y}
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.8))\ny ~ Normal(f, 0.2)"
    fit = gpdsl.compile(text).fit(data, engine="vi", inducing=8, diagnose="no")
    z = np.asarray(fit.inducing[0].points, float).ravel()  # type: ignore[union-attr]
    among, cross = (np.exp(-0.5 * ((z[:, None] - at) / 0.8) ** 2) for at in (z, x))
    found = fit.loo(data, refits=2)
    assert len(found.without) == 2 and found.error is not None
    for row in found.without:
        others = np.delete(cross, row, axis=1)
        inverse = np.linalg.inv(among + 1e-10 * np.eye(8) + others @ others.T / 0.04)
        at, known = cross[:, row], np.linalg.inv(among + 1e-10 * np.eye(8))
        mean = at @ inverse @ others @ np.delete(y, row) / 0.04
        variance = 1.04 - at @ known @ at + at @ inverse @ at
        truth = stats.norm.logpdf(y[row], mean, np.sqrt(variance))
        assert found.pointwise[row] == pytest.approx(truth, abs=1e-3) and found.error[row] == 0


def test_rows_that_weights_leave_out_may_be_off() -> None:
    """Of an outlier whose parameters the others do not allow: its error is no less than what it moves."""
    x = np.linspace(0, 4, 12)
    data = {"x": x, "y": np.sin(2 * x) + 2.0 * (np.arange(12) == 6)}
    text = "input x : real\noutput y : real\nparam s : positive = 0.2 ~ LogNormal(-1.5, 0.7)\n"
    text += "latent f(x) ~ GP(0, RBF(0.8))\ny ~ Normal(f, s)"
    found = gpdsl.compile(text).fit(data, hyperparameters="integrated", diagnose="no").loo(data, refits=0)
    assert found.error is not None and found.error[6] >= 0.15 * (found.of_itself - found.pointwise)[6] > 0.1


def interrupted_in(fit: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of other rows are this one, and Ctrl-C comes in one of them."""
    calls = []

    def one(*_: Any, **__: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        assert len(calls) <= number
        return SimpleNamespace(interrupted=True) if len(calls) == number else fit

    monkeypatch.setattr(reference, "fit_model", one)


def test_folds_before_an_interrupt_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SimpleNamespace(rows=6, take=lambda places: places, observed_rows=np.arange(6) != 5)
    program = SimpleNamespace(declarations=SimpleNamespace(name="m"))
    fit: Any = SimpleNamespace(interrupted=False, model=None, columns=None, parameters={}, program=program)
    fit.log_predictive_density = lambda some: np.full(6 if some is rows else len(some), -1.0)
    monkeypatch.setattr(without, "_check_split", lambda *_: None)
    monkeypatch.setattr(without, "options_anew", lambda _: None)
    splits = [(np.arange(6) // 2 != fold, np.arange(6) // 2 == fold) for fold in range(3)]
    interrupted_in(fit, 3, monkeypatch)
    folds = without._validated(fit, rows, splits, "three folds")  # type: ignore[arg-type]
    assert folds.interrupted and folds.folds.tolist() == [1, 1, 2, 2, 0, 0] and len(folds.parameters) == 2
    np.testing.assert_array_equal(folds.pointwise, [-1, -1, -1, -1, np.nan, np.nan])
    assert repr(folds) == "<three folds of m: elpd -4.0 ± 0.0 nats, 4 rows, 2 fits, interrupted before the others>"
    interrupted_in(fit, 1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        without._validated(fit, rows, splits, "three folds")  # type: ignore[arg-type]


@pytest.mark.slow
def test_rows_left_out_before_an_interrupt_are_kept_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"x": X, "y": COUNTS}
    fit = gpdsl.compile(TEXTS["counts"]).fit(data, diagnose="no")
    interrupted_in(fit, 2, monkeypatch)
    table = gpdsl.compare({"one": fit, "other": fit}, data)
    one, other = table.elpds.values()
    assert isinstance(one, LeaveOneOut) and isinstance(other, LeaveOneOut)
    assert len(one.without) == 1 and one.not_made > 1 and not other.without
    assert f"interrupted before {one.not_made} fits without a row" in repr(one)
    assert repr(table).endswith("`within` says what that may cost")


def test_warnings_of_fits_without_a_row_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*_: Any) -> tuple[float, float]:
        warnings.warn("log densities of 1 row are known to 0.2 nats", GpdslWarning, stacklevel=2)
        return 0.0, 0.0

    monkeypatch.setattr(without, "_moved", lambda _: np.zeros(12))
    monkeypatch.setattr(without, "_density", warned)
    left = LeaveOneOut(*[None] * 2, np.zeros(12), np.zeros(12), "", np.zeros(12), np.zeros((1, 12)), [])  # type: ignore[arg-type]
    with pytest.warns(GpdslWarning, match="^row 11 left out: log densities of 1 row are known"):
        without._told(left, {10: None})  # type: ignore[dict-item]
