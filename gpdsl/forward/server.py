"""Functions of vectors offered as an UM-Bridge server: protocol 1.0 over HTTP, by the standard library alone.

Questions that arrive while another one is answered wait, and are then answered together as rows of one batch.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from gpdsl.errors import GpdslError

VERSION = 1.0
LARGEST_QUESTION = 16 * 2**20
IDLE_SECONDS = 300.0
"""After which a connection without questions is closed."""

FEWEST_TOGETHER, MOST_TOGETHER = 16, 256
"""Rows of a batch: fewer are filled up, so that few shapes are ever compiled."""

ABSENT = ("Gradient", "ApplyJacobian", "ApplyHessian")


@dataclass(frozen=True)
class Offered:
    """A function of rows: vectors of sizes `inputs` in, one after the other, vectors of sizes `outputs` out."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    evaluate: Callable[[np.ndarray], np.ndarray]


class Refused(Exception):
    """An answer that is an error: its HTTP status, its type in the protocol, and what it says."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


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
            if asked.answer is None and asked.problem is None:
                self._answer()
        if asked.problem is not None:
            raise asked.problem
        assert asked.answer is not None
        return asked.answer

    def _answer(self) -> None:
        """Answer all that wait. Rows are repeated up to a power of two."""
        with self._entry:
            batch, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
        rows = np.stack([each.row for each in batch])
        size = max(1 << (len(rows) - 1).bit_length(), FEWEST_TOGETHER)
        padded = rows[np.arange(size) % len(rows)]
        try:
            values = self.offered.evaluate(padded)
            for each, value in zip(batch, values[: len(batch)], strict=True):
                each.answer = value
        except Exception as problem:  # noqa: BLE001 - each question gets the error as its answer
            for each in batch:
                each.problem = problem


def make_server(models: Mapping[str, Offered], host: str = "127.0.0.1", port: int = 4242) -> ThreadingHTTPServer:
    """A server that listens and has yet to be started with `serve_forever`. Port 0 takes a free one.

    Raises GpdslError when the port is taken.
    """
    answering = {name: Together(offered) for name, offered in models.items()}

    class Handler(_Handler):
        served = answering

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as problem:
        raise GpdslError(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from problem
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    """One connection. `served` are the models by name."""

    served: Mapping[str, Together] = {}
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        """`/Info`, which some clients ask for by GET."""
        self._send(*self._answered(None))

    def do_POST(self) -> None:
        """Every other question."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST_QUESTION:
            self.close_connection = True
            self._send(413, _error("InvalidInput", f"a question has a length of at most {LARGEST_QUESTION} bytes"))
            return
        self._send(*self._answered(self.rfile.read(int(length))))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: a fit asks thousands of times."""

    def _answered(self, body: bytes | None) -> tuple[int, dict[str, Any]]:
        try:
            return 200, answer(self.served, self.path, body)
        except Refused as refusal:
            return refusal.status, _error(refusal.kind, str(refusal))
        except GpdslError as problem:
            return 400, _error("InvalidInput", str(problem))
        except Exception as problem:  # noqa: BLE001 - a server goes on, and says what went wrong
            return 500, _error("InvalidEvaluation", f"{type(problem).__name__}: {problem}")

    def _send(self, status: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": text}}


def answer(served: Mapping[str, Together], path: str, body: bytes | None) -> dict[str, Any]:
    """The answer to one question. Raises Refused for one that has none."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name == "Info":
        return {"protocolVersion": VERSION, "models": list(served)}
    question = _question(body)
    model = served.get(question.get("name", "")) if isinstance(question.get("name", ""), str) else None
    if model is None:
        raise Refused(400, "ModelNotFound", f"there is no model {question.get('name')!r}, but {', '.join(served)}")
    match name:
        case "ModelInfo":
            return {"support": {"Evaluate": True, **dict.fromkeys(ABSENT, False)}}
        case "InputSizes":
            return {"inputSizes": list(model.offered.inputs)}
        case "OutputSizes":
            return {"outputSizes": list(model.offered.outputs)}
        case "Evaluate":
            return {"output": _evaluated(model, question.get("input"))}
    if name in ABSENT:
        raise Refused(400, "UnsupportedFeature", f"{name} is not supported")
    raise Refused(404, "InvalidInput", f"there is no question {path}")


def _question(body: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(body or b"")
    except (ValueError, RecursionError) as problem:
        raise Refused(400, "InvalidInput", "the question is no JSON") from problem
    if not isinstance(found, dict):
        raise Refused(400, "InvalidInput", "the question is no JSON object")
    return found


def _evaluated(model: Together, given: Any) -> list[list[float]]:
    sizes = model.offered.inputs
    try:
        vectors = [np.asarray(each, float) for each in given]
    except (TypeError, ValueError) as problem:
        raise Refused(400, "InvalidInput", "`input` is no list of vectors of numbers") from problem
    if [each.shape for each in vectors] != [(size,) for size in sizes]:
        found = [list(each.shape) for each in vectors]
        raise Refused(400, "InvalidInput", f"`input` has vectors of shapes {found}, expected sizes {list(sizes)}")
    row = np.concatenate(vectors) if vectors else np.zeros(0)
    if not np.isfinite(row).all():
        raise Refused(400, "InvalidInput", "`input` has values that are not finite")
    values = model.ask(row)
    if not all(map(math.isfinite, values)):
        raise Refused(500, "InvalidOutput", "the result is not finite")
    return [part.tolist() for part in np.split(values, np.cumsum(model.offered.outputs)[:-1])]
