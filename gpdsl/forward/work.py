"""What a worker does, wherever it runs: call the function on some rows and say what came back."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    except Exception as problem:  # noqa: BLE001 - whatever a user's function raises is reported with its row
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
