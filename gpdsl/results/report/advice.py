"""What to look at next: notes, the diagnosis, warnings about the model, and predictions that miss the data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from gpdsl.inference.inducing.loss import Loss
from gpdsl.results.fit import Fit
from gpdsl.results.pictures.checks import FURTHEST, outputs_seen, part_of
from gpdsl.results.pictures.rows import Seen
from gpdsl.results.pit import places_drawn
from gpdsl.results.summary import own_doubts, too_few
from gpdsl.symbolic.checking import all_warnings

INSIDE, CHANCE, FAR = 0.9, 1e-3, 4.5
"""A central interval, how seldom chance alone may explain its share of the data, and how far a row may lie off."""


def advice(fit: Fit, seen: Seen | None) -> list[str]:
    """Sentences, the most urgent first; none where nothing is to be said."""
    said = [*fit.notes]
    if fit.interrupted:
        said.append(f"The fit was interrupted ({fit.message}): go on from it with start=.")
    elif "; " in fit.message:
        said.append(f"The optimiser ended so: {fit.message}.")
    if fit.inducing_loss is not None and not fit.choice.exact and not Loss(fit.inducing_loss, fit.rows).small:
        said.append(too_few(fit))
    said += own_doubts(fit)
    if seen is not None and seen.data is not None:
        said += _misses(seen)
    warned = [*all_warnings(fit.program.declarations)]
    return [*dict.fromkeys(said), *(f"Line {each.span.line} of the model: {each.message_text()}" for each in warned)]


def _misses(seen: Seen) -> Iterator[str]:
    """Where intervals hold too few or too many of the data, and rows far outside."""
    names = outputs_seen(seen)
    if not names:
        return
    part, prediction = part_of(seen)
    for name in names:
        output = seen.fit.program.declarations.outputs[name]
        values = part.observed(name)
        if output.label is not None or output.kind == "binary" or values is None:
            continue
        found = places_drawn(prediction, name, values)
        found = found[np.isfinite(found)]
        inside = int(np.sum(np.abs(found - 0.5) <= INSIDE / 2))
        share = inside / len(found)
        if binom.cdf(inside, len(found), INSIDE) < CHANCE:
            yield (
                f"90% intervals of `{name}` hold {share:.0%} of its values: they are too narrow. Heavier tails "
                "(StudentT, NegBinomial), noise that varies, or a kernel with shorter length-scales may suit."
            )
        elif binom.sf(inside - 1, len(found), INSIDE) < CHANCE:
            yield f"90% intervals of `{name}` hold {share:.0%} of its values: they are wider than the data ask for."
        away = np.abs(ndtri(np.clip(found, FURTHEST, 1 - FURTHEST)))
        if np.any(away > FAR):
            many = int(np.sum(away > FAR))
            yield (
                f"{many} value{'s' if many > 1 else ''} of `{name}` lie{'' if many > 1 else 's'} further off than a "
                f"normal residual of {FAR:g}: look at these rows, or give the noise heavier tails."
            )
