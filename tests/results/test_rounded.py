"""Numbers as people write them."""

from __future__ import annotations

import pytest

from gpdsl.shown import rounded


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1792.0, 2, "1800"),
        (99.6, 2, "100"),
        (9.96, 2, "10"),
        (1.28, 2, "1.3"),
        (-184.3, 2, "-180"),
        (0.0, 2, "0"),
        (0.00123456, 4, "0.001235"),
        (12345.6, 4, "12350"),
        (3e8, 2, "3e+08"),
        (1e6, 2, "1e+06"),
        (-999_999.0, 6, "-999999"),
    ],
)
def test_large_errors_need_no_exponent(value: float, digits: int, text: str) -> None:
    assert rounded(value, digits) == text
