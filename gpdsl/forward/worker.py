"""A worker process: it receives the function once, then rows, and answers until its parent hangs up.

Before each row it notes the row and the time in memory shared with the parent, which so knows which row a worker died
in, or hangs in. What is read back from bytes here comes from the parent process alone, through a private pipe.
"""

from __future__ import annotations

import importlib.util
import pickletools
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from gpdsl.forward.work import FORWARD_MODULE, evaluate_packed

READY, BROKEN = "ready", "broken"


class NotPortable(Exception):
    """A function that no other process can be given; the text says why."""


def packed_function(function: Callable[..., Any]) -> bytes | tuple[str, str]:
    """How a worker gets a function: as bytes that name it, or as the file of `--forward` and the name there.

    Raises NotPortable for a function that another process cannot find.
    """
    name, code = getattr(function, "__qualname__", ""), getattr(function, "__code__", None)
    if getattr(function, "__module__", "") == FORWARD_MODULE and code is not None and "<" not in name:
        return str(Path(code.co_filename).resolve()), name
    try:
        packed = bytes(ForkingPickler.dumps(function))
    except Exception as problem:
        raise NotPortable(" ".join(str(problem).split()) or type(problem).__name__) from problem
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None:
        names = {argument for _, argument, _ in pickletools.genops(packed) if isinstance(argument, str)}
        if "__main__" in names:
            raise NotPortable("it is defined in an interactive session, which a worker cannot import")
    return packed


def serve(pipe: Connection, clock: Any, packed: bytes | tuple[str, str], vectorized: bool, threads: int) -> None:
    """The life of a worker. `clock` is shared: the row in work, and since when."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    try:
        function = _function(packed)
    except BaseException as problem:  # noqa: BLE001 - the parent raises it, as an error with what to do
        pipe.send((BROKEN, f"{type(problem).__name__}: {problem}"))
        return
    _limit_threads(threads)
    pipe.send((READY, ""))

    def started(number: int) -> None:
        clock[0], clock[1] = float(number), time.monotonic()

    while True:
        try:
            stop, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        begun = time.monotonic()
        answer = evaluate_packed(function, vectorized, stop, arguments, started)
        pipe.send((answer, (time.monotonic() - begun) / max(len(arguments[0]), 1)))


def _function(packed: bytes | tuple[str, str]) -> Callable[..., Any]:
    if isinstance(packed, bytes):
        found: Callable[..., Any] = ForkingPickler.loads(packed)
        return found
    path, name = packed
    specification = importlib.util.spec_from_file_location(FORWARD_MODULE, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[FORWARD_MODULE] = module
    specification.loader.exec_module(module)
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value  # type: ignore[no-any-return]


def _limit_threads(threads: int) -> None:
    """Workers share the cores: without this, each one's linear algebra would use all of them."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=max(threads, 1))
