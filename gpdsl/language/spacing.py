"""Where a blank stands between two tokens of a statement, and where none does."""

from __future__ import annotations

from collections.abc import Sequence

from lark import Token

_OPENERS, _CLOSERS = frozenset("([{"), frozenset(")]}")
_VALUES = frozenset({"NAME", "NUMBER", "TEXT"})
_TIGHT = frozenset({"^", ".."})


def blanks(tokens: Sequence[Token]) -> list[bool]:
    """For every token of a statement, whether a blank stands before it when it follows another on the same row."""
    openers = _openers(tokens)
    plain = {each for each in set(openers) if each is not None and _is_plain(tokens, openers, each)}
    return [
        place > 0 and _blank(tokens, place, openers[place] is None, openers[place] in plain)
        for place in range(len(tokens))
    ]


def _openers(tokens: Sequence[Token]) -> list[int | None]:
    """For every token the place of the bracket it stands in; a closing bracket stands outside its own."""
    found: list[int | None] = []
    stack: list[int] = []
    for place, token in enumerate(tokens):
        if token in _CLOSERS:
            stack.pop()
        found.append(stack[-1] if stack else None)
        if token in _OPENERS:
            stack.append(place)
    return found


def _is_plain(tokens: Sequence[Token], openers: Sequence[int | None], opener: int) -> bool:
    """Whether a bracket holds subscripts or sizes of one token each, which stand close: `w[p,q]`, `real[4,D]`."""
    if tokens[opener] != "[" or opener == 0 or not (tokens[opener - 1].type == "NAME" or tokens[opener - 1] == ")"):
        return False
    place, commas = opener + 1, False
    while openers[place] == opener:
        if (tokens[place] == ",") is not commas:
            return False
        commas = not commas
        place += 1
    return True


def _blank(tokens: Sequence[Token], place: int, outside: bool, plain: bool) -> bool:
    previous, token = tokens[place - 1], tokens[place]
    if previous in _OPENERS or token in _CLOSERS or token in (",", ";"):
        return False
    if previous in _TIGHT or token in _TIGHT:
        # `1.` and `..`, or `..` and `.5`, would be read as other numbers when written together.
        return previous.endswith(".") and token.startswith(".")
    if previous == "-" and not _subtracts(tokens, place - 1):
        return False
    if token in ("(", "["):
        # A call or subscripts belong to the name before them; after a sign or a word such as `then` they group.
        return not (previous.type == "NAME" or previous + token in ("](", ")["))
    if previous == ",":
        return not plain
    return token != ":" or (outside and tokens[0].type != "INFER")


def _subtracts(tokens: Sequence[Token], place: int) -> bool:
    """Whether the minus at `place` is an operator and no sign: something with a value stands before it."""
    return place > 0 and (tokens[place - 1].type in _VALUES or tokens[place - 1] in _CLOSERS)
