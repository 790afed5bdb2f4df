"""What engines, distributions, kernels and features have to hold, as one call: `gpdsl.testing.check_engine("mine")`.

gpdsl's own are put through it too. What fails is said by an AssertionError.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import gpdsl
from gpdsl.distributions import ways, wrong
from gpdsl.inference.inducing.featured import kernels_of
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Values
from gpdsl.language.vocabulary import KERNELS
from gpdsl.program.cache import jit, precision
from gpdsl.program.tracing import prepared, trial_of
from gpdsl.results.fit import Fit
from gpdsl.symbolic.kernel_formula import formula_of
from gpdsl.symbolic.kernel_values import matrix, numbers_near
from gpdsl.symbolic.translate import Translator

_LATENT = """
input x : real
output y : {kind}
param s2 : positive = 1 ~ LogNormal(0, 1)
param ell : positive = 1 ~ LogNormal(0, 1)
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ {likelihood}
"""
_NOISE = "0.3"
_TWO = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
latent g(x) ~ GP(0, 0.5 * RBF(0.7))
y ~ Normal(f + g, 0.3)
"""
KINKED = _LATENT.format(kind="real", likelihood="Laplace(f, 0.3)")
KINK_NATS = 5.0
"""How far a value may be from the bound where the likelihood has kinks."""
REGRESSION = _LATENT.format(kind="real", likelihood=f"Normal(f, {_NOISE})")
COUNTS = _LATENT.format(kind="count", likelihood="Poisson(exp(f))")
_PLAIN: dict[str, Any] = {"diagnose": "no"}
"""For fits of which only numbers are compared."""
CLASSES = _LATENT.format(kind="binary", likelihood="Bernoulli(logit = f)")


def check_engine(name: str, *, exact: bool = True, rows: int = 16, seed: int = 0) -> None:
    """Put an engine through what all engines hold. Raises AssertionError for the first thing that does not.

    `exact`: where observations are Normal about the latents, its posterior is the true one and its value the log
    evidence, to 1e-4 (with dense inference beside it as the reference).
    """
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-2, 2, rows))
    f = np.sin(2 * x)
    data: dict[str, dict[str, Any]] = {
        REGRESSION: {"x": x, "y": np.where(np.arange(rows) == 3, np.nan, f + 0.3 * rng.normal(size=rows))},
        _TWO: {"x": x, "y": f + 0.3 * rng.normal(size=rows)},
        COUNTS: {"x": x, "y": rng.poisson(np.exp(f))},
        CLASSES: {"x": x, "y": (f + 0.5 * rng.normal(size=rows) > 0).astype(int)},
    }
    new = {"x": np.linspace(-2.5, 2.5, 7)}
    try:
        fits = {text: gpdsl.compile(text).fit(known, engine=name, seed=seed) for text, known in data.items()}
        for text, fit in fits.items():
            _sound(fit, new, f"engine {name}, {text.strip().splitlines()[-1]}")
        if exact:
            for text in (REGRESSION, _TWO):
                _as_dense(name, text, data[text], new)
        _lasting(name, fits[COUNTS], data[COUNTS], new, seed)
    except gpdsl.GpdslError as error:
        raise AssertionError(str(error)) from error
    _honest(name, {"x": x, "y": f + 0.3 * rng.laplace(size=rows)}, seed)


def check_distribution(name: str, example: Mapping[str, float] | None = None) -> None:
    """Put a distribution of one number through what all hold, at these arguments or at some.

    Its density integrates to one, and its mean, variance, distribution function, quantiles and draws agree with it.
    Raises AssertionError for the first thing that does not, GpdslError for a name that is no such distribution.
    """
    for arguments in ways(name, example):
        said = wrong(name, arguments)
        _need(not said, f"{name}: {said}")


def _need(held: bool, what: str) -> None:
    if not held:
        raise AssertionError(what)


def _moments(fit: Fit, new: dict[str, Any]) -> np.ndarray:
    prediction = fit.predict(new)
    return np.stack([prediction.mean("y"), prediction.variance("y"), prediction.mean("f"), prediction.variance("f")])


