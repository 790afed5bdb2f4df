"""Rows on one, two and four devices, and in two processes: the same answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError

ROOT = Path(__file__).resolve().parents[2]

TEXT = """
input x : real[2]
output y : binary
param s2 : positive = 4
param ell : positive[2] = 1.3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Bernoulli(probit = f)
"""

SCRIPT = """
import json, os, sys
if sys.argv[2] != "alone":
    import jax
    jax.distributed.initialize("localhost:" + sys.argv[3], 2, int(sys.argv[2]))
import numpy as np
import gpdsl
rng = np.random.default_rng(0)
x = rng.normal(size=(101, 2))
y = (np.sin(2 * x[:, 0]) + x[:, 1] + 0.5 * rng.normal(size=101) > 0).astype(int)
found = {}
from gpdsl.inference import blocks
for name, options in json.loads(sys.argv[1]).items():
    if "in blocks" in name:
        blocks.LARGE = blocks.AT_ONCE = 0
    asked = {"inducing": 9, "batch": 0, "tolerance": 1e-12, **options}
    fit = gpdsl.compile(os.environ["MODEL"]).fit({"x": x, "y": y}, **asked)
    found[name] = [fit.elbo, *fit.predict({"x": x[:5]}).mean("f").tolist()]
print(json.dumps(found))
"""


TRAFFIC = """
import json, os, re
import numpy as np
import gpdsl
from gpdsl.inference import blocks
from gpdsl.inference.problem import Problem
texts, plain = [], Problem.compiled

def recorded(self, *arguments, **options):
    texts.append((found := plain(self, *arguments, **options)).as_text())
    return found

Problem.compiled = recorded
rng = np.random.default_rng(0)
x = rng.normal(size=(4096, 2))
data = {"x": x, "y": (np.sin(2 * x[:, 0]) + x[:, 1] > 0).astype(int)}
for options in json.loads(os.environ["CASES"]):
    blocks.LARGE = blocks.AT_ONCE = 0 if options.pop("in blocks") else 2**25
    gpdsl.compile(os.environ["MODEL"]).fit(data, inducing=9, batch=0, steps=1, devices=4, **options)
between = re.compile(r"= (\\S.*?) (?:all-gather|all-reduce|all-to-all|collective-permute)\\(.*")
sent = [found for text in texts for found in between.finditer(text)]
shapes = [dims for each in sent for dims in re.findall(r"\\[([0-9,]*)\\]", each[1])]
sizes = [np.prod([int(n) for n in dims.split(",") if n]) for dims in shapes]
loops = max(each[0].count("while/body") for each in sent)
print(json.dumps({"sent": len(sent), "largest": int(max(sizes)), "loops": loops}))
"""


VISITS: dict[str, dict[str, object]] = {
    "ep on minibatches": {"engine": "ep"},
    "vi on minibatches": {},
    "adam on minibatches": {"optimizer": "adam"},
}
"""They take the same rows on any number of devices."""


def command(cases: dict[str, dict[str, object]], *more: str) -> list[str]:
    return [sys.executable, "-c", SCRIPT, json.dumps(cases), *more]


def environment(devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return {**os.environ, "MODEL": TEXT, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("devices", "visits"), [(4, ["vi on minibatches"]), pytest.param(2, list(VISITS), marks=pytest.mark.slow)]
)
def test_devices_share_the_rows_and_agree(devices: int, visits: list[str]) -> None:
    """101 rows do not fall into equal parts, so some devices have a row in which nothing is observed.

    With blocks of 64 rows, a device works on 16 of its 26 at a time.
    """
    held = {"fixed": ["s2", "ell"]}
    cases: dict[str, dict[str, object]] = {}
    for each in (1, devices):
        cases[f"ep {each}"] = {"engine": "ep", "devices": each, **held}
        cases[f"vi {each}"] = {"devices": each, **held}
        for name in visits:
            cases[f"{name} {each}"] = {"devices": each, "batch": 20, "steps": 25, **VISITS[name]}
    name = "ep" if devices == 4 else "vi"
    cases[f"{name} in blocks {devices}"] = cases[f"{name} {devices}"]
    done = subprocess.run(
        command(cases, "alone"), capture_output=True, text=True, env=environment(4), timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: np.asarray(each) for name, each in json.loads(done.stdout.splitlines()[-1]).items()}
    for name in found:
        alone = found[f"{name.replace(' in blocks', '')[:-2]} 1"]
        assert np.abs(found[name] - alone).max() < 1e-8


@pytest.mark.parametrize(
    "kinds",
    [
        [{"engine": "ep"}, {"in blocks": True}],
        pytest.param(
            [
                {"engine": "ep", "in blocks": True},
                *({"engine": "ep", "optimizer": "adam", "in blocks": each} for each in (False, True)),
                *({"posterior": each} for each in ("full", "linear")),
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_only_sums_leave_a_device(kinds: list[dict[str, object]]) -> None:
    """Nothing that grows with the rows, 1024 of which are on each of four devices; and once, not for every block."""
    cases = [{"in blocks": False, **kind} for kind in kinds]
    done = subprocess.run(
        [sys.executable, "-c", TRAFFIC],
        capture_output=True,
        text=True,
        env={**environment(4), "CASES": json.dumps(cases)},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sent"] >= len(cases)
    assert found["largest"] <= 10 * 10  # what remembered steps have to do with each other
    assert found["loops"] == 1  # that of the steps, not that of the blocks inside it


@pytest.mark.slow
def test_two_processes_agree_with_one() -> None:
    cases: dict[str, dict[str, object]] = {"ep": {"engine": "ep"}, "vi": {}}
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    pair = [
        subprocess.Popen(command(cases, each, port), stdout=subprocess.PIPE, text=True, env=environment(1))
        for each in ("0", "1")
    ]
    both = [json.loads(process.communicate(timeout=600)[0].splitlines()[-1]) for process in pair]
    alone = subprocess.run(
        command(cases, "alone"), capture_output=True, text=True, env=environment(1), timeout=600, check=True
    )
    one = json.loads(alone.stdout.splitlines()[-1])
    for name in cases:
        for found in both:
            assert np.abs(np.asarray(found[name]) - np.asarray(one[name])).max() < 1e-6


def test_refusals() -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(12, 2)), "y": rng.integers(0, 2, 12)}
    with pytest.raises(GpdslError, match="xla_force_host_platform_device_count=64"):
        gpdsl.compile(TEXT).fit(data, devices=64, inducing=4)
