"""The tables of the language are consistent, and every entry of them can be written."""

from __future__ import annotations

import pytest

from gpdsl.language import compile_text
from gpdsl.language.distributions import signature
from gpdsl.language.vocabulary import DISTRIBUTIONS, FUNCTIONS, KERNELS, OUTPUT_KINDS, REDUCTIONS, STATEMENTS

from . import examples

VALUES = {"real": "f", "positive": "exp(f)", "unit": "sigmoid(f)", "count": "10"}


KERNEL_CALLS = {
    "SpectralMixture": "SpectralMixture(w, w, w)",
    "Coregion": "Coregion(W, w)",
    "ChangePoint": "ChangePoint(RBF(1), Linear(1), at = 2)",
    "Patch": "Patch(RBF(1), image = [1, 1], patch = [1, 1])",
}
KERNEL_CONTEXT = """index q in 1..3
index r in 1..2
param w[q] : positive
param W[q,r] : real
"""


@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str) -> None:
    plain = ", ".join("2" for each in KERNELS[name].parameters if each.default is None)
    text = examples.REGRESSION.replace("RBF(1)", KERNEL_CALLS.get(name, f"{name}({plain})"))
    kernel = compile_text(text + KERNEL_CONTEXT).latents["f"].kernel
    assert kernel.name == name  # type: ignore[attr-defined]


PLAIN = [name for name, entry in DISTRIBUTIONS.items() if not entry.form and entry.kinds]
WRITTEN = {
    "Uniform": ["Uniform(0.1, 9)", "Uniform(upper = limit, lower = 0)"],
    "Ordinal": ["Ordinal(f, cut)", "Ordinal(probit = f, cutpoints = cut)", "Ordinal(logit = f, cutpoints = cut)"],
    "MultivariateNormal": ["MultivariateNormal(f, covariance = S)", "MultivariateNormal(f, factor = S, sd = 1)"],
    "Mixture": ["Mixture(0.3, {a}, {a})", "Mixture([0.2, 0.3, 0.5], {a}, {a}, {a})", "Mixture(w, {a}, {a})"],
    "Truncated": ["Truncated({a}, lower = 0.1)", "Truncated({a}, upper = 9)", "Truncated({a}, lower = 0.1, upper = 9)"],
    "Censored": ["Censored({a}, upper = limit)", "Censored({a}, lower = 0.1, upper = limit)"],
}
COMPONENTS = {"real": "Normal(f, 1)", "positive": "Normal(f, 1)", "unit": "Beta(2, exp(f))", "count": "Poisson(exp(f))"}
CONTEXT = """index c in 1..4
index p in 1..3
index q in 1..3
input limit : positive
param cut : ordered[3]
param w : simplex[2]
const S[p, q] = [[2, 1, 0], [1, 2, 1], [0, 1, 2]]
"""


@pytest.mark.parametrize("name", WRITTEN)
def test_distribution_of_its_own_form(name: str) -> None:
    for kind in DISTRIBUTIONS[name].kinds:
        component = "Normal(f, 1)" if kind == "unit" and name != "Mixture" else COMPONENTS.get(kind, "")
        for written in WRITTEN[name]:
            text = examples.REGRESSION.replace("Normal(f, sigma)", written.format(a=component)) + CONTEXT
            text = text.replace("y : real", f"y : {kind}[c]" if kind == "ordinal" else f"y : {kind}")
            if name == "MultivariateNormal":
                text = text.replace("y : real", "y[p] : real").replace("latent f", "latent f[p]")
            distribution = compile_text(text).observations[0].distribution
            assert distribution.name == name
            assert len(distribution.components) >= DISTRIBUTIONS[name].components


def test_every_distribution_is_tried() -> None:
    assert {*PLAIN, *WRITTEN, "Dirichlet", "LKJ", "PCScale", "PCLengthscale"} == set(DISTRIBUTIONS)


@pytest.mark.parametrize("name", PLAIN)
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
    assert signature(DISTRIBUTIONS["Binomial"]) == "Binomial(trials, p = | logit = | probit =)"
    assert signature(KERNELS["Polynomial"]) == "Polynomial(degree, offset = 1, ell = 1)"


def test_forms_of_statements_begin_with_their_word() -> None:
    assert all(form.split()[0] == word for word, form in STATEMENTS.items())
