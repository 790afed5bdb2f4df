"""`gpdsl lsp`: the language server; an editor starts it and speaks to it over standard input and output."""

from __future__ import annotations

import argparse
import os
import sys

from gpdsl.errors import GpdslError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose: editors add `--stdio` by habit."""
    parser.add_argument("--stdio", action="store_true", help="standard input and output, which is the only way")


def run(arguments: argparse.Namespace) -> int:
    """Serve until the editor says goodbye."""
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
