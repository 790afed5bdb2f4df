"""Functions of vectors offered as an UM-Bridge server: protocol 1.0 over HTTP, by the standard library alone.

Questions that arrive while another one is answered wait, and are then answered together as rows of one batch.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from jaxtyping import Float

from gpdsl.errors import GpdslError, described, quoted
from gpdsl.forward.session import NUMBER_BYTES, TimedSocket

# The questions of UM-Bridge 1.0 and their answers: values of functions, and slopes times a vector.

# Slopes of a function that is known by its values: differences over steps of many sizes, the best of them.

LEVELS, SHRINK = 20, 4.0
"""Steps on either side of a number, each so much smaller than the one before."""

ROUNDED, WIDE = 4, 64.0
"""Smallest steps, whose estimates differ by rounding, and how many times that an estimate may be off: where arguments
are nearly equal, values are rounded alike, and differ by less than those further apart.
"""

SMOOTH = ("real", "positive", "time")
"""Kinds of inputs along which there are slopes; none along counts and labels."""


def slopes(
    evaluate: Callable[[np.ndarray], np.ndarray],
    row: Float[np.ndarray, " inputs"],
    columns: Sequence[int],
    positive: Sequence[bool],
) -> Float[np.ndarray, "outputs columns"]:
    """Derivatives of rows of outputs by some of the inputs, those that are `positive` staying so."""
    found = []
    for column in columns:
        size = 0.5 * row[column] if positive[column] else max(1.0, abs(float(row[column])))
        steps = size / SHRINK ** np.arange(LEVELS)
        moved = np.tile(row, (2 * LEVELS, 1))
        moved[:, column] += np.concatenate([steps, -steps])
        steps = 0.5 * (moved[:LEVELS, column] - moved[LEVELS:, column])  # as they are after rounding
        above, below = np.split(np.asarray(evaluate(moved), float), 2)
        size = float(np.max(np.abs([above, below])))
        found.append(_best((above - below) / (2.0 * steps[:, None]), steps, size))
    return np.stack(found, axis=1)


def _best(
    differences: Float[np.ndarray, "levels outputs"], steps: Float[np.ndarray, " levels"], size: float
) -> Float[np.ndarray, " outputs"]:
    """From central differences, largest step first, of values up to `size`.

    Of estimates without the error of second order, that of the largest step which agrees with those of all smaller ones
    within what these are off by rounding: Lepski's choice. Rounding shows where steps are smallest.
    """
    square = SHRINK**2
    better = ((square * differences[1:] - differences[:-1]) / (square - 1.0))[::-1]
    steps = steps[:0:-1]
    scatter = np.abs(np.diff(better[:ROUNDED], axis=0)) * steps[: ROUNDED - 1, None]
    off = WIDE * np.maximum(scatter.max(axis=0), np.finfo(float).eps * size) / steps[:, None]
    low, high = np.maximum.accumulate(better - off), np.minimum.accumulate(better + off)
    agree = np.logical_and.accumulate(np.isfinite(better) & (low <= high))
    last = np.maximum(np.sum(agree, axis=0) - 1, 0)
    return np.take_along_axis(better, last[None], axis=0)[0]


VERSION = 1.0
SLOPES, ABSENT = ("Gradient", "ApplyJacobian"), ("ApplyHessian",)


class Refused(Exception):
    """An answer that is an error: its HTTP status, its type in the protocol, and what it says."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


