"""What a fit standardises: the inputs and outputs that are asked for, where shifting and scaling leave them valid."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpdsl.data import Data, bind
from gpdsl.data.bind import Columns
from gpdsl.data.bound import Standardised, learn, level_columns, spreads
from gpdsl.errors import GpdslError
from gpdsl.language import model as m
from gpdsl.program.starts import tied
from gpdsl.symbolic.dependence import kernel_expressions, origins, unobserved
from gpdsl.symbolic.kernel_analysis import of_differences
from gpdsl.symbolic.kernel_checks import formulas
from gpdsl.symbolic.readings import opaque_calls
from gpdsl.symbolic.translate import Translator

Asked = bool | str | Collection[str] | Mapping[str, Sequence[Any] | None] | None
"""True: all that can be; names; names with `(mean, sd)`, or None for those of the data. None: as in the fit before."""

FORM = "expected True, names, or names with (mean, sd), as in {'x': (10.0, 2.5)}"


@dataclass(frozen=True)
class Units:
    """Those of a fit to start at, whose parameters hold in them: its numbers, and all names that its model has."""

    standardised: Standardised = field(default_factory=Standardised)
    names: Collection[str] = ()
    said: str = "the fit to start at"


ANY = Units()
"""Where there is no fit to start at."""


def standardise(declarations: m.Declarations, data: Data, asked: Asked, start: Units = ANY) -> Data:
    """The data with what is asked for standardised, and the numbers in `data.standardised`.

    The units of `start` are kept; without one, the model may say what is asked for. Raises GpdslError for names that
    cannot be standardised or have other units there, and DataError for columns without spread.
    """
    if asked is None and start is ANY:
        asked = declarations.infer.standardise
    quantities = {**declarations.inputs, **declarations.outputs}
    asked, before = _meant(asked, quantities), start.standardised
    kept = {n: (before.means[n], before.sds[n]) for n in quantities if n in before.sds}
    means, sds = {}, {}
    if unlike := [(name, why) for name in kept if (why := refusal(declarations, name))]:
        name, why = unlike[0]
        raise GpdslError(f"standardise: `{name}` was standardised in {start.said}, and here it {why}: fit without it")
    for name, given in _named(declarations, asked, kept).items():
        numbers = kept.get(name, given)
        shape = (data.inputs if name in data.inputs else data.outputs)[name].shape[1:]
        means[name], sds[name] = learn(data, name) if numbers is None else _checked(name, numbers, shape)
        if given is not None and not np.array_equal((means[name], sds[name]), _checked(name, given, shape)):
            raise GpdslError(f"standardise: {start.said} has other numbers for `{name}`: leave yours out")
    _check_outputs(declarations, data, [n for n in sds if n in declarations.outputs and n not in kept], asked)
    other = [n for n in quantities if n in start.names and (n in sds) != (n in kept)]
    if other:
        was = "was" if other[0] in kept else "was not"
        raise GpdslError(f"standardise: `{other[0]}` {was} standardised in {start.said}: leave `standardise` out")
    return Standardised(means, sds).applied(data)


def spreads_in(
    declarations: m.Declarations, source: Any, columns: Columns | None, asked: Asked
) -> dict[str, tuple[float, ...]]:
    """How far the inputs of a model spread in data of any kind, as a fit sees them."""
    return spreads(standardise(declarations, bind(declarations, source, columns=columns), asked))


def _meant(asked: Asked, quantities: Collection[str]) -> Asked:
    """A text in the words of the command line: `true`, `false`, or names with commas between them."""
    if not isinstance(asked, str) or asked in quantities:
        return asked
    words: Mapping[str, bool] = {"true": True, "false": False}
    return words.get(asked.strip().lower(), [name.strip() for name in asked.split(",")])


def _named(declarations: m.Declarations, asked: Asked, kept: Collection[str]) -> Mapping[str, Any]:
    """Names, each with its numbers where they are given."""
    quantities = {**declarations.inputs, **declarations.outputs}
    if asked is None or isinstance(asked, bool):
        every = [n for n in quantities if not refusal(declarations, n)] if asked else []
        moved = _moved(declarations) if every else set()
        every = [name for name in every if name not in moved]
        _check_tied(declarations, dict.fromkeys(every))
        return dict.fromkeys(kept if asked is None else every)
    if not isinstance(asked, (str, Collection)) or any(not isinstance(each, str) for each in asked):
        raise GpdslError(f"standardise: {FORM}, not {str(asked)[:60]}")
    named = asked if isinstance(asked, Mapping) else dict.fromkeys([asked] if isinstance(asked, str) else asked)
    for name in named:
        if name not in quantities:
            known = ", ".join(quantities)
            raise GpdslError(
                f"standardise: the model has no input or output `{name}`; it has {known}, and true is for all "
                "that can be standardised"
            )
        if reason := refusal(declarations, name):
            raise GpdslError(f"standardise: `{name}` {reason}; leave it out (standardise=True does)")
    _check_tied(declarations, named)
    return named


def _check_outputs(declarations: m.Declarations, data: Data, names: list[str], asked: Asked) -> None:
    """Raise GpdslError where outputs that are to have numbers of their own share what has one unit, as a latent."""
    given = asked if isinstance(asked, Mapping) else {}
    if all(given.get(name) is not None for name in names) or sum(data.outputs[n][0].size for n in names) < 2:
        return
    if tied(Translator(declarations, data.sizes), names):
        said, form = ", ".join(f"`{n}`" for n in names), ", ".join(f"'{n}': (mean, sd)" for n in names)
        elements = "the elements of " if len(names) == 1 else ""
        raise GpdslError(
            f"standardise: the model gives {elements}{said} one unit: give one pair of numbers, {{{form}}}, or leave "
            f"{'it' if len(names) == 1 else 'them'} out"
        )


def _check_tied(declarations: m.Declarations, named: Mapping[str, Any]) -> None:
    """Raise GpdslError where the units of one name follow from those of others, unless all have numbers."""
    for names, why in _tied(declarations):
        if any(name in named for name in names) and any(named.get(name) is None for name in names):
            said = ", ".join(f"`{name}`" for name in names)
            raise GpdslError(
                f"standardise: {why}, which ties the units of {said}: leave them out, or give each numbers"
            )


def _tied(declarations: m.Declarations) -> Iterator[tuple[list[str], str]]:
    """Names whose units a model ties, and how: a latent read at several inputs, or observed beside its derivative."""
    d = declarations
    bodies = [*(c.body for let in d.lets.values() for c in let.cases), *(e for o in d.observations for e in _given(o))]
    reads = [read for body in bodies for read in m.reads_of(body) if read.name in d.latents]
    for latent in d.latents.values():
        own = [read.functional for read in reads if read.name == latent.name]
        for place, argument in enumerate(latent.arguments):
            at = [name for each in own for name in (each.at if each.integrated else each.at[place : place + 1])]
            names = list(dict.fromkeys([argument, *(name for name in at if not m.is_number(name))]))
            if len(names) > 1 and argument in d.inputs:
                yield names, f"`{latent.name}` is read at several inputs"
        if any(each.derivative or each.integrated for each in own):
            how = "integral" if any(each.integrated for each in own) else "derivative"
            observed = [n for o in d.observations if latent.name in unobserved(d, o.distribution) for n in o.outputs]
            if len(observed) > 1:
                inputs = [argument for argument in latent.arguments if argument in d.inputs]
                yield [*inputs, *observed], f"`{latent.name}` is observed beside its {how}"


def _given(observation: m.Observation) -> Iterator[m.Expression]:
    """The arguments of a distribution, and of what it is made of."""
    waiting = [observation.distribution]
    for call in waiting:
        yield from call.arguments.values()
        waiting += call.components


def _checked(name: str, given: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation as they are given, one for all elements or one for each."""
    try:
        mean, sd = (np.broadcast_to(np.asarray(each, float), shape) for each in given)
    except (TypeError, ValueError) as problem:
        raise GpdslError(f"standardise: `{name}` has {str(given)[:60]}: {FORM}") from problem
    if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(sd)) and np.all(sd > 0)):
        raise GpdslError(f"standardise: `{name}`: expected a finite mean and a positive standard deviation")
    return mean, sd


