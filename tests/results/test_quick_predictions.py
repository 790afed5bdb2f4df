"""What makes predictions quick changes none of their numbers: blocks, parts of integrals, one row of many, the host."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from scipy.special import ndtr

import gpdsl
from gpdsl.inference.layered import predictive
from gpdsl.inference.posteriors import coupled
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.kernels.functionals import Values
from gpdsl.program.joint import Marginals, basis_columns, with_sums
from gpdsl.program.kept import forget
from gpdsl.results import density, expectation as ex, integrals, nodes
from gpdsl.results.integrals import Quantity, polynomial_mean
from tests.inference.problems import problem_of, unlearnt

COMPILED = "/jax/core/compile/backend_compile_duration"


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Everything that XLA compiles, however small."""
    found: list[str] = []

    def seen(event: str, seconds: float, **rest: object) -> None:
        del seconds, rest
        if event == COMPILED:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(seen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(seen)


LAYERS = """\
input x : real
output y : real
row w ~ Normal(0, 1)
latent h(x, w) ~ GP(0, RBF(1))
latent f(h) ~ GP(0, RBF(0.8))
y ~ Normal(f, 0.1)
"""

RATIO = """\
input x : real
output y : real
param s : positive = 0.5
latent d(x) ~ GP(3, 0.2 * RBF(1))
latent v(x) ~ GP(9, 0.1 * RBF(1))
y ~ Normal(d / v + v / d, s)
"""

PLANE = """\
index p in 1..2
output y[p] : real
row w ~ Normal(0, 1)
latent f[p](w) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.3)
"""


@functools.cache
def fitted(text: str, **options: Any) -> gpdsl.Fit:
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 2.0, 12)
    model = gpdsl.compile(text)
    columns = {"x": x, "y": np.sin(3 * x) + 0.1 * rng.standard_normal(12)}
    data = columns if model.declarations.inputs else {"y": np.stack([x - 1.0, np.sin(3 * x)], axis=1)}
    return model.fit(data, steps=5, progress=False, **options)


NEW = {"x": np.linspace(-1.0, 3.0, 30)}


def test_passes_in_blocks_are_those_of_all_points_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of densities too; 1024 passes of 30 rows are many blocks."""
    fit, found = fitted(LAYERS), []
    for size in (predictive.POINTS_AT_ONCE, 1 << 30):
        monkeypatch.setattr(predictive, "POINTS_AT_ONCE", size)
        forget()
        p = fit.predict(NEW)
        found.append((p.mean("y"), p.sd("y"), p.quantile("y", 0.1), p.mean("h")))
    assert all(np.ptp(each) > 0.01 for each in found[0])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("rows", "blocks"), [(12, {4}), (4, {4}), (10, {4, 2}), (3, {3})])
def test_blocks_of_several_latents_keep_their_places(
    rows: int, blocks: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points that do not fill a block come last."""
    monkeypatch.setattr(predictive, "POINTS_AT_ONCE", 4)
    sizes: list[int] = []

    def moments(at: Any) -> tuple[jax.Array, jax.Array]:
        sizes.append(len(at))
        return jnp.stack([at.points[:, 0], 10 * at.points[:, 1], at.points.sum(1)]), -at.points.T

    points = np.arange(2.0 * rows).reshape(rows, 2) ** 2
    mean, variance = predictive._in_blocks(moments, Values(jnp.asarray(points)))
    assert set(sizes) == blocks
    np.testing.assert_allclose(mean, [points[:, 0], 10 * points[:, 1], points.sum(1)])
    np.testing.assert_allclose(variance, -points.T)


READ_TWICE = """\
input x : real
input z : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, RBF(2))
y ~ Normal(sin(f * f(z)) * g, 0.3)
"""


