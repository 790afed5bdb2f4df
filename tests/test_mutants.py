"""The faults that `make mutants` makes: real changes of the mathematics, in the right place, and nothing else."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
mutants = importlib.import_module("mutants")
sys.path.remove(str(BENCHMARKS))

SOURCE = '''"""Bounds: a - b."""


def bound(α: Array | None, jitter: float) -> "a - b":
    """Half of a - b."""
    if α < 0:
        raise ValueError("a" + "b" if α > 1 else "c")
    return α @ solve(α, jnp.where(α > 0, α, -jitter)) + jitter + x[:3] ** 2
'''


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "bound.py").write_text(SOURCE, encoding="utf-8")
    by_kind: dict[str, list] = {}
    for mutant in mutants.mutants_of(tmp_path / "bound.py"):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    return by_kind


def test_every_kind_of_fault_is_made_and_words_are_left_alone(found: dict[str, list]) -> None:
    assert {kind: len(each) for kind, each in found.items()} == {
        "sign": 3,
        "no jitter": 1,
        "factor": 2,
        "swap": 2,
        "off by one": 2,
        "comparison": 2,
    }
    assert {mutant.line for each in found.values() for mutant in each} == {6, 8}
    assert {m.text for m in found["swap"]} >= {"(jnp.where(α > 0, -jitter, α))"}


def test_a_fault_is_another_program_in_the_place_it_names(found: dict[str, list]) -> None:
    for mutant in (each for group in found.values() for each in group):
        data = SOURCE.encode()
        assert data[mutant.start : mutant.stop].decode() == mutant.old
        changed = (data[: mutant.start] + mutant.text.encode() + data[mutant.stop :]).decode()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutant.name


def test_a_seed_chooses_the_same_faults_and_every_file_has_its_tests() -> None:
    one, two = (mutants.chosen(list(mutants.CHOSEN), 30, seed=3) for _ in range(2))
    assert one == two and len(one) == 30
    for pattern in mutants.CHOSEN:
        for file in mutants.ROOT.glob(pattern):
            for test in mutants.tests_of(file.relative_to(mutants.ROOT).as_posix()):
                assert (mutants.ROOT / test).exists(), test
