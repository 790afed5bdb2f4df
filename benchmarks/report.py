"""Where benchmarks find their data and how they print their tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = Console(width=None if Console().is_terminal else 140, highlight=False)


def find_data(*names: str) -> list[Path] | None:
    """Paths of data files, or None, saying so, when any of them is absent."""
    folder = Path(os.environ.get("GPDSL_DATA", ROOT.parent / "shared" / "data"))
    paths = [folder / name for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if not path.exists()]
    if missing:
        CONSOLE.print(
            f"skipped: no {', '.join(missing)} in the data folder; set GPDSL_DATA to the folder that holds them"
        )
        return None
    return paths


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Print one table; numbers are shown with four digits."""
    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    CONSOLE.print(table)


def verdict(what: str, value: float, limit: float, *, least: bool = False) -> None:
    """One line: a demand, what was measured, and whether it holds."""
    holds = value >= limit if least else value <= limit
    sign = ">=" if least else "<="
    CONSOLE.print(f"{'holds' if holds else 'FAILS'}: {what}: {value:.4g} (demanded {sign} {limit:g})")
