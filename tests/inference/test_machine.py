"""What a fit asks of the machine, and gives back."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import ThreadpoolController

from gpdsl.inference import blocks as machine


def faults() -> int:
    """Pages that the system gave this process while 32 MB were taken and freed twenty times."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytearray(2**26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.fixture
def plain_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody has set the C library's memory by the environment."""
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    if machine._gnu() is None:
        pytest.skip("the C library is not GNU's")
    yield


@pytest.mark.usefixtures("plain_memory")
def test_memory_stays_while_a_fit_runs_and_goes_back_after() -> None:
    # In a process of its own: where an allocation has failed once, as in tests of data that are too large, the C
    # library serves that thread from elsewhere, and what is large is mapped anew each time.
    found = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True, timeout=60).stdout
    inside, after = map(int, found.split())
    assert after > 20 * 1000 > 10 * inside


@pytest.mark.usefixtures("plain_memory")
def test_small_fits_leave_memory_alone() -> None:
    before = faults()
    with machine.machine_for(50):
        assert abs(faults() - before) < 0.1 * max(before, 1000)


@pytest.mark.parametrize(("load", "crowded"), [(0.0, False), (6.9, False), (7.1, True)])
def test_a_machine_is_crowded_where_seven_quarters_of_its_cores_are_asked_for(
    load: float, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 99.0))
    assert machine._crowded() is crowded


def test_threads_are_limited_and_given_back() -> None:
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    own = ["scipy" in str(Path(each.filepath).parent) for each in libraries]
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        with machine.machine_for(10):
            assert [each.num_threads for each in libraries] == [1] * len(libraries)
        assert [each.num_threads for each in libraries] == [2] * len(libraries)
        with pytest.raises(ValueError, match="lost"), machine.machine_for(1000):
            # elsewhere than in SciPy's own library one thread is enough, and no other library may lose any
            found = [each.num_threads for each, scipy in zip(libraries, own, strict=True) if not scipy]
            assert not any(own) or found == [1] * len(found)
            raise ValueError("lost")
        assert [each.num_threads for each in libraries] == [2] * len(libraries)


if __name__ == "__main__":
    with machine.machine_for(1000):
        with machine.machine_for(2000):
            faults()
        kept = faults()
    sys.stdout.write(f"{kept} {faults()}\n")
