"""Variables of rows after a fit: their posterior, beside formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import gpdsl
from tests.inference.problems import unlearnt


def test_of_a_normal_model_it_is_the_conjugate_posterior() -> None:
    rng = np.random.default_rng(4)
    model = gpdsl.compile("input x : real\noutput y : real\nrow e ~ Normal(x, 0.5)\ny ~ Normal(2 * e, 0.3)\n")
    data = {"x": rng.standard_normal(6), "y": rng.standard_normal(6)}
    found = model.fit(data, diagnose="no").row_variables(data)["e"]
    precision = 1 / 0.25 + 4 / 0.09
    np.testing.assert_allclose(found.mean, (data["x"] / 0.25 + 2 * data["y"] / 0.09) / precision, rtol=1e-5)
    np.testing.assert_allclose(found.sd, precision**-0.5, rtol=1e-5)


def test_a_fit_beside_a_latent_is_saved_and_loaded(tmp_path: Path) -> None:
    """Its q is across the latent and the variables of all rows."""
    model = gpdsl.compile(
        "input x : real\noutput n : count\nlatent f(x) ~ GP(1, RBF(1))\nrow w ~ Normal(0, 1)\nn ~ Poisson(exp(f + w))\n"
    )
    fit = model.fit({"x": np.arange(6.0), "n": [2, 0, 5, 9, 1, 3]}, diagnose="no")
    assert fit.choice.posterior == "coupled"
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit").predict({"x": [2.5]})
    np.testing.assert_array_equal(again.mean("n"), fit.predict({"x": [2.5]}).mean("n"))


def test_rows_on_a_line_are_found_in_their_order() -> None:
    rng = np.random.default_rng(4)
    model = gpdsl.compile(
        "index p in 1..P\noutput y[p] : real\nrow w ~ Normal(0, 1)\nlatent f[p](w) ~ GP(0, RBF(2))\n"
        "y[p] ~ Normal(f[p], 0.1)\n"
    )
    place = rng.uniform(-1.5, 1.5, 25)
    data = {"y": np.stack([place, np.sin(place), 1 - place], axis=1) + 0.05 * rng.standard_normal((25, 3))}
    fit = model.fit(data, steps=200, inducing=10, diagnose="no")
    found = fit.row_variables(data)["w"]
    assert found.mean.shape == (25,) and abs(np.corrcoef(found.mean, place)[0, 1]) > 0.95
    assert np.all(found.sd > 0) and np.all(found.sd < 0.5)
    again = fit.row_variables({"y": data["y"][::-1]})["w"]  # rows in another order count as new
    assert np.all(np.abs(again.mean[::-1] - found.mean) < found.sd)  # both are found by samples


def test_a_model_without_them_says_so() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)\n")
    data = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    with pytest.raises(gpdsl.GpdslError, match="row_variables: model has none; `row w ~ Normal"):
        model.fit(data, diagnose="no").row_variables(data)


def test_quantiles_of_narrow_noise_far_from_the_data_are_those_of_the_latent() -> None:
    """All passes are alike there; with the same nodes in each, shares were 0.05 off, and the error was 0."""
    model = gpdsl.compile("""
        input x : real
        output y : real
        row w ~ Normal(0, 1)
        latent f(x, w) ~ GP(0, RBF(1))
        y ~ Laplace(f, 0.01)
        infer vi: steps = 5, inducing = 5
    """)
    x = np.linspace(0.0, 1.0, 10)
    prediction = model.fit({"x": x, "y": np.sin(x)}).predict({"x": [40.0]})
    asked = [0.01, 0.05, 0.3, 0.5, 0.975]
    found = prediction.quantile("y", asked)[:, 0]
    assert np.allclose(norm.cdf(found), asked, atol=0.004)
    assert 1e-4 < prediction.error("y", 0.3)[0] < 0.02


def _outputs(fit: gpdsl.Fit, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [points, latents] of q at arguments, by NumPy alone; kernels are RBF(1) of all columns."""
    place = next(p for p, group in enumerate(fit.program.groups) if not group.per_row)
    z, q = np.asarray(fit.inducing[place].points), fit.posterior[place]

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=-1))

    features = np.linalg.solve(np.linalg.cholesky(kernel(z, z) + fit.jitter * np.eye(len(z))), kernel(z, points))
    told = np.einsum("lmk,mn->lkn", np.asarray(q.root)[0], features)
    variance = 1.0 - np.sum(features**2, axis=0) + np.sum(told**2, axis=1)
    return (np.asarray(q.mean)[0] @ features).T, variance.T


