"""`gpdsl check`: read models and report every mistake in them, without data and without computing anything."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gpdsl.cli.console import print_error
from gpdsl.errors import GpdslError
from gpdsl.language import ModelError, compile_text, render_json

HELP = "report every mistake in model files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files, and the form of the report."""
    parser.add_argument("files", metavar="FILE.gpm", nargs="+")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one list, for editors")


def run(arguments: argparse.Namespace) -> int:
    """Check every file; 1 when any has a mistake."""
    errors = {name: _error_of(name) for name in arguments.files}
    if arguments.format == "json":
        print(json.dumps([each for name, error in errors.items() for each in _as_json(name, error)], indent=2))
    else:
        for name, error in errors.items():
            if error is None:
                print(f"{name}: ok")
            else:
                print_error(error)
    return int(any(error is not None for error in errors.values()))


def _error_of(name: str) -> GpdslError | None:
    try:
        compile_text(Path(name).read_text(encoding="utf-8"), name=name)
    except GpdslError as error:
        return error
    except OSError as problem:
        return GpdslError(f"{name}: {problem.strerror}")
    except UnicodeDecodeError as problem:
        return GpdslError(f"{name}: not UTF-8 text (byte {problem.start})")
    return None


def _as_json(name: str, error: GpdslError | None) -> list[dict[str, Any]]:
    if error is None:
        return []
    if isinstance(error, ModelError):
        return list(json.loads(render_json(error.source, error.diagnostics)))
    return [{"file": name, "severity": "error", "code": "", "message": str(error)}]
