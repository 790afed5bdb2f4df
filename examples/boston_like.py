"""Regression from a dictionary of arrays: fit, predict, score, save, load."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import gpdsl

rng = np.random.default_rng(0)
x = rng.standard_normal((260, 4))
y = 22 + 6 * np.sin(x[:, 0]) + 3 * x[:, 1] * x[:, 2] + 2 * rng.standard_normal(260)  # the last column is useless
train = {"x": x[:200], "y": y[:200]}
test = {"x": x[200:], "y": y[200:]}

model = gpdsl.zoo("boston")  # x : real[D] takes as many columns as the data have
fit = model.fit(train, seed=0)
print(fit.summary())

# One length-scale per column: the useless column gets a long one.
print("\nlength-scales", *(f"{ell:.1f}" for ell in fit.parameters["ell"]))

prediction = fit.predict(test)
mean, sd = prediction.mean("y"), np.sqrt(prediction.variance("y"))
low, high = prediction.quantile("y", [0.05, 0.95])
for i in range(3):
    print(f"row {i}: observed {test['y'][i]:.1f}, predicted {mean[i]:.1f} ± {sd[i]:.1f}")
print(f"in the 90% interval: {np.mean((low <= test['y']) & (test['y'] <= high)):.0%} of the test rows")
print(f"root mean squared error {gpdsl.score.rmse(fit, test):.2f} (noise {fit.parameters['sigma']:.2f})")
print(f"standardised squared error {gpdsl.score.sse(fit, test):.3f}, nlpd {gpdsl.score.nlpd(fit, test):.3f} nats")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "boston_like.gpfit"
    fit.save(path)
    again = gpdsl.load_fit(path)
print("the loaded fit predicts the same:", np.array_equal(again.predict(test).mean("y"), mean))
