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
from gpdsl.symbolic.laws import ROUNDED
from gpdsl.symbolic.terms import ObservationTerms

REMEDIES: Mapping[str, str] = {
    "Truncated": "where no value can be; correct the value or the bound, or use `Censored` when values {word} the "
    "bound were recorded as the bound",
    "Censored": "where values {word} it are recorded as the bound itself; record the bound for this row, or correct "
    "the bound",
}
"""Why a value beyond a bound cannot be, and what to do."""


def refuse_outside(evaluator: RowEvaluator, o: ObservationTerms, rows: Rows) -> None:
    """Raise GpdslError for the first value beyond a bound of its distribution; bounds themselves are allowed.

    Of a transformed output it is the transform that is compared, where it depends on no parameter.
    """
    law, name = o.law, o.outputs[0]
    if law is None or law.name not in REMEDIES or name not in rows.outputs or _learnt(evaluator, o):
        return
    observed, known = (
        np.asarray(align(jnp.asarray(table[name]), o.positions, o.axes)) for table in (rows.outputs, rows.observed)
    )
    values, shown, slack = observed, "", 0.0
    if o.warp is not None:
        values = np.broadcast_to(evaluator(o.warp.value, Scope({}, rows), o.axes), observed.shape)
        shown, slack = ", transformed,", float(ROUNDED)
    for side, beyond, word, sign in (("lower", np.less, "below", -1.0), ("upper", np.greater, "above", 1.0)):
        if side not in law.arguments:
            continue
        bound = np.broadcast_to(evaluator(law.arguments[side], Scope({}, rows), o.axes), values.shape)
        allowed = (bound + sign * slack * np.abs(bound)).astype(values.dtype)
        wrong = np.argwhere((known > 0) & beyond(values, allowed))
        if len(wrong):
            at = tuple(wrong[0])
            raise GpdslError(
                f"output `{name}`, row {at[0] + 1}: {observed[at]:g}{shown} lies {word} {float(bound[at]):g}, "
                f"the {side} bound of `{law.name}`, {REMEDIES[law.name].format(word=word)}"
            )


def _learnt(evaluator: RowEvaluator, o: ObservationTerms) -> bool:
    """Whether the transform of the output depends on parameters."""
    symbols = () if o.warp is None else o.warp.value.free_symbols
    return any(evaluator.translator.references[symbol].kind == "param" for symbol in symbols)
