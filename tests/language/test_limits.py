"""Hostile text ends in an error, soon: sizes, depths, numbers; and random or damaged text never anything else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gpdsl.language import Declarations, ModelError, compile_text
from gpdsl.language.vocabulary import (
    MAX_CANDIDATES,
    MAX_CHARACTERS,
    MAX_DEGREE,
    MAX_LINE,
    MAX_NAME,
    MAX_REPORTED,
    MAX_STATEMENTS,
    closest,
)
from tests.timing import takes_less_than

from . import examples

SECONDS = 10.0

HOSTILE = {
    "E401": "# " + "a\n" * MAX_CHARACTERS,
    "E402": "let a = " + "1 + " * (MAX_LINE // 2),
    "E403": "let a = " + "-" * 5000 + "1",
    "E404": "input x : real\n" * (MAX_STATEMENTS + 1),
    "E405": "index p in 1..99999999999999999999999999",
    "E407": f"let a = 2^{MAX_DEGREE + 1}",
    "E408": "let a = 1" + "0" * 5000,
    "E409": f"input {'x' * (MAX_NAME + 1)} : real",
    "E410": "input b0 : real\n" + "".join(f"let b{k + 1} = b{k} + exp(b{k})\n" for k in range(40)),
    "E412": "index p in 1..999\n" + "".join(f"let a[p == {k}] = 1\n" for k in range(1, 300)),
    "E413": "input x : real\nlatent f(x) ~ GP(0, ((RBF()^10)^10)^10)",
    "E411": "".join(f"frobnicate {k}\ninput x{k} : fish\n" for k in range(MAX_REPORTED)),
}


@pytest.mark.parametrize("code", HOSTILE)
def test_refused_soon(code: str) -> None:
    result = outcome(HOSTILE[code])
    assert isinstance(result, ModelError)
    assert code in {each.code for each in result.diagnostics}
    assert takes_less_than(lambda: outcome(HOSTILE[code]), SECONDS)


@pytest.mark.parametrize(
    "text",
    [
        "let a = " + "1+" * 3000 + "1",
        "let a = " + "2^" * 3000 + "1",
        "let a = " + "f(" * 3000 + "1" + ")" * 3000,
        "let a = " + "[" * 90 + "1" + "]" * 90,
        "let a = 9^9^9^9",
        "const a = (-8)^(1/3)",
        "const a = 1/0",
        "index p in 1..5\nlet a[1] = f\nlet a[p > 1] = a[p-1]^9",
        "index p in 1..5\nlet a[p > 99999999999999] = f",
        "let b = f^100\nlet c = b^100\nlet d = c^100",
        "const n = 10^9\nlet a = f^n",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ModelError):
        compile_text(examples.REGRESSION + text)


def test_ninety_terms_and_brackets_are_fine() -> None:
    text = "let a = " + "f + " * 90 + "f\nlet b = " + "(" * 90 + "f" + ")" * 90 + "\n"
    assert set(compile_text(examples.REGRESSION + text).lets) == {"a", "b"}


def at_depth(frames: int, text: str) -> Declarations:
    return at_depth(frames - 1, text) if frames else compile_text(text)


@pytest.mark.parametrize("opening", ["exp(", "(1 + ", "max(1, ", "sum(p, p * ", "-(", "2^("])
def test_deepest_text_leaves_room_on_the_stack(opening: str) -> None:
    """What the limits let through is far from the recursion limit of Python, even in a caller that is deep itself."""
    text = examples.REGRESSION + "index p in 1..2\nlet g = " + opening * 45 + "f" + ")" * 45 + "\n"
    assert "g" in at_depth(300, text).lets


def test_many_mistakes_are_fast() -> None:
    text = examples.REGRESSION + "".join(f"let quantity{k} = quantiti{k} + {k}\n" for k in range(1900))
    result = outcome(text)
    assert isinstance(result, ModelError)
    assert len(result.diagnostics) == MAX_REPORTED + 1
    assert takes_less_than(lambda: outcome(text), SECONDS)


def outcome(text: str) -> Declarations | ModelError:
    try:
        return compile_text(text)
    except ModelError as error:
        return error


def assert_inside(text: str) -> None:
    result = outcome(text)
    if isinstance(result, ModelError):
        lines = text.removeprefix("\ufeff").split("\n")
        assert result.diagnostics and str(result)
        for each in result.diagnostics:
            assert 1 <= each.span.line <= len(lines)
            assert 1 <= each.span.column <= len(lines[each.span.line - 1]) + 1


QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = st.sampled_from(
    [
        "model",
        "index",
        "input",
        "output",
        "param",
        "const",
        "latent",
        "let",
        "external",
        "likelihood",
        "infer",
        "x",
        "y",
        "f",
        "p",
        "q",
        "in",
        "real",
        "positive",
        "count",
        "GP",
        "RBF",
        "Normal",
        "sum",
        "exp",
        "max",
        "fixed",
        "1",
        "2",
        "4",
        "0.5",
        "..",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "~",
        "=",
        ":",
        ",",
        "+",
        "-",
        "*",
        "/",
        "^",
        "<",
        "->",
        "|",
        '"a"',
        '"',
        "#",
        "\n",
        "\n",
        " ",
        "D",
        "pi",
        "label",
        "vi",
    ]
)


@QUIET
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert_inside(text)


@QUIET
@given(st.lists(WORDS, max_size=60).map(" ".join))
def test_any_words(text: str) -> None:
    assert_inside(examples.REGRESSION + text)


@QUIET
@given(
    st.sampled_from(sorted(examples.ALL)),
    st.lists(
        st.tuples(st.integers(0, 2000), st.integers(0, 6), st.one_of(WORDS, st.text(max_size=3))),
        min_size=1,
        max_size=4,
    ),
)
def test_damaged_models(name: str, edits: list[tuple[int, int, str]]) -> None:
    text = examples.ALL[name]
    for position, removed, inserted in edits:
        start = position % (len(text) + 1)
        text = text[:start] + inserted + text[start + removed :]
    assert_inside(text)


@QUIET
@given(st.sampled_from(sorted(examples.ALL)), st.integers(0, 2000), st.binary(min_size=1, max_size=4))
def test_damaged_bytes(name: str, position: int, inserted: bytes) -> None:
    data = examples.ALL[name].encode()
    start = position % len(data)
    assert_inside((data[:start] + inserted + data[start + len(inserted) :]).decode("utf-8", errors="replace"))


def test_so_many_names_are_looked_at_for_one_that_is_meant() -> None:
    """A text of thousands of names is refused in time: what is meant is looked for among the first of them."""
    names = [f"quantity{k}" for k in range(MAX_CANDIDATES)]
    assert closest("wheels", [*names[1:], "wheel", "wheal"]) == "wheel"
    assert closest("wheels", [*names, "wheel"]) == ""
