"""GPyTorch's SVGP on a problem of `svgp_problems`: `python svgp_gpytorch.py TASK DTYPE STEPS DATA_FOLDER` prints JSON.

Run by an interpreter that has GPyTorch: GPDSL_PEERS names it. Settings as its documentation recommends: whitened, Adam
at 0.01 on everything, inducing inputs learnt. Its Bernoulli is probit only: the logit is a likelihood of four lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gpytorch
import numpy as np
import svgp_problems as problems
import svgp_timing as timing
import torch
from gpytorch.likelihoods.likelihood import _OneDimensionalLikelihood


class LogitBernoulli(_OneDimensionalLikelihood):
    """Bernoulli with a logit, by quadrature."""

    def forward(self, function_samples, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Of given latent values."""
        return torch.distributions.Bernoulli(logits=function_samples)


class Model(gpytorch.models.ApproximateGP):
    """One latent, or ten that share kernel and inducing inputs."""

    def __init__(self, z: torch.Tensor, lengthscale: float, columns: int | None, latents: int) -> None:
        shape = torch.Size([latents]) if latents > 1 else torch.Size([])
        family = gpytorch.variational.CholeskyVariationalDistribution(z.shape[-2], batch_shape=shape)
        strategy = gpytorch.variational.VariationalStrategy(self, z, family, learn_inducing_locations=True)
        if latents > 1:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=columns)
        kernel.lengthscale = lengthscale
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
        self.covar_module.outputscale = 1.0

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at some inputs."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main(name: str, dtype: str, steps: int, folder: Path) -> None:
    """Build, step, score."""
    torch.set_default_dtype(getattr(torch, dtype))
    torch.manual_seed(0)
    task, digits = problems.load(name, folder), name == "digits"
    begun = timing.now()
    x, z = torch.as_tensor(task.x.astype(dtype)), torch.as_tensor(timing.start_inputs(task, dtype))
    y = torch.as_tensor(task.y if digits else task.y.astype(dtype))
    columns = None if name in ("digits", "parity") else task.x.shape[1]
    model, likelihood = Model(z, task.lengthscale, columns, 10 if digits else 1), _likelihood(name)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    parameters = [{"params": model.parameters()}, {"params": likelihood.parameters()}]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    model.train(), likelihood.train()

    def step(index: np.ndarray) -> None:
        rows = torch.as_tensor(index)
        optimiser.zero_grad()
        (-bound(model(x[rows]), y[rows])).backward()
        optimiser.step()

    row = timing.timed(timing.minibatches(task, steps), step, begun)
    timing.printed(row, _score(name, task, model, likelihood, dtype))


def _likelihood(name: str):  # type: ignore[no-untyped-def]
    if name == "digits":
        return gpytorch.likelihoods.SoftmaxLikelihood(num_classes=10, mixing_weights=False)
    if name == "regression":
        found = gpytorch.likelihoods.GaussianLikelihood()
        found.noise = 0.1
        return found
    return LogitBernoulli()


def _score(name: str, task: problems.Task, model: Model, likelihood, dtype: str) -> float:  # type: ignore[no-untyped-def]
    model.eval(), likelihood.eval()
    means, variances = [], []
    with torch.no_grad():
        for part in torch.as_tensor(task.x_test.astype(dtype)).split(1000):
            q = model(part)
            if name == "regression":
                q = likelihood(q)
                mean, variance = q.mean, q.variance
            elif name == "digits":
                drawn = torch.distributions.Normal(q.mean, q.variance.sqrt()).sample((100,))
                mean = variance = torch.softmax(drawn, -1).mean(0)
            else:
                mean = variance = likelihood.log_marginal(torch.ones(len(part)), q).exp()
            means.append(mean.double().numpy())
            variances.append(variance.double().numpy())
    return problems.negative_log_density(name, task.y_test, np.concatenate(means), np.concatenate(variances))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
