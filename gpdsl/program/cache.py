"""Compiled programs kept on disk between runs: the second fit of a model compiles in a fraction of the time.

`GPDSL_CACHE_DIR` names the folder, or says `off`; by default it is in the user's cache folder. A folder that cannot be
written to means no cache, and one that others could fill means none either, with a warning: its programs are run. A
cache that JAX has been given already is left as it is.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import jax

from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.program import beginning

# Folders that nobody else can put files into: what is found there is run, so it must be the user's own.

ROOT = 0


def made_private(folder: Path) -> None:
    """Make a folder and every level above it that is missing, each for the user alone."""
    for level in (*reversed(folder.parents), folder):
        if not level.exists():
            level.mkdir(mode=0o700, exist_ok=True)


def intruder(folder: Path) -> str:
    """Why a folder, with its links resolved, is not the user's alone to fill: which level, and who else; or nothing.

    A level is safe that the user or the administrator owns and nobody else may write to. Above the folder the sticky
    bit will do, as of `/tmp`: there others cannot replace what is not theirs.
    """
    if not hasattr(os, "getuid"):
        return ""
    for level in (folder, *folder.parents):
        found = level.stat()
        if found.st_uid not in (os.getuid(), ROOT):
            return f"{level} belongs to {_user(found.st_uid)}"
        others = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _own_group(found.st_gid))
        if others and (level == folder or not found.st_mode & stat.S_ISVTX):
            return f"others may write to {level}"
    return ""


def _user(number: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"the user {number}"


def _own_group(number: int) -> bool:
    """Whether a group is the one that many systems give each user, in which nobody else is."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return number == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


VARIABLE = "GPDSL_CACHE_DIR"
OFF = ("off", "none", "no", "false", "0")

LARGEST = 1 << 30
"""Bytes; the oldest programs are dropped beyond it."""

SELDOM = 3600.0
"""Seconds between two looks at how many bytes there are."""

WORTH_KEEPING = 0.1
"""Seconds of compilation from which on a program is kept."""


folder: Path | None = None
"""Where programs are kept, which nobody else can fill; None where they are not, or where JAX has been told."""


QUIET = (0, 10, 2)
"""The first JAX that does not warn, for each program of a CPU that it loads, of features it has made up itself."""


