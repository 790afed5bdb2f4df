"""What keeps a start on few rows sensible: priors so weak that they speak only where those rows say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import sympy as sp

from gpdsl.inference.problem import Problem, as_numpy
from gpdsl.program.priors import Prior
from gpdsl.program.program import Program
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref, axis_key

REACH = 3.0
"""Standard deviation of the logarithm of a positive parameter around its start: a factor of 20."""

RESOLUTION = 1e-3
"""Error of the outputs that the noise must cover, in their standard deviations: single precision fits no closer."""


def restrained(problem: Problem) -> Program:
    """The program with weak priors of what has none: a MAP estimate from its rows stays finite.

    Some rows alone say of a column that does not matter only that its length-scale is large, and of outputs without
    noise that there is none; the logarithm of the first goes to any number, and with the second no step is stable.
    """
    return replace(
        problem.program, priors={**_near_the_start(problem.program), **problem.program.priors, **_noise(problem)}
    )


def _near_the_start(program: Program) -> dict[str, Prior]:
    """A log-normal prior of each learnt positive parameter."""
    translator, found = program.translator, {}
    for name, start in program.parameters.initial.items():
        param = translator.declarations.params[name]
        if param.constraint == "positive" and np.all(start > 0):
            keys = tuple(map(axis_key, param.axes))
            value = translator.symbol(Ref("param", name, keys), positive=True)
            centre = float(np.mean(np.log(start)))
            found[name] = Prior(-(((sp.log(value) - centre) / REACH) ** 2) / 2, keys)
    return found


def _noise(problem: Problem) -> dict[str, Prior]:
    """What independent errors of the outputs take from the expected log likelihood: their variance times n p / 2.

    p is the precision of the observation, where it is Gaussian and no number of the rows is in it.
    """
    if not problem.program.conjugate:
        return {}
    rows, found = problem.rows, {}
    for observation in problem.program.observations:
        for precision in _precisions(problem.program, observation):
            name = observation.outputs[0]
            values, known = as_numpy((rows.outputs[name], rows.observed[name]))
            seen = np.asarray(values, float)[known > 0]
            spread = RESOLUTION * float(np.std(seen))
            found[f"noise of {name}"] = Prior(-problem.count * spread**2 * precision / 2, ())
    return found


def _precisions(program: Program, observation: ObservationTerms) -> Iterator[sp.Expr]:
    """Minus the second derivative of the log density in its output, where that reads parameters without axes alone."""
    references = program.translator.references
    for symbol in observation.log_density.free_symbols:
        if references[symbol].kind == "output":
            precision = -sp.diff(observation.log_density, symbol, 2)
            read = [references[each] for each in precision.free_symbols]
            if read and all(ref.kind == "param" and not ref.positions for ref in read):
                yield precision
