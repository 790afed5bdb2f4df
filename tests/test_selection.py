"""What is said of the lines and the time of tests, from which those that may be slow are chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import selection


def test_what_a_module_shares_is_of_all_its_tests_and_its_time_of_a_lone_one(tmp_path: Path) -> None:
    coverage = pytest.importorskip("coverage", reason="coverage is installed by `make slow-cases`")
    data = coverage.CoverageData(str(tmp_path / "gw0.db"))
    for name, lines in {"": [1], "a": [2], "b": [3], "fit": [4], "lone": [5]}.items():
        data.set_context(name)
        data.add_lines({"/gpdsl/bound.py": lines})
    data.write()
    seconds = {"": 9.0, "a": 1.0, "b": 2.0, "fit": 4.0, "lone": 8.0}
    (tmp_path / "gw0.json").write_text(json.dumps([seconds, {"fit": ["a", "b"], "lone": ["b"]}]))
    found, lines = selection.read(tmp_path)
    assert found == {"a": 1.0, "b": 10.0}
    numbers = {test: sorted(line for _, line in each) for test, each in lines.items()}
    assert numbers == {"": [1], "a": [2, 4], "b": [3, 4, 5]}
