"""The search over layers of few rows: the last layer at its best in each step, and cycles until they gain little.

All rows are there in every step, so that the best q of the last layer is one natural step away where the likelihood is
Gaussian, and half of one leads near it elsewhere; Adam climbs what is left (Salimbeni and Deisenroth, 2017, has it wait
for a last layer that follows slowly). A bound that still falls and rises with long steps is not told from one that has
come to rest: so steps fall to almost nothing at the end of each cycle, and what the next one has gained is measured by
the same samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import plural
from gpdsl.inference.driver import ALL_DONE
from gpdsl.inference.layered.engine import SHARE, LayeredSearch, Place, State, rises
from gpdsl.inference.layered.propagation import inner_width
from gpdsl.inference.layered.start import Groups
from gpdsl.inference.problem import Problem, Result
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows

CYCLES = 3
"""Cycles at most: one is to find where to go, the second to see whether there is more, the third to take it."""

FEWEST = 3
"""Bounds that tell whether it has settled: of the start, and of two cycles at least."""

LATE = 5.0
"""The last layer follows each pass wholly while Adam's steps are longer than one such part of what they were."""

NEAR = 0.5
"""How far a natural step of the last layer goes where the likelihood is not Gaussian."""


def settles(program: Program, batch: int, optimizer: str, samples: int = 1) -> bool:
    """Whether all rows are seen in every step, and natural gradients find the last layer.

    Of passes in which layers alone are sampled: the variables of rows follow slowly. Of no samples in any case.
    """
    return not batch and optimizer == "natural" and not (samples and program.declarations.rows)


class SettledSearch(LayeredSearch):
    """Ascent in cycles, from where the layers start; one cycle where a number of steps is asked for."""

    even = True
    slow = False
    """Whether the last layer follows slowly."""

    def __init__(self, problem: Problem, start: Groups) -> None:
        super().__init__(problem, start)
        self.ends: list[tuple[float, Place]] = []
        """The bound where it starts and at the end of every cycle, by the same samples, and the place."""

    def run(self) -> str:
        """Cycle after cycle, until one gains next to nothing, or all steps are done."""
        steps = self.problem.choice.steps
        self.ends = [self._end()]
        while self.done < steps:
            self.begun, self.length = self.done, self._cycle()
            message = self._until(self.done + self.length)
            if message != ALL_DONE:
                return message
            before = max(value for value, _ in self.ends)
            self.ends.append(self._end())
            self.point, self.last, self.memory = self._best()
            self.gain = self.ends[-1][0] - before
            if self.gain <= self.slight and len(self.ends) >= FEWEST:
                few = plural(self.slight, "nat", ".2g")
                return self._again() or f"converged: {self.length} more steps have raised the bound by less than {few}"
        return self._again() or ALL_DONE

    def _again(self) -> str:
        """Without samples, from the start once more with a last layer that follows slowly, and then wholly.

        Variables of rows that a last layer at its best holds where they began find other places so, by tens of nats
        better or worse: the better end is kept. What it was stopped by, if anything.
        """
        if self.problem.choice.samples or self.problem.options.steps:
            return ""
        length, self.problem.monitor.steps = self.length, self.done + 2 * self.length
        self.point, self.last, self.memory = self.ends[0][1]
        for self.slow in (True, False):
            self.begun, self.length = self.done, length
            message = self._until(self.done + length)
            if message != ALL_DONE:
                return message
        self.ends.append(self._end())
        self.point, self.last, self.memory = self._best()
        return ""

    def finish(self) -> Result:
        """The best end of a cycle, or where it is, whichever has the higher bound."""
        self.ends.append(self._end())
        self.point, self.last, self.memory = self._best()
        found = self._result(*self._assessed())
        return self._told(found) if self.problem.options.steps else replace(found, notes=self._notes())

    def state(self) -> Result:
        """Where it is, or where a cycle has ended higher."""
        best, place = max(self.ends[1:], key=lambda end: end[0], default=(-np.inf, None))
        return self._result(best, 0.0, place) if best > self.problem.monitor.last else super().state()

    def _end(self) -> tuple[float, Place]:
        value = self._assessed()[0]
        return value if np.isfinite(value) else -np.inf, (self.point, self.last, self.memory)

    def _best(self) -> Place:
        return max(self.ends, key=lambda end: end[0])[1]

    def _cycle(self) -> int:
        """Steps of the next cycle."""
        steps = self.problem.choice.steps
        return min(steps if self.problem.options.steps else -(-steps // CYCLES), steps - self.done)

    def _notes(self) -> tuple[str, ...]:
        """A note where the last cycle of all has gained more than a little."""
        steps = self.problem.choice.steps
        if self.done < steps or len(self.ends) < FEWEST or self.gain <= self.slight:
            return ()
        gain = plural(self.gain, "nat", ".2g")
        return (rises(f"the last {self.length} of {steps} steps have raised it by {gain}", steps),)

    def _lengths(self, steps: np.ndarray) -> Float[np.ndarray, "steps 2"]:
        """How far Adam goes, and the last layer: less in the end, where it would follow the noise of single passes."""
        program, lengths = self.problem.program, super()._lengths(steps)
        if self.slow:
            return lengths
        noisy = self.problem.choice.samples and inner_width(program) > 1
        fall = np.minimum(LATE * lengths[:, 1] / SHARE, 1.0) if noisy else np.ones(len(steps))
        return np.stack([lengths[:, 0], fall * (1.0 if program.conjugate else NEAR)], axis=1)

    def _seen(self, point: State, last: Any, rows: Rows, key: Array, share: Array) -> tuple[Array, State, Any]:
        """The bound and its slope where the last layer is at its best, or nearer to it; and that last layer."""
        expected = self._expected()
        known = jax.lax.stop_gradient(point)

        def value(given: Any) -> Array:
            return self._value(known, given, rows, key, expected)

        slope = jax.grad(value)({place: each.gaussians() for place, each in last.items()})
        last = {place: each.moved(slope[place], share) for place, each in last.items()}
        given = {place: each.gaussians() for place, each in last.items()}
        found, gradient = jax.value_and_grad(self._value)(point, given, rows, key, expected)
        return found - sum(each.divergence(given[place]) for place, each in last.items()), gradient, last