def test_what_samples_are_multiplied_by_is_worked_out_once() -> None:
    """With the sums of readings of one latent, which follow from these; `at` works all of it out for each sample."""
    data = {"x": np.array([0.0, 0.4]), "z": np.array([1.0, 0.1]), "y": np.array([0.2, -0.1])}
    program, rng = problem_of(READ_TWICE, data, dtype="float32").program, np.random.default_rng(0)
    basis = basis_columns(program)
    width = sum(group.stop - group.start for group in program.groups)
    assert len(basis) < width and not np.array_equal(basis, np.arange(len(basis)))
    root = rng.normal(size=(1, 2, len(basis), len(basis)))
    unit = np.asarray(with_sums(program, jnp.eye(len(basis))))
    covariance = np.einsum("bi,krbc,cj->krij", unit, root @ np.swapaxes(root, -1, -2), unit)
    mean = rng.normal(size=(1, 2, len(basis))) @ unit
    marginals = Marginals(*map(jnp.asarray, (mean, np.diagonal(covariance, axis1=-2, axis2=-1), covariance)))
    normals = jnp.asarray(rng.normal(size=(5, 1, 1, width)))
    both = jax.jit(lambda normals: (marginals.sampler(program)(normals), marginals.at(program, normals)))
    found, known = both(normals)
    np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, np.asarray(found)[..., basis] @ unit, rtol=1e-4, atol=1e-5)


def test_averages_over_samples_in_parts_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a posterior that couples two latents, by the joint samples that `at` draws."""
    x = np.linspace(0.0, 2.0, 12)
    beliefs = unlearnt(RATIO, {"x": x, "y": np.sin(3 * x)}).predict(NEW).beliefs
    assert beliefs.marginals.covariance is not None
    program = beliefs.program
    expression = next(o.law.arguments["mean"] for o in program.observations if o.law is not None)
    with jax.enable_x64(True):
        whole = np.asarray(Quantity(beliefs, expression**2).at_samples()).mean(axis=0)
        asked: list[int] = []
        original = jax.lax.map
        monkeypatch.setattr(jax.lax, "map", lambda f, z: asked.append(len(z)) or original(f, z))
        monkeypatch.setattr(integrals, "NUMBERS_AT_ONCE", 1024)
        found = np.asarray(Quantity(beliefs, expression**2).sampled_mean())
    assert asked == [2048 // 16]
    np.testing.assert_allclose(found, whole, rtol=1e-13)


def test_the_host_knows_means_of_polynomials_and_nothing_else() -> None:
    """By the formulas of Gaussian moments; nothing is compiled for them."""
    prediction = fitted(RATIO, posterior="full").predict(NEW)
    beliefs = prediction.beliefs
    references = beliefs.program.translator.references
    d, v = (next(s for s, ref in references.items() if ref.kind == "latent" and ref.name == name) for name in "dv")
    mean, variance = prediction.mean("d"), prediction.variance("d")
    other, spread = prediction.mean("v"), prediction.variance("v")
    centre = sp.Dummy("centre", real=True)
    with compilations() as compiled:
        square = polynomial_mean(Quantity(beliefs, (d - centre) ** 2, (), {centre: mean + 1.0}))
        cubic = polynomial_mean(Quantity(beliefs, 2 * d**3 * v**2 + 1))
    assert square is not None and cubic is not None and not compiled
    np.testing.assert_allclose(square[0], variance + 1.0, rtol=1e-9)
    expected = 2 * (mean**3 + 3 * mean * variance) * (other**2 + spread) + 1
    np.testing.assert_allclose(cubic[0], expected, rtol=1e-12)
    assert all(polynomial_mean(Quantity(beliefs, each)) is None for each in (1 / d, sp.sin(d), sp.exp(d)))


@pytest.mark.parametrize("text", [LAYERS, RATIO, PLANE], ids=["layers", "ratio", "plane"])
def test_a_second_prediction_compiles_nothing(text: str) -> None:
    """Nor does a fit of another process's file: shapes and formulas are the same."""
    fit = fitted(text)
    new = NEW if fit.model.declarations.inputs else {"y": np.zeros((30, 2))}

    def table() -> list[np.ndarray]:
        p = fit.predict(new)
        return [p.mean("y"), p.sd("y"), p.quantile("y", [0.05, 0.95])]

    first = table()
    with compilations() as compiled:
        again = table()
    assert not compiled
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_means_of_normal_outputs_compile_the_marginals_alone() -> None:
    fit = fitted("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(0.7))\ny ~ Normal(2 * f + 1, 0.2)\n")
    fit.predict(NEW)
    with compilations() as compiled:
        p = fit.predict(NEW)
        mean, sd = p.mean("y"), p.sd("y")
    assert not compiled
    np.testing.assert_allclose(mean, 2 * p.mean("f") + 1, rtol=1e-13)
    np.testing.assert_allclose(sd, np.sqrt(4 * p.variance("f") + 0.04), rtol=1e-12)


