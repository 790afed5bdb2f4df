"""How far too few inducing points have bent the hyperparameters, by dense inference on patches of rows.

Inducing points that cannot follow a function explain it as noise, over longer length-scales: at such hyperparameters
they leave little open and seem to lose little (a Matern 3/2 series over 1000 length-scales, 200 points: 100 nats, and
3,000 in fact). Rows that lie side by side tell: dense inference on them finds other hyperparameters, and a higher
evidence than those of the fit give the same rows. What it gains in a row all rows would, if patches are like the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.inducing.start import first_numbers
from gpdsl.inference.infer import infer
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.problem import Result, as_arrays
from gpdsl.program.program import Program, at_values

REGIONS, REGION = 6, 50
"""Patches of neighbouring rows, and rows in each."""

FEW = 600
"""Rows up to which dense inference looks at all of them, and says what is lost by itself."""

STEPS = 40
"""Most steps of a search on the patches, which need not end at the last digit."""


@dataclass(frozen=True)
class Bending:
    """Nats that all rows would gain by hyperparameters that dense inference on patches finds, and a program there."""

    nats: float
    program: Program


def bending(program: Program, data: Data, options: Options, choice: Choice) -> Bending:
    """For a program whose parameters start where a fit has put them; nothing where it learns none."""
    if not program.parameters.initial:
        return Bending(0.0, program)
    index = patches(data)
    some, quick, known = data.take(index), _quick(options, choice), program.parameters
    held = replace(program, parameters=replace(known, initial={}, held={**known.held, **known.initial}))
    try:
        here, found = infer(held, some, quick)[0], infer(program, some, quick)[0]
    except GpdslError:  # nothing that can be said of patches: what is lost is what is open
        return Bending(0.0, program)
    gained = found.elbo - here.elbo - sum(np.size(value) for value in known.initial.values())
    if not (np.isfinite(gained) and gained > 0):
        return Bending(0.0, program)
    return Bending(float(gained) * data.rows / len(index), _at(program, found, options))


def dense_gain(program: Program, data: Data, options: Options, choice: Choice, elbo: float) -> Bending | None:
    """What dense inference gains on all rows, where these are few; None where they are not, or it fails."""
    if data.rows > FEW:
        return None
    try:
        found = infer(program, data, _quick(options, choice))[0]
    except GpdslError:
        return None
    return Bending(max(found.elbo - elbo, 0.0), _at(program, found, options)) if np.isfinite(found.elbo) else None


def _quick(options: Options, choice: Choice) -> Options:
    """Dense inference, not to the last digit."""
    posterior = "full" if choice.posterior == "coupled" else choice.posterior
    dense = replace(options, inducing=0, batch=0, learn_inducing=False, devices=None)
    return replace(dense, posterior=posterior, steps=STEPS, tolerance=1e-6)


def _at(program: Program, found: Result, options: Options) -> Program:
    """The program, whose parameters start where a search has ended."""
    return at_values(program, program.parameters.constrain(as_arrays(found.parameters, options.dtype)))


def patches(data: Data) -> Int[np.ndarray, "rows"]:
    """Numbers of rows in some patches: neighbours of rows that their values choose, by columns of unit spread."""
    columns: list[Any] = [np.asarray(a, float).reshape(data.rows, -1) for a in jax.tree.leaves(dict(data.inputs))]
    inputs = np.concatenate(columns, axis=1) if columns else np.zeros((data.rows, 1))
    spread = inputs.std(axis=0)
    scaled = inputs / np.where(spread > 0, spread, 1.0)
    found: list[np.ndarray] = []
    for middle in first_numbers(inputs)[:REGIONS]:
        far = np.sum((scaled - scaled[middle]) ** 2, axis=1)
        found.append(np.argpartition(far, min(REGION, data.rows - 1))[:REGION])
    return np.unique(np.concatenate(found))
