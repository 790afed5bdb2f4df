"""The cache of compiled programs: where it is, that it fills and is found again, and that it never breaks a fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpdsl.program import cache

SCRIPT = """
import jax, jax.numpy as jnp
from gpdsl.program.compilation import jit
from gpdsl.program import cache
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
cache.jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
value = jit(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(5)).sum())(jnp.ones((5, 3)))
print(float(value), sum("cache_hits" in event for event in found))
"""


def _run(folder: str) -> tuple[float, int]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "GPDSL_CACHE_DIR": folder, "PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert "cache" not in done.stderr
    value, hits = done.stdout.split()
    return float(value), int(hits)


def test_a_second_run_finds_the_programs_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    first, nothing = _run(str(folder))
    assert nothing == 0
    assert any(path.is_file() for path in folder.rglob("*"))
    second, hits = _run(str(folder))
    assert hits > 0
    assert second == first


def test_a_folder_that_cannot_be_made_means_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert _run(str(tmp_path / "file" / "below"))[1] == 0


@pytest.mark.parametrize("word", ["off", "OFF", "0", "none", ""])
def test_the_variable_turns_it_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, word)
    assert cache.cache_folder() is None


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, "~/programs")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "programs"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "gpdsl"


def test_the_oldest_programs_go_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for age, name in enumerate(("new", "older", "oldest")):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(cache, "LARGEST", 250)
    cache._prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "older"]
