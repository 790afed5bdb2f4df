"""What is derived from kernels: stationarity, variance, derivatives, smoothness and spectral density, by references."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from scipy import integrate, special

from gpdsl.inference.plan.explain import explain_kernels
from gpdsl.language import compile_text
from gpdsl.language.model import KernelFormula
from gpdsl.symbolic.checking import compile_checked
from gpdsl.symbolic.information import information
from gpdsl.symbolic.kernel_analysis import KernelAnalysis, analyse, of_differences
from gpdsl.symbolic.kernel_formula import DISTANCE, at_zero, formula_of
from gpdsl.symbolic.kernel_values import MOST_DERIVATIVES, matrix, numbers_near, smoothness, start_of
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.spectral import FREQUENCY, _at_frequency, numeric_spectral_density, spectral_density
from gpdsl.symbolic.translate import Translator


def text(kernel: str, definition: str = "", columns: int = 1) -> str:
    size = f"[{columns}]" if columns > 1 else ""
    return (
        f"input x : real{size}\noutput y : real\nparam ls : positive = 0.8\nparam p : positive = 1.3\n"
        f"param scales : positive[3] = 1\n{definition}\nlatent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, 1)\n"
    )


def analysis(kernel: str, definition: str = "", columns: int = 1) -> KernelAnalysis:
    declarations = compile_checked(text(kernel, definition, columns))
    return analyse(declarations.latents["f"].kernel, declarations)


def by_formula(head: str, body: str, columns: int = 1) -> KernelAnalysis:
    call = head.partition(";")[2] or ""
    return analysis(f"k({call.strip()})", f"kernel k({head}) = {body}", columns)


@pytest.mark.parametrize(
    ("head", "body", "columns", "kind", "variance", "smoothness"),
    [
        ("r; ls", "exp(-r/ls)", 1, "isotropic", "1", 0),
        ("r; ls", "p*(1 + sqrt(3)*r/ls)*exp(-sqrt(3)*r/ls)", 3, "isotropic", "p", 1),
        ("r; ls", "(1 + sqrt(5)*r/ls + 5*r^2/(3*ls^2))*exp(-sqrt(5)*r/ls)", 2, "isotropic", "1", 2),
        ("r; ls", "exp(-r^2/ls)", 2, "isotropic", "1", 3),
        ("r; ls", "exp(-2*sin(pi*r/p)^2/ls^2)", 1, "isotropic", "1", 3),
        ("r; ls", "sin(r/ls)/(r/ls)", 1, "isotropic", "1", 3),
        ("r; ls", "exp(-(r/ls)^1.5)", 1, "isotropic", "1", 0),
        ("r; ls, p", "exp(-(r/ls)^p)", 1, "isotropic", "1", None),
        ("r; ls", "if r < ls then 1 - r/ls else 0", 1, "isotropic", "1", 0),
        ("r; ls", "max(1 - r/ls, 0)^4*(4*r/ls + 1)", 3, "isotropic", "1", 1),
        ("r; ls", "max(1 - r/ls, 0)^6*(35*r^2/ls^2 + 18*r/ls + 3)/3", 3, "isotropic", "1", 2),
        ("r; p", "p", 2, "isotropic", "p", 3),
        ("a, b; ls", "exp(-abs(a - b)/ls)", 1, "isotropic", "1", 0),
        ("a, b; ls", "exp(-sum((a - b)^2)/ls)", 3, "isotropic", "1", 3),
        ("a, b; scales", "exp(-sum((a - b)^2/scales^2))", 3, "stationary", "1", None),
        ("a, b; ls", "exp(-sum(abs(a - b))/ls)", 2, "stationary", "1", None),
        ("a, b; ls", "ls*min(abs(a), abs(b))", 1, "not stationary", "ls*abs(a)", None),
        ("a, b; ls", "if a*b > 0 then min(abs(a), abs(b)) else 0", 1, "not stationary", None, None),
        ("a, b; ls", "ls + a[1]*b[1]", 2, "not stationary", "a1^2 + ls", None),
    ],
)
def test_what_a_formula_is(
    head: str, body: str, columns: int, kind: str, variance: str | None, smoothness: int | None
) -> None:
    found = by_formula(head, body, columns)
    assert (found.kind, found.smoothness) == (kind, smoothness)
    if variance is not None:
        assert found.summary()["variance"] == variance


@pytest.mark.parametrize("body", ["exp(-sum((a - b)^2/c^2))", "exp(-sum(c^2*(a - b)^2))"])
def test_a_scale_of_either_sign_leaves_a_distance(body: str) -> None:
    declarations = compile_checked(text("k(c)", f"param c : real = 0.8\nkernel k(a, b; c) = {body}", 3))
    found, _ = formula_of(declarations.latents["f"].kernel, Translator(declarations, {}), 3)
    assert found.radial and found.expression == sp.exp(-(DISTANCE**2))


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("p*RBF(ls)", "isotropic"),
        ("RBF(ls)*Matern12(p) + Constant()", "isotropic"),
        ("Linear(ls)", "not stationary"),
        ("Periodic(ls, p)", "isotropic"),
        ("White() + RBF(ls)", "stationary"),
        ("ChangePoint(RBF(ls), RBF(p), at = 0, width = 1)", "not stationary"),
        ("RBF(ls, on = exp(x))", "not stationary"),
    ],
)
def test_what_a_kernel_of_the_table_is(kernel: str, kind: str) -> None:
    assert analysis(kernel).kind == kind


SPECTRA = [
    ("exp(-r/ls)", 1),
    ("exp(-r/ls)", 3),
    ("(1 + sqrt(3)*r/ls)*exp(-sqrt(3)*r/ls)", 2),
    ("exp(-r^2/ls)", 4),
    ("exp(-r/ls)*cos(2*r)", 1),
    ("(1 + r^2/ls)^(-3)", 1),
    ("(1 + r^2/ls)^(-2)", 3),
    ("(1 + r^2/ls)^(-3.3)", 2),
    ("exp(-r^1.5/ls)", 2),
    ("max(1 - r/ls, 0)^4*(4*r/ls + 1)", 3),
    ("exp(-r/ls)/(1 + r)", 1),
]


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_the_transform_of_a_gaussian_is_one_also_at_no_frequency(columns: int) -> None:
    for w in (0.0, 1.3):
        found = _at_frequency(lambda r: np.exp(-0.5 * r**2), w, columns, 12.0)
        assert found == pytest.approx((2 * np.pi) ** (columns / 2) * np.exp(-0.5 * w**2), rel=1e-12)


@pytest.mark.parametrize(("body", "columns"), SPECTRA)
def test_spectral_density_is_the_transform(body: str, columns: int) -> None:
    """SciPy's adaptive quadrature of the Hankel transform; and the integral of S is the variance."""
    found = by_formula("r; ls", body, columns)
    numbers = {"ls": 0.6}
    values = {s: np.asarray(0.6) for s in found.profile.free_symbols if s.name == "ls"}
    radius = next(s for s in found.profile.free_symbols if s.name == "r")
    order = columns / 2 - 1

    def integrand(r: float, w: float) -> float:
        wave = np.sqrt(2 / (np.pi * w * r)) * np.cos(w * r) if columns == 1 else special.jv(order, w * r)
        return r ** (columns / 2) * wave * float(evaluate(found.profile, {**values, radius: np.asarray(r)}))

    frequencies = np.array([0.3, 1.7, 4.0])
    expected = [
        (2 * np.pi) ** (columns / 2) * w**-order * integrate.quad(integrand, 0, 60, args=(w,), limit=2000)[0]
        for w in frequencies
    ]
    np.testing.assert_allclose(found.spectral_values(frequencies, numbers), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "body", ["exp(-r/ls)", "exp(-r^2/ls)", "(1 + r^2/ls)^(-1)", "exp(-r^1.5/ls)", "max(1 - r/ls, 0)"]
)
def test_spectral_density_at_zero_is_the_integral(body: str) -> None:
    found = by_formula("r; ls", body)
    radius = next(s for s in found.profile.free_symbols if s.name == "r")
    values = {s: np.asarray(0.8) for s in found.profile.free_symbols - {radius}}
    integral = (
        2
        * integrate.quad(
            lambda r: float(evaluate(found.profile, {**values, radius: np.asarray(r)})), 0, np.inf, limit=500
        )[0]
    )
    assert float(found.spectral_values(np.array([0.0]))[0]) == pytest.approx(integral, rel=1e-6)


