"""Dask distributed: a cluster of this machine and a scheduler by its address, with workers that die and hang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.forward import ForwardModel, ForwardModelError, backends as dask_cluster, evaluate, opaque
from gpdsl.forward.backends import DaskCluster
from tests.forward import simulators

distributed = pytest.importorskip("distributed", reason="the package distributed, of the extra `dask`")
pytestmark = pytest.mark.slow

ROWS = 24
RANDOM = np.random.default_rng(4)
DEPTH, SPEED = RANDOM.normal(size=(ROWS, 4)), RANDOM.uniform(1, 2, ROWS)
PRODUCT = DEPTH * SPEED[:, None]
BAD = np.where(np.arange(ROWS) == 7, -1.0, SPEED)


CONNECTED: list[DaskCluster] = []


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while CONNECTED:
        CONNECTED.pop().close()


def model(function: Any, executor: object, **how: Any) -> ForwardModel:
    made = opaque(function, executor=executor, **{"vectorized": False, "workers": 2, **how})
    assert isinstance(made.executor, DaskCluster)
    CONNECTED.append(made.executor)
    return made


@pytest.mark.parametrize("vectorized", [True, False])
def test_values_by_address_and_by_client(cluster: Any, vectorized: bool) -> None:
    by_address = model(simulators.product, cluster.scheduler_address, vectorized=vectorized)
    np.testing.assert_array_equal(evaluate(by_address, [DEPTH, SPEED], (4,)).values, PRODUCT)
    with distributed.Client(cluster, set_as_default=False) as client:
        own = model(simulators.product, client, vectorized=vectorized, workers=None)
        np.testing.assert_array_equal(evaluate(own, [DEPTH, SPEED], (4,)).values, PRODUCT)


def test_a_cluster_of_its_own_takes_functions_that_processes_do_not() -> None:
    factor = 3.0
    one = model(lambda depth, speed: factor * depth, "dask")
    np.testing.assert_array_equal(evaluate(one, [DEPTH, SPEED], (4,)).values, factor * DEPTH)
    CONNECTED[0].close()
    np.testing.assert_array_equal(evaluate(one, [DEPTH, SPEED], (4,)).values, factor * DEPTH)


def test_a_fit_on_a_cluster_is_the_fit_in_process(cluster: Any) -> None:
    text = (
        "model m\ninput x : real\noutput y : real\nexternal g(a: real) -> real\n"
        "latent f(x) ~ GP(0, RBF(1))\nlet r = g(f)\ny ~ Normal(r, 0.3)\n"
    )
    data, options = {"x": np.arange(5.0), "y": np.sin(np.arange(5.0))}, {"optimizer": "adam", "steps": 4, "samples": 4}
    address = cluster.scheduler_address
    places = {"here": lambda a: 2 * a, "there": gpdsl.opaque(lambda a: 2 * a, executor=address, workers=2)}
    fits = {k: gpdsl.compile(text, externals={"g": g}).fit(data, **options) for k, g in places.items()}
    np.testing.assert_allclose(fits["there"].posterior[0].mean, fits["here"].posterior[0].mean, rtol=1e-9)
    CONNECTED.append(places["there"].executor)  # type: ignore[attr-defined]


def test_an_exception_names_its_row(cluster: Any) -> None:
    with pytest.raises(ForwardModelError, match="row 8 of the batch: ValueError: speeds are positive") as caught:
        evaluate(model(simulators.failing, cluster.scheduler_address), [DEPTH, BAD], (4,))
    assert "in failing" in str(caught.value.__cause__)


def test_a_worker_killed_from_outside_is_replaced(cluster: Any) -> None:
    one = model(simulators.product, cluster.scheduler_address)
    evaluate(one, [DEPTH, SPEED], (4,))
    next(iter(cluster.workers.values())).process.process.kill()
    np.testing.assert_array_equal(evaluate(one, [DEPTH, SPEED], (4,)).values, PRODUCT)


def test_a_call_that_hangs_is_given_up() -> None:
    one = model(simulators.hanging, "dask", timeout=3.0, policy="penalise")
    start = time.monotonic()
    found = evaluate(one, [DEPTH[6:9], BAD[6:9]], (4,))
    assert time.monotonic() - start < 60
    assert np.flatnonzero(found.failed).tolist() == [1]


def test_a_row_that_kills_workers_is_found(cluster: Any) -> None:
    one = model(simulators.dying, cluster.scheduler_address, policy="penalise")
    found = evaluate(one, [DEPTH[5:9], BAD[5:9]], (4,))
    assert np.flatnonzero(found.failed).tolist() == [2]


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2.0)
    start = time.monotonic()
    with pytest.raises(ForwardModelError, match="cannot be reached any more: Dask"):
        evaluate(model(simulators.product, "tcp://127.0.0.1:9"), [DEPTH, SPEED], (4,))
    assert time.monotonic() - start < 60
