"""Image-convolutional kernels (van der Wilk, Rasmussen, Hensman 2017): the mean of a kernel over all pairs of patches.

A pair of images needs a covariance for each pair of their patches, so pairs are taken a few at a time and computed
again for the gradient: memory does not grow with the number of images.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Images = Float[Array, "n pixels"]
Between = Callable[[Float[Array, "P d"], Float[Array, "P d"]], Float[Array, "P P"]]
AT_ONCE = 4_000_000
"""Covariances between patches held at a time."""


def patches_of(images: Images, image: tuple[int, int], patch: tuple[int, int]) -> Float[Array, "n P d"]:
    """Every patch of every image, pixels row by row."""
    (height, width), (rows, columns) = image, patch
    down, across = height - rows + 1, width - columns + 1
    whole = images.reshape(-1, height, width)
    parts = [whole[:, i : i + down, j : j + across] for i in range(rows) for j in range(columns)]
    return jnp.stack(parts, axis=-1).reshape(images.shape[0], down * across, rows * columns)


def mean_over_pairs(between: Between, a: Float[Array, "n P d"], b: Float[Array, "m P d"]) -> Float[Array, "n m"]:
    """The mean covariance of the patches of each two images."""
    pair = jax.checkpoint(lambda p, q: jnp.mean(between(p, q)))
    batch = max(1, AT_ONCE // (a.shape[1] * b.shape[1]))
    return jax.lax.map(lambda p: jax.lax.map(lambda q: pair(p, q), b, batch_size=batch), a)


def mean_within(between: Between, a: Float[Array, "n P d"]) -> Float[Array, "n"]:
    """The mean covariance of the patches of each image among themselves."""
    pair = jax.checkpoint(lambda p: jnp.mean(between(p, p)))
    return jax.lax.map(pair, a, batch_size=max(1, AT_ONCE // a.shape[1] ** 2))
