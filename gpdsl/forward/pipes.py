"""Time-outs for the pipe to a worker: a process that is stopped must not stop the one that writes to it."""

from __future__ import annotations

import os
import socket
import struct
from multiprocessing.connection import Connection


def limit_waits(pipe: Connection, seconds: float) -> None:
    """Let a half-sent or half-received message fail after so many seconds, where the system can (not on Windows)."""
    if os.name != "posix":
        return
    limit = min(max(seconds, 1.0), 1e6)
    value = struct.pack("@ll", int(limit), int(1e6 * (limit % 1)))
    with socket.socket(fileno=os.dup(pipe.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
