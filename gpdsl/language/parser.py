"""Text to syntax tree: every statement that has the form of one, and a mistake for every one that has not."""

from __future__ import annotations

from functools import lru_cache

from lark import Lark, Tree
from lark.exceptions import UnexpectedInput

from gpdsl.language.errors.base import Mistake
from gpdsl.language.errors.limits import TooDeep
from gpdsl.language.limits import MAX_DEPTH
from gpdsl.language.misread import misread, misspelt_statement
from gpdsl.language.shipped import shipped
from gpdsl.language.source import Source, Span
from gpdsl.language.statements import Piece, split
from gpdsl.language.syntax import Statement, SyntaxTree
from gpdsl.language.transform import ToSyntax

# Rules that add no operator of their own: brackets are counted by the splitter.
_WRAPPERS = frozenset({"group", "positional", "named", "at", "subscripts"})


@lru_cache(maxsize=1)
def grammar() -> Lark:
    """The parser of one statement, built from `grammar/gpm.lark` on first use."""
    text = shipped("grammar").joinpath("gpm.lark").read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer="contextual", start="statement", propagate_positions=True, maybe_placeholders=True
    )


def parse(source: Source) -> SyntaxTree:
    """The syntax tree of a text. Never raises: what cannot be read is in `mistakes`, and its names in `lost`."""
    pieces, mistakes = split(source)
    statements: list[Statement] = []
    lost: set[str] = set()
    for piece in pieces:
        outcome = None if piece.broken else parse_piece(piece)
        if outcome is None or isinstance(outcome, Mistake):
            mistakes.extend([outcome] if outcome is not None else [])
            lost.update(piece.words())
        else:
            statements.append(outcome)
    return SyntaxTree(source, tuple(statements), tuple(mistakes), frozenset(lost))


def parse_piece(piece: Piece) -> Statement | Mistake:
    """The statement of one piece, or why it is none."""
    wrong_word = misspelt_statement(piece)
    if wrong_word is not None:
        return wrong_word
    try:
        tree = grammar().parse(piece.text)
    except UnexpectedInput as problem:
        return misread(problem, piece, grammar())
    too_deep = _too_deep(tree, piece.line)
    return too_deep if too_deep is not None else ToSyntax(piece.line).transform(tree)


def _too_deep(tree: Tree, line: int) -> Mistake | None:
    """A mistake when operators nest too deep to be walked by recursion; found without recursion."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        depth += node.data not in _WRAPPERS
        if depth > MAX_DEPTH:
            first = line + node.meta.line - 1
            return TooDeep(Span(first, node.meta.column, first, node.meta.column + 1), MAX_DEPTH)
        stack.extend((child, depth) for child in node.children if isinstance(child, Tree))
    return None
