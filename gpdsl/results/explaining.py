"""`Model.explain`: bind the data, make the program, decide, and say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpdsl.forward.described import explain_externals
from gpdsl.inference.engines import plan
from gpdsl.inference.fields.plan import explain_fields
from gpdsl.inference.layered.explain import explain_layers
from gpdsl.inference.plan.explain import explain
from gpdsl.inference.plan.explain_kernels import explain_kernels
from gpdsl.inference.quadruply_stochastic.explain import explain_weights
from gpdsl.inference.sharding import shards_for
from gpdsl.program.precision import precision
from gpdsl.program.standardise import Asked
from gpdsl.program.white import training
from gpdsl.results.fitting import Columns, on_device, prepare

if TYPE_CHECKING:
    from gpdsl.model import Model


def explain_model(model: Model, data: Any, columns: Columns, given: Mapping[str, Any], asked: Asked) -> str:
    """See `Model.explain`."""
    program, bound, options = prepare(model, data, columns, given, asked=asked)
    with precision(options.dtype), on_device(options.device):
        if program.fields:
            planned = explain_fields(program, bound, options)
        else:
            decided = plan(program, bound, options)
            shards_for(options.devices, decided.layout.dense, program.opaque)
            if program.inner:
                planned = explain_layers(training(program, dense=False), options, decided, bound.rows)
            elif decided.choice.weights is not None:
                planned = explain_weights(program, options, decided.choice, bound.rows)
            else:
                shown = program if decided.choice.exact else training(program, dense=decided.choice.dense)
                planned = explain(shown.under(decided.choice.posterior), options, decided, bound.rows)
    called = [program.externals[name] for name in sorted({use.function for use in program.uses()})]
    return "\n".join([planned, *explain_externals(called), *explain_kernels(model.declarations)])
