"""What an entry of the vocabulary says: parameters, distributions, covariance functions and elementary functions.

`domain` of a parameter is `real`, `positive`, `unit` (between 0 and 1) or `count` (whole numbers from 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Parameter:
    """A parameter of a distribution or kernel.

    `alternative`: exactly one of the alternatives of a distribution is given, by its name. `vector`: a kernel
    parameter that may hold one value per column of the input. `literal`: a whole number written in the text,
    from `least` to `most`. `per`: a parameter of a distribution that holds one value per `level`, `cutpoint`,
    `component`, `element` or `pair`. `role`: an argument of a kernel is a `number`, a `kernel` or a list of whole
    numbers, `sizes`. `array` names the axes that a parameter of a kernel must have; `columns` are those of the input,
    which it may lack.
    """

    name: str
    meaning: str
    domain: str = "real"
    default: float | None = None
    alternative: bool = False
    vector: bool = False
    literal: bool = False
    per: str = ""
    least: int = 1
    most: int = 20
    role: str = "number"
    array: tuple[str, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """`kinds` are the kinds of output it can describe, `support` is where its values lie.

    `components` is the number of distributions it is made of, from. `default` is the alternative that an argument
    without a name stands for, and `form` how it is written when its parameters do not say. `tails` says that its
    distribution function is known: it can be truncated and censored. `latex` is its name there, where it is another.
    """

    name: str
    parameters: tuple[Parameter, ...]
    kinds: tuple[str, ...]
    meaning: str
    support: str
    components: int = 0
    default: str = ""
    form: str = ""
    tails: bool = False
    latex: str = ""

    @property
    def continuous(self) -> bool:
        """Whether it has a density on the line; a prior must."""
        return self.support in {"real", "positive", "unit", "component"}


@dataclass(frozen=True)
class KernelFamily:
    """A covariance function, of unit variance unless its meaning says otherwise. `one_column`: of a single column."""

    name: str
    parameters: tuple[Parameter, ...]
    meaning: str
    one_column: bool = False


@dataclass(frozen=True)
class Function:
    """An elementary function."""

    name: str
    arity: int
    meaning: str


def table(entries: Iterable) -> Mapping[str, object]:
    """Entries by name."""
    return MappingProxyType({entry.name: entry for entry in entries})


def signature(entry: Distribution | KernelFamily) -> str:
    """How a distribution or kernel is written: `RationalQuadratic(ell = 1, alpha = 1)`, `Bernoulli(logit = | p =)`."""
    if isinstance(entry, Distribution) and entry.form:
        return entry.form
    plain = [_shown(each) for each in entry.parameters if not each.alternative]
    named = " | ".join(f"{each.name} =" for each in entry.parameters if each.alternative)
    return f"{entry.name}({', '.join(plain + [named] if named else plain)})"


def _shown(parameter: Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name} = {parameter.default:g}"
