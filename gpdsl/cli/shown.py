"""A model shown otherwise than as its text: `gpdsl latex` as equations, `graph` as a drawing, `info` as a list."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpdsl.cli.options import add_model, add_out, model_of, show_or_write
from gpdsl.errors import GpdslError

# --- latex -----------------------------------------------------------------------------------------------------------


def add_latex(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the text."""
    add_model(parser)
    parser.add_argument("--standalone", action="store_true", help="a whole document instead of a part of one")
    add_out(parser, "FILE.tex")


def run_latex(arguments: argparse.Namespace) -> int:
    """`gpdsl latex`: a model as the equations a paper would print.

    Print or write the equations.
    """
    text = model_of(arguments).latex(standalone=arguments.standalone)
    show_or_write(text, arguments.out)
    return 0


# --- graph -----------------------------------------------------------------------------------------------------------


OTHER = frozenset({".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".eps", ".ps"})
"""Forms of pictures that are not drawn, but that Graphviz makes."""
FORMS = {".svg": "svg", ".dot": "dot", ".gv": "dot"}
"""What is drawn, by the ending of a name."""


def add_graph(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the drawing."""
    add_model(parser)
    parser.add_argument(
        "--format", choices=("svg", "dot"), help="svg: a drawing (default); dot: for Graphviz (default for --out *.dot)"
    )
    add_out(parser, "FILE")


def run_graph(arguments: argparse.Namespace) -> int:
    """`gpdsl graph`: a model as a graphical model with plates, drawn as SVG or described for Graphviz.

    Print or write the drawing.
    """
    suffix = "" if arguments.out is None else Path(arguments.out).suffix.lower()
    if suffix in OTHER:
        stem = Path(arguments.out).with_suffix("")
        raise GpdslError(
            f"--out {arguments.out}: graphs are drawn as SVG, or described for Graphviz: write --out {stem}.svg, or "
            f"--out {stem}.dot and then dot -T{suffix[1:]} {stem}.dot -o {arguments.out}"
        )
    if suffix and suffix not in FORMS and arguments.format is None:
        raise GpdslError(
            f"--out {arguments.out}: expected a name ending in {', '.join(FORMS)}; for another one say --format"
        )
    form = arguments.format or FORMS.get(suffix, "svg")
    show_or_write(model_of(arguments).graph(form), arguments.out)
    return 0


# --- info ------------------------------------------------------------------------------------------------------------


def add_info(parser: argparse.ArgumentParser) -> None:
    """The model, and the form of the list."""
    add_model(parser)
    parser.add_argument("--table", action="store_true", help="tables to read instead of JSON")
    add_out(parser, "FILE.json")


def run_info(arguments: argparse.Namespace) -> int:
    """`gpdsl info`: what a model declares and what it wants of its data, as JSON or as tables.

    Print or write the list.
    """
    if arguments.table and arguments.out is not None:
        raise GpdslError("--table is for reading and --out writes JSON: give one of them")
    information = model_of(arguments).info()
    if arguments.table:
        print_tables(information)
    else:
        show_or_write(json.dumps(information, indent=2, ensure_ascii=False) + "\n", arguments.out)
    return 0


# The tables of `gpdsl info --table`.

Entry = Mapping[str, Any]
Column = tuple[str, Callable[[Entry], str]]


def print_tables(information: Mapping[str, Any]) -> None:
    """One table for each sort of declaration that the model has."""
    console = Console(highlight=False)
    title = f"  {information['title']}" if information["title"] else ""
    console.print(f"[bold]{escape(information['name'])}[/bold]{escape(title)}")
    for key, (heading, columns) in TABLES.items():
        if information[key]:
            console.print(f"[bold]{heading}[/bold]")  # the title of a table breaks where the table is narrow
            console.print(_table(columns, information[key]))
    if information["inference"]:
        shown = ", ".join(f"{name} = {value}" for name, value in information["inference"].items())
        console.print(f"[bold]Inference[/bold]  {escape(shown)}")


def _table(columns: Sequence[Column], entries: Sequence[Entry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, _ in columns:
        table.add_column(name, header_style="dim", overflow="fold")
    for entry in entries:
        table.add_row(*(escape(show(entry)) for _, show in columns))
    return table


def _named(entry: Entry) -> str:
    """The name with its indices: `y[p]`."""
    indices = [axis["index"] for axis in entry["axes"] if axis["index"] is not None]
    return f"{entry['name']}[{', '.join(indices)}]" if indices else str(entry["name"])


def _typed(word: str) -> Callable[[Entry], str]:
    """The type with its bare sizes: `positive[D]`."""

    def show(entry: Entry) -> str:
        sizes = [str(a["size"] or a["dimension"]) for a in entry["axes"] if a["index"] is None]
        label = f"[{entry['label']}]" if entry.get("label") else ""
        return f"{entry[word]}{label}" + (f"[{', '.join(sizes)}]" if sizes else "")

    return show


def _plain(key: str) -> Callable[[Entry], str]:
    return lambda entry: "" if entry[key] is None else str(entry[key])


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounds(entry: Entry) -> str:
    if entry["lower"] is None and entry["upper"] is None:
        return ""
    low = "-inf" if entry["lower"] is None else f"{entry['lower']:g}"
    high = "inf" if entry["upper"] is None else f"{entry['upper']:g}"
    return f"({low}, {high})"


def _start(entry: Entry) -> str:
    unwritten = "by the data" if entry["constraint"] in {"real", "positive"} else "evenly"
    return unwritten if entry["initial"] is None else _short(entry["initial"])


def _prior(entry: Entry) -> str:
    return entry["prior"]["text"] if entry["prior"] else ""


def _cases(entry: Entry) -> str:
    return "\n".join(case["value"] + (f"   where {case['where']}" if case["where"] else "") for case in entry["cases"])


def _columns(entry: Entry) -> str:
    if entry["columns"] is None:
        return f"{entry['name']}1, {entry['name']}2, ... or an array {entry['name']}"
    listed = entry["columns"]
    return ", ".join(listed) if len(listed) <= 6 else f"{listed[0]}, {listed[1]}, ..., {listed[-1]}"


def _signature(entry: Entry) -> str:
    observed = f"{entry['observed']} | " if entry.get("observed") else ""
    parameters = f"; {', '.join(entry['parameters'])}" if entry["parameters"] else ""
    return f"{entry['name']}({observed}{', '.join(entry['arguments'])}{parameters})"


def _passed(entry: Entry) -> str:
    return ", ".join(f"{each['name']}: {_dimensions(each['axes'])}" for each in entry["arguments"])


def _dimensions(axes: Sequence[Entry]) -> str:
    sizes = ", ".join(str(axis["size"] or axis["dimension"]) for axis in axes)
    return f"real[{sizes}]" if sizes else "real"


_FORMULAS: tuple[Column, ...] = (("", _signature), ("value", _plain("value")))

TABLES: Mapping[str, tuple[str, tuple[Column, ...]]] = {
    "data": (
        "Data",
        (
            ("name", _plain("name")),
            ("role", _plain("role")),
            ("columns", _columns),
            ("values", _plain("values")),
            ("sets", lambda entry: ", ".join(entry["binds"])),
        ),
    ),
    "indices": (
        "Indices",
        (
            ("name", _plain("name")),
            ("size", lambda entry: str(entry["size"] or entry["dimension"])),
            ("levels", lambda entry: _short(", ".join(map(str, entry["levels"] or ())))),
        ),
    ),
    "consts": ("Constants", (("name", _named), ("values", lambda entry: _short(entry["values"])))),
    "params": (
        "Parameters",
        (
            ("name", _named),
            ("type", _typed("constraint")),
            ("within", _bounds),
            ("start", _start),
            ("", lambda entry: "fixed" if entry["fixed"] else ""),
            ("prior", _prior),
        ),
    ),
    "rows": ("Row variables", (("name", _named), ("distribution", lambda entry: entry["distribution"]["text"]))),
    "latents": (
        "Latent processes",
        (
            ("name", lambda entry: f"{_named(entry)}({', '.join(entry['arguments'])})"),
            ("mean", _plain("mean")),
            ("kernel", _plain("kernel")),
            ("", lambda entry: "stationary" if entry["stationary"] else ""),
        ),
    ),
    "lets": ("Deterministic quantities", (("name", _named), ("value", _cases))),
    "functions": ("Functions", _FORMULAS),
    "kernels": ("Kernels", _FORMULAS),
    "densities": ("Densities", _FORMULAS),
    "externals": ("Opaque functions", (("name", _plain("name")), ("kind", _plain("kind")), ("arguments", _passed))),
    "observations": ("Observations", (("", _plain("text")), ("where", _plain("where")))),
}
"""What is shown of each sort of declaration."""
