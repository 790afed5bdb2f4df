"""A fitted model as an UM-Bridge server: through our client, the client of `umbridge`, and plain HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.forward import evaluate
from gpdsl.forward.server import Offered, Refused, Together, _Asked, _error, _hosts, answer, make_server, slopes
from gpdsl.results.serving import _levels, offered

PLANES = """
model planes
index p in 1..2
input x : real[2]
input z : real
output y[p] : real
latent f[p](x, z) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.2)
"""
RANDOM = np.random.default_rng(2)
DATA = {
    "x": RANDOM.normal(size=(8, 2)),
    "z": RANDOM.normal(size=8),
    "y": RANDOM.normal(size=(8, 2)),
}


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return gpdsl.compile(PLANES).fit(DATA, steps=3, seed=0)


@pytest.fixture(scope="module")
def url(fit: gpdsl.Fit) -> Iterator[str]:
    with make_server(offered(fit), port=0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_our_client_gets_what_the_fit_predicts(fit: gpdsl.Fit, url: str) -> None:
    model = gpdsl.umbridge(url, "y")
    found = evaluate(model, [DATA["x"], DATA["z"]], (2, 2)).values
    prediction = fit.predict(DATA)
    np.testing.assert_allclose(found[:, 0], prediction.mean("y"), rtol=1e-9)
    np.testing.assert_allclose(found[:, 1] ** 2, prediction.variance("y"), rtol=1e-9)


@pytest.mark.slow
def test_the_log_density_takes_the_outputs_too(fit: gpdsl.Fit, url: str) -> None:
    model = gpdsl.umbridge(url, "log_density")
    found = evaluate(model, [DATA["x"], DATA["z"], DATA["y"]], ()).values
    np.testing.assert_allclose(found, fit.log_predictive_density(DATA), rtol=1e-6)


def test_the_client_of_the_umbridge_package(fit: gpdsl.Fit, url: str) -> None:
    umbridge = pytest.importorskip("umbridge", reason="the package umbridge, of the extra `dev`")
    assert umbridge.supported_models(url) == ["y", "f", "log_density"]
    model = umbridge.HTTPModel(url, "y")
    assert (model.get_input_sizes(), model.get_output_sizes()) == ([2, 1], [2, 2])
    assert model.supports_evaluate()
    assert model.supports_gradient() and not model.supports_apply_hessian()
    mean, _ = model([DATA["x"][0].tolist(), [DATA["z"][0]]])
    np.testing.assert_allclose(mean, fit.predict(DATA).mean("y")[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("Evaluate", b"no json", 400, "is no JSON"),
        ("Evaluate", b"[1]", 400, "is no JSON object"),
        ("Evaluate", b"[" * 50_000, 400, "is no JSON"),
        ("Evaluate", b" " * 100_000, 413, "at most"),
        ("Evaluate", {"name": "q", "input": []}, 400, "there is no model 'q', but y, f"),
        ("Evaluate", {"name": ["y"], "input": []}, 400, "there is no model"),
        ("Evaluate", {"name": "y"}, 400, "no list of vectors"),
        ("Evaluate", {"name": "y", "input": [[1, 2, 3]]}, 400, r"expected sizes \[2, 1\]"),
        ("Evaluate", {"name": "y", "input": [[1, "a"], [1]]}, 400, "no list of vectors"),
        ("Evaluate", {"name": "y", "input": [[1, float("nan")], [1]]}, 400, "not finite"),
        ("Evaluate", b'{"name": "y", "input": [[1, 1e400], [1]]}', 400, "not finite"),
        ("Evaluate", b'{"name": "y", "input": [[1, -Infinity], [1]]}', 400, "not finite"),
        ("Evaluate", {"name": "y", "input": [[1, 10**400], [1]]}, 400, "not finite"),
        ("Evaluate", {"name": "y", "input": [[1, True], ["1"]]}, 400, "no list of vectors of numbers"),
        ("Evaluate", {"name": "y", "input": {"1": 2}}, 400, "no list of vectors"),
        ("Evaluate", {"name": "y", "input": [[0] * 9000, [1]]}, 400, r"vectors of sizes \[9000, 1\]"),
        ("Evaluate", b'{"name": "\\u001b[2J' + b"x" * 9000 + b'"}', 400, r"\A[^\x1b]{2000}\Z"),
        ("ApplyHessian", {"name": "y"}, 400, "not supported"),
        ("Gradient", {"name": "y", "input": [[0, 0], [0]], "outWrt": 2, "inWrt": 0}, 400, "`outWrt` is 2, expected"),
        ("Gradient", {"name": "y", "input": [[0, 0], [0]], "outWrt": 0, "inWrt": 0, "sens": [1]}, 400, "vector of 2"),
        (
            "Gradient",
            {"name": "y", "input": [[0, 0], [0]], "outWrt": 0, "inWrt": 0, "sens": [1, 10**400]},
            400,
            "`sens` has values that are not finite",
        ),
        ("Weather", {"name": "y"}, 404, "no question"),
    ],
)
def test_wrong_questions_get_an_answer_that_says_so(url: str, path: str, body: Any, status: int, text: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/{path}", content, timeout=30)
    assert caught.value.code == status
    error = json.loads(caught.value.read())["error"]
    assert error["type"]
    assert re.search(text, error["message"])


GET, POST = "GET /Info HTTP/1.1", "POST /InputSizes HTTP/1.1"
HERE = "Host: localhost"


def talk(url: str, *lines: str, body: str = "") -> tuple[int, str]:
    """What a server says to bytes that no client would send: the status and everything else."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", body]).encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        said = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert said.startswith("HTTP/1.1 "), said
    return int(said.split()[1]), said


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([GET, HERE], 200),
        ([GET, "Host: 127.0.0.1:4242"], 200),
        ([GET, "Host: [::1]:4242"], 200),
        ([GET.replace("1.1", "1.0")], 200),
        ([GET], 400),
        ([GET, HERE, HERE], 400),
        ([GET, "Host: weather.example"], 403),
        ([GET, "Host: localhost.weather.example:4242"], 403),
        ([POST, HERE], 400),
        ([POST, HERE, "Content-Length: ²"], 400),
        ([POST, HERE, "Content-Length: -2"], 400),
        ([POST, HERE, "Content-Length: +2"], 400),
        ([POST, HERE, "Content-Length: 2, 2"], 400),
        ([POST, HERE, "Content-Length: 2", "Content-Length: 3"], 400),
        ([POST, HERE, "Content-Length: " + "9" * 5000], 400),
        ([POST, HERE, "Content-Length: 10000000"], 413),
        ([POST, HERE, "Content-Length: 1000"], 400),
        ([POST, HERE, "Transfer-Encoding: chunked"], 400),
        (["POST"], 400),
        (["nonsense of no protocol at all"], 400),
        (["GET /Info HTTP/one"], 400),
    ],
)
def test_malformed_requests_are_answered_and_the_server_goes_on(url: str, lines: list[str], status: int) -> None:
    found, said = talk(url, *lines, body='{"name": "y"}')
    assert found == status, said
    if status != 200:
        assert json.loads(said.partition("\r\n\r\n")[2])["error"]["type"] == "InvalidInput"
    assert talk(url, GET, HERE)[0] == 200


