"""The yearly figures of the demo agree with the same explosions counted in bins of 50 days."""

from __future__ import annotations

import csv
import os
from datetime import date, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST_DAY = date(1851, 3, 15)
HALF_BIN = timedelta(days=25)
Bin = tuple[date, date, int]


def yearly() -> dict[int, int]:
    with (ROOT / "examples/data/coal_mining_disasters.csv").open(newline="") as file:
        return {int(row["year"]): int(row["disasters"]) for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def bins() -> list[Bin]:
    """(first day, day after the last, count) of each bin."""
    folder = Path(os.environ.get("GPDSL_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "coal_mining.csv"
    if not path.exists():
        pytest.skip("the binned counts are not here: set GPDSL_DATA to the folder that holds coal_mining.csv")
    with path.open(newline="") as file:
        rows = [(FIRST_DAY + timedelta(days=float(row["x"])), int(row["count"])) for row in csv.DictReader(file)]
    return [(centre - HALF_BIN, centre + HALF_BIN, count) for centre, count in rows]


def test_the_figures_cover_1851_to_1961() -> None:
    counts = yearly()
    assert list(counts) == list(range(1851, 1962))
    assert min(counts.values()) == 0
    assert max(counts.values()) == 6
    assert sum(counts.values()) == 190


def test_the_total_agrees_with_the_bins(bins: list[Bin]) -> None:
    in_1962 = sum(count for first, _, count in bins if first >= date(1962, 1, 1))
    straddling = sum(count for first, end, count in bins if first < date(1962, 1, 1) < end)
    assert sum(count for *_, count in bins) == 191
    assert (in_1962, straddling) == (1, 0)
    assert sum(yearly().values()) == 191 - in_1962


def test_each_year_agrees_with_the_bins(bins: list[Bin]) -> None:
    """At each New Year the running total lies between the bins surely before it and those that may reach past it."""
    outside = []
    running = 0
    for year, count in yearly().items():
        running += count
        new_year = date(year + 1, 1, 1)
        surely = sum(n for _, end, n in bins if end <= new_year)
        possibly = sum(n for first, _, n in bins if first < new_year)
        if not surely <= running <= possibly:
            outside.append((year, surely, running, possibly))
    assert outside == []
