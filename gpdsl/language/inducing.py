"""What a latent's inducing variables are, as written: `fourier(50, over = [-5, 5])`, `points(30) + slopes(30)`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from gpdsl.errors import GpdslError, quoted
from gpdsl.language.takes import Whole
from gpdsl.language.vocabulary import closest

Box = tuple[tuple[float, float], ...]
"""Between what bounds, column by column; one pair stands for every column."""

OWN: Mapping[str, str] = MappingProxyType(
    {
        "points": "values at points",
        "slopes": "derivatives at points, along every column",
        "fourier": "Fourier features between bounds: `Matern12`, `Matern32` and `Matern52` of single columns",
        "eigen": "eigenfunctions: of `RBF` under a normal density, of the Laplacian between bounds for Matérn kernels",
        "patches": "values at patches of images, of the process that `Patch` is the mean of",
        "spherical": "spherical harmonics of degrees below M: `ArcCosine`, `Polynomial`, kernels of points on a sphere",
    }
)
_features = dict(OWN)
FEATURES: Mapping[str, str] = MappingProxyType(_features)
"""What families of inducing features are called, and what they are: gpdsl's own, and those registered."""

PLACED = ("points", "slopes", "patches")
"""Those that are placed like inducing points."""

EVERYWHERE = ("spherical",)
"""Those that are the same wherever the rows are."""

BOUNDLESS = (*PLACED, *EVERYWHERE)
"""Those that have no bounds."""


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


EXAMPLE, DEGREES = 50, 12
"""Features in messages, and degrees of them."""

DIGITS = 9
"""Of a number of features, at most."""

