"""Lines of an aligned block of equations, broken where they would run over the margin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpdsl.language import model as m
from gpdsl.symbolic.latex.expressions import SUM, Expressions, parenthesised

WIDTH, _SLACK = 74, 6
"""Letters that fit on a line, and how many more a formula may take that cannot be broken."""


@dataclass(frozen=True)
class Line:
    """`left relation right`, and what it holds for, at length and in short.

    The right side is in terms, before each of which it may be broken.
    """

    left: str
    relation: str
    right: tuple[str, ...]
    where: str = ""
    short: str = ""

    def rows(self, room: int) -> list[str]:
        """The right side, broken before terms that would not fit."""
        rows = [self.right[0]]
        for term in self.right[1:]:
            if width(f"{rows[-1]} {term}") <= room:
                rows[-1] += f" {term}"
            else:
                rows.append(term)
        return rows

    def text(self, where: str, room: int, *, below: bool) -> str:
        """The line of an `align*` block; `room` is for the right side, `below` puts what it holds for under it."""
        first, *rest = self.rows(room)
        beside = rf" && {where}" if where and not below else ""
        under = [rf"  &\qquad {where}"] if where and below else []
        return " \\\\\n".join(
            [rf"{self.left} &{self.relation} {first}{beside}", *(rf"  &\quad {{}} {r}" for r in rest), *under]
        )


def width(text: str) -> int:
    """About how many letters wide a formula is on paper."""
    text = re.sub(r"\\(left|right|mathrm|mathbf|mathcal|operatorname|boldsymbol|text|quad|bigl|bigr|[,;!])", "", text)
    if r"\begin{cases}" in text:
        inside = re.split(r"\\\\(?:\[14pt\])?|\\(?:begin|end)\{cases\}", text)
        return max(map(width, inside)) + 4
    text = _fractions_flattened(text.replace(r"\dfrac", r"\frac"))
    return len(re.sub(r"[{}^_&\s]", "", re.sub(r"\\[a-zA-Z]+", "x", text)))


def _fractions_flattened(text: str) -> str:
    """Fractions as wide as the wider of their halves, other groups without their braces."""
    text, before = text.replace(r"\frac", "¦"), ""
    while text != before:
        before = text
        # What stands above or below the line is printed smaller.
        text = re.sub(r"[_^]\{([^{}]*)\}", lambda found: found[1][: -(-2 * len(found[1]) // 3)], text)
        text = re.sub(r"(?<![¦}_^])\{([^{}]*)\}", r"\1", text)
        text = re.sub(r"¦\{([^{}]*)\}\{([^{}]*)\}", lambda found: max(found[1], found[2], key=len), text)
    return text


def aligned(lines: Sequence[Line]) -> str:
    """An `align*` block; where the ranges of indices do not fit beside it, it only says which indices are meant."""
    left = max(width(each.left + each.relation) for each in lines)
    right = max(width(" ".join(each.right)) for each in lines)
    wheres = [each.where for each in lines]
    if left + min(right, WIDTH // 2) + max(map(width, wheres)) > WIDTH:
        wheres = [each.short for each in lines]
    room = WIDTH - left - max(map(width, wheres))
    below = max(width(row) for each in lines for row in each.rows(room)) > room + _SLACK
    if below:
        room = WIDTH - left
    shown = (each.text(where, room, below=below) for each, where in zip(lines, wheres, strict=True))
    return "\\begin{align*}\n" + " \\\\\n".join(shown) + "\n\\end{align*}"


def terms(printer: Expressions, expression: m.Expression) -> tuple[str, ...]:
    """The terms of a sum, each with its sign; anything else is one term."""
    match expression:
        case m.Operation(operator="+" | "-" as sign, operands=(left, right)):
            last = printer.printed(right)
            bare = last.level > SUM or (sign == "+" and not last.text.startswith("-"))
            return (*terms(printer, left), f"{sign} {last.text if bare else parenthesised(last.text)}")
    return (printer.text(expression),)
