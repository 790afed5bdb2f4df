"""`fit.plot`: the kinds of pictures, and which one suits a model."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpdsl.errors import GpdslError, plural, quoted
from gpdsl.language.calls import path_of
from gpdsl.results.fit import Fit
from gpdsl.results.pictures import checks, inference, maps
from gpdsl.results.pictures.maps import finish, one
from gpdsl.results.pictures.rows import Quantity, Seen, apart, quantity, seen_of
from gpdsl.results.pictures.style import abreast, folded, ink, save, share, table, thinned, title_of, verify_matplotlib
from gpdsl.results.table import predictable_outputs
from gpdsl.symbolic.readings import field_quantities

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Many inputs: how a quantity changes along each of them, the others held at their medians or averaged over rows.

GRID, TIME_GRID, OPAQUE_GRID, TRIED, PANELS, SEVERAL = 30, 200, 8, 64, 12, 4
AVERAGED, RUG = 30, 200
"""Rows of the data that are averaged over, and whose places are marked."""


def partial(seen: Seen, names: Sequence[str], others: str) -> Figure:
    """A panel for each input, those along which the first quantity changes most, with the same vertical axes.

    Held: mean and 90% band at the medians of the others. Averaged: the mean over some rows of the data, and a band
    that 90% of them lie in.
    """
    averaged, every = others == "averaged", [*seen.columns, *seen.others]
    tried, chosen = every[:TRIED], thinned(seen.rows, AVERAGED)
    base = {name: values[chosen] for name, values in seen.inputs.items()} if averaged else seen.typical()
    counts = {"time": TIME_GRID} if not seen.fit.program.opaque else {}  # along which there are seasons
    coarse = OPAQUE_GRID if seen.fit.program.opaque else GRID
    most = seen.reach(TIME_GRID, names, len(tried))
    grids = [column.grid(min(counts.get(column.kind, coarse), most), uneven=column.kind == "time") for column in tried]
    made = [seen.moved(base, [column], grid[:, None]) for column, grid in zip(tried, grids, strict=True)]
    prediction = seen.predict({name: np.concatenate([each[name] for each in made]) for name in base})
    count = len(chosen) if averaged else 1
    ends = np.cumsum([0, *(count * len(grid) for grid in grids)])

    def along(whole: Quantity, number: int) -> Quantity:
        part = whole.at(slice(ends[number], ends[number + 1]))
        return part.averaged(count) if averaged else part

    found = [quantity(seen, prediction, name, banded=not averaged) for name in names]
    effects = [np.ptp(along(found[0], number).centre, axis=0).max() for number in range(len(tried))]
    order = np.argsort(effects)[::-1][: PANELS if len(names) == 1 else SEVERAL]
    how = "averaged over rows" if averaged else "at their medians"
    part = f"{len(order)} of {len(every)} inputs, the " if len(order) < len(every) else ""
    others_are = f"\n{part}others {how}" if len(every) > 1 else ""
    figure, panels = table(len(names), len(order), f"{title_of(seen.fit)}{others_are}")
    for whole, line in zip(found, panels, strict=True):
        for place, number in enumerate(order):
            column, panel = tried[number], line[place]
            one(panel, seen, along(whole, number), column, grids[number])
            marks = seen.drawn(column, column.values[thinned(seen.rows, RUG)])
            where = panel.get_xaxis_transform()
            panel.plot(marks, np.full(len(marks), 0.01), "|", color=ink(0.3), ms=4, transform=where)
            finish(panel, seen, whole.name, column, legends=place == abreast(panel) - 1)
    share(panels)
    for whole, line in zip(found, panels, strict=True):
        if whole.kind == "binary":  # from 0 on: the smallest of changes would fill the panel
            top = min(max(2.0 * float(np.mean(whole.centre)), 1.1 * float(np.max(whole.centre))), 1.02)
            line[0].set_ylim(-0.02 * top, top)
    return figure


OTHERS = ("held", "averaged")


@dataclass(frozen=True, eq=False)
class Asked:
    """A picture that is asked for: of a fit, with the data given, of some names."""

    fit: Fit
    data: Any
    given: Sequence[str] | None
    others: str

    @cached_property
    def seen(self) -> Seen:
        """The rows of the data, or those that the posterior remembers."""
        return seen_of(self.fit, self.data, tuple(self.given or ()))

    @property
    def every(self) -> list[str]:
        """Names by default: outputs, lets, latents; nothing that is the same in every row."""
        d = self.fit.program.declarations
        same = field_quantities(d)
        return [name for name in (*predictable_outputs(d), *d.lets, *d.latents) if name not in same]

    @property
    def names(self) -> list[str]:
        """The names asked for, or all."""
        return list(self.given or self.every)

    @property
    def first(self) -> list[str]:
        """The names asked for, or the outputs, or what there is instead of them."""
        return list(self.given or predictable_outputs(self.fit.program.declarations) or self.every)

    def outputs(self, *kinds: str) -> list[str]:
        """The names asked for, or the outputs that the data have, of some kinds.

        Raises GpdslError for other names, and without any.
        """
        declared = self.fit.program.declarations.outputs
        known = [
            n for n in predictable_outputs(self.fit.program.declarations) if not kinds or declared[n].kind in kinds
        ]
        wrong = [name for name in self.given or () if name not in known]
        what = f"outputs of type {' or '.join(kinds)}" if kinds else "outputs with a distribution"
        if wrong or not known:
            has = f"it has {', '.join(known)}" if known else "the model has none"
            raise GpdslError(f"{f'`{wrong[0]}`: ' if wrong else ''}this picture is of {what}; {has}")
        there = [name for name in known if self.data is not None and self.seen.observed(name) is not None]
        return list(self.given or there or known)


def _fields(asked: Asked) -> Figure:
    names = [each.name for each in asked.fit.program.declarations.fields]
    if not names or any(name not in names for name in asked.given or ()):
        raise GpdslError(f"this picture is of fields; the model has {', '.join(names) or 'none'}")
    return maps.fields(asked.fit, asked.given or names)


def _curves(asked: Asked) -> Figure:
    _columns(asked.seen, "curves", 1)
    return maps.curves(asked.seen, asked.names)


def _groups(asked: Asked) -> Figure:
    _columns(asked.seen, "groups", 2)
    if apart(asked.seen.columns) is None:
        raise GpdslError("groups: one of the two inputs must have few labels or whole numbers, which tell groups apart")
    return maps.groups(asked.seen, asked.first)


def _maps(asked: Asked) -> Figure:
    _columns(asked.seen, "maps", 2)
    return maps.maps(asked.seen, asked.names)


def _partial(asked: Asked) -> Figure:
    if not asked.seen.columns:
        raise GpdslError("no input varies in these rows, so nothing changes along one: pass data with several values")
    return partial(asked.seen, asked.first, asked.others)


def _inducing(asked: Asked) -> Figure:
    return inference.inducing(asked.fit, asked.seen if asked.fit.inducing else None)


def _embedding(asked: Asked) -> Figure:
    known = list(asked.fit.program.declarations.rows)
    if not known or any(name not in known for name in asked.given or ()):
        raise GpdslError(f"this picture is of variables of rows; the model has {', '.join(known) or 'none'}")
    if asked.data is None:
        raise GpdslError("embedding: pass the data that were fitted, whose rows it shows")
    return inference.embedding(asked.fit, asked.data, (asked.given or known)[0])


KINDS: Mapping[str, tuple[str, Callable[[Asked], Any]]] = {
    "curves": ("mean, 90% band and data against one input", _curves),
    "groups": (
        "the same in a small panel for each label or whole number of a second input, of few",
        _groups,
    ),
    "maps": ("mean and standard deviation over two inputs, regions of classes", _maps),
    "partial": ("how the outputs change along each input, the others held or averaged", _partial),
    "fields": ("latents over points of their own", _fields),
    "residuals": (
        "randomised quantile residuals of the data",
        lambda asked: checks.residuals(asked.seen, asked.outputs()),
    ),
    "calibration": (
        "how often the data lie where they should",
        lambda asked: checks.calibration(asked.seen, asked.outputs()),
    ),
    "rootogram": ("expected and observed counts", lambda asked: checks.rootogram(asked.seen, asked.outputs("count"))),
    "bound": ("what was maximised, against steps and seconds", lambda asked: inference.bound(asked.fit)),
    "inducing": ("where inducing points ended", _inducing),
    "embedding": ("where the variables of rows put them", _embedding),
    "parameters": ("learnt values, and their priors", lambda asked: inference.parameters(asked.fit)),
}
"""Every kind of picture: what it shows, and what draws it."""


def plot_fit(
    fit: Fit,
    data: Any = None,
    names: Sequence[str] | str | None = None,
    path: str | Path | None = None,
    kind: str | None = None,
    others: str = "held",
) -> Figure:
    """A picture of a fit; see `Fit.plot`."""
    named = [names] if isinstance(names, str) else names
    if isinstance(data, str) and data in (*(d := fit.program.declarations).latents, *d.lets, *d.outputs, *KINDS):
        rather = f"kind={data!r}" if data in KINDS else f"names={data!r}"
        raise GpdslError(f"fit.plot: the first argument is the data; write fit.plot({rather})")
    asked = Asked(fit, data, _known(fit, named), _one_of("others", others, OTHERS))
    figure = drawn(asked, suited(asked) if kind is None else _one_of("kind", kind, tuple(KINDS)))
    if path is not None:
        save(figure, path_of(path, "fit.plot"))
    return figure


def drawn(asked: Asked, kind: str) -> Figure:
    """A picture of one of the `KINDS`, its texts in as many lines as they need."""
    verify_matplotlib()
    return folded(KINDS[kind][1](asked))


def suited(asked: Asked) -> str:
    """The kind that shows most of a model."""
    if asked.fit.program.declarations.fields:
        return "fields"
    if not asked.fit.program.declarations.inputs:
        return "embedding" if asked.fit.program.declarations.rows and asked.data is not None else "parameters"
    columns = asked.seen.columns
    if len(columns) == 2:
        if apart(columns) is not None:
            return "groups"
        return "partial" if any(each.kind == "label" for each in columns) else "maps"
    return "curves" if len(columns) == 1 else "partial"


def _columns(seen: Seen, kind: str, count: int) -> None:
    """Raise GpdslError where latents read another number of columns."""
    found = [each.label for each in seen.columns]
    if len(found) != count:
        raise GpdslError(
            f"{kind}: expected {plural(count, 'input column')} to vary, found {len(found)}"
            f'{f" ({chr(44).join(found[:6])})" if found else ""}: leave out `kind`, or ask for kind="partial"'
        )


def _known(fit: Fit, names: Iterable[str] | None) -> Sequence[str] | None:
    """The names, where the model has them all."""
    d = fit.program.declarations
    every = (*d.latents, *d.lets, *d.rows, *d.outputs)
    return None if names is None else [_one_of("names", name, every) for name in names]


def _one_of(what: str, given: object, known: Sequence[str]) -> str:
    if isinstance(given, str) and given in known:
        return given
    near = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise GpdslError(f"{what}: there is no {quoted(repr(given))}; {hint}expected one of {', '.join(known)}")
