"""Text to syntax tree: statements are told apart even when some are broken, and every node knows its place."""

from __future__ import annotations

from gpdsl.language import Source, parse, syntax
from gpdsl.language.vocabulary import Span

from . import examples


def test_statements_in_order() -> None:
    tree = parse(Source(examples.SEISMIC))
    assert [type(each).__name__.removesuffix("Statement").lower() for each in tree.statements] == [
        "model",
        "index",
        "input",
        "output",
        "const",
        "const",
        "const",
        "latent",
        "latent",
        "external",
        "let",
        "observation",
    ]
    assert tree.mistakes == ()


def test_open_bracket_does_not_swallow_the_next_statement() -> None:
    tree = parse(Source("let a = sum(q, f[q]\nlet b = (1 +\n 2)\nt[p] ~ Normal(b\nu ~ Normal(b, 1)\n"))
    assert [each.code for each in tree.mistakes] == ["E105", "E105"]
    assert [each.span.line for each in tree.statements] == [2, 5]
    assert {"a", "t"} <= tree.lost


def test_spans_are_those_of_the_file() -> None:
    tree = parse(Source("# first\n\n  let g = exp(\n    f[p - 1])\n"))
    (statement,) = tree.statements
    assert isinstance(statement, syntax.LetStatement)
    assert statement.span == Span(3, 3, 4, 14)
    call = statement.value
    assert isinstance(call, syntax.Call) and call.arguments[0].value.span == Span(4, 5, 4, 13)


def test_comments_and_brackets_in_texts_are_text() -> None:
    tree = parse(Source('model m "a # b ( c"  # (\nindex c in {"(", "]"}\n'))
    model, index = tree.statements
    assert isinstance(model, syntax.ModelStatement) and model.title == "a # b ( c"
    assert isinstance(index, syntax.IndexStatement) and [level for level, _ in index.levels] == ["(", "]"]


def test_keywords_begin_statements_only_as_whole_words() -> None:
    (statement,) = parse(Source("inputs ~ Normal(modeling, letter)\n")).statements
    assert isinstance(statement, syntax.ObservationStatement)


def test_ranges_are_not_decimal_points() -> None:
    (statement,) = parse(Source("index p in 1..4")).statements
    assert isinstance(statement, syntax.IndexStatement) and statement.start is not None
    assert (statement.start.value, statement.stop.value.value) == (1, 4)  # type: ignore[union-attr]
