"""The tables of benchmarks/papers/RESULTS.md are what was recorded, in the units that they name."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).resolve().parents[1] / "benchmarks" / "papers"
sys.path.insert(0, str(PAPERS))
recorded = importlib.import_module("recorded")
sys.path.remove(str(PAPERS))


def test_the_page_has_every_record_and_nothing_else() -> None:
    text = recorded.RESULTS.read_text(encoding="utf-8")
    assert recorded.rebuilt(text) == text, "run `make papers`"
    for path in (PAPERS / "recorded").glob("*.csv"):
        assert f"<!-- table: {path.stem} -->" in text
        assert all(row["commit"] for row in recorded.read(path.stem))


def test_densities_stand_in_both_units() -> None:
    lines = [line.split(" | ") for line in recorded.qsgp_table_2().splitlines()[2:]]
    for row, line in zip(recorded.read("qsgp_table_2"), lines, strict=True):
        raw, standardised = (float(cell.split()[0]) for cell in line[4:6])
        assert raw - standardised == pytest.approx(float(row["log_sd"]), abs=1.1e-3)
        # No variance does better on a residual of this size than the square of it, if it is the same in every row.
        constant = math.log(float(row["rmse"])) + 0.5 * math.log(2 * math.pi * math.e)
        assert raw > constant - 0.1


def test_a_row_is_replaced_or_stands_beside_its_kin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "HERE", tmp_path)
    monkeypatch.setattr(recorded, "commit", lambda: "1234567")
    (tmp_path / "recorded").mkdir()
    path = tmp_path / "recorded" / "t.csv"
    path.write_text('data,how,error,commit,stale\na,x,1,0000000,old\n"b, c",x,2,0000000,\n')
    recorded.record("t", ["data", "how"], {"data": "a", "how": "x", "error": 0.123456})
    recorded.record("t", ["data", "how"], {"data": "a", "how": "y", "error": 3})
    assert path.read_text() == (
        'data,how,error,commit,stale\na,x,0.1235,1234567,\na,y,3,1234567,\n"b, c",x,2,0000000,\n'
    )
    made = recorded.rebuilt("<!-- table: t -->\nold\n<!-- end -->\n")
    assert "| a | x | 0.1235 | 1234567 |" in made and "old" not in made
