"""Compiled programs that are used again: by the fits of one process, and from a folder by the next one.

Tracing and lowering a small program takes longer than loading its machine code. What one on disk was made from is told
by a digest of the key that it has within a process (`identity`), of the sources of gpdsl, of the versions of what
compiles, and of what they are told. A key with something in it that another process may mean something else by has
none.
"""

from __future__ import annotations

import enum
import hashlib
import os
import pickle
import platform
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import sympy as sp
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

import gpdsl
from gpdsl.program import cache as caching
from gpdsl.program.cache import ALL_BRIEF, jit, says_no
from gpdsl.replacing import replacing

# Compiled programs that the fits of one process share: those of one model and options, on other rows of the shapes.
#
# Tracing a small program takes longer than all its runs. It is found again by everything it was made from, compared
# value by value, so that what makes it must get nothing else: no rows, no starts (`Problem.shared`).

KEPT = 256
"""Programs kept; of more, those go that have not been asked for the longest."""

_programs: OrderedDict[Hashable, Callable[..., Any]] = OrderedDict()


names_are_kept = True
"""Whether names mean in this process what they mean in every other."""


class Named(NamedTuple):
    """What an identity says of a function."""

    module: str
    name: str


class Unique(Exception):
    """Something that cannot be compared with what another program was made from."""


