"""What is to be doubted of a fit: the model, with the parameters that were learnt, and an end below the start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.language.warnings.priors import unbounded_priors
from gpdsl.program.program import Program
from gpdsl.results.fit import Fit
from gpdsl.symbolic.density_mass import doubtful

SCATTER = 25.0
"""Standard errors of the reported bound, a mean over many steps, that the bound of a single step may be wrong by."""


class WorseThanStart(GpdslError):
    """A fit of opaque functions that ended below its start; `fit` is what it came to."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        super().__init__(
            f"the bound ended at {fit.elbo:.6g} nats ({fit.message}), where it started from {fit.history[0, 1]:.6g}: "
            "the estimates from opaque functions led the wrong way; leave optimizer, engine and estimators to the "
            "plan, or take more samples, a smaller learning_rate, or other starts of the parameters with init={...}"
        )


def doubts(program: Program, parameters: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Densities that do not integrate to one, and priors whose density has no bound."""
    notes = [f"{each.message_text()}: the fit maximises it" for each in unbounded_priors(program.declarations)]
    for observation, said in doubtful(program.translator, parameters):
        name, output = observation.distribution.name, observation.outputs[0]
        what = (
            f"the density `{name}`" if observation.distribution.log_density is not None else f"`{name}` of `{output}`"
        )
        notes.append(f"{what} {said}, at these parameters: they are learnt wrongly")
    return tuple(dict.fromkeys(notes))


def verify_progress(fit: Fit) -> Fit:
    """Raise WorseThanStart where a bound estimated from opaque functions is lower at the end than at the start."""
    if fit.options.engine != "vi" or not fit.program.opaque or fit.interrupted or not len(fit.history):
        return fit
    start, error = fit.history[0, 1], fit.elbo_se if np.isfinite(fit.elbo_se) else 0.0
    if fit.elbo < start - SCATTER * error - 1.0:
        raise WorseThanStart(fit)
    return fit
