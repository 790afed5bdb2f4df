"""The `gpdsl` command: check, explain, fit, predict, zoo.

`main` parses the command line and runs one command; what goes wrong by the user's doing is printed without a traceback.
Exit codes: 0 done, 1 a mistake in a model, data or options, 2 a mistake in the command line, 130 interrupted by Ctrl-C
and 143 by SIGTERM: whoever sends it wants what Ctrl-C does, the state kept and no temporary files left.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gpdsl.cli.console import plain_warnings, print_error
from gpdsl.errors import GpdslError
from gpdsl.inference.watch import exit_code, loading, watching

COMMANDS = {
    "check": ("texts", "report every mistake in model files"),
    "completion": ("completion", "print a script that completes command lines in your shell"),
    "explain": ("fits", "print how a model would be fitted to data, and why"),
    "fit": ("fits", "fit a model to data"),
    "fmt": ("texts", "lay model files out in the canonical way"),
    "graph": ("shown", "draw a model as a graph with plates"),
    "info": ("shown", "list what a model declares and what it wants of its data"),
    "latex": ("shown", "print a model as LaTeX equations"),
    "lsp": ("texts", "serve an editor: mistakes as you type, hover, completion, rename, format"),
    "new": ("new", "start a model of your own, from one of the zoo or from your data"),
    "plot": ("saved", "draw a saved fit as a picture"),
    "predict": ("saved", "predict rows of data with a saved fit"),
    "report": ("saved", "write a web page about a saved fit"),
    "sbc": ("fits", "calibrate: whether intervals hold what they say"),
    "serve": ("saved", "offer a saved fit as an UM-Bridge server"),
    "simulate": ("fits", "draw data from a model's own prior"),
    "zoo": ("new", "list, print or copy the models shipped with gpdsl"),
}
"""The module of every command, and what it is for. It is loaded where it is asked for: `add_NAME` takes a parser, and
`run_NAME` the arguments; its first sentence is that of the help."""

DONE, MISTAKE = 0, 1
READ, WRITTEN = ("model", "fit", "data", "inputs"), ("out", "truth", "plot")
"""Arguments that name files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (that of the process by default) and return the exit code."""
    with watching(waits=False), plain_warnings():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    try:
        with loading():
            own = sys.argv[1:] if argv is None else argv
            parser = make_parser(next((each for each in own if each in COMMANDS), ""))
        try:
            for each in own:
                if each.startswith("--") and each.partition("=")[2] == "--":  # no text for argparse of Python 3.11
                    parser.error(f"argument {each[:-3]}: expected a value, got --")
            arguments, rest = parser.parse_known_args(argv)
            if rest:
                _refuse(arguments.parser, rest)
        except SystemExit as stop:  # argparse has printed the usage, or the help
            return stop.code if isinstance(stop.code, int) else 2
        _keep_what_is_read(arguments)
        code: int = arguments.run(arguments)
        if sys.stdout is not None:  # as in `>&-`
            sys.stdout.flush()
    except GpdslError as error:
        print_error(error)
        return MISTAKE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exit_code()
    except OSError as error:
        if error.filename is None and sys.stdout is not None:
            # The reader, such as `head`, has seen enough, or the disk is full; nor may Python complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return DONE
        print_error(GpdslError(f"{error.filename or 'what is printed cannot be written'}: {error.strerror or error}"))
        return MISTAKE
    return code


def _keep_what_is_read(arguments: argparse.Namespace) -> None:
    """Raise GpdslError where a file that is to be written is one that the command reads, or writes otherwise."""
    given = {name: getattr(arguments, name, None) for name in (*READ, *WRITTEN)}
    try:
        paths = {name: os.path.realpath(path) for name, path in given.items() if path}
    except ValueError:  # a name with a NUL or half a character in it: whoever opens the file says so
        return
    for name in WRITTEN:
        other = next((each for each in paths if each != name and paths[each] == paths.get(name)), None)
        if other is not None:
            which = f"--{other}" if other in ("data", "inputs", *WRITTEN) else other
            raise GpdslError(f"--{name} {given[name]}: that is the file of {which}, which would be lost: name another")


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole command line, or all commands and the arguments of one: each command's module adds its own."""
    import gpdsl

    parser = argparse.ArgumentParser(
        prog="gpdsl", description="Gaussian-process models, written as on paper and fitted."
    )
    parser.add_argument("--version", action="version", version=f"gpdsl {gpdsl.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (file, purpose) in COMMANDS.items():
        if only not in (None, name):
            commands.add_parser(name, help=purpose)
            continue
        module = import_module(f"gpdsl.cli.{file}")
        run = getattr(module, f"run_{name}")
        sentence = (run.__doc__ or "").split("\n")[0]
        command = commands.add_parser(name, help=purpose, description=sentence, allow_abbrev=False)
        getattr(module, f"add_{name}")(command)
        command.set_defaults(run=run, parser=command)
    return parser


def _refuse(parser: argparse.ArgumentParser, rest: Sequence[str]) -> None:
    """Leave with what is no argument of a command, and the option that may have been meant."""
    known = [option for action in parser._actions for option in action.option_strings]
    near = (_near(each.partition("=")[0], known) for each in rest if each.startswith("-"))
    meant = "".join(f"; did you mean {option}?" for option in dict.fromkeys(filter(None, near)))
    parser.error(f"unrecognized arguments: {' '.join(rest)}{meant}")


def _near(asked: str, known: Sequence[str]) -> str:
    """An option like the one asked for; where a command infers, also an option of inference by any of its names."""
    from gpdsl.language.options import OPTIONS
    from gpdsl.language.takes import OPTIONS as HABITS
    from gpdsl.language.vocabulary import closest

    word = asked.strip("-").replace("-", "_").lower()
    option = word if word in OPTIONS else HABITS.get(word, "")
    if f"--{option}" in known:
        return f"--{option}"
    return f"--set {option}=..." if option in OPTIONS and "--set" in known else closest(asked, known)