def test_rows_without_inputs_are_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fitted(PLANE)
    p = fit.predict({"y": np.zeros((30, 2))})
    assert p.beliefs.alike and not fitted(RATIO).predict(NEW).beliefs.alike
    one = p.mean("y"), p.sd("y"), p.quantile("y", [0.05, 0.95]), p.mean("f")
    monkeypatch.setattr(ex.Beliefs, "alike", False)
    every = fit.predict({"y": np.zeros((30, 2))})
    expected = every.mean("y"), every.sd("y"), every.quantile("y", [0.05, 0.95]), every.mean("f")
    for found, each in zip(one, expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-11, atol=1e-12)
    drawn = p.sample("y", 4)
    assert drawn.shape == (4, 30, 2) and len(np.unique(drawn)) == drawn.size


def test_log_densities_are_added_up_with_their_weights() -> None:
    values = np.array([[-1.0, -np.inf, -900.0], [-2.0, -np.inf, -901.0]])
    with compilations() as compiled:
        found = density._log_sum(values, np.array([0.25, 0.75]))
    assert not compiled
    first = np.log(0.25 * np.exp(-1) + 0.75 * np.exp(-2))
    np.testing.assert_allclose(found, [first, -np.inf, -900 + np.log(0.25 + 0.75 * np.exp(-1))], rtol=1e-13)


def test_divisors_that_a_numerator_takes_away_are_told_from_others() -> None:
    a, b, f = sp.symbols("a b f", real=True)
    assert nodes._vanishes((a + b) ** 2 - a**2 - 2 * a * b - b**2)
    assert nodes._vanishes(1 / a + 1 / b - (a + b) / (a * b))
    assert nodes._vanishes(sp.sin(a) ** 2 + sp.cos(a) ** 2 - 1)
    assert not nodes._vanishes((a + b) ** 2 - a**2 - b**2)
    assert not nodes._vanishes(sp.exp(a) - 1 - a)
    assert nodes.poles(a / (f - b), (f,)) == (f - b,) and not nodes.poles(f**2 + a / b, (f,))


def test_numbers_that_an_expression_does_not_read_are_not_asked_for() -> None:
    """Programs are known by their formulas: the same one, with more given beside it, is found again."""
    beliefs = fitted(RATIO, posterior="full").predict(NEW).beliefs
    references = beliefs.program.translator.references
    d = next(s for s, ref in references.items() if ref.kind == "latent" and ref.name == "d")
    first, second = sp.Dummy("first", real=True), sp.Dummy("second", real=True)
    numbers = np.linspace(1.0, 2.0, 30)
    alone = ex.each_component(beliefs, [first / d], (), {first: numbers})
    beside = ex.each_component(beliefs, [first / d, second * d], (), {first: numbers, second: 2 * numbers})
    np.testing.assert_array_equal(alone[0], beside[0])
    mean = ex.mean_of(beliefs, d, ())
    np.testing.assert_allclose(beside[1][0], 2 * numbers * mean, rtol=1e-13)


