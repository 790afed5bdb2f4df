"""Servers that lie, dawdle and hang up, asked by our client; and requests of that kind to our own server.

A call to a server has one second, and two more are allowed for all of it, start-up included; a request to ours has ten
seconds for an answer, and the server must answer a right one afterwards, without a word on standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import socket
import struct
import threading
import time

import numpy as np

import gpdsl
from gpdsl.forward import evaluate, session as servers
from gpdsl.forward.server import Offered, make_server
from tests.campaign.outcomes import Hung, Outcomes, watch

NAME = "servers and requests"
WHOLE = 100
"""Of hostile servers, and of hostile requests."""

SECONDS, GRACE = 1.0, 2.0
ANSWER_SECONDS = 10.0

RIGHT = {
    "Info": {"protocolVersion": 1.0, "models": ["m"]},
    "ModelInfo": {"support": {"Evaluate": True}},
    "InputSizes": {"inputSizes": [1]},
    "OutputSizes": {"outputSizes": [2]},
    "Evaluate": {"output": [[1.0, 2.0]]},
}
ODD = (
    *(None, 0, -1, 1e400, float("nan"), "x", "\x1b[31m" * 999, [], {}, [[]], [None], [[[1]]], [10**400], [-5], [1.5]),
    *(
        [10**15],
        [1] * 9999,
        [["1", "2"]],
        [[1, 2], [3]],
        [[1, 2, 3]],
        [[1]],
        {"a": 1},
        [[True, False]],
        True,
        [[10**400, 1]],
    ),
)


def run(scale: float, seed: int) -> dict[str, int]:
    """Ask so many servers, and send so many requests."""
    watch()
    outcomes, chance = Outcomes(), random.Random(seed)
    servers.PATIENCE = 0.3
    count = max(round(WHOLE * scale), 1)
    for number in range(count):
        behaviour = BEHAVIOURS[number % len(BEHAVIOURS)]
        outcomes.attempt(f"{behaviour} {number}", lambda behaviour=behaviour: _asked(behaviour, chance))
    said = io.StringIO()
    models = {"m": Offered((1, 2), (1,), lambda rows: rows[:, :1])}
    with make_server(models, port=0) as server, contextlib.redirect_stderr(said):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for number in range(count):
            outcomes.attempt(f"request {number}", lambda: _sent(server.server_address[1], chance))
        time.sleep(0.3)
        server.shutdown()
    if said.getvalue():
        outcomes.note("raw", "the server said", RuntimeError(said.getvalue()))
    return dict(outcomes.counts)


# --- hostile servers ---------------------------------------------------------------------------------------------

BEHAVIOURS = ("odd", "bytes", "trickle", "hang", "flood", "reset", "odd", "odd", "early", "late")


def _asked(behaviour: str, chance: random.Random) -> None:
    """Call a server that behaves so at some question; a right answer and an error are both fine, in time."""
    victim = chance.choice(list(RIGHT))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        talk = (listening, behaviour, victim, random.Random(chance.random()))
        threading.Thread(target=_serve, args=talk, daemon=True).start()
        start = time.monotonic()
        try:
            model = gpdsl.umbridge(f"http://127.0.0.1:{listening.getsockname()[1]}", "m", timeout=SECONDS)
            found = evaluate(model, [np.ones((3, 1))], (2,)).values
            assert found.shape == (3, 2)
            assert np.isfinite(found).all()
        finally:
            if time.monotonic() - start > 2 * SECONDS + GRACE:
                raise Hung(f"{time.monotonic() - start:.1f} s")


def _serve(listening: socket.socket, behaviour: str, victim: str, chance: random.Random) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection = listening.accept()[0]
            threading.Thread(target=_talk, args=(connection, behaviour, victim, chance), daemon=True).start()


def _talk(connection: socket.socket, behaviour: str, victim: str, chance: random.Random) -> None:
    with connection, contextlib.suppress(OSError):
        while asked := _request(connection):
            body = json.dumps(RIGHT[asked]).encode()
            if asked != victim:
                connection.sendall(_framed(body))
                continue
            match behaviour:
                case "odd":
                    changed = dict.fromkeys(RIGHT[asked], chance.choice(ODD))
                    connection.sendall(_framed(json.dumps(chance.choice((changed, chance.choice(ODD)))).encode()))
                case "bytes":
                    connection.sendall(bytes(chance.randrange(256) for _ in range(chance.choice((1, 99, 70_000)))))
                    return
                case "trickle":
                    for byte in _framed(body) * 9:
                        connection.sendall(bytes([byte]))
                        time.sleep(0.05)
                case "hang":
                    time.sleep(3 * SECONDS)
                case "flood":
                    connection.sendall(_framed(b" ", length=10**15)[:-1])
                    for _ in range(400):
                        connection.sendall(b" " * 2**16)
                case "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                case "early":
                    connection.sendall(_framed(body, length=len(body) + 9))
                    return
                case "late":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\n" * 99)
                    return


def _request(connection: socket.socket) -> str:
    """The last word of the path of the next question, read whole."""
    text = b""
    while b"\r\n\r\n" not in text:
        more = connection.recv(65536)
        if not more:
            return ""
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.split()[1].strip(b"/").decode()


def _framed(body: bytes, length: int | None = None) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


# --- hostile requests --------------------------------------------------------------------------------------------

LINES = (
    "POST /Evaluate HTTP/1.1",
    "GET /Info HTTP/1.1",
    "POST /X HTTP/9.9",
    "\0\0",
    "G" * 70_000,
    "",
    "PUT / HTTP/1.1",
)
HEADERS = (
    *("Host: localhost", "Host: localhost", "Host: 127.0.0.1", "Host: evil.example", "Host: ", "X: " + "y" * 70_000),
    *("Transfer-Encoding: chunked", "Content-Length: ²", "Content-Length: -1", "Content-Length: 1e9", "X", ": ", "\0"),
    *("Content-Length: 99999999999999999999", "Content-Length: 10", "Expect: 100-continue", "Connection: keep-alive"),
)


def _sent(port: int, chance: random.Random) -> None:
    """Send a request; what comes back, if anything does, is HTTP, and a right request is answered after it."""
    given = json.dumps({"name": chance.choice(("m", "q", 5)), "input": chance.choice((*ODD, [[1], [2, 3]]))})
    body = chance.choice((given, given, '{"name": "m", "input": [[1e400], [1, 2]]}', "[" * 40_000, "\xff", ""))
    headers = chance.sample(HEADERS, chance.randrange(4)) + [f"Content-Length: {len(body)}"] * (chance.random() < 0.7)
    request = "\r\n".join([chance.choice(LINES), *headers, "", body]).encode("latin-1", "replace")
    said = _exchanged(port, request[: chance.choice((len(request), len(request), chance.randrange(len(request) + 1)))])
    assert said == b"" or re.match(rb"HTTP/1\.1 (100|200|400|403|404|413|414|431|500|501|505) ", said), said[:100]
    whole = json.dumps({"name": "m", "input": [[1], [2, 3]]})
    head = f"POST /Evaluate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(whole)}\r\n\r\n"
    assert _exchanged(port, (head + whole).encode()).endswith(b'{"output": [[1.0]]}')


def _exchanged(port: int, request: bytes) -> bytes:
    """Everything that is said to these bytes."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                said += more
        except TimeoutError:
            raise Hung("no answer") from None
        except OSError:  # it need not listen to the end
            pass
    return said
