"""Names in whole models: what stands for the same thing is renamed together, and the model stays the same model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.language.vocabulary import Source, Span
from gpdsl.lsp import occurrences
from gpdsl.lsp.completion import complete, hover
from gpdsl.lsp.occurrences import Document, read
from tests.language import generator

ZOO = sorted((Path(__file__).parents[2] / "models").glob("*.gpm"))
TEXT = """model m
input  x : real
output y : real
param a : positive = 1
param mean : real = 0
function t(r; a, b) = r + a * tanh(b * r)
density d(r | s) = -abs(r) / s - log(2 * s)
latent f(x) ~ GP(mean, RBF(1))
let r = t(f; b = a) + t(f; a = 2, b = 3)
y ~ d(s = exp(r))
"""


def document(text: str) -> Document:
    return read(Source(text, "m.gpm"))


def renamed(text: str, line: int, column: int, new: str) -> str:
    lines = text.split("\n")
    for span in reversed(occurrences.rename(document(text), line, column, new)):
        old = lines[span.line - 1]
        lines[span.line - 1] = old[: span.column - 1] + new + old[span.end_column - 1 :]
    return "\n".join(lines)


def test_an_argument_is_renamed_in_its_own_definition() -> None:
    """`r` is an argument of two definitions and a quantity of the model; `b` is also given by name in calls."""
    of_t = TEXT.replace("t(r;", "t(z;").replace("= r +", "= z +").replace("b * r", "b * z")
    assert renamed(TEXT, 6, 12, "z") == of_t
    assert renamed(TEXT, 9, 5, "z") == TEXT.replace("let r", "let z").replace("exp(r)", "exp(z)")
    by_name = TEXT.replace("a, b)", "a, z)").replace("tanh(b", "tanh(z").replace("b =", "z =")
    assert renamed(TEXT, 6, 18, "z") == by_name
    assert occurrences.definition(document(TEXT), 9, 14) == [Span(6, 18, 6, 19)]


def test_a_parameter_that_stands_for_a_quantity_is_renamed_with_it() -> None:
    whole = TEXT.replace("param a", "param z").replace("(r; a, b) = r + a *", "(r; z, b) = r + z *")
    assert renamed(TEXT, 4, 7, "z") == whole.replace("b = a", "b = z").replace("(f; a = 2", "(f; z = 2")


def test_a_quantity_named_like_a_function_is_the_quantity() -> None:
    assert renamed(TEXT, 8, 18, "level") == TEXT.replace("param mean", "param level").replace("GP(mean", "GP(level")


def test_layers_are_renamed_in_all_their_cases() -> None:
    text = (
        "index l in 1..3\ninput x : real\noutput y : real\nparam ell[l] : positive = 1\n"
        "latent h[1](x) ~ GP(x, RBF(ell[1]))\n"
        "latent h[l > 1](h[l - 1]) ~ GP(h[l - 1], RBF(ell[l], on = h[l - 1]))\n"
        "y ~ Normal(h[3], 0.1)\ninfer vi: inducing h = 9"
    )
    changed = renamed(text, 6, 17, "deep")
    assert changed.count("deep") == 7 and "h" not in changed.replace("deep", "")
    assert [*compile_text(changed).latents] == ["deep_1", "deep_2", "deep_3"]
    assert renamed(text, 1, 7, "k") == text.replace("l >", "k >").replace("l -", "k -").replace("[l]", "[k]").replace(
        "index l", "index k"
    )
    found = hover(document(text), 6, 8)
    assert found is not None and "latent" in found[0] and "of `x`" in found[0]


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_every_name_of_the_zoo_can_be_renamed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    known = document(text)
    assert known.mistakes == ()
    for place in {each.name: each for each in known.occurrences if each.declares}.values():
        changed = renamed(text, place.span.line, place.span.column, "renamed_")
        compile_text(changed)
        assert changed != text and changed.replace("renamed_", place.name) == text


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(generator.texts(size=3))
def test_any_text_can_be_asked_about_anywhere(text: str) -> None:
    """Half-written statements included: every question has an answer or a refusal, at every word."""
    for shown in (text, text[: 2 * len(text) // 3]):
        known = document(shown)
        for each in known.occurrences:
            assert known.text_at(each.span) == each.name
            line, column = each.span.line, each.span.column
            found = hover(known, line, column)
            assert found is None or found[1] == each.span
            assert each.span in occurrences.references(known, line, column)
            try:
                assert each.span in occurrences.rename(known, line, column, "renamed_")
            except GpdslError as refusal:
                assert "of the language" in str(refusal)
        for number, line_text in enumerate(shown.split("\n"), 1):
            complete(known, number, len(line_text) + 1)


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("latent g(", {"x", "f"}, {"a", "exp"}),
        ("latent g(x) ~ ", {"GP"}, {"Normal", "RBF"}),
        ("latent g(x) ~ GP(a, RBF(", {"ell = ", "on = ", "a"}, {"Normal"}),
        ("let q = t(f; ", {"b = ", "a = ", "f"}, {"RBF"}),
        ("y ~ ", {"Normal", "d"}, {"t", "RBF"}),
        ("index p ", {"in"}, {"x"}),
        ("infer ", {"vi"}, {"x"}),
        ("infer vi: ", {"posterior", "samples"}, {"x"}),
        ("infer vi: samples = 3, posterior = ", {"full"}, {"quadrature"}),
        ("infer vi: inducing ", {"f"}, {"x"}),
        ("infer vi: ", {"learning_rate", "fixed"}, {"power", "features"}),
        ("infer qsgp: ", {"features", "dtype"}, {"power", "inducing"}),
        ("infer vi: init ", {"mean"}, {"x", "f"}),
        ("infer vi: fixed = ", {"mean"}, {"x", "f"}),
        ("infer vi: dtype = ", {"float32"}, {"full"}),
        ("param s : positive ", {"fixed"}, {"RBF"}),
        ("param s : real(", {"lower = ", "upper = "}, {"in"}),
        ("input t : ", {"time", "real"}, {"unit"}),
        ("input t : time(", {"per = hour", "per = day"}, {"lower = "}),
        ("external ", {"likelihood"}, {"x"}),
        ("external g(a: ", {"real"}, {"x"}),
        ("let ", set(), {"x", "exp"}),
        ('model m "', set(), {"x"}),
    ],
)
def test_completion_knows_the_place(line: str, offered: set[str], not_offered: set[str]) -> None:
    text = TEXT + line
    found = {each.text for each in complete(document(text), text.count("\n") + 1, len(line) + 1)}
    assert offered <= found
    assert not found & not_offered
    assert bool(found) == bool(offered)
