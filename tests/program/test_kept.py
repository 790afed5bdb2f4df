"""Programs kept between processes: found by what they were made from, never by a name that may mean something else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

from gpdsl.inference.resolution import finely
from gpdsl.program import cache, kept
from gpdsl.program.kept import Named, Unique, identity, shapes_of

SCRIPT = """
import sys, jax, numpy as np
import gpdsl
lowered = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: lowered.append("to_mlir" in name))
x = np.linspace(0.0, 6.0, 40)
model = "model m\\ninput x : real\\noutput y : binary\\nparam s : positive = 1\\nlatent f(x) ~ GP(0, s * RBF(1))\\n"
fit = gpdsl.compile(model + f"y ~ Bernoulli(logit = {sys.argv[1]} * f)\\n").fit(
    {"x": x, "y": (np.sin(x) > 0).astype(float)}, progress=False
)
print(sum(lowered), repr(fit.elbo), repr(float(fit.predict({"x": [1.0, 2.0]}).mean("y").sum())))
"""


def _run(folder: Path, slope: float = 2.0, **more: str) -> tuple[int, str, str]:
    """How many programs were lowered, the bound and a prediction."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "GPDSL_CACHE_DIR": str(folder), "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    environment |= {"GPDSL_TRACE": "", **more}
    line = [sys.executable, "-W", "error", "-c", SCRIPT, str(slope)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    lowered, bound, mean = done.stdout.split()
    return int(lowered), bound, mean


@pytest.mark.slow
def test_a_second_process_traces_nothing_and_finds_the_same(tmp_path: Path) -> None:
    """Not even what is small; and one whose files are broken finds the same too."""
    traced, *first = _run(tmp_path)
    again, *second = _run(tmp_path)
    assert traced > 5 and again == 0
    assert second == first
    for number, file in enumerate(tmp_path.rglob(f"*{kept.SUFFIX}")):
        file.write_bytes(file.read_bytes()[:-1] if number % 2 else b"")
    mended, *fourth = _run(tmp_path)
    assert mended > 5 and fourth == first


@pytest.mark.slow
def test_another_model_is_another_program_and_who_asks_traces(tmp_path: Path) -> None:
    traced, *first = _run(tmp_path)
    assert traced > 5
    assert _run(tmp_path, 3.0)[1:] != tuple(first)
    assert _run(tmp_path, 3.0)[0] == 0
    anyway, *third = _run(tmp_path, GPDSL_TRACE="1")
    assert anyway > 5 and third == first


def _digest(value: Any) -> bytes:
    return kept._digest(identity(value))


def test_what_differs_has_another_digest() -> None:
    """Also where it is written alike, or grouped in another way."""
    x, y = sp.symbols("x y")
    others = [1, 1.0, "1", b"1", True, None, (), ((),), (1, 2), ((1,), 2), ("1", "2"), (12,), x + y, x * y, "x + y"]
    others += [sp.Symbol("x", positive=True), x, np.ones(2), np.ones(2, np.float32), np.dtype("f4"), float, finely]
    others += [frozenset({1, 2}), frozenset({1, 3}), [1, 2], {1: 2}, "gpdsl.inference.resolution.finely"]
    digests = [_digest(each) for each in others]
    assert len(set(digests)) == len(others)
    assert digests == [_digest(each) for each in others]
    assert kept._digest((b"a", b"bbytes c")) != kept._digest((b"abytes b", b"c"))
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert list(one) != list(other) and kept._digest(one) == kept._digest(other)


def _own(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "value",
    [_own, Named("__main__", "function"), object(), Named("gpdsl", "f.<locals>.g"), Path().exists, partial(finely)],
)
def test_what_another_process_may_mean_something_else_by_has_no_digest(value: object) -> None:
    with pytest.raises(Unique):
        kept._digest((identity(value) if value is _own else value, 1))


def test_programs_that_call_other_things_than_lapack_are_not_kept(tmp_path: Path) -> None:
    """An address of a function of this process would be no address in the next one."""

    def compiled(function: Any) -> Any:
        with kept._compiled_anew():  # what JAX's cache has of an earlier run cannot be written again
            return jax.jit(function).lower(np.eye(3, dtype=np.float32)).compile()

    def asks(x: Any) -> Any:
        return jax.pure_callback(lambda a: np.asarray(a), jax.ShapeDtypeStruct((3, 3), np.float32), x)

    kept._write(tmp_path / "calls", compiled(asks))
    assert not list(tmp_path.iterdir())
    kept._write(tmp_path / "factorises", compiled(jax.numpy.linalg.cholesky))
    loaded = kept._read(tmp_path / "factorises", (np.eye(3, dtype=np.float32),))
    assert loaded is not None
    np.testing.assert_allclose(loaded(4 * np.eye(3, dtype=np.float32)), 2 * np.eye(3), rtol=1e-6)
    content = (tmp_path / "factorises").read_bytes()
    for place in (5, len(content) // 2):
        damaged = bytes((*content[:place], content[place] ^ 1, *content[place + 1 :]))
        (tmp_path / "factorises").write_bytes(damaged)
        assert kept._read(tmp_path / "factorises", (np.eye(3, dtype=np.float32),)) is None


def test_names_that_were_given_again_keep_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.setenv(kept.VARIABLE, "")
    assert kept._path(("key", 1)) is not None
    monkeypatch.setenv(kept.VARIABLE, "1")
    assert kept._path(("key", 1)) is None
    monkeypatch.setenv(kept.VARIABLE, "")
    with monkeypatch.context() as several:
        several.setattr(jax, "device_count", lambda: 2)
        assert kept._path(("key", 1)) is None
    kept.forget()
    assert kept._path(("key", 1)) is None


def test_what_is_told_once_for_many_keys_is_told_in_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However deep in a key it lies, and though Python takes 1 for 1.0; the same made again is the same."""
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.setenv(kept.VARIABLE, "")

    def inside(*values: Any) -> list[Any]:
        found: list[Any] = [tuple(values)]
        for _ in range(kept.PARTS + 1):
            found.append(("of", found[-1]))
        return found

    several = [inside(1), inside(1.0), inside(True), inside(1, 1), inside((1,)), inside("1")]
    paths = [kept._path(key) for each in several for key in each]
    assert None not in paths and len(set(paths)) == len(paths)
    assert [kept._path(key) for key in inside(1)] == paths[: kept.PARTS + 2]


def test_what_programs_depend_on_besides_is_in_their_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What JAX is told, XLA, and of how many cores; programs of other shapes are others."""
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.setenv(kept.VARIABLE, "")
    paths = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            paths += [kept._path("key"), kept._path(("key", 1))]
            with jax.default_matmul_precision("float32"):
                paths.append(kept._path("key"))
    assert None not in paths and len(set(paths)) == 6
    stamps = [kept._stamp.__wrapped__()]
    monkeypatch.setattr(os, "cpu_count", lambda: 77)
    stamps.append(kept._stamp.__wrapped__())
    monkeypatch.setenv("XLA_FLAGS", "--some")
    stamps.append(kept._stamp.__wrapped__())
    assert len(set(stamps)) == 3
    monkeypatch.undo()
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.setenv(kept.VARIABLE, "")
    for count in (2, 3, 2):
        for numbers in (np.ones(count, np.float32), np.ones(count, np.int32)):
            kept.forget()
            monkeypatch.setattr(kept, "names_are_kept", True)
            np.testing.assert_array_equal(kept.on_use(("twice",), lambda: lambda x: 2 * x)(numbers), 2 * numbers)
    assert len(list(tmp_path.iterdir())) == 4


def test_arguments_are_alike_where_programs_are() -> None:
    """Numbers of Python give way to other types; arrays do not, whoever holds them."""
    array = np.ones(2, np.float32)
    assert shapes_of((array, np.float32(1))) == shapes_of((jnp.asarray(array), jnp.float32(1)))
    alone = np.float32(1), 1.0, jnp.asarray(1.0), array, np.ones(2, np.int32), np.ones((2, 1), np.float32), (array,)
    with jax.enable_x64(False):
        shapes = [shapes_of(each) for each in alone]
    assert shapes[0] not in shapes[1:3]
    assert len(set(shapes[3:])) == 4 and not set(shapes[:3]) & set(shapes[3:])


def test_what_programs_depend_on_besides_makes_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs that were compiled in a hurry are not found by who does not ask for that."""
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.setenv(kept.VARIABLE, "")
    monkeypatch.setenv(cache.ALL_BRIEF, "")
    before = kept._path(("key", 1))
    monkeypatch.setenv(cache.ALL_BRIEF, "1")
    brief = kept._path(("key", 1))
    monkeypatch.setenv(cache.ALL_BRIEF, "")
    offset = jax.config.values["jax_random_seed_offset"]
    try:
        jax.config.update("jax_random_seed_offset", offset + 1)
        seeded = kept._path(("key", 1))
    finally:
        jax.config.update("jax_random_seed_offset", offset)
    assert len({before, brief, seeded}) == 3
    assert kept._path(("key", 1)) == before


def test_threads_that_compile_at_once_leave_the_cache_of_jax_on() -> None:
    assert jax.config.values["jax_enable_compilation_cache"]
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with kept._compiled_anew():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=first)
    other.start()
    inside.wait(60)
    with kept._compiled_anew():
        leave.set()
        other.join(60)
        assert not jax.config.values["jax_enable_compilation_cache"]
    assert jax.config.values["jax_enable_compilation_cache"]


def test_what_cannot_be_written_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk would be filled with pieces of programs otherwise."""
    program = jax.jit(lambda x: x + 1).lower(1.0).compile()
    taken = tmp_path / "taken"
    taken.mkdir()
    kept._write(taken, program)
    assert list(tmp_path.iterdir()) == [taken]

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept._write(tmp_path / "program", program)
    assert list(tmp_path.iterdir()) == [taken]


def test_sources_are_told_by_what_they_say(tmp_path: Path) -> None:
    """Some installers and images give all files one time, and a number may change without a size."""
    file = tmp_path / "constants.py"
    file.write_text("SMALL = 1e-6")
    os.utime(file, (0, 0))
    before = kept._sources(tmp_path)
    file.write_text("SMALL = 1e-8")
    os.utime(file, (0, 0))
    assert kept._sources(tmp_path) != before


def test_what_many_keys_have_in_common_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A look at it takes as long as a program of a few numbers does; what is only equal to it is told apart."""
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(kept, "names_are_kept", True)
    monkeypatch.delenv(kept.VARIABLE, raising=False)
    told: list[object] = []
    said = kept._said
    monkeypatch.setattr(kept, "_said", lambda value: told.append(value) or said(value))
    common = tuple(f"a part of a model, {number}" for number in range(50))
    paths = [kept._path(((common, place), (), True)) for place in range(3)]
    assert len(set(paths)) == 3 and None not in paths
    assert sum(value == common[7] for value in told) == 1
    whole, real = (kept._path((((each,), 0), (), True)) for each in (1, 1.0))
    assert whole != real
    assert kept._path((((*common[:-1], common[-1]), 0), (), True)) == paths[0]