def keep_compiled_programs() -> None:
    """Turn JAX's persistent cache on, once, where that is possible, safe and wanted. Never raises."""
    global folder
    unwanted = jax.__version_info__ < QUIET and VARIABLE not in os.environ
    if unwanted or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    chosen = cache_folder()
    if chosen is None:
        return
    folder = _usable(chosen / _processor())
    if folder is None:
        return
    if _due(folder):
        _prune(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path | None:
    """Where compiled programs are kept, or None when they are not."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return None if says_no(VARIABLE) else Path(chosen).expanduser()
    with suppress(RuntimeError):  # no home folder
        return _user_cache() / "gpdsl"
    return None


def says_no(variable: str) -> bool:
    """Whether what an environment variable holds turns something off, or says nothing."""
    return os.environ.get(variable, "").strip().lower() in ("", *OFF)


def _user_cache() -> Path:
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    chosen = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path.home() / ".cache"


def _processor() -> str:
    """A name for what this machine can execute: a home folder may be shared by machines that differ."""
    features = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


def _usable(folder: Path) -> Path | None:
    """The folder, with its links resolved, made when it is not there; None where files cannot be made or trusted."""
    try:
        folder = folder.resolve()
        made_private(folder)
        reason = intruder(folder)
        if not reason:
            with tempfile.TemporaryFile(dir=folder):
                return folder
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        return None
    warnings.warn(
        f"compiled programs are not kept: {reason}, so that what is found in {folder} may not be yours; "
        f"let {VARIABLE} name a folder that only you can write to, or say `off`",
        GpdslWarning,
        stacklevel=2,
    )
    return None


def _due(folder: Path) -> bool:
    """Whether nobody has looked for too many programs lately: to look at ten thousand takes a third of a second."""
    mark = folder / "looked"
    with suppress(OSError):
        if mark.exists() and abs(time.time() - mark.stat().st_mtime) < SELDOM:
            return False
        mark.touch()
    return True


def _prune(folder: Path) -> None:
    """Drop the programs used longest ago until the rest is small enough; another process may do the same."""
    with suppress(OSError):
        files = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.is_file()]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda each: max(each[0].st_atime, each[0].st_mtime)):
            if total <= LARGEST:
                break
            with suppress(OSError):
                os.unlink(path)
            total -= status.st_size


# Compiling with XLA: one place, because one of its CPU defaults must be turned off.
#
# With the concurrency-optimised scheduler, programs with loops around factorisations stop for ever on machines with few
# cores: every worker thread waits for work that none is given. Seen with jaxlib 0.10 on two cores: a softmax model in
# the natural-gradient loop hangs every time with it and never with the scheduler for memory, which executes in
# sequence. Each matrix product still uses all cores.

SEQUENTIAL: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"),
    ("xla_cpu_enable_concurrency_optimized_scheduler", False),
)
"""What turns it off, by the name newer and older versions of XLA know it under."""

QUICK: tuple[tuple[str, Any], ...] = (("xla_cpu_use_fusion_emitters", False), ("xla_backend_optimization_level", 1))
"""What makes compilation quick: one compiler behind XLA instead of two, without its most expensive passes.

Measured with jaxlib 0.10: a minibatch program of a softmax of ten latents compiles in 2.1 s instead of 9.4 s, that of
a regression in 2.7 s instead of 4.6 s, and these programs are no slower. Nor are exponentials, reductions and
transposes on their own; in single precision powers (eight times) and normal draws (1.4 times) are.
"""

UNFUSED = "xla_cpu_use_fusion_emitters"
"""The quick compiler's loops around exponentials of large matrices take three times as long as the other's (2000 x 2000
covariances on one core, jaxlib 0.10: 0.032 s and 0.010 s)."""

LEAST: tuple[tuple[str, Any], ...] = (("xla_backend_optimization_level", 0),)
"""For programs that work little: they compile in less than half the time.

Run time grows by a third where factorisations and products lead, and by five times where samples of many latents do.
"""

PRODUCTS: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
)
"""The library for matrix products gets these alone: its sums over a leading axis take twenty times as long as XLA's."""

ALL_BRIEF = "GPDSL_BRIEF"
"""The environment variable that asks for programs that compile quickly, however long they run."""

beginning.before_jax_begins()
keep_compiled_programs()


def jit(function: Callable[..., Any], *, given: tuple[int, ...] = (), brief: bool = False, fused: bool = False) -> Any:
    """`jax.jit` with the compiler options this project needs on the backend in use.

    The memory of the arguments in the places `given` becomes the function's, for its results: they are lost. What is
    `brief` works so little that compiling it well takes longer; what is `fused` works on large matrices element by
    element.
    """
    options = _cpu_options() if jax.default_backend() == "cpu" else None
    if options and fused:
        options = {name: value for name, value in options.items() if name != UNFUSED}
    if options and (brief or not says_no(ALL_BRIEF)):
        options = {**options, **{name: value for name, value in LEAST if name in options}}
    return jax.jit(function, compiler_options=options, donate_argnums=given)


@functools.cache
def _cpu_options() -> dict[str, Any]:
    """Those of the options that this version of XLA knows: all but one as a rule, and one after the other otherwise."""
    wanted = (SEQUENTIAL[0], *QUICK, *PRODUCTS)
    if _known(dict(wanted)):
        return dict(wanted)
    return {name: value for name, value in (*SEQUENTIAL, *QUICK, *PRODUCTS) if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


# float64 without touching the caller's JAX configuration: every public entry runs inside its own precision.

Function = TypeVar("Function", bound=Callable[..., Any])

beginning.before_jax_begins()  # whatever computes first enters a precision: a draw from the prior as well as a fit


def precision(dtype: str) -> AbstractContextManager[Any]:
    """A context in which JAX computes in this dtype. Raises GpdslError in a fork of a process with JAX's threads.

    And compiles, where `JAX_DISABLE_JIT` says no: programs are compiled ahead of their calls, which JAX has no other
    way to run.
    """
    if beginning.forked:
        raise GpdslError(
            "this process was forked from one in which JAX had computed already, and what JAX computes here may never "
            "end: start processes with multiprocessing.get_context('spawn') (joblib and concurrent.futures take it as "
            "their context), or fork before the first fit"
        )
    wide = jax.enable_x64(dtype == "float64")
    return _compiling(wide) if jax.config.jax_disable_jit else wide  # type: ignore[attr-defined]


@contextmanager
def _compiling(wide: AbstractContextManager[Any]) -> Iterator[None]:
    with wide, jax.disable_jit(False):
        yield


def in_precision(method: Function) -> Function:
    """Run a method in the precision of its object's `dtype`."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with precision(self.dtype):
            return method(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]
