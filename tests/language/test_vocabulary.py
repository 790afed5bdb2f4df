"""The tables of the language are consistent, and every entry of them can be written."""

from __future__ import annotations

import pytest

from gpdsl.language import compile_text
from gpdsl.language.vocabulary import DISTRIBUTIONS, FUNCTIONS, KERNELS, OUTPUT_KINDS, REDUCTIONS, STATEMENTS, signature

from . import examples

VALUES = {"real": "f", "positive": "exp(f)", "unit": "sigmoid(f)", "count": "10"}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str) -> None:
    arguments = ", ".join("2" for each in KERNELS[name].parameters if each.default is None)
    model = compile_text(examples.REGRESSION.replace("RBF(1)", f"{name}({arguments})"))
    assert list(model.latents["f"].kernel.arguments) == [each.name for each in KERNELS[name].parameters]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name: str) -> None:
    entry = DISTRIBUTIONS[name]
    plain = [VALUES[each.domain] for each in entry.parameters if not each.alternative]
    named = [f"{each.name} = {VALUES[each.domain]}" for each in entry.parameters if each.alternative]
    for kind in entry.kinds:
        for alternative in named or [""]:
            call = f"{name}({', '.join([*plain, alternative] if alternative else plain)})"
            text = examples.REGRESSION.replace("y : real", f"y : {kind}").replace("Normal(f, sigma)", call)
            if kind == "label":
                text = text.replace("label", "label[c]").replace("latent f", "latent f[c]") + "index c in 1..3\n"
            model = compile_text(text)
            assert model.observations[0].distribution.name == name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    arguments = ", ".join(["f"] * FUNCTIONS[name].arity)
    assert compile_text(examples.REGRESSION + f"let g = {name}({arguments})\n").lets["g"].axes == ()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str) -> None:
    text = examples.REGRESSION + f"index q in 1..3\nconst a[q] = [1, 2, 3]\nlet g = {name}(q, a[q] * f)\n"
    assert compile_text(text).lets["g"].axes == ()


def test_every_output_kind_has_a_distribution() -> None:
    assert {kind for each in DISTRIBUTIONS.values() for kind in each.kinds} == set(OUTPUT_KINDS)


def test_signatures() -> None:
    assert signature(DISTRIBUTIONS["Binomial"]) == "Binomial(trials, p = | logit =)"
    assert signature(KERNELS["Polynomial"]) == "Polynomial(degree, offset = 1, ell = 1)"


def test_forms_of_statements_begin_with_their_word() -> None:
    assert all(form.split()[0] == word for word, form in STATEMENTS.items())
