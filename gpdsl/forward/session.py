"""One kept-alive HTTP connection to a server of JSON: a deadline for each question, answers of bounded size."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from gpdsl.errors import quoted
from gpdsl.forward.work import LONGEST_WAIT, Unreachable

# Sockets whose waits all end at one moment: a partner that sends a byte now and then gains no time by it.


class TimedSocket:
    """A connected socket, and the moment `until` (of `time.monotonic`) at which everything it does must be done.

    It has what `http.client` and `socketserver` use of a socket to talk. Raises TimeoutError past the moment.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.until = time.monotonic()

    def limit(self) -> None:
        """Give the next wait what is left of the time."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(min(left, LONGEST_WAIT))

    def sendall(self, content: bytes) -> None:
        """Send everything."""
        rest = memoryview(content)
        while rest:
            self.limit()
            rest = rest[self._socket.send(rest) :]

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        """A reader; the socket stays open as long as it does."""
        assert mode == "rb"
        return io.BufferedReader(_TimedReader(self, self._socket.makefile("rb", buffering=0)))

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class _TimedReader(io.RawIOBase):
    """What arrives at a timed socket."""

    def __init__(self, timed: TimedSocket, raw: io.RawIOBase) -> None:
        self._timed = timed
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None:  # type: ignore[override]
        self._timed.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


CONNECT_SECONDS = 10.0
SMALL_ANSWER, LARGEST_ANSWER = 2**20, 256 * 2**20
NUMBER_BYTES = 64
"""What a number takes in an answer, with the blanks around it, at most."""
MOST_NUMBERS = LARGEST_ANSWER // NUMBER_BYTES
"""In an answer."""

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


# Several servers of the same model: calls go to one that is free, and those that vanish are left out.

PATIENCE = 5.0
"""Seconds in which a server that vanished may come back, when there is no other."""

PAUSE = 0.2
"""Seconds between two attempts to reach it."""

AWAY = 30.0
"""Seconds for which one that vanished is not asked, when there are others."""


class Server:
    """One address, and the connections to it that nobody uses at the moment."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url.rstrip("/")
        self.seconds = seconds
        self.lanes = 1
        self.busy = 0
        self.gone_until = 0.0
        self._idle: list[Session] = []

    @property
    def gone(self) -> bool:
        """Whether it could not be reached, not long ago."""
        return time.monotonic() < self.gone_until

    def ask(self, path: str, question: Any, until: float, numbers: int = 0) -> dict[str, Any]:
        """One question, over a connection that is kept afterwards; see `Session.ask`."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session(self.url, self.seconds)
        try:
            return session.ask(path, question, until, numbers)
        finally:
            self._idle.append(session)


class Servers:
    """The servers of one model, and the seconds that a question to them may take.

    `patience` is how long one that vanished is waited for when there is no other.
    """

    def __init__(self, addresses: Sequence[str], seconds: float) -> None:
        self.all = [Server(address, seconds) for address in addresses]
        self.seconds = seconds
        self.patience = PATIENCE
        self._among: list[Server] | None = None
        self._lost: float | None = None
        self._change = threading.Condition()

    @property
    def names(self) -> str:
        """The addresses, for messages."""
        return ", ".join(server.url for server in self.all)

    @property
    def capacity(self) -> int:
        """Calls that all servers take at the same time."""
        return sum(server.lanes for server in self.all if not server.gone) or 1

    @contextlib.contextmanager
    def only(self, server: Server) -> Iterator[None]:
        """Ask this server alone for a while."""
        self._among = [server]
        try:
            yield
        finally:
            self._among = None

    def ask(self, path: str, question: Any, numbers: int = 0) -> dict[str, Any]:
        """The answer of a server that is free; another one is asked when that one cannot be reached.

        All of it has one deadline. Raises Unreachable when none can be reached for a while, else what `Session.ask`
        raises.
        """
        until = time.monotonic() + self.seconds
        while True:
            server = self._free()
            try:
                answer = server.ask(path, question, until, numbers)
                self._lost, server.gone_until = None, 0.0
                return answer
            except NoConnection as problem:
                self._left_out(server, problem, until)
            finally:
                with self._change:
                    server.busy -= 1
                    self._change.notify()

    def _free(self) -> Server:
        """The server with the most lanes to spare, among those that are there; any, where all are gone."""
        with self._change:
            there = [server for server in self._among or self.all if not server.gone] or self.all
            server = max(there, key=lambda each: each.lanes - each.busy)
            server.busy += 1
            return server

    def _left_out(self, server: Server, problem: NoConnection, until: float) -> None:
        """Note that a server is gone. When all are, wait a moment and let them be tried again, up to the patience."""
        server.gone_until = time.monotonic() + AWAY
        if any(not each.gone for each in self.all):
            return
        now = time.monotonic()
        if self._lost is None:
            self._lost = now
        if now - self._lost > self.patience or now + PAUSE > until:
            raise Unreachable(str(problem)) from problem
        time.sleep(PAUSE)
