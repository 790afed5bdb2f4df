"""`gpdsl fmt`: lay model files out in the canonical way; neither the model nor a comment changes."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpdsl.cli.console import print_error
from gpdsl.errors import GpdslError
from gpdsl.language import format_text
from gpdsl.language.used import LARGEST, decoded, read_exactly
from gpdsl.replacing import replacing

_STANDARD = "-"
_CHANGED, _SAME, _FAILED = "changed", "same", "failed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files, and whether they are written."""
    parser.add_argument(
        "files", metavar="FILE.gpm", nargs="+", help="files, folders (all .gpm files in them), or - for standard input"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; list the files that would change, exit 1")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run(arguments: argparse.Namespace) -> int:
    """Format every file; 1 when one has a mistake, or, with `--check`, when one would change."""
    outcomes = {_format(name, arguments.check, arguments.diff) for name in _expanded(arguments.files)}
    return int(_FAILED in outcomes or (arguments.check and _CHANGED in outcomes))


def _expanded(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name != _STANDARD and os.path.isdir(name):
            yield from map(str, sorted(Path(name).rglob("*.gpm")))
        else:
            yield name


def _format(name: str, check: bool, diff: bool) -> str:
    try:
        text = _read(name)
        formatted = format_text(text, name="<standard input>" if name == _STANDARD else name)
        if check or diff:
            _report(name, text, formatted, check, diff)
        elif name == _STANDARD:
            sys.stdout.flush()
            sys.stdout.buffer.write(formatted.encode("utf-8"))
            sys.stdout.buffer.flush()
        elif formatted != text:
            with replacing(name) as file:
                file.write(formatted)
            print(f"{name}: formatted")
    except GpdslError as error:
        print_error(error)
        return _FAILED
    except OSError as problem:
        print_error(GpdslError(f"{name}: {problem.strerror}"))
        return _FAILED
    return _CHANGED if formatted != text else _SAME


def _read(name: str) -> str:
    """The text with its own line ends; a return alone, which ends a line for all other commands, as a new line."""
    text = decoded(sys.stdin.buffer.read(LARGEST + 1), name) if name == _STANDARD else read_exactly(name)
    return re.sub(r"\r(?!\n)", "\n", text)


def _report(name: str, text: str, formatted: str, check: bool, diff: bool) -> None:
    if formatted == text:
        return
    if check:
        print(f"{name}: would be formatted")
    if diff:
        before, after = (io.StringIO(each, newline="\n").readlines() for each in (text, formatted))
        for line in difflib.unified_diff(before, after, name, f"{name} (formatted)"):
            # A last line without its end would run into the next one.
            print(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n", end="")
