"""SEP's table 1 on binary data at hand, and how soon each method predicts as well as SVI does in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from kept import Kept
from report import CONSOLE, find_data, show
from sep_methods import ARD, ISOTROPIC, METHODS, classes_of, measured, table_of

PAPER = {15: (59, 17, 40), 25: (133, 37, 65), 50: (494, 130, 195)}
"""Average training times in the paper's table 1: GFITC, SEP, SVI."""

BREAST = {15: (0.10, 0.11, 0.10), 25: (0.11, 0.11, 0.10), 50: (0.11, 0.11, 0.10)}
"""Its negative test log likelihoods on `Breast`, in the same order."""

ROWS = 500
"""Rows of the larger data sets that are taken: the paper's have 200 to 768."""

STEPS = (3, 5, 10, 20, 40, 80, 160, 250)
"""Iterations after which quality is looked at."""

CLOSE = 0.001
"""Nats a row that count as equal quality."""


def _breast() -> np.ndarray | None:
    files = find_data("wisconsin/train_1.csv", "wisconsin/test_1.csv")
    return None if files is None else np.concatenate([table_of(file) for file in files])


def _banana() -> np.ndarray | None:
    files = find_data("banana.csv")
    return None if files is None else _some(table_of(files[0]))


def _abalone() -> np.ndarray | None:
    """Ten rings or more, the median."""
    files = find_data("abalone/train_1.csv", "abalone/test_1.csv")
    if files is None:
        return None
    table = np.concatenate([table_of(file) for file in files])
    x = (table[:, :-1] - table[:, :-1].mean(axis=0)) / table[:, :-1].std(axis=0)
    return _some(np.column_stack([x, np.where(table[:, -1] >= 10, 1.0, -1.0)]))


def _usps() -> np.ndarray | None:
    """Four against nine."""
    files = find_data("usps/split_1.npz")
    if files is None:
        return None
    kept = np.load(files[0])
    x, y = (np.concatenate([kept[f"{part}_train"], kept[f"{part}_test"]]) for part in "xy")
    chosen = np.isin(y, (4, 9))
    return _some(np.column_stack([x[chosen], np.where(y[chosen] == 4, 1.0, -1.0)]))


def _some(table: np.ndarray) -> np.ndarray:
    return table[np.random.default_rng(0).permutation(len(table))[:ROWS]]


PROBLEMS: dict[str, tuple[Callable[[], np.ndarray | None], str]] = {
    "breast": (_breast, ARD.format(ell=2)),
    "banana": (_banana, ARD.format(ell=1)),
    "abalone": (_abalone, ARD.format(ell=2)),
    "usps 4/9": (_usps, ISOTROPIC.format(ell=15)),
}


def table_1(kept: Kept, repetitions: int, problems: Sequence[str], shares: Sequence[int]) -> None:
    """Negative test log likelihood, errors and seconds; 90 % of the rows train, inducing inputs learnt."""
    for problem in problems:
        load, text = PROBLEMS[problem]
        every = load()
        if every is None:
            continue
        rows = []
        for share in shares:
            for place, (name, options) in enumerate(METHODS.items()):
                found = [
                    kept.measure(
                        f"table {problem} {share} {name} {seed}", partial(_one, every, text, share, seed, options)
                    )
                    for seed in range(repetitions)
                ]
                table = np.asarray(found)
                spread = f"{table[:, 0].mean():.3f} ± {table[:, 0].std():.3f}"
                times = table[:, 2:].mean(axis=0)
                paper = _of_paper(problem, share, place)
                rows.append([f"{share} %", name, spread, 100 * table[:, 1].mean(), *times, paper])
        columns = ("inducing", "method", "test NLL", "error, %", "seconds", "whole fit", "paper")
        show(f"SEP table 1, {problem}, {len(every)} rows, {repetitions} repetitions of 90 / 10", columns, rows)


def _of_paper(problem: str, share: int, place: int) -> str:
    if place >= len(PAPER[share]):
        return ""
    return (f"{BREAST[share][place]:.2f}, " if problem == "breast" else "") + f"{PAPER[share][place]} s"


def _one(every: np.ndarray, text: str, share: int, seed: int, options: dict[str, Any]) -> list[float]:
    order, cut = np.random.default_rng(seed).permutation(len(every)), int(0.9 * len(every))
    train, test = (classes_of(every[each]) for each in (order[:cut], order[cut:]))
    asked = {"inducing": int(share / 100 * cut), "learn_inducing": True, "seed": seed, **options}
    return measured(text, train, test, asked)


def speed(kept: Kept, repetitions: int, problems: Sequence[str]) -> None:
    """Seconds to the quality that SVI has after all iterations, with 15 % of the rows as inducing inputs."""
    for problem in problems:
        load, text = PROBLEMS[problem]
        every = load()
        if every is not None:
            _speed_on(problem, partial(_one, every, text, 15), kept, repetitions)


def _speed_on(problem: str, fitted: Callable[..., list[float]], kept: Kept, repetitions: int) -> None:
    quality, seconds = {}, {}
    for name, options in METHODS.items():
        found = [
            [
                kept.measure(
                    f"speed {problem} {name} {steps} {seed}", partial(fitted, seed, {**options, "steps": steps})
                )
                for seed in range(repetitions)
            ]
            for steps in STEPS
        ]
        table = np.asarray(found)
        quality[name], seconds[name] = table[:, :, 0].mean(axis=1), np.median(table[:, :, 2], axis=1)
    rows = [
        [name, *(f"{q:.4f}, {t:.2f} s" for q, t in zip(quality[name], seconds[name], strict=True))] for name in METHODS
    ]
    show(f"{problem}, 15 %: test NLL and seconds after so many iterations", ("method", *map(str, STEPS)), rows)
    final = quality["SVI"][-1]
    for name in METHODS:
        good = np.flatnonzero(quality[name] <= final + CLOSE)
        if not good.size:
            CONSOLE.print(f"{name}: never within {CLOSE} of SVI's final {final:.4f}")
            continue
        first = seconds[name][good[0]]
        CONSOLE.print(
            f"{name}: SVI's final value {final:.4f}, within {CLOSE}, after {STEPS[good[0]]} iterations, {first:.2f} s, "
            f"a {17 / first:.0f}th of the paper's average of SEP, 17 s"
        )
