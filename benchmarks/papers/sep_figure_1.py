"""SEP figure 1: hyperparameters after EP has converged (outer) or after every sweep (inner), by two gradients.

`python benchmarks/papers/sep_figure_1.py [--record]`. The approximate gradient is the paper's eq. 4, which takes the
moments of all tilted distributions for those of q; the exact one differentiates log Z_q at the sites as they are.
Probit, 150 rows of banana, all of them inducing points (FITC is then the full process; the paper has 300 for the Pima
data, which are not at hand). Parallel sweeps, damped by a half, Adam with steps of 0.05; written for this figure.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.scipy.stats import norm  # noqa: E402
from recorded import record  # noqa: E402
from report import find_data, show  # noqa: E402

ROWS, SWEEPS, SETTLED = 150, (10, 25, 50, 100, 250, 500), 1e-4


def parts(log_numbers: jax.Array, sites: jax.Array, squares: jax.Array, y: jax.Array) -> tuple:
    """log Z_q as that of the Gaussians and that of the tilted distributions, and the sites a sweep would set."""
    precision, linear = sites
    variance, ell = jnp.exp(log_numbers)
    kernel = variance * jnp.exp(-0.5 * squares / ell**2) + 1e-6 * jnp.eye(len(y))
    root = jnp.sqrt(precision)
    factor = jnp.linalg.cholesky(jnp.eye(len(y)) + root[:, None] * kernel * root)
    half = jax.scipy.linalg.solve_triangular(factor, root[:, None] * kernel, lower=True)
    covariance = kernel - half.T @ half
    mean, spread = covariance @ linear, jnp.diag(covariance)
    gaussian = 0.5 * linear @ mean - jnp.sum(jnp.log(jnp.diag(factor)))
    width = 1 / (1 / spread - precision)
    centre = width * (mean / spread - linear)
    z = y * centre / jnp.sqrt(1 + width)
    of_cavity = 0.5 * centre**2 / width + 0.5 * jnp.log(width)
    tilted = jnp.sum(norm.logcdf(z) + of_cavity - 0.5 * mean**2 / spread - 0.5 * jnp.log(spread))
    ratio = jnp.exp(norm.logpdf(z) - norm.logcdf(z))
    new_mean = centre + width * y * ratio / jnp.sqrt(1 + width)
    new_spread = width - width**2 * ratio * (z + ratio) / (1 + width)
    found = jnp.stack([1 / new_spread - 1 / width, new_mean / new_spread - centre / width])
    return gaussian, tilted, found


def climbed(squares: jax.Array, y: jax.Array, *, inner: bool, exact: bool) -> tuple[list[float], int]:
    """log Z_q after so many sweeps, with sites settled under the numbers there are, and the steps made in all."""

    def value(numbers: jax.Array, sites: jax.Array) -> jax.Array:
        gaussian, tilted, _ = parts(numbers, sites, squares, y)
        return gaussian + tilted if exact else gaussian

    slope = jax.jit(jax.grad(value))
    sweep = jax.jit(lambda numbers, sites: 0.5 * sites + 0.5 * parts(numbers, sites, squares, y)[2])
    evidence = jax.jit(lambda numbers, sites: sum(parts(numbers, sites, squares, y)[:2]))
    adam, numbers, sites = optax.adam(0.05), jnp.zeros(2), jnp.stack([jnp.full(len(y), 0.1), jnp.zeros(len(y))])
    state, steps, found = adam.init(numbers), 0, []
    for number in range(1, SWEEPS[-1] + 1):
        new = sweep(numbers, sites)
        settled, sites = float(jnp.abs(new - sites).max()) < SETTLED, new
        if inner or settled:
            change, state = adam.update(-slope(numbers, sites), state)
            numbers, steps = numbers + change, steps + 1
        if number in SWEEPS:
            at = sites
            for _ in range(100):
                at = sweep(numbers, at)
            found.append(float(evidence(numbers, at)))
    return found, steps


def main() -> None:
    """Print, and with --record keep, log Z_q by sweeps."""
    paths = find_data("banana.csv")
    if paths is None:
        return
    jax.config.update("jax_enable_x64", True)
    table = np.genfromtxt(paths[0], delimiter=",", skip_header=1)[:ROWS]
    x, y = table[:, :2], jnp.asarray(np.where(table[:, 2] > 0, 1.0, -1.0))
    squares = jnp.asarray(((x[:, None] - x[None, :]) ** 2).sum(axis=-1))
    rows = []
    for inner in (False, True):
        for exact in (True, False):
            values, steps = climbed(squares, y, inner=inner, exact=exact)
            row: dict[str, object] = {
                "updates": "inner" if inner else "outer",
                "gradient": "exact" if exact else "eq. 4",
            }
            row |= {f"after {n} sweeps": f"{value:.3f}" for n, value in zip(SWEEPS, values, strict=True)}
            row["steps"] = steps
            rows.append(list(row.values()))
            if "--record" in sys.argv:
                record("sep_figure_1", ["updates", "gradient"], row)
    show("SEP figure 1: log Z_q, sites settled", list(row), rows)


if __name__ == "__main__":
    main()