def _sound(fit: Fit, new: dict[str, Any], where: str) -> None:
    """Finite numbers, parameters inside their constraints, steps that were reported, a message."""
    _need(bool(np.isfinite(fit.elbo)), f"{where}: the value {fit.elbo} is not finite")
    _need(fit.message != "" and not fit.interrupted, f"{where}: the end of the search is not said")
    _need(len(fit.history) > 0, f"{where}: no step was reported to the monitor")
    _need(all(np.all(np.asarray(v) > 0) for v in fit.parameters.values()), f"{where}: a positive parameter is not")
    moments = _moments(fit, new)
    _need(bool(np.all(np.isfinite(moments))), f"{where}: predictions are not finite")
    _need(bool(np.all(moments[[1, 3]] > 0)), f"{where}: a variance is not positive")


def _as_dense(name: str, text: str, data: dict[str, Any], new: dict[str, Any]) -> None:
    """The posterior of Normal observations, at parameters that are held, is that of dense linear algebra."""
    fixed = ["s2", "ell"] if "param" in text else None
    mine, exact = (gpdsl.compile(text).fit(data, engine=engine, fixed=fixed, **_PLAIN) for engine in (name, "vi"))
    gap = abs(mine.elbo - exact.elbo)
    _need(gap < 1e-4, f"engine {name}: the value is {gap:.2g} from the log evidence of Normal observations")
    off = float(np.max(np.abs(_moments(mine, new) - _moments(exact, new))))
    _need(off < 1e-4, f"engine {name}: means and variances are {off:.2g} from the exact ones")


def _honest(name: str, data: dict[str, Any], seed: int) -> None:
    """Where the likelihood has kinks at every row, an error, or a value near the bound of variational inference."""
    model = gpdsl.compile(KINKED)
    asked: dict[str, Any] = {"fixed": ["s2", "ell"], "seed": seed, **_PLAIN}
    bound = model.fit(data, **asked).elbo
    try:
        value = model.fit(data, engine=name, **asked).elbo
    except gpdsl.GpdslError:
        return
    _need(abs(value - bound) < KINK_NATS, f"engine {name}: at kinks the value is {value:.1f}, the bound {bound:.1f}")


def _lasting(name: str, fit: Fit, data: dict[str, Any], new: dict[str, Any], seed: int) -> None:
    """The same twice, saved and loaded, stopped at the first step, and from where another fit ended."""
    model = gpdsl.compile(COUNTS)
    asked: dict[str, Any] = {"engine": name, "seed": seed, **_PLAIN}
    again = model.fit(data, **asked)
    same = np.array_equal(_moments(fit, new), _moments(again, new))
    _need(same, f"engine {name}: two fits of the same seed differ")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.gpfit"
        fit.save(path)
        loaded = gpdsl.load_fit(path)
    _need(np.array_equal(_moments(loaded, new), _moments(fit, new)), f"engine {name}: a loaded fit predicts otherwise")

    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    cut = model.fit(data, callback=stop, **asked)
    _need(cut.interrupted, f"engine {name}: an interrupt between two steps did not end the fit")
    _need(bool(np.all(np.isfinite(_moments(cut, new)))), f"engine {name}: an interrupted fit does not predict")
    more = model.fit(data, start=fit, **asked)
    _need(more.elbo >= fit.elbo - 1e-6, f"engine {name}: from where a fit ended, another one ends lower")


