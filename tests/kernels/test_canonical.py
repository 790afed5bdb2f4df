"""Checked kernels to forms: overall factors come out, everything else keeps its order."""

from __future__ import annotations

import pytest

from gpdsl.errors import GpdslError
from gpdsl.kernels.canonical import canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.form import Base, Product, Scaled, Sum
from gpdsl.language import compile_text
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


@pytest.mark.parametrize(("over", "most"), [("x", 1), ("z", 3), ("x, z", 4)])
@pytest.mark.parametrize("levels", [False, True])
def test_a_formula_counts_the_columns_beside_its_levels(over: str, most: int, levels: bool) -> None:
    """The value of an index stands in a column of its own, which is none of those that the points have."""

    def form(column: int) -> object:
        head = "kernel k[d, e](a, b; w) = w[d] * w[e]" if levels else "kernel k(a, b) = 1"
        text = f"model m\nindex t in 1..3\n{head} * exp(-(a[{column}] - b[{column}])^2)\ninput x : real\n"
        text += "input z : real[3]\noutput y[t] : real\nparam w[t] : positive = 1\n"
        text += f"latent f({over}{', t' if levels else ''}) ~ GP(0, k())\ny[t] ~ Normal(f, 1)\n"
        declarations = compile_text(text)
        latent, t = declarations.latents["f"], Translator(declarations, {})
        return canonical(latent.kernel, Space.of(t, latent)).form

    assert f"(a[{most}] - b[{most}])**2" in str(form(most))
    with pytest.raises(GpdslError, match=f"{most}"):
        form(most + 1)
