"""E390 to E396: indices that are columns of the data, `input site : label[s]`, and what is read at their levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class LabelNotNumber(Mistake):
    """A column of levels where a number is needed."""

    name: str
    index: str
    code: ClassVar = "E390"
    message: ClassVar = "`{name}` is a label: its levels are names, not numbers"
    label: ClassVar = "a label stands in brackets"
    help: ClassVar = "give each level its own value, `param a[{index}] : real`, and read that of the row: `a[{name}]`"


@dataclass(frozen=True)
class LevelNotSaid(Mistake):
    """`a` or `a[2]` of something that each level of a column has its own of."""

    name: str
    index: str
    example: str
    code: ClassVar = "E391"
    message: ClassVar = "each level of `{index}` has its own `{name}`, and the levels are known only with the data"
    label: ClassVar = "expected the column that says which"
    help: ClassVar = "write `{example}`"


@dataclass(frozen=True)
class NotALabel(Mistake):
    """`a[x]` where `x` is an input, but no column of the levels of this index."""

    name: str
    given: str
    what: str
    index: str
    remedy: str
    code: ClassVar = "E392"
    message: ClassVar = "`{name}` is indexed by `{index}`, and `{given}` is {what}"
    label: ClassVar = "expected a label of `{index}`"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class LabelInKernel(Mistake):
    """A kernel that takes the numbers of levels for places on a line."""

    kernel: str
    name: str
    latent: str
    code: ClassVar = "E393"
    message: ClassVar = "`{kernel}` sees `{name}`, a label: distances between its levels mean nothing"
    label: ClassVar = "sees the column `{name}`"
    help: ClassVar = "let it see other inputs only, `on = x`, and multiply it by `Same(on = {name})` or a `Coregion`"


@dataclass(frozen=True)
class KernelByLevel(Mistake):
    """`latent f[s](x) ~ GP(0, tau[s]^2 * RBF(1))` where `s` is a column of the data."""

    latent: str
    index: str
    column: str
    code: ClassVar = "E394"
    message: ClassVar = "the kernel of `{latent}` is the same for every level of `{index}`"
    label: ClassVar = "differs by `{index}`"
    help: ClassVar = (
        "leave `[{index}]` out; a scale can stand where `{latent}` is read: `tau[{column}] * {latent}[{column}]`"
    )


@dataclass(frozen=True)
class PriorOfLevels(Mistake):
    """A prior with learnt parameters, of another form than Normal: its mode says nothing."""

    name: str
    given: str
    code: ClassVar = "E395"
    message: ClassVar = "{given} learns a prior of levels that are estimated: the best spread is then none"
    label: ClassVar = "learnt here"
    help: ClassVar = (
        "`real ~ Normal(mu, tau)` and `positive ~ LogNormal(m, s)` are inferred, and may learn theirs; or write numbers"
    )


@dataclass(frozen=True)
class SeveralLabels(Mistake):
    """`input site[p] : label[s]`."""

    name: str
    code: ClassVar = "E396"
    message: ClassVar = "an input of levels is one column"
    label: ClassVar = "has an axis"
    help: ClassVar = "declare one input for each column: `input {name}1 : label[s]`, `input {name}2 : label[s]`"
