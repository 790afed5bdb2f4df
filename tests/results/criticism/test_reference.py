"""A fit beside Markov chains, or beside another fit, whose distances are known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.results.criticism.reference import Distance
from tests.inference.problems import unlearnt

RNG = np.random.default_rng(2)
X = np.linspace(0, 4, 15)
DATA = {"x": X, "y": np.sin(2 * X) + 0.3 * RNG.standard_normal(15)}
TEXT = """
input x : real
output y : real
param sigma : positive = 0.3 ~ LogNormal(-1, 0.5)
latent f(x) ~ GP(0, Matern32(1))
let g = 2 * f
y ~ Normal(f, sigma)
"""


def test_distances_of_two_exact_fits_are_those_of_their_normals() -> None:
    one, other = (gpdsl.compile(TEXT).fit(DATA, fixed=["sigma"], init={"sigma": s}) for s in (0.3, 0.6))
    found = one.check(DATA, other)
    r = np.sqrt(3) * abs(X[:, None] - X)
    kernel = (1 + r) * np.exp(-r)
    gains = [kernel @ np.linalg.inv(kernel + s**2 * np.eye(15)) for s in (0.3, 0.6)]
    means = [gain @ DATA["y"] for gain in gains]
    sds = [np.sqrt(np.diag(kernel - gain @ kernel)) for gain in gains]
    apart = (means[0] - means[1]) / sds[1]
    for row in found.rows:
        assert row.mean == pytest.approx(np.sqrt(np.mean(apart**2)))
        assert row.worst == pytest.approx(np.abs(apart).max())
        assert row.sd == pytest.approx(np.exp(np.mean(np.log(sds[0] / sds[1]))))
    low, high = (stats.norm.cdf((means[0] + z * sds[0] - means[1]) / sds[1]) for z in stats.norm.ppf([0.05, 0.95]))
    assert found.rows[0].inside == pytest.approx(np.mean(high - low), abs=0.02)
    assert [(row.name, row.verdict) for row in found.rows] == [(n, "shifted, too narrow") for n in "fg"]
    assert "`f`, `g` of 2 differ" in repr(found)
    assert one.check(DATA, one).verdict == "all 2 agree with the reference"
    assert list(found.to_frame().index) == ["f", "g"]


def test_verdicts_allow_for_what_the_reference_is_unsure_of() -> None:
    def verdict(mean: float, sd: float, slack: float) -> str:
        return Distance("f", mean, 9.0, sd, 0.9, slack).verdict

    assert [verdict(mean, 1.0, 0.0) for mean in (0.19, 0.21)] == ["ok", "shifted"]
    assert [verdict(mean, 1.0, 0.05) for mean in (0.21, 0.29, 0.31)] == ["ok", "ok", "shifted"]
    assert verdict(0.1, 1.0, 0.11) == "too few draws to tell" and verdict(0.5, 1.0, 0.11) == "shifted"
    assert [verdict(0.0, sd, 0.0) for sd in (0.79, 0.81, 1.24, 1.26)] == ["too narrow", "ok", "ok", "too wide"]
    assert [verdict(0.0, sd, 0.05) for sd in (0.72, 0.73, 1.37, 1.38)] == ["too narrow", "ok", "ok", "too wide"]
    assert verdict(0.3, np.nan, 0.0) == "shifted, one value"


def test_elements_are_named_as_in_the_model() -> None:
    text = "index k in 1..2" + TEXT.replace("f(x)", "f[k](x)").replace("let g = 2 * f\n", "").replace(
        "(f,", "(f[1] + f[2],"
    )
    one, other = (unlearnt(text, DATA, spread=s, fixed=["sigma"], init={"sigma": 0.3}) for s in (0.3, 0.6))
    assert [row.name for row in one.check(DATA, other).rows] == ["f[1]", "f[2]"]


def test_a_parameter_is_beside_its_settings() -> None:
    text = TEXT.replace("let g = 2 * f\n", "")
    point, spread = (gpdsl.compile(text).fit(DATA, hyperparameters=how) for how in ("point", "integrated"))
    found, settings = point.check(DATA, spread).rows[0], spread.settings
    values = np.array([each.parameters["sigma"] for each in settings.each])
    mean = settings.weights @ values
    sd = np.sqrt(settings.weights @ (values - mean) ** 2)
    assert found.name == "sigma" and np.isnan(found.sd) and "one value" in found.verdict
    assert found.mean == found.worst == pytest.approx(abs(point.parameters["sigma"] - mean) / sd)
    assert found.slack == pytest.approx(settings.effective**-0.5) and found.slack > 0
    itself = spread.check(DATA, spread).rows[0]
    assert itself.mean == 0 and itself.sd == pytest.approx(1) and itself.inside == pytest.approx(0.9, abs=0.1)


@pytest.mark.slow
def test_chains_begin_at_the_fit_and_tell_of_parameters() -> None:
    fit = gpdsl.compile(TEXT + "infer vi: posterior = full").fit(DATA)
    found = fit.check(DATA, chains=2, draws=25, warm_up=40)
    assert found.reference.options.engine == "mcmc" and found.rows[0].name == "sigma"
    assert "one value" in found.rows[0].verdict and "hyperparameters = integrated" in found.verdict
    itself = found.reference.check(DATA, found.reference)
    assert [row.verdict for row in itself.rows] == ["too few draws to tell"] * 3  # 50 draws
    assert itself.verdict.startswith("too few draws to tell: ask for more")
    assert 0.84 < itself.rows[0].inside < 0.96 and itself.rows[0].sd == pytest.approx(1)


def test_what_cannot_be_compared() -> None:
    fit = gpdsl.compile(TEXT).fit(DATA, fixed=["sigma"])
    with pytest.raises(gpdsl.GpdslError, match="against = 'nuts': expected 'mcmc', or a fit"):
        fit.check(DATA, "nuts")
    with pytest.raises(gpdsl.GpdslError, match="check asks for the data that were fitted"):
        fit.check({"x": X, "y": X})
    other = gpdsl.compile(TEXT.replace("f(x)", "h(x)").replace("f", "h").replace("g =", "k =")).fit(DATA)
    with pytest.raises(gpdsl.GpdslError, match="no name in common"):
        fit.check(DATA, other)
