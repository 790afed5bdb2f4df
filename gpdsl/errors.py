"""The one exception type and the one warning that a user can meet, and how they quote what others wrote."""

from __future__ import annotations

import html
from importlib import import_module
from typing import Any, ClassVar, Self, dataclass_transform

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


def needed(package: str, what: str, extra: str) -> Any:
    """A package that is not always there. Raises GpdslError where it is not installed, with the extra that has it."""
    try:
        return import_module(package)
    except ImportError as problem:
        raise GpdslError(f"{what} needs {package}: install gpdsl[{extra}]") from problem


def plural(count: float, noun: str, digits: str = "") -> str:
    """A number, written so, with its noun: 1 row, 2 rows, 0.3 nats."""
    number = f"{count:{digits}}"
    if "e+" in number and abs(count) < 1e6:  # 1.2e+02
        number = f"{float(number):,.0f}"
    ending = "" if number == "1" else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


class _Printable:
    """An exception whose text steers no terminal, whatever it quotes."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(printable(each) if isinstance(each, str) else each for each in arguments))

    def __reduce__(self) -> tuple[Any, ...]:
        """By its text and what else it holds: those that are made from mistakes come back from other processes too."""
        return _revived, (type(self), self.args, vars(self))  # type: ignore[attr-defined]


def _revived(kind: type[BaseException], arguments: tuple[object, ...], held: dict[str, Any]) -> BaseException:
    found = kind.__new__(kind, *arguments)
    vars(found).update(held)
    return found


class GpdslError(_Printable, Exception):
    """Base of every error a user can cause; its text says where, what was expected and what to do."""

    fit: Any = None
    """The fit that could not be saved, or what was reached of one that ended so."""


class GpdslWarning(_Printable, UserWarning):
    """Base of every warning of a computation that goes on nevertheless."""


@dataclass_transform(frozen_default=True)
class Worded:
    """What went wrong, as a value. Subclasses name its fields, which fill the templates of their messages.

    They are records as dataclasses are, without the methods that these generate for each class: for some three hundred
    mistakes that would take a third of a second of every start.
    """

    code: ClassVar[str] = ""
    message: ClassVar[str] = ""
    help: ClassVar[str] = ""
    _fields: ClassVar[tuple[str, ...]] = ()
    """Of the fields, in order."""

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code
        own = [name for name, of in cls.__dict__.get("__annotations__", {}).items() if not of.startswith("ClassVar")]
        cls._fields = tuple(dict.fromkeys([*cls._fields, *own]))

    def __init__(self, *values: object, **named: object) -> None:
        given = {**dict(zip(self._fields, values, strict=False)), **named}
        known = [name for name in self._fields if name in given or hasattr(type(self), name)]
        if len(known) < len(self._fields) or len(given) < len(values) + len(named) or not given.keys() <= set(known):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}; got {', '.join(given)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values().items())})"

    def _values(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def but(self, **changed: object) -> Self:
        """The same with other values of some fields."""
        return type(self)(**{**self._values(), **changed})

    def filled(self, template: str) -> str:
        """A template with the fields in their places."""
        return template.format(**self._values())

    def message_text(self) -> str:
        """What is wrong, in one sentence."""
        return self.filled(self.message)

    def help_text(self) -> str:
        """What to do: the template of the class, or its field `remedy`; may be empty."""
        return self.filled(self.help) or getattr(self, "remedy", "")


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
