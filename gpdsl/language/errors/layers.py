"""E376 to E379: layers written as one latent along an index, `latent h[l > 1](h[l - 1]) ~ ...`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class LayersNotCounted(Mistake):
    """`latent h[l > 1](...)` where nothing says how many layers there are."""

    name: str
    why: str
    code: ClassVar = "E376"
    message: ClassVar = "the layers of `{name}` cannot be counted: {why}"
    label: ClassVar = "which layers?"
    help: ClassVar = "count them in one index, `index l in 1..3`, and write `latent {name}[l > 1]({name}[l - 1]) ~ ...`"


@dataclass(frozen=True)
class LayersMissing(Mistake):
    """`latent h[l > 1](h[l - 1])` without `latent h[1](x)`."""

    name: str
    layer: int
    code: ClassVar = "E377"
    message: ClassVar = "no statement says what `{name}[{layer}]` is a function of"
    label: ClassVar = "not every layer is declared"
    help: ClassVar = "add `latent {name}[{layer}](x) ~ GP(...)`, or widen a condition"


@dataclass(frozen=True)
class LayerNotNamed(Mistake):
    """`y ~ Normal(h, s)` where `h` has layers."""

    name: str
    count: int
    code: ClassVar = "E378"
    message: ClassVar = "`{name}` has {count} layers, and each is a latent of its own"
    label: ClassVar = "which of them?"
    help: ClassVar = "write one of them by its number, `{name}[{count}]`"


@dataclass(frozen=True)
class ArgumentElement(Mistake):
    """`latent f(g[1])` where `g` has no layers."""

    name: str
    code: ClassVar = "E379"
    message: ClassVar = "an argument of a latent is all of `{name}`, not an element of it"
    label: ClassVar = "brackets after an argument"
    help: ClassVar = "write `{name}` alone; columns are chosen in the kernel, `on = {name}[1]`"
