"""Which tests are slow: `make slow-cases` writes tests/slow_cases.txt, from the lines that each test runs and its time.

From the longest on, a test of more than half a second of processor time is left to the slow tests where other quick
tests run every line of gpdsl that it runs, or all but fewer than one for each of its seconds, where it is not the only
one of its file, and where it does not stand in tests/noticed.txt. Lines that no quick test runs any more are printed: a
few lines of a direct test run most of them. It takes an hour.
`python -m tests.selection FOLDER` adds to the list by what was seen already, in a folder that
`benchmarks/mutants.py --seen FOLDER` has written.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "slow_cases.txt"
NOTICED = ROOT / "tests" / "noticed.txt"
"""Tests that noticed a fault of `make mutants`, or are quick by now and alone in what they compare, a line each: lines
alone do not tell what their numbers prove."""

FOLDER = "GPDSL_SELECTION"
"""The environment variable that names the folder where workers leave what they have seen."""

ANEW = "GPDSL_SELECTION_ANEW"
"""The environment variable that makes the list count for nothing."""

LONG = 0.5
"""Seconds of processor time from which on a test may be slow."""

PER_SECOND = 1.0
"""Lines that a quick test runs alone, at least, for each second that it takes."""

ALWAYS = ("tests/test_house.py", "tests/test_error_pages.py", "tests/test_every_engine.py")
"""What stays quick whatever else runs its lines."""


class Seen:
    """A plugin of a worker: the lines of each test, and the time of those that pass, up to their end.

    What a module shares has lines and a time of its own: it would run without the test that is the first to ask for it.
    """

    def __init__(self, folder: Path) -> None:
        from coverage import Coverage

        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.users: dict[str, list[str]] = collections.defaultdict(list)
        self.now, self.since = "", 0.0
        self.place = folder / os.environ["PYTEST_XDIST_WORKER"]
        self.coverage = Coverage(data_file=f"{self.place}.db", source=[str(ROOT / "gpdsl")], config_file=False)
        self.coverage.start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for name in getattr(item, "fixturenames", ()):
                self.users[_shared(item.nodeid, name)].append(item.nodeid)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        failed = item.session.testsfailed
        self._turn(item.nodeid)
        yield
        self._turn("")
        if item.session.testsfailed > failed:
            del self.seconds[item.nodeid]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self.now
        if fixturedef.scope != "function":
            self._turn(_shared(before, fixturedef.argname))
        yield
        self._turn(before)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        self._turn(item.nodeid)
        yield
        self.since = _processor_time()

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        users = {name: self.users[name] for name in self.seconds if name in self.users}
        Path(f"{self.place}.json").write_text(json.dumps([self.seconds, users]))

    def _turn(self, name: str) -> None:
        """From here on lines and time are those of another."""
        at = _processor_time()
        self.seconds[self.now] += at - self.since
        self.now, self.since = name, at
        self.coverage.switch_context(name)


def _shared(test: str, name: str) -> str:
    """What a fixture of a test's module goes by."""
    return f"{test.partition('::')[0]}::{name} (fixture)"


def _processor_time() -> float:
    """Seconds of this process and of those that it has seen the end of."""
    return sum(os.times()[:4])


Lines = dict[str, set[tuple[str, int]]]


def read(folder: Path) -> tuple[dict[str, float], Lines]:
    """Seconds of each test that passes, and lines of each; the empty name stands for the import of modules.

    Every test has the lines of what its module shares, and one that uses it alone the time too.
    """
    from coverage import CoverageData

    seconds: dict[str, float] = {}
    lines: Lines = collections.defaultdict(set)
    for found in folder.glob("*.json"):
        spent, users = json.loads(found.read_text())
        data = CoverageData(str(found.with_suffix(".db")))
        data.read()
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                for test in itertools.chain.from_iterable(users.get(name, [name]) for name in names):
                    lines[test].add((file, line))
        for name, tests in users.items():
            shared = spent.pop(name)
            if len(tests) == 1 and tests[0] in spent:
                spent[tests[0]] += shared
        seconds |= {test: second for test, second in spent.items() if test}
    return seconds, lines


def chosen(seconds: dict[str, float], lines: Lines) -> list[str]:
    """The slow ones; lines that only they run are printed."""
    noticed = set(NOTICED.read_text().splitlines())
    run_by = collections.Counter(line for each in lines.values() for line in each)
    in_file = collections.Counter(test.partition("::")[0] for test in seconds)
    slow = []
    for test in sorted(seconds, key=lambda each: -seconds[each]):
        file = test.partition("::")[0]
        if seconds[test] < LONG or file in ALWAYS or in_file[file] == 1 or test in noticed:
            continue
        alone = sorted(line for line in lines[test] if run_by[line] == 1)
        if len(alone) < PER_SECOND * seconds[test]:
            for path, line in alone:
                sys.stdout.write(f"{path}:{line} {test}\n")
            slow.append(test)
            in_file[file] -= 1
            run_by.subtract(lines[test])
    return sorted(slow)


def main(seen: str | None = None) -> None:
    """Run all tests that are not marked as slow, and write the list; or add to it, by what was seen."""
    if seen:
        slow = set(LIST.read_text().splitlines())
        seconds, lines = read(Path(seen))
        quick = {test: second for test, second in seconds.items() if test not in slow}
        slow |= set(chosen(quick, {test: lines[test] for test in quick}))
        LIST.write_text("\n".join(sorted(slow)) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", "auto", "--dist", "loadfile"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, FOLDER: folder, ANEW: "1"}, check=False)
        LIST.write_text("\n".join(chosen(*read(Path(folder)))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
