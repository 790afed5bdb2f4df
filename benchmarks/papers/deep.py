"""Deep Gaussian processes: layers on four sets of regression, and the tutorial's figure 7, beside published numbers.

`python benchmarks/papers/deep.py layers --sets energy kin8nm --splits 5` and `python benchmarks/papers/deep.py figure7`
(`--keep FILE` goes on where a run stopped, `--record` puts the rows into the tables of RESULTS.md); `figure7 --seeds 0
--picture FILE.png` draws it: data, and draws of each model's outputs at many inputs. Every fit is at default settings
but for what is given: `--steps`, `--inducing`, and in figure 7 its 50 inducing points and 5 replicas.
Inputs and outputs are standardised by the training rows of each split; toy_dgp.csv is taken as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (2, 1, 0)]

import numpy as np  # noqa: E402
from kept import Kept  # noqa: E402
from qsgp_measures import split  # noqa: E402
from recorded import record  # noqa: E402
from report import find_data, show  # noqa: E402

import gpdsl  # noqa: E402

SETS = ("energy", "concrete", "kin8nm", "power")
PUBLISHED = {
    "kin8nm": "0.264, 0.040; of raw y by layers: -0.974, -1.291, -1.304, RMSE 0.087, 0.066, 0.066",
    "power": "-0.009, -0.129",
    "concrete": "0.527, 0.388",
    "energy": "-0.992, -1.090",
}
"""NLPD of standardised y with one layer and with two, means of five splits."""

TOY = "input x : real\noutput y : real\nparam s2 : positive = 1\nparam sigma : positive = 0.3\n"
HIDDEN = "index q in 1..2\nparam ell_h : positive = 1\nparam ell : positive[2] = 1\n"
FIGURE_7 = {
    "GP": (TOY + "param ell : positive = 1\nlatent f(x) ~ GP(0, s2 * RBF(ell))", 1, -1.838),
    "deep GP": (TOY + HIDDEN + "latent h[q](x) ~ GP(0, RBF(ell_h))\nlatent f(h) ~ GP(0, s2 * RBF(ell))", 1, -1.850),
    "latent-variable GP": (
        f"{TOY}param ell : positive[2] = 1\nrow w ~ Normal(0, 1)\nlatent f(x, w) ~ GP(0, s2 * RBF(ell))",
        5,
        -1.340,
    ),
    "deep latent-variable GP": (
        TOY
        + HIDDEN.replace("ell_h : positive", "ell_h : positive[2]")
        + "row w ~ Normal(0, 1)\nlatent h[q](x, w) ~ GP(0, RBF(ell_h))\nlatent f(h) ~ GP(0, s2 * RBF(ell))",
        5,
        -1.137,
    ),
}
"""Models, replicas of row variables, and the log density of test rows that an independent run of the method gives."""


def deep(layers: int, inputs: int) -> str:
    """As many layers; the inner ones are as wide as the inputs, and their means pass their arguments on."""
    lines = [f"index q in 1..{inputs}", f"input x : real[{inputs}]", "output y : real", "param s2 : positive = 1"]
    lines += ["param sigma : positive = 0.1"] + [
        f"param ell_{layer} : positive[{inputs}] = {np.sqrt(inputs):.3f}" for layer in range(1, layers + 1)
    ]
    below = ["x", *(f"h_{layer}" for layer in range(1, layers))]
    for layer in range(1, layers):
        lines += [f"param s2_{layer} : positive = 0.0001"]  # at first a layer passes its arguments on, and little else
        lines += [f"latent h_{layer}[q]({below[layer - 1]}) ~ GP({below[layer - 1]}[q], s2_{layer} * RBF(ell_{layer}))"]
    lines.append(f"latent f({below[-1]}) ~ GP(0, s2 * RBF(ell_{layers}))")
    return "\n".join([*lines, "y ~ Normal(f, sigma)"][0 if layers > 1 else 1 :])


def layered(kept: Kept, sets: list[str], splits: int, depths: list[int], options: dict[str, Any], keep: bool) -> None:
    """RMSE and NLPD by data set and number of layers; `keep` puts the rows into the table of RESULTS.md."""
    rows = []
    for name in sets:
        for layers in depths:
            found = []
            for number in range(splits):
                data = split(name, number)
                if data is None:
                    return
                label = " ".join(map(str, (name, layers, *options.items(), number)))
                found.append(kept.measure(label, partial(_measured, layers, *data, options)))
            shown = {"data": name, "layers": layers, "splits": splits, "settings": _settings(options)}
            shown |= dict(zip(("NLPD", "NLPD of y", "RMSE of y"), _spread(np.asarray(found)[:, :3]), strict=True))
            shown["CPU s"] = f"{np.mean([each[3] for each in found]):.0f}"
            rows.append([*shown.values(), PUBLISHED[name]])
            if keep:
                record("deep_layers", ["data", "layers", "settings"], shown)
    columns = ("data", "layers", "splits", "settings", "NLPD", "of y itself", "RMSE", "CPU s", "published: 1, 2")
    show("Layers: NLPD of standardised y and of y, mean ± standard error of splits", columns, rows)


def _measured(layers: int, train: dict[str, Any], test: dict[str, Any], options: dict[str, Any]) -> list[float]:
    """NLPD of standardised y and of y in its own unit, RMSE in its own unit, processor seconds with compiling."""
    mean, sd = train["y"].mean(), train["y"].std()
    train, test = ({"x": rows["x"], "y": (rows["y"] - mean) / sd} for rows in (train, test))
    start = time.process_time()
    fit = gpdsl.compile(deep(layers, train["x"].shape[1])).fit(train, progress=False, **options)
    seconds = time.process_time() - start
    error = fit.predict(test).mean("y") - test["y"]
    nlpd = -float(fit.log_predictive_density(test).mean())
    return [nlpd, nlpd + float(np.log(sd)), float(sd * np.sqrt(np.mean(error**2))), seconds]


def figure_7(kept: Kept, seeds: int, options: dict[str, Any], keep: bool) -> None:
    """Log density of the test rows of toy_dgp.csv by model; `keep` puts the rows into the table of RESULTS.md."""
    paths = find_data("toy_dgp.csv")
    if paths is None:
        return
    table = np.genfromtxt(paths[0], delimiter=",", names=True)
    train, test = ({"x": part["x"], "y": part["y"]} for part in (table[table["test"] == 0], table[table["test"] == 1]))
    rows = []
    for model, (text, replicas, target) in FIGURE_7.items():
        given = {"inducing": 50, "learn_inducing": True, **options}
        given |= {"importance": replicas} if replicas > 1 else {}
        found = []
        for seed in range(seeds):
            label = " ".join(map(str, ("figure 7", model, *options.items(), seed)))
            found.append(kept.measure(label, partial(_density, text, train, test, {**given, "seed": seed})))
        density, bound = _spread(np.asarray(found)[:, :2])
        shown = {"model": model, "seeds": seeds, "settings": _settings(options), "log density": density, "bound": bound}
        shown["CPU s"] = f"{np.mean([each[2] for each in found]):.0f}"
        rows.append([*shown.values(), target])
        if keep:
            record("deep_figure_7", ["model", "settings"], shown)
    columns = ("model", "seeds", "settings", "log density of test rows", "bound of a row", "CPU s", "independent run")
    show("Figure 7, M = 50, mean ± standard error of seeds; ceiling -0.308, one Gaussian -2.057", columns, rows)


def picture(path: Path, options: dict[str, Any]) -> None:
    """Figure 7: the training rows, and draws from the four models (one fit each), white on black."""
    import matplotlib.pyplot as plt

    paths = find_data("toy_dgp.csv")
    if paths is None:
        return
    table = np.genfromtxt(paths[0], delimiter=",", names=True)
    train = {name: table[name][table["test"] == 0] for name in ("x", "y")}
    figure, panels = plt.subplots(1, 5, figsize=(15, 3), layout="constrained", sharey=True)
    panels[0].plot(train["x"], train["y"], "k,")
    panels[0].set_title("data")
    new = {"x": np.linspace(-3.5, 3.5, 500)}
    for panel, (model, (text, replicas, _)) in zip(panels[1:], FIGURE_7.items(), strict=True):
        given = {"inducing": 50, **({"importance": replicas} if replicas > 1 else {}), **options}
        fit = gpdsl.compile(text + "\ny ~ Normal(f, sigma)").fit(train, progress=False, **given)
        drawn = fit.predict(new).sample("y", 60)
        panel.set_facecolor("black")
        panel.plot(np.broadcast_to(new["x"], drawn.shape).ravel(), drawn.ravel(), "w,", alpha=0.6)
        panel.set_title(model)
    for panel in panels:
        panel.set(xlim=(-3.5, 3.5), ylim=(-4, 4))
    figure.savefig(path, dpi=80)


def _density(text: str, train: dict[str, Any], test: dict[str, Any], options: dict[str, Any]) -> list[float]:
    """Mean log density of test rows, bound of a training row, processor seconds with compiling."""
    start = time.process_time()
    fit = gpdsl.compile(text + "\ny ~ Normal(f, sigma)").fit(train, progress=False, **options)
    seconds = time.process_time() - start
    return [float(fit.log_predictive_density(test).mean()), fit.elbo / len(train["y"]), seconds]


def _settings(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "default"


def _spread(table: np.ndarray) -> list[str]:
    """Means of columns, and their standard errors where there are several rows."""
    means, count = table.mean(axis=0), len(table)
    if count == 1:
        return [f"{mean:.3f}" for mean in means]
    errors = table.std(axis=0, ddof=1) / np.sqrt(count)
    return [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["layers", "figure7"])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2, 3], help="numbers of layers")
    parser.add_argument("--splits", type=int, default=5, help="the first so many of 5")
    parser.add_argument("--seeds", type=int, default=5, help="of figure 7")
    for option in ("steps", "inducing"):
        parser.add_argument(f"--{option}", type=int, help="of all fits, gpdsl's choice by default")
    parser.add_argument("--picture", type=Path, help="where to draw figure 7")
    parser.add_argument("--record", action="store_true", help="put what is found into the tables of RESULTS.md")
    parser.add_argument("--keep", type=Path, help="file of measurements to go on from, and to add to")
    given = parser.parse_args()
    kept = Kept(given.keep)
    options = {name: getattr(given, name) for name in ("steps", "inducing") if getattr(given, name)}
    if "layers" in given.what:
        layered(kept, list(given.sets), given.splits, given.depths, options, given.record)
    if given.picture is not None:
        picture(given.picture, options)
    if "figure7" in given.what and given.seeds:
        figure_7(kept, given.seeds, options, given.record)


if __name__ == "__main__":
    main()
