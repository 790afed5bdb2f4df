"""What inducing points lose at most, beside the evidence by dense linear algebra."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.inducing.loss import certified_loss
from gpdsl.inference.infer import plan
from gpdsl.inference.problem import Found, Result
from gpdsl.results.fitting import prepare

TEXT = """
index p in 1..2
input x : real
output y[p] : real
const s[p] = [0.2, 0.4]
latent f[p](x) ~ GP(p, 1.5 * Matern32(0.5))
y[p] ~ Normal(2 * f[p], s[p])
"""


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * np.abs(a[:, None] - b) / 0.5
    return 1.5 * (1 + r) * np.exp(-r)


def gaussian(covariance: np.ndarray, gap: np.ndarray, more: float = 0.0) -> float:
    """log N(gap; 0, covariance), with `more` noise in the square alone."""
    square = gap @ np.linalg.solve(covariance + more * np.eye(len(gap)), gap)
    return float(-0.5 * square - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1])


def expected(x: np.ndarray, y: np.ndarray, z: np.ndarray, scale: float) -> tuple[float, float, float]:
    """Bound, evidence and upper bound of one output, in units of its noise `scale`."""
    every, cross = 4 * matern(x, x) / scale**2, 4 * matern(x, z) / scale**2
    among = 4 * matern(z, z) / scale**2 * (1 + 1e-8 * np.eye(len(z)))
    low = cross @ np.linalg.solve(among, cross.T)
    left, unit = np.trace(every - low), np.eye(len(x))
    bound, upper = gaussian(low + unit, y / scale) - left / 2, gaussian(low + unit, y / scale, left)
    return bound, gaussian(every + unit, y / scale), upper


@pytest.mark.parametrize("inducing", [5, pytest.param(20, marks=pytest.mark.slow), 50])
def test_the_evidence_lies_between_the_bounds(rng: np.random.Generator, inducing: int, tmp_path: Path) -> None:
    x = rng.uniform(-3, 3, 80)
    y = 2 * np.stack([1 + np.sin(2 * x), 2 + np.cos(x)], axis=1) + rng.standard_normal((80, 2)) * [0.2, 0.4]
    y[::7, 1] = np.nan
    fit = gpdsl.compile(TEXT).fit({"x": x, "y": y}, inducing=inducing)
    z, seen = np.asarray(fit.inducing[0].points)[:, 0], np.isfinite(y[:, 1])
    first = expected(x, y[:, 0] - 2, z, 0.2)
    second = expected(x[seen], y[seen, 1] - 4, z, 0.4)
    bound, evidence, upper = (a + b for a, b in zip(first, second, strict=True))
    assert fit.inducing_loss_bounds is not None
    least, most = fit.inducing_loss_bounds
    assert (least, most) == (0.0, pytest.approx(upper - bound, rel=1e-3))
    assert 0 <= evidence - bound <= most
    assert fit.inducing_loss is not None and 0 < fit.inducing_loss <= most
    assert (f"at most {most:,.2g} at the fit's parameters" in fit.summary()) == (most <= max(10 * fit.inducing_loss, 1))
    far = replace(fit, inducing_loss=2.0, inducing_loss_bounds=(0.0, 840.0))
    assert "lose about 2 nats" in far.summary() and "at most" not in far.summary()
    assert "at most 18 at" in replace(far, inducing_loss_bounds=(0.0, 18.0)).summary()
    fit.save(tmp_path / "fit.gpfit")
    assert gpdsl.load_fit(tmp_path / "fit.gpfit").inducing_loss_bounds == fit.inducing_loss_bounds


def test_it_is_slight_where_points_tell_all(rng: np.random.Generator) -> None:
    x = rng.uniform(-3, 3, 100)
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(2))\ny ~ Normal(f, 0.3)\n")
    data = {"x": x, "y": np.sin(x) + 0.3 * rng.standard_normal(100)}
    many, few = (model.fit(data, inducing=count) for count in (20, 3))
    assert many.inducing_loss_bounds is not None and many.inducing_loss_bounds[1] < 0.01
    assert few.inducing_loss_bounds is not None and few.inducing_loss_bounds[1] > 1.0
    assert "or ask for more" in few.summary()
    assert "more" not in many.summary()


def test_counts_have_no_such_bounds() -> None:
    model = gpdsl.compile("input x : real\noutput n : count\nlatent f(x) ~ GP(0, RBF(1))\nn ~ Poisson(exp(f))\n")
    assert model.fit({"x": np.arange(9.0), "n": np.arange(9)}, inducing=4).inducing_loss_bounds is None


@pytest.mark.parametrize("law", ["Poisson(exp(f))", "Normal(f^2, 1)"])
def test_no_formula_tells_what_points_lose_where_nothing_is_normal_about_a_latent(law: str) -> None:
    kind = "count" if "Poisson" in law else "real"
    model = gpdsl.compile(f"input x : real\noutput n : {kind}\nlatent f(x) ~ GP(0, RBF(1))\nn ~ {law}\n")
    asked = prepare(model, {"x": np.arange(9.0), "n": np.arange(9)}, {}, {"inducing": 4})
    found = Found(Result({}, [], [], np.ones(1), -9.0, 0.0), None, plan(*asked).choice, 1e-6)  # type: ignore[arg-type]
    assert certified_loss(*asked, found) is None
    known = found.but(loss_bounds=(0.1, 0.2))
    assert certified_loss(*asked, known) == (0.1, 0.2)  # of rows that are summed up