def test_a_remedy_is_set_apart_from_what_is_wrong() -> None:
    """It ran on: "`-1` is not positive help: correct the value"."""
    said = _error("InvalidInput", "column `h`: `-1` is not positive\n   help: correct the value")["error"]["message"]
    assert said == "column `h`: `-1` is not positive; help: correct the value"


def test_only_a_server_of_this_machine_asks_whom_it_is_taken_for() -> None:
    assert _hosts("0.0.0.0") == _hosts("192.168.0.7") == frozenset()
    assert _hosts("localhost") == {"localhost"}
    assert _hosts("127.0.0.1") == {"127.0.0.1", "localhost"}


def test_clients_that_hang_up_are_passed_over_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    free = threading.Event()

    def wait(rows: np.ndarray) -> np.ndarray:
        free.wait(10)
        return np.zeros((len(rows), 100_000))

    reset = struct.pack("ii", 1, 0)  # what is sent after this has nobody to go to
    body = '{"name": "slow", "input": [[1]]}'
    with make_server({"slow": Offered((1,), (100_000,), wait)}, port=0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.server_address[1])) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                asked = f"POST /Evaluate HTTP/1.1\r\n{HERE}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                connection.sendall(asked.encode())
                time.sleep(0.05)
        free.set()
        assert talk(f"http://127.0.0.1:{server.server_address[1]}", GET, HERE)[0] == 200
        time.sleep(0.2)
        server.shutdown()
    assert capfd.readouterr().err == ""


