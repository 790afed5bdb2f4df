"""Single precision on the zoo: finite, and the bound close to that of double precision at the same parameters.

A fit in single precision may find another of several optima, so that the bound is compared where both are: at the
hyperparameters that the single-precision fit has learnt.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.inference.test_no_divergence import MODELS
from tests.simulation.test_requests import zoo_model

QUICK = {"boston", "coal_mining"}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_single_precision_is_close_to_double(name: str) -> None:
    model = zoo_model(name)
    drawn = model.sample_prior(rows=210 if name == "airline" else 30, seed=0)
    data = {each: np.asarray(values) for each, values in drawn.data.items()}
    single = model.fit(data, dtype="float32", seed=0, progress=False)
    learnt = {each: np.asarray(value, float) for each, value in single.parameters.items()}
    held = {"init": learnt, "fixed": list(learnt), "seed": 0, "progress": False}
    narrow, wide = (model.fit(data, dtype=dtype, **held) for dtype in ("float32", "float64"))
    assert np.isfinite(single.elbo) and all(np.isfinite(value).all() for value in learnt.values())
    close = 0.05 * len(data[next(iter(data))]) ** 0.5 + 0.01 * abs(wide.elbo) + 5 * (wide.elbo_se + narrow.elbo_se)
    assert narrow.elbo == pytest.approx(wide.elbo, abs=close)
    for latent in model.declarations.latents:
        mean, spread = (np.asarray(getattr(single.predict(data), each)(latent)) for each in ("mean", "variance"))
        assert np.isfinite(mean).all() and np.isfinite(spread).all() and (spread >= 0).all()
