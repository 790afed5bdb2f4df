"""Whether the core tests notice faults: small wrong changes to the mathematics, one at a time.

`python benchmarks/mutants.py --count 25 --seed 0 --seen FOLDER --keep FILE [PATH ...]`, or `make mutants`; the faults
are those of `benchmarks/faults.py`. Each is made in a copy of the repository, never in the working tree. First all core
tests run once without any fault, which tells what lines each of them runs; then those that run the line of a fault run
with it, and the others of their modules, which look at what these have left, up to the first that fails. What none of
them notices is printed with its line. `--seen` keeps what was seen without faults, and `--keep` what became of each: a
run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import compileall
import functools
import hashlib
import importlib
import itertools
import json
import math
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from faults import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests import selection  # noqa: E402 - the repository is not installed
from tests.conftest import QUICK  # noqa: E402

SLOW_IMPORTS = ("coverage", "jax", "optax", "sympy", "scipy.optimize", "scipy.stats", "pandas", "polars", "hypothesis")

CHOSEN = tuple(
    f"gpdsl/{room}/*.py"
    for room in ("inference/**", "kernels/**", "lowering", "program", "symbolic", "results", "results/criticism")
)

FEW = 20
"""Tests that run first: most faults are noticed by one of them, and the others need not be read."""

MEMORY = 12 << 30
"""Bytes that tests may ask for: a fault may make a loop endless."""

ROOM, TIMES, STUCK = 200, 3, 900
"""Seconds of processor time that tests have, beside so many times their own, and seconds that one of them has."""

LIMITED = ("-x", "-o", f"faulthandler_timeout={STUCK}", "-o", "faulthandler_exit_on_timeout=true")

TEXT = "text"
"""The file that says of which text of gpdsl the others tell."""


class Core:
    """What the core tests do without any fault, from the folder where `tests/selection.py` leaves it."""

    def __init__(self, folder: Path) -> None:
        self.seconds, lines = selection.read(folder)
        self.running: dict[str, dict[int, set[str]]] = {}
        for test, places in lines.items():
            for file, line in places:
                path = "gpdsl/" + file.rpartition("/gpdsl/")[2]
                self.running.setdefault(path, {}).setdefault(line, set()).add(test)

    def tests_of(self, mutant: Mutant, most: float = math.inf) -> list[str]:
        """The tests that may notice a fault: first a few that run the statement, those of the file's name and then
        the quickest, and then all of their modules, one after the other, the quickest first.

        What a module's fixture does, and what was traced before, is run by its first test alone and looked at by
        others. Where no test is seen to run a statement, as it runs in processes that they start, the first ones are
        those of the file's name, and where it runs while modules are imported, all that run anything of the file.
        Together they take at most so many seconds of processor time.
        """
        found, named = self.running_it(mutant), f"test_{Path(mutant.path).stem}.py"
        if not found & self.seconds.keys():
            found = self._running(mutant.path, self.running[mutant.path]) if found else set()
            found |= {test for test in self.seconds if f"/{named}::" in test}
        found &= self.seconds.keys()
        few = sorted(found, key=lambda test: (f"{named}::" not in test, self.seconds[test], test))[:FEW]
        modules: dict[str, list[str]] = {test.partition("::")[0]: [] for test in found}
        for test in self.seconds.keys() - set(few):
            modules.get(test.partition("::")[0], []).append(test)
        spent = {module: sum(self.seconds[test] for test in tests) for module, tests in modules.items()}
        later = sorted(modules, key=lambda module: (not module.endswith(f"/{named}"), spent[module], module))
        order = [*few, *(test for module in later for test in sorted(modules[module]))]
        total = itertools.accumulate(self.seconds[test] for test in order)
        return [test for test, seconds in zip(order, total, strict=True) if seconds <= most]

    def running_it(self, mutant: Mutant) -> set[str]:
        """The tests that run the statement; the empty name stands for the import of modules."""
        return self._running(mutant.path, mutant.lines)

    def _running(self, path: str, lines: Iterable[int]) -> set[str]:
        return set().union(*(self.running.get(path, {}).get(line, ()) for line in lines))


class Bench:
    """A copy of the repository, in which faults are made one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".hypothesis", "_build", ".*_cache")
        shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)
        compileall.compile_dir(folder, quiet=2)
        os.environ["XLA_FLAGS"] = QUICK

    def look(self, seen: Path) -> None:
        """Run all core tests without any fault, and leave in a folder what they run."""
        seen.mkdir(parents=True, exist_ok=True)
        self._run(["-n", "1"], {selection.FOLDER: str(seen.resolve())})
        (seen / TEXT).write_text(digest())

    def noticed(self, mutant: Mutant, tests: list[str], seconds: Mapping[str, float]) -> str:
        """The first of the tests that notices a fault, or nothing."""
        path = self.folder / mutant.path
        source = path.read_bytes()
        path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.stop :])
        try:
            for some in (tests[:FEW], tests[FEW:]):
                limit = ROOM + TIMES * sum(seconds[test] for test in some)
                if some and (failed := self.failed(*LIMITED, *some, limit=limit)):
                    return failed[0]
        finally:
            path.write_bytes(source)
        return ""

    def failed(self, *arguments: str, limit: float = math.inf) -> list[str]:
        """The tests that fail, or what ended all of them."""
        code, told = self._run(arguments, {}, limit)
        if code == pytest.ExitCode.USAGE_ERROR:
            raise SystemExit(told)  # a test that is not there has noticed nothing
        said = (line.partition(" ") for line in told.splitlines())
        failed = [rest.partition(" - ")[0] for word, _, rest in said if word in ("FAILED", "ERROR")]
        return failed or [f"exit code {code}"] * (code != 0)

    def _run(self, arguments: Iterable[str], variables: Mapping[str, str], limit: float = math.inf) -> tuple[int, str]:
        """The exit code of pytest and what it prints, from a copy of this process, which has imported what is slow."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as told:
            if child := os.fork():
                _, status = os.waitpid(child, 0)
                told.seek(0)
                return os.waitstatus_to_exitcode(status), told.read()
            code = 1
            try:
                os.dup2(told.fileno(), 1)
                os.dup2(told.fileno(), 2)
                if limit < math.inf:
                    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
                code = self._here(arguments, variables)
            finally:
                os._exit(code)

    def _here(self, arguments: Iterable[str], variables: Mapping[str, str]) -> int:
        os.chdir(self.folder)
        os.environ.update(variables, PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1")
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        sys.dont_write_bytecode = True
        sys.path[:] = [str(self.folder), *(path for path in sys.path if path not in (str(ROOT), sys.path[0]))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "gpdsl")]:
            del sys.modules[name]
        sys.argv = ["pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *arguments]
        code = int(pytest.main(sys.argv[1:]))
        sys.stdout.flush()
        return code


def digest() -> str:
    """A name for the text of gpdsl, whose lines are told apart by their numbers."""
    files = sorted(ROOT.glob("gpdsl/**/*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def chosen(paths: list[str], count: int, seed: int) -> list[Mutant]:
    """So many faults, drawn evenly from the files and their kinds; the same for the same seed and text."""
    files = sorted({file for pattern in paths for file in ROOT.glob(pattern)})
    rng, picked = random.Random(seed), dict[str, Mutant]()
    of = functools.cache(lambda file: list(mutants_of(file, ROOT)))
    for _ in range(20 * count):
        found = of(rng.choice(files))
        if found and len(picked) < count:
            kind = rng.choice(sorted({mutant.kind for mutant in found}))
            mutant = rng.choice([mutant for mutant in found if mutant.kind == kind])
            picked[mutant.name] = mutant
    return list(picked.values())


def unrun(paths: list[str], core: Core) -> str:
    """How many of all faults of some files stand where no core test comes, which none of these can notice."""
    counts, total = dict[str, int](), 0
    for file in sorted({file for pattern in paths for file in ROOT.glob(pattern)}):
        every = list(mutants_of(file, ROOT))
        total += len(every)
        counts[str(file.relative_to(ROOT))] = sum(not core.running_it(mutant) for mutant in every)
    most = sorted((count, path) for path, count in counts.items() if count)[::-1]
    said = f"{sum(counts.values())} of {total} faults are in lines that no core test runs"
    return "\n".join([said, *(f"{count:5d} {path}" for count, path in most)])


def main() -> None:
    """Make the faults that are not known yet, and print all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(CHOSEN), help="files of gpdsl, also as patterns")
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seen", type=Path, required=True, help="folder of what tests run without faults")
    parser.add_argument("--keep", type=Path, help="file of what is known, to go on from and to add to")
    parser.add_argument("--most", type=float, default=math.inf, help="seconds of processor time of tests of a fault")
    parser.add_argument("--list", action="store_true", help="print the faults, run nothing")
    parser.add_argument("--unrun", action="store_true", help="count the faults in lines that no test runs; make none")
    given = parser.parse_args()
    if given.unrun:
        print(unrun(given.paths, Core(given.seen)))
        return
    mutants = chosen(given.paths, given.count, given.seed)
    if given.list:
        print("\n".join(mutant.name for mutant in mutants))
        return
    known: dict[str, str] = {}
    if given.keep is not None and given.keep.exists():
        known = dict(json.loads(line) for line in given.keep.read_text(encoding="utf-8").splitlines())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for name in SLOW_IMPORTS:
            importlib.import_module(name)
        if not (given.seen / TEXT).exists():
            bench.look(given.seen)
        if (given.seen / TEXT).read_text() != digest():
            raise SystemExit(f"gpdsl has changed since {given.seen} was made: remove it")
        core = Core(given.seen)
        for mutant in mutants:
            if mutant.name in known:
                continue
            start, tests = time.monotonic(), core.tests_of(mutant, given.most)
            known[mutant.name] = bench.noticed(mutant, tests, core.seconds)
            said = known[mutant.name] or "NOT NOTICED"
            print(f"{mutant.name}\n    {said} ({len(tests)} tests, {time.monotonic() - start:.0f} s)", flush=True)
            if given.keep is not None:
                with given.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([mutant.name, known[mutant.name]]) + "\n")
        noticing = {known[mutant.name] for mutant in mutants} & core.seconds.keys()
        unsound = set(bench.failed(*noticing)) if noticing else set()
    missed = [mutant.name for mutant in mutants if not known[mutant.name] or known[mutant.name] in unsound]
    print(f"\n{len(mutants) - len(missed)} of {len(mutants)} faults noticed (seed {given.seed}); not noticed:")
    print("\n".join(missed) or "none")
    print("\n".join(f"{test} fails without any fault" for test in sorted(unsound)))


if __name__ == "__main__":
    main()
