"""One small fit by every engine: the one that the options ask for is the one that is chosen, and ends with a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.infer import SEARCHES

TEXT = """
input x : real
output y : real
external slow(f: real) -> real
param s : positive = 0.5
latent f(x) ~ GP(0, RBF(1))
"""
NORMAL = TEXT + "y ~ Normal(f, s)\n"
HEAVY = TEXT + "y ~ StudentT(4, f, s)\n"
OPAQUE = TEXT + "y ~ Normal(slow(f), s)\n"
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": (NORMAL, {}),
    "natural": (HEAVY, {}),
    "ep": (HEAVY, {"engine": "ep"}),
    "qsgp": (NORMAL, {"engine": "qsgp", "features": 20, "steps": 5}),
    "lbfgs": (HEAVY, {"optimizer": "lbfgs", "steps": 5}),
    "alternating": (HEAVY, {"schedule": "alternating", "steps": 2}),
    "adam": (HEAVY, {"optimizer": "adam", "steps": 20}),
    "adadelta": (HEAVY, {"optimizer": "adadelta", "steps": 20}),
    "minibatch natural": (HEAVY, {"inducing": 4, "batch": 5, "steps": 20}),
    "simulated natural": (OPAQUE, {"steps": 2}),
    "stochastic natural": (OPAQUE, {"steps": 2, "gradients": "score", "samples": 20}),
}


def test_all_engines_are_here() -> None:
    assert set(FITS) == {engine.name for _, engine in SEARCHES} | {"exact", "qsgp"}


@pytest.mark.parametrize("name", FITS)
def test_the_engine_that_is_asked_for_ends_with_a_bound(name: str) -> None:
    text, options = FITS[name]
    x, stages = np.linspace(-1, 1, 12), set[str]()
    externals = {"slow": np.sin} if "slow(f)" in text else {}
    text = text if externals else text.replace("external slow(f: real) -> real\n", "")
    model = gpdsl.compile(text, externals=externals)
    fit = model.fit({"x": x, "y": np.sin(2 * x)}, callback=lambda report: stages.add(report.stage), **options)
    assert name in {stage.rsplit(", ", 1)[-1] for stage in stages}
    assert np.isfinite(fit.elbo) and np.isfinite(fit.predict({"x": [0.3]}).mean("f")).all()