def _by_quadrature(
    fit: gpdsl.Fit, nodes: np.ndarray, arguments: np.ndarray, y: np.ndarray, sd: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of p(w | y) by sums over a grid of nodes [points, axes]; outputs that are NaN are left out."""
    mean, variance = _outputs(fit, arguments)
    logs = np.nansum(norm.logpdf(y, mean, np.sqrt(variance + sd**2)), axis=1) - 0.5 * np.sum(nodes**2, axis=1)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    centre = shares @ nodes
    return centre, np.sqrt(shares @ (nodes - centre) ** 2)


ONE = """
index p in 1..2
{input}
output y[p] : real
row w ~ Normal(0, 1)
latent f[p]({arguments}) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.3)
infer vi: steps = 40, inducing = 8, diagnose = no
"""


@pytest.mark.parametrize("known", [False, True])
def test_of_new_rows_it_is_the_posterior_given_their_outputs(known: bool) -> None:
    rng = np.random.default_rng(2)
    w, x = rng.standard_normal((2, 25))
    y = np.stack([np.sin(w + known * x), w], axis=1) + 0.3 * rng.standard_normal((25, 2))
    text = ONE.format(input="input x : real" if known else "", arguments="x, w" if known else "w")
    data = {"y": y, **({"x": x} if known else {})}
    fit = gpdsl.compile(text).fit(data, progress=False) if known else unlearnt(text, data)
    new = np.array([[0.5, 0.4], [-0.7, np.nan], [0.3, -1.0], [np.nan, np.nan]])
    at = np.array([0.2, -0.4, 0.8, 0.0])
    found = fit.row_variables({"y": new, **({"x": at} if known else {})})["w"]
    nodes = np.linspace(-8.0, 8.0, 4001)[:, None]
    for row, outputs in enumerate(new):
        arguments = np.column_stack([np.full(len(nodes), at[row]), nodes]) if known else nodes
        mean, sd = _by_quadrature(fit, nodes, arguments, outputs, 0.3)
        assert (found.mean[row], found.sd[row]) == pytest.approx((mean[0], sd[0]), abs=1e-6)
    assert found.mean[3] == pytest.approx(0.0, abs=1e-9) and found.sd[3] == pytest.approx(1.0)
    assert np.all(found.sd[:2] < 0.9)


def test_of_new_rows_in_the_plane_it_is_what_brute_force_finds() -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((30, 2))
    y = w @ rng.standard_normal((2, 3)) + 0.3 * rng.standard_normal((30, 3))
    text = ONE.format(input="index q in 1..2", arguments="w").replace("1..2\nindex q", "1..3\nindex q")
    fit = gpdsl.compile(text.replace("row w", "row w[q]")).fit({"y": y}, progress=False)
    new = np.array([[0.5, 0.4, -0.2], [-0.7, np.nan, 0.4]])
    found = fit.row_variables({"y": new})["w"]
    line = np.linspace(-6.0, 6.0, 161)
    nodes = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    for row, outputs in enumerate(new):
        mean, sd = _by_quadrature(fit, nodes, nodes, outputs, 0.3)
        np.testing.assert_allclose(found.mean[row], mean, atol=0.02)
        np.testing.assert_allclose(found.sd[row], sd, atol=0.02)


def test_new_rows_of_which_passes_tell_too_little_are_named() -> None:
    rng = np.random.default_rng(3)
    model = gpdsl.compile(ONE.format(input="index q in 1..2", arguments="w").replace("row w", "row w[q]"))
    fit = model.fit({"y": rng.standard_normal((12, 2))}, progress=False, steps=2)
    fit.row_variables({"y": np.zeros((1, 2))})
    with pytest.raises(gpdsl.GpdslError, match=r"the posterior of 1 new row \(2, counted from 1\) is narrower"):
        fit.row_variables({"y": np.array([[0.0, 0.0], [900.0, -900.0]])})


def test_terms_of_new_rows_are_refused() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nrow e ~ Normal(x, 0.5)\ny ~ Normal(2 * e, 0.3)\n")
    fit = model.fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, diagnose="no")
    with pytest.raises(gpdsl.GpdslError, match="`e` is a term of others: ask for the data that were fitted, 2 rows"):
        fit.row_variables({"x": [0.5], "y": [0.0]})
