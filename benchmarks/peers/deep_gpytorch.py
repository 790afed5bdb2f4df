"""GPyTorch's deep GP on the first split of a data set: `python deep_gpytorch.py SET SECONDS DATA_FOLDER` prints JSON.

Run by an interpreter that has GPyTorch: GPDSL_PEERS names it. Two layers as in its documentation: `DeepGPLayer`, linear
means between layers, 128 inducing inputs a layer, 10 samples, Adam at 0.01, minibatches of 1024. The hidden layer is as
wide as the inputs, and starts at inputs of the data. Each line has processor seconds of training so far, on one thread,
steps, and the NLPD of standardised test outputs, by as many samples as its documentation takes, times five.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import gpytorch
import numpy as np
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer

LOOKS = 30.0
"""Processor seconds of training between two looks at the test rows."""


class Layer(DeepGPLayer):
    """One layer of latents with a kernel each."""

    def __init__(self, points: torch.Tensor, outputs: int | None, linear: bool) -> None:
        shape = torch.Size([] if outputs is None else [outputs])
        family = gpytorch.variational.CholeskyVariationalDistribution(points.shape[-2], batch_shape=shape)
        start = points if outputs is None else points.repeat(outputs, 1, 1)
        strategy = gpytorch.variational.VariationalStrategy(self, start, family, learn_inducing_locations=True)
        super().__init__(strategy, points.shape[-1], outputs)
        mean = gpytorch.means.LinearMean(points.shape[-1]) if linear else gpytorch.means.ConstantMean(batch_shape=shape)
        self.mean_module = mean
        kernel = gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=points.shape[-1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at some inputs."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Deep(DeepGP):
    """Two layers and Gaussian noise."""

    def __init__(self, points: torch.Tensor) -> None:
        super().__init__()
        self.hidden = Layer(points, points.shape[-1], True)
        self.last = Layer(points, None, False)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """q of the last layer at samples of the hidden one."""
        return self.last(self.hidden(x))


def main(name: str, seconds: float, folder: Path) -> None:
    """Train, and look at the test rows now and then."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    x, y, new, wanted = (torch.as_tensor(each) for each in _split(folder / f"{name}.npz"))
    rng = np.random.default_rng(0)
    model = Deep(x[rng.permutation(len(x))[:128]])
    bound = gpytorch.mlls.DeepApproximateMLL(gpytorch.mlls.VariationalELBO(model.likelihood, model, len(x)))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    spent, looked, steps = 0.0, 0.0, 0
    while spent < seconds:
        begun, order = time.process_time(), rng.permutation(len(x))
        for batch in np.array_split(order, max(1, len(x) // 1024)):
            with gpytorch.settings.num_likelihood_samples(10):
                optimiser.zero_grad()
                (-bound(model(x[batch]), y[batch])).backward()
                optimiser.step()
            steps += 1
        spent += time.process_time() - begun
        if spent - looked > LOOKS or spent >= seconds:
            looked = spent
            print(json.dumps([spent, steps, _nlpd(model, new, wanted)]), flush=True)


def _nlpd(model: Deep, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(50):
        densities = model.likelihood.log_marginal(y, model(x))
        found = torch.logsumexp(densities, 0) - np.log(len(densities))
    model.train()
    return -float(found.mean())


def _split(path: Path) -> list[np.ndarray]:
    """Inputs and outputs of training and test rows, standardised by the former."""
    table = np.load(path)
    test = table["test_mask"][:, 0].astype(bool)
    found = []
    for values in (table["x"].astype(float), table["y"].astype(float).ravel()):
        scaled = (values - values[~test].mean(axis=0)) / values[~test].std(axis=0)
        found.append((scaled[~test], scaled[test]))
    return [found[0][0], found[1][0], found[0][1], found[1][1]]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
