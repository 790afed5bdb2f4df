"""Arguments several commands share: the model, its data, the choices of inference, and where a text goes (`--out`)."""

from __future__ import annotations

import argparse
import csv
import math
import os
import runpy
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpdsl.errors import GpdslError, described
from gpdsl.inference.watch import loading
from gpdsl.language.inducing import OTHERS
from gpdsl.language.options import OPTIONS
from gpdsl.replacing import written

if TYPE_CHECKING:
    from gpdsl.language.model import Declarations, Input, Output
    from gpdsl.model import Model


PICTURES = (".png", ".pdf", ".svg")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model file, and Python files that register what it needs."""
    parser.add_argument("model", metavar="MODEL", help="a .gpm file, or the name of a model of the zoo")
    add_allow(parser)
    add_forward(parser)


def add_several(parser: argparse.ArgumentParser, option: str, metavar: str, meaning: str, **more: Any) -> None:
    """An option that may be given several times, whose values are a list."""
    parser.add_argument(option, metavar=metavar, action="append", default=[], help=meaning, **more)


def add_allow(parser: argparse.ArgumentParser) -> None:
    """`--allow`: folders outside that of the model."""
    add_several(parser, "--allow", "FOLDER", "a folder outside that of the model, with files it uses")


def add_forward(parser: argparse.ArgumentParser) -> None:
    """`--forward`: Python to run before, because the user names it."""
    what = "Python file or module that registers forward models or distributions; it is executed"
    add_several(parser, "--forward", "FILE.py", what)


def add_data(parser: argparse.ArgumentParser) -> None:
    """The data file and the names of its columns."""
    parser.add_argument("--data", metavar="FILE", required=True, help=".csv, .tsv, .parquet or .npz")
    add_columns(parser)


def add_columns(parser: argparse.ArgumentParser) -> None:
    """The names of the columns of a data file."""
    what = "data column of an input or output; several, separated by commas, for a vector"
    add_several(parser, "--column", "NAME=COLUMN", f'{what} ("A,1",B: in double quotes where a name has a comma)')


def add_choices(parser: argparse.ArgumentParser) -> None:
    """The choices of inference: `--set`, `--fix`, `--init`."""
    what = 'a choice of inference: one of the options below; "inducing f=20" for one latent'
    add_several(parser, "--set", "OPTION=VALUE", what, dest="settings")
    add_several(parser, "--fix", "PARAM", "keep a parameter at its initial value")
    add_several(parser, "--init", "PARAM=VALUE", "initial value; commas separate an array's")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = options_text()


def options_text() -> str:
    """What `--set` can choose: every option with its meaning and the values it takes."""
    entries = (f"  {each.name:<17}{each.meaning} ({each.takes.expected})" for each in OPTIONS.values())
    lines = (textwrap.fill(entry.replace("`", ""), 100, subsequent_indent=" " * 19) for entry in entries)
    return "\n".join(["options of inference, --set OPTION=VALUE:", *lines])


def model_of(arguments: argparse.Namespace) -> Model:
    """The model the command line names: a file, or else a model of the zoo. Runs the `--forward` files first."""
    import gpdsl

    run_forward_files(arguments.forward)
    name = arguments.model
    if not os.path.exists(name) and name in gpdsl.zoo_names():
        return gpdsl.zoo(name)
    return gpdsl.load(name, allow=arguments.allow)


def choices_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `Model.fit` from `--set`, `--fix` and `--init`."""
    settings = pairs("--set", arguments.settings)
    if hasattr(arguments, "standardise"):
        settings.pop("standardise", None)  # `standardise_of` takes it
    choices: dict[str, Any] = {}
    for asked, text in settings.items():
        name, _, latent = asked.partition(" ")
        if name == "inducing":
            choices.setdefault(name, {})[latent.strip()] = value_of(text)
        else:
            choices[asked] = value_of(text)
    if choices.get("inducing", {}).keys() == {OTHERS}:
        choices["inducing"] = choices["inducing"][OTHERS]
    if arguments.fix:
        choices["fixed"] = list(arguments.fix)
    if arguments.init:
        choices["init"] = {
            name: numbers_of("--init", name, text) for name, text in pairs("--init", arguments.init).items()
        }
    return choices


def columns_of(arguments: argparse.Namespace, declarations: Declarations) -> dict[str, Any]:
    """The mapping of `--column`; commas separate the columns of a vector, as in a CSV file, and no others."""
    quantities: dict[str, Input | Output] = {**declarations.inputs, **declarations.outputs}
    found = {}
    for name, text in pairs("--column", arguments.column).items():
        scalar = name in quantities and not quantities[name].axes
        parts = [text] if scalar else next(csv.reader([text]))
        found[name] = parts[0] if len(parts) == 1 else parts
    return found


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary. Raises GpdslError for a text without `=`, or a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not value:
            raise GpdslError(f"{option} {text}: expected {option} NAME=VALUE")
        if name in found:
            raise GpdslError(f"{option} {text}: `{name}` is given twice")
        found[name] = value
    return found


WORDS: Mapping[str, bool] = {"true": True, "false": False}
"""As in an `infer` line."""


