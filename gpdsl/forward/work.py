"""What a worker does, wherever it runs: call the function on some rows and say what came back."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickletools
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np

from gpdsl.errors import LONGEST_QUOTE, described, printable, quoted
from gpdsl.forward.errors import ForwardModelError

FORWARD_MODULE = "gpdsl_forward"
"""The name under which files of the command line's `--forward` run."""


class Unreachable(Exception):
    """Raised by a function that cannot be called at all any more: its server is gone. No row is to blame."""


class RemoteTraceback(Exception):
    """The cause of an error that happened in another process: the traceback, as text."""


@dataclass(frozen=True)
class Fault:
    """Why there is no value. `kind` is exception, type, timeout, died or unreachable; `text` says it in a line."""

    kind: str
    text: str
    cause: BaseException | None = None
    trace: str = ""

    def packed(self) -> Fault:
        """The same fault, fit to be sent to another process: exceptions may not be."""
        if self.cause is None:
            return self
        lines = "".join(traceback.format_exception(self.cause)).rstrip()
        return replace(self, cause=None, trace=printable(lines[-LONGEST_QUOTE:]))

    @property
    def origin(self) -> BaseException | None:
        """What `raise ... from` takes."""
        return self.cause or (RemoteTraceback("\n" + self.trace) if self.trace else None)


Answer = np.ndarray | list[np.ndarray | Fault] | Fault
"""Values [rows, ...]; or what each row gave; or why the call as a whole gave nothing."""


def evaluate(
    function: Callable[..., Any],
    vectorized: bool,
    arguments: Sequence[np.ndarray],
    *,
    stop: bool = False,
    started: Callable[[int], None] | None = None,
    into: list[np.ndarray | Fault] | None = None,
) -> Answer:
    """Call the function on these rows, all at once or one by one.

    `started` is told the number of each row before it begins, and `into` collects the results of rows meanwhile; with
    `stop` nothing is called after a row that failed, and the answer ends there. An interrupt passes through.
    """
    copies = [np.array(values) for values in arguments]
    if vectorized:
        if started is not None:
            started(0)
        return _attempt(function, copies)
    results: list[np.ndarray | Fault] = [] if into is None else into
    for number, row in enumerate(zip(*[_values(values) for values in copies], strict=True)):
        if started is not None:
            started(number)
        results.append(_attempt(function, row))
        if ends(results[-1], stop):
            break
    return together(results)


def evaluate_packed(
    function: Callable[..., Any],
    vectorized: bool,
    stop: bool,
    arguments: Sequence[np.ndarray],
    started: Callable[[int], None] | None = None,
) -> Answer:
    """`evaluate` for another process: exceptions stay behind, as text, since not all of them can travel."""
    answer = evaluate(function, vectorized, arguments, stop=stop, started=started)
    if isinstance(answer, Fault):
        return answer.packed()
    if isinstance(answer, list):
        return [each.packed() if isinstance(each, Fault) else each for each in answer]
    return answer


def together(results: list[np.ndarray | Fault]) -> Answer:
    """Results of rows as one array, where they all are arrays of one shape."""
    if not results or isinstance(results[0], Fault):
        return results
    shape = results[0].shape
    for each in results:
        if isinstance(each, Fault) or each.shape != shape:
            return results
    return np.array(results)


def _values(values: np.ndarray) -> Any:
    """One value a row: arrays, and floats where an argument is a number."""
    return values.tolist() if values.ndim == 1 else values


def _attempt(function: Callable[..., Any], arguments: Sequence[Any]) -> np.ndarray | Fault:
    try:
        return numbers(function(*arguments))
    except ForwardModelError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a user's function raises is told with its row
        return fault_of(problem)


def fault_of(problem: BaseException) -> Fault:
    """An exception of the function as a fault."""
    kind = "unreachable" if isinstance(problem, Unreachable) else "exception"
    return Fault(kind, quoted(problem) if kind == "unreachable" else described(problem), problem)


