"""The texts of models: `gpdsl check` finds their mistakes, `fmt` lays them out, `lsp` serves the editor they are in."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpdsl.cli import options
from gpdsl.cli.console import print_error, print_mistakes
from gpdsl.errors import GpdslError, plural
from gpdsl.language import ModelError, Reach, format_text, render_json
from gpdsl.language.model import Declarations
from gpdsl.language.used import LARGEST, decoded, read_exactly, read_model
from gpdsl.language.warnings import Report
from gpdsl.replacing import replacing
from gpdsl.symbolic.checking import all_warnings, compile_checked, grave_warnings

# --- check -----------------------------------------------------------------------------------------------------------


def add_check(parser: argparse.ArgumentParser) -> None:
    """The files, how much to say, and the form of the report."""
    parser.add_argument("files", metavar="FILE.gpm", nargs="+")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one list, for editors")
    parser.add_argument("--pedantic", action="store_true", help="warn about what can be fitted but is hardly meant")
    parser.add_argument("--strict", action="store_true", help="as --pedantic, and a warning is a failure")
    parser.add_argument("--data", metavar="FILE", help="data to check the models against, and their length-scales")
    options.add_columns(parser)
    options.add_standardise(parser)
    options.add_allow(parser)
    options.add_forward(parser)


def run_check(arguments: argparse.Namespace) -> int:
    """`gpdsl check`: read models and report every mistake in them, without fitting anything.

    Check every file; 1 when any has a mistake, or a warning with `--strict`.
    """
    options.run_forward_files(arguments.forward)
    pedantic = arguments.pedantic or arguments.strict
    checked = {name: _check(name, pedantic, arguments) for name in arguments.files}
    if arguments.format == "json":
        print(json.dumps([each for name, found in checked.items() for each in _as_json(name, found)], indent=2))
    else:
        for name, found in checked.items():
            _print(name, found)
    return int(any(isinstance(each, GpdslError) or (arguments.strict and each) for each in checked.values()))


def _print(name: str, found: GpdslError | Report) -> None:
    if isinstance(found, GpdslError):
        print_error(found)
    elif found:
        print_mistakes(found.source, found.warnings)
        print(f"{name}: ok, {plural(len(found), 'warning')}")
    else:
        print(f"{name}: ok")


def _check(name: str, pedantic: bool, arguments: argparse.Namespace) -> GpdslError | Report:
    """What one file comes to: an error, or warnings."""
    try:
        text, reach = read_model(name), Reach.of(None, arguments.allow, model=name)
        declarations = compile_checked(text, name, reach, library=True)
        spreads = _spreads(declarations, arguments)
    except GpdslError as error:
        return error
    return all_warnings(declarations, spreads) if pedantic else grave_warnings(declarations)


def _spreads(declarations: Declarations, arguments: argparse.Namespace) -> dict[str, tuple[float, ...]] | None:
    columns, standardise = options.columns_of(arguments, declarations), options.standardise_of(arguments)
    if arguments.data is None:
        return None
    from gpdsl.program.standardise import spreads_in

    return spreads_in(declarations, arguments.data, columns, standardise)


def _as_json(name: str, found: GpdslError | Report) -> list[dict[str, Any]]:
    if isinstance(found, GpdslError) and not isinstance(found, ModelError):
        return [{"file": name, "severity": "error", "code": "", "message": str(found)}]
    mistakes = found.diagnostics if isinstance(found, ModelError) else found.warnings
    return list(json.loads(render_json(found.source, mistakes)))


# --- fmt -------------------------------------------------------------------------------------------------------------


_STANDARD = "-"
_CHANGED, _SAME, _FAILED = "changed", "same", "failed"


def add_fmt(parser: argparse.ArgumentParser) -> None:
    """The files, and whether they are written."""
    parser.add_argument(
        "files", metavar="FILE.gpm", nargs="+", help="files, folders (all .gpm files in them), or - for standard input"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; list the files that would change, exit 1")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run_fmt(arguments: argparse.Namespace) -> int:
    """`gpdsl fmt`: lay model files out in the canonical way; neither the model nor a comment changes.

    Format every file; 1 when one has a mistake, or, with `--check`, when one would change.
    """
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


# --- lsp -------------------------------------------------------------------------------------------------------------


def add_lsp(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose: editors add `--stdio` by habit."""
    parser.add_argument("--stdio", action="store_true", help="standard input and output, which is the only way")


def run_lsp(arguments: argparse.Namespace) -> int:
    """`gpdsl lsp`: the language server; an editor starts it and speaks to it over standard input and output.

    Serve until the editor says goodbye.
    """
    try:
        from gpdsl.lsp.server import make_server
    except ImportError as problem:
        if problem.name is None or problem.name.split(".")[0] not in {"pygls", "lsprotocol"}:
            raise
        raise GpdslError("the language server needs the package pygls: pip install 'gpdsl[lsp]'") from problem
    # The server closes what it writes to; standard output stays open for the command to end as all others do.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        make_server().start_io(sys.stdin.buffer, answers)
    return 0