def value_of(text: str) -> int | float | bool | str:
    """The value a text stands for: whole number, number, true or false, else the text."""
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def numbers_of(option: str, name: str, text: str) -> float | list[float]:
    """The number of `NAME=VALUE`, or the numbers separated by commas. Raises GpdslError for anything else."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as problem:
        raise GpdslError(f"{option} {name}={text}: expected a number, or several separated by commas") from problem
    if not all(math.isfinite(value) for value in values):
        raise GpdslError(f"{option} {name}={text}: expected finite numbers")
    return values if "," in text else values[0]


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """`--size`: dimensions of what is simulated."""
    add_several(parser, "--size", "D=3", "size of a dimension the model leaves open (default 2)")


def sizes_of(arguments: argparse.Namespace) -> dict[str, int]:
    """The sizes of `--size`. Raises GpdslError for what is no whole number."""
    found = {}
    for name, text in pairs("--size", arguments.size).items():
        try:
            found[name] = int(text)
        except ValueError as problem:
            raise GpdslError(f"--size {name}={text}: expected a whole number") from problem
    return found


def check_writable(option: str, path: str | None) -> None:
    """Raise GpdslError for a file that could not be written, before the work that would fill it."""
    if path is None:
        return
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise GpdslError(f"{option} {path}: the folder {folder} does not exist")
    if os.path.isdir(path):
        raise GpdslError(f"{option} {path}: this is a folder, expected the name of a file")
    if not os.access(folder, os.W_OK):
        raise GpdslError(f"{option} {path}: nothing may be written to the folder {folder}")


def check_picture(option: str, path: str | None) -> None:
    """Raise GpdslError for a picture that could not be written."""
    check_writable(option, path)
    if path is None:
        return
    if Path(path).suffix.lower() not in PICTURES:
        raise GpdslError(f"{option} {path}: expected a name ending in {', '.join(PICTURES)}")

    from gpdsl.results.pictures.style import verify_matplotlib

    verify_matplotlib()


# `--standardise`: inputs and outputs with mean 0 and standard deviation 1, by numbers that the fit remembers.

FORM = "expected NAME or NAME=MEAN,SD, NAME an input or output of the model"


def add_standardise(parser: argparse.ArgumentParser) -> None:
    """`--standardise`, alone for all that can be, or with a name, and more than once."""
    what = "fit this input or output less its mean and over its standard deviation; without a name, all that can be"
    add_several(parser, "--standardise", "NAME[=MEAN,SD]", what, nargs="?", const="")


def standardise_of(arguments: argparse.Namespace) -> Any:
    """What `Model.fit(standardise=...)` takes."""
    if arguments.standardise and arguments.data is None:
        raise GpdslError("--standardise: there are no data to standardise; name them with --data")
    named = [text for text in arguments.standardise if text]
    if named and len(named) < len(arguments.standardise):
        raise GpdslError("--standardise without a name takes all that can be: leave the others out")
    set_by_name = pairs("--set", getattr(arguments, "settings", ())).get("standardise")
    if set_by_name is not None and arguments.standardise:
        raise GpdslError(f"--set standardise={set_by_name} and --standardise: leave one of them out")
    if set_by_name is not None:
        return WORDS.get(set_by_name, [name.strip() for name in set_by_name.split(",")])
    return dict(map(_parts, named)) or (True if arguments.standardise else None)


def _parts(text: str) -> tuple[str, tuple[float, float] | None]:
    name, equals, numbers = text.partition("=")
    if not equals and "," in name:
        each = " ".join(f"--standardise {part.strip()}" for part in name.split(",") if part.strip())
        raise GpdslError(f"--standardise {text}: one name at a time, {each}")
    if not equals:
        return name, None
    try:
        mean, sd = (float(number) for number in numbers.split(","))
    except ValueError as problem:
        raise GpdslError(f"--standardise {text}: {FORM}") from problem
    return name, (mean, sd)


# Running the Python files named with `--forward`: the one place where a command runs code of the user's.


def run_forward_files(names: Sequence[str]) -> None:
    """Run each file, or import each module, so that it registers its functions.

    Raises GpdslError for one that is not there, and for one that fails, with the line at which it does.
    """
    if names:
        with loading():
            import jax  # noqa: F401  most of them use it, and a signal while it is loaded may be lost
    for name in names:
        is_file = name.endswith(".py")
        if is_file and not os.path.isfile(name):
            raise GpdslError(f"--forward {name}: no such file")
        try:
            with redirect_stdout(sys.stderr):  # what a command prints is for others to read
                runpy.run_path(name, run_name="gpdsl_forward") if is_file else _import(name)
        except GpdslError:
            raise
        except (Exception, SystemExit) as problem:
            raise GpdslError(f"--forward {name}: {_described(name, problem)}") from problem


def _import(name: str) -> None:
    """Import a module, also from the current folder, as `python -m` does."""
    sys.path.insert(0, "")
    try:
        import_module(name)
    finally:
        sys.path.remove("")


def _described(name: str, problem: BaseException) -> str:
    text = described(problem)
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == name]
    return f"{text} (line {lines[-1]})" if lines else text


def add_out(parser: argparse.ArgumentParser, metavar: str) -> None:
    """`--out`."""
    parser.add_argument("--out", metavar=metavar, help="write to a file instead of standard output")


def show_or_write(text: str, path: str | None) -> None:
    """Print a text that ends with a newline, or write it to a file. Raises GpdslError when that cannot be done."""
    if path is None:
        sys.stdout.write(text)
        return
    check_writable("--out", path)
    with written(path, said=f"--out {path}") as file:
        file.write(text)
    print(f"written to {path}")
