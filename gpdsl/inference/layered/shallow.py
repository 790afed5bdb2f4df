"""The last layer alone, fitted while the others are what they start as: where the search over all layers begins.

Layers that start near their arguments are almost no layers. What is left is a model of one layer, whose parameters and
posterior are found soon and without noise; from there all layers climb together, where they would otherwise still be
after these when the steps run out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from gpdsl.data import Data, some_rows
from gpdsl.errors import GpdslError
from gpdsl.inference.layered.start import start_layers
from gpdsl.inference.plan.options import Options
from gpdsl.inference.warm import Start
from gpdsl.kernels.numerics import jitter_for
from gpdsl.language import model as m
from gpdsl.language.inducing import per_latent
from gpdsl.program.program import Program, make_program, make_rows
from gpdsl.program.white import training

ROWS = 1_000
"""Rows that tell enough of the parameters."""

Fit = Callable[[Program, Data, Options], Any]


def begins_below(program: Program) -> bool:
    """Whether the last layer can be fitted alone first: no layer starts without row variables, nor opaque functions."""
    return not program.inner & program.declarations.rows.keys() and not program.opaque


def from_the_last_layer(
    program: Program, data: Data, options: Options, inducing: Mapping[str, int], fit: Fit
) -> tuple[Program, Start | None]:
    """The program with parameters of a fit of its last layer alone, and that fit to start from.

    `fit` is `infer`. The program as it is where that cannot be; without the fit where that has fewer inducing points
    than `inducing` has by the names of latents, or variables of the rows that it was made of.

    Raises KeyboardInterrupt when the user stops it.
    """
    if not begins_below(program):
        return program, None
    some = data.take(some_rows(data.rows, ROWS, options.seed))
    values = _values(program, some, options)
    declared = program.declarations
    known = {name: m.Input(name, each.span, each.axes) for name, each in declared.latents.items() if name in values}
    shallow = replace(
        declared,
        inputs=MappingProxyType({**declared.inputs, **known}),
        latents=MappingProxyType({name: each for name, each in declared.latents.items() if name not in values}),
    )
    asked = per_latent({name: min(count, some.rows) for name, count in inducing.items()}, shallow.latents)
    chosen = Options(inducing=asked, seed=options.seed, dtype=options.dtype)
    try:
        one = make_program(
            shallow,
            program.sizes,
            program.levels,
            {},
            expectations=options.expectations,
            fixed=options.fixed,
            initial={**program.parameters.initial, **program.parameters.held},
            inducing=asked,
        )
        result, _, choice, jitter = fit(one, replace(some, inputs={**some.inputs, **values}), chosen)
    except GpdslError:  # whatever ails one layer is told of all
        return program, None
    if result.interrupted:
        raise KeyboardInterrupt  # before the first state of all layers
    found = {name: np.asarray(value) for name, value in one.parameters.constrain(result.parameters).items()}
    initial = {name: found[name] for name in program.parameters.initial}
    program = replace(program, parameters=replace(program.parameters, initial=initial))
    wanted = [inducing.get(group.names[0]) for group in one.groups]
    fewer = any(len(points) != count for points, count in zip(result.inducing, wanted, strict=True))
    if choice.dense or choice.exact or len(result.weights) > 1 or declared.rows or fewer:
        return program, None
    posterior = result.inducing, result.posterior, result.weights
    return program, Start(training(one, dense=False), found, *posterior, jitter, False)


def _values(program: Program, data: Data, options: Options) -> Mapping[str, np.ndarray]:
    """The values at which the inner layers start."""
    rows, jitter = make_rows(program, data), jitter_for(np.dtype(options.dtype))
    return start_layers(program, rows, [1] * len(program.groups), jitter, options.seed)[2]
