"""Stiffness and damping of an oscillator along a beam, from an ODE solver that can only be called.

At 24 places a mass on a spring is pulled out by one unit and let go; its displacement is measured at three times. The
logarithms of stiffness and damping are Gaussian processes along the beam, and the noise is learnt. SciPy's `solve_ivp`
is the forward model. A number as argument fits again from so many seeds, to show that all of them end in one place.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.integrate import solve_ivp

import gpdsl

TIMES = np.array([0.5, 1.5, 3.0])
NOISE = 0.03
MODEL = """
model oscillator "A damped oscillator, integrated by a solver"
index  time in 1..3
input  place : real
output shift[time] : real
param  noise : positive = 1
external displacement(stiffness: real, damping: real) -> real[3]
latent stiffness(place) ~ GP(1, RBF(1))
latent damping(place) ~ GP(-1, RBF(1))
let d = displacement(exp(stiffness), exp(damping))
shift[time] ~ Normal(d[time], noise)
"""


def displacement(stiffness: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Displacements at the three times [rows, 3], of all rows as one system of equations."""
    rows = len(stiffness)

    def motion(_: float, state: np.ndarray) -> np.ndarray:
        x, v = state[:rows], state[rows:]
        return np.concatenate([v, -stiffness * x - damping * v])

    start = np.concatenate([np.ones(rows), np.zeros(rows)])
    solved = solve_ivp(motion, (0.0, TIMES[-1]), start, "DOP853", TIMES, rtol=1e-7, atol=1e-9)
    return solved.y[:rows]


def simulate(rows: int = 24, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Noisy displacements, and the true logarithms of stiffness and damping."""
    rng = np.random.default_rng(seed)
    place = np.linspace(0, 4, rows)
    truth = {"stiffness": 1 + 0.5 * np.sin(1.5 * place), "damping": -1 + 0.5 * np.cos(place)}
    clean = displacement(np.exp(truth["stiffness"]), np.exp(truth["damping"]))
    return {"place": place, "shift": clean + NOISE * rng.standard_normal(clean.shape)}, truth


def main() -> None:
    data, truth = simulate()
    model = gpdsl.compile(MODEL, externals={"displacement": displacement})
    fit = model.fit(data, seed=0)
    print(fit.summary())
    prediction = fit.predict(data)
    for name, true in truth.items():
        inside = np.abs(prediction.mean(name) - true) < 2 * np.sqrt(prediction.variance(name))
        print(f"{name}: {np.mean(inside):.0%} of the truth within two standard deviations")
    print(f"noise: {float(fit.parameters['noise']):.3f}, simulated with {NOISE}")
    if len(sys.argv) > 1:
        fits = [fit, *(model.fit(data, seed=seed) for seed in range(1, int(sys.argv[1])))]
        bounds, calls = [each.elbo for each in fits], [each.usage.evaluations for each in fits]
        print(
            f"{len(fits)} seeds: bounds from {min(bounds):.2f} to {max(bounds):.2f}, at most {max(calls)} evaluations"
        )


if __name__ == "__main__":
    main()
