"""Profiles by distance: values and slopes against mpmath, apart and where two points meet, by every way there is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import sympy as sp

from gpdsl.kernels.formula import derivative, in_squares, profile
from gpdsl.program.cache import jit
from gpdsl.symbolic.functions import lgamma
from gpdsl.symbolic.kernel_formula import DISTANCE

ELL = sp.Symbol("ell", positive=True)
S = DISTANCE / ELL
PROFILES = {
    "even powers": sp.exp(-(S**2) / 2),
    "a root, derivative known": (1 + sp.sqrt(3) * S) * sp.exp(-sp.sqrt(3) * S),
    "a root, derivative at zero too": (1 + S + S**2 / 3) * sp.exp(-S),
    "a limit at zero": sp.sin(3 * S) / (3 * S) * sp.exp(-S),
    "no written derivative": sp.exp(-S - lgamma(2 + S)),
}


@pytest.mark.parametrize("name", PROFILES)
def test_values_and_slopes_apart(name: str) -> None:
    expression, ell = PROFILES[name], 1.7
    squares = np.array([0.02, 0.9, 4.0, 30.0])
    reference = sp.lambdify((DISTANCE, ELL), expression, [{"lgamma": mpmath.loggamma}, "mpmath"])

    def values(squares: jax.Array, ell: float) -> jax.Array:
        return profile(expression, {"ell": jnp.asarray(ell)}, squares, None)

    with jax.enable_x64(True):
        found, by_squares = jit(jax.vmap(jax.value_and_grad(values), (0, None)))(jnp.asarray(squares), ell)
        by_ell = jit(jax.jacfwd(values, 1))(jnp.asarray(squares), ell)
    with mpmath.workdps(40):
        for i, s in enumerate(squares):
            at = lambda s, ell: reference(mpmath.sqrt(s), ell)  # noqa: E731
            assert float(found[i]) == pytest.approx(float(at(s, ell)), rel=1e-12)
            assert float(by_squares[i]) == pytest.approx(float(mpmath.diff(lambda x: at(x, ell), s)), rel=1e-10)  # noqa: B023
            assert float(by_ell[i]) == pytest.approx(float(mpmath.diff(lambda x: at(s, x), ell)), rel=1e-10)  # noqa: B023


@pytest.mark.parametrize(
    ("name", "slope"),
    [("even powers", -0.5), ("a root, derivative known", -1.5), ("a root, derivative at zero too", -1 / 6)],
)
def test_slopes_where_points_meet(name: str, slope: float) -> None:
    """k = 1 + slope s + ... in s = r^2 at ell = 1."""
    with jax.enable_x64(True):
        values = lambda s: profile(PROFILES[name], {"ell": jnp.asarray(1.0)}, s, None)  # noqa: E731
        found, change = jax.value_and_grad(values)(jnp.asarray(0.0))
    assert (float(found), float(change)) == pytest.approx((1.0, slope), rel=1e-12)


def test_every_way_is_taken() -> None:
    assert [in_squares(each) is not None for each in PROFILES.values()] == [True, False, False, False, False]
    assert [derivative(each) is None for each in PROFILES.values()] == [False, False, False, False, True]
