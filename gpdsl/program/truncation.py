"""Observed values outside the bounds of a distribution, which it cannot have: refused with the row.

Bounds are made of numbers, constants and inputs, and so are known before anything is learnt. The trials of a binomial
distribution are such a bound.
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
    "Uniform": "where no value can be; correct the value or the bound",
    "Binomial": "of which no more can succeed; correct the value or the number of trials, or use `Poisson` or "
    "`NegativeBinomial` for counts without a largest one",
}
"""Why a value beyond a bound cannot be, and what to do."""

SIDES = (
    ("lower", "lower bound", np.less, "below", -1.0),
    ("upper", "upper bound", np.greater, "above", 1.0),
    ("trials", "number of trials", np.greater, "above", 1.0),
)
"""The argument that is a bound, how it is called, and what lies beyond it in which direction."""

DATA = {"input", "const", "output", "observed", "index"}
"""Kinds of what is known before a fit."""


def refuse_outside(evaluator: RowEvaluator, o: ObservationTerms, rows: Rows) -> None:
    """Raise GpdslError for the first value beyond a bound of its distribution; bounds themselves are allowed.

    Of a transformed output it is the transform that is compared, where it depends on no parameter.
    """
    law, name = o.law, o.outputs[0]
    if law is None or law.name not in REMEDIES or name not in rows.outputs or not _known(evaluator, o):
        return
    observed, known = (
        np.asarray(align(jnp.asarray(table[name]), o.positions, o.axes)) for table in (rows.outputs, rows.observed)
    )
    values, shown, slack = observed, "", 0.0
    if o.warp is not None:
        values = np.broadcast_to(evaluator(o.warp.value, Scope({}, rows), o.axes), observed.shape)
        shown, slack = ", transformed,", float(ROUNDED)
    for side, what, beyond, word, sign in SIDES:
        if side not in law.arguments:
            continue
        bound = np.broadcast_to(evaluator(law.arguments[side], Scope({}, rows), o.axes), values.shape)
        if side == "trials":
            _refuse_broken(name, bound, known)
        allowed = (bound + sign * slack * np.abs(bound)).astype(values.dtype)
        wrong = np.argwhere((known > 0) & beyond(values, allowed))
        if len(wrong):
            at = tuple(wrong[0])
            raise GpdslError(
                f"output `{name}`, row {at[0] + 1}: {observed[at]:g}{shown} lies {word} {float(bound[at]):g}, "
                f"the {what} of `{law.name}`, {REMEDIES[law.name].format(word=word)}"
            )


def _refuse_broken(name: str, trials: np.ndarray, known: np.ndarray) -> None:
    """Raise GpdslError for the first number of trials that is no whole number from 0."""
    wrong = np.argwhere((known > 0) & ((trials < 0) | (trials != np.floor(trials))))
    if len(wrong):
        at = tuple(wrong[0])
        raise GpdslError(
            f"output `{name}`, row {at[0] + 1}: `Binomial` has {float(trials[at]):g} trials, expected a whole number "
            "from 0; correct the value, or declare the input of trials `count`"
        )


def _known(evaluator: RowEvaluator, o: ObservationTerms) -> bool:
    """Whether neither the transform of the output nor its bounds depend on what is learnt."""
    assert o.law is not None
    formulas = [o.law.arguments[side] for side, *_ in SIDES if side in o.law.arguments]
    formulas += [] if o.warp is None else [o.warp.value]
    symbols = {symbol for formula in formulas for symbol in formula.free_symbols}
    return all(evaluator.translator.references[symbol].kind in DATA for symbol in symbols)
