"""Small fits of every engine in a process in which every annotated shape is checked: `python -m tests.shaped_fits`.

jaxtyping's import hook binds the names of axes across the arguments and the result of each function; only what is
annotated as an array is looked at. What is wrong is said at the end.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from jaxtyping import AbstractArray, install_import_hook

ROOMS = ("kernels", "lowering", "program", "inference", "results")
found: dict[str, str] = {}
"""What is wrong, by function and argument."""


def _kinds(hint: Any) -> list[Any]:
    return list(typing.get_args(hint)) if typing.get_origin(hint) in (typing.Union, types.UnionType) else [hint]


def _is_array(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, AbstractArray)


def _fits(value: Any, hint: Any) -> bool:
    plain = [(int, float) if kind is float else kind for kind in _kinds(hint)]
    known = [kind for kind in plain if isinstance(kind, (type, tuple))]
    return len(known) < len(plain) or isinstance(value, tuple(known) if len(known) > 1 else known[0])


def checked(function: Any) -> Any:
    """The function, its shapes looked at; not constructors: transformations rebuild pytrees of other things."""
    if isinstance(function, type) or function.__name__ == "__init__":
        return function
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        try:
            every = typing.get_type_hints(function)
        except NameError:  # of names that are imported for type checkers alone
            return {}
        return {name: hint for name, hint in every.items() if any(map(_is_array, _kinds(hint)))}

    def look(name: str, value: Any) -> None:
        if not _fits(value, hints()[name]):
            what = f"{type(value).__name__} {getattr(value, 'dtype', '')}{list(getattr(value, 'shape', ()))}"
            place = f"{function.__module__}.{function.__qualname__}: {name}"
            if "check_" not in place:
                found[place] = f"annotated {hints()[name]}, got {what}"

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        if not hints():
            return function(*arguments, **named)
        for name, value in signature.bind(*arguments, **named).arguments.items():
            several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for each in (value if several else (value,)) if name in hints() else ():
                look(name, each)
        result = function(*arguments, **named)
        if "return" in hints():
            look("return", result)
        return result

    return run


HEAD = """
input x : real[D]
output y : {kind}
param s2 : positive = 1
param ell : positive[D] = 1
param s : positive = 0.3
latent f(x) ~ GP(0, s2 * {kernel}(ell))
"""
CLASSES = """
index c in 1..3
input x : real[D]
output y : label[c]
param s2 : positive = 1
latent f[c](x) ~ GP(0, s2 * RBF(1))
y ~ Categorical(logits = f)
"""
NETWORK = """
index p in 1..2
input x : real[D]
output y[p] : real
param s : positive = 0.3
latent w[p](x) ~ GP(0, RBF(2))
latent g(x) ~ GP(0, Matern52(1))
y[p] ~ Normal(w[p] * g, s)
"""
OPAQUE = """
input x : real[D]
output y : real
param s : positive = 0.3
latent f(x) ~ GP(0, RBF(1))
external h(a: real) -> real
y ~ Normal(h(f), s)
"""


def _fits_to_make() -> Iterator[Callable[[], Any]]:
    import numpy as np

    import gpdsl

    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 2))
    smooth = np.sin(x[:, 0]) + 0.1 * rng.normal(size=24)
    real, binary = {"x": x, "y": smooth}, {"x": x, "y": rng.integers(0, 2, 24)}
    counts, labels = {"x": x, "y": rng.poisson(2.0, 24)}, {"x": x, "y": rng.integers(1, 4, 24)}

    def fit(text: str, data: dict[str, Any], kind: str = "real", kernel: str = "RBF", **options: Any) -> Any:
        def made() -> None:
            whole = text if "input" in text else HEAD.format(kind=kind, kernel=kernel) + text
            externals = {"h": np.tanh} if "external" in whole else None
            done = gpdsl.compile(whole, externals=externals).fit(data, **options)
            prediction = done.predict(data)
            prediction.mean("y"), prediction.variance("y"), done.log_predictive_density(data)
            if kind != "label":
                prediction.quantile("y", [0.1, 0.9])
            str(done.summary())

        return made

    normal, heavy, rate = "y ~ Normal(f, s)", "y ~ StudentT(4, f, s)", "y ~ Poisson(exp(f))"
    yield fit(normal, real)
    yield fit(normal, real, kernel="Matern32", inducing=7)
    yield fit("log(y) ~ Normal(f, s)", {"x": x, "y": np.exp(smooth)}, "positive")
    yield fit(heavy, real)
    yield fit(heavy, real, inducing=7, posterior="mixture(2)", steps=5)
    yield fit(heavy, real, inducing=7, optimizer="adam", learn_inducing=True, steps=5)
    yield fit(heavy, real, inducing=7, batch=8, steps=9)
    yield fit(heavy, real, engine="ep")
    yield fit(heavy, real, engine="ep", inducing=6, batch=8, steps=9)
    yield fit(rate, counts, "count", expectations="sampled", samples=8)
    yield fit(rate, counts, "count", inducing=6, schedule="alternating", steps=2)
    yield fit("y ~ Bernoulli(logit = f)", binary, "binary", optimizer="lbfgs", posterior="diagonal", steps=5)
    yield fit(normal, real, engine="qsgp", features=50, steps=3)
    yield fit(normal, real, engine="qsgp", features=50, steps=3, chevron=4, feature_sums="sampled")
    yield fit(normal, real, engine="qsgp", basis="inducing", features=9, steps=3, fixed=["s2", "ell", "s"])
    yield fit(CLASSES, labels, "label")
    yield fit(CLASSES, labels, "label", posterior="coupled", steps=3)
    yield fit(NETWORK, {"x": x, "y": np.stack([smooth, -smooth], axis=1)}, steps=5)
    yield fit(OPAQUE, real, steps=3)


def main() -> None:
    """Make all of them, and end with what is wrong."""
    install_import_hook([f"gpdsl.{room}" for room in ROOMS], "tests.shaped_fits.checked")
    for made in _fits_to_make():
        made()
    raise SystemExit("\n".join(f"{place} {what}" for place, what in found.items()) or 0)


if __name__ == "__main__":
    import tests.shaped_fits  # the module whose `checked` the hook calls, and not a second one

    tests.shaped_fits.main()