def answer(served: Mapping[str, Together], path: str, body: bytes) -> dict[str, Any]:
    """The answer to one question. Raises Refused for one that has none."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name == "Info":
        return {"protocolVersion": VERSION, "models": list(served)}
    try:
        question = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refused(400, "InvalidInput", "the question is no JSON") from problem
    if not isinstance(question, dict):
        raise Refused(400, "InvalidInput", "the question is no JSON object")
    model = served.get(question.get("name", "")) if isinstance(question.get("name", ""), str) else None
    if model is None:
        raise Refused(400, "ModelNotFound", f"there is no model {question.get('name')!r}, but {', '.join(served)}")
    match name:
        case "ModelInfo":
            supported = {"Evaluate": True, **dict.fromkeys(SLOPES, model.offered.smooth)}
            return {"support": {**supported, **dict.fromkeys(ABSENT, False)}}
        case "InputSizes":
            return {"inputSizes": list(model.offered.inputs)}
        case "OutputSizes":
            return {"outputSizes": list(model.offered.outputs)}
        case "Evaluate":
            return {"output": _evaluated(model, question.get("input"))}
    if name in SLOPES and model.offered.smooth:
        return {"output": _sloped(model, name, question)}
    if name in (*SLOPES, *ABSENT):
        raise Refused(400, "UnsupportedFeature", f"{name} is not supported")
    raise Refused(404, "InvalidInput", f"there is no question {path}")


def _evaluated(model: Together, given: Any) -> list[list[float]]:
    values = model.ask(_row(model, given))
    if not all(map(math.isfinite, values)):
        raise Refused(500, "InvalidOutput", "the result is not finite")
    return [part.tolist() for part in np.split(values, np.cumsum(model.offered.outputs)[:-1])]


def _sloped(model: Together, name: str, question: dict[str, Any]) -> list[float]:
    """The slopes of one vector of outputs along one of inputs, times `sens` (`Gradient`) or `vec`."""
    offered, row = model.offered, _row(model, question.get("input"))
    places = []
    for key, sizes in (("outWrt", offered.outputs), ("inWrt", offered.inputs)):
        place = question.get(key)
        if type(place) is not int or not 0 <= place < len(sizes):
            raise Refused(400, "InvalidInput", f"`{key}` is {place!r}, expected a number from 0 to {len(sizes) - 1}")
        places.append(place)
    out, into = places
    if offered.kinds[into] not in SMOOTH:
        raise Refused(400, "UnsupportedFeature", f"there are no slopes along an input of type {offered.kinds[into]}")
    key, size = ("sens", offered.outputs[out]) if name == "Gradient" else ("vec", offered.inputs[into])
    given = question.get(key)
    if not isinstance(given, list) or len(given) != size or not all(type(each) in (int, float) for each in given):
        raise Refused(400, "InvalidInput", f"`{key}` is no vector of {size} numbers")
    found = np.split(model.slopes(row, into), np.cumsum(offered.outputs)[:-1])[out]
    times = _finite(key, given)
    product = times @ found if name == "Gradient" else found @ times
    if not np.isfinite(product).all():
        raise Refused(500, "InvalidOutput", "the result is not finite")
    return [float(each) for each in product]


def _row(model: Together, given: Any) -> np.ndarray:
    """Vectors of numbers, one after the other. Raises Refused for anything else."""
    sizes = model.offered.inputs
    if not isinstance(given, list) or not all(isinstance(each, list) for each in given):
        raise Refused(400, "InvalidInput", "`input` is no list of vectors of numbers")
    if [len(each) for each in given] != list(sizes):  # before arrays of any length are built
        found = [len(each) for each in given]
        raise Refused(400, "InvalidInput", f"`input` has vectors of sizes {found}, expected sizes {list(sizes)}")
    if not all(type(each) in (int, float) for vector in given for each in vector):
        raise Refused(400, "InvalidInput", "`input` is no list of vectors of numbers")
    return _finite("input", [each for vector in given for each in vector])


def _finite(key: str, given: list[float]) -> np.ndarray:
    """Numbers of a question. Raises Refused for those that are not finite, or larger than any."""
    if not all(abs(each) <= float(np.finfo(float).max) for each in given):
        raise Refused(400, "InvalidInput", f"`{key}` has values that are not finite")
    return np.array(given, float)


# Functions of vectors offered as an UM-Bridge server: protocol 1.0 over HTTP, by the standard library alone.

SMALL_QUESTION = 2**16
"""Bytes of a question that holds no numbers, at most."""

IDLE_SECONDS, QUESTION_SECONDS = 300.0, 60.0
"""After which a connection without questions is closed, and one whose question does not end."""

FEWEST_TOGETHER, MOST_TOGETHER = 16, 256
"""Rows of a batch: fewer are filled up, so that few shapes are ever compiled."""


@dataclass(frozen=True)
class Offered:
    """A function of rows: vectors of sizes `inputs` in, one after the other, vectors of sizes `outputs` out.

    `kinds` are those of the inputs, as a model declares them.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    evaluate: Callable[[np.ndarray], np.ndarray]
    kinds: tuple[str, ...] = ()

    @property
    def smooth(self) -> bool:
        """Whether there are slopes along some inputs."""
        return any(kind in SMOOTH for kind in self.kinds)


@dataclass(eq=False)
class _Asked:
    """One question on its way."""

    row: np.ndarray
    answer: np.ndarray | None = None
    problem: Exception | None = None


@dataclass(eq=False)
class Together:
    """Answers questions of several threads, those that wait together in one call."""

    offered: Offered
    _waiting: list[_Asked] = field(default_factory=list)
    _entry: threading.Lock = field(default_factory=threading.Lock)
    _work: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, row: np.ndarray) -> np.ndarray:
        """The function's value at one row. Raises what the function does."""
        asked = _Asked(row)
        with self._entry:
            self._waiting.append(asked)
        with self._work:
            while asked.answer is None and asked.problem is None:  # more may wait than one call takes
                with self._entry:
                    batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
                self._answer(batch)
        if asked.problem is not None:
            raise asked.problem
        assert asked.answer is not None
        return asked.answer

    def slopes(self, row: np.ndarray, vector: int) -> np.ndarray:
        """Slopes [outputs, columns] of all outputs along one vector of the inputs. Raises what the function does."""
        places = np.split(np.arange(len(row)), np.cumsum(self.offered.inputs)[:-1])[vector]
        positive = [kind == "positive" for kind, size in self._sized() for _ in range(size)]
        with self._work:
            return slopes(self.offered.evaluate, row, places.tolist(), positive)

    def _sized(self) -> Iterable[tuple[str, int]]:
        return zip(self.offered.kinds, self.offered.inputs, strict=True)

    def _answer(self, batch: list[_Asked]) -> None:
        """Answer these, their rows repeated up to a power of two; where that fails, each half, until one row does."""
        rows, half = np.stack([each.row for each in batch]), len(batch) // 2
        size = max(1 << (len(rows) - 1).bit_length(), FEWEST_TOGETHER)
        padded = rows[np.arange(size) % len(rows)]
        try:
            for each, value in zip(batch, self.offered.evaluate(padded)[: len(batch)], strict=True):
                each.answer = value
        except Exception as problem:  # noqa: BLE001 - the question gets the error as its answer
            batch[0].problem = None if half else problem
            for part in (batch[:half], batch[half:]) if half else ():
                self._answer(part)


