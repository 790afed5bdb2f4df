"""Whether the tests notice faults: small wrong changes to the mathematics, one at a time, and the tests next to each.

`python benchmarks/mutants.py --count 25 --seed 0 --keep FILE [PATH ...]`, or `make mutants`. Faults are changed signs,
factors of 2 and 1/2, numbers and orders off by one, dropped jitter, swapped operands and arguments, and comparisons
turned round. Each is made in a copy of the repository, never in the working tree. What no test notices is printed with
its line; `--keep` makes a run go on where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TESTS = {
    "gpdsl/inference/exact/": [
        "inference/test_exact_evidence.py",
        "inference/test_exact.py",
        "inference/test_pieces_by_hand.py",
    ],
    "gpdsl/inference/natural/row_space": ["inference/test_row_space.py", "inference/test_iterations.py"],
    "gpdsl/inference/natural/tied": ["inference/test_tied.py", "inference/test_minibatch.py", "inference/test_warm.py"],
    "gpdsl/inference/natural/minibatch": ["inference/test_minibatch.py", "inference/test_tied.py"],
    "gpdsl/inference/natural/tied_ends": ["inference/test_minibatch.py"],
    "gpdsl/inference/natural/refine": [
        "inference/test_iterations.py",
        "inference/test_ridges.py",
        "inference/test_minibatch.py",
        "inference/test_saddle.py",
        "inference/test_warm.py",
    ],
    "gpdsl/inference/natural/site_starts": ["inference/test_departure.py", "inference/test_saddle.py"],
    "gpdsl/inference/natural/": [
        "inference/test_iterations.py",
        "inference/test_ridges.py",
        "inference/test_coupled.py",
        "inference/test_exact.py",
        "inference/test_blocks.py",
    ],
    "gpdsl/inference/quadruply_stochastic/": ["inference/quadruply_stochastic"],
    "gpdsl/inference/expectation_propagation/": [
        "inference/test_guards_by_hand.py",
        "inference/test_expectation_propagation.py",
        "inference/test_expectation_propagation_visits.py",
        "inference/test_expectation_propagation_opaque.py",
    ],
    "gpdsl/inference/posteriors/": ["inference/test_families.py", "inference/test_coupled.py"],
    "gpdsl/inference/estimators/": ["inference/test_estimators.py", "inference/test_sampling.py"],
    "gpdsl/inference/inducing/": ["inference/test_inducing.py"],
    "gpdsl/inference/opaque/": [
        "inference/test_surrogates.py",
        "inference/test_opaque_trust.py",
        "inference/test_opaque_faults.py",
    ],
    "gpdsl/inference/plan/": ["inference/test_inducing.py", "inference/quadruply_stochastic/test_cost.py"],
    "gpdsl/inference/ascent/": ["inference/test_schedules.py", "inference/test_off_saddles.py"],
    "gpdsl/inference/fields/": ["inference/test_fields.py"],
    "gpdsl/inference/": ["inference/test_engines.py", "inference/test_warm.py", "inference/test_pieces_by_hand.py"],
    "gpdsl/kernels/waves/": ["kernels/test_waves.py"],
    "gpdsl/kernels/integrals": ["inference/test_integrals.py"],
    "gpdsl/kernels/interdomain": ["kernels/test_interdomain.py", "inference/test_patch_features.py"],
    "gpdsl/kernels/": ["kernels", "inference/test_exact_evidence.py", "inference/test_functionals.py"],
    "gpdsl/lowering/": ["lowering", "symbolic/test_stable.py", "symbolic/test_truncated.py", "kernels/test_waves.py"],
    "gpdsl/program/white": ["inference/test_white.py"],
    "gpdsl/program/field": ["inference/test_fields.py"],
    "gpdsl/program/": ["program", "results/test_composed.py", "inference/test_functionals.py"],
    "gpdsl/symbolic/kernel": ["symbolic/test_kernel_analysis.py", "symbolic/test_kernel_checks.py", "kernels"],
    "gpdsl/symbolic/": ["symbolic", "inference/test_units.py"],
    "gpdsl/results/": ["results", "simulation"],
}
CLOSED = [
    "test_conditions.py",
    "test_stable.py",
    "test_gaussian_joint.py",
    "test_gaussian_random.py",
    "test_closed_models.py",
]
LAWS = ["test_laws.py", "test_densities.py", "test_extremes.py"]
for stem in ("gaussian", "expectations", "conditions", "kinks", "functions", "stable", "numeric", "joint"):
    TESTS[f"gpdsl/symbolic/{stem}"] = [f"symbolic/{each}" for each in CLOSED]
TESTS["gpdsl/symbolic/closed"] = ["symbolic/test_tilted.py", "symbolic/test_truncated.py", "symbolic/test_stable.py"]
for stem in ("laws", "densities", "density_mass", "likelihoods"):
    TESTS[f"gpdsl/symbolic/{stem}"] = [f"symbolic/{each}" for each in LAWS]
TESTS["gpdsl/symbolic/concavity"] = ["symbolic/test_concavity.py"]
for stem in ("scales", "data_scales", "law_scales", "kernel_scales", "sources"):
    TESTS[f"gpdsl/symbolic/{stem}"] = ["inference/test_units.py"]
"""The tests next to a file, after those of its name: the longest beginning of its path counts."""

CHOSEN = (
    "gpdsl/inference/**/*.py",
    "gpdsl/kernels/**/*.py",
    "gpdsl/lowering/*.py",
    "gpdsl/program/*.py",
    "gpdsl/symbolic/*.py",
    "gpdsl/results/*.py",
)

OPPOSITE: dict[type[ast.operator] | type[ast.cmpop], type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
EXTREMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
ORDERED = frozenset(
    {"where", "subtract", "divide", "power", "matmul", "dot", "solve", "cho_solve", "arctan2", "clip", "Pow"}
)
"""Functions of several arguments of one kind, whose order counts; types tell those of most others apart."""

WORDS = (ast.JoinedStr, ast.Raise, ast.Assert)
"""What is said is not looked at: golden files hold it."""


@dataclass(frozen=True)
class Mutant:
    """A fault: characters `start` to `stop` of a file become `text`."""

    path: str
    kind: str
    line: int
    start: int
    stop: int
    old: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.old} -> {self.text}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every fault that can be made in a file."""
    source = path.read_bytes()
    offsets = [0]
    for line in source.split(b"\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    for node in _formulas(ast.parse(source)):
        for kind, changed in _changes(node):
            start = offsets[node.lineno - 1] + node.col_offset
            stop = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
            old, text = source[start:stop].decode(), ast.unparse(changed)
            yield Mutant(path.relative_to(ROOT).as_posix(), kind, node.lineno, start, stop, old, f"({text})")


def _formulas(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that compute: not annotations, messages or texts."""
    if isinstance(node, WORDS):
        return
    if isinstance(node, ast.expr):
        yield node
    skipped = {"annotation", "returns", "decorator_list", "type_params", "bases"}
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children if name not in skipped else ():
            if isinstance(child, ast.AST):
                yield from _formulas(child)


def _changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right) if not _text(left) and not _text(right):
            yield "sign", ast.BinOp(left, OPPOSITE[type(sign)](), right)
            if "jitter" in ast.unparse(right):
                yield "no jitter", left
            if isinstance(sign, ast.Sub):
                yield "swap", ast.BinOp(right, sign, left)
        case ast.BinOp(left, ast.Mult() | ast.Div() | ast.MatMult() as sign, right) if not _text(left):
            yield "factor", ast.BinOp(ast.Constant(2.0), ast.Mult(), node)
            yield "factor", ast.BinOp(ast.Constant(0.5), ast.Mult(), node)
            if not isinstance(sign, ast.Mult):
                yield "swap", ast.BinOp(right, sign, left)
        case ast.BinOp(left, ast.Pow() as sign, ast.Constant(int(power))):
            yield "off by one", ast.BinOp(left, sign, ast.Constant(power + 1))
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.Compare(left, [sign], [right]) if type(sign) in OPPOSITE:
            yield "comparison", ast.Compare(left, [OPPOSITE[type(sign)]()], [right])
        case ast.Subscript(value, ast.Slice(lower, ast.Constant(int(upper)), None), context) if upper > 0:
            slices = ast.Slice(lower, ast.Constant(upper - 1), None)
            yield "off by one", ast.Subscript(value, slices, context)
        case ast.Call(ast.Name("range" | "arange") as called, [*first, last], []):
            yield "off by one", ast.Call(called, [*first, ast.BinOp(last, ast.Sub(), ast.Constant(1))], [])
        case ast.Call(ast.Attribute(value, name, context), arguments, keywords) if name in EXTREMES:
            yield "extreme", ast.Call(ast.Attribute(value, EXTREMES[name], context), arguments, keywords)
        case ast.Call(ast.Attribute(_, name) as called, arguments, keywords) if name in ORDERED:
            first = 1 if name == "where" else 0
            one, two = [*arguments[first : first + 2], None, None][:2]
            if one and two and not _starred(one, two) and not _text(one) and ast.dump(one) != ast.dump(two):
                swapped = [*arguments[:first], two, one, *arguments[first + 2 :]]
                yield "swap", ast.Call(called, swapped, keywords)
        case ast.Call(called, arguments, keywords) if any(each.arg == "jitter" for each in keywords):
            others = [ast.keyword("jitter", ast.Constant(0.0)) if k.arg == "jitter" else k for k in keywords]
            yield "no jitter", ast.Call(called, arguments, others)


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _starred(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


def tests_of(path: str) -> list[str]:
    """The tests next to a file, first those of its name. Ends the run where the table has none."""
    found = [prefix for prefix in TESTS if path.startswith(prefix)]
    if not found:
        raise SystemExit(f"{path}: add a line to TESTS that says which tests look at it")
    named = sorted(each.relative_to(ROOT).as_posix() for each in ROOT.glob(f"tests/**/test_{Path(path).stem}.py"))
    return list(dict.fromkeys([*named, *(f"tests/{each}" for each in TESTS[max(found, key=len)])]))


class Bench:
    """A copy of the repository, in which faults are made one at a time."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit, self.sound = folder, limit, set[str]()
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".hypothesis", "_build", ".*_cache")
        shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)

    def passes(self, test: str) -> tuple[bool, str]:
        """Whether tests pass within the limit, and what failed first."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", test]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=self.limit
            )
        except subprocess.TimeoutExpired:
            return False, f"{test}: no end within {self.limit:g} s"
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode == 0, failed[0] if failed else f"{test}: exit code {done.returncode}"

    def noticed(self, mutant: Mutant) -> str:
        """The test that notices a fault, or nothing. Ends the run for a test that fails without it too."""
        path = self.folder / mutant.path
        source = path.read_bytes()
        for test in tests_of(mutant.path):
            path.write_bytes(source[: mutant.start] + mutant.text.encode() + source[mutant.stop :])
            try:
                passed, why = self.passes(test)
            finally:
                path.write_bytes(source)
            if not passed and test not in self.sound and not self.passes(test)[0]:
                raise SystemExit(f"{why} fails without any fault")
            if not passed:
                self.sound.add(test)
                return why
        return ""


def chosen(paths: list[str], count: int, seed: int) -> list[Mutant]:
    """So many faults, drawn evenly from the files and their kinds; the same for the same seed and text."""
    files = sorted({file for pattern in paths for file in ROOT.glob(pattern)})
    rng, picked = random.Random(seed), dict[str, Mutant]()
    of = functools.cache(lambda file: list(mutants_of(file)))
    for _ in range(20 * count):
        found = of(rng.choice(files))
        if found and len(picked) < count:
            kind = rng.choice(sorted({mutant.kind for mutant in found}))
            mutant = rng.choice([mutant for mutant in found if mutant.kind == kind])
            picked[mutant.name] = mutant
    return list(picked.values())


def main() -> None:
    """Make the faults that are not known yet, and print all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=list(CHOSEN), help="files of gpdsl, also as patterns")
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds after which tests that run count as noticing"
    )
    parser.add_argument("--keep", type=Path, help="file of what is known, to go on from and to add to")
    parser.add_argument("--list", action="store_true", help="print the faults, run nothing")
    given = parser.parse_args()
    mutants = chosen(given.paths, given.count, given.seed)
    if given.list:
        print("\n".join(mutant.name for mutant in mutants))
        return
    known: dict[str, str] = {}
    if given.keep is not None and given.keep.exists():
        known = dict(json.loads(line) for line in given.keep.read_text(encoding="utf-8").splitlines())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.limit)
        for mutant in mutants:
            if mutant.name in known:
                continue
            start = time.monotonic()
            known[mutant.name] = bench.noticed(mutant)
            print(
                f"{mutant.name}\n    {known[mutant.name] or 'NOT NOTICED'} ({time.monotonic() - start:.0f} s)",
                flush=True,
            )
            if given.keep is not None:
                with given.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([mutant.name, known[mutant.name]]) + "\n")
    missed = [mutant.name for mutant in mutants if not known[mutant.name]]
    print(f"\n{len(mutants) - len(missed)} of {len(mutants)} faults noticed (seed {given.seed}); not noticed:")
    print("\n".join(missed) or "none")


if __name__ == "__main__":
    main()