def reused(key: Hashable, compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The program of this key, compiled when there is none."""
    if key not in _programs:
        _programs[key] = compiled()
    _programs.move_to_end(key)
    while len(_programs) > KEPT:
        _programs.popitem(last=False)
    return _programs[key]


def forget() -> None:
    """Let go of all programs: what some were made from has another meaning now under the same name."""
    global names_are_kept
    names_are_kept = False
    _programs.clear()


def shapes_of(arguments: Any) -> Hashable:
    """Structure, shapes and types of arguments, all that a compiled program knows of them."""
    leaves, tree = jax.tree.flatten(arguments)
    firm = np.ndarray, np.generic  # of a type that does not give way to others
    weak = (getattr(leaf, "weak_type", False if isinstance(leaf, firm) else None) for leaf in leaves)
    return tree, tuple(zip(map(np.shape, leaves), map(jnp.result_type, leaves), weak, strict=True))


def identity(value: Any) -> Hashable:
    """What two values have in common if, and only if, they are the same constants. Raises Unique for what has none.

    Whatever has an `identity` of its own knows best. Functions are the same if they are one function of a module.
    """
    if value is None or isinstance(value, (str, bytes, int, float, complex, enum.Enum, sp.Basic, np.dtype, type)):
        return type(value), value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        return array.shape, array.dtype.str, array.tobytes()
    own = getattr(value, "identity", None)
    if own is not None:
        return own
    if is_dataclass(value):
        return type(value), tuple(identity(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((identity(name), identity(each)) for name, each in value.items())
    if isinstance(value, Set):
        return frozenset(map(identity, value))
    if isinstance(value, Sequence):
        return type(value), tuple(map(identity, value))
    if callable(value) and "<" not in getattr(value, "__qualname__", "<"):
        return Named(value.__module__, value.__qualname__)
    raise Unique(type(value).__name__)


# Whole programs kept on disk: the next process loads one by what it was made from, and neither traces nor compiles it.

VARIABLE = "GPDSL_TRACE"
"""The environment variable that asks each process to trace its programs itself."""

SUFFIX = ".program"

TOLD = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
    "jax_softmax_custom_jvp",
    "jax_optimization_level",
    "jax_disable_most_optimizations",
)
"""What JAX is told that programs depend on."""


def kept(key: Hashable, arguments: Any, build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The program of a key for arguments like these, from the disk if it is there; else built, and put there."""
    path = _path(key)
    if path is None:
        return build()
    found = _read(path, arguments)
    if found is None:
        with _compiled_anew():
            found = build()
        _write(path, found)
    return found


def on_use(key: Hashable, make: Callable[[], Callable[..., Any]], brief: bool = False) -> Callable[..., Any]:
    """The function that `make` gives, compiled when it is first called, for all in this process who give this key."""
    return reused(key, lambda: _on_use(key, make(), brief))


def _on_use(key: Hashable, function: Callable[..., Any], brief: bool) -> Callable[..., Any]:
    """A function compiled, or found on the disk, when it is first called, and again for arguments of other shapes."""
    if _path((key, (), brief)) is None:  # as deep as below: what tells a program is told once
        return jit(function, brief=brief)  # type: ignore[no-any-return]
    ready: dict[Hashable, Callable[..., Any]] = {}

    def call(*arguments: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
            return function(*arguments)
        shapes = shapes_of(arguments)
        if shapes not in ready:

            def build() -> Callable[..., Any]:
                return jit(function, brief=brief).lower(*arguments).compile()  # type: ignore[no-any-return]

            ready[shapes] = kept((key, shapes, brief), arguments, build)
        return ready[shapes](*arguments)

    return call


_anew = threading.Lock()
_before: list[bool] = []
"""What JAX's cache is to be again, once for each thread that compiles without it."""


@contextmanager
def _compiled_anew() -> Iterator[None]:
    """Without JAX's cache: what has been read from there once lacks parts when it is written again.

    The first of several threads turns it off, and the last turns it on again.
    """
    name = "jax_enable_compilation_cache"
    with _anew:
        _before.append(_before[0] if _before else getattr(jax.config, name))
        if len(_before) == 1:
            jax.config.update(name, False)
            compilation_cache.reset_cache()
    try:
        yield
    finally:
        with _anew:
            before = _before.pop()
            if not _before:
                jax.config.update(name, before)
                compilation_cache.reset_cache()


def _path(key: Hashable) -> Path | None:
    """Where the program of a key is; None where none is kept."""
    folder = caching.folder
    alone = jax.default_backend() == "cpu" and jax.device_count() == 1
    if folder is None or not alone or not names_are_kept or not says_no(VARIABLE):
        return None
    digest = hashlib.sha256(_stamp())
    try:
        _tell(digest.update, (key, says_no(ALL_BRIEF), tuple(getattr(jax.config, name, None) for name in TOLD)), PARTS)
    except Unique:
        return None
    return folder / f"{digest.hexdigest()}{SUFFIX}"


@cache
def _stamp() -> bytes:
    """What tells this gpdsl, and what it compiles with, from others."""
    versions = (jax.__version__, jaxlib.__version__, np.__version__, sp.__version__, platform.python_version())
    told = os.environ.get("XLA_FLAGS", ""), os.cpu_count()
    return repr((_sources(Path(gpdsl.__file__).parent), versions, told)).encode()


def _sources(root: Path) -> str:
    """A digest of the sources in a folder: by their content, since installers and images may give all one time."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        _tell(digest.update, (str(path.relative_to(root)), path.read_bytes()))
    return digest.hexdigest()


PARTS = 3
"""How deep in a key those of its parts lie that many keys have in common: what tells a program."""


MOST_DIGESTS = 64

_digests: dict[int, tuple[Any, bytes]] = {}
"""Values and their digests by `id`: comparing takes no look inside, 1 is not 1.0, and what is held keeps its `id`."""


def _tell(update: Callable[[bytes], Any], value: Any, parts: int = -1) -> None:
    """Everything of a value, unambiguously. Raises Unique for what another process may mean something else by.

    Tuples so many levels down are told by their digests, which are kept.
    """
    if isinstance(value, (tuple, frozenset)) and not isinstance(value, Named):
        if parts == 0:
            known = _digests.get(id(value))
            if known is None:
                known = _digests[id(value)] = value, _digest(value)
                for oldest in [*_digests][:-MOST_DIGESTS]:
                    _digests.pop(oldest, None)
            update(b"part")
            update(known[1])
            return
        update(f"{type(value).__name__} {len(value)}".encode())
        if isinstance(value, frozenset):
            for each in sorted(_digest(each) for each in value):
                update(each)
            return
        for each in value:
            _tell(update, each, parts - 1)
        return
    said = _said(value)
    update(len(said).to_bytes(8, "little"))
    update(said)


def _digest(value: Any) -> bytes:
    digest = hashlib.sha256()
    _tell(digest.update, value)
    return digest.digest()


def _said(value: Any) -> bytes:
    if isinstance(value, bytes):
        return b"bytes " + value
    if isinstance(value, enum.Enum):
        return f"enum {_ours(type(value))} {value.name}".encode()
    if value is None or isinstance(value, (str, int, float, complex)):
        return f"{type(value).__name__} {value!r}".encode()
    if isinstance(value, sp.Basic):
        return f"formula {sp.srepr(value)}".encode()
    if isinstance(value, (np.dtype, jax.tree_util.PyTreeDef)):
        return f"{type(value).__name__} {value}".encode()
    if isinstance(value, (Named, type, FunctionType, BuiltinFunctionType)):  # no methods: their objects have no name
        return f"name {_ours(value)}".encode()
    raise Unique(type(value).__name__)


def _ours(value: Any) -> str:
    """The full name of a class or a function that is of a package, and the same in every process."""
    module, name = (value.module, value.name) if isinstance(value, Named) else (value.__module__, value.__qualname__)
    if module.partition(".")[0] not in {"gpdsl", "jax", "numpy", "sympy", "builtins", "collections"} or "<" in name:
        raise Unique(f"{module}.{name}")
    return f"{module}.{name}"


def _read(path: Path, arguments: Any) -> Callable[..., Any] | None:
    """A program for such arguments; None where it is not there, or not whole."""
    try:
        content = path.read_bytes()
        whole, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != whole:
            return None
        os.utime(path)
        _with_lapack()
        executable, like = pickle.loads(payload)  # noqa: S301 (of a folder that nobody else can fill: `cache`)
        trees = jax.tree.structure((arguments, {})), jax.tree.structure(like)
        return serialize_executable.deserialize_and_load(executable, *trees)
    except Exception:  # noqa: BLE001 (of whatever does not read what another has written)
        return None


@cache
def _with_lapack() -> None:
    """Let JAX find its LAPACK, as it does where a factorisation is lowered: without, a process ends at a call of it."""
    try:
        from jaxlib.lapack import prepare_lapack_call

        prepare_lapack_call("potrf_ffi", np.dtype(np.float64))
    except (ImportError, AttributeError, TypeError):  # another version: the same, in fifty milliseconds
        jax.jit(jnp.linalg.cholesky).lower(np.eye(1))


KNOWN = "lapack_"
"""How what programs call outside of themselves is named that is there in every process."""


def _write(path: Path, program: Any) -> None:
    """Keep a program, whole or not at all; some cannot be."""
    try:
        if not all(name.startswith(KNOWN) for name in re.findall(r'custom_call_target="([^"]*)"', program.as_text())):
            return
        executable, _, tree = serialize_executable.serialize(program)
        payload = pickle.dumps((executable, jax.tree.unflatten(tree, range(tree.num_leaves))))
        with replacing(path, "wb", lasting=False) as file:
            file.write(hashlib.sha256(payload).digest() + payload)
    except Exception:  # noqa: BLE001 (a full disk, a result that is no plain data)
        return
