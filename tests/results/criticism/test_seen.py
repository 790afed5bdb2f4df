"""Covariances in NumPy are those of the programs of the posterior, whatever holds it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.data import bind
from gpdsl.inference.unrelated_rows import bends
from gpdsl.program.cache import precision
from gpdsl.program.program import make_rows
from gpdsl.results.criticism.importance import divergence
from gpdsl.results.criticism.left_out import Elpd
from gpdsl.results.criticism.seen import Seen, columns_of
from gpdsl.results.fitting import prepare
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(4)
X, Z = np.sort(RNG.uniform(0, 5, 30)), RNG.uniform(0, 5, 30)
Y = np.sin(X) + 0.2 * RNG.standard_normal(30)
HEAD = "input x : real\ninput z : real\n"
TWO = "latent f(x) ~ GP(1, 2 * RBF(0.7))\nlatent g(x) ~ GP(0, Matern32(1.5))\nlatent h(z) ~ GP(0, 0.5 * RBF(1))\n"
SEVERAL = "index p in 1..2\n" + HEAD + "output y[p] : real\n" + TWO + "y[p] ~ Normal(f + p * g + h, 0.3)"
GAPS = np.where(RNG.uniform(size=(30, 2)) < 0.2, np.nan, np.stack([Y, Y + 1], axis=1))
LEVELS = "index k in 1..3\ninput x : real\ninput s : label[k]\noutput y : real\nlatent f[k](x) ~ GP(0, RBF(1))\n"

FITS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "exact, with gaps": (SEVERAL, {"x": X, "z": Z, "y": GAPS}, {}),
    "exact, in blocks": (LEVELS + "y ~ Normal(f[s], 0.3)", {"x": X, "s": [1, 1, 2, 2, 2, 3] * 5, "y": Y}, {}),
    "coupled": (HEAD + "output y : count\n" + TWO + "y ~ Poisson(exp(0.3 * f + g + h))", {"y": np.arange(30) % 4}, {}),
    "apart": (
        HEAD + "output y : count\n" + TWO + "y ~ Poisson(exp(0.3 * f + g + h))",
        {"y": np.arange(30) % 4},
        {"posterior": "full", "inducing": 9},
    ),
}


def seen_of(text: str, data: dict[str, Any], options: dict[str, Any]) -> Seen:
    model = gpdsl.compile(text)
    fit = model.fit({"x": X, "z": Z, **data} if "input z" in text else data, **options)
    ended = fit.inspected.ended
    assert ended is not None
    return Seen(fit, fit.standardised.removed(ended.data))


@pytest.mark.parametrize("name", FITS)
def test_posteriors_in_numpy_are_those_of_programs(name: str) -> None:
    seen = seen_of(*FITS[name])
    assert seen.on_host
    with precision("float64"):
        found, expected = seen.posterior, seen._elsewhere()
        by_programs = list(seen.fit.at_rows.inverses())
        inverses = list(zip(seen.inverses(), by_programs, strict=True)) if by_programs else []
    assert found.keys() == expected.keys() and bool(inverses) == name.startswith("exact")
    for pair, matrix in expected.items():
        np.testing.assert_allclose(found[pair], matrix, atol=1e-8, err_msg=str(pair))
    for own, theirs in inverses:
        for each, other in zip(own, theirs, strict=True):
            np.testing.assert_allclose(each, other, rtol=1e-8, atol=1e-10)


def test_what_rows_read_of_latents_of_one_kernel_has_their_marginals() -> None:
    """Each column with a mean and a root of its own."""
    text = "index k in 1..2\ninput x : real\noutput y : count\nlatent f[k](x) ~ GP(0, 2 * RBF(1))\n"
    fit = unlearnt(text + "y ~ Poisson(exp(f[1] - 2 * f[2]))", {"x": X[::3], "y": np.arange(10)}, posterior="full")
    ended = fit.inspected.ended
    assert ended is not None
    with precision("float64"):
        loaded, mean, spread = Seen(fit, fit.standardised.removed(ended.data)).at_readings
        expected = fit.at_rows.marginals(fit.program, make_rows(fit.program, ended.data), 10)
    assert [set(each) for each in loaded] == [{0}, {1}]
    np.testing.assert_allclose(mean, expected.mean[0], rtol=1e-7)
    np.testing.assert_allclose(expected.variance[0], spread**2, rtol=1e-4)
    for column, each in enumerate(loaded):
        np.testing.assert_allclose(np.sum(each[column] ** 2, axis=1), spread[:, column] ** 2)


def test_what_is_no_value_of_a_latent_is_left_to_programs() -> None:
    text = HEAD + "output y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ StudentT(4, D(f, x), 0.3)"
    seen = seen_of(text, {"y": Y}, {})
    assert not seen.on_host and not seen.compares


@pytest.mark.parametrize("posterior", ["full", "coupled"])
def test_the_divergence_is_that_of_gaussians(posterior: str) -> None:
    """(tr S + m'm - k - log |S|) / 2 of all whitened values, by their covariance."""
    text, data, _ = FITS["apart"]
    fit = seen_of(text, data, {"posterior": posterior, "inducing": 6}).fit
    mean = np.concatenate([np.ravel(q.mean) for q in fit.posterior])
    if posterior == "coupled":
        root = np.concatenate([q.root[0].reshape(6 * q.root.shape[1], -1) for q in fit.posterior])
        covariance = root @ root.T
    else:
        covariance = np.zeros((18, 18))
        for place, root in enumerate(each for q in fit.posterior for each in q.root[0]):
            covariance[6 * place : 6 * place + 6, 6 * place : 6 * place + 6] = root @ root.T
    expected = 0.5 * (np.trace(covariance) + mean @ mean - 18 - np.linalg.slogdet(covariance)[1])
    assert divergence(fit) == pytest.approx(expected, rel=1e-6)


def test_mixed_second_derivatives_are_those_of_the_formula() -> None:
    """d^2/df dg of -(y - f g)^2 / (2 s^2): (y - 2 f g) / s^2, at means beside those of the prior; 0 of missing rows."""
    text = (
        HEAD + "output y : real\nparam s : positive = 0.4\nlatent f(x) ~ GP(2, RBF(1))\nlatent g(x) ~ GP(z, RBF(2))\n"
    )
    y = np.where(np.arange(30) == 7, np.nan, Y)
    program, data, _ = prepare(gpdsl.compile(text + "y ~ Normal(f * g, s)"), {"x": X, "z": Z, "y": y}, {}, {})
    above = RNG.standard_normal((30, 2))
    found = bends(program, make_rows(program, data), {"s": np.array(0.4)}, above, np.full((30, 2), 1e-3))
    assert found is not None
    product = (2 + above[:, 0]) * (Z + above[:, 1])
    np.testing.assert_allclose(found[0, 1], np.nan_to_num((y - 2 * product) / 0.16), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[0, 1], found[1, 0])


WHITE = (
    "input x : real\noutput y : real\nparam t2 : positive = 0.1\nlatent f(x) ~ GP(0, RBF(1) + t2 * White())\n"
    "y ~ Normal(2 * f, 0.01)"
)


def found_of(fit: gpdsl.Fit, data: Any) -> dict[str, Any]:
    return {each.name: each for each in fit.diagnose(data)}


@pytest.mark.parametrize("options", [{}, {"engine": "vi", "inducing": 20, "optimizer": "lbfgs"}])
def test_white_noise_in_a_kernel_is_noise_to_every_look(options: dict[str, Any]) -> None:
    """Beside dense matrices: of n - tr B^-1, and of the evidence beside that of a level and all noise."""
    data = {"x": X, "y": Y}
    fit = gpdsl.compile(WHITE).fit(data, **options)
    noise = 4 * float(fit.parameters["t2"]) + 0.01**2
    whole = 4 * np.exp(-0.5 * (X[:, None] - X) ** 2) + noise * np.eye(len(X))
    gain = stats.multivariate_normal.logpdf(Y, cov=whole) - np.sum(stats.norm.logpdf(Y, Y.mean(), Y.std()))
    found, close = found_of(fit, data), {"abs": 0.02 if options else 1e-6}
    used = len(X) - noise * np.trace(np.linalg.inv(whole))
    assert found["effective parameters"].number == pytest.approx(used, **close)
    assert found["evidence for latents"].number == pytest.approx(gain, abs=0.02)
    assert "to 0.99 at neighbours" in found["reach of latents"].said or "to 1 at" in found["reach of latents"].said
    assert not fit.diagnose().doubtful


def test_white_noise_that_is_none_of_the_observation_is_said_to_follow_rows() -> None:
    data = {"x": X, "y": Y}
    fit = gpdsl.compile(WHITE.replace("Normal(2 * f, 0.01)", "StudentT(4, f, 0.01)")).fit(data)
    found = found_of(fit, None)
    assert "evidence for latents" not in found and "effective parameters" not in found
    assert "neighbours" in found["reach of latents"].said
    told = [each.said for each in fit.diagnose() if each.name == "not looked at"]
    assert told[0].startswith(
        "evidence for latents, what is known of latents, effective parameters, rows left out, as W"
    )


def test_slopes_have_evidence_beside_rows_with_levels_and_slopes_of_their_own() -> None:
    """Of the best constants of both outputs, and the best noise."""
    text = "output w : real\nparam s : positive = 0.2\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)\n"
    text += "w ~ Normal(D(f, x), s)"
    data = {"x": X, "y": Y, "w": np.cos(X) + 0.2 * RNG.standard_normal(30)}
    fit = gpdsl.compile(f"input x : real\noutput y : real\n{text}").fit(data)
    apart = np.concatenate([data[name] - np.mean(data[name]) for name in ("y", "w")])
    nothing = np.sum(stats.norm.logpdf(apart, 0, np.sqrt(np.mean(apart**2))))
    assert found_of(fit, None)["evidence for latents"].number == pytest.approx(fit.elbo - nothing, abs=1e-3)


def test_one_row_and_values_that_are_the_same_are_no_sign() -> None:
    text = "input x : real\noutput y : real\nparam s : positive\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)"
    one = {"x": [0.0], "y": [1.0]}
    fit = gpdsl.compile(text).fit(one)
    assert not any("unrelated rows" in each for each in fit.notes)
    assert np.isnan(fit.loo(one).se) and "±" not in repr(fit.loo(one)) and "1 row, which tells no" in repr(fit.loo(one))
    same = {"x": X, "y": np.full(30, 2.0)}
    fit = gpdsl.compile(text).fit(same)
    found = found_of(fit, same)  # some of whose looks fail: the noise is nothing
    assert "variance of y" not in found and "min of y" not in found and "evidence for latents" not in found
    assert "which is no sign" in repr(fit.check_predictive(same, "variance"))


def test_effective_parameters_are_never_below_none() -> None:
    fit = gpdsl.compile(WHITE).fit({"x": X, "y": Y}, diagnose="no")
    worse = Elpd(fit, fit.bind({"x": X, "y": Y}, None, outputs=True), np.zeros(30), np.full(30, -0.1), "loo")
    assert np.isnan(worse.effective_parameters) and "no effective parameters, as" in repr(worse)
    assert "0.0 effective parameters" in repr(replace(worse, of_itself=np.full(30, -1e-4)))


@pytest.mark.parametrize(("also", "left"), [("", ["x", "z"]), (" + 0 * end", ["x", "end", "z"])])
def test_limits_of_censored_values_are_no_order_of_rows(also: str, left: list[str]) -> None:
    """Values that were seen have a limit that was made up: along it, those at their limit lie higher."""
    inputs = "input x : real\ninput end : positive\ninput z : real\noutput y : positive\n"
    law = f"Censored(Weibull(1.5, exp(f{also})), upper = end)"
    fit: Any = SimpleNamespace(program=gpdsl.compile(f"{inputs}latent f(x) ~ GP(0, RBF(1))\ny ~ {law}"))
    data = bind(fit.program.declarations, {"x": X, "z": Z, "y": np.exp(Y), "end": np.full(30, 1e6)})
    assert [*columns_of(fit, data)] == left
