"""What values do that are not normal about their predictions, by what they were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gpdsl.results.criticism.flexibility import _calibrated


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (stats.norm(0, 2), "too narrow"),
        (stats.norm(0, 0.5), "too wide"),
        (stats.triang(0, loc=-1.414, scale=4.243), "skewed"),
        (stats.t(3, scale=0.75), "heavier tails"),
    ],
)
def test_the_remedy_is_that_of_what_the_values_do(law: object, said: str) -> None:
    places = law.ppf((np.arange(1500) + 0.5) / 1500)  # type: ignore[attr-defined]
    found = _calibrated(places)
    assert found.doubtful and said in found.remedy


def test_two_groups_are_told_to_be_two() -> None:
    """Nine tenths lie inside nine tenths, and no more in the middle: neither width is wrong."""
    halves = stats.norm(1.22, 0.34).ppf((np.arange(200) + 0.5) / 200)
    found = _calibrated(np.concatenate([halves, -halves]))
    assert found.doubtful and "two groups" in found.remedy
    assert not _calibrated(stats.norm.ppf((np.arange(400) + 0.5) / 400)).doubtful
