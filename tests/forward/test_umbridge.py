"""UM-Bridge over HTTP: against the server of the `umbridge` package, and against servers that misbehave."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslWarning
from gpdsl.forward import ForwardModel, ForwardModelError, evaluate, resolve, session as servers
from gpdsl.language import compile_text

HERE = Path(__file__).parent
ROWS = 12
RANDOM = np.random.default_rng(11)
DEPTH, SPEED = RANDOM.uniform(1, 2, (ROWS, 2)), RANDOM.uniform(1, 2, (ROWS, 2))
TIMES = 2 * np.cumsum(DEPTH / SPEED, axis=1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def real_server(workers: int = 1) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    pytest.importorskip("umbridge", reason="the package umbridge, of the extra `dev`, is the server")
    port = free_port()
    command = [sys.executable, str(HERE / "umbridge_server.py"), str(port), str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with real_server(4) as (url, _):
        yield url


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PATIENCE", 0.5)


def times(model: ForwardModel, depth: np.ndarray = DEPTH, speed: np.ndarray = SPEED) -> np.ndarray:
    return evaluate(model, [depth, speed], (2,)).values


def with_first(value: float) -> np.ndarray:
    return np.where(np.arange(ROWS)[:, None] == 5, value, DEPTH)


def test_values_of_a_real_server(server: str) -> None:
    model = gpdsl.umbridge(server, "times")
    np.testing.assert_allclose(times(model), TIMES, rtol=1e-14)
    np.testing.assert_allclose(times(gpdsl.umbridge(server + "/", "times", config={"factor": 3.0})), 1.5 * TIMES)
    assert model.account.evaluations == ROWS


def test_connections_are_kept(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    original = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: (opened.append(a), original(*a, **k))[1])
    model = gpdsl.umbridge(server, "times", workers=2)
    for _ in range(5):
        times(model)
    assert 1 <= len(opened) <= 3


def test_derivatives_of_a_real_server(server: str) -> None:
    model: Any = gpdsl.umbridge(server, "times").function
    depth, speed, step = DEPTH[0], SPEED[0], 1e-6
    sizes = model.sizes
    assert (sizes.inputs, sizes.outputs, sizes.gradient, sizes.jacobian) == ((2, 2), (2,), True, True)
    for place in (0, 1):
        vector = RANDOM.normal(size=2)
        near = [depth, speed]
        near[place] = near[place] + step * vector
        change = (model(*near) - model(depth, speed)) / step
        np.testing.assert_allclose(model.apply_jacobian(0, place, [depth, speed], vector), change, rtol=1e-4)
        back = RANDOM.normal(size=2)
        pulled = model.gradient(0, place, [depth, speed], back)
        np.testing.assert_allclose(pulled @ vector, back @ change, rtol=1e-4)


def test_the_gradient_of_all_arguments_is_what_the_fit_uses(server: str) -> None:
    model: Any = gpdsl.umbridge(server, "times").function
    depth, speed, back = DEPTH[0], SPEED[0], RANDOM.normal(size=2)
    assert model.offered_gradient() == model.pull
    together = model.pull(depth[0], depth[1], speed, back)
    expected = [model.gradient(0, place, [depth, speed], back) for place in (0, 1)]
    assert [np.shape(each) for each in together] == [(), (), (2,)]
    np.testing.assert_allclose(np.concatenate([np.ravel(each) for each in together]), np.concatenate(expected))
    np.testing.assert_array_equal(model.pull(depth, speed, np.zeros(2)), np.zeros((2, 2)))
    declared = compile_text(
        "model m\ninput x : real\noutput t : real\nexternal g(depth: real[2], speed: real[2]) -> real[2]\n"
        "latent f(x) ~ GP(0, RBF(1))\nconst one = [1, 1]\nlet r = g(one, one)\nt ~ Normal(f + r[1], 0.1)\n"
    )
    assert resolve(declared, {"g": gpdsl.umbridge(server, "times")})["g"].gradient is not None
    nobody: Any = gpdsl.umbridge(f"http://127.0.0.1:{free_port()}", "times").function
    assert nobody.offered_gradient() is None
    with odd_server() as url:
        none: Any = gpdsl.umbridge(url, "times").function
        assert none.offered_gradient() is None


def test_one_vector_may_be_made_up_of_several_arguments(server: str) -> None:
    model = gpdsl.umbridge(server, "times")
    found = evaluate(model, [DEPTH[:, 0], DEPTH[:, 1], SPEED], (2, 1)).values
    np.testing.assert_allclose(found[..., 0], TIMES)


@pytest.mark.slow
def test_a_fit_through_a_server_is_the_fit_in_process(server: str) -> None:
    text = (
        "model layers\nindex p in 1..2\ninput x : real\noutput t[p] : real\nconst speed[p] = [1.5, 2.5]\n"
        "external travel_time(depth: real[2], speed: real[2]) -> real[2]\n"
        "latent f(x) ~ GP(2, 0.01 * RBF(1))\nlet depth[p] = f\n"
        "let tau = travel_time(depth, speed)\nt[p] ~ Normal(tau[p], 0.1)\n"
    )
    x = np.linspace(0, 2, 4)
    data = {"x": x, "t": np.stack([2.7 + 0.1 * x, 4.2 + 0.1 * x], axis=1)}
    options: dict[str, Any] = {"seed": 0, "optimizer": "adam", "steps": 4, "samples": 4}
    functions = {"here": lambda d, s: 2 * np.cumsum(d / s, axis=1), "there": gpdsl.umbridge(server, "times")}
    fits = {k: gpdsl.compile(text, externals={"travel_time": f}).fit(data, **options) for k, f in functions.items()}
    here, there = fits["here"], fits["there"]
    assert there.elbo == pytest.approx(here.elbo, rel=1e-9)
    np.testing.assert_allclose(there.posterior[0].mean, here.posterior[0].mean, rtol=1e-8)


@pytest.mark.slow
def test_a_server_killed_in_mid_fit_leaves_the_fit_to_go_on_from() -> None:
    text = (
        "model one\ninput x : real\noutput t[p] : real\nindex p in 1..2\nconst speed[p] = [1.5, 2.5]\n"
        "external travel_time(depth: real[2], speed: real[2]) -> real[2]\n"
        "latent f(x) ~ GP(2, 0.01 * RBF(1))\nlet depth[p] = f\n"
        "let tau = travel_time(depth, speed)\nt[p] ~ Normal(tau[p], 0.1)\n"
    )
    data = {"x": np.arange(3.0), "t": np.full((3, 2), 3.0)}
    options: dict[str, Any] = {"seed": 0, "optimizer": "adam", "steps": 6, "samples": 4}
    with real_server(2) as (url, process):
        model = gpdsl.compile(text, externals={"travel_time": gpdsl.umbridge(url, "times", workers=2)})

        def kill(report: Any) -> None:
            if report.step == 3:
                process.kill()
                process.wait(10)

        with pytest.raises(ForwardModelError, match=r"cannot be reached any more.*(\n.*)*start=error.fit") as caught:
            model.fit(data, callback=kill, **options)
    kept = caught.value.fit
    assert len(kept.history) == 3
    here = gpdsl.compile(text, externals={"travel_time": lambda d, s: 2 * np.cumsum(d / s, axis=1)})
    assert np.isfinite(here.fit(data, start=kept, **options).elbo)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-20.0, "ServerError: .*/Evaluate answered with status 500"),
        (-7.0, "the result is NaN in row 6"),
        (-3.0, "says InvalidOutput: Output vector 0 has invalid length! Model declared 2 but returned 1"),
        (-1.0, "TimeoutError: no answer from .*/Evaluate within 1 s"),
    ],
)
def test_faults_of_the_solver_name_the_row_in_the_words_of_the_server(server: str, value: float, text: str) -> None:
    model = gpdsl.umbridge(server, "times", timeout=1.0)
    with pytest.raises(ForwardModelError, match=text) as caught:
        times(model, with_first(value))
    assert f"argument 1 = [{value:g}, {value:g}]" in str(caught.value)


def test_only_the_rows_that_the_solver_fails_are_penalised(server: str) -> None:
    penalised = gpdsl.umbridge(server, "times", timeout=1.0, policy="penalise", workers=2)
    depth = np.array(DEPTH)
    depth[[1, 4, 5, 8]] = np.array([[-20.0], [-7.0], [-3.0], [-1.0]])
    found = evaluate(penalised, [depth, SPEED], (2,))
    assert np.flatnonzero(found.failed).tolist() == [1, 4, 5, 8]
    np.testing.assert_allclose(found.values[~found.failed], TIMES[~found.failed])


def test_a_server_that_answers_one_call_at_a_time_is_said_to() -> None:
    with real_server(1) as (url, _):
        model = gpdsl.umbridge(url, "slow")
        with pytest.warns(GpdslWarning, match="answers one call at a time"):
            np.testing.assert_allclose(times(model), TIMES)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(times(model), TIMES)


def test_a_server_that_vanishes_ends_the_fit_whatever_the_policy() -> None:
    with real_server(2) as (url, process):
        model = gpdsl.umbridge(url, "times", policy="penalise", workers=2)
        times(model)
        process.kill()
        process.wait(10)
        start = time.monotonic()
        with pytest.raises(ForwardModelError, match="cannot be reached any more: http://127.0.0.1"):
            times(model)
        assert time.monotonic() - start < 10


def test_another_server_takes_over(server: str) -> None:
    with real_server(2) as (url, process):
        model = gpdsl.umbridge([url, server], "times", workers=2)
        np.testing.assert_allclose(times(model), TIMES)
        process.kill()
        process.wait(10)
        np.testing.assert_allclose(times(model), TIMES)
        with pytest.raises(ForwardModelError, match="cannot be used: .*refused"):
            times(gpdsl.umbridge(url, "times"))


Answers = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def odd_server(**special: bytes | float | None) -> Iterator[str]:
    """A server that answers as it should, but for some questions: with these bytes, late, or not at all."""
    answers = {
        "Info": b'{"protocolVersion": 1.0, "models": ["times"]}',
        "ModelInfo": b'{"support": {"Evaluate": true}}',
        "InputSizes": b'{"inputSizes": [2, 2]}',
        "OutputSizes": b'{"outputSizes": [2]}',
        "Evaluate": b'{"output": [[1, 2]]}',
        **special,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = answers[self.path.strip("/")]
            if isinstance(answer, float):
                time.sleep(answer)
            if not isinstance(answer, bytes):
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST

        def log_message(self, *arguments: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()  # else half a second to end
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.mark.parametrize(
    ("special", "text"),
    [
        ({"Evaluate": b"<html>a proxy's greeting</html>"}, "answered with status 200 and .*proxy's greeting"),
        ({"Evaluate": b"[1, 2]"}, r"status 200 and '\[1, 2\]'"),
        ({"Evaluate": b"{}"}, "answered without `output`"),
        ({"Evaluate": b'{"output": 3}'}, "is no list of vectors"),
        ({"Evaluate": b'{"output": [["fast", 1]]}'}, "is no list of vectors of numbers"),
        ({"Evaluate": b'{"output": [["1", 1]]}'}, "is no list of vectors of numbers"),
        ({"Evaluate": b'{"output": "12"}'}, "is no list of vectors"),
        ({"Evaluate": b'{"output": [[1, 1' + b"0" * 400 + b"]]}"}, "is no list of vectors of numbers"),
        ({"Evaluate": b'{"output": [' + b"[1], " * 9 + b"[1]]}"}, r"vectors of sizes \[1, 1, .*\], not \[2\]"),
        ({"Evaluate": b" " * 3_000_000}, r"more than the \d+ bytes that its sizes allow"),
        ({"Evaluate": b'{"output": [[1, 2, 3]]}'}, r"vectors of sizes \[3\], not \[2\]"),
        ({"Evaluate": b'{"output": [[1, null]]}'}, "the result is NaN"),
        ({"Evaluate": b'{"error": {"type": "Broken", "message": "no mesh"}}'}, "says Broken: no mesh"),
        ({"Evaluate": b"[" * 100_000}, "answered with status 200"),
        ({"Evaluate": 8.0}, "no answer from .* within 1 s"),
        ({"Evaluate": None}, "cannot be reached any more"),
        ({"Info": b'{"protocolVersion": 2.0, "models": ["times"]}'}, "speaks version 2.0 of the protocol"),
        ({"Info": b'{"protocolVersion": 1.0, "models": ["a", "b"]}'}, "has no model 'times', but 'a', 'b'"),
        ({"Info": b"hello"}, "cannot be used: .* status 200 and 'hello'"),
        ({"Info": None}, "cannot be used"),
        ({"InputSizes": b'{"inputSizes": [3]}'}, r"vectors of sizes \[3\], but the external has arguments of sizes"),
        ({"InputSizes": b'{"sizes": [3]}'}, "its answers are not those of UM-Bridge"),
        ({"InputSizes": b'{"inputSizes": [1e400]}'}, "are no sizes of vectors"),
        ({"InputSizes": b'{"inputSizes": [-3, 7]}'}, "are no sizes of vectors"),
        ({"OutputSizes": b'{"outputSizes": [1000000000000]}'}, "are no sizes of vectors"),
        ({"Info": b'{"protocolVersion": 1.0, "models": [{"a": 1}]}'}, "speaks version 1.0 of the protocol, not"),
        ({"Evaluate": b'{"error": {"type": 1, "message": "\\u001b[31m' + b"no " * 9999 + b'"}}'}, "says 1: �.31mno no"),
        ({"ModelInfo": b'{"support": {"Evaluate": false}}'}, "does not support Evaluate"),
        ({"OutputSizes": b'{"outputSizes": [2, 1]}', "Evaluate": b'{"output": [[1, 2], [3]]}'}, r"has shape \[3\]"),
    ],
)
def test_garbage_ends_in_an_error_that_shows_it(special: dict[str, Any], text: str) -> None:
    with odd_server(**special) as url, pytest.raises(ForwardModelError, match=text):
        times(gpdsl.umbridge(url, "times", timeout=1.0))


def test_the_only_model_needs_no_name() -> None:
    with odd_server() as url:
        np.testing.assert_array_equal(times(gpdsl.umbridge(url)), np.tile([1.0, 2.0], (ROWS, 1)))


def test_servers_of_different_models_are_refused() -> None:
    other = b'{"inputSizes": [4]}'
    with odd_server() as url, odd_server(InputSizes=other) as second, pytest.raises(ForwardModelError, match="sizes"):
        times(gpdsl.umbridge([url, second], "times"))


def slow_answer(answers: dict[str, bytes], pause: float) -> Callable[[socket.socket], None]:
    """A connection that answers questions byte by byte."""

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while asked := connection.recv(65536):
                name = asked.split()[1].strip(b"/").decode()
                body = answers.get(name, b'{"output": [[1, 2]]}')
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                for byte in head + body:
                    connection.sendall(bytes([byte]))
                    time.sleep(pause)

    return talk


@pytest.mark.parametrize("slow", ["Info", "Evaluate"])
def test_a_question_has_one_deadline_however_its_answer_comes(slow: str) -> None:
    answers = {
        "Info": b'{"protocolVersion": 1.0, "models": ["times"]}',
        "ModelInfo": b'{"support": {"Evaluate": true}}',
        "InputSizes": b'{"inputSizes": [2, 2]}',
        "OutputSizes": b'{"outputSizes": [2]}',
    }
    quick, trickling = slow_answer(answers, 0.0), slow_answer(answers, 0.15)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = listening.accept()[0]
                    asked = connection.recv(200, socket.MSG_PEEK)
                    talk = trickling if slow.encode() in asked.split(b"\r\n")[0] else quick
                    threading.Thread(target=talk, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        model: Any = gpdsl.umbridge(f"http://127.0.0.1:{listening.getsockname()[1]}", "times", timeout=1.0)
        start = time.monotonic()
        with pytest.raises((ForwardModelError, TimeoutError), match=f"no answer from .*/{slow} within 1 s"):
            if slow != "Info":
                assert model.function.sizes  # over a connection that is then left alone
                model.function.servers.all[0]._idle.clear()
            model.function(DEPTH[0], SPEED[0])
        assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    "url", ["localhost:4242", "", [], "http://", "http://a:b", "http://[", "http://a:99999", "http://a b"]
)
def test_an_address_that_is_none_is_refused_at_once(url: Any) -> None:
    with pytest.raises(ForwardModelError, match="the server .* cannot be used"):
        gpdsl.umbridge(url, "times")


def test_nobody_at_the_address() -> None:
    with pytest.raises(ForwardModelError, match="cannot be used.*refused"):
        times(gpdsl.umbridge(f"http://127.0.0.1:{free_port()}", "times"))
