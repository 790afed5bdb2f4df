"""What a latent's inducing variables are, as written: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from gpdsl.errors import GpdslError, quoted

# What kinds of values an option of inference takes; each reads a value, and says what it expects.

MOST_COMPONENTS = 100
"""Of a mixture."""

MOST_LAYERS, MOST_UNITS = 5, 1_000
"""Of a network."""


class Takes(Protocol):
    """What values an option takes. `expected` says it after that word; `words` are those that can be written."""

    @property
    def expected(self) -> str: ...

    @property
    def words(self) -> tuple[str, ...]: ...

    @property
    def example(self) -> str: ...

    def read(self, value: Any) -> Any:
        """The value as the fit keeps it, or None where the option cannot have it."""


@dataclass(frozen=True)
class Words:
    """One of some words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    @property
    def example(self) -> str:
        return self.words[0]

    def read(self, value: Any) -> str | None:
        return value if isinstance(value, str) and value in self.words else None


@dataclass(frozen=True)
class Keys:
    """One of the words of a table, which may grow."""

    table: Mapping[str, str]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.table)

    @property
    def expected(self) -> str:
        return Words(self.words).expected

    @property
    def example(self) -> str:
        return self.words[0]

    def read(self, value: Any) -> str | None:
        return Words(self.words).read(value)


@dataclass(frozen=True)
class Families(Words):
    """A posterior family; K stands for a number of components."""

    def read(self, value: Any) -> str | None:
        text = re.sub(r"\s", "", value) if isinstance(value, str) else ""
        family, _, rest = text.partition("(")
        components = rest.removesuffix(")")
        if f"{family}(K)" not in self.words:
            return text if text in self.words else None
        whole = re.fullmatch("[1-9][0-9]{0,2}", components) and rest.endswith(")")
        return text if whole and int(components) <= MOST_COMPONENTS else None


@dataclass(frozen=True)
class Encoding(Words):
    """`auto`, `free`, or a network with so many units in each layer."""

    @property
    def expected(self) -> str:
        return f"auto, free, or network(20, 20): 1 to {MOST_LAYERS} layers of 1 to {MOST_UNITS} units"

    @property
    def example(self) -> str:
        return self.words[-1]

    def read(self, value: Any) -> str | None:
        text = re.sub(r"\s", "", value) if isinstance(value, str) else ""
        units = text.removeprefix("network(").removesuffix(")").split(",")
        if not re.fullmatch(r"network\([1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*\)", text):
            return text if text in self.words else None
        fits = len(units) <= MOST_LAYERS and all(int(each) <= MOST_UNITS for each in units)
        return f"network({', '.join(units)})" if fits else None


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    least: int
    example: str = "100"
    most: int | None = None
    words: ClassVar[tuple[str, ...]] = ()

    @property
    def expected(self) -> str:
        return f"a whole number of at least {self.least}" + (f" and at most {self.most}" if self.most else "")

    def read(self, value: Any) -> int | None:
        number = _number(value)
        if number is None or number != int(number) or number < self.least:
            return None
        return int(number) if self.most is None or number <= self.most else None


@dataclass(frozen=True)
class Number:
    """A number between bounds, themselves left out unless `closed`."""

    expected: str
    example: str
    least: float = 0.0
    most: float = math.inf
    closed: tuple[bool, bool] = (False, False)
    words: ClassVar[tuple[str, ...]] = ()

    def read(self, value: Any) -> float | None:
        number = _number(value)
        if number is None or number > sys.float_info.max:
            return None
        above = number >= self.least if self.closed[0] else number > self.least
        below = number <= self.most if self.closed[1] else number < self.most
        return float(number) if above and below else None


@dataclass(frozen=True)
class Truth:
    """Yes or no."""

    expected: ClassVar[str] = "true or false"
    words: ClassVar[tuple[str, ...]] = ("true", "false")
    example: ClassVar[str] = "true"

    def read(self, value: Any) -> bool | None:
        return value if isinstance(value, bool) else None


@dataclass(frozen=True)
class Device:
    """The name of a kind of devices; JAX knows which there are."""

    expected: ClassVar[str] = "the name of a kind of devices, such as cpu or gpu"
    words: ClassVar[tuple[str, ...]] = ("cpu", "gpu", "tpu")
    example: ClassVar[str] = "cpu"

    def read(self, value: Any) -> str | None:
        return value if isinstance(value, str) and value.isidentifier() else None


@dataclass(frozen=True)
class Names:
    """Names of parameters: one, several, or several in one text with commas between them."""

    expected: ClassVar[str] = "names of parameters; their values are given by init={...}"
    words: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "[ell, sigma]"

    def read(self, value: Any) -> tuple[str, ...] | None:
        names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if isinstance(names, Mapping) or not isinstance(names, Iterable):
            return None
        found = tuple(names)
        return found if all(isinstance(name, str) for name in found) else None


@dataclass(frozen=True)
class Quantities:
    """Inputs and outputs: all that can be, none, or some by name."""

    expected: ClassVar[str] = "true, false, or names of inputs and outputs"
    words: ClassVar[tuple[str, ...]] = ("true", "false")
    example: ClassVar[str] = "true"

    def read(self, value: Any) -> bool | tuple[str, ...] | None:
        return value if isinstance(value, bool) else Names().read(value)


@dataclass(frozen=True)
class Values:
    """Values of parameters by name; whether a parameter can have its value, the program says."""

    expected: ClassVar[str] = (
        "values by the names of parameters, such as init={'ell': 2}; --init ell=2 in a command; to begin where another "
        "fit ended: start=fit"
    )
    words: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "2"

    def read(self, value: Any) -> dict[str, Any] | None:
        named = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        return dict(value) if named else None


def _number(value: Any) -> int | float | None:
    """A finite number of Python or NumPy."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None


Box = tuple[tuple[float, float], ...]
"""Between what bounds, column by column; one pair stands for every column."""

OWN: Mapping[str, str] = MappingProxyType(
    {
        "points": "values at points",
        "slopes": "derivatives at points, along every column",
        "fourier": "Fourier features between bounds: `Matern12`, `Matern32` and `Matern52` of single columns",
        "eigen": "eigenfunctions: of `RBF` under a normal density, of the Laplacian between bounds for Matérn kernels",
        "patches": "values at patches of images, of the process that `Patch` is the mean of",
    }
)
_features = dict(OWN)
FEATURES: Mapping[str, str] = MappingProxyType(_features)
"""What families of inducing features are called, and what they are: gpdsl's own, and those registered."""

PLACED = ("points", "slopes", "patches")
"""Those that are placed like inducing points."""


def check_features_name(name: str, meaning: str) -> None:
    """Raise GpdslError for a name that inducing features cannot have, and for a meaning that is no text."""
    if not isinstance(name, str) or name in OWN or not name.isidentifier():
        others = ", ".join(OWN)
        raise GpdslError(
            f"inducing features {quoted(name)}: expected a name of letters, digits and _ other than {others}"
        )
    if not isinstance(meaning, str):
        raise GpdslError(f"inducing features {name}: expected their meaning as a text, not {quoted(meaning)}")


def name_features(name: str, meaning: str) -> None:
    """Let inducing features be asked for by name."""
    _features[name] = meaning


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
