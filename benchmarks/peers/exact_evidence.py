"""Log evidence of an exact GP and its gradient elsewhere: `python exact_evidence.py LIBRARY KERNEL ROWS REPEATS`.

Eight columns, a length-scale each, a variance and a noise: ten numbers. Prints a JSON row: milliseconds (median), the
CPU's, the first call's seconds, and the value, which shows that all compute the same. No import of gpdsl.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

COLUMNS = 8
VARIANCE, LENGTH, NOISE = 1.3, 1.7, 0.2


def problem(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The same data for everyone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, COLUMNS))
    return x, np.sin(x.sum(axis=1)) + 0.1 * rng.normal(size=rows)


def bare_numpy(x: np.ndarray, y: np.ndarray, kernel: str) -> Callable[[], float]:
    """As one would write it by hand: LAPACK's factor and inverse through SciPy, the gradient as matrix products."""
    from scipy.linalg import lapack

    def evaluate() -> float:
        z = x / LENGTH
        squares = np.sum(z**2, axis=1)
        gaps = np.maximum(squares[:, None] + squares[None, :] - 2.0 * z @ z.T, 0.0)
        if kernel == "RBF":
            signal = VARIANCE * np.exp(-0.5 * gaps)
            slope = signal
        else:
            u = np.sqrt(5.0 * gaps)
            fall = VARIANCE * np.exp(-u)
            signal, slope = (1.0 + u + u**2 / 3.0) * fall, 5.0 / 3.0 * (1.0 + u) * fall
        covariance = signal + NOISE**2 * np.eye(len(y))
        factor, _ = lapack.dpotrf(covariance, lower=1, clean=1)
        alpha, _ = lapack.dpotrs(factor, y, lower=1)
        half, _ = lapack.dpotri(factor, lower=1)
        weights = 0.5 * (np.outer(alpha, alpha) - (np.tril(half) + np.tril(half, -1).T))
        pulled = weights * slope
        sums = pulled.sum(axis=1)
        gradient = 2.0 * (sums @ z**2 - np.sum(z * (pulled @ z), axis=0))
        more = np.sum(weights * signal), 2.0 * NOISE**2 * np.trace(weights)
        assert np.all(np.isfinite(gradient)) and np.all(np.isfinite(more))
        return float(-0.5 * y @ alpha - np.sum(np.log(np.diag(factor))) - 0.5 * len(y) * np.log(2 * np.pi))

    return evaluate


def scikit_learn(x: np.ndarray, y: np.ndarray, kernel: str) -> Callable[[], float]:
    """`GaussianProcessRegressor.log_marginal_likelihood`."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    lengths = [LENGTH] * COLUMNS
    shape = RBF(lengths) if kernel == "RBF" else Matern(lengths, nu=2.5)
    whole = ConstantKernel(VARIANCE) * shape + WhiteKernel(NOISE**2)
    fitted = GaussianProcessRegressor(whole, alpha=0.0, optimizer=None).fit(x, y)
    return lambda: float(fitted.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)[0])


def gpytorch(x: np.ndarray, y: np.ndarray, kernel: str) -> Callable[[], float]:
    """`ExactMarginalLogLikelihood` by Cholesky factors, whatever the size."""
    import gpytorch as gp
    import torch

    a, b = torch.tensor(x), torch.tensor(y)
    if kernel == "RBF":
        shape = gp.kernels.RBFKernel(ard_num_dims=COLUMNS)
    else:
        shape = gp.kernels.MaternKernel(nu=2.5, ard_num_dims=COLUMNS)
    likelihood = gp.likelihoods.GaussianLikelihood()

    class Model(gp.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(a, b, likelihood)
            self.mean_module, self.covar_module = gp.means.ZeroMean(), gp.kernels.ScaleKernel(shape)

        def forward(self, x: torch.Tensor) -> gp.distributions.MultivariateNormal:
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().double()
    model.covar_module.base_kernel.lengthscale = LENGTH
    model.covar_module.outputscale = VARIANCE
    likelihood.double().noise = NOISE**2
    model.train(), likelihood.train()
    objective = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def evaluate() -> float:
        model.zero_grad()
        with gp.settings.max_cholesky_size(1_000_000):
            value = objective(model(a), b)
            value.backward()
        return float(value.detach()) * len(y)

    return evaluate


def gpflow(x: np.ndarray, y: np.ndarray, kernel: str) -> Callable[[], float]:
    """`GPR.log_marginal_likelihood` in a `tf.function`."""
    import gpflow as gf
    import tensorflow as tf

    known = gf.kernels.RBF if kernel == "RBF" else gf.kernels.Matern52
    whole = known(variance=VARIANCE, lengthscales=[LENGTH] * COLUMNS)
    model = gf.models.GPR((x, y[:, None]), whole, noise_variance=NOISE**2)

    @tf.function
    def both() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = model.log_marginal_likelihood()
        return value, tape.gradient(value, model.trainable_variables)

    return lambda: float(both()[0])


LIBRARIES = {"NumPy": bare_numpy, "scikit-learn": scikit_learn, "GPyTorch": gpytorch, "GPflow": gpflow}


def measured(evaluate: Callable[[], float], repeats: int) -> dict[str, float]:
    """Times of one evaluation, the first apart."""
    start = time.perf_counter()
    value = evaluate()
    first, wall, cpu = time.perf_counter() - start, [], []
    for _ in range(repeats):
        before = time.perf_counter(), time.process_time()
        evaluate()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return {"ms": 1e3 * float(np.median(wall)), "cpu": 1e3 * float(np.median(cpu)), "first": first, "value": value}


if __name__ == "__main__":
    library, kernel, rows, repeats = sys.argv[1:]
    print(json.dumps(measured(LIBRARIES[library](*problem(int(rows)), kernel), int(repeats))))
