"""A fitted model as an UM-Bridge server: through our client, the client of `umbridge`, and plain HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.forward import evaluate
from gpdsl.forward.server import Offered, Together, make_server
from gpdsl.results.serving import offered

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
        threading.Thread(target=server.serve_forever, daemon=True).start()
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
    assert not model.supports_gradient()
    mean, _ = model([DATA["x"][0].tolist(), [DATA["z"][0]]])
    np.testing.assert_allclose(mean, fit.predict(DATA).mean("y")[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("Evaluate", b"no json", 400, "is no JSON"),
        ("Evaluate", b"[1]", 400, "is no JSON object"),
        ("Evaluate", b"[" * 100_000, 400, "is no JSON"),
        ("Evaluate", {"name": "q", "input": []}, 400, "there is no model 'q', but y, f"),
        ("Evaluate", {"name": ["y"], "input": []}, 400, "there is no model"),
        ("Evaluate", {"name": "y"}, 400, "no list of vectors"),
        ("Evaluate", {"name": "y", "input": [[1, 2, 3]]}, 400, r"expected sizes \[2, 1\]"),
        ("Evaluate", {"name": "y", "input": [[1, "a"], [1]]}, 400, "no list of vectors"),
        ("Evaluate", {"name": "y", "input": [[1, float("nan")], [1]]}, 400, "not finite"),
        ("Gradient", {"name": "y"}, 400, "not supported"),
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


@pytest.mark.slow
def test_the_command_serves_a_saved_fit_until_it_is_interrupted(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "planes.gpfit")
    command = [sys.executable, "-m", "gpdsl", "serve", str(tmp_path / "planes.gpfit"), "--port", "0", "--names", "y"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"serving y at (http://127\.0\.0\.1:\d+); Ctrl-C ends", line)
        assert address is not None, line
        found = evaluate(gpdsl.umbridge(address[1]), [DATA["x"], DATA["z"]], (2, 2)).values
        np.testing.assert_allclose(found[:, 0], fit.predict(DATA).mean("y"), rtol=1e-9)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