def test_coupled_latents_in_blocks_of_rows_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a latent that is read at two places in each row, too; where rows come in no full blocks, all at once."""
    latents = "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(1, 2 * RBF(2))\n"
    text = f"input x : real\ninput z : real\noutput y : real\n{latents}y ~ Normal(f * g + f(z), 0.3)\n"
    x = np.linspace(0, 3, 14)
    fit = unlearnt(text, {"x": x, "z": x**2, "y": np.sin(x)}, posterior="coupled")
    found, new = [], {"x": np.linspace(-1, 4, 128), "z": np.cos(np.arange(128))}
    for size in (32, 48, 1 << 20):
        monkeypatch.setattr(coupled, "ROWS_AT_ONCE", size)
        forget()
        found.append(fit.predict(new).beliefs.marginals)
    for each in found[:2]:
        np.testing.assert_allclose(each.covariance, found[2].covariance, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(each.mean, found[2].mean, rtol=1e-12, atol=1e-13)


def test_levels_of_probits_compile_nothing() -> None:
    text = "index c in 1..3\nparam cut : ordered[2] = [-0.5, 0.8]\ninput x : real\noutput y : ordinal[c]\n"
    fit = gpdsl.compile(f"{text}latent f(x) ~ GP(0, RBF(1))\ny ~ Ordinal(probit = f, cutpoints = cut)\n").fit(
        {"x": np.linspace(0, 3, 12), "y": np.arange(12) % 3 + 1}, steps=3
    )
    predicted = fit.predict({"x": np.linspace(0, 3, 5)})
    mean, sd = predicted.mean("f"), predicted.sd("f")
    with compilations() as compiled:
        chances = predicted.mean("y")
    assert not compiled
    wide = np.sqrt(1 + sd**2)
    below = np.stack([ndtr((cut - mean) / wide) for cut in fit.parameters["cut"]])
    expected = np.stack([below[0], below[1] - below[0], 1 - below[1]], axis=-1)
    np.testing.assert_allclose(chances, expected, rtol=1e-12)


UNCERTAIN = """\
input x : real
output y : real
row xt ~ Normal(x, 0.2)
latent f(xt) ~ GP(0, KERNEL)
y ~ Normal(f, 0.3)
"""


@pytest.mark.parametrize(
    ("text", "every"),
    [
        (UNCERTAIN.replace("KERNEL", "RBF(1)"), [False]),
        (UNCERTAIN.replace("KERNEL", "Matern32(0.5)"), [False, True]),
        (UNCERTAIN.replace("KERNEL", "RBF(0.02)"), [False, True]),
        (LAYERS, [False]),
    ],
    ids=["smooth", "rough", "short", "layers"],
)
def test_passes_from_few_are_those_of_all(text: str, every: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the moments are no polynomial, all passes are computed."""
    fit, found, seen, marginals = fitted(text), [], list[bool](), Posterior.marginals

    def watched(self: predictive.Layered, *given: Any) -> Any:
        seen.append(self.every)
        return marginals(self, *given)

    monkeypatch.setattr(Posterior, "marginals", watched)
    for points in (predictive.points_for, lambda passes: 0):
        monkeypatch.setattr(predictive, "points_for", points)
        forget()
        p = fit.predict(NEW)
        found.append((p.mean("y"), p.sd("y"), p.quantile("y", 0.1)))
    assert seen == [*every, False]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_passes_that_differ_in_more_than_a_number_are_all_computed() -> None:
    """Of a latent of another latent, or of two row variables, no polynomial in one number is asked for."""
    program = unlearnt(LAYERS, {"x": np.linspace(0.0, 2.0, 12), "y": np.zeros(12)}).program
    layers = predictive.Predicted(program, program.sharp)
    columns = {name: predictive.column_of(layers, group) for group in program.groups for name in group.names}
    assert columns["w"] is None
    assert columns["f"] is None
    assert columns["h"] == next(group.start for group in program.groups if "w" in group.names)
