"""The order of latents that are functions of other latents: a deep Gaussian process has layers, and no cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.functionals import LatentCycle
from gpdsl.language.errors.limits import TooManyLayers
from gpdsl.language.limits import MAX_LAYERS

_SHOWN = 5


def in_layers(scope: Scope, statements: Sequence[syntax.LatentStatement]) -> list[syntax.LatentStatement]:
    """Latents after those they are functions of. Every cycle is reported once, and its latents are left out."""
    by_name = {each.declared.name.text: each for each in statements}
    inside = {name: [a.text for a in each.arguments if a.text in by_name] for name, each in by_name.items()}
    ordered: list[str] = []
    entered: dict[str, bool] = {}  # True while a latent's own arguments are being followed
    for start in by_name:
        _follow(scope, by_name, inside, start, entered, ordered)
    return [by_name[name] for name in _few_layers(scope, by_name, inside, ordered)]


def _few_layers(
    scope: Scope,
    by_name: Mapping[str, syntax.LatentStatement],
    inside: Mapping[str, list[str]],
    ordered: Sequence[str],
) -> list[str]:
    """The latents without those stacked too high; what follows layer by layer may then do so by recursion."""
    depth: dict[str, int] = {}
    for name in ordered:
        depth[name] = 1 + max((depth.get(each, 0) for each in inside[name]), default=0)
        if depth[name] == MAX_LAYERS + 1:
            scope.problems.add(TooManyLayers(by_name[name].declared.name.span, name, MAX_LAYERS))
        if depth[name] > MAX_LAYERS:
            scope.lost.add(name)
    return [name for name in ordered if name not in scope.lost]


def _follow(
    scope: Scope,
    by_name: Mapping[str, syntax.LatentStatement],
    inside: Mapping[str, list[str]],
    start: str,
    entered: dict[str, bool],
    ordered: list[str],
) -> None:
    """Depth first from one latent, without recursion: a file may stack thousands of layers."""
    if start in entered:
        return
    entered[start] = True
    path, pending = [start], [iter(inside[start])]
    while path:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            name = path.pop()
            entered[name] = False
            # A latent over one that cannot be checked cannot be checked either.
            if any(each in scope.lost for each in inside[name]):
                scope.lost.add(name)
            if name not in scope.lost:
                ordered.append(name)
        elif following not in entered:
            entered[following] = True
            path.append(following)
            pending.append(iter(inside[following]))
        elif entered[following] and following not in scope.lost:
            _report(scope, by_name, path[path.index(following) :])


def _report(scope: Scope, by_name: Mapping[str, syntax.LatentStatement], cycle: list[str]) -> None:
    first = min(cycle, key=lambda name: by_name[name].span.line)
    turned = cycle[cycle.index(first) :] + cycle[: cycle.index(first)]
    links = [f"`{name}`" for name in (*turned[1:], first)]
    shown = links if len(links) <= _SHOWN else [*links[:_SHOWN], "... and so on", links[-1]]
    text = f"`{first}` is a function of {', which is a function of '.join(shown)}"
    argument = next(each for each in by_name[first].arguments if each.text in cycle)
    scope.problems.add(LatentCycle(argument.span, first, text))
    scope.lost.update(cycle)
