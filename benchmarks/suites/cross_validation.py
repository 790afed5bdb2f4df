"""`cross_val_score` of the default estimators beside scikit-learn's Gaussian processes, on three of its data sets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def _peers() -> Iterator[tuple[str, int, Any, Any, Any]]:
    """Data set, folds, rows and targets, and both estimators."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from gpdsl.sklearn import Classifier, Regressor

    def scaled(last: Any) -> Any:
        return make_pipeline(StandardScaler(), last)

    data = load_diabetes(return_X_y=True)
    kernel = ConstantKernel(1.0) * RBF(np.full(data[0].shape[1], 3.0)) + WhiteKernel()
    peer = scaled(GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=0))
    yield "diabetes", 5, data, Regressor(), peer
    data = load_breast_cancer(return_X_y=True)
    yield "breast_cancer", 5, data, Classifier(), scaled(GaussianProcessClassifier(4.0 * RBF(5.0)))
    data = load_digits(return_X_y=True)
    yield "digits", 3, data, Classifier(), scaled(GaussianProcessClassifier(4.0 * RBF(8.0)))


def run() -> None:
    """Print a table of both in turn: scores with their spread over folds, log loss, processor time and seconds."""
    from sklearn.model_selection import cross_validate

    print(f"load at the beginning {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    print("| data | folds | whose | score | log loss | processor s | s |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, folds, data, own, peer in _peers():
        chances = name in ("breast_cancer", "digits")
        wanted = {"score": "accuracy", "loss": "neg_log_loss"} if chances else {"score": "r2"}
        for whose, estimator in (("gpdsl", own), ("scikit-learn", peer)):
            worked, began = time.process_time(), time.perf_counter()
            found = cross_validate(estimator, *data, cv=folds, scoring=wanted)
            worked, took = time.process_time() - worked, time.perf_counter() - began
            scores = found["test_score"]
            loss = f"{-found['test_loss'].mean():.4f}" if chances else ""
            cells = [name, str(folds), whose, f"{scores.mean():.4f} ± {scores.std():.4f}", loss]
            print(f"| {' | '.join([*cells, f'{worked:.1f}', f'{took:.1f}'])} |", flush=True)
