"""A saved fit holds the files its model used, and believes nothing a file says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import gpdsl
from gpdsl.results.persistence import checksum

MODEL = """use "kernels.gpm"
input x : real
output y : real
param ell : positive = 1
latent f(x) ~ GP(0, bump(ell))
y ~ Normal(f, 0.1)
"""
X = np.linspace(0, 3, 12)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A fit whose used file is gone, and its predictions."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "m.gpm").write_text(MODEL)
    (folder / "kernels.gpm").write_text("kernel bump(r; ell) = exp(-r^2/(2*ell^2))\n")
    fit = gpdsl.load(folder / "m.gpm").fit({"x": X, "y": np.sin(X)}, steps=3)
    fit.save(folder / "m.gpfit")
    (folder / "kernels.gpm").unlink()
    return folder / "m.gpfit", np.asarray(fit.predict({"x": X}).mean("y"))


def test_a_saved_fit_needs_no_other_file(saved: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, means = saved
    fit = gpdsl.load_fit(path)
    assert np.array_equal(fit.predict({"x": X}).mean("y"), means)
    assert [each.name for each in fit.model.declarations.source.parts] == ["kernels.gpm"]
    fit.save(tmp_path / "again.gpfit")
    assert np.array_equal(gpdsl.load_fit(tmp_path / "again.gpfit").predict({"x": X}).mean("y"), means)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("used", 3),
        ("used", [["8", "kernels.gpm"]]),
        ("used", [[8, ["kernels.gpm"]]]),
        ("used", [[8, "kernels.gpm"], [8, "again.gpm"]]),
        ("used", [[10**9, "kernels.gpm"]]),
        ("used", [[2, "kernels.gpm"]]),  # then the model's own lines stand in a used file
        ("used", []),
        ("model", MODEL),  # the file is not looked for again
    ],
)
def test_edited_parts_are_damage(key: str, value: Any, saved: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    with safe_open(saved[0], framework="numpy") as handle:
        header = json.loads(handle.metadata()["gpdsl"]) | {key: value}
        arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    text = json.dumps(header)
    (tmp_path / "a.gpfit").write_bytes(save(arrays, {"gpdsl": text, "sha256": checksum(text, arrays)}))
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged"):
        gpdsl.load_fit(tmp_path / "a.gpfit")
