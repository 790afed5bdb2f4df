"""Wisconsin breast cancer: error rate and negative log probability of the dense `full` posterior."""

from __future__ import annotations

import numpy as np
from report import find_data, show, verdict

import gpdsl

SPLITS = (1, 2, 3)


def run() -> None:
    """All splits with the default options."""
    paths = find_data(*(f"wisconsin/{part}_{i}.csv" for i in SPLITS for part in ("train", "test")))
    if paths is None:
        return
    rows = []
    for n, split in enumerate(SPLITS):
        train, test = paths[2 * n : 2 * n + 2]
        fit = gpdsl.zoo("wisconsin").fit(train, seed=0)
        error, nlp = gpdsl.score.error_rate(fit, test), gpdsl.score.nlpd(fit, test)
        rows.append((split, f"{error:.2%}", nlp, fit.elbo, fit.seconds, error))
    columns = ["split", "error rate", "NLP", "ELBO", "seconds"]
    show("wisconsin: dense full posterior", columns, [r[:5] for r in rows])
    verdict("mean error rate, %", 100 * float(np.mean([r[5] for r in rows])), 4)
