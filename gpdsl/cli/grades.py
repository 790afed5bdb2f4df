"""Outputs of ordered levels in a first model, and the words that tell of them where levels may be ordered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from gpdsl.data.looks import GRADES, Look
from gpdsl.data.values import Level


def index_of(levels: Sequence[Level]) -> str:
    """The statement that lists them, the lowest first."""
    if not isinstance(levels[0], str):
        return f"index c in 1..{len(levels)}"
    return "index c in {" + ", ".join(f'"{each}"' for each in levels) + "}"


def cutpoints(target: Look, levels: Sequence[Level]) -> str:
    """The declaration of what divides the levels: it starts where a latent of no effect gives each its share."""
    texts = [str(each) for each in target.known] if target.kind == "text" else target.known.astype(int).tolist()
    shares = np.cumsum([texts.count(each) for each in levels])[:-1] / len(texts)
    starts = [round(1.5 * NormalDist().inv_cdf(float(each)), 2) for each in shares]
    value = f" = [{', '.join(f'{each:g}' for each in starts)}]" if len(set(starts)) == len(starts) else ""
    return f"param cut : ordered[{len(starts)}]{value}    # between the levels"


def if_grades(y: str, target: Look, predictor: str) -> tuple[str, ...]:
    """How levels that may be ordered are told to be, as comments; nothing of others."""
    levels: Sequence[Level] = target.levels
    if target.kind != "text":
        most = target.known.max()
        if target.known.min() < 1 or not 3 <= most <= GRADES:
            return ()
        levels = range(1, int(most) + 1)
    elif not 3 <= len(levels) <= GRADES or not all(re.fullmatch(r"[\w .+-]{1,20}", str(each)) for each in levels):
        return ()
    what = "the words are" if target.kind == "text" else "these whole numbers are"
    instead = "" if target.kind != "text" else ", in the order that is meant"
    return (
        f"# If {what} grades, from lowest to highest: `{index_of(levels)}`{instead},",
        f"# `output {y} : ordinal[c]`, `param cut : ordered[{len(levels) - 1}]`,",
        f"# `{y} ~ Ordinal(probit = {predictor}, cutpoints = cut)`;",
        f"# `GP(0, ...)` and no `m`{', nor a `[c]` or `,c` behind others' if target.kind == 'text' else ''}.",
    )
