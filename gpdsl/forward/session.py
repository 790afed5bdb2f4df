"""One kept-alive HTTP connection to a server of JSON: a deadline for each question, answers of bounded size."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from typing import Any
from urllib.parse import urlsplit

from gpdsl.errors import quoted
from gpdsl.forward.deadlines import TimedSocket

CONNECT_SECONDS = 10.0
SMALL_ANSWER, LARGEST_ANSWER = 2**20, 256 * 2**20
NUMBER_BYTES = 64
"""What a number takes in an answer, with the blanks around it, at most."""

SHOWN = 200

PYTHON_WORDS = {"nan": "NaN", "inf": "Infinity"}
"""How servers written in Python spell what JSON has no word for."""


class ServerError(Exception):
    """What a server answered instead of a result."""


class NoConnection(Exception):
    """The server cannot be reached, or hung up before it answered."""


def check_address(url: str) -> None:
    """Raise ValueError, saying why, for what is no address of a server."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("an address begins with http:// or https://")
    parts = urlsplit(url)
    if not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError("an address is http://HOST:PORT")
    parts.port  # noqa: B018 - raises ValueError for one that is no number


class Session:
    """A connection that is opened when it is needed, and again when the server has closed it meanwhile."""

    def __init__(self, url: str, seconds: float) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.url = url
        self.seconds = seconds
        self._prefix = parts.path.rstrip("/")
        self._connection = kind(parts.hostname or "", parts.port)

    def ask(self, path: str, question: Any, until: float, numbers: int) -> dict[str, Any]:
        """GET, or POST of a question as JSON; the answer, which has at most so many `numbers`.

        Raises ServerError for an answer that is an error, no JSON or too long, TimeoutError for one that has not come
        when the clock says `until`, however much of it has, NoConnection when there is no server.
        """
        fresh = self._connection.sock is None
        most = min(SMALL_ANSWER + NUMBER_BYTES * numbers, LARGEST_ANSWER)
        try:
            return self._asked(path, question, until, most)
        except NoConnection:
            if fresh:
                raise
            return self._asked(path, question, until, most)  # a server may close a connection that was idle

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._connection.close()

    __del__ = close  # nobody can ask any more

    def _asked(self, path: str, question: Any, until: float, most: int) -> dict[str, Any]:
        body = None if question is None else json.dumps(question).encode()
        try:
            self._connect(until)
            headers = {"Content-Type": "application/json"}
            self._connection.request("GET" if body is None else "POST", self._prefix + path, body, headers)
            response = self._connection.getresponse()
            text = response.read(most + 1)
        except TimeoutError as problem:
            self.close()
            raise TimeoutError(f"no answer from {self.url}{path} within {self.seconds:g} s") from problem
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.close()
            raise NoConnection(f"{self.url}: {quoted(problem) or type(problem).__name__}") from problem
        except BaseException:  # an interrupt: what is left of the answer is none to the next question
            self.close()
            raise
        if len(text) > most:
            self.close()
            raise ServerError(f"{self.url}{path} answered with more than the {most} bytes that its sizes allow")
        return self._read(path, response.status, text.decode("utf-8", "replace"))

    def _connect(self, until: float) -> None:
        connected: Any = self._connection.sock
        if connected is None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.timeout = min(CONNECT_SECONDS, left)
            try:
                self._connection.connect()
            except TimeoutError as problem:
                raise OSError(f"no connection within {self._connection.timeout:.3g} s") from problem
            connected = self._connection.sock = TimedSocket(self._connection.sock)
        connected.until = until

    def _read(self, path: str, status: int, text: str) -> dict[str, Any]:
        found = parsed(text)
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            error = found["error"]
            kind, message = quoted(error.get("type", "error")), quoted(error.get("message", ""))
            raise ServerError(f"{self.url} says {kind}: {message}")
        if status != 200 or not isinstance(found, dict):
            raise ServerError(f"{self.url}{path} answered with status {status} and {quoted(text)[:SHOWN]!r}")
        return found


def parsed(text: str) -> Any:
    """JSON, also with nan and inf as Python prints them; None for anything else."""
    for attempt in (text, re.sub(r"\b(nan|inf)\b", lambda word: PYTHON_WORDS[word[0]], text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt)
    return None
