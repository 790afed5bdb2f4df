"""Predictions by layers given outputs of some rows: passes through the layers, conditioned and weighed.

In a pass the latents that others are functions of are drawn at known and new rows together; given these, the last ones
are jointly Gaussian, and conditioned on the known outputs as those of one layer are. What the posterior says then is
the mixture of passes, weighed by the evidence p(known outputs | pass).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.coupled import MOST, Block
from gpdsl.inference.posteriors.posterior import Given, Posterior, filled_up
from gpdsl.results import expectation as ex
from gpdsl.results.given import SAMPLES, Conditional, Expected, conditional, expected_of, marginals_of
from gpdsl.symbolic.readings import OWN

PASSES, ENOUGH, FEWEST = (4096, 32768), 512.0, 30.0
"""Passes that are tried, until so many count; and below how many of them nothing is said."""

TOGETHER, AT_ONCE = 1024, 1 << 22
"""Passes that are conditioned at a time, at most, and numbers in their covariances."""

Prior = Callable[[np.ndarray], np.ndarray]
"""Covariances between new rows in some passes."""


def weighed(beliefs: ex.Beliefs, count: int, posterior: Posterior) -> ex.Beliefs:
    """Beliefs about all rows but the first `count`, whose outputs are known.

    Raises GpdslError for too many rows, latents read in other ways, and outputs that next to no pass could explain.
    """
    program, new = beliefs.program, beliefs.part(slice(count, beliefs.count))
    for group in program.groups:
        if group.readings.all != (OWN,):
            raise GpdslError(
                f"given: `{group.names[0]}` is read at several places, and passes through layers at one; fit all rows "
                "together, `model.fit(all_rows, start=fit)`"
            )
    coupling = program.coupling
    passes = _enough(Passes(beliefs, posterior, count, expected_of(beliefs.part(slice(0, count)), coupling), PASSES[0]))
    dtype, own = beliefs.marginals.mean.dtype, np.asarray(passes.columns)
    among = np.zeros((*passes.mean.shape, program.latents))
    among[..., own[:, None], own] = passes.among
    told = marginals_of(coupling, jnp.asarray(passes.mean, dtype), jnp.asarray(among, dtype))
    alone = len(own) == 1  # all other latents are what they are in a pass
    return replace(
        new,
        program=program if alone else coupling,
        marginals=replace(told, covariance=None) if alone else told,
        weights=passes.weights,
        start=0,
        blocks=passes.blocks,
        drawn=None,
        functions=passes.draws,
    )


@dataclass(frozen=True, eq=False)
class Passes:
    """So many passes of all rows, of which the first are `known`, each conditioned on what these are."""

    beliefs: ex.Beliefs
    posterior: Posterior
    known: int
    expected: Expected
    count: int

    @cached_property
    def _places(self) -> dict[int, np.ndarray]:
        """Where groups of latents that no other is a function of stand among the `columns`."""
        program, places, start = self.beliefs.program, {}, 0
        for place, group in enumerate(program.groups):
            if not set(group.names) & program.inner:
                places[place], start = np.arange(start, start + group.size), start + group.size
        return places

    @cached_property
    def columns(self) -> list[int]:
        """Of the latents that no other is a function of."""
        groups = [self.beliefs.program.groups[place] for place in self._places]
        return [column for group in groups for column in range(group.start, group.stop)]

    def _starts(self) -> range:
        """The numbers of the first passes of those that are conditioned together, powers of two."""
        program, count = self.beliefs.program, self.beliefs.count
        each = SAMPLES * self.known * program.latents if program.sampled else 0
        most = AT_ONCE // max(each, program.latents * count * max(count, program.latents * self.known))
        return range(0, self.count, min(TOGETHER, 1 << max(0, most.bit_length() - 1)))

    def _told(self, start: int) -> Iterator[tuple[int, Conditional, Float[np.ndarray, "S columns rows"], Prior]]:
        """Of the passes from a number on, some at a time: the first of them, what is said of them and prior variances.

        And what tells prior covariances between new rows in some of them.
        """
        beliefs, program = self.beliefs, self.beliefs.program
        rng, count = np.random.default_rng([beliefs.seed, start]), self.known
        for mean, given in self.posterior.passes_together(program, beliefs.rows, self._starts().step, rng):
            across = np.zeros((len(mean), len(self.columns), beliefs.count, len(self.columns), count))
            variance = np.zeros((len(mean), len(self.columns), beliefs.count - count))
            for place, own in self._places.items():
                group = program.groups[place]
                moments, beside, alone = given(place, mean, count)
                mean[..., group.start : group.stop], variance[:, own] = moments, alone[..., count:]
                for number, column in enumerate(own):
                    across[:, column, :, column] = beside[:, number]
            prior = partial(self._prior, mean, given)
            yield start, conditional(mean, across, self.columns, self.expected), variance, prior
            start += len(mean)

    def _prior(
        self, mean: Float[np.ndarray, "S every latents"], given: Given, chosen: np.ndarray
    ) -> Float[np.ndarray, "chosen columns rows columns rows"]:
        """Covariances between new rows in some passes, before outputs are known."""
        found = np.zeros((len(chosen), *(len(self.columns), self.beliefs.count - self.known) * 2))
        filled = chosen[filled_up(len(chosen), 1 << (len(chosen) - 1).bit_length())]  # few programs serve all numbers
        for place, own in self._places.items():
            _, among = given(place, mean[filled])
            for number, column in enumerate(own):
                found[:, column, :, column] = among[: len(chosen), number, self.known :, self.known :]
        return found

    @cached_property
    def _found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts, among, each = [], [], np.arange(len(self.columns))
        for start in self._starts():
            for _, told, variance, _ in self._told(start):
                prior = np.zeros((*told.mean.shape[:2], len(each), len(each)))
                prior[..., each, each] = np.swapaxes(variance, 1, 2)
                parts.append(told)
                among.append(told.among(prior))
        return tuple(map(np.concatenate, ([told.mean for told in parts], among, [told.bound for told in parts])))  # type: ignore[return-value]

    @property
    def mean(self) -> Float[np.ndarray, "S rows latents"]:
        """Of all latents at the new rows."""
        return self._found[0]

    @property
    def among(self) -> Float[np.ndarray, "S rows columns columns"]:
        """Covariances of the last latents in each new row."""
        return self._found[1]

    @cached_property
    def weights(self) -> Float[np.ndarray, " S"]:
        """Of the passes, by the evidence of what is known."""
        weights = np.exp(self._found[2] - self._found[2].max())
        return weights / weights.sum()

    @property
    def effective(self) -> float:
        """How many passes of one weight tell as much."""
        return float(1.0 / np.sum(self.weights**2))

    def _covariances(
        self, wanted: np.ndarray
    ) -> Iterator[tuple[np.ndarray, Float[np.ndarray, "passes columns rows columns rows"]]]:
        """Of the last latents at all new rows, in the passes of these numbers, in order, some at a time."""
        steps, room = self._starts(), max(1, AT_ONCE // (len(self.columns) * self.beliefs.count) ** 2)
        for first in np.unique(wanted - wanted % steps.step):
            for start, told, _, prior in self._told(int(first)):
                here = wanted[(wanted >= start) & (wanted < start + len(told.mean))]
                for some in range(0, len(here), room):
                    these = here[some : some + room]
                    yield these, told.part(these - start).covariance(prior(these - start))

    def draws(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "draws rows latents"]:
        """Draws of all latents at all new rows together: of a pass, and of the last ones in it."""
        chosen = rng.choice(self.count, size=count, p=self.weights)
        latents = self.mean[chosen]
        for these, covariance in self._covariances(np.unique(chosen)):
            block = Block(tuple(self.columns), covariance)
            for number, one in enumerate(these):
                root, own = block.root(number), np.flatnonzero(chosen == one)
                moved = rng.standard_normal((len(own), root.shape[1])) @ root.T
                places = np.ix_(own, np.asarray(self.columns), np.arange(latents.shape[1]))
                np.swapaxes(latents, 1, 2)[places] += moved.reshape(len(own), len(self.columns), -1)
        return latents

    def blocks(self) -> list[Block]:
        """One block of all latents: covariances in a pass, on average, and of the means of passes."""
        weights, shape = self.weights, (self.mean.shape[2], self.mean.shape[1])
        flat = np.swapaxes(self.mean, 1, 2).reshape(self.count, -1)
        away = flat - weights @ flat
        total, rows = ((weights[:, None] * away).T @ away).reshape(*shape, *shape), np.arange(shape[1])
        own = np.asarray(self.columns)
        for these, found in self._covariances(np.arange(self.count)):
            total[np.ix_(own, rows, own, rows)] += np.tensordot(weights[these], found, axes=1)
        return [Block(tuple(range(shape[0])), total[None])]


def _enough(passes: Passes) -> Passes:
    """As many passes as it takes for some to count. Raises GpdslError where next to none do."""
    room = MOST // (passes.beliefs.count * passes.beliefs.program.latents**2)
    for count in PASSES[1:]:
        hopeless = passes.effective * count < FEWEST * passes.count
        if passes.effective < ENOUGH and count <= room and not hopeless:
            passes = replace(passes, count=count)
    if not passes.effective >= FEWEST:  # nor where it is not a number
        raise GpdslError(
            f"given: of {passes.count} passes through the layers these outputs leave {passes.effective:.0f} that "
            f"count, and {FEWEST:.0f} are needed; give fewer rows, or fit all rows together, "
            "`model.fit(all_rows, start=fit)`"
        )
    return passes
