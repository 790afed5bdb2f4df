"""Names that nothing reads, and latents and parameters that no observation depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.warnings.cautions import Unobserved, Unused

_TABLES = {
    "indices": "the index",
    "inputs": "the input",
    "consts": "the constant",
    "params": "the parameter",
    "rows": "the row variable",
    "latents": "the latent",
    "functions": "the function",
    "kernels": "the kernel",
    "densities": "the density",
    "externals": "the external",
    "likelihoods": "the external likelihood",
}
"""What may be unused, and how a message names it. A `let` that nothing reads is a quantity to predict."""

_LEARNT = {
    "params": ("the parameter", "it stays where it starts"),
    "latents": ("the latent", "its posterior is its prior"),
    "rows": ("the row variable", "its posterior is its prior"),
}


def unused_names(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each name that nothing reads, and for what only a `let` that nothing observes reads."""
    uses = {name: set(_names(each)) - {name} for name, each in _declared(declarations)}
    observed = set(_names(declarations.observations))
    read = observed.union(*uses.values())
    from_data = _reachable(observed, uses)
    for table, what in _TABLES.items():
        for name, declaration in getattr(declarations, table).items():
            if not declarations.outputs or not declarations.source.is_own(declaration.span):
                continue  # of a file to be used nobody needs everything
            if name not in read:
                yield Unused(declaration.span, name, what)
            elif table in _LEARNT and name not in from_data and not getattr(declaration, "fixed", False):
                yield Unobserved(declaration.span, name, *_LEARNT[table])


def _declared(declarations: m.Declarations) -> Iterator[tuple[str, m.Declaration]]:
    for table in (*_TABLES, "outputs", "lets"):
        yield from getattr(declarations, table).items()


def _reachable(start: Iterable[str], uses: Mapping[str, set[str]]) -> set[str]:
    found, pending = set(start), list(start)
    while pending:
        new = uses.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def _names(root: object) -> Iterator[str]:
    """Every text inside a declaration: among them are all the names it mentions, whatever the sort of mention."""
    pending = [root]
    while pending:
        each = pending.pop()
        match each:
            case str():
                yield each
            case tuple():
                pending += each
            case Mapping():
                pending += each.values()
            case _ if is_dataclass(each) and not isinstance(each, m.Span):
                pending += [getattr(each, field.name) for field in fields(each)]
