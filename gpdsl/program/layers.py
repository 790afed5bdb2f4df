"""Latents over latents (deep Gaussian processes) and over row variables: their layers, and why they do not fit yet."""

from __future__ import annotations

import math

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.kernels.canonical import canonical
from gpdsl.kernels.columns import Space
from gpdsl.kernels.form import describe
from gpdsl.language import model as m
from gpdsl.symbolic.translate import Translator


def uncertain_arguments(declarations: m.Declarations) -> dict[str, tuple[str, ...]]:
    """Latents that are functions of something unobserved, and what that is."""
    found = {}
    for latent in declarations.latents.values():
        known = {**declarations.inputs, **declarations.consts}
        unobserved = tuple(name for name in latent.arguments if name not in known)
        if unobserved:
            found[latent.name] = unobserved
    return found


def refuse_layers(declarations: m.Declarations) -> None:
    """Raises GpdslError, naming the latents, for a model whose latents have uncertain inputs."""
    found = uncertain_arguments(declarations)
    if not found:
        return
    shown = "; ".join(f"`{name}` is a function of {', '.join(f'`{a}`' for a in over)}" for name, over in found.items())
    raise GpdslError(
        f"this is a {_kind(declarations)} ({shown}): it can be checked and explained, but its inference is not "
        "implemented yet.\n"
        "  help: give its latents inputs instead, which are known in every row: `latent f(x) ~ GP(...)`"
    )


def _kind(declarations: m.Declarations) -> str:
    over = {name for names in uncertain_arguments(declarations).values() for name in names}
    deep = "deep Gaussian process" if over & declarations.latents.keys() else ""
    hidden = "latent-variable model" if over & declarations.rows.keys() else ""
    return " and ".join(filter(None, (deep, hidden)))


def explain_layers(declarations: m.Declarations, data: Data) -> str:
    """The layers of a model, from its inputs to its outputs, with how much there is in each."""
    translator = Translator(declarations, data.sizes)
    title = f"structure of {declarations.name}: {data.rows} rows"
    if data.sizes:
        title += ", " + ", ".join(f"{k} = {v}" for k, v in data.sizes.items())
    lines = [title, "", f"a {_kind(declarations)}: its inference is not implemented yet"]
    lines += ["", "layer 0"]
    for name, declared in declarations.inputs.items():
        lines.append(f"  {name}: input, {math.prod(translator.shape(declared.axes))} column(s), known")
    for row in declarations.rows.values():
        count = math.prod(translator.shape(row.axes))
        lines.append(
            f"  {_indexed(row.name, row.axes)}: {count} row variable(s), Normal and independent from row to row"
        )
    depth: dict[str, int] = {}
    for latent in declarations.latents.values():  # in the order of the layers: the checker sees to it
        depth[latent.name] = 1 + max(depth.get(name, 0) for name in latent.arguments)
    for number in range(1, max(depth.values(), default=0) + 1):
        lines += ["", f"layer {number}"]
        lines += [_latent(translator, declarations.latents[name]) for name, at in depth.items() if at == number]
    lines += ["", "observed"]
    for observation in declarations.observations:
        axes = f"[{', '.join(axis.describe() for axis in observation.axes)}]" if observation.axes else ""
        lines.append(f"  {', '.join(observation.outputs)}{axes} ~ {observation.distribution.name}")
    return "\n".join(lines)


def _latent(translator: Translator, latent: m.Latent) -> str:
    count = math.prod(translator.shape(latent.axes))
    space = Space.of(translator, latent)
    form = describe(canonical(latent.kernel, space).form)
    over = f"{', '.join(latent.arguments)} ({space.width} column(s))"
    return f"  {_indexed(latent.name, latent.axes)}: {count} process(es) over {over}, kernel {form}"


def _indexed(name: str, axes: tuple[m.Axis, ...]) -> str:
    return f"{name}[{','.join(axis.describe() for axis in axes)}]" if axes else name
