"""SAVIGP Theorem 3: the variance of score-function gradients under a diagonal and under a full Gaussian posterior.

`python benchmarks/papers/gradient_variance.py [--record]`. The theorem compares the score of all latents times the log
likelihood of all rows with the score of one row's latent times that row's log likelihood, which is its expectation
given that latent where q makes the latents independent. Here: Poisson counts (coal mining, 112 years), Matern 5/2,
dense; q is the optimum of either family, and the diagonal one also at the full one's variances. Variances of one draw,
gradients in the means and variances in units of the posterior sd, averages over rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import numpy as np  # noqa: E402
from recorded import record  # noqa: E402
from report import ROOT, show  # noqa: E402

from gpdsl.inference.expected_log_likelihood import score_gradients  # noqa: E402

DRAWS, LEVEL, ELL = 4_000, 0.5, 20.0


def optimum(kernel: np.ndarray, counts: np.ndarray, *, diagonal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the Gaussian that maximises the bound: S^-1 = K^-1 + diag(rate), m = K (counts - rate)."""
    precision = np.linalg.inv(kernel)
    mean, covariance = np.zeros(len(counts)), np.eye(len(counts)) * 0.1
    for _ in range(500):
        rate = np.exp(LEVEL + mean + np.diag(covariance) / 2)
        wanted = np.diag(1 / (np.diag(precision) + rate)) if diagonal else np.linalg.inv(precision + np.diag(rate))
        covariance = 0.5 * covariance + 0.5 * wanted
        mean = mean + 0.5 * np.linalg.solve(precision + np.diag(rate), counts - rate - precision @ mean)
    assert np.abs(counts - rate - precision @ mean).max() < 1e-6
    return mean, covariance


def variances(mean: np.ndarray, covariance: np.ndarray, counts: np.ndarray, how: str) -> tuple[float, float]:
    """Variance of one draw of the gradient in the means, and in the marginal variances, at unit posterior sd."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((DRAWS, len(mean)))
    root, sd = np.linalg.cholesky(covariance), np.sqrt(np.diag(covariance))
    f = mean + z @ root.T
    rows = counts * (LEVEL + f) - np.exp(LEVEL + f)
    own = (f - mean) / sd
    if how == "one row":
        first, second = own * rows, 0.5 * (own**2 - 1) * rows
    elif how == "all rows":
        score = (f - mean) @ np.linalg.inv(covariance)
        curvature = 0.5 * (score**2 - np.diag(np.linalg.inv(covariance)))
        every = rows.sum(axis=1, keepdims=True)
        first, second = score * sd * every, curvature * sd**2 * every
    else:  # sets of 100 draws, with the package's control variate
        sets = (100, DRAWS // 100)
        values, normals = rows.reshape(*sets, -1), own.reshape(*sets, -1)[..., None]
        at = np.broadcast_to((sd**2)[:, None], (sets[1], len(sd), 1))
        found = [np.asarray(each)[..., 0] for each in score_gradients(values, normals, at, how)]
        first, second = 10 * found[0] * sd, 10 * found[1] * sd**2
    return float(first.var(axis=0).mean()), float(second.var(axis=0).mean())


def main() -> None:
    """Print, and with --record keep, the variance of each estimator."""
    table = np.genfromtxt(ROOT / "examples" / "data" / "coal_mining_disasters.csv", delimiter=",", names=True)
    year, counts = (np.asarray(table[name], float) for name in table.dtype.names[:2])
    r = np.sqrt(5) * np.abs(year[:, None] - year[None, :]) / ELL
    kernel = (1 + r + r**2 / 3) * np.exp(-r)
    full = optimum(kernel, counts, diagonal=False)
    posteriors = {
        "full": full,
        "diagonal, variances of the full one": (full[0], np.diag(np.diag(full[1]))),
        "diagonal, its optimum": optimum(kernel, counts, diagonal=True),
    }
    rows = []
    for name, (mean, covariance) in posteriors.items():
        for how in ("all rows", "one row", "constant", "regression"):
            first, second = variances(mean, covariance, counts, how)
            said = how if "row" in how else f"one row, control variate `{how}`"
            row = {
                "q": name,
                "log likelihood of": said,
                "mean sd of q": float(np.sqrt(np.diag(covariance)).mean()),
                "variance, means": first,
                "variance, variances": second,
            }
            rows.append(list(row.values()))
            if "--record" in sys.argv:
                record("savigp_theorem_3", ["q", "log likelihood of"], row)
    show("SAVIGP Theorem 3", list(row), rows)


if __name__ == "__main__":
    main()
