"""A map of slowness from first-arrival times, through an eikonal solver that can only be called.

Sources in one borehole, receivers in another and at the surface. The logarithm of slowness is a Gaussian process on a
grid; one call of the solver gives all times through one map. On this grid the solver is up to 1% off, and the model
says so: the data come from one eight times as fine. Needs `pip install gpdsl[tomography,plot]`. A folder as argument
is where the figure goes; numbers of sources and receivers may follow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import skfmm
from scipy.interpolate import RegularGridInterpolator

import gpdsl

SIZE, NODES, NOISE = (4.0, 2.0), (25, 13), 0.004  # km, nodes of the map, s


def travel_time(slowness: np.ndarray, source: np.ndarray, receiver: np.ndarray) -> np.ndarray:
    """What the model calls: one map [nodes] or [x, z], sources and receivers [rows, 2]; first arrivals [rows], s."""
    slowness = slowness.reshape(NODES) if slowness.ndim == 1 else slowness
    axes = [np.linspace(0, length, count) for length, count in zip(SIZE, slowness.shape, strict=True)]
    places, step = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), float(axes[0][1])
    times = np.empty(len(source))
    for shot in np.unique(source, axis=0):
        distance, rows = np.linalg.norm(places - shot, axis=-1), (source == shot).all(axis=1)
        near = 1.5 * step  # a small circle around the source, crossed at the slowness there
        arrival = skfmm.travel_time(distance - near, 1.0 / slowness, dx=step, order=2)
        arrival += near * slowness[np.unravel_index(distance.argmin(), distance.shape)]
        times[rows] = RegularGridInterpolator(axes, np.asarray(arrival))(receiver[rows])
    return times


def truth(refined: int) -> np.ndarray:
    """Layers with a slow lens and a fast intrusion, s/km, on a grid so many times as fine."""
    axes = [np.linspace(0, length, refined * (count - 1) + 1) for length, count in zip(SIZE, NODES, strict=True)]
    x, z = np.meshgrid(*axes, indexing="ij")
    slow = 0.08 * np.exp(-(((x - 1.2) / 0.6) ** 2) - ((z - 0.7) / 0.35) ** 2)
    return 0.44 - 0.04 * z + slow - 0.09 * np.exp(-(((x - 2.8) / 0.6) ** 2) - ((z - 1.3) / 0.4) ** 2)


def survey(shots: int, receivers: int) -> dict[str, np.ndarray]:
    """Every pair of a source at x = 0 and a receiver at x = 4 km or at the surface, with noisy times."""
    along, across = np.linspace(0.5, 3.5, receivers), np.linspace(0.1, 1.9, receivers)
    sources = np.stack([np.zeros(shots), np.linspace(0.1, 1.9, shots)], axis=1)
    ends = np.concatenate([np.stack([along, 0 * along], axis=1), np.stack([4 + 0 * across, across], axis=1)])
    data = {"source": np.repeat(sources, len(ends), axis=0), "receiver": np.tile(ends, (shots, 1))}
    exact = travel_time(truth(8), data["source"], data["receiver"])
    return data | {"t": exact + NOISE * np.random.default_rng(0).standard_normal(len(exact))}


def figure(maps: dict[str, np.ndarray], data: dict[str, np.ndarray], path: Path) -> None:
    """The true map, the posterior mean and the standard deviation, with sources and receivers."""
    import matplotlib.pyplot as plt

    axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained")[1]
    for axis, (name, values) in zip(axes, maps.items(), strict=True):
        low, high = (None, None) if name == "standard deviation" else (maps["truth"].min(), maps["truth"].max())
        image = axis.imshow(values.reshape(NODES).T, extent=(0, 4, 2, 0), vmin=low, vmax=high)
        plt.colorbar(image, ax=axis, label="s/km", shrink=0.8)
        axis.plot(*data["source"].T, "r*", *data["receiver"].T, "wv", markeredgecolor="k", clip_on=False)
        axis.set(title=f"slowness: {name}", xlabel="km", ylabel="depth, km")
    plt.savefig(path, dpi=150)


def main(folder: str | None = None, shots: int = 8, receivers: int = 10) -> None:
    data = survey(shots, receivers)
    model = gpdsl.load(Path(__file__).with_suffix(".gpm"), externals={"travel_time": travel_time})
    fit = model.fit(data, evaluations=2000)
    print(fit.summary())

    prediction = fit.predict(data)
    mean, sd = prediction.mean("slowness"), np.sqrt(prediction.variance("slowness"))
    error = mean - truth(1).ravel()
    print(f"slowness, s/km: error {np.sqrt(np.mean(error**2)):.4f}, said to be {np.sqrt(np.mean(sd**2)):.4f}")
    print(f"within two standard deviations: {np.mean(np.abs(error) < 2 * sd):.0%}")
    if folder is not None:
        maps = {"truth": truth(1), "posterior mean": mean, "standard deviation": sd}
        figure(maps, data, Path(folder) / "first_arrival_tomography.png")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