def make_server(models: Mapping[str, Offered], host: str = "127.0.0.1", port: int = 4242) -> ThreadingHTTPServer:
    """A server that listens and has yet to be started with `serve_forever`. Port 0 takes a free one.

    Raises GpdslError when the port is taken.
    """
    answering = {name: Together(offered) for name, offered in models.items()}
    numbers = max((sum(offered.inputs) for offered in models.values()), default=0)

    class Handler(_Handler):
        served = answering
        longest = SMALL_QUESTION + NUMBER_BYTES * numbers
        hosts = _hosts(host)

    try:
        return _Server((host, port), Handler)
    except (OSError, UnicodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise GpdslError(f"cannot listen on {host}:{port}: {reason or quoted(problem)}") from problem


def _hosts(host: str) -> frozenset[str]:
    """The names by which a server that only this machine can reach is asked; none for one that others can reach.

    A web page can let its own name stand for this machine's address, but not hide from a question that it did.
    """
    if host == "localhost" or _is_loopback(host):
        return frozenset({host.lower(), "localhost"})
    return frozenset()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Server(ThreadingHTTPServer):
    """Listens; connections that break off are nothing to speak of."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection. `served` are the models by name, `longest` bytes of a question, `hosts` whom to answer as."""

    served: Mapping[str, Together] = {}
    longest = SMALL_QUESTION
    hosts: frozenset[str] = frozenset()
    protocol_version = default_request_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.clock = TimedSocket(self.connection)
        self.rfile = self.clock.makefile()

    def handle_one_request(self) -> None:
        self.clock.until = time.monotonic() + IDLE_SECONDS
        super().handle_one_request()

    def parse_request(self) -> bool:
        self.clock.until = time.monotonic() + QUESTION_SECONDS
        return super().parse_request()

    def do_GET(self) -> None:
        """`/Info`, which some clients ask for by GET."""
        self._send(*self._answered())

    do_POST = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: a fit asks thousands of times."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no HTTP."""
        self.close_connection = True
        self._send(code, _error("InvalidInput", message or explain or HTTPStatus(code).phrase))

    def _body(self) -> bytes:
        """The question. Raises Refused for one that does not say how long it is, or is not as long as it says."""
        lengths = self.headers.get_all("Content-Length") or (["0"] if self.command == "GET" else [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1 or not re.fullmatch("[0-9]{1,18}", lengths[0]):
            raise Refused(400, "InvalidInput", "a question says its length in bytes, once, and comes in one piece")
        if int(lengths[0]) > self.longest:
            raise Refused(413, "InvalidInput", f"a question has a length of at most {self.longest} bytes")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            raise Refused(400, "InvalidInput", "the question is shorter than it says")
        return body

    def _answered(self) -> tuple[int, dict[str, Any]]:
        try:
            # A question that was meant for another server than one of this machine, or for several, is refused.
            named = self.headers.get_all("Host") or []
            if len(named) > 1 or (not named and self.request_version != "HTTP/1.0"):
                raise Refused(400, "InvalidInput", "a question names its host, once")
            host = re.sub(r":[0-9]*\Z", "", named[0].strip().lower()) if named else ""
            if self.hosts and named and host not in self.hosts and not _is_loopback(host):
                raise Refused(403, "InvalidInput", f"this server is not {host}")

            body = self._body()
        except Refused as refusal:
            self.close_connection = True  # what follows may be the rest of the question
            return refusal.status, _error(refusal.kind, str(refusal))
        try:
            return 200, answer(self.served, self.path, body)
        except Refused as refusal:
            return refusal.status, _error(refusal.kind, str(refusal))
        except GpdslError as problem:
            return 400, _error("InvalidInput", str(problem))
        except Exception as problem:  # noqa: BLE001 - a server goes on, and says what went wrong
            return 500, _error("InvalidEvaluation", described(problem))

    def _send(self, status: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": quoted(text.replace("\n   help:", "; help:"))}}
