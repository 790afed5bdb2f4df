"""British coal-mining disasters: a log Gaussian Cox process fitted to the yearly counts, drawn with its 90% band."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import gpdsl

DATA = Path(__file__).parent / "data" / "coal_mining_disasters.csv"
PICTURE = Path("coal_mining_intensity.png")
COLUMNS = {"x": "year", "n": "disasters"}  # the model's names, and the columns of the file that hold them


def draw(prediction: gpdsl.Prediction, grid: np.ndarray, years: np.ndarray, counts: np.ndarray) -> Figure:
    """The expected count per year with its 90% band, over the counts."""
    low, high = prediction.quantile("intensity", [0.05, 0.95])
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(years, counts, "o", ms=4, color="0.35", mec="none", alpha=0.7, label="disasters in the year")
    axes.fill_between(grid, low, high, color="tab:blue", alpha=0.25, lw=0, label="90% band of the intensity")
    axes.plot(grid, prediction.mean("intensity"), color="tab:blue", lw=2, label="intensity (posterior mean)")
    axes.set(xlabel="year", ylabel="disasters per year", xlim=(years[0] - 1, years[-1] + 1), ylim=(-0.15, None))
    axes.set_title("British coal-mining disasters, 1851 to 1961: log Gaussian Cox process")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    with DATA.open(encoding="utf-8") as lines:
        years, counts = np.array([[int(r["year"]), int(r["disasters"])] for r in csv.DictReader(lines)]).T

    model = gpdsl.zoo("coal_mining")
    print(model.explain(DATA, columns=COLUMNS), end="\n\n")
    fit = model.fit(DATA, columns=COLUMNS, seed=0, progress=True)
    print(fit.summary())

    grid = np.linspace(years[0], years[-1], 441)  # a point per quarter year
    prediction = fit.predict({"x": grid}, columns={})
    mean, (low, high) = prediction.mean("intensity"), prediction.quantile("intensity", [0.05, 0.95])
    print("\nexpected disasters in the year")
    for i in np.searchsorted(grid, [1855, 1875, 1890, 1905, 1930, 1955]):
        print(f"  {grid[i]:.0f}  {mean[i]:.2f}  (90% band {low[i]:.2f} to {high[i]:.2f})")

    draw(prediction, grid, years, counts).savefig(PICTURE, dpi=150)
    print(f"\nintensity with its 90% band: {PICTURE.resolve()}")


if __name__ == "__main__":
    main()
