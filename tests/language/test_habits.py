"""Words and orders of other tools, and the remedy that each of them gets."""

from __future__ import annotations

import pytest

import gpdsl
from gpdsl.language import habits
from gpdsl.language.vocabulary import DISTRIBUTIONS, KERNELS

TEXT = """input x : real
output y : real
param s2 : positive
param ell : positive{prior}
param sigma : positive
latent f(x) ~ GP(0, s2 * {kernel}(ell))
y ~ {law}
"""


def told(kernel: str = "RBF", law: str = "Normal(f, sigma)", prior: str = "", more: str = "") -> str:
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.compile(TEXT.format(kernel=kernel, law=law, prior=prior) + more)
    return str(caught.value.diagnostics[0].help_text())


@pytest.mark.parametrize("word", list(habits.KERNELS))
def test_kernels_of_other_tools(word: str) -> None:
    assert told(kernel=word) == told(kernel=word.upper()) == habits.KERNELS[word]


@pytest.mark.parametrize("word", list(habits.DISTRIBUTIONS))
def test_distributions_of_other_tools(word: str) -> None:
    assert told(law=f"{word}(f, sigma)") == told(prior=f" ~ {word}(1, 2)") == habits.DISTRIBUTIONS[word]


def test_no_habit_is_a_word_of_the_language() -> None:
    assert not {each.lower() for each in KERNELS} & set(habits.KERNELS)
    assert not {each.lower() for each in DISTRIBUTIONS} & set(habits.DISTRIBUTIONS)


def test_what_a_habit_says_to_write_is_of_the_language() -> None:
    for table, known in ((habits.KERNELS, KERNELS), (habits.DISTRIBUTIONS, DISTRIBUTIONS)):
        for remedy in table.values():
            named = [part.split("(")[0] for part in remedy.split("`")[1::2]]
            assert "prior out" in remedy or any(each in known or each.startswith(("param", "s2")) for each in named)


def test_priors_and_processes_on_lines_of_their_own() -> None:
    assert told(more="sigma ~ HalfNormal(1)\n").endswith("`param sigma : positive ~ HalfNormal(1)`")
    assert told(more="g ~ GP(0, RBF(1))\n").endswith("`latent g(x) ~ GP(...)`")


@pytest.mark.parametrize("prior", ["HalfNormal(1)", "HalfCauchy(2)", "HalfStudentT(4, 1)", "InverseGamma(3, 2)"])
def test_priors_of_positive_parameters(prior: str) -> None:
    model = gpdsl.compile(TEXT.format(kernel="RBF", law="Normal(f, sigma)", prior=f" ~ {prior}"))
    assert model.declarations.params["ell"].prior is not None
