"""A relevance vector machine: a noisy sinc from 500 covariances with its rows, of which a few are left."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import gpdsl

rng = np.random.default_rng(0)
x = rng.uniform(-10, 10, 500)
y = np.sinc(x / np.pi) + 0.1 * rng.standard_normal(500)

model = gpdsl.compile("""
model sinc "A function from few basis functions"
input x : real
output y : real
param ell   : positive = 2
param sigma : positive = 0.3
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
""")

# f(x) = sum_j w_j k(x, x_j) with w_j ~ N(0, 1 / s_j): a precision s_j that grows without bound prunes its function.
fit = model.fit({"x": x, "y": y}, engine="qsgp", basis="relevance", steps=400, seed=0)
relevant = fit.weight_space.basis.relevant[:, 0]
print(f"relevance vectors {len(relevant)} of {len(x)}, at", *(f"{each:.2f}" for each in np.sort(relevant)))
print(f"noise {fit.parameters['sigma']:.3f}, length-scale {fit.parameters['ell']:.2f}")

grid = np.linspace(-10, 10, 400)
prediction = fit.predict({"x": grid})
mean, sd = prediction.mean("f"), np.sqrt(prediction.variance("y"))
print(f"root mean squared error against the sinc itself {np.sqrt(np.mean((mean - np.sinc(grid / np.pi)) ** 2)):.4f}")

figure, panel = plt.subplots(figsize=(8, 4))
panel.plot(x, y, ".", color="black", markersize=2, label="rows")
kept = np.abs(x[:, None] - relevant).argmin(axis=0)  # centres are rows, in single precision
panel.plot(x[kept], y[kept], "o", color="black", label="relevance vectors")
panel.plot(grid, mean, color="#3465a4", label="mean")
panel.fill_between(grid, mean - sd, mean + sd, color="#3465a4", alpha=0.2, label="one standard deviation")
panel.legend()
figure.savefig("relevance_vectors.png", dpi=120)
