"""Parameters integrated over, against 10,000 reference draws of posteriordb (Magnusson et al. 2025) for each posterior.

`gp_pois_regr`, `gp_regr` (whose `sigma` is a variance) and `eight_schools_noncentered`, with the means and root mean
squares that posteriordb gives, or the standard deviations of the same posteriors in Stan's statistical computation
benchmarks; of `gp_regr`, whose three parameters a grid can hold, those of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import gpdsl

X = np.arange(-10.0, 11.0, 2.0)
Y = np.array([4.75906, 1.59423, 2.99548, 5.27501, 1.66472, 2.24347, 2.8914, 4.08681, 4.60588, 0.802364, 3.92136])
K = np.array([40, 37, 29, 12, 4, 3, 9, 19, 77, 82, 33])
PROCESS = """
input x : real
param rho : positive ~ Gamma(25, 4)
param alpha : positive ~ HalfNormal(2)
latent f(x) ~ GP(0, alpha^2 * RBF(rho))
"""
POISSON = PROCESS + "output k : count\nk ~ Poisson(exp(f))"
NORMAL = PROCESS + "output y : real\nparam sigma : positive ~ HalfNormal(1)\ny ~ Normal(f, sqrt(sigma))"
SCHOOLS = """
index s in 1..S
input school : label[s]
input se : positive
output y : real
param mu : real ~ Normal(0, 5)
param tau : positive ~ HalfCauchy(5)
param effect[s] : real ~ Normal(mu, tau)
y ~ Normal(effect[school], se)
"""

POISSON_MEAN = [5.66653, 2.92134, 3.63574, 3.68861, 3.25467, 2.40917, 1.56153, 1.29526, 1.93120, 3.17961, 4.25292]
POISSON_MEAN += [4.41510, 3.50682]
POISSON_SD = [0.67644, 0.78642, 0.15480, 0.12724, 0.14248, 0.19445, 0.24534, 0.26498, 0.22342, 0.14350, 0.096164]
POISSON_SD += [0.092732, 0.16253]
NORMAL_MEAN, NORMAL_SD = np.array([6.893478, 2.438089, 1.831693]), np.array([1.289615, 0.790061, 0.500172])
"""By quadrature: posteriordb's draws have 6.874, 2.442, 1.829 and 1.266, 0.782, 0.505, up to 2.5 errors away."""

SCHOOLS_MEAN = [4.41052, 3.60206, 6.15050, 4.93958, 3.90591, 4.79602, 3.61444, 4.05115, 6.31717, 4.88400]
SCHOOLS_SD = [3.3150, 3.2256, 5.5994, 4.6807, 5.2601, 4.7823, 4.6533, 4.8295, 5.0765, 5.2879]

CASES: dict[str, tuple[str, dict[str, Any], str | None, Any, Any]] = {
    "gp_pois_regr": (POISSON, {"x": X, "k": K}, "f", POISSON_MEAN, POISSON_SD),
    "gp_regr": (NORMAL, {"x": X, "y": Y}, None, NORMAL_MEAN, NORMAL_SD),
    "eight_schools": (
        SCHOOLS,
        {
            "school": list("ABCDEFGH"),
            "se": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
            "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
        },
        "effect",
        SCHOOLS_MEAN,
        SCHOOLS_SD,
    ),
}


def moments(fit: gpdsl.Fit, data: Mapping[str, Any], latent: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the parameters, and of a latent or the effects."""
    settings = fit.settings
    assert settings is not None
    means, sds = ([float(of(each)) for each in fit.parameters] for of in (settings.mean, settings.sd))
    if latent is not None:
        prediction = fit.predict(data)
        means += list(prediction.mean(latent))
        sds += list(np.sqrt(prediction.variance(latent)))
    return np.asarray(means), np.asarray(sds)


def test_moments_of_three_parameters_are_those_of_a_grid() -> None:
    """Of logarithms, on which sums of smooth densities are exact: 36 and 70 points agree to five digits."""
    rho, alpha, sigma = (np.geomspace(*ends, 36) for ends in ((2.5, 16), (0.02, 9.5), (0.15, 6)))
    log = np.empty((36, 36, 36))
    for at, scale in enumerate(rho):
        values, vectors = np.linalg.eigh(np.exp(-0.5 * ((X[:, None] - X) / scale) ** 2))
        variances = alpha[:, None, None] ** 2 * np.maximum(values, 0) + sigma[:, None]
        log[at] = -0.5 * np.sum((vectors.T @ Y) ** 2 / variances + np.log(variances), axis=-1)
        log[at] += 25 * np.log(scale) - 4 * scale + (np.log(alpha) - alpha**2 / 8)[:, None]
        log[at] += np.log(sigma) - sigma**2 / 2
    share = np.exp(log - log.max())
    share /= share.sum()
    for axis, values in enumerate((rho, alpha, sigma)):
        own = share.sum(axis=tuple({0, 1, 2} - {axis}))
        mean = own @ values
        assert mean == pytest.approx(NORMAL_MEAN[axis], rel=1e-5)
        assert np.sqrt(own @ (values - mean) ** 2) == pytest.approx(NORMAL_SD[axis], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_integrated_fits_have_the_moments_of_stan(name: str) -> None:
    text, data, latent, mean, sd = CASES[name]
    fit = gpdsl.compile(text).fit(data, hyperparameters="integrated")
    means, sds = moments(fit, data, latent)
    np.testing.assert_array_less(np.abs(means - np.asarray(mean)) / np.asarray(sd), 0.06)
    np.testing.assert_allclose(sds, sd, rtol=0.05)
