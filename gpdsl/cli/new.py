"""`gpdsl new`: start a model from one of the zoo, under a name of its own."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from gpdsl.cli.options import check_writable
from gpdsl.cli.zoo import print_zoo
from gpdsl.errors import GpdslError
from gpdsl.replacing import replacing

HELP = "start a model of your own from one of the zoo"

_NAME = re.compile(r"[^\W\d]\w*")
_MODEL = re.compile(r"^(\s*model\s+)([^\W\d]\w*)", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The new model's name, what it starts from, and where it goes."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the new model, or its file NAME.gpm")
    parser.add_argument("--from", metavar="MODEL", dest="start", help="model of the zoo to start from")
    parser.add_argument("--out", metavar="FILE.gpm", help="file to write (NAME.gpm), which must not exist yet")


def run(arguments: argparse.Namespace) -> int:
    """List the models there are, or write one under its new name."""
    if arguments.start is None:
        if arguments.name is not None or arguments.out is not None:
            raise GpdslError(f"what to start from? Write --from and one of these models:\n{_listed()}")
        print_zoo()
        print("\nstart from one of them: gpdsl new NAME --from MODEL")
        return 0
    name, path = _destination(arguments)
    _write(path, renamed(arguments.start, name))
    print(
        f"written to {path}. Edit it; then\n"
        f"  gpdsl check {path}\n"
        f"  gpdsl info {path} --table                # what it wants of its data\n"
        f"  gpdsl simulate {path} --rows 200 --seed 1 --out simulated.csv\n"
        f"  gpdsl fit {path} --data simulated.csv --out {name}.gpfit"
    )
    return 0


def _destination(arguments: argparse.Namespace) -> tuple[str, str]:
    """The name of the new model and its file; either may say the other, and NAME.gpm stands for both."""
    name, path = arguments.name, arguments.out
    if name is not None and name.endswith(".gpm"):
        name, path = Path(name).stem, path or name
    name = name or (Path(path).stem if path else arguments.start)
    return name, path or f"{name}.gpm"


def renamed(start: str, name: str) -> str:
    """The text of a model of the zoo under another name. Raises GpdslError for a name that a model cannot have."""
    import gpdsl
    from gpdsl.language.vocabulary import STATEMENTS

    if not _NAME.fullmatch(name) or name in STATEMENTS:
        raise GpdslError(f"`{name}` cannot be the name of a model: expected letters, digits and `_`, a letter first")
    return _MODEL.sub(lambda found: found[1] + name, gpdsl.zoo_text(start), count=1)


def _write(path: str, text: str) -> None:
    check_writable("--out", path)
    if os.path.lexists(path):  # a model the user has edited is never overwritten
        raise GpdslError(f"{path} exists already; choose another name, or another file with --out")
    try:
        with replacing(path) as file:
            file.write(text)
    except OSError as problem:
        raise GpdslError(f"--out {path}: {problem.strerror}") from problem


def _listed() -> str:
    import gpdsl

    return "  " + ", ".join(gpdsl.zoo_names())
