"""Whether a posterior that nobody chose keeps the correlation between latents: where it arises and can be afforded.

Where the expectations are sampled, and the log density is concave in the latents, as of a softmax, it does not. A block
of covariances per row has room to follow the errors of one set of samples, and the bound that is maximised over it is
not attained on others: by 9 nats on 124 rows of three classes, more than the correlation is worth there, in eight times
the time. A ridge, along which independent latents are far too narrow, a concave log density does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpdsl.inference.estimators.score import samples_for
from gpdsl.inference.plan.options import Choice
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.program import Program
from gpdsl.symbolic.concavity import log_concavity

LARGEST = 600
"""Whitened values of all latents together up to which one Gaussian across them is the default.

Measured: the bound and its gradient take 0.05 s at 200 of them, 0.5 s at 600, 1.2 s at 1000.
"""

LARGEST_ROWS = 20_000_000
"""Numbers in what all rows read of them, [rows, columns, whitened values]."""


def choose_coupling(
    program: Program, choice: Choice, inducing: Sequence[Functionals], rows: int, *, sites: bool, simulated: bool
) -> Choice:
    """A single Gaussian becomes `coupled` where observations mix latents and it is small; the reason is kept.

    `sites` says that the engine keeps a site per row, which can be one for all latents; `simulated`, that opaque
    functions have surrogates.
    """
    mixed = program.mixing
    if choice.posterior != "full" or not mixed:
        return choice
    size = joint_size(program, inducing)
    named = ", ".join(f"`{name}`" for name in mixed)
    if choice.batch:
        reason = "minibatches leave latents independent, with standard deviations that are too small"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; batch = 0 takes all rows at once")
    if not sites:
        return choice
    if size > LARGEST or rows * program.latents * size > LARGEST_ROWS:
        reason = f"{named} mixes latents, but {size} inducing values in all are too many for one covariance matrix"
        return _because(choice, "full", f"{reason}; posterior = coupled insists")
    if program.opaque and not simulated and choice.samples < samples_for(program.latents):
        reason = f"{choice.samples} samples are too few to estimate the covariances of {program.latents} latent values"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; posterior = coupled insists")
    if program.coupling.sampled and not program.sampled:
        return _because(choice, "full", f"{named} mixes more latents than a closed form of their covariances can hold")
    if _sampled_and_concave(program.coupling):
        reason = "its log density is concave, where correlation is worth less than one Gaussian that follows samples"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; posterior = coupled insists")
    return _because(choice, "coupled", f"{named} mixes latents, which makes them correlated")


def _sampled_and_concave(program: Program) -> bool:
    """Whether expectations are sampled, with gradients through the samples, of concave log densities alone."""
    sampled = [o for o in program.observations if any(term.method == "pathwise" for term in o.terms)]
    return bool(sampled) and log_concavity(program.translator, sampled).verdict == "proved"


def joint_size(program: Program, inducing: Sequence[Functionals]) -> int:
    """Whitened values of all latents together."""
    return sum(group.size * len(points) for group, points in zip(program.groups, inducing, strict=True))


def _because(choice: Choice, posterior: str, reason: str) -> Choice:
    return replace(choice, posterior=posterior, reasons={**choice.reasons, "posterior": reason})
