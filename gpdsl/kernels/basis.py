"""What a family of inducing features says of itself: covariances among them, and with values of the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Array, Float


@dataclass(frozen=True)
class Basis:
    """Features u of a process f: cov(u) is `among`, cov(u_m, f(x)) is `weights[m] * functions(x)[m]`.

    The functions depend on no parameter of the kernel where the family says so. Features have about unit variance, so
    that jitter is as small to each of them.
    """

    weights: Float[Array, "M"]
    among: Float[Array, "M M"]
    functions: Callable[[Float[Array, "n D"]], Float[Array, "n M"]]


Family = Callable[[str, Mapping[str, Array], Float[Array, "k D"], int], Basis]
"""From the name of a kernel, its parameters, where the features are, and how many, to the features.

Raises Unsuited for a kernel, or a number of columns, that the family has no features for.
"""


class Unsuited(Exception):
    """Why a kernel has no features of a family, in words."""
