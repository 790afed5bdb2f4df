"""Latents over latents and over row variables: in what order they come, and which of them are read besides."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.language import model as m
from gpdsl.program.groups import Group
from gpdsl.program.readings import reads_of


def read_elsewhere(declarations: m.Declarations, inner: frozenset[str]) -> frozenset[str]:
    """The arguments of latents that a formula reads as well, which may depend on both."""
    return frozenset(read.name for read in reads_of(declarations)) & inner


def places_in_order(declarations: m.Declarations, groups: Sequence[Group]) -> tuple[int, ...]:
    """The places of the groups, each after those that its latents take as arguments."""
    depth: dict[str, int] = {}
    for latent in declarations.latents.values():  # in the order of the layers: the checker sees to it
        depth[latent.name] = 1 + max(depth.get(name, 0) for name in latent.arguments or ("",))
    return tuple(sorted(range(len(groups)), key=lambda place: depth.get(groups[place].names[0], 0)))
