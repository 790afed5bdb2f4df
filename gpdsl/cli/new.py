"""Models to start from: `gpdsl zoo` shows those there are, `new` writes one of your own."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path

from gpdsl.cli.options import check_writable
from gpdsl.errors import GpdslError
from gpdsl.replacing import written

# --- zoo -------------------------------------------------------------------------------------------------------------


def add_zoo(parser: argparse.ArgumentParser) -> None:
    """The model, and where to copy it."""
    parser.add_argument("name", metavar="ZOO_MODEL", nargs="?", help="print this model")
    parser.add_argument("--out", metavar="FILE.gpm", help="write the model to a file that does not exist yet")


def run_zoo(arguments: argparse.Namespace) -> int:
    """`gpdsl zoo`: list the models shipped with the package, print one, or copy it to a file.

    List or show.
    """
    import gpdsl

    if arguments.name is None:
        print_zoo()
        return 0
    text = gpdsl.zoo_text(arguments.name)
    if arguments.out is None:
        print(text, end="")
        return 0
    check_writable("--out", arguments.out)
    try:
        # "x": a model the user has edited is never overwritten.
        with Path(arguments.out).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise GpdslError(f"--out {arguments.out}: {problem.strerror}") from problem
    print(f"written to {arguments.out}")
    return 0


def print_zoo() -> None:
    """The models with their titles."""
    import gpdsl

    names = gpdsl.zoo_names()
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}  {gpdsl.zoo(name).title}")


# --- new -------------------------------------------------------------------------------------------------------------


_NAME = re.compile(r"[^\W\d]\w*")
_MODEL = re.compile(r"^(\s*model\s+)([^\W\d]\w*)", re.MULTILINE)


def add_new(parser: argparse.ArgumentParser) -> None:
    """The new model's name, what it starts from, and where it goes."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the new model, or its file NAME.gpm")
    parser.add_argument("--from", metavar="ZOO_MODEL", dest="start", help="model of the zoo to start from")
    parser.add_argument("--data", metavar="FILE", help="data to look at: a model for its columns is written")
    parser.add_argument("--output", metavar="COLUMN", help="with --data, the column to be modelled (the last one)")
    parser.add_argument("--out", metavar="FILE.gpm", help="file to write (NAME.gpm), which must not exist yet")


def run_new(arguments: argparse.Namespace) -> int:
    """`gpdsl new`: start a model from one of the zoo, or from what the columns of a data file look like.

    List the models there are, or write one under its new name.
    """
    if arguments.output is not None and arguments.data is None:
        raise GpdslError("--output names a column of the data: name their file with --data")
    if arguments.start is not None and arguments.data is not None:
        raise GpdslError("--from and --data: a model starts from one of them")
    if arguments.data is not None:
        return _from_data(arguments)
    if arguments.start is None:
        if arguments.name is not None or arguments.out is not None:
            raise GpdslError(
                "what to start from? Write --data and the file of your data, or --from and one of these models:\n"
                + _listed()
            )
        print_zoo()
        print("\nstart from one of them: gpdsl new NAME --from MODEL, or from your data: gpdsl new NAME --data FILE")
        return 0
    name, path = _destination(arguments, arguments.start)
    _write(path, renamed(arguments.start, name))
    print(
        f"written to {path}. Edit it; then\n"
        f"  gpdsl check {path}\n"
        f"  gpdsl info {path} --table                # what it wants of its data\n"
        f"  gpdsl simulate {path} --rows 200 --seed 1 --out simulated.csv\n"
        f"  gpdsl fit {path} --data simulated.csv --out {name}.gpfit"
    )
    return 0


def _from_data(arguments: argparse.Namespace) -> int:
    """Write a model of a data file."""
    from gpdsl.cli.draft import draft
    from gpdsl.data import read_table

    stem = re.sub(r"\W+", "_", Path(arguments.data).stem).strip("_")
    name, path = _destination(arguments, _spared(stem) if _NAME.fullmatch(stem) else "first")
    _check_name(name)
    made = draft(read_table(arguments.data), name, arguments.output)
    _write(path, made.text)
    columns = "".join(" --column " + shlex.quote(f"{name}={column}") for name, column in made.columns.items())
    data = f"--data {shlex.quote(arguments.data)}{columns}"
    other = f"; {made.passed}" if made.passed else ""
    print(
        f"written to {path}, for the output `{made.output}`"
        f"{f' (--output takes another{other})' if arguments.output is None else ''}. Edit it; then\n"
        f"  gpdsl check {path} {data}\n"
        f"  gpdsl fit {path} {data} --out {name}.gpfit\n"
        f"  gpdsl predict {name}.gpfit --data {shlex.quote(arguments.data)} --out predictions.csv"
    )
    return 0


def _destination(arguments: argparse.Namespace, start: str) -> tuple[str, str]:
    """The name of the new model and its file; either may say the other, and NAME.gpm stands for both."""
    name, path = arguments.name, arguments.out
    if name is not None and name.endswith(".gpm"):
        name, path = Path(name).stem, path or name
    name = name or (_spared(Path(path).stem) if path else start)
    return name, path or f"{name}.gpm"


def _spared(stem: str) -> str:
    """The name of a model in a file that is called as a word of the language."""
    return stem if _may_be(stem) or not _NAME.fullmatch(stem) else f"{stem}_"


def renamed(start: str, name: str) -> str:
    """The text of a model of the zoo under another name. Raises GpdslError for a name that a model cannot have."""
    import gpdsl

    _check_name(name)
    return _MODEL.sub(lambda found: found[1] + name, gpdsl.zoo_text(start), count=1)


def _may_be(name: str) -> bool:
    from gpdsl.language.vocabulary import STATEMENTS

    return bool(_NAME.fullmatch(name)) and name not in STATEMENTS


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) and not _may_be(name):
        raise GpdslError(f"`{name}` is a word of the language: name the model otherwise, as `{name}_`")
    if not _may_be(name):
        raise GpdslError(f"`{name}` cannot be the name of a model: expected letters, digits and `_`, a letter first")


def _write(path: str, text: str) -> None:
    check_writable("--out", path)
    if os.path.lexists(path):  # a model the user has edited is never overwritten
        raise GpdslError(f"{path} exists already; choose another name, or another file with --out")
    with written(path, said=f"--out {path}") as file:
        file.write(text)


def _listed() -> str:
    import gpdsl

    return "  " + ", ".join(gpdsl.zoo_names())
