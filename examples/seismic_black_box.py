"""Layer boundaries and velocities from reflection times, with a travel-time solver that can only be called.

As in SAVIGP section 9.8 and figure 12: four layers under a line of sensors. The depth of every boundary and the speed
in every layer are Gaussian processes along it, seen only through two-way travel times. The data are drawn from the
prior. With a folder as argument the figure is written there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import gpdsl

DEPTH = np.array([200.0, 500.0, 1600.0, 2200.0])  # prior means of the model, m
VELOCITY = np.array([1950.0, 2300.0, 2750.0, 3650.0])  # m/s
NOISE = np.array([0.025, 0.05, 0.075, 0.1])  # s


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Two-way time to each boundary [rows, 4]: down and up through all layers above it."""
    thickness = np.diff(depth, axis=1, prepend=0.0)
    return np.cumsum(2 * thickness / velocity, axis=1)


def simulate(s: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True depths, true velocities and noisy times [sensors, 4]."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.exp(-0.5 * (s[:, None] - s[None, :]) ** 2) + 1e-8 * np.eye(s.size))
    depth = DEPTH * (1 + 0.15 * root @ rng.standard_normal((s.size, 4)))
    velocity = VELOCITY * (1 + 0.10 * root @ rng.standard_normal((s.size, 4)))
    return depth, velocity, travel_time(depth, velocity) + NOISE * rng.standard_normal((s.size, 4))


def figure(prediction: gpdsl.Prediction, s: np.ndarray, truths: dict[str, np.ndarray], path: Path) -> None:
    """Posterior means with bands of two standard deviations, over the truth (dashed)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")[1]
    for axis, (name, unit) in zip(axes, (("depth", "m"), ("velocity", "m/s")), strict=True):
        mean, sd = prediction.mean(name), np.sqrt(prediction.variance(name))
        for layer in range(4):
            line = axis.plot(s, mean[:, layer], label=f"layer {layer + 1}")[0]
            low, high = mean[:, layer] - 2 * sd[:, layer], mean[:, layer] + 2 * sd[:, layer]
            axis.fill_between(s, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
            axis.plot(s, truths[name][:, layer], "--", color=line.get_color())
        axis.set(xlabel="position of the sensor (standardised)", ylabel=f"{name}, {unit}")
    axes[0].invert_yaxis()
    axes[1].legend(fontsize="small")
    plt.savefig(path, dpi=150)
    plt.close()


def main() -> None:
    s = np.linspace(-1.7, 1.7, 40)
    depth, velocity, times = simulate(s, seed=0)
    model = gpdsl.zoo("seismic_external", externals={"travel_time": travel_time})
    fit = model.fit({"s": s, "t": times}, evaluations=200_000)
    print(fit.summary())

    prediction = fit.predict({"s": s})
    truths = {"depth": depth, "velocity": velocity}
    for name, truth in truths.items():
        sd = np.sqrt(prediction.variance(name))
        inside = np.mean(np.abs(prediction.mean(name) - truth) < 2 * sd)
        print(f"{name}: {inside:.0%} of the truth within two standard deviations, which are {sd.mean(axis=0).round(0)}")
    if len(sys.argv) > 1:
        figure(prediction, s, truths, Path(sys.argv[1]) / "seismic_black_box.png")


if __name__ == "__main__":
    main()
