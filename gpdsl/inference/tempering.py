"""beta-VI: the divergence of q from the prior counts beta times (SGPVI section 3.1; Higgins et al. 2017).

Where the log likelihood and the log priors of parameters count 1 / beta, the bound is that of beta-VI over beta:

    E_q[log p(y | f)] - beta KL[q || p] + log p(theta) = beta (E_q[log p] / beta - KL + log p(theta) / beta),

so that every search of variational inference maximises it, over q and over parameters, as it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from gpdsl.data import Data
from gpdsl.inference.driver import Keep
from gpdsl.inference.inducing.growth import infer_growing
from gpdsl.inference.monitor import Monitor, Report
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Found, Result
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program
from gpdsl.symbolic.terms import weighed, with_gradients


def infer_tempered(
    program: Program,
    data: Data,
    options: Options,
    callback: Callable[[Report], None] | None = None,
    start: Start | None = None,
    keep: Keep | None = None,
) -> Found:
    """`infer_growing`, with the divergence of q counted `options.beta` times."""
    beta = options.beta

    def told(report: Report) -> None:
        assert callback is not None
        callback(replace(report, elbo=beta * report.elbo))

    def kept(choice, jitter, monitor, state, ended):  # type: ignore[no-untyped-def]
        assert keep is not None
        keep(choice, jitter, _history(monitor, beta), lambda: _result(state(), beta), ended)

    hears, keeps = None if callback is None else told, None if keep is None else kept
    result, monitor, choice, jitter = infer_growing(tempered(program, beta), data, options, hears, start, keeps)
    return _result(result, beta), _history(monitor, beta), choice, jitter


def tempered(program: Program, beta: float) -> Program:
    """The program whose log likelihood and log priors count 1 / beta."""
    weight, translator = 1 / sp.Rational(str(beta)), program.translator
    observations = tuple(weighed(translator, each, weight, program.expectations) for each in program.observations)
    priors = {name: replace(each, log_density=weight * each.log_density) for name, each in program.priors.items()}
    observations = with_gradients(translator, observations, program.gradients)
    return replace(program, observations=observations, priors=priors)


def _result(result: Result, beta: float) -> Result:
    """What is in nats of the tempered bound, in those of beta-VI's."""
    loss, bounds = result.loss, result.loss_bounds
    return replace(
        result,
        elbo=beta * result.elbo,
        elbo_se=beta * result.elbo_se,
        loss=None if loss is None else replace(loss, nats=beta * loss.nats),
        loss_bounds=None if bounds is None else (beta * bounds[0], beta * bounds[1]),
    )


def _history(monitor: Monitor, beta: float) -> Monitor:
    return replace(monitor, history=[(step, beta * value, seconds) for step, value, seconds in monitor.history])
