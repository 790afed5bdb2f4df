"""The posterior families by name, and how many numbers each of them has to find."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.family import Diagonal, Family, Full, Parameters
from gpdsl.inference.posteriors.features import Features
from gpdsl.language.options import OPTIONS

SINGLE: dict[str, Callable[[bool], Family]] = {
    "coupled": lambda dense: Full(),
    "full": lambda dense: Full(),
    "linear": lambda dense: Linear(),
    "diagonal": lambda dense: Diagonal(1, dense),
}
MIXTURES: dict[str, Callable[[int, bool], Family]] = {
    "mixture": Diagonal,
    "mixture_full": lambda components, dense: Full(components),
}


def parse_family(text: str, dense: bool) -> Family:
    """The family a user named: `full`, `linear`, `diagonal`, `mixture(K)` or `mixture_full(K)`."""
    if text in SINGLE:
        return SINGLE[text](dense)
    match = re.fullmatch(r"(mixture|mixture_full)\(\s*([1-9][0-9]{0,2})\s*\)", text)
    if match:
        return MIXTURES[match.group(1)](int(match.group(2)), dense)
    raise GpdslError(f"posterior = {text!r}: expected {OPTIONS['posterior'].takes.expected}")


def size(family: Family, inducing: int, reads: int) -> int:
    """Numbers that say the posterior of one latent; `reads` counts what all rows read of it."""
    match family:
        case Linear():
            return inducing + reads
        case Full(components=count):
            return count * (inducing + inducing * (inducing + 1) // 2)
    return 2 * family.components * inducing


# --- The full Gaussian posterior by a number of parameters linear in the rows: SAVIGP Theorem 2 ----------------------


@dataclass(frozen=True)
class Linear(Full):
    """One Gaussian per latent whose covariance is S = (Kuu^-1 + sum_n lambda_n a_n a_n')^-1, a_n = Kuu^-1 k_u(x_n).

    This is where the optimum lies among all covariances (eq. 34; dense: eq. 35, a_n the unit vectors). Whitened,
    S^-1 = I + sum_n lambda_n phi_n phi_n'. A lambda is kept as its inverse hyperbolic sine: logarithmic where a row
    says much, and free to be negative, as at an outlier of a heavy-tailed likelihood. All NaN where S^-1 is not
    positive definite, which a line search steps back from.
    """

    def init(self, mean: Float[np.ndarray, "K latents M"], reads: int) -> dict[str, np.ndarray]:
        """Each read as informative as one observation with the prior's variance as noise."""
        return {"mean": mean, "site": np.full((*mean.shape[:2], reads), np.arcsinh(1.0))}

    def prepare(self, q: Parameters, features: Features) -> Parameters:
        """Roots of the covariances, from the features of all rows: O(reads M^2) per latent."""
        precision = information(features, jnp.sinh(q["site"][0]))
        return {"mean": q["mean"], "root": inverse_root(precision)[None]}


def information(features: Features, weights: Float[Array, "latents reads"]) -> Float[Array, "latents M M"]:
    """Sums of weights_n phi_n phi_n'."""
    shared = features.phi.shape[0] == 1

    def one(phi: Array, weight: Array) -> Array:
        return (phi.T * weight) @ phi

    return jax.vmap(one, in_axes=(None if shared else 0, 0))(features.phi[0] if shared else features.phi, weights)


def inverse_root(information: Float[Array, "latents M M"]) -> Float[Array, "latents M M"]:
    """A root R, RR' = (I + information)^-1; NaN where that is not positive definite."""
    identity = jnp.eye(information.shape[-1], dtype=information.dtype)
    factor = jnp.linalg.cholesky(identity + information)
    return jax.vmap(lambda f: solve_triangular(f, identity, lower=True, trans=1))(factor)
