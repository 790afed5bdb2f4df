"""What a prediction computes is compiled once for as many rows of a model, whichever fit it is of."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.posteriors.posterior import few_sizes

MODEL = """\
input x : real
output n : count
param ell : positive = {ell}
latent f(x) ~ GP(0, RBF(ell))
let wave = sin(f)
n ~ Poisson(exp(f))
"""


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Everything that is compiled by `jax.jit` from now on."""
    found, original = [], jax.jit

    def counted(function: object, **options: object) -> object:
        found.append(function)
        return original(function, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(jax, "jit", counted)
    return found


def numbers(fit: gpdsl.Fit, x: np.ndarray) -> list[np.ndarray]:
    prediction = fit.predict({"x": x})
    return [prediction.mean("n"), prediction.variance("n"), prediction.mean("wave"), prediction.quantile("n", 0.9)]


def test_predictions_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one fit, of another one of the model with other data, and never with the numbers of the first."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 5.0, 20)
    data = [{"x": x, "n": rng.poisson(np.exp(scale * np.sin(x)))} for scale in (1.0, 2.0)]
    model = gpdsl.compile(MODEL.format(ell=1.0))
    fits = [model.fit(each, steps=20, progress=False) for each in data]
    first = numbers(fits[0], x)
    calls = compiled(monkeypatch)
    for again, before in zip(numbers(fits[0], x), first, strict=True):
        np.testing.assert_array_equal(again, before)
    assert not calls
    other = numbers(fits[1], x)
    assert all(np.max(np.abs(a - b)) > 1e-3 for a, b in zip(other, first, strict=True))
    fresh = numbers(gpdsl.compile(MODEL.format(ell=1.0)).fit(data[1], steps=20, progress=False), x)
    for again, before in zip(fresh, other, strict=True):
        np.testing.assert_allclose(again, before, rtol=1e-9, atol=1e-9)


def test_another_model_has_its_own() -> None:
    """Constants of the text are part of what is compiled."""
    x = np.linspace(0.0, 5.0, 20)
    data = {"x": x, "n": np.full(20, 3.0)}
    one, two = (
        gpdsl.compile(MODEL.format(ell=1.0).replace("exp(f)", f"{k} * exp(f)")).fit(data, steps=20, progress=False)
        for k in (1, 2)
    )
    ratio = two.predict({"x": x}).mean("n") / one.predict({"x": x}).mean("n")
    latent = two.predict({"x": x}).mean("f") - one.predict({"x": x}).mean("f")
    assert np.all(np.abs(np.log(ratio)) < 0.2)
    assert np.all(latent < -0.3)


@pytest.mark.parametrize("count", [1, 7, 17, 20])
def test_other_numbers_of_rows(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """They agree row by row, and near ones share what is compiled."""
    x = np.linspace(0.0, 5.0, 20)
    fit = gpdsl.compile(MODEL.format(ell=1.0)).fit({"x": x, "n": np.round(3 + 2 * np.sin(x))}, steps=20, progress=False)
    whole = numbers(fit, x)
    calls = compiled(monkeypatch)
    for all_of_them, some in zip(whole, numbers(fit, x[:count]), strict=True):
        assert some.shape == (count,)
        np.testing.assert_allclose(some, all_of_them[:count], rtol=1e-9)
    assert not calls or few_sizes(count) != few_sizes(20)


def test_few_sizes() -> None:
    sizes = [few_sizes(count) for count in range(1, 5000)]
    assert all(count <= size < max(count + 4, 1.25 * count) for count, size in enumerate(sizes, start=1))
    assert sizes[:9] == [1, 2, 4, 4, 8, 8, 8, 8, 12] and len(set(sizes)) < 45
