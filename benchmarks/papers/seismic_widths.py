"""SAVIGP section 9.8: is the factorised posterior of the seismic survey too wide, as the paper says, or too narrow?

`python benchmarks/papers/seismic_widths.py [--record]`. Travel times are nearly linear in depths and velocities over
the width of the posterior. With them linearised at its mean the posterior is Gaussian, with precision P = K^-1 + J'
R^-1 J, and the factorised Gaussian with the highest bound has for latent j the covariance (P_jj)^-1, the inverse of a
block of P, which is never wider than the block of P^-1. Dense NumPy; the fits are beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import numpy as np  # noqa: E402
from recorded import record  # noqa: E402
from report import find_data, show  # noqa: E402

import gpdsl  # noqa: E402

DEPTHS, VELOCITIES = np.array([200.0, 500, 1600, 2200]), np.array([1950.0, 2300, 2750, 3650])
PRIOR_SDS = np.concatenate([0.15 * DEPTHS, 0.10 * VELOCITIES])
NOISE = np.array([0.025, 0.05, 0.075, 0.1])


def slopes(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """d time_p / d (depths, velocities) of eq. 43 [rows, 4, 8]: each time follows from the one observed above."""
    rows = len(depth)
    found = np.zeros((rows, 4, 8))
    above = np.concatenate([np.zeros((rows, 1)), depth[:, :3]], axis=1)
    for p in range(4):
        found[:, p, p] = 2 / velocity[:, p]
        found[:, p, 4 + p] = -2 * (depth[:, p] - above[:, p]) / velocity[:, p] ** 2
        if p:
            found[:, p, p - 1] = -2 / velocity[:, p]
    return found


def linearised(x: np.ndarray, depth: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations [8, rows] of the posterior, and of the factorised Gaussian that is closest to it."""
    rows = len(x)
    kernel = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2) + 1e-8 * np.eye(rows)
    root = np.linalg.cholesky(kernel)
    jacobian = np.zeros((4, rows, 8, rows))
    jacobian[:, np.arange(rows), :, np.arange(rows)] = slopes(depth, velocity) / NOISE[:, None]
    # In coordinates w with f = sd * root w the prior is standard, and nothing is nearly singular.
    white = np.einsum("pnjm,mk->pnjk", jacobian * PRIOR_SDS[:, None], root).reshape(4 * rows, 8 * rows)
    precision = np.eye(8 * rows) + white.T @ white
    whole = np.linalg.inv(precision).reshape(8, rows, 8, rows)
    blocks = precision.reshape(8, rows, 8, rows)
    joint = [np.sqrt(np.diag(root @ whole[j, :, j] @ root.T)) for j in range(8)]
    alone = [np.sqrt(np.diag(root @ np.linalg.inv(blocks[j, :, j]) @ root.T)) for j in range(8)]
    return PRIOR_SDS[:, None] * np.array(joint), PRIOR_SDS[:, None] * np.array(alone)


def main() -> None:
    """Print, and with --record keep, the widths of each latent."""
    paths = find_data("seismic_otway.csv")
    if paths is None:
        return
    table = np.genfromtxt(paths[0], delimiter=",", names=True)
    x = (table["position"] - table["position"].mean()) / table["position"].std()
    data = {"s": x, **{f"t{p}": table[f"t{p}"] for p in range(1, 5)}}
    model = gpdsl.zoo("seismic_increments")
    fits = {name: model.fit(data, posterior=name, seed=0).predict(data) for name in ("coupled", "full")}
    widths = {
        name: np.sqrt(np.concatenate([found.variance(latent) for latent in ("depth", "velocity")], axis=1)).T
        for name, found in fits.items()
    }
    means = [fits["coupled"].mean(latent) for latent in ("depth", "velocity")]
    joint, alone = linearised(x, *means)
    rows = []
    for j in range(8):
        name = f"{'depth' if j < 4 else 'velocity'} {j % 4 + 1}"
        measured = float(np.mean(widths["full"][j] / widths["coupled"][j]))
        row = {
            "latent": name,
            "prior sd": float(PRIOR_SDS[j]),
            "posterior sd (coupled)": float(widths["coupled"][j].mean()),
            "the same, linearised": float(joint[j].mean()),
            "factorised / posterior, measured": measured,
            "the same, linearised: a block of the precision": float(np.mean(alone[j] / joint[j])),
        }
        rows.append(list(row.values()))
        if "--record" in sys.argv:
            record("seismic_widths", ["latent"], row)
    show("SAVIGP 9.8: widths of the factorised posterior", list(row), rows)


if __name__ == "__main__":
    main()
