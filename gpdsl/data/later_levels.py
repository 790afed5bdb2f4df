"""The levels of later data as a fit knows them: truths in any spelling, and those that look like known ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpdsl.data.columns import Found
from gpdsl.data.convert import TRUTHS, number_of
from gpdsl.data.table import moment_in
from gpdsl.data.values import Level, absent, plain
from gpdsl.errors import GpdslWarning, quoted
from gpdsl.language.model import Declarations


def truths_as(levels: Mapping[str, tuple], declarations: Declarations, founds: Mapping[str, Found]) -> dict[str, Found]:
    """The same columns, with truths as the levels by index have them: truths, words such as TRUE, or 0 and 1."""
    result = dict(founds)
    for name, found in founds.items():
        label = (declarations.inputs.get(name) or declarations.outputs[name]).label
        known = levels.get(label.name or "", ()) if label is not None else ()
        said = {_truth(level): level for level in known}
        words = any(isinstance(level, str) for level in known)
        if None in said or len(said) != len(known) or not (words or found.values.dtype == object):
            continue
        if len(said) < 2 and not {*map(str, known)} & {*TRUTHS}:  # a 1 alone may count
            continue
        flat = found.values.ravel().tolist()
        if all(absent(each) or _truth(each) is not None for each in flat):
            values = np.empty(len(flat), object)
            values[:] = [None if absent(each) else said.get(_truth(each), each) for each in flat]
            result[name] = replace(found, values=values.reshape(found.values.shape))
    return result


def _truth(value: object) -> bool | None:
    """The truth that a level or an entry stands for: False and True in any capitals, 0 and 1; None for others."""
    return {"0": False, "false": False, "1": True, "true": True}.get(
        str(value if isinstance(value, str) else plain(value)).lower()
    )


def warn_of_spellings(column: str, new: Sequence[Level], known: Sequence[Level]) -> None:
    """Warn of levels that an earlier fit has not seen, and that look like one that it has: ` paris` beside `Paris`."""
    if not new:
        return
    seen = {_folded(level): level for level in known}
    for level in new:
        meant = seen.get(_folded(level))
        if meant is not None:
            warnings.warn(
                f"`{column}`: {quoted(level)} is no level that the fit has seen, and follows the prior; did you mean "
                f"{quoted(meant)}?",
                GpdslWarning,
                stacklevel=2,
            )


def _folded(level: Level) -> str:
    """A level whatever its capitals and blanks, as the moment, the truth or the whole number that it stands for."""
    if isinstance(level, str) and (moment := moment_in(level)) is not None:
        return moment.isoformat()
    text = "".join(str(level).split()).casefold()
    text = {"false": "0", "true": "1"}.get(text, text)
    number = number_of(text)
    return str(int(number)) if number is not None and np.isfinite(number) and number == np.floor(number) else text
