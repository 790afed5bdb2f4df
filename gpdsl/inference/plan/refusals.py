"""Choices that cannot work together, each with what to do instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpdsl.errors import GpdslError

if TYPE_CHECKING:
    from gpdsl.inference.plan.options import Options
    from gpdsl.program.program import Program


def of_parameters(program: Program, options: Options) -> Options:
    """The options of a model without latents: the log likelihood and the priors of all rows, with no q.

    Raises GpdslError for what only a posterior of latents has.
    """
    if uses := program.uses():
        raise GpdslError(
            f"`{uses[0].function}` is opaque, and without latents there are no draws that would tell how it changes: "
            "write it in JAX or as a formula, or give the model a latent"
        )
    if options.posterior not in {"auto", "full"}:
        raise GpdslError(f"posterior = {options.posterior} is one of latents, and this model has none: leave it out")
    if options.engine != "vi":
        instead = "hyperparameters = integrated averages over its parameters"
        raise GpdslError(f"engine = {options.engine} infers latents, and this model has none: leave it out; {instead}")
    if options.beta != 1:
        raise GpdslError(f"beta = {options.beta:g} weighs the divergence of q; this model has no latents: leave it out")
    if options.inducing or options.learn_inducing or options.batch:
        raise GpdslError("this model has no latents: leave out inducing, learn_inducing and batch")
    if options.optimizer == "natural" or options.schedule == "alternating":
        raise GpdslError("this model has no latents: optimizer is lbfgs or adam, and schedule joint")
    return replace(options, inducing=0, batch=0, posterior="full")


TOGETHER = (
    ("parameters", "hyperparameters", "averages over them by weights"),
    ("parameters", "posterior", "draws from the posterior itself"),
    ("parameters", "beta", "has no bound of the evidence to be averaged"),
    ("beta", "posterior", "weighs draws to be those of the posterior"),
    ("beta", "hyperparameters", "weighs parameters by their evidence, of which the bound is none then"),
    ("beta", "importance", "bounds the evidence itself"),
)
"""Options that do not go together, and what the second of them does."""


def refuse_together(options: Options) -> None:
    """Raise GpdslError where q of parameters, or a divergence that is weighed, meets what it does not go with."""
    asked = {
        "parameters": "parameters = gaussian" * (options.parameters == "gaussian"),
        "hyperparameters": "hyperparameters = integrated" * (options.hyperparameters == "integrated"),
        "posterior": "posterior = corrected" * (options.posterior == "corrected"),
        "beta": f"beta = {options.beta:g}" * (options.beta != 1),
        "importance": f"importance = {options.importance}" * (options.importance > 1),
    }
    does = {"parameters": "has one Gaussian of all parameters", "beta": "weighs the divergence of q"}
    for one, other, why in TOGETHER:
        if asked[one] and asked[other]:
            raise GpdslError(f"{asked[one]} {does[one]}; {asked[other]} {why}: leave one out")


def refuse_of_rows(program: Program, options: Options) -> None:
    """Raise GpdslError where what is asked for is of row variables that the model does not have."""
    told = f"importance = {options.importance} weighs replicas" if options.importance > 1 else ""
    if not program.inner & program.declarations.rows.keys():
        raise GpdslError(
            f"{told or f'rows = {options.rows} finds q'} of row variables that latents are functions of, and this "
            "model has none: leave it out, or write `row w ~ Normal(0, 1)` and `latent f(x, w) ~ GP(...)`"
        )


def refuse(optimizer: str, posterior: str, batch: int, opaque: bool, per_row: bool, schedule: str) -> None:
    """Raise GpdslError where an optimiser does not cover the posterior, minibatches, likelihood or schedule."""
    if schedule == "alternating" and optimizer != "lbfgs":
        raise GpdslError(
            "schedule = alternating maximises one set of unknowns after the other by L-BFGS on all rows: leave out the "
            f"optimizer (it is {optimizer} here), or use schedule = joint"
        )
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
