"""Layers whose functions differ by the levels of a label: as many models, which share what no label tells apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.inference.layered.propagation import Expected, Layers
from gpdsl.inference.layered.start import start_layers
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.kernels.functionals import Values
from gpdsl.program.program import make_rows
from gpdsl.results.fitting import prepare
from tests.inference.test_layered import _program

APART = """
index g in {{"a", "b"}}
input x : real
input task : label[g]
output y : real
row w ~ Normal(0, 1)
latent f[g](x, w) ~ GP(0.3 * x, {kernel})
y ~ Normal(f[task], 0.3)
"""

ALONE = """
input x : real
output y : real
row w ~ Normal(0, 1)
latent f(x, w) ~ GP(0.3 * x, {kernel})
y ~ Normal(f, 0.3)
"""

TASK = np.array(list("abbab"))


def _bound(text: str, data: Any, points: np.ndarray, q: Any, variables: Any, samples: int) -> float:
    """With given inducing points, q there, and moments of the rows' variables; samples are the same in all rows."""
    program, rows, parameters = _program(text, data)
    count = len(variables[0])
    rows = rows.__class__(rows.inputs, rows.outputs, rows.observed, rows.indicators, jnp.arange(count))
    inducing, posterior = [], {}
    for number, group in enumerate(program.groups):
        mean, root = variables if group.per_row else q
        root = root[:, None] if group.per_row else root
        posterior[number] = Whitened(jnp.asarray(mean)[None, None], jnp.asarray(root)[None, None])
        inducing.append(Values(jnp.zeros((count, 0)) if group.per_row else jnp.asarray(points)))
    expected = Expected(Layers(program, frozenset()), samples, total=count)
    return float(expected(parameters, inducing, posterior, rows, jax.random.key(0), 1e-8))


@pytest.mark.parametrize("kernel", ["RBF(0.9, on = w) * Matern32(1.1, on = x)"])
def test_the_bound_is_the_sum_of_those_of_a_model_for_each_level(kernel: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, 5), rng.standard_normal(5)
    mean, sd = rng.standard_normal(5), rng.uniform(0.2, 1.2, 5)
    points, means = rng.uniform(-1.5, 1.5, (2, 4, 2)), rng.standard_normal((2, 4))
    roots = np.tril(rng.standard_normal((2, 4, 4)))
    whole = np.concatenate([np.column_stack([points[k], np.full(4, k + 1.0)]) for k in range(2)])
    root = np.block([[roots[0], np.zeros((4, 4))], [np.zeros((4, 4)), roots[1]]])
    data = {"x": x, "task": TASK, "y": y}
    found = _bound(APART.format(kernel=kernel), data, whole, (means.ravel(), root), (mean, sd), 0)
    apart = 0.0
    for k, level in enumerate("ab"):
        own = level == TASK
        given = {"x": x[own], "y": y[own]}, points[k], (means[k], roots[k]), (mean[own], sd[own]), 0
        apart += _bound(ALONE.format(kernel=kernel), *given)
    assert found == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize(
    "body",
    [
        "row w ~ Normal(0, 1)\nlatent f[g](x, w) ~ GP(0, RBF(1))\ny ~ Normal(f[task], 0.1)",
        "latent h(x, task) ~ GP(0, RBF(1, on = x) * Same(on = task))\nlatent f(h) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)",
    ],
)
def test_inducing_points_are_shared_out_among_levels(body: str) -> None:
    rng = np.random.default_rng(0)
    head = 'index g in {"a", "b", "c"}\ninput x : real\ninput task : label[g]\noutput y : real\n'
    data = {"x": rng.uniform(-1, 1, 30), "task": ["a"] * 20 + ["b"] * 9 + ["c"], "y": np.zeros(30)}
    program, bound, _ = prepare(gpdsl.compile(f"{head}{body}\n"), data, {}, {})
    points = start_layers(program, make_rows(program, bound), [10] * len(program.groups), 1e-8, 0, bound)[0]
    place = next(p for p, group in enumerate(program.groups) if "task" in group.inputs)
    levels, counts = np.unique(points[place].points[:, -1], return_counts=True)
    assert levels.tolist() == [1.0, 2.0, 3.0] and counts[0] == 7 and counts[1] == 3 and counts[2] == 1


@pytest.mark.slow
def test_functions_of_a_layer_that_a_label_chooses() -> None:
    """Levels of a few rows learn from no other's; predictions are those of a fit to one level alone."""
    rng = np.random.default_rng(0)
    head, tail = "input x : real\noutput y : real\nlatent h(x) ~ GP(x, 0.0001 * RBF(1))\n", "~ GP(0, RBF(1))\n"
    x, task = rng.uniform(-1, 1, 40), np.array(list("ab") * 20)
    y = np.sin(3 * x) * np.where(task == "a", 1, -2) + 0.1 * rng.standard_normal(40)
    levels = 'model m "M"\nindex g in {"a", "b"}\ninput task : label[g]\n'
    text = f"{levels}{head}latent f[g](h) {tail}y ~ Normal(f[task], 0.1)\n"
    both = gpdsl.compile(text).fit({"x": x, "task": task, "y": y}, inducing=20, steps=200, progress=False)
    last = next(z.points for z in both.inducing if z.points.shape[1] == 2)
    assert set(last[:, 1]) == {1.0, 2.0}
    alone = gpdsl.compile(f'model m "M"\n{head}latent f(h) {tail}y ~ Normal(f, 0.1)\n')
    new = np.linspace(-0.9, 0.9, 7)
    for level in "ab":
        own = task == level
        one = alone.fit({"x": x[own], "y": y[own]}, inducing=10, steps=200, progress=False)
        found = both.predict({"x": new, "task": [level] * 7}).mean("f")
        np.testing.assert_allclose(found, one.predict({"x": new}).mean("f"), atol=0.05)
