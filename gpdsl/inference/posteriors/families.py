"""The posterior families by name, and how many numbers each of them has to find."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors.family import Diagonal, Family, Full
from gpdsl.inference.posteriors.linear import Linear
from gpdsl.language.options import OPTIONS

SINGLE: dict[str, Callable[[bool], Family]] = {
    "coupled": lambda dense: Full(),
    "full": lambda dense: Full(),
    "linear": lambda dense: Linear(),
    "diagonal": lambda dense: Diagonal(1, dense),
}
MIXTURES: dict[str, Callable[[int, bool], Family]] = {
    "mixture": Diagonal,
    "mixture_full": lambda components, dense: Full(components),
}


def parse_family(text: str, dense: bool) -> Family:
    """The family a user named: `full`, `linear`, `diagonal`, `mixture(K)` or `mixture_full(K)`."""
    if text in SINGLE:
        return SINGLE[text](dense)
    match = re.fullmatch(r"(mixture|mixture_full)\(\s*([1-9][0-9]{0,2})\s*\)", text)
    if match:
        return MIXTURES[match.group(1)](int(match.group(2)), dense)
    raise GpdslError(f"posterior = {text!r}: expected {OPTIONS['posterior'].takes.expected}")


def size(family: Family, inducing: int, reads: int) -> int:
    """Numbers that say the posterior of one latent; `reads` counts what all rows read of it."""
    match family:
        case Linear():
            return inducing + reads
        case Full(components=count):
            return count * (inducing + inducing * (inducing + 1) // 2)
    return 2 * family.components * inducing
