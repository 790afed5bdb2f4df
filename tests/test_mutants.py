"""The faults that `make mutants` makes: real changes of the mathematics, in the right place, and nothing else."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
mutants, faults = map(importlib.import_module, ("mutants", "faults"))
sys.path.remove(str(BENCHMARKS))

SOURCE = '''"""Bounds: a - b."""


def bound(α: Array | None, jitter: float) -> "a - b":
    """Half of a - b."""
    if α < 0:
        raise ValueError("a" + "b" if α > 1 else "c")
    return α @ solve(α, jnp.where(α > 0, α, -jitter)) + jitter + x[:3] ** 2
'''


@pytest.fixture
def found(tmp_path: Path) -> dict[str, list]:
    (tmp_path / "bound.py").write_text(SOURCE, encoding="utf-8")
    by_kind: dict[str, list] = {}
    for mutant in faults.mutants_of(tmp_path / "bound.py", tmp_path):
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


def test_signs_of_what_is_squared_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text("x = ((a - b) / c) ** 2 + abs(-a) + square(a - b) + (a - b) ** 3 + f(a - b)")
    made = [each for each in faults.mutants_of(tmp_path / "squares.py", tmp_path) if each.kind in ("swap", "sign")]
    assert sum(each.old == "a - b" and each.text == "(b - a)" for each in made) == 2
    assert sum(each.old == "a - b" and each.text == "(a + b)" for each in made) == 4
    assert not any(each.old == "-a" for each in made)


def test_limits_that_named_numbers_set_are_left_alone(tmp_path: Path) -> None:
    """But not what is computed with them, nor which way round it is compared."""
    (tmp_path / "limits.py").write_text(
        "a = x > 2 * MANY\na = x > y + MANY * z\nb = y * MANY\nc = x * y > z\nd = range(MANY) or range(n)"
    )
    made = [(each.line, each.kind) for each in faults.mutants_of(tmp_path / "limits.py", tmp_path)]
    factors = [(3, "factor")] * 2 + [(4, "factor")] * 2
    compared = [(1, "comparison"), (2, "comparison"), (2, "sign"), (4, "comparison")]
    assert sorted(made) == sorted([*compared, *factors, (5, "off by one")])


def test_the_lines_of_a_fault_are_those_of_its_statement(found: dict[str, list]) -> None:
    assert {(mutant.line, *mutant.lines) for mutant in found["comparison"]} == {(6, 6), (8, 8)}


def test_a_seed_chooses_the_same_faults() -> None:
    one, two = (mutants.chosen(["gpdsl/kernels/*.py"], 10, seed=3) for _ in range(2))
    assert one == two and len(one) == 10


def test_the_tests_of_a_fault_run_its_line_and_then_look_at_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {
        "tests/test_quick.py::t": {3, 4},
        "tests/test_quick.py::looks": set(),
        "tests/test_bound.py::t": {4},
        "tests/test_long.py::t": {4},
        "tests/test_long.py::looks": set(),
        "tests/test_other.py::t": {3},
        "tests/test_broken.py::t": {4},
    }
    seconds = {test: float(number) for number, test in enumerate(runs) if "broken" not in test}
    lines = {test: {("/copy/gpdsl/bound.py", line) for line in each} for test, each in runs.items()}
    lines[""] = {("/copy/gpdsl/bound.py", 1), ("/copy/gpdsl/bound.py", 3)}  # at import
    monkeypatch.setattr(mutants.selection, "read", lambda folder: (seconds, lines))
    monkeypatch.setattr(mutants, "FEW", 2)
    core = mutants.Core(Path())

    def stems(*at: int, most: float = 99.0) -> list[str]:
        fault = faults.Mutant("gpdsl/bound.py", "sign", at[0], 0, 1, "a", "b", range(at[0], at[-1] + 1))
        tests = core.tests_of(fault, most)
        return [test.removeprefix("tests/test_").replace(".py::", " ").removesuffix(" t") for test in tests]

    assert stems(4) == ["bound", "quick", "quick looks", "long looks", "long"]
    assert stems(4, most=4.0) == ["bound", "quick", "quick looks"]
    assert stems(2, 3) == ["quick", "other", "quick looks"]
    assert stems(1) == ["bound", "quick", "quick looks", "other", "long looks", "long"]
    assert stems(7) == ["bound"]


def test_faults_in_lines_that_nobody_runs_are_counted(
    found: dict[str, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement of one line is run, and the condition of the other is not."""
    (tmp_path / "gpdsl").mkdir()
    (tmp_path / "gpdsl" / "bound.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants.selection, "read", lambda folder: ({}, {"t": {("/copy/gpdsl/bound.py", 8)}}))
    every = sum(map(len, found.values()))
    said = mutants.unrun(["gpdsl/*.py"], mutants.Core(Path())).splitlines()
    assert said == [f"1 of {every} faults are in lines that no core test runs", "    1 gpdsl/bound.py"]


def test_what_tests_say_of_a_fault_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bound.py").write_text("half = 0.5 * 3", encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    bench = mutants.Bench(tmp_path / "copy")
    said: list[tuple[str, ...]] = []

    def run(arguments: tuple[str, ...], variables: dict[str, str], limit: float) -> tuple[int, str]:
        wrong = "2.0" in (tmp_path / "copy" / "bound.py").read_text(encoding="utf-8")
        said.append(arguments)
        failed = wrong and "b::t[a b]" in arguments
        return (1, ".F\nFAILED b::t[a b] - assert 1 == 2\n") if failed else (0, "..\n")

    monkeypatch.setattr(bench, "_run", run)
    monkeypatch.setattr(mutants, "FEW", 1)
    fault = next(m for m in faults.mutants_of(tmp_path / "bound.py", tmp_path) if m.text.startswith("(2.0"))
    seconds = {"a::t": 1.0, "b::t[a b]": 2.0}
    assert bench.noticed(fault, ["a::t"], seconds) == "" and len(said) == 1
    assert bench.noticed(fault, ["a::t", "b::t[a b]"], seconds) == "b::t[a b]" and len(said) == 3
    assert (tmp_path / "copy" / "bound.py").read_text(encoding="utf-8") == "half = 0.5 * 3"