def check_kernel(name: str, *, seed: int = 0) -> None:
    """Put a registered kernel through what all kernels hold. Raises AssertionError for the first thing that does not.

    Its matrices are those of the formula, computed plainly, symmetric and without negative eigenvalues; a fit is
    finite, and predicts the same when it is saved and loaded.
    """
    model, where = gpdsl.compile(trial_of(name)), f"kernel {name}"
    (latent,) = model.declarations.latents.values()
    translator = Translator(model.declarations, {})
    columns = math.prod(translator.shape(model.declarations.inputs["_input"].axes))
    formula, arguments = formula_of(latent.kernel, translator, columns)  # type: ignore[arg-type]
    points = np.sort(np.random.default_rng(seed).uniform(-2, 2, (16, columns)), axis=0)
    plain = matrix(formula, numbers_near(translator, formula, arguments, None), points, points)
    with precision("float64"):
        kernel, values = prepared(model.declarations)
        K = np.asarray(jit(lambda given, at: covariance(kernel.form, given, Values(at)))(values, points))
    largest = float(np.max(np.abs(plain)))
    _need(bool(np.allclose(K, plain, rtol=0, atol=1e-6 * largest)), f"{where}: its matrix is not its formula's")
    _need(bool(np.allclose(K, K.T, rtol=0, atol=1e-12 * largest)), f"{where}: its matrix is not symmetric")
    _need(float(np.linalg.eigvalsh(K)[0]) > -1e-9 * len(points) * largest, f"{where}: it is not positive definite")
    shape = (-1, columns) if columns > 1 else (-1,)
    fit = model.fit({"_input": points.reshape(shape), "_output": np.sin(2 * points[:, 0])}, seed=seed, steps=30)
    new = {"_input": np.repeat(np.linspace(-2.5, 2.5, 7), columns).reshape(shape)}
    before = fit.predict(new).mean("_output")
    _need(bool(np.isfinite(fit.elbo) and np.all(np.isfinite(before))), f"{where}: a fit is not finite")
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "fit.gpfit")
        after = gpdsl.load_fit(Path(folder) / "fit.gpfit").predict(new).mean("_output")
    _need(bool(np.array_equal(before, after)), f"{where}: a loaded fit predicts otherwise")


_FEATURED = """
index column in 1..{columns}
input x : real[column]
output y : {kind}
{declared}latent f(x) ~ GP(0, 1.3 * {kernel}({arguments}))
y ~ {likelihood}
"""


def check_inducing(name: str, *, count: int = 8, seed: int = 0) -> None:
    """Put inducing features through what all hold. Raises AssertionError for the first thing that does not.

    With every kernel that they are known of, at given parameters: the bound of `count` features is at most the exact
    evidence, four times as many lose less of it, a fit that learns is finite, and predicts the same when it is saved
    and loaded.
    """
    kernels, columns = kernels_of(name)
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (20, columns))
    y = np.sin(3 * x).sum(axis=1) + 0.3 * rng.standard_normal(20)
    for kernel in kernels:
        where, names = f"inducing features {name} of {kernel}", [each.name for each in KERNELS[kernel].parameters]
        words = {
            "columns": columns,
            "kernel": kernel,
            "declared": "".join(f"param {each} : positive = 0.8\n" for each in names),
            "arguments": ", ".join(f"{each} = {each}" for each in names),
        }
        model = gpdsl.compile(_FEATURED.format(kind="real", likelihood="Normal(f, 0.3)", **words))
        data: dict[str, Any] = {"x": x, "y": y}
        asked: dict[str, Any] = {"fixed": names, "seed": seed, **_PLAIN}
        evidence = model.fit(data, **asked).elbo
        few, many = (model.fit(data, inducing=f"{name}({m})", **asked).elbo for m in (count, 4 * count))
        _need(few <= evidence + 1e-6, f"{where}: the bound {few:.6f} is above the evidence {evidence:.6f}")
        _need(many <= evidence + 1e-6, f"{where}: the bound {many:.6f} is above the evidence {evidence:.6f}")
        _need(many >= few - 1e-6, f"{where}: {4 * count} lose more than {count}, {evidence - many:.6f} nats")
        counts = gpdsl.compile(_FEATURED.format(kind="count", likelihood="Poisson(exp(f))", **words))
        fit = counts.fit({"x": x, "y": rng.poisson(np.exp(y))}, inducing=f"{name}({count})", seed=seed, steps=20)
        new = {"x": rng.uniform(-1.5, 1.5, (7, columns))}
        _need(bool(np.isfinite(fit.elbo) and np.all(np.isfinite(_moments(fit, new)))), f"{where}: a fit is not finite")
        with tempfile.TemporaryDirectory() as folder:
            fit.save(Path(folder) / "fit.gpfit")
            loaded = gpdsl.load_fit(Path(folder) / "fit.gpfit")
        same = np.array_equal(_moments(loaded, new), _moments(fit, new))
        _need(same, f"{where}: a loaded fit predicts otherwise")
