"""What the summary of a fit says about the model itself, with the parameters that were learnt."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpdsl.language.warnings.priors import unbounded_priors
from gpdsl.program.program import Program
from gpdsl.symbolic.density_mass import doubtful


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
