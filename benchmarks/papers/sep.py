"""SEP section 4 and what EP is worth: table 1, the banana of figure 2, odd and even digits of figure 4, and NUTS.

`python benchmarks/papers/sep.py table speed scaling banana digits nuts` (any of them; `--keep FILE` goes on where a
run stopped, `--out FOLDER` takes the pictures). The three methods of the paper are

- SEP: `engine = ep` with a step of Adam after every sweep (inner);
- GFITC: `engine = ep` with L-BFGS on the evidence of settled sites (outer). Its fixed point is that of EP under the
  prior of FITC, as a test shows: that the inducing values are marginalised in the paper changes nothing;
- SVI: `engine = vi`.

Beside them stands power EP with alpha = 0.5.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import sep_scaling  # noqa: E402
from jax.scipy.special import log_ndtr, ndtr  # noqa: E402
from kept import Kept  # noqa: E402
from odd_digits import odd_or_even  # noqa: E402
from peers import nuts  # noqa: E402
from report import CONSOLE, find_data, show  # noqa: E402
from sep_methods import ISOTROPIC, METHODS, classes_of, measured, table_of  # noqa: E402
from sep_table import PROBLEMS, speed, table_1  # noqa: E402

import gpdsl  # noqa: E402


def banana(kept: Kept, folder: Path) -> None:
    """Figure 2: decision boundaries and inducing inputs for m = 4 to 128."""
    files = find_data("banana.csv")
    if files is None:
        return
    table = table_of(files[0])
    order = np.random.default_rng(0).permutation(len(table))
    train, test = classes_of(table[order[:1000]]), classes_of(table[order[1000:]])
    rows, sizes = [], (4, 8, 16, 32, 64, 128)
    fits: dict[tuple[str, int], Any] = {}
    for size in sizes:
        for name, options in METHODS.items():
            asked = {"inducing": size, "learn_inducing": True, **options}

            def run(asked: dict[str, Any] = asked, place: tuple[str, int] = (name, size)) -> list[float]:
                start = time.perf_counter()
                fits[place] = fit = gpdsl.compile(ISOTROPIC.format(ell=1)).fit(train, **asked)
                wrong = np.mean((fit.predict(test).mean("y") > 0.5) != (test["y"] > 0))
                nll = -float(fit.log_predictive_density(test).mean())
                return [nll, float(wrong), fit.elbo, time.perf_counter() - start - fit.compile_seconds]

            rows.append([size, name, *kept.measure(f"banana {size} {name}", run)])
    columns = ("m", "method", "test NLL", "error", "log Z or bound", "seconds")
    show("SEP figure 2, banana, 1000 rows train, 4300 test", columns, rows)
    if len(fits) == len(sizes) * len(METHODS):
        _boundaries(fits, sizes, train, folder / "sep_banana.png")


def _boundaries(fits: dict[tuple[str, int], Any], sizes: tuple[int, ...], train: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    side = np.linspace(-3.2, 3.2, 80)
    grid = np.stack([each.ravel() for each in np.meshgrid(side, side)], axis=1)
    figure, axes = plt.subplots(len(METHODS), len(sizes), figsize=(15, 8), sharex=True, sharey=True)
    for i, name in enumerate(METHODS):
        for j, size in enumerate(sizes):
            fit, panel = fits[name, size], axes[i, j]
            panel.scatter(*train["x"].T, s=2, c=np.where(train["y"] > 0, "#3465a4", "#cc4444"), alpha=0.3)
            level = fit.predict({"x": grid}).mean("y").reshape(80, 80)
            panel.contour(side, side, level, levels=[0.5], colors="black", linewidths=1)
            panel.scatter(*np.asarray(fit.inducing[0].points).T, s=8, c="black")
            panel.set(title=f"{name}, m = {size}", xticks=[], yticks=[], xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    CONSOLE.print(f"wrote {path}")


def digits(kept: Kept) -> None:
    """Figure 4: odd against even digits, all rows and minibatches of 200."""
    digits_at_hand = odd_or_even()
    if digits_at_hand is None:
        return
    train, test = digits_at_hand
    common = {"inducing": 200, "learn_inducing": True, "dtype": "float32"}
    cases = {
        "SEP, minibatches": {"engine": "ep", "power": 1, "batch": 200, "steps": 2000},
        "SEP, minibatches, 200 steps": {"engine": "ep", "power": 1, "batch": 200, "steps": 200},
        "SEP, all rows": {"engine": "ep", "power": 1, "batch": 0, "optimizer": "adam", "steps": 100},
        "SVI, minibatches": {"batch": 200, "steps": 2000},
        "SVI, minibatches, 200 steps": {"batch": 200, "steps": 200},
        "SVI, all rows": {"batch": 0, "steps": 30},
    }
    rows = []
    for name, options in cases.items():
        asked = {**common, **options}
        found = kept.measure(f"digits {name}", lambda a=asked: measured(ISOTROPIC.format(ell=8), train, test, a))
        rows.append([name, found[0], 100 * found[1], *found[2:]])
    columns = ("method", "test NLL", "error, %", "seconds", "whole fit")
    note = "paper, 60000 rows: SVI 2.2 %, 0.0655; SEP 2.7 %, 0.0694 (all rows); here 9000 rows train"
    show("SEP figure 4, odd against even digits, m = 200", columns, rows, note)


def scaling(kept: Kept, folder: Path) -> None:
    """Sweeps and visits against rows, sweeps against devices: figure 3 (right), and beyond it."""
    by_rows = np.asarray(
        [kept.measure(f"rows {rows}", partial(sep_scaling.apart, rows, 1)) for rows in sep_scaling.ROWS]
    )
    shared = sep_scaling.SHARED_ROWS
    by_devices = np.asarray(
        [kept.measure(f"devices {each}", partial(sep_scaling.apart, shared, each)) for each in sep_scaling.DEVICES]
    )
    pairs = [*zip(sep_scaling.ROWS, by_rows, strict=True), *((shared, each) for each in by_devices)]
    devices = [1] * len(by_rows) + list(sep_scaling.DEVICES)
    rows = [[n, k, *each[:4], each[4] / 1e6, each[5]] for (n, each), k in zip(pairs, devices, strict=True)]
    columns = ("rows", "devices", "sweep: s", "processor s", "visit: s", "processor s", "sites, MB", "memory, GiB")
    show("expectation propagation on made-up flight delays, float32", columns, rows)
    sep_scaling.draw(by_rows, by_devices, folder / "ep_scaling.svg")


TESTED = 50
"""New rows at which probabilities are compared."""


def against_nuts(kept: Kept) -> None:
    """Small probit problems at fixed hyperparameters: which Gaussian is closer to NUTS, at rows and at new ones."""
    text = "input x : real[2]\noutput y : binary\nlatent f(x) ~ GP(0, 9 * RBF(0.8))\ny ~ Bernoulli(probit = f)\n"
    rows = []
    for count in (20, 50, 100):
        for seed in range(3):
            rng = np.random.default_rng([count, seed])
            x = rng.normal(size=(count + TESTED, 2))
            y = (np.sin(3 * x[:count, 0]) + x[:count, 1] + 0.3 * rng.normal(size=count) > 0).astype(int)
            label = f"nuts at new rows {count} {seed}"
            known = np.asarray(kept.measure(label, lambda x=x, y=y: _moments(x, y).tolist()))
            probability, mean, sd, error = known[:TESTED], known[TESTED:-1:2], known[TESTED + 1 : -1 : 2], known[-1]
            gaps = []
            for options in ({"engine": "ep"}, {}):
                fit = gpdsl.compile(text).fit({"x": x[:count], "y": y}, inducing=0, **options)
                at_new, at_rows = fit.predict({"x": x[count:]}), fit.predict({"x": x[:count]})
                gaps.append(
                    (
                        float(np.abs(at_new.mean("y") - probability).mean()),
                        float((np.abs(at_rows.mean("f") - mean) / sd).mean()),
                        float((np.sqrt(at_rows.variance("f")) / sd).mean()),
                    )
                )
            (p, m, s), (vi_p, vi_m, vi_s) = gaps
            rows.append([count, seed, p, vi_p, m, vi_m, s, vi_s, float(error)])
    columns = ("rows", "seed", "p: EP", "p: VI", "mean: EP", "mean: VI", "sd: EP", "sd: VI", "NUTS: se of p")
    note = "p: mean distance of probabilities at 50 new rows; mean, sd: of f at the rows, in sds and as ratios"
    show("probit, fixed hyperparameters: EP and variational inference against NUTS", columns, rows, note)


def _moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """p(y = 1) at the new rows, means and sds of f at the others, and the mean standard error of the former."""
    count = len(y)
    covariance = 9.0 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / 0.64)
    root, sign = nuts.cholesky_root(covariance), 2.0 * y - 1.0

    def log_likelihood(v: Any, root: Any, sign: Any) -> Any:
        return jnp.sum(log_ndtr(sign * (root[:count] @ v)))

    def observe(v: Any, root: Any, sign: Any) -> Any:
        f = root @ v
        return jnp.concatenate([ndtr(f[count:]), f[:count]])

    drawn = nuts.draw(log_likelihood, observe, len(x), (root, sign), 1000, 5000)
    assert drawn.rhat < 1.01
    pairs = np.stack([drawn.mean[TESTED:], drawn.sd[TESTED:]], axis=1).ravel()
    error = float((drawn.sd[:TESTED] / np.sqrt(drawn.least_ess)).mean())
    return np.concatenate([drawn.mean[:TESTED], pairs, [error]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["table", "speed", "scaling", "banana", "digits", "nuts"])
    parser.add_argument("--repetitions", type=int, default=5, help="the paper has 20")
    parser.add_argument(
        "--problems", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS), help="of table and speed"
    )
    parser.add_argument("--shares", nargs="*", type=int, choices=(15, 25, 50), default=[15, 25, 50], help="%% inducing")
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path())
    asked = parser.parse_args()
    kept = Kept(asked.keep)
    for name in asked.what:
        match name:
            case "table":
                table_1(kept, asked.repetitions, asked.problems, asked.shares)
            case "speed":
                speed(kept, asked.repetitions, asked.problems)
            case "scaling":
                scaling(kept, asked.out)
            case "banana":
                banana(kept, asked.out)
            case "digits":
                digits(kept)
            case "nuts":
                against_nuts(kept)
            case _:
                parser.error(f"no experiment {name!r}: table, speed, scaling, banana, digits or nuts")


if __name__ == "__main__":
    main()
