"""Annotated shapes are those that arrays have, in small fits of every engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, jaxtyped

from tests import shaped_fits


@pytest.mark.slow
def test_annotated_shapes_are_true() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.shaped_fits"]
    root, environment = Path(__file__).parents[1], {**os.environ, "GPDSL_BRIEF": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_shape_would_be_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaped_fits, "found", {})

    @jaxtyped(typechecker=shaped_fits.checked)
    def product(a: Float[Array, "n m"], *rest: Float[np.ndarray, "m"], scale: float = 1.0) -> Float[Array, "n"]:
        return scale * a @ jnp.asarray(sum(rest))

    product(jnp.ones((3, 2)), np.ones(2), np.ones(2))
    assert not shaped_fits.found
    product(jnp.ones((3, 3)), np.ones(3), np.ones((3, 3)))
    wrong = {place.split(": ")[-1] for place in shaped_fits.found}
    assert {"rest", "return"} <= wrong and "a" not in wrong, capsys.readouterr().out
