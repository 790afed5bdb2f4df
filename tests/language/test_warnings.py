"""What a pedantic reader says: each warning beside its exact text, and the many models about which nothing is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpdsl.language import compile_text
from gpdsl.language.vocabulary import shipped
from gpdsl.language.warnings import cautions, find_warnings

GOLDEN = Path(__file__).parents[1] / "golden" / "warnings"
MODELS = sorted(GOLDEN.glob("*.gpm"))
SPREADS = {"day": (11_000.0,), "x": (1.0, 2.0)}

HEAD = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\n"


def codes(text: str, spreads: dict[str, tuple[float, ...]] | None = None) -> list[str]:
    return [each.code for each in find_warnings(compile_text(text), spreads)]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    report = find_warnings(compile_text(path.read_text(encoding="utf-8"), path=path), SPREADS)
    expected = path.with_suffix(".txt")
    if os.environ.get("GPDSL_GOLDEN"):
        expected.write_text(f"{report}\n", encoding="utf-8")
    assert f"{report}\n" == expected.read_text(encoding="utf-8")
    assert {each.code for each in report} == {path.stem.split("_")[0].upper()}


def test_one_alone_reads_like_a_message() -> None:
    """As the report begins, without the name of the file."""
    path = GOLDEN / "w600_unused.gpm"
    first = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()[0]
    (said, *_) = find_warnings(compile_text(path.read_text(encoding="utf-8")), SPREADS)
    assert f"{path.name}:{said}" == first


def test_every_code_has_a_golden_file() -> None:
    declared = {
        each.code for each in vars(cautions).values() if isinstance(each, type) and each.__module__.endswith("cautions")
    }
    assert declared - {""} == {path.stem.split("_")[0].upper() for path in MODELS}


@pytest.mark.parametrize(
    "name", sorted(each.name for each in shipped("models").iterdir() if each.name.endswith(".gpm"))
)
def test_the_zoo_is_above_suspicion(name: str) -> None:
    assert codes((shipped("models") / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "rest",
    [
        # Each pair is told apart by one more place, a prior, or being fixed.
        "param a : positive = 1\nparam b : positive = 1\ny ~ Normal(a * b * f + a * g, 1)\n",
        "param a : positive = 1\nparam b : positive = 1\ny ~ Normal(a * b * f + g, b)\n",
        "param a : positive = 1\nparam b : positive = 1 ~ Gamma(2, 1)\ny ~ Normal(a * b * f + g, 1)\n",
        "param a : positive = 1\nparam b : positive = 1 fixed\ny ~ Normal(a * b * f + g, 1)\n",
        "param a : positive = 1\nparam b : positive = 1\ny ~ Normal(a * b * f + a^2 * b * g, 1)\n",
        "param a : positive = 1\nparam b : positive = 1\ny ~ Normal(a * exp(b) * f + g, 1)\n",
        "param a : positive = 1\nparam b : positive = 1\ny ~ Normal(if a * b > 1 then a * f else b * g, 1)\n",
        "param a : real = 1\nparam b : real = 1\ny ~ Normal(f + a + b * g, 1)\n",
        "param a : real = 1\nparam b : real = 1\ny ~ Normal(f + a + 2 * b + exp(b) * g, 1)\n",
        "param a : real(lower = 0, upper = 2) = 1\nparam b : real = 1\ny ~ Normal(f + g + a + b, 1)\n",
        "param a : positive = 1\ny ~ Normal(a * f + g, a)\n",
        "param a : positive = 1\nparam c : positive = 1\nlatent h(x) ~ GP(1, a * RBF(1))\n"
        "y ~ Normal(f + g + c * h, 1)\n",
        "param a : positive = 1\nparam c : positive = 1\nlatent h(x) ~ GP(0, a * RBF(1))\n"
        "y ~ Normal(f + g + c * h + h, 1)\n",
        "param a : positive = 1\nparam c : positive = 1\nlatent h(x) ~ GP(0, a * RBF(1) + White())\n"
        "y ~ Normal(f + g + c * h, 1)\n",
        "param a : positive = 1\nparam c : positive = 1\ny ~ Normal(f + g, sqrt(a^2 + c))\nlet v = a * c\n",
    ],
)
def test_what_can_be_learnt_is_not_warned_about(rest: str) -> None:
    assert codes(HEAD + rest) == []


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("param a : positive = 1\nparam b : positive = 1\ny ~ Normal(f + g, a / b^2)\n", "`a / b^2`"),
        (
            "param a : positive = 1\nparam b : positive = 1\nlet v = sqrt(a) * b\ny ~ Normal(v * f + g, v)\n",
            "`a * b^2`",
        ),
        ("param a : real = 1\nparam b : real = 1\ny ~ Normal(exp(f - a - b) + g, 1)\n", "`a + b`"),
        ("param a : real = 1\nparam b : real = 1\nlet v = a - b\ny ~ Normal(v * f + g, exp(v))\n", "`a - b`"),
    ],
)
def test_the_pair_is_shown_as_it_occurs(rest: str, words: str) -> None:
    report = find_warnings(compile_text(HEAD + rest))
    assert [each.code for each in report] in (["W610"], ["W611"])
    assert words in str(report)


def test_scales_in_two_kernels_of_a_product_are_one_scale() -> None:
    text = "param a : positive = 1\nparam b : positive = 1\nlatent h(x) ~ GP(0, (a * RBF(1)) * (b * Periodic(1)))\n"
    assert codes(HEAD + text + "y ~ Normal(f + g + h, 1)\n") == ["W610"]


@pytest.mark.parametrize(
    "argument", ["exp(f)", "softplus(f) + g^2", "f^2", "abs(f) + 1", "f + exp(f)", "2", "max(f, 1)"]
)
def test_what_stays_positive_is_not_warned_about(argument: str) -> None:
    assert codes(f"{HEAD}y ~ Normal(g + f, {argument})\n") == []


def test_length_scales_need_data() -> None:
    text = HEAD + "y ~ Normal(f + g, 1)\n"
    assert codes(text) == []
    assert codes(text, {"x": (2.0,)}) == []
    assert codes(text, {"x": (200.0,)}) == ["W622", "W622"]
    assert codes(text, {"x": (0.001,)}) == ["W622", "W622"]
    assert codes(text.replace("RBF(1)", "RBF(1, on = log(x))"), {"x": (200.0,)}) == []
