"""Products by blocks against NumPy, below and above the size at which matrices are split."""

from __future__ import annotations

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
        pairs = [
            (t.inverse_lower(lower), np.linalg.inv(lower)),
            (t.lower_times(lower, right), lower @ right),
            (t.lower_transposed_times(lower, right), upper @ right),
            (t.times_lower(left, lower), left @ lower),
            (t.symmetric_product(right * right[..., :1, :] ** 0, right), right @ right.swapaxes(-1, -2)),
            (t.congruence(lower, symmetric), upper @ symmetric @ lower),
            (t.gram_of_lower(lower), upper @ lower),
        ]
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
