"""The cache of compiled programs: where it is, that it fills and is found again, and that it never breaks a fit."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpdsl.errors import GpdslWarning
from gpdsl.program import cache, cache as private

SCRIPT = """
import jax, jax.numpy as jnp
from gpdsl.program.cache import jit
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


def test_every_level_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = cache._usable(tmp_path / "cache" / "gpdsl" / "processor")
    finally:
        os.umask(before)
    assert folder is not None
    levels = (folder, folder.parent, folder.parent.parent)
    assert [stat.S_IMODE(level.stat().st_mode) for level in levels] == [0o700] * 3


def _refused(folder: Path) -> str:
    with pytest.warns(GpdslWarning, match="compiled programs are not kept") as said:
        assert cache._usable(folder) is None
    return str(said[0].message)


@pytest.mark.parametrize("mode", [0o777, 0o770])
@pytest.mark.parametrize("level", ["open", "open/within", "open/a link"])
def test_a_folder_that_others_may_fill_is_refused(
    tmp_path: Path, mode: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_own_group", lambda number: False)
    (tmp_path / "open").mkdir()
    (tmp_path / "elsewhere" / "below").mkdir(parents=True)
    (tmp_path / "open" / "a link").symlink_to(tmp_path / "elsewhere" / "below")
    for each in (tmp_path / "open", tmp_path / "elsewhere"):
        each.chmod(mode)
    assert "others may write to" in _refused(tmp_path / level)


def test_a_sticky_parent_is_safe_and_a_sticky_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    assert cache._usable(tmp_path / "shared" / "mine") == tmp_path / "shared" / "mine"
    assert "others may write to" in _refused(tmp_path / "shared")


@pytest.mark.parametrize("level", [".", "within"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(private, "ROOT", owner + 1)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert "belongs to" in _refused(tmp_path / level)


def test_a_group_of_the_user_alone_is_no_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    grp, pwd = pytest.importorskip("grp"), pytest.importorskip("pwd")
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name="ada", pw_gid=7))
    cases = (("ada", [], True), ("ada", ["ada"], True), ("ada", ["eve"], False), ("all", [], False))
    for name, members, alone in cases:
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda number, group=group: group)
        assert private._own_group(7) is alone
    assert not private._own_group(8)


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
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == tmp_path / ".cache" / "gpdsl"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.cache_folder() == tmp_path / "Library" / "Caches" / "gpdsl"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.cache_folder() == tmp_path / "local" / "gpdsl"


def test_the_oldest_programs_go_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for age, name in enumerate(("new", "older", "oldest")):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(cache, "LARGEST", 250)
    cache._prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "older"]


def test_what_there_is_is_looked_at_now_and_then(tmp_path: Path) -> None:
    assert cache._due(tmp_path)
    assert not cache._due(tmp_path)
    os.utime(tmp_path / "looked", (1e9, 1e9))
    assert cache._due(tmp_path)


@pytest.mark.parametrize(
    ("version", "named", "kept"), [((0, 10, 1), "", False), ((0, 10, 1), "f", True), ((0, 10, 2), "", True)]
)
def test_programs_that_jax_would_warn_of_are_kept_only_where_a_folder_is_named(
    version: tuple[int, ...], named: str, kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []
    config = SimpleNamespace(jax_compilation_cache_dir=None, update=lambda name, _: told.append(name))
    monkeypatch.setattr(cache, "jax", SimpleNamespace(__version_info__=version, config=config))
    monkeypatch.setattr(cache, "folder", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    if named:
        monkeypatch.setenv(cache.VARIABLE, str(tmp_path / named))
    cache.keep_compiled_programs()
    assert (cache.folder is not None) == ("jax_compilation_cache_dir" in told) == kept
