"""The examples run as a user would run them, in an empty folder, without a warning, and find what is in their data."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PNG = b"\x89PNG\r\n\x1a\n"


def run(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers in the only line that starts as `pattern` says."""
    (line,) = re.findall(rf"^\s*{pattern}(.*)$", text, re.MULTILINE)
    return [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", line)]


@pytest.mark.slow
def test_coal_mining(tmp_path: Path) -> None:
    printed = run("coal_mining.py", tmp_path)
    for year, least, most in (("1855", 2.5, 4.0), ("1875", 2.5, 4.0), ("1905", 0.5, 1.1), ("1955", 0.2, 0.8)):
        mean, _, low, high = numbers(year, printed)
        assert least < mean < most
        assert low < mean < high
    picture = tmp_path / "coal_mining_intensity.png"
    assert str(picture.resolve()) in printed
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_seismic_black_box(tmp_path: Path) -> None:
    printed = run("seismic_black_box.py", tmp_path, str(tmp_path))
    for name in ("depth", "velocity"):
        (inside, *sds) = numbers(f"{name}:", printed)[0:1] + numbers(f"{name}:.*which are", printed)
        assert inside > 85
        assert len(sds) == 4
    assert (tmp_path / "seismic_black_box.png").read_bytes().startswith(PNG)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_fortran_or_c_model(tmp_path: Path) -> None:
    printed = run("fortran_or_c_model.py", tmp_path)
    error, sd = numbers("level: root mean squared error", printed)
    assert error < 1.5 * sd < 0.15
    learnt, simulated = numbers("noise:", printed)
    assert abs(learnt - simulated) < 0.02


@pytest.mark.slow
def test_boston_like(tmp_path: Path) -> None:
    printed = run("boston_like.py", tmp_path)
    scales = numbers("length-scales", printed)
    assert scales[3] > 5 * max(scales[:3])
    (sse, _) = numbers("standardised squared error", printed)
    assert sse < 0.3
    assert "the loaded fit predicts the same: True" in printed


@pytest.mark.slow
def test_damped_oscillator(tmp_path: Path) -> None:
    printed = run("damped_oscillator.py", tmp_path, "20")
    for name in ("stiffness", "damping"):
        assert numbers(f"{name}:", printed)[0] > 85
    learnt, simulated = numbers("noise:", printed)
    assert abs(learnt - simulated) < 0.005
    lowest, highest, evaluations = numbers("20 seeds: bounds from", printed)
    assert 119 < lowest <= highest < lowest + 1
    assert evaluations < 10_000


@pytest.mark.slow
def test_umbridge_client(tmp_path: Path) -> None:
    pytest.importorskip("umbridge", reason="the server of this example is made by the package umbridge")
    printed = run("umbridge_client.py", tmp_path)
    (inside,) = numbers("within two standard deviations:", printed)
    assert inside > 85
    (evaluations, *_) = numbers("simulator", printed.replace(",", ""))
    assert 500 < evaluations < 20_000


@pytest.mark.slow
def test_first_arrival_tomography(tmp_path: Path) -> None:
    pytest.importorskip("skfmm", reason="the solver of this example is the package scikit-fmm")
    printed = run("first_arrival_tomography.py", tmp_path, str(tmp_path), "4", "6")
    error, said = numbers("slowness, s/km:", printed)
    assert error < 1.5 * said < 0.04
    (inside,) = numbers("within two standard deviations:", printed)
    assert inside > 80
    (evaluations, *_) = numbers("simulator", printed.replace(",", ""))
    assert evaluations <= 2000
    assert (tmp_path / "first_arrival_tomography.png").read_bytes().startswith(PNG)


def test_every_example_has_a_test() -> None:
    written = Path(__file__).read_text(encoding="utf-8")
    missing = [p.name for p in (ROOT / "examples").glob("*.py") if f'run("{p.name}"' not in written]
    assert missing == []
    long = {p.name for p in (ROOT / "examples").glob("*.py") if p.read_text(encoding="utf-8").count("\n") >= 90}
    assert long == {"laplace_engine.py"}  # a whole engine


@pytest.mark.slow
def test_laplace_engine(tmp_path: Path) -> None:
    laplace, bound = numbers("log evidence by Laplace", run("laplace_engine.py", tmp_path))
    assert abs(laplace - bound) < 0.1


@pytest.mark.slow
def test_relevance_vectors(tmp_path: Path) -> None:
    printed = run("relevance_vectors.py", tmp_path)
    assert 3 <= numbers("relevance vectors", printed)[0] <= 15
    (error,) = numbers("root mean squared error against the sinc itself", printed)
    assert error < 0.04
    assert (tmp_path / "relevance_vectors.png").read_bytes().startswith(PNG)
