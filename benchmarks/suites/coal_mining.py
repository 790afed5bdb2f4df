"""Coal-mining disasters in 811 bins of 50 days: the `full` posterior against NUTS, and how much faster it is."""

from __future__ import annotations

import numpy as np
from peers import nuts
from report import CONSOLE, find_data, show, verdict
from timing import Timed, timed

import gpdsl

OFFSET, LENGTHSCALE = float(np.log(191 / 811)), 2000.0
REPEATS = 5
LONG, SHORT, REDUCED = "4 x (1000 + 2500)", "4 x (500 + 500)", "4 x (500 + 500), reduced root"


def run() -> None:
    """NUTS, then both ways of computing the expectations; everything but f is fixed."""
    paths = find_data("coal_mining.csv")
    if paths is None:
        return
    counts = np.loadtxt(paths[0], delimiter=",", skiprows=1)[:, 1]
    grid = 25.5 + 50.0 * np.arange(len(counts))
    covariance = np.exp(-0.5 * ((grid[:, None] - grid[None, :]) / LENGTHSCALE) ** 2)
    whole, reduced = nuts.cholesky_root(covariance), nuts.reduced_root(covariance)
    runs = {
        LONG: nuts.sample(whole, counts, OFFSET, warm_up=1000, draws=2500),
        SHORT: nuts.sample(whole, counts, OFFSET, warm_up=500, draws=500),
        REDUCED: nuts.sample(reduced, counts, OFFSET, warm_up=500, draws=500),
    }
    _show_nuts(runs)
    fits = {name: _fit({"x": grid, "n": counts}, name) for name in ("auto", "sampled")}
    _show_fits(fits, runs[LONG], grid)
    closed, sampled = (t.running for t in fits.values())
    rows = [(name, d.seconds, d.seconds / closed, d.seconds / sampled) for name, d in runs.items()]
    columns = ["NUTS", "seconds", "times closed form", "times sampled"]
    show("coal_mining: how many times faster `full` is, compilation excluded on both sides", columns, rows)
    for name in (LONG, SHORT):
        verdict(f"faster than NUTS {name}, times", runs[name].seconds / closed, 100, least=True)


def _fit(data: dict[str, np.ndarray], expectations: str) -> Timed:
    """The quickest of several whole calls, from arrays to a Fit."""
    model, init = gpdsl.zoo("coal_mining"), {"m": OFFSET, "ell": LENGTHSCALE, "s2": 1.0}
    calls = [
        timed(lambda: model.fit(data, seed=0, init=init, fixed=list(init), expectations=expectations))
        for _ in range(REPEATS)
    ]
    return min(calls, key=lambda t: t.running)


def _show_nuts(runs: dict[str, nuts.Draws]) -> None:
    rows = [
        (
            n,
            d.seconds,
            d.compile_seconds,
            d.gradients,
            f"{d.rhat:.4f}",
            d.least_ess,
            1 / np.sqrt(2 * d.least_ess),
            d.divergences,
        )
        for n, d in runs.items()
    ]
    columns = [
        "NUTS, chains x (warm-up + draws)",
        "seconds",
        "compiling",
        "gradients",
        "R-hat",
        "least ESS",
        "error of sd",
    ]
    show("coal_mining: NUTS (BlackJAX, whitened)", [*columns, "divergences"], rows, "R-hat and ESS of f, worst bin")
    verdict("R-hat of the long run", runs[LONG].rhat, 1.01)


def _show_fits(fits: dict[str, Timed], gold: nuts.Draws, grid: np.ndarray) -> None:
    rows = []
    for name, call in fits.items():
        fit = call.result
        prediction = fit.predict({"x": grid})
        mean, sd = prediction.mean("f"), np.sqrt(prediction.variance("f"))
        gap, ratio = float(np.max(np.abs(mean - gold.mean) / gold.sd)), sd / gold.sd
        rows.append(
            (
                name,
                f"{fit.elbo:.4f}",
                gap,
                f"{ratio.min():.4f} to {ratio.max():.4f}",
                call.running,
                call.seconds,
                len(fit.inducing[0]),
            )
        )
        verdict(f"{name}: mean against NUTS, in posterior sds", gap, 0.1)
        verdict(f"{name}: sd against NUTS, relative", float(np.max(np.abs(ratio - 1))), 0.05)
    columns = ["expectations", "ELBO", "mean, max |diff| / sd", "sd ratio", "seconds", "with compiling", "rows kept"]
    show("coal_mining: `full` against the long NUTS run, 811 bins", columns, rows)
    first, second = (fit.predict({"x": grid}) for fit in (t.result for t in fits.values()))
    between = np.max(np.abs(first.mean("f") - second.mean("f")) / np.sqrt(first.variance("f")))
    CONSOLE.print(f"closed form against sampled: means differ by at most {between:.4f} posterior sds")
