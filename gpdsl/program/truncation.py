"""Observed values outside the bounds of a distribution, which it cannot have: refused with the row.

Bounds are made of numbers, constants and inputs, and so are known before anything is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from gpdsl.errors import GpdslError
from gpdsl.lowering.table import align
from gpdsl.program.rows import RowEvaluator, Rows, Scope
from gpdsl.symbolic.terms import ObservationTerms

REMEDIES: Mapping[str, str] = {
    "Truncated": "where no value can be; correct the value or the bound, or use `Censored` when values {word} the "
    "bound were recorded as the bound",
    "Censored": "where values {word} it are recorded as the bound itself; record the bound for this row, or correct "
    "the bound",
}
"""Why a value beyond a bound cannot be, and what to do."""


def refuse_outside(evaluator: RowEvaluator, o: ObservationTerms, rows: Rows) -> None:
    """Raise GpdslError for the first value beyond a bound of its distribution; bounds themselves are allowed."""
    law, name = o.law, o.outputs[0]
    if law is None or law.name not in REMEDIES or o.warp is not None or name not in rows.outputs:
        return
    values, known = (
        np.asarray(align(jnp.asarray(table[name]), o.positions, o.axes)) for table in (rows.outputs, rows.observed)
    )
    for side, beyond, word in (("lower", np.less, "below"), ("upper", np.greater, "above")):
        if side not in law.arguments:
            continue
        bound = np.broadcast_to(evaluator(law.arguments[side], Scope({}, rows), o.axes), values.shape)
        wrong = np.argwhere((known > 0) & beyond(values, bound.astype(values.dtype)))
        if len(wrong):
            at = tuple(wrong[0])
            raise GpdslError(
                f"output `{name}`, row {at[0] + 1}: {values[at]:g} lies {word} {float(bound[at]):g}, the {side} bound "
                f"of `{law.name}`, {REMEDIES[law.name].format(word=word)}"
            )
