"""The rules of the house: imports point one way, JAX stays out of the language, no text is run."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gpdsl"

# Each folder and the folders it may import from: the stages of the compiler, from left to right.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "replacing": frozenset({"errors"}),
    "shown": frozenset(),
    "language": frozenset({"errors"}),
    "symbolic": frozenset({"errors", "language"}),
    "lsp": frozenset({"errors", "language", "symbolic"}),
    "lowering": frozenset({"errors", "language", "symbolic"}),
    "kernels": frozenset({"errors", "language", "symbolic", "lowering"}),
    "forward": frozenset({"errors", "language"}),
    "data": frozenset({"errors", "language", "replacing"}),
    "program": frozenset({"errors", "replacing", "language", "symbolic", "lowering", "kernels", "forward", "data"}),
}
MAY_IMPORT["inference"] = MAY_IMPORT["program"] | {"program"}
# `Model` and `Fit` are the two faces users hold, and each hands out the other: `model.fit(...)`, `fit.model`.
MAY_IMPORT["results"] = MAY_IMPORT["inference"] | {"inference", "model", "shown"}
MAY_IMPORT["simulation"] = MAY_IMPORT["results"] | {"results"}
MAY_IMPORT["calibration"] = MAY_IMPORT["simulation"] | {"simulation"}

RUNS_TEXT = {"eval", "exec", "compile", "sympify", "parse_expr", "lambdify", "__import__", "breakpoint"}
UNSAFE_MODULES = {"pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
# Where Python named by the user on the command line is run, `--forward file.py`, and where programs are loaded that
# gpdsl has put into a folder which the user alone can fill.
RUNS_NAMED_FILES = {"gpdsl/cli/options.py", "gpdsl/program/kept.py"}


def python_files(folder: Path = PACKAGE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes_of(text: str) -> list[ast.AST]:
    """All of a file, the module first: each rule that walked the trees of all files by itself took two seconds."""
    return list(ast.walk(ast.parse(text)))


def imported_modules(nodes: list[ast.AST], package: str) -> set[str]:
    """Absolute names of everything imported in a file of `package`, inside functions too."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base]).rstrip(".")
            names.add(base)
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def wrong_imports(path: Path, nodes: list[ast.AST]) -> list[str]:
    """The imports of a file that point against the direction of the stages."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] not in MAY_IMPORT:
        return []
    package = ".".join(("gpdsl", *parts[:-1]))
    allowed = MAY_IMPORT[parts[0]] | {parts[0]}
    inside = [name.split(".") for name in imported_modules(nodes, package) if name.startswith("gpdsl.")]
    return sorted({".".join(name[:2]) for name in inside if name[1] not in allowed})


def unsafe_uses(nodes: list[ast.AST]) -> set[str]:
    """Names in a file that would run text as Python, or read objects back from bytes."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    names = {node.id for node in called if isinstance(node, ast.Name)} & (RUNS_TEXT - own)
    methods = {node.attr for node in called if isinstance(node, ast.Attribute)} & (RUNS_TEXT - {"compile", "eval"})
    modules = {name.split(".")[0] for name in imported_modules(nodes, "gpdsl")} & UNSAFE_MODULES
    return names | methods | modules


@dataclass(frozen=True)
class Looked:
    """What the rules ask of a file."""

    words: str
    wrong_imports: list[str]
    unsafe_uses: set[str]


@functools.cache
def looked_at(path: Path) -> Looked:
    """A file of gpdsl, which is parsed once for all rules: to parse all of them takes seconds."""
    nodes = nodes_of(path.read_text())
    assert isinstance(nodes[0], ast.Module)
    words = (ast.get_docstring(nodes[0]) or "").split("\n")[0]
    return Looked(words, wrong_imports(path, nodes), unsafe_uses(nodes))


def test_imports_point_one_way() -> None:
    assert {relative(path): found for path in python_files() if (found := looked_at(path).wrong_imports)} == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("language/x.py", "from gpdsl.symbolic import densities"),
        ("language/x.py", "def f():\n    from gpdsl import program"),
        ("data/x.py", "from ..inference import fit"),
        ("forward/x.py", "import gpdsl.program.rows"),
        ("program/x.py", "from gpdsl.results.fit import Fit"),
    ],
)
def test_a_backward_import_is_seen(file: str, text: str) -> None:
    assert wrong_imports(PACKAGE / file, nodes_of(text))


def test_every_folder_has_a_place_in_the_order() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in python_files() if path.parent != PACKAGE}
    assert folders <= MAY_IMPORT.keys() | {"cli", "_shipped"}