def numbers(result: object) -> np.ndarray | Fault:
    """A result as float64, or a fault of kind `type` that says what it is instead."""
    if type(result) is np.ndarray and result.dtype == np.float64:
        return result.copy()  # the function may use its array again
    try:
        values = np.asarray(result)
    except (ValueError, TypeError) as problem:
        return Fault("type", f"a {type(result).__name__}", problem)
    if values.dtype.kind not in "biuf":
        kind = f"a {type(result).__name__}" if values.dtype.kind == "O" else f"of type {values.dtype}"
        return Fault("type", "None: a `return` may be missing" if result is None else kind)
    return values.astype(np.float64)


def ends(result: np.ndarray | Fault, stop: bool) -> bool:
    """Whether rows after one with this result need not be tried."""
    return isinstance(result, Fault) and (stop or result.kind == "unreachable")


def stops(answer: Answer, stop: bool) -> bool:
    """The same of an answer."""
    return any(ends(each, stop) for each in (answer if isinstance(answer, list) else [answer]))


def even(rows: int, parts: int) -> list[slice]:
    """Rows cut into so many pieces of nearly equal length, or fewer where there are fewer rows."""
    bounds = np.linspace(0, rows, min(max(parts, 1), max(rows, 1)) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def take(arguments: Sequence[np.ndarray], rows: slice | np.ndarray) -> list[np.ndarray]:
    """Some rows of every argument."""
    return [values[rows] for values in arguments]


# A worker process: it receives functions once each, then rows, and answers until its parent hangs up.
#
# Before each row it notes the row and the time in memory shared with the parent, which so knows which row a worker died
# in, or hangs in. What is read back from bytes here comes from the parent process alone, through a private pipe.

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
    # Ctrl-C is for the parent, which ends its workers, and has blocked it for this process from its birth on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Workers share the cores: without this, each one's linear algebra would use all of them.
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=max(threads, 1))

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


# Time-outs for the pipe to a worker: a process that is stopped must not stop the one that writes to it.


def limit_waits(pipe: Connection, seconds: float) -> None:
    """Let a half-sent or half-received message fail after so many seconds, where the system can (not on Windows)."""
    if os.name != "posix":
        return
    limit = min(max(seconds, 1.0), 1e6)
    value = struct.pack("@ll", int(limit), int(1e6 * (limit % 1)))
    with socket.socket(fileno=os.dup(pipe.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


# What it takes to run an opaque function somewhere: the job, its time-outs, and the one method of a backend.

DEFAULT_TIMEOUT = 600.0
"""Seconds that one call may take where it runs elsewhere, unless the registration says otherwise."""

LONGEST_WAIT = 1e6
"""Seconds: time-outs beyond this are more than the system takes."""

PIECES = 4
"""Pieces for each worker, where the rows of a batch are shared out once and for all: some take longer than others."""


@dataclass(frozen=True)
class Job:
    """A function and how it is called. `stop`: rows after one that failed need not be tried."""

    name: str
    function: Callable[..., Any]
    vectorized: bool
    timeout: float | None = None
    stop: bool = False

    @property
    def patience(self) -> float:
        """Seconds that one call may take elsewhere."""
        return DEFAULT_TIMEOUT if self.timeout is None else self.timeout

    def pieces(self, rows: int, workers: int) -> list[slice]:
        """Rows shared out: a vectorised function gets one piece a worker, one that takes rows gets several."""
        return even(rows, workers if self.vectorized else PIECES * workers)

    def allowed(self, rows: int) -> float:
        """Seconds that a piece of so many rows may take."""
        return min(self.patience * (1 if self.vectorized else rows), LONGEST_WAIT)


Pieces = list[tuple[slice, Answer]]
"""Answers for pieces of a batch. Rows may be left out only where a row failed and `Job.stop` is set."""


class Backend(ABC):
    """What runs functions: on all rows of the arguments, with time-outs on every wait."""

    place: str
    """Where that is, in words, for `explain`."""

    @abstractmethod
    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        """Answers for all rows."""
