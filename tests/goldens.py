"""Comparing a text with the file that holds the expected one; `GPDSL_GOLDEN=1` rewrites the file first."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """`text` is exactly the contents of tests/golden/`name`."""
    path = GOLDEN / name
    if os.environ.get("GPDSL_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert path.exists(), f"no expected text {name}: write it with GPDSL_GOLDEN=1 and read it"
    assert text + "\n" == path.read_text(encoding="utf-8")