def refusal(declarations: m.Declarations, name: str) -> str:
    """Why an input or output cannot be standardised; nothing where it can be."""
    declared = declarations.inputs.get(name) or declarations.outputs[name]
    if declared.kind == "time":
        return "is a time, whose numbers have a unit already: `time(per = hour)`"
    if declared.kind != "real":
        return f"is of type {declared.kind}, which values less their mean are not"
    if name in _passed(declarations):
        return "is passed to an opaque function, which takes it in the units of the data"
    if name in declarations.inputs and name in _computed_with(declarations):
        return "is read by a formula, which takes it in the units of the data"
    if known := _known_beside(declarations, name):
        return f"is told beside `{known}`, which is in the units of the data"
    if any(column.name == name for column in level_columns(declarations)):
        return "numbers the levels of a kernel"
    calls = [each.distribution for each in declarations.observations if name in each.outputs]
    for call in calls:  # grows by components as it goes
        calls += call.components
    bounded = [call.name for call in calls if {"lower", "upper"} & {*call.arguments}]
    return f"is {bounded[0].lower()} at bounds in the units of the data" if bounded else ""


def _computed_with(declarations: m.Declarations) -> set[str]:
    """What formulas read, other than as an argument of a latent, which a mean or a kernel may take as it stands."""
    d = declarations
    bodies = [*(c.body for let in d.lets.values() for c in let.cases), *(e for o in d.observations for e in _given(o))]
    for latent in d.latents.values():
        taken = [latent.mean, *kernel_expressions(latent.kernel)]
        bodies += [each for each in taken if not isinstance(each, m.Read)]
    return {read.name for body in bodies for read in m.reads_of(body)}


def _moved(declarations: m.Declarations) -> set[str]:
    """Inputs that a formula of a kernel reads otherwise than by differences, which it takes as the data have them."""
    moved = [each for each in formulas(declarations) if not of_differences(each[1], declarations, each[0])]
    read = {read.name for _, kernel in moved for on in kernel.on for read in m.reads_of(on)}
    return read | {name for latent, kernel in moved if not kernel.on for name in latent.arguments}


def _known_beside(declarations: m.Declarations, name: str) -> str:
    """An input of which alone an argument of the distribution of an output is made, as of known errors."""
    d = declarations
    unknown, wanted = {*d.latents, *d.rows, *d.params}, {*d.latents, *d.rows, *d.params, *d.inputs}
    for observation in d.observations:
        for argument in _given(observation) if name in observation.outputs else ():
            direct = [read.name for read in m.reads_of(argument)]
            found = {n for each in direct for n in (origins(d, each, wanted) if each in d.lets else [each])}
            if not found & unknown and (inputs := found & set(d.inputs)):
                return min(inputs)
    return ""


def _passed(declarations: m.Declarations) -> set[str]:
    """Inputs and outputs that opaque functions and likelihoods take, through `let`s too."""
    data = {*declarations.inputs, *declarations.outputs}
    reads = [read.name for _, _, given in opaque_calls(declarations) for each in given for read in m.reads_of(each)]
    found = {n for each in declarations.observations if each.distribution.external for n in each.outputs}
    for name in reads:
        found |= set(origins(declarations, name, data)) if name in declarations.lets else {name}
    return found
