"""Kernels registered from Python: known by name in models, refused when they are none, held by saved fits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.language import used as registered
from gpdsl.testing import check_kernel

DAMPED = "kernel damped(r; ell, w) = exp(-r/ell) * cos(w*r)"
MODEL = """input x : real
output y : real
param ell : positive = 2
latent f(x) ~ GP(0, damped(w = 0.7))
y ~ Normal(f, 0.1)
"""


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_DEFINITIONS", {})


def test_a_registered_kernel_is_the_same_as_one_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0, 4, 12)
    data = {"x": x, "y": np.sin(2 * x)}
    own = gpdsl.compile(f"{DAMPED}\n{MODEL}").fit(data, steps=3)
    gpdsl.register_kernel("damped", DAMPED, parameters={"w": "real = 0.7"})
    assert str(gpdsl.compile(MODEL).warnings()) == ""
    fit = gpdsl.compile(MODEL).fit(data, steps=3)
    assert fit.elbo == own.elbo
    fit.save(tmp_path / "a.gpfit")
    monkeypatch.setattr(registered, "_DEFINITIONS", {})
    loaded = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert np.array_equal(loaded.predict(data).mean("f"), fit.predict(data).mean("f"))
    with pytest.raises(gpdsl.ModelError, match="unknown kernel `damped`"):
        gpdsl.compile(MODEL)


def test_a_second_registration_replaces_the_first_and_a_file_has_its_own() -> None:
    for k in (1, 2):
        gpdsl.register_kernel("damped", f"kernel damped(r; ell, w) = exp(-{k}*r/ell) * cos(w*r)")
    model = gpdsl.compile(MODEL)
    assert "exp(-2*r/ell)" in model.declarations.source.text
    mine = gpdsl.compile(f"kernel damped(r; ell, w) = exp(-w*r/ell)\n{MODEL}")
    assert mine.declarations.source.parts == ()


def test_the_checks_of_a_kernel_hold() -> None:
    gpdsl.register_kernel("damped", DAMPED, parameters={"w": "real = 0.7"})
    check_kernel("damped")
    gpdsl.register_kernel("bilinear", "kernel bilinear(a, b; s) = 1 + s * a[1] * b[1] + a[2] * b[2]")
    check_kernel("bilinear")
    with pytest.raises(gpdsl.GpdslError, match="no kernel gone is registered; there are: damped, bilinear"):
        check_kernel("gone")


ARC = "2 * asin(sqrt(1e-12 + sin((a[2] - b[2])/2)^2 + cos(a[2]) * cos(b[2]) * sin((a[1] - b[1])/2)^2))"


def test_kernels_of_several_columns_are_tried_in_as_many() -> None:
    """Distances on a sphere of longitude and latitude: `a[2]` was refused, as points were one number."""
    gpdsl.register_kernel("arc", f"kernel arc(a, b; ell) = exp(-{ARC}/ell)")
    with pytest.raises(gpdsl.GpdslError, match="not a covariance: .* in 2 columns"):
        gpdsl.register_kernel("bell", f"kernel bell(a, b; ell) = exp(-({ARC})^2 / (2*ell^2))")
    scaled = "kernel scaled(a, b; ell) = exp(-norm((a - b) / ell)^2 / 2)"
    gpdsl.register_kernel("scaled", scaled, parameters={"ell": "positive[3] = 1"})


BAD = {
    "RBF": ("kernel RBF(r) = exp(-r^2)", "name of a kernel of the language; choose another"),
    "a b": ("kernel a(r) = exp(-r^2)", "expected a name of letters"),
    "let": ("kernel let(r) = exp(-r^2)", "expected a name of letters"),
    "k": ("kernel worse(r) = exp(-r^2)", r"expected one definition, `kernel k\(r; ell\) = ...`"),
    "k1": ("kernel k1(r) = 1\nparam a : real", "expected one definition"),
    "k2": ("kernel k2(r) = exp(-r^2", r"(?s)<kernel k2>:1:19: error\[E105\].*add the missing"),
    "k3": ("kernel k3(r; ell) = 1 + r/ell", "not a covariance: it has eigenvalues from .*check the signs"),
    "k4": ("kernel k4(a, b) = a + b^2", r"(?s)error\[E540\].*not symmetric"),
    "k5": ("kernel k5(r; q) = exp(-(r^q))", "bound them, as in"),
    "k6": ("kernel k6(r; q) = 1/(q*r)", r"(?s)error\[E541\]"),
    "k8": ("kernel k8[d, e](r; w) = w[d] * w[e] * exp(-r)", "compares values of an index.*by `use`"),
    "k7": ("kernel k7(r) = exp(-scale*r)", "unknown name `scale`"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_kernel_is_refused(name: str) -> None:
    definition, told = BAD[name]
    with pytest.raises(gpdsl.GpdslError, match=told):
        gpdsl.register_kernel(name, definition)
    assert registered._DEFINITIONS == {}


def test_parameters_are_those_of_the_definition() -> None:
    with pytest.raises(gpdsl.GpdslError, match="no parameter q; it has ell, w"):
        gpdsl.register_kernel("damped", DAMPED, parameters={"q": "real"})
    with pytest.raises(gpdsl.GpdslError, match="did you mean `positive`"):
        gpdsl.register_kernel("damped", DAMPED, parameters={"w": "positve"})
    gpdsl.register_kernel("k", "kernel k(r; q) = exp(-(r^q))", parameters={"q": "real(lower = 0, upper = 2) = 1"})
