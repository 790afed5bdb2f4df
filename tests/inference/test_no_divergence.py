"""Default fits of every model on random data, clean and hostile, end in finite numbers or an error that says why.

`make test-slow` tries 200 combinations of model, data and seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning
from tests.simulation.test_requests import zoo_model

COMBINATIONS = 200
UNFITTED = {"deep_gp", "deep_latent", "latent_variable", "uncertain_inputs"}
"""Models whose default fits take thousands of steps."""

MODELS = [name for name in gpdsl.zoo_names() if name not in UNFITTED]

Table = dict[str, np.ndarray]
Change = Callable[[Table, gpdsl.Model, np.random.Generator], Table]


def _inputs(table: Table, model: gpdsl.Model, change: Callable[[np.ndarray], np.ndarray]) -> Table:
    declared = model.declarations.inputs
    real = {name for name, each in declared.items() if each.kind == "real"}
    return {name: change(values) if name in real else values for name, values in table.items()}


def repeated(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """Every row three times."""
    return {name: np.repeat(values, 3, axis=0) for name, values in table.items()}


def nearly_repeated(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """Every row twice, the second time moved by a billionth."""
    twice = {name: np.repeat(values, 2, axis=0) for name, values in table.items()}
    return _inputs(twice, model, lambda v: v + 1e-9 * rng.normal(size=v.shape))


def tiny(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """Inputs a thousand times closer than the length-scales expect."""
    return _inputs(table, model, lambda v: 1e-3 * v)


def huge(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """Inputs a thousand times further apart than the length-scales expect."""
    return _inputs(table, model, lambda v: 1e3 * v)


def constant(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """Outputs that are all the same."""
    outputs = model.declarations.outputs
    return {name: np.broadcast_to(v[:1], v.shape).copy() if name in outputs else v for name, v in table.items()}


def outlier(table: Table, model: gpdsl.Model, rng: np.random.Generator) -> Table:
    """One output a hundred standard deviations away."""
    found = dict(table)
    for name, declared in model.declarations.outputs.items():
        if declared.kind == "real" and declared.label is None:
            found[name] = np.array(table[name], float)
            found[name][0] += 100 * (np.nanstd(found[name]) + 1e-3)
    return found


CHANGES: dict[str, Change | None] = {
    "clean": None,
    "repeated": repeated,
    "nearly repeated": nearly_repeated,
    "tiny": tiny,
    "huge": huge,
    "constant": constant,
    "outlier": outlier,
}


def attempt(number: int) -> str:
    """One combination; what happened: `fitted`, or the error."""
    rng = np.random.default_rng(number)
    name = MODELS[number % len(MODELS)]
    change = list(CHANGES)[rng.integers(len(CHANGES))]
    dtype = "float32" if rng.random() < 0.25 else "float64"
    model = zoo_model(name)
    drawn = model.sample_prior(rows=int(rng.integers(3, 60) if name != "airline" else 210), seed=number)
    table = {each: np.asarray(values) for each, values in drawn.data.items()}
    alter = CHANGES[change]
    table = table if alter is None else alter(table, model, rng)
    what = f"{number}: {name}, {change}, {dtype}, {len(next(iter(table.values())))} rows"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GpdslWarning)
        try:
            fit = model.fit(table, seed=number, dtype=dtype, steps=30, progress=False)
            prediction = fit.predict(table)
        except gpdsl.GpdslError as error:
            return f"{what}: {error}"
    names = [*model.declarations.latents, *model.declarations.outputs]
    moments = [np.asarray(moment(each)) for each in names for moment in (prediction.mean, prediction.variance)]
    assert np.isfinite(fit.elbo), what
    assert all(np.isfinite(value).all() for value in fit.parameters.values()), what
    assert all(np.isfinite(value).all() for value in moments), what
    return f"{what}: fitted"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(COMBINATIONS))
def test_no_fit_ends_in_numbers_that_are_not_finite(number: int) -> None:
    said = attempt(number)
    assert said.endswith("fitted") or "help:" in said or "Likely cause:" in said, said
