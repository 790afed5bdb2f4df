"""What was measured, kept in `recorded/*.csv`, and the tables of RESULTS.md made of it: `make papers`.

Every row says at which commit it was measured; a row whose number a later commit may have changed says why under
`stale`, and is marked with an asterisk. Tables stand in RESULTS.md between `<!-- table: NAME -->` and `<!-- end -->`,
and nothing is written there by hand.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
Row = Mapping[str, str]


def read(table: str) -> list[dict[str, str]]:
    """The rows of a table as they were recorded."""
    with (HERE / "recorded" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def record(table: str, key: Sequence[str], row: Mapping[str, object]) -> None:
    """Put a measured row in the place of the one with the same key, else beside its kin, with the commit it is of."""
    new = {"commit": commit(), "stale": "", **{name: _shown(value) for name, value in row.items()}}
    rows = read(table)
    names = list(rows[0])
    same = [i for i, old in enumerate(rows) if all(old[name] == new[name] for name in key)]
    beside = [i + 1 for i, old in enumerate(rows) if old[key[0]] == new[key[0]]]
    place = same[0] if same else (beside[0] if beside else len(rows))
    rows[place : place + len(same)] = [{name: new.get(name, "") for name in names}]
    with (HERE / "recorded" / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def commit() -> str:
    """The commit of the working tree, with a + where files differ from it."""
    run = lambda *words: subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True).stdout.strip()  # noqa: E731
    return run("rev-parse", "--short=7", "HEAD") + "+" * bool(run("status", "--porcelain", "--", "../../gpdsl"))


def qsgp_table_2() -> str:
    """QSGP table 2 in both units: a density of y in its own unit is that of standardised y over sd(y)."""
    rows = []
    for row in read("qsgp_table_2"):
        shift = float(row["log_sd"]) * (1 if row["unit"] == "standardised" else -1)
        other = _number(float(row["mnlp"]) + shift) if row["mnlp"] else ""
        spread = f" ± {row['mnlp_sd']}" if row["mnlp_sd"] else ""
        own = row["mnlp"] + spread
        raw, standardised = (other, own) if row["unit"] == "standardised" else (own, other + spread)
        rmse = f"{row['rmse']} ± {row['rmse_sd']}" if row["rmse_sd"] else row["rmse"]
        rows.append([row["data"], row["method"], row["splits"], rmse, raw, standardised, row["cpu_s"], _where(row)])
    columns = ("data", "method", "splits", "RMSE", "MNLP of y", "MNLP of standardised y", "CPU s", "measured at")
    return _table(columns, rows)


def plain(table: str) -> str:
    """A table as it was recorded, its last two columns as one."""
    rows = read(table)
    names = [name for name in rows[0] if name not in {"commit", "stale"}]
    return _table([*names, "measured at"], [[*(row[name] for name in names), _where(row)] for row in rows])


def rebuilt(text: str) -> str:
    """RESULTS.md with every table as its records say."""
    return re.sub(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", lambda m: m[1] + _made(m[2]) + m[3], text, flags=re.S)


def _made(table: str) -> str:
    made = qsgp_table_2() if table == "qsgp_table_2" else plain(table)
    reasons = list(dict.fromkeys(row["stale"] for row in read(table) if row["stale"]))
    return "\n" + made + "".join(f"\n\\* {reason}\n" for reason in reasons) + "\n"


def _where(row: Row) -> str:
    return row["commit"] + "\\*" * bool(row["stale"])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(value: float) -> str:
    return f"{value:.3f}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Write the tables."""
    RESULTS.write_text(rebuilt(RESULTS.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the tables of {RESULTS}")


if __name__ == "__main__":
    main()
