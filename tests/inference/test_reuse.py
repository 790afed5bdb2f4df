"""Programs that fits of one process share: found again where everything is the same but numbers, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.program import kept

REGRESSION = """
input x : real[D]
output y : real
param s2 : positive = 1
param ell : positive[D] = 2
param sigma : positive = 0.3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""
SPARSE = REGRESSION.replace("Normal(f, sigma)", "StudentT(4, f, sigma)")
CLASSES = """
index c in 1..3
input x : real[D]
output y : label[c]
param s2 : positive = 1
param ell : positive = 1
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
"""


def rows(rng: np.random.Generator, model: str, count: int = 25) -> dict[str, np.ndarray]:
    x = rng.normal(size=(count, 2))
    y = np.sin(x[:, 0]) + 0.2 * rng.normal(size=count)
    return {"x": x, "y": np.digitize(y, [-0.4, 0.4]) + 1 if "label" in model else y}


def programs_compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that `reused` compiles from now on, with nothing kept from before."""
    compiled: list[Any] = []
    kept._programs.clear()
    original = kept.reused

    def counted(key: Any, make: Any) -> Any:
        return original(key, lambda: (compiled.append(key), make())[1])

    monkeypatch.setattr("gpdsl.inference.problem.reused", counted)
    return compiled


LEVEL = REGRESSION.replace("GP(0,", "GP(m,") + "param m : real\n"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": (REGRESSION, {}),
    "exact with a hole": (REGRESSION, {}),
    "exact with a level": (LEVEL, {}),
    "exact with a level in other units": (LEVEL, {}),
    "sites between programs": (CLASSES, {"posterior": "full"}),
    "sites in one program": (SPARSE, {"inducing": 8, "steps": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fit_of_other_rows_is_the_same_as_in_a_process_of_its_own(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, options = CASES[name]
    first, second = rows(rng, model), rows(rng, model)
    if "hole" in name:
        first["y"][3] = second["y"][7] = np.nan
    if "units" in name:
        second["y"] *= 1e3
    compiled = programs_compiled(monkeypatch)
    alone = gpdsl.compile(model).fit(second, **options)
    fresh = len(compiled)
    assert fresh > 1
    kept._programs.clear()
    gpdsl.compile(model).fit(first, **options)
    compiled.clear()
    after = gpdsl.compile(model).fit(second, **options)
    # which values are missing is a constant of the programs of exact inference, and so are the units of levels
    assert len(compiled) == (fresh if "hole" in name or "units" in name else 0)
    assert after.elbo == alone.elbo
    for parameter, value in alone.parameters.items():
        np.testing.assert_array_equal(after.parameters[parameter], value)


APART: list[tuple[str, dict[str, Any]]] = [
    (REGRESSION, {"init": {"sigma": 0.7}, "fixed": ["sigma"]}),
    (REGRESSION, {"init": {"sigma": 0.9}, "fixed": ["sigma"]}),
    (REGRESSION.replace("RBF", "Matern52"), {}),
    (REGRESSION.replace("GP(0,", "GP(0.5,"), {}),
    (REGRESSION.replace("sigma : positive = 0.3", "sigma : positive = 0.3 ~ Gamma(2, 9)"), {}),
    (REGRESSION.replace("y ~ Normal(f, sigma)", "2 * y ~ Normal(f, sigma)"), {}),
]


def test_what_is_no_argument_tells_programs_apart(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """From those of two other fits, and of all cases before."""
    data, alone = rows(rng, REGRESSION), []
    for text, options in APART:
        kept._programs.clear()
        alone.append(gpdsl.compile(text).fit(data, **options).elbo)
    compiled = programs_compiled(monkeypatch)
    gpdsl.compile(REGRESSION).fit(data)
    gpdsl.compile(REGRESSION).fit(data, init={"sigma": 0.8}, fixed=["sigma"])
    for (text, options), elbo in zip(APART, alone, strict=True):
        compiled.clear()
        assert gpdsl.compile(text).fit(data, **options).elbo == elbo
        assert compiled


def test_programs_are_made_without_data(rng: np.random.Generator) -> None:
    """What a shared program is made from has no rows in it: reading any would be an error."""
    from tests.inference.problems import problem_of

    problem = problem_of(gpdsl.compile(REGRESSION), rows(rng, REGRESSION))

    def reads_rows(bare: Any, _: Any, at: Any) -> Any:
        return bare.rows.inputs["x"].sum() + at

    with pytest.raises(AttributeError):
        problem.shared(reads_rows, 1.0)


def test_few_programs_are_kept() -> None:
    kept._programs.clear()
    for number in range(kept.KEPT + 5):
        kept.reused(number, lambda: print)
    assert list(kept._programs) == list(range(5, kept.KEPT + 5))
    kept.reused(5, lambda: print)
    kept.reused("new", lambda: print)
    assert 5 in kept._programs and 6 not in kept._programs
    kept._programs.clear()


@pytest.mark.parametrize("value", [object(), lambda x: x, iter(())])
def test_what_cannot_be_compared_is_shared_by_nobody(value: Any) -> None:
    with pytest.raises(kept.Unique):
        kept.identity({"a": [value]})


def test_identities_tell_values_apart() -> None:
    values: list[Any] = [
        0,
        0.0,
        False,
        "0",
        b"0",
        None,
        (0,),
        [0],
        {"a": 0},
        np.zeros(1),
        np.zeros(2),
        np.zeros((1, 1)),
    ]
    values += [np.zeros(1, "float32"), np.ones(1), np.float64(0.0), {"b": 0}, {1}, print, np.sum]
    identities = [kept.identity(value) for value in values]
    assert len(set(identities)) == len(identities)
    assert kept.identity(np.arange(3.0)) == kept.identity(np.arange(3.0))