def test_spectra_of_what_repeats_have_no_values() -> None:
    for body in ("cos(r/ls)", "exp(-2*sin(r)^2/ls)", "sin(r/ls)/(r/ls)"):
        assert np.isnan(by_formula("r; ls", body).spectral_values(np.array([0.5]))).all()
    assert by_formula("r; ls", "cos(r/ls)").spectral_density.has(sp.DiracDelta)


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("exp(-sum((a - b)^2)/ls)", 2),
        ("(1 + dot(a, b))^3", 2),
        ("ls*min(exp(a), exp(b))", 1),
        ("exp(-abs(a - b)/ls)", 1),
        ("tanh(a)*tanh(b)", 1),
    ],
)
def test_derivatives_are_those_of_differences(body: str, columns: int) -> None:
    found = by_formula("a, b; ls", body, columns)
    rng = np.random.default_rng(columns)
    at = {s: rng.normal() for s in (*found.pair.a, *found.pair.b)}
    numbers = dict.fromkeys(found.expression.free_symbols - set(at), 0.8)

    def value(expression: sp.Expr, **moves: float) -> float:
        moved = {s: v + moves.get(s.name, 0.0) for s, v in at.items()}
        return float(evaluate(expression, {**moved, **numbers}))

    first, second = found.pair.a[-1].name, found.pair.b[0].name
    column, h = len(found.pair.a), 1e-4
    k = found.expression
    slope = (value(k, **{first: h}) - value(k, **{first: -h})) / (2 * h)
    mixed = sum(i * j * value(k, **{first: i * h, second: j * h}) / (4 * h * h) for i in (1, -1) for j in (1, -1))
    assert value(found.derivative(along_a=column)) == pytest.approx(slope, rel=1e-5, abs=1e-7)
    assert value(found.derivative(along_a=column, along_b=1)) == pytest.approx(mixed, rel=1e-4, abs=1e-6)