def test_a_question_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpdsl.forward.server, "QUESTION_SECONDS", 0.3)
    with make_server({}, port=0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) as connection:
            connection.sendall(f"POST /Info HTTP/1.1\r\n{HERE}\r\nContent-Length: 99\r\n\r\n".encode())
            for _ in range(8):
                time.sleep(0.1)
                with suppress(OSError):
                    connection.sendall(b" ")
            with suppress(OSError):
                assert connection.recv(1) == b""
        server.shutdown()


def test_more_may_wait_than_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpdsl.forward.server, "MOST_TOGETHER", 2)
    together = Together(Offered((1,), (1,), lambda rows: 2 * rows))
    together._waiting = [_Asked(np.zeros(1)) for _ in range(5)]
    assert float(together.ask(np.array([3.0]))[0]) == 6.0


def test_questions_that_wait_are_answered_together() -> None:
    sizes: list[int] = []
    started, free = threading.Event(), threading.Event()

    def double(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        started.set()
        free.wait(10)
        return 2 * rows

    together = Together(Offered((1,), (1,), double))
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(together.ask, np.array([0.0]))
        started.wait(10)
        others = [pool.submit(together.ask, np.array([float(k)])) for k in range(1, 6)]
        while len(together._waiting) < 5:
            pass
        free.set()
        assert [float(each.result(10)[0]) for each in [first, *others]] == [0, 2, 4, 6, 8, 10]
    assert sizes == [16, 16]


def test_an_error_is_the_answer_of_all_that_asked_and_the_server_goes_on() -> None:
    def fail(rows: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    together = Together(Offered((1,), (1,), fail))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            together.ask(np.zeros(1))


def test_a_question_without_an_answer_leaves_those_that_wait_with_it_theirs() -> None:
    def root(rows: np.ndarray) -> np.ndarray:
        if np.any(rows < 0):
            raise ValueError("no")
        return np.sqrt(rows)

    together = Together(Offered((1,), (1,), root))
    together._waiting = waiting = [_Asked(np.array([value])) for value in (1.0, -4.0, 9.0, 16.0)]
    assert together.ask(np.array([25.0])) == 5
    assert [each.answer for each in waiting] == [1, None, 3, 4, 5]
    assert str(waiting[1].problem) == "no" and not any(each.problem for each in waiting if each.answer)


def test_a_name_the_model_does_not_have_and_a_port_that_is_taken(fit: gpdsl.Fit) -> None:
    with pytest.raises(gpdsl.GpdslError, match="`h` cannot be predicted; the model has y, f"):
        offered(fit, ["h"])
    with make_server({}, port=0) as server, pytest.raises(gpdsl.GpdslError, match="cannot listen on"):
        make_server({}, port=server.server_address[1])


@pytest.mark.slow
def test_labels_are_numbers_of_levels_and_probabilities() -> None:
    colours = (
        "model colours\nindex k in 1..C\ninput x : real\noutput c : label[k]\n"
        "latent g[k](x) ~ GP(0, RBF(1))\nc ~ Categorical(logits = g)\n"
    )
    data = {"x": np.arange(8.0), "c": np.array(["red", "green", "blue"])[np.arange(8) % 3]}
    fit = gpdsl.compile(colours).fit(data, steps=3, seed=0)
    found, rows = offered(fit), data["x"][:, None]
    np.testing.assert_allclose(found["c"].evaluate(rows)[:, :3], fit.predict(data).mean("c"), rtol=1e-9)
    number = np.asarray([fit.predict(data).levels("c").index(each) + 1.0 for each in data["c"]])
    both = np.column_stack([rows, number])
    np.testing.assert_allclose(found["log_density"].evaluate(both)[:, 0], fit.log_predictive_density(data), rtol=1e-6)
    with pytest.raises(gpdsl.GpdslError, match="number of a level, from 1 to 3"):
        found["log_density"].evaluate(np.array([[0.0, 4.0]]))


def test_levels_without_words_are_their_numbers_up_to_the_last() -> None:
    shapes: Any = SimpleNamespace(translator=SimpleNamespace(size=lambda _: 3), levels={})
    place: Any = SimpleNamespace(name="g", label=SimpleNamespace(name="c"))
    known: Any = SimpleNamespace(program=shapes)
    np.testing.assert_array_equal(_levels(known, place, np.array([[1.0], [3.0], [2.0]])), [[1], [3], [2]])
    for beyond in (0.0, 4.0, 1.5):
        with pytest.raises(gpdsl.GpdslError, match="from 1 to 3"):
            _levels(known, place, np.array([[beyond]]))


@pytest.mark.slow
def test_the_command_serves_a_saved_fit_until_it_is_interrupted(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "planes.gpfit")
    command = [sys.executable, "-m", "gpdsl", "serve", str(tmp_path / "planes.gpfit"), "--port", "0", "--names", "y"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"serving y at (http://127\.0\.0\.1:\d+); Ctrl-C ends", line)
            assert address is not None, line
            found = evaluate(gpdsl.umbridge(address[1]), [DATA["x"], DATA["z"]], (2, 2)).values
            np.testing.assert_allclose(found[:, 0], fit.predict(DATA).mean("y"), rtol=1e-9)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:  # a shell's background job ignores the signal, and `with` would wait for ever
            process.kill()


def test_slopes_are_those_of_the_posterior(fit: gpdsl.Fit, url: str) -> None:
    """The mean of an exact process is linear in values of the kernel, whose slopes are known."""
    umbridge = pytest.importorskip("umbridge", reason="the package umbridge, of the extra `dev`")
    model = umbridge.HTTPModel(url, "f")
    assert model.supports_gradient() and model.supports_apply_jacobian()
    at = [[0.3, -0.7], [0.2]]
    points = np.column_stack([DATA["x"], DATA["z"]])
    here = np.concatenate(at)

    def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.sum((a[:, None] - b) ** 2, axis=-1))

    row, noisy = gram(here[None], points)[0], gram(points, points) + 0.04 * np.eye(8)
    moved = -(here - points) * row[:, None]  # d k(here, points) / d here, [points, inputs]
    means = np.linalg.solve(noisy, DATA["y"]).T @ moved
    sd = np.sqrt(1 - row @ np.linalg.solve(noisy, row))
    spread = -(np.linalg.solve(noisy, row) @ moved) / sd
    np.testing.assert_allclose(model.gradient(0, 0, at, [1.0, -2.0]), means[0, :2] - 2 * means[1, :2], rtol=1e-7)
    np.testing.assert_allclose(model.apply_jacobian(0, 1, at, [3.0]), 3 * means[:, 2], rtol=1e-7)
    np.testing.assert_allclose(
        model.apply_jacobian(1, 0, at, [0.5, 1.0]), spread[:2] @ [0.5, 1.0] * np.ones(2), rtol=1e-6
    )


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize("x", [0.0, 2.0, 1e3])
def test_slopes_of_any_scale(scale: float, x: float) -> None:
    def function(rows: np.ndarray) -> np.ndarray:
        z = (rows[:, 0] - x) / scale + 0.7
        return np.column_stack([np.sin(z), np.exp(-(z**2)), 0 * z])

    found = slopes(function, np.array([x, 4.0]), [0, 1], [False, False])
    expected = np.array([np.cos(0.7), -1.4 * np.exp(-0.49), 0.0]) / scale
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-6, atol=1e-12 / scale)
    np.testing.assert_array_equal(found[:, 1], 0.0)


