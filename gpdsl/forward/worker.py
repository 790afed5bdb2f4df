"""A worker process: it receives functions once each, then rows, and answers until its parent hangs up.

Before each row it notes the row and the time in memory shared with the parent, which so knows which row a worker died
in, or hangs in. What is read back from bytes here comes from the parent process alone, through a private pipe.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickletools
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from gpdsl.errors import described, quoted
from gpdsl.forward.work import FORWARD_MODULE, evaluate_packed

READY, BROKEN = "ready", "broken"


class NotPortable(Exception):
    """A function that no other process can be given; the text says why."""


@dataclass(frozen=True)
class Packed:
    """How a worker gets a function: as bytes that name it, or as the file of `--forward` and the name there."""

    content: bytes | None
    path: str = ""
    name: str = ""


def packed_function(function: Callable[..., Any]) -> Packed:
    """A function, fit to be sent. Raises NotPortable for one that another process cannot find."""
    name, code = getattr(function, "__qualname__", ""), getattr(function, "__code__", None)
    if getattr(function, "__module__", "") == FORWARD_MODULE and code is not None and "<" not in name:
        return Packed(None, str(Path(code.co_filename).resolve()), name)
    try:
        packed = bytes(ForkingPickler.dumps(function))
    except Exception as problem:
        raise NotPortable(quoted(problem) or type(problem).__name__) from problem
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None:
        names = {argument for _, argument, _ in pickletools.genops(packed) if isinstance(argument, str)}
        if "__main__" in names:
            raise NotPortable("it is defined in an interactive session, which a worker cannot import")
    return Packed(packed)


def serve(pipe: Connection, clock: Any, packed: Packed, threads: int) -> None:
    """The life of a worker. `clock` is shared: the row in work, and since when.

    A message is a function to load, or work: the function, the number of the first row, whether it is vectorised,
    whether to stop at a row that failed, and the arguments.
    """
    _ignore_interrupts()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_threads(threads)
    functions: dict[Packed, Callable[..., Any]] = {}

    def answer(message: Any) -> Any:
        if isinstance(message, Packed):
            return _loaded(message, functions)
        known, first, vectorized, stop, arguments = message

        def started(number: int) -> None:
            clock[0], clock[1] = float(first + number), time.monotonic()

        begun = time.monotonic()
        found = evaluate_packed(functions[known], vectorized, stop, arguments, started)
        return found, time.monotonic() - begun

    message: Any = packed
    with suppress(EOFError, OSError):  # the parent has hung up
        while message is not None:
            said = answer(message)
            pipe.send(said)
            message = pipe.recv()


def _ignore_interrupts() -> None:
    """Ctrl-C is for the parent, which ends its workers, and has blocked it for this process from its birth on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_parent() -> None:
    """End this process when its parent has ended, even by kill -9, whatever the function is busy with."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _loaded(packed: Packed, functions: dict[Packed, Callable[..., Any]]) -> tuple[str, str]:
    """Load a function; whether that went well, and what went wrong."""
    try:
        functions[packed] = _function(packed)
    except BaseException as problem:  # noqa: BLE001 - the parent raises it, as an error with what to do
        return BROKEN, described(problem)
    return READY, ""


def _function(packed: Packed) -> Callable[..., Any]:
    if packed.content is not None:
        found: Callable[..., Any] = ForkingPickler.loads(packed.content)
        return found
    specification = importlib.util.spec_from_file_location(FORWARD_MODULE, packed.path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{packed.path} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[FORWARD_MODULE] = module
    specification.loader.exec_module(module)
    value: Any = module
    for part in packed.name.split("."):
        value = getattr(value, part)
    return value  # type: ignore[no-any-return]


def _limit_threads(threads: int) -> None:
    """Workers share the cores: without this, each one's linear algebra would use all of them."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=max(threads, 1))