def test_what_is_printed() -> None:
    declarations = compile_checked(text("p*k(ls)", "kernel k(r; ls) = max(1 - r/ls, 0)"))
    assert explain_kernels(declarations) == [
        "",
        "kernels by formula",
        "  f: k = p*max(1 - r/ls, 0)",
        "    isotropic; variance p",
        "    a process with it is not differentiable",
        "    spectral density by quadrature, at the initial values: S(0) = 1.04, S(1) = 0.9857, S(3) = 0.6274",
    ]
    plain = compile_checked(text("RBF(ls)"))
    assert explain_kernels(plain) == []


def test_what_info_says() -> None:
    declarations = compile_checked(text("p*k(ls)", "kernel k(r; ls) = exp(-r/ls)"))
    latent = information(declarations)["latents"][0]
    assert latent["stationary"] is True
    assert latent["by_formula"] == {
        "isotropic": True,
        "variance": "p",
        "derivatives": 0,
        "spectral_density": "2*ls*p/(ls^2*omega^2 + 1)",
    }
    assert information(compile_checked(text("RBF(ls)")))["latents"][0]["by_formula"] is None


@pytest.mark.parametrize(("order", "expected"), [(1, 0), (3, 1), (5, 2), (7, 3)])
def test_a_sum_is_as_smooth_as_its_roughest_part(order: int, expected: int) -> None:
    """Of Matern kernels of half-integer order."""
    u = sp.sqrt(order) * DISTANCE / sp.Symbol("l", positive=True)
    matern = {1: 1, 3: 1 + u, 5: 1 + u + u**2 / 3, 7: 1 + u + 2 * u**2 / 5 + u**3 / 15}[order] * sp.exp(-u)
    assert smoothness(matern + sp.cos(DISTANCE), DISTANCE) == expected


def test_smoothness_is_told_of_a_sum_of_ten() -> None:
    scales = sp.symbols("l1:11", positive=True)
    rough = sum((1 + sp.sqrt(3) * DISTANCE / each) * sp.exp(-sp.sqrt(3) * DISTANCE / each) for each in scales)
    assert smoothness(rough, DISTANCE) == 1


SUMMED = "exp(-sum(w*(a - b)^2)) + c*max(a*b) + prod(1 + a*b) + logsumexp(a + b) + min(a*b)*a[2]*b[1]"


def test_matrices_of_formulas_are_the_sums_over_their_columns() -> None:
    declarations = compile_text(
        "input x : real[3]\noutput y : real\nparam w : positive[3] = [0.4, 1, 2]\nparam c : positive = 0.6\n"
        f"kernel k(a, b; w, c) = {SUMMED}\nlatent f(x) ~ GP(0, k(w, c))\ny ~ Normal(f, 1)\n"
    )
    translator, kernel = Translator(declarations, {}), declarations.latents["f"].kernel
    formula, arguments = formula_of(kernel, translator, 3)
    numbers = numbers_near(translator, formula, arguments, None)
    np.testing.assert_array_equal(numbers["w"], [0.4, 1.0, 2.0])
    assert numbers["c"] == 0.6
    w, c = numbers["w"], 0.6
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    one, other = a[:, None], b[None]
    product = one * other
    expected = np.exp(-np.sum(w * (one - other) ** 2, axis=-1)) + c * product.max(axis=-1) + np.prod(1 + product, -1)
    expected += np.log(np.sum(np.exp(one + other), axis=-1)) + product.min(axis=-1) * one[..., 1] * other[..., 0]
    np.testing.assert_allclose(matrix(formula, numbers, a, b), expected, rtol=1e-12)
    near = [numbers_near(translator, formula, arguments, np.random.default_rng(seed)) for seed in range(400)]
    drawn = np.log([each["c"] for each in near]) - np.log(0.6)
    assert abs(drawn.mean()) < 0.2 and drawn.std() == pytest.approx(1.0, abs=0.15)


