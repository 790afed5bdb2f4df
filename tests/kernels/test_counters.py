"""Random numbers by counter: those that stand in for JAX's own where time counts."""

from __future__ import annotations

import jax
import numpy as np
from scipy import stats

from gpdsl.kernels.counters import quick_normals

drawing = jax.jit(quick_normals, static_argnums=1)


def test_quick_normals_are_standard_normal() -> None:
    drawn = np.asarray(drawing(jax.random.key(3), (40, 5001)))
    assert drawn.shape == (40, 5001) and drawn.dtype == np.float32
    assert np.isfinite(drawn).all() and len(np.unique(drawn)) > 0.98 * drawn.size
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(drawn) - np.eye(40)).max() < 5 / np.sqrt(drawn.shape[1])


def test_quick_normals_follow_the_key() -> None:
    key, other = jax.random.key(3), jax.random.fold_in(jax.random.key(3), 1)
    first = np.asarray(drawing(key, (101,)))
    np.testing.assert_array_equal(first, drawing(key, (101,)))
    assert abs(np.corrcoef(first, drawing(other, (101,)))[0, 1]) < 0.4
