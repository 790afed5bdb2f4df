"""Inducing features registered from Python: averages over intervals against quadrature, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import gpdsl
from gpdsl.inference.inducing import featured
from gpdsl.kernels import interdomain
from gpdsl.language import inducing
from gpdsl.program.kept import forget
from gpdsl.testing import check_inducing

MODEL = """
input x : real
output y : real
param s2 : positive = 1.4
param ell : positive = 0.9
latent f(x) ~ GP(0, s2 * {kernel}(ell))
y ~ Normal(f, 0.3)
infer vi: inducing f = bins(12, over = [0, 4])
"""
X = np.linspace(0.1, 3.9, 25)
DATA = {"x": X, "y": np.sin(2 * X)}


def bins(kernel: str, parameters: Any, corners: Any, count: int) -> Any:
    """Averages over equal intervals, of exp(-r / ell)."""
    return _among(parameters["ell"], corners, count), lambda points: _at(points, parameters["ell"], corners, count)


def _edges(corners: Any, count: int) -> Any:
    edges = jnp.linspace(corners[0, 0], corners[1, 0], count + 1)
    return edges[:-1], edges[1:], (corners[1, 0] - corners[0, 0]) / count


@partial(jax.jit, static_argnums=2)
def _among(ell: Any, corners: Any, count: int) -> Any:
    a, b, width = _edges(corners, count)

    def twice(t: Any) -> Any:
        return ell * (jnp.abs(t) - ell * (1 - jnp.exp(-jnp.abs(t) / ell)))

    A, B = a[:, None], b[:, None]
    return (twice(b - A) - twice(a - A) - twice(b - B) + twice(a - B)) / width**2


@partial(jax.jit, static_argnums=3)
def _at(points: Any, ell: Any, corners: Any, count: int) -> Any:
    a, b, width = _edges(corners, count)

    def once(t: Any) -> Any:
        return jnp.sign(t) * ell * (1 - jnp.exp(-jnp.abs(t) / ell))

    return (once(points - a) - once(points - b)) / width


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers ends with it."""
    tables: list[dict[str, Any]] = [
        inducing._features,
        interdomain.FAMILIES,
        featured._KERNELS,
        featured._said,
    ]
    before = [dict(each) for each in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def register(**more: Any) -> None:
    gpdsl.register_inducing("bins", bins, **{"kernels": ["Matern12"], "meaning": "averages", **more})


def test_the_bound_is_that_of_averages_by_quadrature() -> None:
    """Titsias' bound with covariances of averages that scipy has integrated."""
    register()
    fit = gpdsl.compile(MODEL.format(kernel="Matern12")).fit(DATA, fixed=["s2", "ell"])
    edges = np.linspace(0, 4, 13)
    kernel = lambda a, b: 1.4 * np.exp(-np.abs(a - b) / 0.9)  # noqa: E731

    def average(of: Any, low: float, high: float, kink: float) -> float:
        cuts = [kink] if low < kink < high else None
        return integrate.quad(of, low, high, points=cuts, epsabs=1e-12)[0] / (high - low)

    pairs = list(zip(edges[:-1], edges[1:], strict=True))
    cross = np.array([[average(lambda s, x=x: kernel(s, x), a, b, x) for x in X] for a, b in pairs])
    among = np.array(
        [
            [average(lambda t, a=a, b=b: average(lambda s: kernel(s, t), a, b, t), c, d, a) for c, d in pairs]
            for a, b in pairs
        ]
    )
    Q = cross.T @ np.linalg.solve(among, cross)
    covariance = Q + 0.09 * np.eye(25)
    value = -0.5 * (
        DATA["y"] @ np.linalg.solve(covariance, DATA["y"])
        + np.linalg.slogdet(covariance)[1]
        + 25 * np.log(2 * np.pi)
        + np.sum(1.4 - np.diag(Q)) / 0.09
    )
    assert fit.elbo == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(
    "name", ["bins", pytest.param("eigen", marks=pytest.mark.slow), pytest.param("fourier", marks=pytest.mark.slow)]
)
def test_features_hold_what_all_do(name: str) -> None:
    register()
    check_inducing(name)


def test_a_check_sees_covariances_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    family = interdomain.FAMILIES["bins"]

    def doubled(*of: Any) -> Any:
        found = family(*of)
        return type(found)(1.5 * found.weights, found.among, found.functions)

    monkeypatch.setitem(interdomain.FAMILIES, "bins", doubled)
    forget()
    with pytest.raises(AssertionError, match="inducing features bins of Matern12: the bound .* is above the evidence"):
        check_inducing("bins")


def test_a_file_names_the_features_that_it_needs(tmp_path: Path) -> None:
    register()
    model = gpdsl.compile(MODEL.format(kernel="Matern12"))
    fit = model.fit(DATA, steps=3)
    fit.save(tmp_path / "a.gpfit")
    assert np.array_equal(gpdsl.load_fit(tmp_path / "a.gpfit").predict(DATA).mean("f"), fit.predict(DATA).mean("f"))
    gpdsl.register_inducing("bins", lambda k, p, c, m: bins(k, p, c, m + 1), kernels="Matern12")
    other = model.fit(DATA, steps=3)
    assert len(other.posterior[0].mean[0, 0]) == 13, "a program of the first features"
    with pytest.raises(gpdsl.GpdslError, match="and here inducing features bins of Matern12.*register those of the"):
        gpdsl.load_fit(tmp_path / "a.gpfit")
    for table in (inducing._features, interdomain.FAMILIES, featured._KERNELS, featured._said):
        del table["bins"]  # type: ignore[attr-defined]
    with pytest.raises(gpdsl.GpdslError, match="and here no `bins` is registered"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_other_kernels_are_refused_with_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(featured, "_verified", lambda *_: np.eye(2))
    register()
    assert featured.registered_features("bins(12, over = [0, 4])") == {
        "bins": "inducing features bins of Matern12, whose covariances and their squares add up to 2 and 2"
    }
    with pytest.raises(gpdsl.ModelError, match="bins features are known of Matern12, not of RBF"):
        gpdsl.compile(MODEL.format(kernel="RBF")).fit(DATA)


@pytest.mark.parametrize(
    ("name", "features", "kernels", "words"),
    [
        ("points", bins, ["Matern12"], "other than points, slopes, fourier, eigen"),
        ("a b", bins, ["Matern12"], "letters, digits and _"),
        ("own", 3, ["Matern12"], "expected a function"),
        ("own", bins, [], "kernels that it is of"),
        ("own", bins, ["Patch"], "kernels of numbers, not 'Patch'"),
        ("own", bins, ["rbf"], "kernels of numbers, not 'rbf'"),
        ("own", bins, ["RBF"], "no joint covariance with values of the process"),
        ("own", lambda *_: 1 / 0, ["Matern12"], "ended in ZeroDivisionError"),
        ("own", lambda k, p, c, m: (jnp.eye(m), lambda x: jnp.zeros((3, m))), ["Matern12"], r"gives is \(3, \d+\) for"),
        ("own", lambda k, p, c, m: (jnp.ones((m, 3)), lambda x: x), ["Matern12"], r"their matrix is \(\d+, 3\), but"),
        ("own", lambda k, p, c, m: jnp.eye(m), ["Matern12"], r"expected a matrix and a function, .*\[M, M\], and"),
        ("own", lambda k, p, c, m: (jnp.eye(m), lambda x: x * jnp.nan + jnp.zeros(m)), ["Matern12"], "is not finite"),
    ],
)
def test_what_is_no_feature_is_refused(name: str, features: Any, kernels: Any, words: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=words):
        gpdsl.register_inducing(name, features, kernels=kernels)
    assert name in inducing.OWN or name not in inducing.FEATURES
