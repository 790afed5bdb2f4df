"""The one exception type and the one warning that a user can meet, and how they quote what others wrote."""

from __future__ import annotations

import html
from typing import Any

LONGEST_QUOTE = 2000
"""Characters of a text by a user's function, a server or a file."""


def printable(text: str) -> str:
    """A text of lines without what could move the cursor or recolour the terminal: models and data are untrusted."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "�" for each in text)


def quoted(foreign: object) -> str:
    """What an exception of a user's function, a server or a file says, for a message: one line of bounded length."""
    try:
        text = str(foreign)
    except Exception:  # noqa: BLE001 - an exception of the user's may fail to describe itself
        text = f"(a {type(foreign).__name__} without words)"
    text = " ".join(text[: 2 * LONGEST_QUOTE].split())
    return printable(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…")


def preformatted(text: str) -> str:
    """A text as HTML, for notebooks: nothing in it is markup."""
    return f"<pre>{html.escape(printable(text))}</pre>"


def described(problem: BaseException) -> str:
    """The type and the words of an exception, for a message."""
    name, text = type(problem).__name__, quoted(problem)
    return quoted(f"{name}: {text}" if text else name)


def plural(count: float, noun: str, digits: str = "") -> str:
    """A number, written so, with its noun: 1 row, 2 rows, 0.3 nats."""
    number = f"{count:{digits}}"
    ending = "" if number == "1" else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


class _Printable:
    """An exception whose text steers no terminal, whatever it quotes."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(each) if isinstance(each, str) else each for each in arguments))


class GpdslError(_Printable, Exception):
    """Base of every error a user can cause; its text says where, what was expected and what to do."""

    fit: Any = None
    """The fit that could not be saved, or what was reached of one that ended so."""


class GpdslWarning(_Printable, UserWarning):
    """Base of every warning of a computation that goes on nevertheless."""


# What a saved fit says is looked through by those who know what it must be.


class Damaged(ValueError):
    """What a file says is not what a fit can be."""


def need(true: object, what: str) -> None:
    """Raise Damaged, saying what is wrong, unless it is true."""
    if not true:
        raise Damaged(what)


def shown(value: object) -> str:
    """The beginning of what a file says in some place."""
    return repr(value)[:60]
