"""`gpdsl check`: read models and report every mistake in them, without fitting anything."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

from gpdsl.cli import options
from gpdsl.cli.console import print_error, print_mistakes
from gpdsl.errors import GpdslError, plural
from gpdsl.language import ModelError, Reach, render_json
from gpdsl.language.model import Declarations
from gpdsl.language.used import read_model
from gpdsl.language.warnings import Report
from gpdsl.symbolic.checking import all_warnings, compile_checked, grave_warnings


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


@dataclass(frozen=True)
class _Checked:
    """What one file came to: an error, or warnings."""

    error: GpdslError | None = None
    warnings: Report | None = None


def run(arguments: argparse.Namespace) -> int:
    """Check every file; 1 when any has a mistake, or a warning with `--strict`."""
    options.run_forward_files(arguments.forward)
    pedantic = arguments.pedantic or arguments.strict
    checked = {name: _check(name, pedantic, arguments) for name in arguments.files}
    if arguments.format == "json":
        print(json.dumps([each for name, found in checked.items() for each in _as_json(name, found)], indent=2))
    else:
        for name, found in checked.items():
            _print(name, found)
    failed = [each for each in checked.values() if each.error is not None or (arguments.strict and each.warnings)]
    return int(bool(failed))


def _print(name: str, found: _Checked) -> None:
    if found.error is not None:
        print_error(found.error)
    elif found.warnings:
        print_mistakes(found.warnings.source, found.warnings.warnings)
        count = len(found.warnings)
        print(f"{name}: ok, {plural(count, 'warning')}")
    else:
        print(f"{name}: ok")


def _check(name: str, pedantic: bool, arguments: argparse.Namespace) -> _Checked:
    try:
        text, reach = read_model(name), Reach.of(None, arguments.allow, model=name)
        declarations = compile_checked(text, name, reach, library=True)
        spreads = _spreads(declarations, arguments)
    except GpdslError as error:
        return _Checked(error)
    return _Checked(warnings=all_warnings(declarations, spreads) if pedantic else grave_warnings(declarations))


def _spreads(declarations: Declarations, arguments: argparse.Namespace) -> dict[str, tuple[float, ...]] | None:
    columns, standardise = options.columns_of(arguments, declarations), options.standardise_of(arguments)
    if arguments.data is None:
        return None
    from gpdsl.program.standardise import spreads_in

    return spreads_in(declarations, arguments.data, columns, standardise)


def _as_json(name: str, found: _Checked) -> list[dict[str, Any]]:
    if found.warnings is not None:
        return list(json.loads(render_json(found.warnings.source, found.warnings.warnings)))
    if isinstance(found.error, ModelError):
        return list(json.loads(render_json(found.error.source, found.error.diagnostics)))
    if found.error is not None:
        return [{"file": name, "severity": "error", "code": "", "message": str(found.error)}]
    return []
