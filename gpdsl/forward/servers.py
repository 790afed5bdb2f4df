"""Several servers of the same model: calls go to one that is free, and those that vanish are left out."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpdsl.forward.session import NoConnection, Session
from gpdsl.forward.work import Unreachable

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
