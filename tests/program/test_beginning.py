"""JAX is told how to begin, or the user that it has begun another way."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

import gpdsl
from gpdsl.program import beginning

ROOT = Path(__file__).resolve().parents[2]
SEEN = "import os; print(os.environ['PJRT_NPROC'], jax.config.values['jax_cpu_enable_async_dispatch'])"


def said(program: str) -> tuple[str, str]:
    """What a process of its own prints, and what it warns of."""
    environment = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    few = "import os; os.cpu_count = lambda: 2; "
    done = subprocess.run(
        [sys.executable, "-c", few + program], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    "program",
    [
        "import gpdsl, jax; import gpdsl.program.cache; jax.devices()",
        "import jax, gpdsl; jax.devices()",
    ],
)
def test_it_has_threads_enough_and_waits_for_its_programs(program: str) -> None:
    printed, warned = said(f"{program}; {SEEN}")
    assert printed == "8 False" and "GpdslWarning" not in warned


@pytest.mark.parametrize(
    "program",
    [
        "import jax; jax.devices(); import gpdsl.program.cache",
        "import gpdsl, jax; jax.devices(); import gpdsl.program.cache",
    ],
)
def test_who_has_begun_it_before_is_warned(program: str) -> None:
    """Once, though gpdsl looks when it is imported and when it first needs JAX."""
    assert said(program)[1].count("GpdslWarning: JAX has computed before gpdsl could tell it how") == 1


@pytest.mark.parametrize(
    ("cores", "asynchronous", "backend", "told"),
    [(2, True, "cpu", 1), (7, True, "cpu", 1), (8, True, "cpu", 0), (2, False, "cpu", 0), (2, True, "gpu", 0)],
)
def test_whoever_may_wait_for_ever_is_warned(
    cores: int, asynchronous: bool, backend: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards nothing is dispatched to another thread, whatever was chosen before."""
    jax.devices()
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    jax.config.update(beginning.ASYNCHRONOUS, asynchronous)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        beginning.before_jax_begins()
    assert [each.category for each in found] == [gpdsl.GpdslWarning] * told
    assert jax.config.values[beginning.ASYNCHRONOUS] is False


def test_a_draw_from_the_prior_tells_it_too() -> None:
    text = "input x : real\\noutput y : real\\nlatent f(x) ~ GP(0, RBF(1))\\ny ~ Normal(f, 1)\\n"
    printed, warned = said(
        f"import gpdsl; gpdsl.compile('{text}').sample_prior(rows=3); import gpdsl.program.cache, jax; {SEEN}"
    )
    assert printed == "8 False" and "GpdslWarning" not in warned


def test_importing_loads_no_jax() -> None:
    assert said("import sys, gpdsl; print('jax' in sys.modules)")[0] == "False"
