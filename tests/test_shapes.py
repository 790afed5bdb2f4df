"""The check of annotated shapes that all core tests run under notices what it is there for."""

from __future__ import annotations

import os

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from gpdsl.inference.exact.evidence import triangle_slope
from gpdsl.inference.natural.lapack import row_posterior
from tests.shapes import FIRST_CALLS, checked, next_module

pytestmark = pytest.mark.skipif(os.environ.get("GPDSL_TESTS") != "core", reason='core tests alone: -m "not slow"')


def test_axes_of_one_name_have_one_length() -> None:
    assert row_posterior(np.eye(3), np.ones(3), np.ones(3)) is not None
    with pytest.raises(jaxtyping.TypeCheckError, match="row_posterior"):
        row_posterior(np.eye(3), np.ones(2), np.ones(3))


def test_an_axis_too_many_is_noticed() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="triangle_slope"):
        triangle_slope(jnp.ones((1, 3)), jnp.eye(3))


def test_what_is_returned_is_looked_at() -> None:
    @checked
    def wrong(a: jaxtyping.Float[np.ndarray, "n"]) -> jaxtyping.Float[np.ndarray, "n n"]:
        return a

    with pytest.raises(jaxtyping.TypeCheckError, match="wrong"):
        wrong(np.ones(2))


def test_only_the_first_calls_are_looked_at_in_every_module() -> None:
    @checked
    def square(a: jaxtyping.Float[np.ndarray, "n n"]) -> int:
        return a.ndim

    for _ in range(FIRST_CALLS):
        square(np.eye(2))
    assert square(np.ones(2)) == 1
    next_module()
    with pytest.raises(jaxtyping.TypeCheckError, match="square"):
        square(np.ones(2))


def test_arguments_by_name_are_looked_at_and_calls_within_have_axes_of_their_own() -> None:
    @checked
    def inner(a: jaxtyping.Float[np.ndarray, "n"]) -> int:
        return a.size

    @checked
    def outer(a: jaxtyping.Float[np.ndarray, "n"], b: jaxtyping.Float[np.ndarray, "m"]) -> tuple[int, int]:
        return a.size, inner(a=b)

    assert outer(np.ones(2), b=np.ones(3)) == (2, 3)
    with pytest.raises(jaxtyping.TypeCheckError, match=r"outer: b is float64\[3, 1\]"):
        outer(np.ones(2), b=np.ones((3, 1)))
