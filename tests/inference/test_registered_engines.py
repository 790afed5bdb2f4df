"""Engines that users register: the Laplace approximation of the examples, against dense algebra and quadrature."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import poisson

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference import engines
from gpdsl.language import options
from gpdsl.testing import check_engine

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "laplace_engine.py"

ONE_ROW = """
input x : real
output n : count
latent f(x) ~ GP(0, RBF(1))
n ~ Poisson(exp(f))
infer laplace
"""


@pytest.fixture(autouse=True)
def laplace() -> Iterator[None]:
    """The example's engine, for one test."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("laplace_engine", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["laplace_engine"] = module
    spec.loader.exec_module(module)
    yield
    engines._registered.clear()
    options._engines.pop("laplace")
    sys.modules.pop("laplace_engine")


@pytest.mark.parametrize("name", ["laplace", *[pytest.param(n, marks=pytest.mark.slow) for n in ("vi", "ep")]])
def test_engines_hold_what_all_of_them_do(name: str) -> None:
    check_engine(name)


def test_the_evidence_of_one_row_is_laplace_s(rng: np.random.Generator) -> None:
    """log p(n | f*) p(f*) + log(2 pi / curvature) / 2 at the mode, near the integral."""
    fit = gpdsl.compile(ONE_ROW).fit({"x": [0.0], "n": [4]})
    mode = fit.predict({"x": [0.0]}).mean("f")[0]
    assert 4 - np.exp(mode) - mode == pytest.approx(0.0, abs=1e-6)
    height = poisson.logpmf(4, np.exp(mode)) - mode**2 / 2
    assert fit.elbo == pytest.approx(height - 0.5 * np.log(1 + np.exp(mode)), abs=1e-6)
    true = quad(lambda f: poisson.pmf(4, np.exp(f)) * np.exp(-(f**2) / 2) / np.sqrt(2 * np.pi), -8, 8)[0]
    assert fit.elbo == pytest.approx(np.log(true), abs=0.05)


def test_what_it_does_not_cover_is_said(rng: np.random.Generator) -> None:
    model, data = gpdsl.compile(ONE_ROW), {"x": rng.normal(size=9), "n": rng.poisson(2.0, 9)}
    with pytest.raises(GpdslError, match="engine = laplace does not cover this fit: .*leave batch and posterior out"):
        model.fit(data, batch=3)
    with pytest.raises(GpdslError, match="power = 0.5 belongs to engine = ep"):
        model.fit(data, power=0.5)
    gpdsl.register_engine("laplace", lambda problem: None, against=lambda program: "of its mood")  # type: ignore[arg-type, return-value]
    with pytest.raises(GpdslError, match="engine = laplace does not cover this fit: of its mood"):
        model.fit(data)


@pytest.mark.parametrize("name", ["vi", "two words", ""])
def test_names_that_engines_cannot_have(name: str) -> None:
    with pytest.raises(GpdslError, match="expected a name"):
        gpdsl.register_engine(name, lambda problem: None)  # type: ignore[arg-type, return-value]


def test_a_fit_of_an_engine_that_is_not_registered_is_not_loaded(tmp_path: Path) -> None:
    gpdsl.compile(ONE_ROW).fit({"x": [0.0], "n": [4]}).save(tmp_path / "fit.gpfit")
    options._engines.pop("laplace")
    try:
        with pytest.raises(GpdslError, match="laplace"):
            gpdsl.load_fit(tmp_path / "fit.gpfit")
    finally:
        options._engines["laplace"] = ""
