"""Minibatches."""

from __future__ import annotations

from itertools import islice

import numpy as np

from gpdsl.data import minibatches


def test_an_epoch_visits_every_row_once() -> None:
    batches = list(islice(minibatches(12, 4, seed=1), 6))
    assert all(batch.shape == (4,) for batch in batches)
    for epoch in (batches[:3], batches[3:]):
        assert sorted(np.concatenate(epoch)) == list(range(12))
    assert not np.array_equal(np.concatenate(batches[:3]), np.concatenate(batches[3:]))


def test_the_seed_decides_the_stream() -> None:
    first, again, other = (np.concatenate(list(islice(minibatches(20, 3, seed), 9))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_every_batch_has_one_shape_and_every_row_is_seen_in_time() -> None:
    batches = list(islice(minibatches(10, 4, seed=0), 40))
    assert {batch.shape for batch in batches} == {(4,)}
    assert set(np.concatenate(batches)) == set(range(10))


def test_a_batch_larger_than_the_data_is_all_of_it() -> None:
    assert sorted(next(minibatches(3, 100, seed=0))) == [0, 1, 2]
