"""Models as LaTeX: expected texts, nothing left out, and formulas that mean to a reader what the model says."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from hypothesis import assume, given, settings, strategies as st

import gpdsl
from gpdsl.language import compile_text, model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS, KERNELS
from gpdsl.symbolic import kernel_coordinates as kernel_table
from gpdsl.symbolic.latex import latex
from gpdsl.symbolic.latex.equations import width
from gpdsl.symbolic.latex.kernels import FORMULAS, Points, Shape
from gpdsl.symbolic.latex.names import Symbols, symbol_of
from gpdsl.symbolic.translate import Translator
from tests.goldens import assert_golden
from tests.symbolic.latex_reader import Reader

EVERYTHING = Path(__file__).with_name("everything.gpm")
MODELS = {name: gpdsl.zoo_text(name) for name in gpdsl.zoo_names()} | {"everything": EVERYTHING.read_text()}


def declared(name: str) -> m.Declarations:
    return compile_text(MODELS[name], name=f"{name}.gpm")


def start(lines: str, left: str = "y ~ Normal(f, 1)") -> m.Declarations:
    return compile_text(f"input x : real\noutput y : real\n{lines}\nlatent f(x) ~ GP(0, RBF(1))\n{left}\n")


def line_of(text: str, beginning: str) -> str:
    """The equation that begins with a text, without alignment and range."""
    found = next(each for each in text.splitlines() if each.startswith(beginning))
    return found.removesuffix(r" \\").split(" && ")[0].replace("&", "", 1)


@pytest.mark.parametrize("name", MODELS)
def test_expected_texts(name: str) -> None:
    assert_golden(f"latex/{name}.tex", latex(declared(name)).rstrip("\n"))


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_out(name: str) -> None:
    """The symbol of every declared quantity is printed, every output is observed, every latent has a prior."""
    d = declared(name)
    text, symbols = latex(d), Symbols(d)
    for table in (d.inputs, d.outputs, d.consts, d.params, d.rows, d.latents, d.lets):
        for quantity in table:
            base = re.escape(symbols.of(quantity).render().split("_")[0].split("^")[0])
            bold = re.escape(symbols.of(quantity).render(bold=True).split("_")[0].split("^")[0])
            assert re.search(f"{base}(?![a-zA-Z])|{bold}", text), quantity
    assert text.count(r"\mathcal{GP}") == len(d.latents)
    assert text.count(r"&\sim") == len(d.latents) + len(d.rows) + len(d.observations) + sum(
        p.prior is not None for p in d.params.values()
    )
    for word in [*d.functions, *d.densities, *d.kernels, *d.externals, *d.likelihoods]:
        assert word.replace("_", r"\_") in text


@pytest.mark.parametrize("name", MODELS)
def test_brackets_and_environments_are_balanced(name: str) -> None:
    text = latex(declared(name), standalone=True)
    body = text.replace(r"\{", "").replace(r"\}", "")
    assert body.count("{") == body.count("}")
    assert len(re.findall(r"\\left(?![a-z])", text)) == len(re.findall(r"\\right(?![a-z])", text))
    opened, closed = (sorted(re.findall(rf"\\{word}\{{(\w+\*?)\}}", text)) for word in ("begin", "end"))
    assert opened == closed
    assert text.count("$") % 2 == 0


@pytest.mark.parametrize("name", MODELS)
def test_lines_fit_the_page(name: str) -> None:
    for line in re.findall(r"(?m)^.*&\\(?:sim|quad).*$|^.*&= .*$", latex(declared(name))):
        assert width(line.replace("&&", "")) <= 88, line


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sigma", r"\sigma"),
        ("ell", r"\ell"),
        ("ell_g", r"\ell_g"),
        ("depth0", r"\mathrm{depth}_0"),
        ("x1", "x_1"),
        ("s2", "s^2"),
        ("sigma2_f", r"\sigma_f^2"),
        ("travel_time", r"\mathrm{travel\_time}"),
        ("W", "W"),
        ("rate", r"\mathrm{rate}"),
        ("σ", r"\sigma"),
        ("größe", r"\text{größe}"),
        ("a_", r"\mathrm{a\_}"),
        ("Gamma", r"\Gamma"),
        ("f_1_2", "f_{1,2}"),
    ],
)
def test_names(name: str, shown: str) -> None:
    assert symbol_of(name).render() == shown


NAMES = st.from_regex(r"[a-zA-Zσℓé][a-z0-9_]{0,4}", fullmatch=True) | st.sampled_from(
    ["sigma", "σ", "s", "s2", "x", "x1", "x_1", "ell", "ell_g", "depth0", "depth_0", "depth", "sigma2", "sigma_2"]
)


@given(st.lists(NAMES, min_size=2, max_size=8, unique=True))
@settings(max_examples=80, deadline=None)
def test_distinct_names_look_different(names: list[str]) -> None:
    reserved = {"x", "y", "f", *vars(m)}
    chosen = [each for each in names if each not in reserved and each not in DISTRIBUTIONS]
    text = "".join(f"param {each} : positive\n" for each in chosen)
    try:
        d = start(text)
    except gpdsl.GpdslError:
        assume(False)
    symbols = Symbols(d)
    shown = [symbols.of(each).render() for each in chosen]
    assert len(set(shown)) == len(shown)
    assert {symbols.row, symbols.count}.isdisjoint(chosen)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("sigma", "σ"), (r"\mathtt{sigma}", r"\sigma")),  # the shorter name keeps the letter
        (("σ", "s"), (r"\sigma", "s")),
    ],
)
def test_two_spellings_of_one_letter_look_different(names: tuple[str, str], shown: tuple[str, str]) -> None:
    symbols = Symbols(start("".join(f"param {each} : positive\n" for each in names)))
    assert tuple(symbols.of(each).render() for each in names) == shown


def test_the_letter_of_the_rows_gives_way() -> None:
    d = compile_text("input N : real\noutput n : count\nlatent f(N) ~ GP(0, RBF(1))\nn ~ Poisson(exp(f))\n")
    assert r"n_i \mid f &\sim \mathrm{Poisson}(\exp(f(N_i))) && i = 1, \dots, M" in latex(d)


def test_text_of_the_user_is_escaped() -> None:
    d = compile_text('model m_1 "50% of {a} & b_c \\\\ ~ ^"\n' + start("").source.text)
    assert r"\paragraph{50\% of \{a\} \& b\_c \textbackslash{}\textbackslash{} \textasciitilde{} " in latex(d)


# --- meaning ----------------------------------------------------------------------------------------------------

LEAVES = st.sampled_from(["a", "b", "c", "x", "2", "0.5", "3", "1.5"])


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds("{}({})".format, st.sampled_from(["exp", "tanh", "sin", "cos", "sigmoid", "abs"]), inner)
    two = st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner)
    power = st.builds("({})^{}".format, inner, st.sampled_from(["2", "3", "-1"]))
    root = st.builds("sqrt(1 + ({})^2)".format, inner)
    either = st.builds("(if {} < {} then {} else {})".format, LEAVES, LEAVES, inner, inner)
    largest = st.builds("max({}, {})".format, inner, inner)
    return one | two | two | two | power | root | either | largest | st.builds("(-{})".format, inner)


FORMULA_TEXTS = st.recursive(LEAVES, combined, max_leaves=9)
VALUES = {"a": 1.3, "b": 0.7, "c": -0.4, "x": 0.9}


@given(FORMULA_TEXTS)
@settings(max_examples=120, deadline=None)
def test_a_reader_computes_what_the_model_says(formula: str) -> None:
    """The printed formula, read by a parser of mathematics, has the value of the checked expression."""
    try:
        d = start(f"param a : positive\nparam b : positive\nparam c : real\nlet g = {formula}")
        translator = Translator(d, {})
        value = translator.scalar(d.lets["g"].cases[0].body)
        values = {symbol: VALUES[ref.name] for symbol, ref in translator.references.items()}
        expected = complex(sp.sympify(value).subs(values).evalf(18))
    except (gpdsl.GpdslError, OverflowError, TypeError):
        assume(False)
    assume(math.isfinite(expected.real) and abs(expected.real) < 1e12 and abs(expected.imag) < 1e-12)
    printed = line_of(latex(d).replace(" \\\\\n  &\\quad {} ", " "), "g")
    right = printed.partition("= ")[2]
    names = VALUES | {"x_n": VALUES["x"]}
    try:
        found = Reader(right.rstrip("\\ "), names).value()
    except (ZeroDivisionError, OverflowError):
        assume(False)
    assert found == pytest.approx(expected.real, rel=1e-8, abs=1e-9), (formula, right)


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("a - (b - c)", "a - (b - c)"),
        ("a - b - c", "a - b - c"),
        ("a + (b + c)", "a + b + c"),
        ("(a + b) * c", r"(a + b)\, c"),
        ("a * (b / c)", r"a\, \frac{b}{c}"),
        ("2 * (a + b) / c", r"\frac{2\, (a + b)}{c}"),
        ("-a^2", "-a^2"),
        ("(-a)^2", "(-a)^2"),
        ("a^b^c", "a^{b^c}"),
        ("(a^b)^c", "(a^b)^c"),
        ("a^(1/2)", "a^{1/2}"),
        ("sin(a)^2", r"\sin^{2}(a)"),
        ("exp(a)^2", r"(\exp(a))^2"),
        ("2 * 3 * a", r"2 \cdot 3\, a"),
        ("exp(a / b)", r"\exp\!\left(\frac{a}{b}\right)"),
        ("1e-12 * a", r"10^{-12}\, a"),
        ("log1p(a)", r"\log(1 + a)"),
        ("pi * a", r"\pi\, a"),
        ("a * -b", r"a\, (-b)"),
        ("if a > b then 1 else 2", r"\begin{cases} 1 & \text{if } a > b \\ 2 & \text{otherwise} \end{cases}"),
    ],
)
def test_formulas(formula: str, shown: str) -> None:
    d = start(f"param a : positive\nparam b : positive\nparam c : real\nlet g = {formula}")
    assert line_of(latex(d), "g") == f"g = {shown}"


@pytest.mark.parametrize(
    ("sd", "shown"),
    [
        ("sigma", r"\sigma^2"),
        ("0.1", "0.01"),
        ("sqrt(v)", "v"),
        ("exp(h / 2)", "\\exp(h(x_n))"),
        ("exp(h)", r"\exp(2\, h(x_n))"),
        ("sigma * v", r"(\sigma\, v)^2"),
    ],
)
def test_a_normal_distribution_is_printed_with_its_variance(sd: str, shown: str) -> None:
    lines = "param sigma : positive\nparam v : positive\nlatent h(x) ~ GP(0, RBF(1))"
    text = latex(start(lines, f"y ~ Normal(f, {sd})"))
    assert rf"\mathcal{{N}}(f(x_n),\; {shown}) &&" in text
    assert "with mean $m$ and variance $v$" in text


def test_a_latent_at_other_places_and_its_derivative() -> None:
    text = latex(
        compile_text(
            "input a : real[2]\ninput b : real[2]\noutput y : real\n"
            "latent f(a) ~ GP(0, RBF(1))\ny ~ Normal(f(b) + D(f, a[2]), 1)\n"
        )
    )
    assert r"f(\mathbf{b}_n) + \frac{\partial f}{\partial a_2}(\mathbf{a}_n)" in text


# --- the table of kernels ---------------------------------------------------------------------------------------


def test_every_kernel_can_be_written_out() -> None:
    assert set(FORMULAS) == set(KERNELS)


@pytest.mark.parametrize(
    "name", ["RBF", "Linear", "Cosine", "Periodic", "Matern12", "Matern32", "Matern52", "RationalQuadratic"]
)
def test_formulas_of_kernels_have_the_value_of_the_kernel(name: str) -> None:
    """On a line, the printed formula agrees with the one that analysis uses."""
    parameters = tuple(each.name for each in KERNELS[name].parameters)
    formula = FORMULAS[name](Points(False, Shape(name, False, frozenset(), parameters)))
    rng = np.random.default_rng(3)
    first, second, ell, alpha, period = rng.uniform(0.3, 2.0, 5)
    values = {"ell": ell, "alpha": alpha, "period": period}
    arguments = [sp.Float(values[each]) for each in parameters]
    expected = float(kernel_table.FORMULAS[name]((sp.Float(first),), (sp.Float(second),), *arguments))
    r = abs(first - second) / ell
    names = {"x": first, "z": second, "l": ell, "A": alpha, "T": period, "r": r, "P": math.pi}
    readable = formula.split(r", \quad")[0].replace("x'", "z").replace(r"\ell", "l").replace(r"\alpha", "A")
    readable = (
        readable.replace(r"\bigl", "").replace(r"\bigr", "").replace(r"\tfrac", r"\frac").replace(r"\pi", r"P\, ")
    )
    readable = re.sub(r"e\^\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", r"\\exp(\1)", readable)
    # People write these factors side by side.
    readable = re.sub(r"(\d)(?=[lAPr(])", r"\1\\, ", readable).replace(r"} \sin", r"}\, \sin")
    readable = readable.replace(r"\frac{5}{3} r", r"\frac{5}{3}\, r").replace(r"P\,  (", r"P\, (")
    assert Reader(readable, names).value() == pytest.approx(expected, rel=1e-9)


def test_printing_loads_no_jax() -> None:
    code = "import sys, gpdsl; gpdsl.zoo('gprn').latex(); gpdsl.zoo('gprn').graph(); gpdsl.zoo('gprn').info(); "
    code += "print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_parameters_of_layers_by_number_have_that_number() -> None:
    text = gpdsl.compile(
        "index l in 1..3\ninput x : real[2]\noutput y : real\nparam ell[l] : positive[2] = 1\n"
        "latent h[1](x) ~ GP(0, RBF(ell[1]))\nlatent h[l > 1](h[l - 1], x) ~ GP(h[l - 1], RBF(1, on = h[l - 1]))\n"
        "y ~ Normal(h[3], 0.1)"
    ).latex()
    assert r"\boldsymbol{\ell}_1)) \\" in text and r"h_3(h_2, \mathbf{x}) &\sim" in text
