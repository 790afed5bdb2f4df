"""Products by blocks against NumPy, below and above the size at which matrices are split."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from gpdsl.kernels import numerics as t
from gpdsl.program.cache import precision


@pytest.mark.parametrize("size", [3, 5, 11])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_products(size: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(t, "LEAF", 3)
    monkeypatch.setattr(t, "SMALL", 2)
    rng = np.random.default_rng(size)
    lower = np.tril(rng.standard_normal((*batch, size, size))) / size + 2 * np.eye(size)
    right = rng.standard_normal((*batch, size, 5))
    left = rng.standard_normal((*batch, 4, size))
    symmetric = lower + lower.swapaxes(-1, -2)
    upper = lower.swapaxes(-1, -2)
    with precision("float64"):
        every = jax.jit(
            lambda lower, right, left, symmetric: (
                t.inverse_lower(lower),
                t.lower_times(lower, right),
                t.lower_transposed_times(lower, right),
                t.times_lower(left, lower),
                t.symmetric_product(right, right),
                t.congruence(lower, symmetric),
                t.gram_of_lower(lower),
            )
        )(lower, right, left, symmetric)
    expected = np.linalg.inv(lower), lower @ right, upper @ right, left @ lower
    expected += right @ right.swapaxes(-1, -2), upper @ symmetric @ lower, upper @ lower
    for found, known in zip(every, expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("size", "expected"), [(t.LEAF, [2, 2, 4, 2, 2]), (2 * t.LEAF, [1.25, 1.25, 2.1875, 0.625, 1.25])]
)
def test_larger_matrices_leave_out_most_of_what_is_nothing(size: int, expected: list[float]) -> None:
    """In multiplications and additions for each number of a cube: ten blocks of sixteen, and twenty of sixty-four."""
    matrix = np.zeros((size, size), np.float32)
    products = (t.lower_times, t.times_lower, t.congruence, lambda a, _: t.gram_of_lower(a), t.symmetric_product)
    found = [jax.jit(each).lower(matrix, matrix).cost_analysis()["flops"] / size**3 for each in products]
    assert found == pytest.approx(expected)