def test_matrices_of_the_distance_weigh_its_columns() -> None:
    declarations = compile_checked(text("k(scales)", "kernel k(a, b; c) = exp(-sqrt(sum((a - b)^2/c^2)))", 3))
    translator, kernel = Translator(declarations, {}), declarations.latents["f"].kernel
    formula, _ = formula_of(kernel, translator, 3)
    a, scales = np.random.default_rng(0).normal(size=(5, 3)), np.array([0.5, 1.0, 3.0])
    expected = np.exp(-np.sqrt(np.sum(((a[:, None] - a[None]) / scales) ** 2, axis=-1)))
    assert formula.radial
    (name,) = formula.parameters
    np.testing.assert_allclose(matrix(formula, {name: scales}, a, a), expected, atol=1e-8)


def test_initial_values_and_random_ones_around_them() -> None:
    declarations = compile_checked(
        "input x : real\noutput y : real\nparam u : unit = 0.3\nparam r : real[2] = [-2, 3]\nparam s : positive = 4\n"
        "param i : real(lower = -1, upper = 5) = 2\n"
        "latent f(x) ~ GP(u + r[1] + r[2] * i * x, s * RBF(1))\ny ~ Normal(f, 1)\n"
    )
    translator = Translator(declarations, {})
    translator.scalar(declarations.latents["f"].mean, {})
    symbols = {each.name: each for each in translator.references}
    assert [start_of(translator, symbols[name]) for name in ("u", "r[1]", "r[2]", "i", "x")] == [0.3, -2, 3, 2, 1]
    rng = np.random.default_rng(0)
    units, reals = (np.array([start_of(translator, symbols[n], rng) for _ in range(500)]) for n in ("u", "r[1]"))
    assert 0.05 <= units.min() < 0.08 and 0.92 < units.max() <= 0.95
    assert reals.mean() == pytest.approx(-2.0, abs=0.2) and reals.std() == pytest.approx(0.5 * 2.5, rel=0.1)
    assert start_of(translator, symbols["i"], rng) == 2.0


def test_a_kernel_that_does_not_vanish_has_no_spectral_density() -> None:
    assert "unknown: the kernel does not vanish" in by_formula("r; ls", "1 / (1 + r/ls)^0.2").describe()


def test_what_grows_too_large_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and derivatives of a formula are looked for as long as it stays small."""
    quotient, smooth = sp.sin(DISTANCE) / DISTANCE, sp.exp(-(DISTANCE**2))
    assert (at_zero(quotient), smoothness(smooth, DISTANCE)) == (1, MOST_DERIVATIVES)
    monkeypatch.setattr("gpdsl.symbolic.kernel_formula.MOST_OPERATIONS", 0)
    monkeypatch.setattr("gpdsl.symbolic.kernel_values.MOST_OPERATIONS", 1)
    assert (at_zero(quotient), smoothness(smooth, DISTANCE)) == (None, None)


@pytest.mark.parametrize(("body", "moves"), [("exp(-(a - b)^2)", True), ("exp(-(a - b)^2) * a * b", False)])
@pytest.mark.parametrize("levels", [False, True])
def test_a_formula_of_differences_is_told_whatever_its_levels(body: str, moves: bool, levels: bool) -> None:
    head = "k[d, e](a, b; w) = w[d] * w[e] *" if levels else "k(a, b; w) ="
    axis, over = ("[s]", "x, g") if levels else ("", "x")
    declarations = compile_text(
        f"index s in 1..3\ninput x : real\ninput g : label[s]\noutput y : real\nparam w{axis} : positive\n"
        f"kernel {head} {body}\nlatent f({over}) ~ GP(0, k(w))\ny ~ Normal(f, 1)\n"
    )
    latent = declarations.latents["f"]
    assert isinstance(latent.kernel, KernelFormula)
    assert of_differences(latent.kernel, declarations, latent) is moves


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(
    "profile",
    ["(2 + 3 * r**2)**-2", "5 * (1 + r**2 / 4)**Rational(-7, 2)", "(3 + r**2 / 2)**-3 / 2", "exp(-0.4 * r**2)"],
)
def test_a_spectral_density_turned_back_is_the_profile(profile: str, dimensions: int) -> None:
    """(2 pi)^d k(r) is the transform of S(omega), where that falls off as fast as quadrature needs."""
    r = sp.Symbol("r", positive=True)
    formula, at = sp.sympify(profile, {"r": r}), np.array([0.3, 0.0, 1.7])
    found = spectral_density(formula, r, dimensions)
    assert found is not None
    density = sp.lambdify(FREQUENCY, found, ["scipy", "numpy"])
    back = numeric_spectral_density(lambda w: np.asarray(density(np.maximum(w, 1e-9))), at, dimensions)
    expected = [float(formula.subs(r, place)) for place in at]
    np.testing.assert_allclose(back / (2 * np.pi) ** dimensions, expected, rtol=1e-6)
