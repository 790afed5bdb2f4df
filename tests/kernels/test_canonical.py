"""Checked kernels to forms: overall factors come out, everything else keeps its order."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

from gpdsl.kernels.columns import Space, canonical
from gpdsl.kernels.form import Base, Product, Scaled, Sum
from gpdsl.language import compile_text
from gpdsl.symbolic.kernel_formula import DISTANCE
from gpdsl.symbolic.translate import Translator

RBF, PERIODIC = Base("RBF", ("ell",)), Base("Periodic", ("ell", "period"))


def split(kernel: str) -> tuple[list[str], object, list[str]]:
    """Factors, form and arguments of a kernel written in the language."""
    params = "".join(f"param {name} : positive = 1\n" for name in "abcd")
    declarations = compile_text(
        f"model m\ninput x : real\noutput y : real\n{params}latent f(x) ~ GP(0, {kernel})\ny ~ Normal(f, 1)\n"
    )
    latent, t = declarations.latents["f"], Translator(declarations, {})
    found = canonical(latent.kernel, Space.of(t, latent))
    return [str(t.scalar(e)) for e in found.factors], found.form, [str(t.scalar(e)) for e in found.arguments]


@pytest.mark.parametrize(
    ("kernel", "factors", "form", "arguments"),
    [
        ("RBF(a)", [], RBF, ["a"]),
        ("RBF()", [], RBF, ["1"]),
        ("a * RBF(b)", ["a"], RBF, ["b"]),
        ("RBF(b) * a / 4", ["1/4", "a"], RBF, ["b"]),
        ("a * RBF(b) * Periodic(c, d)", ["a"], Product((RBF, PERIODIC)), ["b", "c", "d"]),
        ("(a * RBF(b)) * (c * RBF(d))", ["a*c"], Product((RBF, RBF)), ["b", "d"]),
        ("RBF(a)^2", [], Product((RBF, RBF)), ["a", "a"]),
        ("a * RBF(b) + RBF(c)", [], Sum((Scaled(RBF), RBF)), ["a", "b", "c"]),
        ("d * (a * RBF(b) + RBF(c))", ["d"], Sum((Scaled(RBF), RBF)), ["a", "b", "c"]),
        ("Polynomial(3, a, b)", [], Base("Polynomial", ("offset", "ell"), (("degree", 3),)), ["a", "b"]),
        ("White() + Constant()", [], Sum((Base("White", ()), Base("Constant", ()))), []),
    ],
)
def test_canonical(kernel: str, factors: list[str], form: object, arguments: list[str]) -> None:
    found = split(kernel)
    assert (sorted(found[0]), found[1], found[2]) == (sorted(factors), form, arguments)


@pytest.mark.parametrize(("over", "columns"), [("v", 2), ("z", 3), ("x, z", 4)])
@pytest.mark.parametrize("levels", [False, True])
def test_a_mean_over_columns_leaves_out_the_levels(over: str, columns: int, levels: bool) -> None:
    """The value of an index stands in a column of its own, over which no formula goes."""
    head = "kernel k[d, e](a, b; w) = w[d] * w[e]" if levels else "kernel k(a, b) = 2"
    declarations = compile_text(
        f"model m\nindex t in 1..3\n{head} * exp(-mean((a - b)^2))\ninput x : real\ninput v : real[2]\n"
        f"input z : real[3]\noutput y[t] : real\nparam w[t] : positive = 1\n"
        f"latent f({over}{', t' if levels else ''}) ~ GP(0, k())\ny[t] ~ Normal(f, 1)\n"
    )
    latent, t = declarations.latents["f"], Translator(declarations, {})
    form: Any = canonical(latent.kernel, Space.of(t, latent)).form
    formula = (form.kernel if levels else form).formula
    # The sum is written as a symbol of its own, or as the square of a distance.
    (total,) = [each for each in formula.expression.free_symbols if each.name.startswith("sum#") or each == DISTANCE]
    square = total**2 if total == DISTANCE else total
    rate = -sp.diff(formula.expression, total) / formula.expression / sp.diff(square, total)
    assert sp.simplify(rate) == sp.Rational(1, columns)
