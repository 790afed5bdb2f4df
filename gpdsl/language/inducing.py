"""What a latent's inducing variables are, as written: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from gpdsl.language.choices import Whole

Box = tuple[tuple[float, float], ...]
"""Between what bounds, column by column; one pair stands for every column."""

FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "points": "values at points",
        "slopes": "derivatives at points, along every column",
        "fourier": "Fourier features between bounds: `Matern12`, `Matern32` and `Matern52` of single columns",
        "eigen": "eigenfunctions of `RBF` under a normal density of the inputs",
    }
)
"""What families of inducing features are called, and what they are."""

PLACED = ("points", "slopes")
"""Those that are placed like inducing points."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = rf"\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\]"
_PART = re.compile(
    rf"\s*([A-Za-z_]\w*)\s*\(\s*(\d{{1,9}})\s*"
    rf"(?:,\s*over\s*=\s*({_PAIR}|\[\s*{_PAIR}(?:\s*,\s*{_PAIR})*\s*\])\s*)?\)\s*"
)


@dataclass(frozen=True)
class Written:
    """One family of features, how many of it, and between what bounds where that was said."""

    family: str
    count: int
    over: Box = ()

    def __str__(self) -> str:
        pairs = [f"[{_shown(low)}, {_shown(high)}]" for low, high in self.over]
        listed = pairs[0] if len(pairs) == 1 else f"[{', '.join(pairs)}]"
        bounds = f", over = {listed}" if pairs else ""
        return f"{self.family}({self.count}{bounds})"


def _shown(number: float) -> str:
    """Every digit, and no more."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)


def read_features(text: str) -> tuple[Written, ...] | None:
    """The families of features of a sum, or None where it is none."""
    found, rest = [], text
    while True:
        match = _PART.match(rest)
        if match is None or match[1] not in FEATURES or int(match[2]) == 0:
            return None
        over = _box(match[3])
        if over is None or (over and match[1] in PLACED):
            return None
        found.append(Written(match[1], int(match[2]), over))
        rest = rest[match.end() :]
        if not rest:
            break
        if rest[0] != "+":
            return None
        rest = rest[1:]
    return tuple(found) if len({each.family for each in found}) == len(found) else None


def _box(text: str | None) -> Box | None:
    """The bounds, none where none are written; None where they are not in order."""
    if text is None:
        return ()
    pairs = [re.findall(_NUMBER, each) for each in re.findall(_PAIR, text)]
    box = tuple((float(low), float(high)) for low, high in pairs)
    return box if all(math.isfinite(a) and math.isfinite(b) and a < b for a, b in box) else None


def shown_features(parts: tuple[Written, ...]) -> str:
    """The sum as it would be written."""
    return " + ".join(map(str, parts))


@dataclass(frozen=True)
class Inducing:
    """A number of inducing points, or a sum of features."""

    example: ClassVar[str] = "100"

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(f"{name}(M)" for name in FEATURES)

    @property
    def expected(self) -> str:
        return f"a whole number of at least 0, or features such as fourier(50, over = [-5, 5]): {', '.join(FEATURES)}"

    def read(self, value: Any) -> int | str | None:
        """The number, or the features as they would be written; points alone are a number."""
        if isinstance(value, str):
            parts = read_features(value)
            if parts is None:
                return None
            return parts[0].count if [each.family for each in parts] == ["points"] else shown_features(parts)
        return Whole(0).read(value)
