"""Covariances in NumPy are those of the programs of the posterior, whatever holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.unrelated_rows import bends
from gpdsl.program.cache import precision
from gpdsl.program.program import make_rows
from gpdsl.results.criticism.importance import divergence
from gpdsl.results.criticism.seen import Seen

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
        theirs = list(seen.fit.at_rows.inverses())
        inverses = list(zip(seen.inverses(), theirs, strict=True)) if theirs else []
    assert found.keys() == expected.keys() and bool(inverses) == name.startswith("exact")
    for pair, matrix in expected.items():
        np.testing.assert_allclose(found[pair], matrix, atol=1e-8, err_msg=str(pair))
    for (inverse, alpha), (those, beside) in inverses:
        kept = those < 1  # others fill a set up, and read nothing
        np.testing.assert_allclose(inverse, those[kept], rtol=1e-8)
        np.testing.assert_allclose(alpha, beside[kept], rtol=1e-8, atol=1e-10)


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
    text = HEAD + "output y : real\nparam s : positive\nlatent f(x) ~ GP(2, RBF(1))\nlatent g(x) ~ GP(z, RBF(2))\n"
    y = np.where(np.arange(30) == 7, np.nan, Y)
    seen = seen_of(text + "y ~ Normal(f * g, s)", {"y": y}, {"fixed": ["s"], "init": {"s": 0.4}})
    above = RNG.standard_normal((30, 2))
    rows = make_rows(seen.fit.program, seen.data)
    found = bends(seen.fit.program, rows, seen.fit.parameters, above, np.full((30, 2), 1e-3))
    assert found is not None
    product = (2 + above[:, 0]) * (Z + above[:, 1])
    np.testing.assert_allclose(found[0, 1], np.nan_to_num((y - 2 * product) / 0.16), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[0, 1], found[1, 0])