@pytest.mark.parametrize("finest", [1e5, 3e6, 1e7])
def test_slopes_of_values_that_are_rounded_alike_nearby(finest: float) -> None:
    """Small steps see the slope of what rounding does, `finest` times as much as it changes values."""
    rounding = 40 * np.finfo(float).eps * 600

    def function(rows: np.ndarray) -> np.ndarray:
        return 500.0 + 100.0 * np.sin(rows / 300.0) + rounding * np.sin(finest * rows)

    np.testing.assert_allclose(slopes(function, np.array([444.2]), [0], [False]), np.cos(444.2 / 300) / 3, rtol=1e-9)


def test_positive_inputs_stay_positive_and_counts_have_no_slopes() -> None:
    found = slopes(lambda rows: np.log(rows), np.array([0.01]), [0], [True])
    np.testing.assert_allclose(found, [[100.0]], rtol=1e-7)
    offered = Offered((1, 1), (1,), lambda rows: rows[:, :1], ("real", "count"))
    question = {"name": "a", "input": [[1], [2]], "outWrt": 0, "inWrt": 1, "vec": [1]}
    with pytest.raises(Refused, match="no slopes along an input of type count"):
        answer({"a": Together(offered)}, "/ApplyJacobian", json.dumps(question).encode())
    assert not Offered((1,), (1,), lambda rows: rows, ("label",)).smooth
