"""Layer depths and velocities from reflection times, with a forward model that is only a NumPy function.

The data are simulated: depths and velocities drawn from the prior, their travel times, and measurement noise.
"""

from __future__ import annotations

import numpy as np

import gpdsl

DEPTH = np.array([200.0, 500.0, 1600.0, 2200.0])  # prior means of the model, m
VELOCITY = np.array([1950.0, 2300.0, 2750.0, 3650.0])  # m/s
NOISE = np.array([0.025, 0.05, 0.075, 0.1])  # s


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Two-way time to each layer [rows, 4]: the time to the layer above, then twice through this one."""
    thickness = np.diff(depth, axis=1, prepend=0.0)
    return np.cumsum(2 * thickness / velocity, axis=1)


def simulate(s: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True depths, true velocities and noisy times [sensors, 4]."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.exp(-0.5 * (s[:, None] - s[None, :]) ** 2) + 1e-8 * np.eye(s.size))
    depth = DEPTH * (1 + 0.15 * root @ rng.standard_normal((s.size, 4)))
    velocity = VELOCITY * (1 + 0.10 * root @ rng.standard_normal((s.size, 4)))
    return depth, velocity, travel_time(depth, velocity) + NOISE * rng.standard_normal((s.size, 4))


def main() -> None:
    s = np.linspace(-1.7, 1.7, 40)
    depth, velocity, times = simulate(s, seed=0)
    gpdsl.register_forward_model("travel_time", travel_time)

    fit = gpdsl.zoo("seismic_external").fit({"s": s, "t": times}, seed=0, progress=True)
    print(fit.summary())

    prediction = fit.predict({"s": s})
    print(
        "\nroot mean squared errors over the sensors: posterior mean against truth, and the prior mean for comparison"
    )
    truths = {"tau": travel_time(depth, velocity), "depth": depth, "velocity": velocity}
    priors = {"tau": travel_time(DEPTH[None], VELOCITY[None]), "depth": DEPTH, "velocity": VELOCITY}
    for name, truth in truths.items():
        error = np.sqrt(np.mean((prediction.mean(name) - truth) ** 2, axis=0))
        before = np.sqrt(np.mean((priors[name] - truth) ** 2, axis=0))
        print(f"  {name:<9}", "   ".join(f"{e:.3g} ({b:.3g})" for e, b in zip(error, before, strict=True)))

    # The times determine only how depth and velocity hang together; this posterior holds them to be independent.
    sd = np.sqrt(prediction.variance("depth"))
    print(f"truths of depth within two posterior sds: {np.mean(np.abs(prediction.mean('depth') - depth) < 2 * sd):.0%}")


if __name__ == "__main__":
    main()
