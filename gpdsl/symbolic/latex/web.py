"""The whole text for a web page: equations as MathML, and the sentences about data and parameters around them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpdsl.errors import printable
from gpdsl.language import model as m
from gpdsl.symbolic.latex.document import sentences
from gpdsl.symbolic.latex.equations import Equations
from gpdsl.symbolic.latex.lines import Line, aligned
from gpdsl.symbolic.latex.mathml import lines_of, mathml, plain


def web(declarations: m.Declarations) -> str:
    """The model as HTML without scripts or styles; `class` marks what a page may style."""
    equations = Equations(declarations)
    body = [_block(equations.lines())]
    if definitions := equations.definitions():
        body += ["<p>where</p>", _block(definitions)]
    body += [f"<p><b>{word}.</b> {_sentence(sentence)}.</p>" for word, sentence in sentences(equations)]
    return "\n".join(body)


def _block(lines: Sequence[Line]) -> str:
    inside = aligned(lines).removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}")
    return lines_of(printable(inside))


def _sentence(text: str) -> str:
    """Words and, between dollar signs, formulas."""
    parts = printable(text).replace(r"\$", "\0").split("$")
    shown = [mathml(part) if number % 2 else escape(plain(part)) for number, part in enumerate(parts)]
    return "".join(shown).replace("\0", "$")
