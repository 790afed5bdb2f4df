"""One kept-alive HTTP connection to a server that speaks JSON: time-outs on every wait, and errors in its own words."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from typing import Any
from urllib.parse import urlsplit

CONNECT_SECONDS = 10.0
LARGEST_ANSWER = 256 * 2**20
SHOWN = 200

PYTHON_WORDS = {"nan": "NaN", "inf": "Infinity"}
"""How servers written in Python spell what JSON has no word for."""


class ServerError(Exception):
    """What a server answered instead of a result."""


class NoConnection(Exception):
    """The server cannot be reached, or hung up before it answered."""


class Session:
    """A connection that is opened when it is needed, and again when the server has closed it meanwhile."""

    def __init__(self, url: str, seconds: float) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.url = url
        self.seconds = seconds
        self._prefix = parts.path.rstrip("/")
        self._connection = kind(parts.hostname or "", parts.port, timeout=min(CONNECT_SECONDS, seconds))

    def ask(self, path: str, question: Any = None) -> dict[str, Any]:
        """GET, or POST of a question as JSON; the answer.

        Raises ServerError for an answer that is an error or no JSON, TimeoutError for one that does not come in time,
        NoConnection when there is no server.
        """
        fresh = self._connection.sock is None
        try:
            return self._asked(path, question)
        except NoConnection:
            if fresh:
                raise
            return self._asked(path, question)  # a server may close a connection that was idle

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def _asked(self, path: str, question: Any) -> dict[str, Any]:
        body = None if question is None else json.dumps(question).encode()
        try:
            self._connect()
            headers = {"Content-Type": "application/json"}
            self._connection.request("GET" if body is None else "POST", self._prefix + path, body, headers)
            response = self._connection.getresponse()
            text = response.read(LARGEST_ANSWER + 1)
        except TimeoutError as problem:
            self.close()
            raise TimeoutError(f"no answer from {self.url}{path} within {self.seconds:g} s") from problem
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            words = " ".join(str(problem).split()) or type(problem).__name__
            raise NoConnection(f"{self.url}: {words}") from problem
        if len(text) > LARGEST_ANSWER:
            self.close()
            raise ServerError(f"{self.url}{path} answered with more than {LARGEST_ANSWER >> 20} MiB")
        return self._read(path, response.status, text.decode("utf-8", "replace"))

    def _connect(self) -> None:
        if self._connection.sock is not None:
            return
        try:
            self._connection.connect()
        except TimeoutError as problem:
            raise OSError(f"no connection within {CONNECT_SECONDS:g} s") from problem
        connected: socket.socket | None = self._connection.sock
        if connected is not None:
            connected.settimeout(self.seconds)

    def _read(self, path: str, status: int, text: str) -> dict[str, Any]:
        found = parsed(text)
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            error = found["error"]
            raise ServerError(f"{self.url} says {error.get('type', 'error')}: {error.get('message', '')}")
        if status != 200 or not isinstance(found, dict):
            short = " ".join(text.split())[:SHOWN]
            raise ServerError(f"{self.url}{path} answered with status {status} and {short!r}")
        return found


def parsed(text: str) -> Any:
    """JSON, also with nan and inf as Python prints them; None for anything else."""
    for attempt in (text, re.sub(r"\b(nan|inf)\b", lambda word: PYTHON_WORDS[word[0]], text)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(attempt)
    return None
