"""What a model declares, as plain values: names, axes, types, distributions, and what it wants of its data.

The layout is documented in docs/tools.md and numbered: `SCHEMA` changes when an entry changes its meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from gpdsl.language import model as m
from gpdsl.language.writing import Writer
from gpdsl.symbolic.dependence import row_quantities
from gpdsl.symbolic.kernel_analysis import analyse
from gpdsl.symbolic.kernel_checks import uses_formula

SCHEMA = 1

_STATIONARY = frozenset(
    {"RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic", "Periodic", "Cosine", "SpectralMixture"}
    | {"Constant", "White"}
)

Entry = dict[str, Any]


def information(declarations: m.Declarations) -> Entry:
    """Everything that the model declares, as dictionaries, lists, texts and numbers: what `gpdsl info` prints."""
    d, write = declarations, Writer(declarations)
    varying = row_quantities(d)
    return {
        "schema": SCHEMA,
        "name": d.name,
        "title": d.title,
        "file": d.source.name,
        "indices": [_index(each) for each in d.indices.values()],
        "inputs": [_input(each) for each in d.inputs.values()],
        "outputs": [_output(each) for each in d.outputs.values()],
        "consts": [
            {"name": each.name, "axes": _axes(each.axes), "values": _values(each.values)} for each in d.consts.values()
        ],
        "params": [_param(write, each) for each in d.params.values()],
        "rows": [
            {"name": each.name, "axes": _axes(each.axes), "distribution": _distribution(write, each.distribution)}
            for each in d.rows.values()
        ],
        "latents": [_latent(write, each) for each in d.latents.values()],
        "lets": [_let(write, each, each.name in varying) for each in d.lets.values()],
        "functions": [_function(write, each) for each in d.functions.values()],
        "kernels": [_function(write, each) | {"levels": list(each.levels)} for each in d.kernels.values()],
        "densities": [_function(write, each) | {"observed": each.observed} for each in d.densities.values()],
        "externals": [*_externals(d)],
        "observations": [_observation(write, each) for each in d.observations],
        "inference": dict(d.infer.options) | ({"standardise": d.infer.standardise} if d.infer.standardise else {}),
        "data": requirements(d),
    }


def _axes(axes: Iterable[m.Axis]) -> list[Entry]:
    return [{"index": axis.name, "size": axis.size, "dimension": axis.dimension} for axis in axes]


def _values(values: float | tuple) -> float | list:
    return [_values(each) for each in values] if isinstance(values, tuple) else values


def _index(index: m.Index) -> Entry:
    levels = list(index.levels) if index.levels is not None else None
    return {"name": index.name, "size": index.axis.size, "dimension": index.axis.dimension, "levels": levels}


def _input(each: m.Input) -> Entry:
    unit = {"unit": each.unit} if each.unit else {"label": each.label.name} if each.label is not None else {}
    return {"name": each.name, "kind": each.kind, "axes": _axes(each.axes), **unit}


def _output(output: m.Output) -> Entry:
    label = output.label.name if output.label is not None else None
    return {"name": output.name, "kind": output.kind, "axes": _axes(output.axes), "label": label}


def _param(write: Writer, param: m.Param) -> Entry:
    # Without a list, a simplex, ordered values and a factor start where nothing is preferred.
    equal = param.constraint in {"simplex", "ordered", "correlation_factor"} and not isinstance(param.initial, tuple)
    return {
        "name": param.name,
        "constraint": param.constraint,
        "lower": param.lower,
        "upper": param.upper,
        "axes": _axes(param.axes),
        "initial": None if starts_by_data(param) or equal else _values(param.initial),
        "fixed": param.fixed,
        "prior": _distribution(write, param.prior) if param.prior is not None else None,
    }


def starts_by_data(param: m.Param) -> bool:
    """Whether a fit looks at the data for where a parameter starts."""
    return not param.given and param.constraint in {"real", "positive"}


def _distribution(write: Writer, call: m.DistributionCall) -> Entry:
    return {
        "name": call.name,
        "arguments": {name: write.expression(each) for name, each in call.arguments.items()},
        "components": [_distribution(write, each) for each in call.components],
        "external": call.external,
        "text": write.distribution(call),
    }


def _latent(write: Writer, latent: m.Latent) -> Entry:
    return {
        "name": latent.name,
        "axes": _axes(latent.axes),
        "arguments": list(latent.arguments),
        "mean": write.expression(latent.mean),
        "kernel": write.kernel(latent.kernel),
        "stationary": is_stationary(write.declarations, latent, latent.kernel),
        "by_formula": analyse(latent.kernel, write.declarations, latent).summary()
        if uses_formula(latent.kernel)
        else None,
    }


def is_stationary(d: m.Declarations, latent: m.Latent, kernel: m.Kernel) -> bool:
    """Whether the covariance depends on the difference of its points only; of a formula, its analysis tells."""
    match kernel:
        case m.KernelCall(name=name, on=on):
            return name in _STATIONARY and all(isinstance(each, m.Read) for each in on)
        case m.KernelFormula():
            return analyse(kernel, d, latent).stationary is True
    return all(is_stationary(d, latent, each) for each in m.kernels_in(kernel))


def _let(write: Writer, let: m.Let, per_row: bool) -> Entry:
    cases = [{"where": _guards(case.guards), "value": write.expression(case.body)} for case in let.cases]
    return {"name": let.name, "axes": _axes(let.axes), "per_row": per_row, "cases": cases}


def _guards(guards: Iterable[m.Guard]) -> str | None:
    told = [f"{each.index} {each.operator} {each.value}" for each in guards if each.operator != "all"]
    return ", ".join(told) or None


def _function(write: Writer, function: m.Function) -> Entry:
    return {
        "name": function.name,
        "arguments": list(function.arguments),
        "parameters": list(function.parameters),
        "value": write.expression(function.body),
    }


def _externals(d: m.Declarations) -> Iterable[Entry]:
    for external in d.externals.values():
        arguments = _passed(external.arguments)
        yield {"name": external.name, "kind": "function", "arguments": arguments, "result": _axes(external.result)}
    for likelihood in d.likelihoods.values():
        observed, arguments = _passed(likelihood.observed), _passed(likelihood.arguments)
        yield {"name": likelihood.name, "kind": "likelihood", "observed": observed, "arguments": arguments}


def _passed(arguments: Iterable[m.ExternalArgument]) -> list[Entry]:
    return [{"name": each.name, "axes": _axes(each.axes)} for each in arguments]


def _observation(write: Writer, observation: m.Observation) -> Entry:
    left = write.left(observation)
    return {
        "outputs": list(observation.outputs),
        "left": left,
        "where": _guards(observation.guards),
        "transform": left if observation.transform is not None else None,
        "distribution": _distribution(write, observation.distribution),
        "text": f"{left} ~ {write.distribution(observation.distribution)}",
    }


# What a model wants of its data: columns, their names, types and values, and the sizes they determine.

_INPUTS = {
    "real": "finite numbers",
    "positive": "finite numbers above 0",
    "count": "whole numbers from 0",
    "time": "dates or times, as 2024-01-05 or 2024-01-05T14:30",
}
_OUTPUTS = {
    "real": "finite numbers",
    "positive": "finite numbers above 0",
    "unit": "numbers strictly between 0 and 1",
    "count": "whole numbers from 0",
    "binary": "two values: 0 and 1, -1 and 1, false and true, or two words",
}
_MOST = 64
"""Columns that are listed by name."""


def requirements(declarations: m.Declarations) -> list[dict[str, Any]]:
    """One entry for each input and output, in the order in which they are looked for."""
    d = declarations
    return [*(_entry(d, each) for each in d.inputs.values()), *(_entry(d, each) for each in d.outputs.values())]


def _entry(d: m.Declarations, quantity: m.Input | m.Output) -> dict[str, Any]:
    is_input = isinstance(quantity, m.Input)
    return {
        "name": quantity.name,
        "role": "input" if is_input else "output",
        "kind": quantity.kind,
        "shape": ["rows", *(axis.size if axis.size is not None else axis.dimension for axis in quantity.axes)],
        "columns": columns(quantity),
        "values": _values_wanted(d, quantity),
        "missing": not is_input,
        "varies": is_input and any(quantity.name in each.arguments for each in d.latents.values()),
        "binds": _binds(quantity),
    }


def columns(quantity: m.Input | m.Output) -> list[str] | None:
    """Names the columns may have in a table (`x1`, `x2`); None when data say how many there are, or for very many.

    An array of the quantity's own name, one column per element, serves as well.
    """
    sizes = [axis.size for axis in quantity.axes]
    known = [size for size in sizes if size is not None]
    total = 1
    for size in known:
        total *= size
    if len(known) < len(sizes) or total > _MOST:
        return None
    if not sizes:
        return [quantity.name]
    positions = itertools.product(*(range(1, size + 1) for size in known))
    return [f"{quantity.name}{'_'.join(map(str, position))}" for position in positions]


def _values_wanted(d: m.Declarations, quantity: m.Input | m.Output) -> str:
    if quantity.label is None:
        return (_INPUTS if isinstance(quantity, m.Input) else _OUTPUTS).get(quantity.kind, quantity.kind)
    index = d.indices.get(quantity.label.name or "")
    levels: Sequence[object] = index.levels or () if index is not None else ()
    order = ", in this order" if quantity.kind == "ordinal" else ""
    if levels:
        return f"one of {', '.join(map(str, levels))}{order}"
    if quantity.label.size is not None:
        return f"whole numbers from 1 to {quantity.label.size}{order}"
    return "any labels; those found are the levels" + (", in sorted order" if order else "")


def _binds(quantity: m.Input | m.Output) -> list[str]:
    """The sizes left free that this quantity determines."""
    axes = [*quantity.axes]
    if quantity.label is not None:
        axes.append(quantity.label)
    return list(dict.fromkeys(axis.dimension for axis in axes if axis.dimension is not None and axis.size is None))