_CALLED = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = rf"\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\]"
_PART = re.compile(
    rf"\s*([A-Za-z_]\w*)\s*\(\s*(\d+)\s*"
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
    found = _parts(text)
    return found if isinstance(found, tuple) else None


def _parts(text: str) -> tuple[Written, ...] | str:
    """The families of a sum, or what was expected instead where it is none; nothing where it looks like none."""
    found: list[Written] = []
    rest = text
    while True:
        match = _PART.match(rest)
        if match is None:
            call = _CALLED.match(rest)
            return _no_family(call[1]) if call is not None and call[1] not in FEATURES else ""
        name, count, bounds = match.groups()
        if name not in FEATURES:
            return _no_family(name)
        if len(count) > DIGITS:
            return f"at most {10**DIGITS - 1:,} of `{name}`, not {count[:20]}{'...' * (len(count) > 20)}"
        if int(count) == 0:
            return f"at least one of `{name}`, as in `{name}({DEGREES if name in EVERYWHERE else EXAMPLE})`, not 0"
        over = _box(bounds)
        if over is None:
            return f"the lower bound before the upper one, as in `over = [-5, 5]`, not `{bounds.strip()}`"
        if over and name in PLACED:
            return f"`{name}({count})` without `over`: they are placed among the rows"
        if over and name in EVERYWHERE:
            return f"`{name}({count})` without `over`: they have no bounds"
        if name in {each.family for each in found}:
            return f"every family once, and `{name}` is there twice: give one number of them"
        found.append(Written(name, int(count), over))
        apart = [each.family for each in found if each.family not in {"points", "slopes"}]
        if len(apart) > 1:
            return f"one of `{apart[0]}` and `{apart[1]}`, whose covariances are not known, beside points and slopes"
        rest = rest[match.end() :]
        if not rest:
            return tuple(found)
        if rest[0] != "+":
            return ""
        rest = rest[1:]


def _no_family(name: str) -> str:
    near = closest(name, FEATURES)
    meant = f"; did you mean `{near}`?" if near else ""
    return f"a family of features that there is, not `{name}`: {', '.join(FEATURES)}{meant}"


def _box(text: str | None) -> Box | None:
    """The bounds, none where none are written; None where they are not in order."""
    if text is None:
        return ()
    pairs = [re.findall(_NUMBER, each) for each in re.findall(_PAIR, text)]
    box = tuple((float(low), float(high)) for low, high in pairs)
    return box if all(math.isfinite(a) and math.isfinite(b) and a < b for a, b in box) else None


OTHERS = ""
"""In place of a name: latents that are not named."""

PerLatent = Mapping[str, int | str]
"""Inducing points or features by the names of latents."""


def per_latent(asked: PerLatent, latents: Collection[str]) -> int | str | dict[str, int | str] | None:
    """What is asked for each latent, in their order; a single value where all have the same.

    Latents for which nothing is asked are left out, and None is what is asked for none.
    """
    each = {name: asked.get(name, asked.get(OTHERS)) for name in latents}
    if len(set(each.values())) <= 1:
        return next(iter(each.values()), asked.get(OTHERS))
    return {name: value for name, value in each.items() if value is not None}


def shown_inducing(asked: int | str | PerLatent) -> str:
    """The option as it is written in an `infer` line."""
    if not isinstance(asked, Mapping):
        return f"inducing = {asked}"
    return ", ".join(f"inducing {name} = {value}" if name else f"inducing = {value}" for name, value in asked.items())


@dataclass(frozen=True)
class Inducing:
    """A number of inducing points, a sum of features, or either by the names of latents."""

    example: ClassVar[str] = "100"

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(f"{name}(M)" for name in FEATURES)

    @property
    def expected(self) -> str:
        return (
            "a whole number of at least 0, or features such as fourier(50, over = [-5, 5]): "
            f"{', '.join(FEATURES)}; by the names of latents where they differ"
        )

    def read(self, value: Any) -> int | str | dict[str, int | str] | None:
        """The number, or the features as they would be written; points alone are a number. By name: of each."""
        if isinstance(value, Mapping):
            found = {name: self.read_one(each) for name, each in value.items() if isinstance(name, str)}
            known = {name: each for name, each in found.items() if each is not None}
            return known if known and len(known) == len(value) else None
        return self.read_one(value)

    def read_one(self, value: Any) -> int | str | None:
        """What one latent has."""
        if isinstance(value, str):
            parts = read_features(value)
            if parts is None:
                return None
            # The sum as it would be written.
            return parts[0].count if [each.family for each in parts] == ["points"] else " + ".join(map(str, parts))
        return Whole(0).read(value)

    def expected_of(self, value: Any) -> str:
        """What was expected instead of a value that it cannot have; of several latents, of the first that is wrong."""
        if isinstance(value, Mapping):
            wrong = next((each for each in value.items() if self.read_one(each[1]) is None), None)
            return self.expected if wrong is None else f"of `{wrong[0]}` {self.expected_of(wrong[1])}"
        found = _parts(value) if isinstance(value, str) else ""
        return found if found and isinstance(found, str) else self.expected


# Inducing points and features by the names of latents: `inducing f = 10, inducing g = fourier(20)`.


def of_latents(
    line: int | str | PerLatent | None, asked: PerLatent, latents: Collection[str]
) -> int | str | dict[str, int | str] | None:
    """What a caller asks by name, before what the model's `infer` line asks. Raises GpdslError for an unknown name."""
    for name in asked:
        if name not in latents and name != OTHERS:
            near = closest(name, latents)
            meant = f"; did you mean `{near}`?" if near else ""
            known = ", ".join(f"`{each}`" for each in latents) or "none"
            raise GpdslError(f"inducing of {quoted(name)}: the model has no such latent; its latents: {known}{meant}")
    before = line if isinstance(line, Mapping) else {} if line is None else {OTHERS: line}
    return per_latent({**before, **asked}, latents)


def asked_of(asked: int | str | PerLatent | None, latent: str) -> int | str | None:
    """What is asked for one latent; None where the plan decides."""
    return asked.get(latent) if isinstance(asked, Mapping) else asked


def shown_of(asked: int | str | PerLatent | None, latent: str, instead: int | None = None) -> str:
    """That, or another number instead, as it is written in an `infer` line."""
    value = asked_of(asked, latent) if instead is None else instead
    return f"inducing {latent} = {value}" if isinstance(asked, Mapping) else f"inducing = {value}"


def counted(asked: int | str) -> tuple[int, str]:
    """How many inducing variables are asked for, and the features that they are, where they are not points alone."""
    if isinstance(asked, str):
        return sum(part.count for part in read_features(asked) or ()), asked
    return asked, ""


def words_of(asked: int | str) -> str:
    """What one latent has."""
    if isinstance(asked, str):
        return f"features {asked}"
    return f"{asked} inducing points" if asked else "points at all rows"


def supported(
    asked: str | PerLatent, default: int, names: Collection[str], batch: int, *, moving: bool
) -> tuple[int, str, dict[str, int | str]]:
    """The number of inducing variables, 0 where rows are all of them; features; and either of each latent.

    Of latents that differ the number is the largest one. `moving`: the inducing inputs are learnt. Raises GpdslError
    for what that, or minibatches, do not cover.
    """
    if not isinstance(asked, Mapping):
        number, features = counted(asked)
        if features and moving:
            raise GpdslError(f"learn_inducing moves inducing points, which inducing = {asked} are not: leave it out")
        return number, features, {}
    own = {name: asked.get(name, default) for name in names or asked}
    number = max(counted(each)[0] for each in own.values())
    if number == 0:
        return 0, "", {}
    for name, each in own.items():
        what = shown_inducing({name: each})
        if moving and (each == 0 or isinstance(each, str)):
            are = "features are not" if each else "a latent with a point at all its rows does not have"
            raise GpdslError(f"learn_inducing moves inducing points, which {are}: leave it out, or change {what}")
        if batch and each == 0:
            raise GpdslError(f"{what} takes a point at all rows: set batch = 0, or a number of points above 0")
    return number, "", own
