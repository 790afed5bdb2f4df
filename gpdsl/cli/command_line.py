"""The command line as data: commands, their options, and what can complete each value."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option: how it is written, what it means, and what completes its value: None where it takes none."""

    flags: tuple[str, ...]
    meaning: str
    words: tuple[str, ...] | None = None
    files: bool = False


@dataclass(frozen=True)
class Command:
    """A command with its options, and what completes its other words."""

    name: str
    meaning: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    files: bool = False


def commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """What the parser of the command line knows."""
    known = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    meanings = {each.dest: each.help or "" for each in known._choices_actions}
    for name, command in known.choices.items():
        options = tuple(_option(each) for each in command._actions if each.option_strings)
        other = [each for each in command._actions if not each.option_strings]
        words = tuple(word for each in other for word in _words(each))
        yield Command(name, meanings[name], options, words, any(_takes_files(each) for each in other))


def _option(action: argparse.Action) -> Option:
    flags, meaning = tuple(action.option_strings), (action.help or "").split("\n")[0]
    if action.nargs == 0:
        return Option(flags, meaning)
    return Option(flags, meaning, _words(action), _takes_files(action))


def _words(action: argparse.Action) -> tuple[str, ...]:
    """The values that can be listed: choices, options of inference, models of the zoo."""
    import gpdsl
    from gpdsl.language.options import OPTIONS

    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.metavar == "OPTION=VALUE":
        return tuple(f"{name}=" for name in OPTIONS)
    return tuple(gpdsl.zoo_names()) if action.metavar in ("MODEL", "ZOO_MODEL") else ()


def _takes_files(action: argparse.Action) -> bool:
    """Whether a value may be a file or a folder."""
    shown = str(action.metavar)
    return shown == "MODEL" or "FILE" in shown or "FOLDER" in shown
