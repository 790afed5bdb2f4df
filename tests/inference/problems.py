"""The problems of small models, for tests of one engine's parts, and fits without one, for tests of what fits say.

What is said of a posterior holds for any: to compile what would learn one takes most of the time of such a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.inference.ascent.lbfgs import ENDINGS
from gpdsl.inference.driver import Task
from gpdsl.inference.infer import plan, trained
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Found, Monitor, Problem, Result, as_arrays
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.program import make_rows
from gpdsl.results import fitting
from gpdsl.results.criticism import findings
from gpdsl.results.criticism.finding import Finding
from gpdsl.results.fitting import prepare


def problem_of(model: gpdsl.Model | str, data: Mapping[str, np.ndarray], **given: Any) -> Problem:
    """What `fit` would hand to an engine, at the declared parameters."""
    compiled = gpdsl.compile(model) if isinstance(model, str) else model
    program, bound, options = prepare(compiled, data, {}, given)
    planned = plan(program, bound, options)
    program = program.coupling if planned.choice.posterior == "coupled" else program
    numbered = replace(make_rows(program, bound), numbers=np.arange(bound.rows))
    arrays = numbered, program.parameters.unconstrained(), planned.inducing
    rows, start, inducing = as_arrays(arrays, options.dtype)
    chosen, jitter = (planned.layout, planned.choice, options), jitter_for(np.dtype(options.dtype))
    return Problem(program, rows, bound.rows, *chosen, start, inducing, jitter, Monitor(1))


def unlearnt(model: gpdsl.Model | str, data: Any, *, spread: float = 0.3, **options: Any) -> gpdsl.Fit:
    """A fit at the declared parameters, whose posterior of whitened values is one that a random generator has drawn.

    Their standard deviations are about `spread`, and those of one latent are correlated, or of all where the plan is
    to couple them. What is exact is fitted.
    """
    compiled, rng = gpdsl.compile(model) if isinstance(model, str) else model, np.random.default_rng(0)
    learn = fitting.infer_growing

    def infer(task: Task) -> Found:
        program, options = task.program, task.options
        planned = plan(program, task.data, options)
        if planned.choice.exact:
            return learn(task)
        start, count = program.parameters.unconstrained(), planned.layout.family.components
        trained_one = trained(program, planned.choice)
        shapes = [(count, g.size, len(z)) for g, z in zip(trained_one.groups, planned.inducing, strict=True)]
        width = sum(size * points for _, size, points in shapes) if trained_one.coupled else 0
        posterior = []
        for group, shape in zip(trained_one.groups, shapes, strict=True):
            columns = 1 if group.per_row else width or shape[-1]
            root = rng.uniform(0.5, 1.5, (*shape, columns))
            if not group.per_row:
                root *= rng.standard_normal(root.shape) / np.sqrt(columns)
            posterior.append(Whitened(rng.standard_normal(shape), spread * root))
        found = list(planned.inducing), posterior, rng.dirichlet(np.ones(count))
        result = Result(dict(start), *found, -1.0, 0.0, ENDINGS[1])
        monitor = Monitor(2)
        monitor.report(1, -2.0)
        monitor.report(2, -1.0)
        return Found(result, monitor, planned.choice, jitter_for(np.dtype(options.dtype)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "infer_growing", infer)
        return compiled.fit(data, progress=False, **options)


def looked_at(fit: gpdsl.Fit, data: Any, *names: str) -> dict[str, Finding]:
    """What these looks of a diagnosis find by themselves, where they may cost what they like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "LOOKS", {name: findings.LOOKS[name] for name in names})
        return {each.name: each for each in fit.diagnose(data)}
