"""Kernels by formula that are no covariances: each beside the exact text printed for it, and the many that are.

`GPDSL_GOLDEN=1` rewrites the texts; the difference is then read as prose.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from gpdsl.language import ModelError
from gpdsl.language.warnings import Report
from gpdsl.symbolic.checking import all_warnings, compile_checked, grave_warnings
from gpdsl.symbolic.functions import in_words
from gpdsl.symbolic.kernel_analysis import analyse
from tests.timing import processor_seconds

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels"
MODELS = sorted(GOLDEN.glob("*.gpm"))


def found(text: str, path: Path) -> ModelError | Report:
    try:
        return grave_warnings(compile_checked(text, name=path.name))
    except ModelError as error:
        return error


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    printed = f"{found(path.read_text(encoding='utf-8'), path)}\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("GPDSL_GOLDEN"):
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")
    assert f"[{path.stem.split('_')[0].upper()}]" in printed


def model(head: str, body: str, columns: int, call: str = "k(ls)", rest: str = "y ~ Normal(f, 1)") -> str:
    size = f"[{columns}]" if columns > 1 else ""
    return (
        f"input x : real{size}\noutput y : real\nparam ls : positive = 1\nparam p : positive = 1\n"
        f"param u : real(lower = 0, upper = 2) = 1.5\nparam scales : positive[3] = 1\n"
        f"kernel k({head}) = {body}\nlatent f(x) ~ GP(0, {call})\n{rest}\n"
    )


@pytest.mark.parametrize(
    ("head", "body", "columns", "call"),
    [
        ("r; ls", "exp(-r/ls)", 1, "k(ls)"),
        ("r; ls", "exp(-r^2/ls)", 20, "k(ls)"),
        ("r; ls", "if r < ls then 1 - r/ls else 0", 1, "k(ls)"),
        ("r; ls", "max(1 - r/ls, 0)^4 * (4*r/ls + 1)", 3, "k(ls)"),
        ("r; ls", "1 / (1 + r^2/ls^2)^0.3", 4, "k(ls)"),
        ("r; ls", "exp(-r) * cos(r/ls)", 1, "k(ls)"),
        ("r; ls", "sin(r/ls) / (r/ls)", 3, "k(ls)"),
        ("r; ls, u", "exp(-(r/ls)^u)", 2, "k(ls, u)"),
        ("r; ls", "ls", 2, "k(ls)"),
        ("a, b; scales", "exp(-sum((a - b)^2/scales^2))", 3, "k(scales)"),
        ("a, b; ls", "if a*b > 0 then ls*min(abs(a), abs(b)) else 0", 1, "k(ls)"),
        ("a, b; ls", "sqrt(2*exp(a + b)/(exp(2*a) + exp(2*b))) * exp(-(a - b)^2/(exp(2*a) + exp(2*b)))", 1, "k(ls)"),
        ("a, b; ls", "(1 + dot(a, b)/ls)^3", 5, "k(ls)"),
        ("a, b; ls", "prod(1 + min(abs(a), abs(b)))", 4, "k(ls)"),
        ("a, b; ls", "min(log(a), log(b)) - min(min(log(a), log(b)), -20)", 1, "k(ls)"),
    ],
)
def test_covariances_are_above_suspicion(head: str, body: str, columns: int, call: str) -> None:
    assert list(grave_warnings(compile_checked(model(head, body, columns, call)))) == []


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("exp(-r^2.2)", 1),
        ("max(1 - r^2, 0)", 1),
        ("max(1 - r, 0)^4 * (4*r + 1)", 5),
        ("exp(-r) * cos(3*r)", 3),
        ("cos(r)", 2),
        ("1 + r", 1),
        ("1 / (1 + exp(-r))", 1),
        ("exp(-r) - 0.1", 1),
    ],
)
def test_what_is_none_is_found(body: str, columns: int) -> None:
    report = all_warnings(compile_checked(model("r", body, columns, "k()")))
    assert "W640" in {each.code for each in report}


@pytest.mark.parametrize("body", ["min(a, b)", "min(a, b)^2 * (3*max(a, b) - min(a, b)) / 6"])
def test_formulas_for_positive_inputs_are_tried_at_these(body: str) -> None:
    text = model("a, b; ls", body, 1)
    assert "W640" in {each.code for each in all_warnings(compile_checked(text))}
    assert list(grave_warnings(compile_checked(text.replace("input x : real", "input x : positive")))) == []


def test_a_formula_with_a_kink_where_its_points_meet_has_no_derivative() -> None:
    """Of Brownian motion and its like; integrated once it has one."""
    rest = "y ~ Normal(D(f, x), 1)"
    for body in ("min(abs(a), abs(b))", "exp(-abs(a^2 - b^2))", "1 + a*b + min(abs(a), abs(b))"):
        with pytest.raises(ModelError, match="E545.*is not differentiable"):
            compile_checked(model("a, b; ls", body, 1, rest=rest))
    smooth = "min(abs(a), abs(b))^2 * (3*max(abs(a), abs(b)) - min(abs(a), abs(b))) / 6"
    for body in (smooth, "exp(-(a - b)^2 * 1e8) * (1 + a*b)", "ls"):  # at any length-scale
        compile_checked(model("a, b; ls", body, 1, rest=rest))
    for body, columns in (
        (smooth, "x, x"),
        ("exp(-2*abs(sin(a - b)))", "x"),
        ("abs(a)^1.8 + abs(b)^1.8 - abs(a - b)^1.8", "x"),
    ):
        with pytest.raises(ModelError, match="E545"):
            compile_checked(model("a, b; ls", body, 1, rest=rest.replace("x", columns)))


def test_a_kink_counts_along_the_columns_that_are_differentiated() -> None:
    text = model("a, b; ls", "exp(-abs(a[1] - b[1]) - (a[2] - b[2])^2)", 2, rest="y ~ Normal(D(f, x[2]), 1)")
    beside = model("a, b; ls", "min(a, b)", 2, "RBF(1, on = x[2]) * k(ls, on = x[1]^2)", "y ~ Normal(D(f, x[2]), 1)")
    for each in (text, beside):
        compile_checked(each)
        with pytest.raises(ModelError, match="E545.*is not differentiable"):
            compile_checked(each.replace("D(f, x[2])", "D(f, x[1])"))


def test_two_calls_of_one_formula_are_one_mistake() -> None:
    text = model("a, b; ls", "exp(a - 2*b)", 1, "k(ls) + k(p)")
    with pytest.raises(ModelError) as caught:
        compile_checked(text)
    assert [each.code for each in caught.value.diagnostics] == ["E540"]
    only = caught.value.diagnostics[0]
    assert (only.span.line, text.splitlines()[6][only.span.column - 1 :]) == (7, "exp(a - 2*b)")


def test_a_derivative_that_the_formula_has() -> None:
    rest = "y ~ Normal(D(f, x), 1)"
    compile_checked(model("a, b; ls", "(1 + abs(a - b)/ls) * exp(-abs(a - b)/ls)", 1, rest=rest))
    with pytest.raises(ModelError, match="E545.*differentiable once only"):
        compile_checked(
            model("a, b; ls", "(1 + abs(a - b)/ls) * exp(-abs(a - b)/ls)", 1, rest=rest.replace("x", "x, x"))
        )


HOSTILE = {
    "a power of a sum": ("a, b; ls", "(a + 2*b + 3*ls + 4*p + 5)^60", 1),
    "a symmetric power": ("a, b; ls", "(1 + a[1]*b[1] + a[2]*b[2] + a[3]*b[3] + ls)^50", 3),
    "sums of powers": ("a, b; ls", "sum((a - b + ls)^40) + sum((b - a + ls)^40)", 8),
    "many quotients": ("r; ls", " * ".join(f"sin({i}*r/ls)/(r + {i} - 1)" for i in range(1, 40)), 1),
    "many waves": ("r; ls", " + ".join(f"exp(-r^{1 + i % 5})*cos({i}*r/ls)" for i in range(90)), 1),
    "deep": ("r; ls", "1/(1 + " * 25 + "r" + ")" * 25, 2),
    "a product of sums": ("a, b; ls", " * ".join(f"(a + b + {i}*ls + a*b + 1)" for i in range(40)), 1),
    "a tower": ("r; ls", "exp(-" * 45 + "r" + ")" * 45, 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_formula_is_looked_at_in_bounded_time(name: str) -> None:
    head, body, columns = HOSTILE[name]

    def look() -> None:
        try:
            declarations = compile_checked(model(head, body, columns))
        except ModelError as error:
            assert {each.code for each in error.diagnostics} <= {"E540", "E541", "E542", "E544"}
        else:
            list(grave_warnings(declarations))
            analyse(declarations.latents["f"].kernel, declarations).describe()

    assert processor_seconds(look) < 15


def test_the_warning_names_a_matrix_that_shows_it() -> None:
    """The eigenvalues that are printed are of a real matrix: with more points of the same kind there is one again."""
    points = np.random.default_rng(5).normal(size=(200, 1)) * 2
    values = np.exp(-(np.abs(points - points.T) ** 3))
    assert np.linalg.eigvalsh(values)[0] < -0.01
    (only,) = grave_warnings(compile_checked(model("r; ls", "exp(-(r/ls)^3)", 1)))
    assert "eigenvalues from -" in only.message_text()


@pytest.mark.parametrize(
    ("longest", "expected"), [(60, "a^2 + b^2 + c^2"), (15, "a^2 + b^2 + c^2"), (10, "a^2 + b^2…")]
)
def test_formulas_in_words_are_cut_where_they_are_too_long(longest: int, expected: str) -> None:
    assert in_words(sum(each**2 for each in sp.symbols("a:c")), longest) == expected
