"""Real data that lie beside the repository; a test that needs them is skipped, saying so, where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared_table(name: str) -> np.ndarray:
    """The rows of a CSV file below its header."""
    folder = Path(os.environ.get("GPDSL_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / name).exists():
        pytest.skip(f"no {name}: set GPDSL_DATA to the folder that holds it")
    return np.loadtxt(folder / name, delimiter=",", skiprows=1)
