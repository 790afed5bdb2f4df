"""The formatter: one layout for every text of a model, the model and its comments untouched."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import gpdsl
from gpdsl.language import ModelError, Source, format_text, parse
from gpdsl.language.parser import grammar, split
from gpdsl.language.vocabulary import Span
from tests.goldens import GOLDEN, assert_golden

from . import generator

ROOT = Path(__file__).parents[2]
ZOO = sorted((ROOT / "models").glob("*.gpm"))
UNFORMATTED = sorted((GOLDEN / "formatted").glob("*.gpm"))
quickly = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
thoroughly = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


def meaning(node: Any) -> Any:
    """A syntax tree as nested tuples, places left out."""
    if dataclasses.is_dataclass(node):
        fields = [getattr(node, each.name) for each in dataclasses.fields(node)]
        return (type(node).__name__, *(meaning(each) for each in fields if not isinstance(each, Span)))
    if isinstance(node, tuple):
        return tuple(meaning(each) for each in node if not isinstance(each, Span))
    return node


def read(text: str) -> tuple[Any, ...]:
    tree = parse(Source(text))
    assert tree.mistakes == (), text
    return tuple(meaning(each) for each in tree.statements)


def comments(text: str) -> list[str]:
    return [found.strip() for found in re.findall(r'"[^"\n]*"|(#[^\n]*)', text) if found]


def assert_only_laid_out(text: str) -> str:
    formatted = format_text(text)
    assert read(formatted) == read(text), text
    assert comments(formatted) == comments(text)
    assert format_text(formatted) == formatted
    assert all(line == line.rstrip() for line in formatted.split("\n"))
    assert "\n\n\n" not in formatted and not formatted.startswith("\n") and not formatted.endswith("\n\n")
    assert formatted.endswith("\n") or formatted == ""
    return formatted


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_the_zoo(path: Path) -> None:
    assert_only_laid_out(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", UNFORMATTED, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    formatted = assert_only_laid_out(path.read_text(encoding="utf-8"))
    assert_golden(f"formatted/{path.stem}.txt", formatted.removesuffix("\n"))


def test_golden_texts_hold_every_statement() -> None:
    shown = {type(each) for path in UNFORMATTED for each in parse(Source(path.read_text(encoding="utf-8"))).statements}
    assert {each.__name__ for each in shown} == {each.__name__ for each in gpdsl.language.syntax.Statement.__args__}


@quickly
@given(generator.texts(size=4))
def test_any_text(text: str) -> None:
    assert_only_laid_out(text)


@quickly
@given(generator.models())
def test_any_model(text: str) -> None:
    assert_only_laid_out(text)


@pytest.mark.slow
@thoroughly
@given(st.one_of(generator.texts(), generator.models()))
def test_any_text_at_length(text: str) -> None:
    assert_only_laid_out(text)


@quickly
@given(st.data())
def test_respaced_zoo(data: st.DataObject) -> None:
    """The layout before does not matter, except where the user broke lines."""
    source = Source(data.draw(st.sampled_from(ZOO)).read_text(encoding="utf-8"))
    lines = [line for line in source.text.split("\n") if line and not line.startswith("#")]
    assert lines
    spaced = []
    for piece in split(source)[0]:
        words = tuple(map(str, grammar().parse_interactive(piece.text).iter_parse()))
        spaced.append(data.draw(generator.spaced(words)))
    text = data.draw(st.sampled_from(("\n", "\n\n\n", "\n# (\n", "\r\n"))).join(spaced)
    assert_only_laid_out(text.replace("\r\n", "\n"))
    assert read(text) == read("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("written", "formatted"),
    [
        ("let a=-b-- c^ - 2 ^-d", "let a = -b - -c^-2^-d"),
        ("let a = ( - b )*( -( c ) )", "let a = (-b) * (-(c))"),
        ("let a=w [p ,q]+w[ p-1,q ]", "let a = w[p,q] + w[p - 1, q]"),
        ("let a[p>1 , q]=sum( q,h [ 1 ..3 ] )@b", "let a[p > 1, q] = sum(q, h[1..3]) @ b"),
        ("let a=if x>0 and(not y<1)then-1 else(2)", "let a = if x > 0 and (not y < 1) then -1 else (2)"),
        ("let a = h[1. .. 3] + h[2 .. .5]", "let a = h[1. ..3] + h[2.. .5]"),
        ("index c in{ 4,-7 , \"a\" }", 'index c in {4, -7, "a"}'),
        ("index p in 1 .. P", "index p in 1..P"),
        ("param s:real [4 ,D]( lower=- 1 )", None),
        ("param s:real( lower=- 1 )[4 ,D]=[[1,2],[3,4]]fixed~Normal( 0,1 )",
         "param s : real(lower = -1)[4,D] = [[1, 2], [3, 4]] fixed ~ Normal(0, 1)"),
        ("external g( a :real[4],b:real )->real [ 4 ]", "external g(a: real[4], b: real) -> real[4]"),
        ("external likelihood g(t:real|a :real)", "external likelihood g(t: real | a: real)"),
        ("density d(y|mu;s)=-y", "density d(y | mu; s) = -y"),
        ("(t,u)~g( a )", "(t, u) ~ g(a)"),
        ("infer vi :posterior=mixture( 2 ),inducing f=points(200)",
         "infer vi: posterior = mixture(2), inducing f = points(200)"),
        ("latent w [p,q] ( x,a )~GP( 0,RBF (1) )", "latent w[p,q](x, a) ~ GP(0, RBF(1))"),
        ("let a = then - in + fixed [1]", "let a = then - in + fixed[1]"),
    ],
)  # fmt: skip
def test_spacing(written: str, formatted: str | None) -> None:
    if formatted is None:
        with pytest.raises(ModelError):
            format_text(written)
    else:
        assert assert_only_laid_out(written) == formatted + "\n"


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_the_zoo_is_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_text(text) == text, f"run `gpdsl fmt {path.relative_to(ROOT)}`"


def test_columns_of_right_sides_stay_where_the_user_began_them() -> None:
    text = "latent f(x) ~ GP(0,  s2*RBF(ell))\nlatent g(x)~GP(m[1],s2  * RBF(1, on = x))\n"
    assert assert_only_laid_out(text) == (
        "latent f(x) ~ GP(0,    s2 * RBF(ell))\nlatent g(x) ~ GP(m[1], s2 * RBF(1, on = x))\n"
    )
    assert assert_only_laid_out("let a = b*c   + 1\nlet d = b +1\nlet e = bb*c + 10\n") == (
        "let a = b * c + 1\nlet d = b + 1\nlet e = bb * c + 10\n"
    )
    assert assert_only_laid_out("param a : real = 1  ~ Normal(0, 1)\nparam b : real = 0.5 ~ Normal(0, 1)\n") == (
        "param a : real = 1   ~ Normal(0, 1)\nparam b : real = 0.5 ~ Normal(0, 1)\n"
    )
    assert assert_only_laid_out("const W = [\n[1,   0.5],# one\n[0.25,1]\n]\n") == (
        "const W = [\n    [1,    0.5],    # one\n    [0.25, 1]\n]\n"
    )


def test_right_sides_without_columns_get_none() -> None:
    text = "let a = b + c\nlet a2 = long_name + c\n"
    assert assert_only_laid_out(text) == "let a  = b + c\nlet a2 = long_name + c\n"


def test_columns_end_at_an_empty_line() -> None:
    text = "param a:real=1 # one\n# about it\nparam longer:positive = 2\n\nparam b:real=3#3\n"
    assert assert_only_laid_out(text) == (
        "param a      : real     = 1    # one\n# about it\nparam longer : positive = 2\n\nparam b : real = 3    #3\n"
    )


def test_columns_count_what_a_terminal_shows() -> None:
    assert format_text("let 長さ=1\nlet é=2\nlet abc=3\n") == "let 長さ = 1\nlet é   = 2\nlet abc  = 3\n".replace(
        "é  ", "é   "
    )


def test_line_breaks_inside_brackets_stay() -> None:
    text = "const a=[ # first\n1,\n\n  # why\n 2\n   ]\nlet b = sum(p,(\n a[p]\n +1))"
    assert assert_only_laid_out(text) == (
        "const a = [    # first\n    1,\n    # why\n    2\n]\nlet b = sum(p, (\n    a[p]\n    + 1))\n"
    )


def test_a_long_line_does_not_push_the_comments_of_the_others() -> None:
    text = f"let a = 1 # one\nlet b = {' + '.join('f' * 40)} # two\n"
    assert format_text(text).startswith("let a = 1    # one\n")


def test_line_ends_and_byte_order_mark() -> None:
    assert format_text("\ufeffmodel  m\r\ninput x:real # é\r\n") == "model m\r\ninput x : real    # é\r\n"
    assert format_text("model  m\ninput x:real\r\n") == "model m\ninput x : real\n"
    assert [format_text(text) for text in ("", "\n \n", "# only\n\n")] == ["", "", "# only\n"]


def test_a_broken_text_is_refused_with_its_mistakes() -> None:
    with pytest.raises(ModelError) as caught:
        gpdsl.format_text("latent f(x) - GP(0, RBF(1))\nlet a = (\n", name="broken.gpm")
    assert [each.code for each in caught.value.diagnostics] == ["E102", "E105"]
    assert "broken.gpm:1:13" in str(caught.value)


def test_a_long_list_of_mistakes_is_cut() -> None:
    with pytest.raises(ModelError) as caught:
        format_text("lett a = 1\n" * 3000)
    assert len(caught.value.diagnostics) == 101
    assert "2900 more errors are not shown" in str(caught.value)


def test_undeclared_names_are_no_matter() -> None:
    assert format_text("y~Normal(f,s)") == "y ~ Normal(f, s)\n"


def test_time_grows_with_the_length() -> None:
    """One statement of thousands of rows, which a formatter that starts again at every row would not finish."""
    rows = "\n".join("1," for _ in range(5_000))
    assert format_text(f"const a = [\n{rows}\n2]").count("\n") == 5_002
