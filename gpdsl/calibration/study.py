"""One run of a calibration: parameters, latents and outputs are drawn, fitted, and compared with the posterior."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError, GpdslWarning, described
from gpdsl.results.shares import falls_below
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.model import Model
    from gpdsl.results.fit import Fit
    from gpdsl.results.prediction import Prediction

DRAWS = 1000
"""Of a quantity whose distribution function has no formula."""

Shares = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Study:
    """What all runs share.

    The first `rows` of the inputs are fitted; those after them repeat some of these, for latents that are looked at
    and for outputs that the fit has not seen. They are the same in all runs: inputs that follow from parameters would
    tell of them.
    """

    model: Model
    inputs: Mapping[str, np.ndarray]
    rows: int
    sizes: Mapping[str, int]
    held: Mapping[str, np.ndarray]
    options: Mapping[str, Any]
    seed: int

    def run(self, number: int) -> Shares | str | None:
        """P(quantity < its true value), [entries], of one run; in words why there is none; None where interrupted."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GpdslWarning)
                return self._run(number)
        except GpdslError as problem:
            return str(problem)
        except Exception as problem:  # noqa: BLE001 - hours of other runs must not be lost by it
            return described(problem)

    def _run(self, number: int) -> Shares | None:
        drawn = self.model.sample_prior(
            dict(self.inputs),
            seed=self.seed + 1 + number,
            parameters=self.held,
            draw_parameters=True,
            sizes=self.sizes,
        )
        fit = self.model.fit({name: values[: self.rows] for name, values in drawn.data.items()}, **self.options)
        if fit.interrupted:
            return None
        prediction = fit.predict({name: values[self.rows :] for name, values in self.inputs.items()})
        d, rng = self.model.declarations, np.random.default_rng([self.seed, number])
        truth = {name: values[self.rows :] for name, values in drawn.latents.items()}
        seen = [name for name in predictable_outputs(d) if d.outputs[name].label is None]
        truth |= {name: np.asarray(drawn.data[name][self.rows :], float) for name in seen}
        found = _of_parameters(fit, drawn.parameters)
        return found | {name: _of_rows(prediction, name, values, rng).ravel() for name, values in truth.items()}


def _of_parameters(fit: Fit, truth: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of what is learnt with a posterior; nothing where it is learnt at a point."""
    if fit.settings is None:
        return {}
    learnt = [name for name in truth if name not in fit.program.parameters.held]
    return {name: fit.settings.share_below(name, truth[name]).ravel() for name in learnt}


def _of_rows(prediction: Prediction, name: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of a latent or an output; uniform between P(< value) and P(<= value), where a value has a probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = falls_below(prediction, name, values)
    if found is None:
        drawn = prediction.sample(name, DRAWS, seed=int(rng.integers(2**31)))
        found = np.sum(drawn < values, axis=0) / (DRAWS + 1), (np.sum(drawn <= values, axis=0) + 1) / (DRAWS + 1)
    low, high = found
    return np.where(np.isnan(values), np.nan, low + rng.uniform(size=np.shape(low)) * (high - low))
