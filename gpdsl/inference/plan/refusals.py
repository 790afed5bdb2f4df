"""Choices that cannot work together, each with what to do instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpdsl.errors import GpdslError

if TYPE_CHECKING:
    from gpdsl.inference.plan.options import Options


def refuse_schedule(options: Options, optimizer: str) -> None:
    """Raise GpdslError where an alternating schedule meets another optimiser than its own."""
    if options.schedule == "alternating" and optimizer != "lbfgs":
        raise GpdslError(
            "schedule = alternating maximises one set of unknowns after the other by L-BFGS on all rows: leave out the "
            f"optimizer (it is {optimizer} here), or use schedule = joint"
        )


def of_parameters(options: Options) -> Options:
    """The options of a model without latents: the log likelihood and the priors of all rows, with no q.

    Raises GpdslError for what only a posterior of latents has.
    """
    if options.engine != "vi":
        raise GpdslError(f"engine = {options.engine} infers latents, and this model has none: leave it out")
    if options.beta != 1:
        raise GpdslError(f"beta = {options.beta:g} weighs the divergence of q; this model has no latents: leave it out")
    if options.inducing or options.learn_inducing or options.batch:
        raise GpdslError("this model has no latents: leave out inducing, learn_inducing and batch")
    if options.optimizer == "natural" or options.schedule == "alternating":
        raise GpdslError("this model has no latents: optimizer is lbfgs or adam, and schedule joint")
    return replace(options, inducing=0, batch=0, posterior="full")


def refuse_beta(options: Options) -> None:
    """Raise GpdslError where the divergence is weighed of what has none, or is not meant to be the posterior alone."""
    against = {
        "posterior = corrected": (options.posterior == "corrected", "weighs draws to be those of the posterior"),
        "hyperparameters = integrated": (
            options.hyperparameters == "integrated",
            "weighs parameters by their evidence, of which the bound is none then",
        ),
        f"importance = {options.importance}": (options.importance > 1, "bounds the evidence itself"),
    }
    for name, (asked, why) in against.items():
        if asked:
            raise GpdslError(f"beta = {options.beta:g} weighs the divergence of q; {name} {why}: leave one out")


def refuse(optimizer: str, posterior: str, batch: int, opaque: bool, per_row: bool) -> None:
    """Raise GpdslError where an optimiser does not cover the posterior, minibatches or likelihood."""
    if posterior == "coupled" and (optimizer != "natural" or batch):
        raise GpdslError(
            "posterior = coupled is found by natural gradients on all rows at once: leave out optimizer and "
            "schedule, set batch = 0, or use posterior = full"
        )
    if optimizer == "natural" and posterior not in {"full", "linear", "coupled"}:
        raise GpdslError("optimizer = natural needs posterior = full (or linear, coupled); use adam or lbfgs")
    if optimizer == "natural" and batch and (opaque or per_row):
        what = "an opaque function" if opaque else "row variables"
        raise GpdslError(f"optimizer = natural on minibatches does not cover {what}: set batch = 0, or use adam")
    if posterior == "linear" and batch:
        raise GpdslError(
            "posterior = linear has a parameter in every row and needs all rows at once: set batch = 0, or "
            "posterior = full with minibatches"
        )
    if optimizer == "lbfgs" and batch:
        raise GpdslError("optimizer = lbfgs needs all rows at once (batch = 0); use adam with minibatches")
    if optimizer == "lbfgs" and opaque:
        raise GpdslError(
            "optimizer = lbfgs needs gradients of the sampled objective, which an opaque function does not give; "
            "use natural or adam"
        )
