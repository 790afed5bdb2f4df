"""The evidence as a function of the learnt parameters alone, as an engine computes it: what integration explores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.problem import Problem, Result

Learnt = Mapping[str, Array]
"""Learnt parameters on the real line."""


class Profile(Protocol):
    """The log evidence of the data, or its bound at the best q, at any values of the learnt parameters."""

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Value, log priors of parameters included, and gradient; a value that is not finite where there is none."""

    def at(self, learnt: Learnt) -> Result:
        """The posterior of the latents there."""


Profiled = Callable[[Problem, Result], Profile]
"""The profile of a problem around what a search has found."""


UNTRUSTED = 0.7
"""Pareto's k above which averages are not to be trusted (Vehtari et al. 2024)."""


@dataclass(frozen=True, eq=False)
class Integrated:
    """Settings of the learnt parameters with weights that add up to 1, and what each says of the latents.

    `shape` is Pareto's k of the weights: above 0.7 no average over them is to be trusted. `effective` is how many
    equally weighted settings would be worth as much. `evaluations` of the evidence were made.
    """

    weights: Float[np.ndarray, " settings"]
    results: tuple[Result, ...]
    shape: float
    effective: float
    evaluations: int
    flat: tuple[str, ...] = ()
    """Parameters without a prior that the data leave open on one side or both."""
    about: str = ""
    """How they were found, in a line."""
    chains: Mapping[str, Float[np.ndarray, "chains draws *axes"]] = field(default_factory=dict)
    """All draws of the learnt parameters, on the real line, where chains were made."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is doubtful about the settings, in sentences for the user."""
        found = []
        if self.flat:
            names, verb = " and ".join(f"`{name}`" for name in self.flat), "are" if len(self.flat) > 1 else "is"
            found.append(f"{names} {verb} hardly determined by the data: a prior is needed, as averages depend on it")
        if self.shape > UNTRUSTED:
            found.append(
                f"the settings averaged over have uneven weights (Pareto k {self.shape:.2f}, trusted up to "
                f"{UNTRUSTED}), and standard deviations may be off: compare with engine = mcmc"
            )
        return tuple(found)
