"""Sockets whose waits all end at one moment: a partner that sends a byte now and then gains no time by it."""

from __future__ import annotations

import io
import socket
import time

from gpdsl.forward.backend import LONGEST_WAIT


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
