"""USPS digits 4, 7 and 9: softmax over three latent functions, inducing points for a tenth of the rows."""

from __future__ import annotations

import numpy as np
from report import find_data, show, verdict

import gpdsl

SPLITS = (1, 2)
INDUCING = 123


def run() -> None:
    """Both splits with the default options but for the number of inducing points."""
    paths = find_data(*(f"usps/split_{i}.npz" for i in SPLITS))
    if paths is None:
        return
    rows = []
    for split, path in zip(SPLITS, paths, strict=True):
        with np.load(path) as stored:
            train = {"x": stored["x_train"], "y": stored["y_train"]}
            test = {"x": stored["x_test"], "y": stored["y_test"]}
        fit = gpdsl.zoo("usps").fit(train, inducing=INDUCING, seed=0)
        error, nlp = gpdsl.score.error_rate(fit, test), gpdsl.score.nlpd(fit, test)
        rows.append((split, f"{error:.2%}", nlp, fit.elbo, fit.seconds, fit.compile_seconds, error))
    columns = ["split", "error rate", "NLP", "ELBO", "seconds", "of which compiling"]
    show(f"usps: full posterior, {INDUCING} inducing points", columns, [r[:6] for r in rows])
    verdict("mean error rate, %", 100 * float(np.mean([r[6] for r in rows])), 3)