@pytest.mark.parametrize("module", ["gpdsl", "gpdsl.language", "gpdsl.symbolic", "gpdsl.data", "gpdsl.cli"])
def test_loads_without_jax(module: str) -> None:
    code = f"import sys, {module}; print(sorted(m for m in ('jax', 'pandas', 'matplotlib') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_every_file_says_what_it_is_for() -> None:
    assert [relative(path) for path in python_files() if path.read_text() and len(looked_at(path).words) < 10] == []


def test_files_stay_small() -> None:
    assert {relative(p): n for p in python_files() if (n := p.read_text().count("\n")) > 400} == {}


def test_no_text_is_run_as_code() -> None:
    found = {relative(path): looked_at(path).unsafe_uses for path in python_files()}
    assert {path: names for path, names in found.items() if names and path not in RUNS_NAMED_FILES} == {}


@pytest.mark.parametrize("text", ["eval('1')", "sympy.sympify(t)", "import pickle", "lambdify(x, y)"])
def test_unsafe_code_is_seen(text: str) -> None:
    assert unsafe_uses(nodes_of(text))


def test_arrays_are_never_loaded_as_objects() -> None:
    calls = [
        (relative(path), node.lineno)
        for path in python_files()
        if "allow_pickle" in path.read_text()
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
        if getattr(node.value, "value", True) is not False
    ]
    assert calls == []


def test_the_lock_file_pins_everything_and_names_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert "://" not in text
    assert pins
    assert all(line.count("==") == 1 and "@" not in line for line in pins)
    names = {line.split("==")[0] for line in pins}
    assert names >= {"jax", "numpy", "sympy", "lark", "optax", "pytest", "ruff", "mypy"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel; no download: the build backend is part of the lock file."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder), "."]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("gpdsl-*.whl"))


@pytest.mark.slow
def test_the_wheel_carries_grammar_and_zoo(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    zoo = {f"gpdsl/_shipped/models/{path.name}" for path in (ROOT / "models").glob("*.gpm")}
    assert zoo
    assert zoo | {"gpdsl/_shipped/grammar/gpm.lark", "gpdsl/py.typed"} <= names


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import gpdsl; "
        "print(gpdsl.__file__); print(*sorted(gpdsl.zoo(n).declarations.name for n in gpdsl.zoo_names()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    place, names = done.stdout.splitlines()
    assert Path(place).is_relative_to(site)
    assert names.split() == sorted(path.stem for path in (ROOT / "models").glob("*.gpm"))


def test_slow_cases_are_cases_of_tests_that_there_are() -> None:
    for line in (ROOT / "tests" / "slow_cases.txt").read_text().splitlines():
        path, _, name = line.partition("::")
        assert f"def {name.split('[')[0]}(" in (ROOT / path).read_text(), line


def test_results_ask_a_posterior_and_not_which_it_is() -> None:
    """Each kind has a folder, which predictions, files and summaries do not know: `inference.posteriors.posterior`."""
    kinds = re.compile(r"gpdsl\.inference\.(exact|layered|quadruply_stochastic)\b|program\.coupled\b")
    outside = [path for path in python_files() if path.relative_to(PACKAGE).parts[0] != "inference"]
    files = [path for path in outside if path.relative_to(PACKAGE).parts[0] != "program"]
    assert {relative(path): found for path in files if (found := kinds.findall(path.read_text()))} == {}


FUNCTIONS, FILES = 395, 74
"""Of the package, on the way of a small fit: they may only become fewer."""


def test_the_way_of_a_small_fit_is_no_longer_than_it_was() -> None:
    """Twelve rows of a regression, from text to posterior: whoever follows them meets this many functions."""
    import numpy as np

    import gpdsl

    text = """
    input x : real
    output y : real
    param s2 : positive
    param ell : positive
    param sigma : positive
    latent f(x) ~ GP(0, s2 * RBF(ell))
    y ~ Normal(f, sigma)
    """
    model, x, met = gpdsl.compile(text), np.linspace(0, 1, 12), set()

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and "<" not in code.co_name:
            met.add((code.co_filename, code.co_qualname))

    model.fit({"x": x[1:], "y": np.sin(x[1:])})  # modules are loaded
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        gpdsl.compile(text).fit({"x": x, "y": np.sin(x)})
    finally:
        sys.setprofile(before)
    assert 0 < len(met) <= FUNCTIONS
    assert len({file for file, _ in met}) <= FILES
