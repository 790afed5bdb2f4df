"""Every program that a fit and its predictions compile has a lowering for NVIDIA's GPUs, found without one.

What is exported is what a GPU would be given: the programs as they are written where JAX's backend is no CPU. A
host callback, an operation that only the CPU has, or an option of its compiler would show here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.export
import jax.scipy.linalg
import numpy as np
import pytest

import gpdsl
from gpdsl.program import cache as compilation, kept

LATENT = """
input x : real
output y : {kind}
param s2 : positive = 1
param ell : positive = 1
{parameters}
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ {likelihood}
"""
NORMAL = LATENT.format(kind="real", parameters="param sigma : positive = 0.3", likelihood="Normal(f, sigma)")
STUDENT = LATENT.format(kind="real", parameters="param sigma : positive = 0.3", likelihood="StudentT(4, f, sigma)")
BINARY = LATENT.format(kind="binary", parameters="", likelihood="Bernoulli(logit = f)")
COUNTS = LATENT.format(kind="count", parameters="", likelihood="Poisson(exp(f))")
CLASSES = """
index c in 1..3
input x : real
output y : label[c]
param ell : positive = 1
latent f[c](x) ~ GP(0, RBF(ell))
y ~ Categorical(logits = f)
"""
SIMULATED = """
input x : real
output y : real
param sigma : positive = 0.3
external bend(f: real) -> real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(bend(f), sigma)
"""
NOISY = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(-1, RBF(2))
y ~ Normal(f, exp(g))
"""
PRODUCT = """
input x : real
output y : real
param sigma : positive = 0.3
latent f(x) ~ GP(1, RBF(1))
latent g(x) ~ GP(0, Matern32(1))
y ~ Normal(f * g, sigma)
"""
FIELD = """
index g in 1..G
input x : real
output y : real
param sigma : positive = 0.3
const node[g] = lattice(-2, 2, 9)
latent f(node) ~ GP(0, RBF(1))
y ~ Normal(sum(g, exp(-(x - node[g])^2) * f[g]), sigma)
"""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": (NORMAL, {}),
    "natural, dense": (BINARY, {}),
    "natural, inducing points": (COUNTS, {"inducing": 6}),
    "natural, two latents": (NOISY, {}),
    "natural, minibatches": (STUDENT, {"inducing": 6, "batch": 10, "steps": 10}),
    "natural, sampled": (CLASSES, {"expectations": "sampled"}),
    "coupled": (PRODUCT, {"posterior": "coupled"}),
    "alternating": (NORMAL, {"inducing": 6, "schedule": "alternating", "steps": 5}),
    "lbfgs": (COUNTS, {"inducing": 6, "optimizer": "lbfgs", "steps": 10}),
    "adam, mixture": (COUNTS, {"inducing": 6, "optimizer": "adam", "posterior": "mixture(2)", "steps": 20}),
    "learnt inducing points": (NORMAL, {"inducing": 6, "learn_inducing": True, "steps": 10}),
    "single precision": (COUNTS, {"inducing": 6, "dtype": "float32"}),
    "expectation propagation": (BINARY, {"engine": "ep", "inducing": 6}),
    "expectation propagation, minibatches": (BINARY, {"engine": "ep", "inducing": 6, "batch": 10, "steps": 10}),
    "random features": (NORMAL, {"engine": "qsgp", "steps": 20}),
    "random features, minibatches": (BINARY, {"engine": "qsgp", "batch": 10, "steps": 20}),
    "opaque": (SIMULATED, {"steps": 3}),
    "field": (FIELD, {}),
}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the functions compiled so far, each exported for CUDA when it was."""
    names: list[str] = []

    def jit(function: Callable[..., Any], **options: Any) -> Any:
        compiled, seen = jax.jit(function, **options), set()

        def export(arguments: tuple[Any, ...]) -> None:
            key = str(jax.tree.map(np.shape, arguments))
            if key not in seen:
                seen.add(key)
                jax.export.export(jax.jit(function), platforms=["cuda"])(*arguments)
                names.append(getattr(function, "__qualname__", repr(function)))

        def call(*arguments: Any) -> Any:
            export(arguments)
            return compiled(*arguments)

        def lower(*arguments: Any) -> Any:
            export(arguments)
            return compiled.lower(*arguments)

        call.lower = lower  # type: ignore[attr-defined]
        return call

    here = SimpleNamespace(**{**vars(jax), "jit": jit, "default_backend": lambda: "cpu"})  # compiled here all the same
    compilation._cpu_options()
    monkeypatch.setattr(compilation, "jax", here)
    monkeypatch.setattr(kept, "_programs", OrderedDict())  # those of another test would be used again
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield names


def test_what_gpus_lack_is_noticed(exported: list[str]) -> None:
    with pytest.raises(NotImplementedError):
        compilation.jit(jax.scipy.linalg.schur)(np.eye(2))
    with pytest.raises(ValueError):  # a function of the host cannot be moved
        compilation.jit(lambda x: jax.pure_callback(np.sin, x, x))(np.eye(2))


@pytest.mark.parametrize(
    "name", [name if name == "exact" else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_programs_have_a_lowering_for_gpus(name: str, exported: list[str], rng: np.random.Generator) -> None:
    text, options = CASES[name]
    x = np.sort(rng.uniform(-3, 3, 30))
    f = np.sin(x)
    model = gpdsl.compile(text, externals={"bend": lambda f: f + 0.1 * f**2} if text == SIMULATED else None)
    kind = next(iter(model.declarations.outputs.values())).kind
    drawn = {"real": f + 0.2 * rng.normal(size=30), "binary": (f > 0) * 1.0, "count": rng.poisson(np.exp(f)) * 1.0}
    data = {"x": x, "y": drawn.get(kind, np.digitize(f, [-0.5, 0.5]) + 1)}
    fit = model.fit(data, **options)
    searched = len(exported)
    assert searched > 0 and np.isfinite(fit.elbo)
    prediction = fit.predict({"x": np.linspace(-3, 3, 3000)})  # of few rows no program is made
    assert np.isfinite(np.asarray(prediction.mean("f"), float)).all()
    assert len(exported) > searched
