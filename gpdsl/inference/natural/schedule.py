"""Lengths of steps on minibatches: full pace, and a gentle end as soon as the bound no longer rises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

LARGEST_SHARE = 0.5
"""Longest natural-gradient step: a full one overshoots when the likelihood is not Gaussian."""

QUICK = 1.2
"""Times the root of a minibatch's share of the rows: the length of natural-gradient steps while hyperparameters move.

Sites that follow them closely are worth their noise. It goes when the pace falls, and the length with it: at the end to
the share, or less when there is time to average over more.
"""

WARMING = 0.2
"""Share of its steps in which a search that goes on from another rises to full pace."""

WINDOW = 100
"""Steps at least whose mean bound is compared with that of as many before, in whole passes over the data."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pace:
    """Of each step: Adam's length, what the sites keep, and how much of their targets they gain."""

    length: Float[Array | np.ndarray, "steps"]
    keep: Float[Array | np.ndarray, "steps"]
    gain: Float[Array | np.ndarray, "steps"]


class Schedule:
    """When which step is how long; `end` is the number of the last one.

    Half of the steps are made at full pace, in the other half it falls like a cosine: what the noise of full pace keeps
    from the optimum has as long to reach it as it had to come near. A search that is `going_on` from another has sites
    with the weight of all rows, and rises to full pace: Adam does not know yet how far it may go.
    """

    def __init__(self, steps: int, share: float, rate: float, *, going_on: bool = False) -> None:
        self.rate, self.share = rate, min(share, LARGEST_SHARE)
        self.warming = max(int(WARMING * steps), 1) if going_on else 0
        self.cooling = max(steps // 2, 1)
        self.end = steps
        self.shortened = False

    def paces(self, done: int, count: int, dtype: str = "float64") -> Pace:
        """Of the `count` steps after the first `done` ones."""
        number = np.arange(done, done + count)
        left = np.clip((self.end - number) / self.cooling, 0.0, 1.0)
        fall = 0.5 - 0.5 * np.cos(np.pi * left)
        if self.warming:
            fall = fall * np.minimum((number + 1) / self.warming, 1.0)
        quick = min(max(self.share, QUICK * self.share**0.5), LARGEST_SHARE)
        slow = min(self.share, 2.0 / self.cooling)
        gain = slow + (quick - slow) * fall
        gathering = (number * quick < 1.0 - 1e-9) & (not self.warming)  # until the sites have all their weight
        keep = np.where(gathering, 1.0, 1.0 - gain)
        return Pace(*(np.asarray(a, dtype) for a in (self.rate * fall, keep, gain)))

    def finish_from(self, done: int) -> None:
        """Cool down from here on, in as many steps as have been made, unless that is under way."""
        if done < self.end - self.cooling:
            self.cooling = done
            self.end, self.shortened = done + self.cooling, True

    def slow_down(self) -> None:
        """Shorter steps: the last ones led to numbers that are not finite."""
        self.rate *= 0.3


def settled(trace: Sequence[float], epoch: int = 1) -> bool:
    """Whether the mean bound of the last third of the steps exceeds that of the third before by no more than its noise,
    two standard errors.

    `epoch` steps see every row about once: their means are free of the noise of which rows were drawn, which would hide
    a slow rise.
    """
    thirds = max(-(-WINDOW // epoch), len(trace) // (3 * epoch))
    whole = len(trace) // epoch
    if whole < 3 * thirds:
        return False
    means = np.reshape(trace[: whole * epoch], (whole, epoch)).mean(axis=1)
    last, before = means[-thirds:], means[-2 * thirds : -thirds]
    error = np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / thirds) if thirds > 1 else 0.0
    return bool(last.mean() - before.mean() < 2.0 * error)
