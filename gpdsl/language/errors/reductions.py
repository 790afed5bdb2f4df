"""E370 to E379: sums, products of matrices, slices and conditions that do not say what they range over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class NothingToReduce(Mistake):
    """`sum(sigma)` of one number."""

    operator: str
    why: str
    remedy: str
    code: ClassVar = "E370"
    message: ClassVar = "`{operator}` has no axis to run over here"
    label: ClassVar = "{why}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class SeveralToReduce(Mistake):
    """`sum(w)` of a matrix."""

    operator: str
    axes: str
    remedy: str
    code: ClassVar = "E371"
    message: ClassVar = "`{operator}` could run over {axes}"
    label: ClassVar = "more than one axis"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class NothingShared(Mistake):
    """`a @ b` of quantities without a common axis."""

    operator: str
    why: str
    axes: str
    remedy: str
    code: ClassVar = "E372"
    message: ClassVar = "`{operator}` sums over an axis that both sides have, {why}"
    label: ClassVar = "{axes}"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class SeveralShared(Mistake):
    """`a @ b` of quantities with several common axes."""

    operator: str
    axes: str
    remedy: str
    code: ClassVar = "E373"
    message: ClassVar = "`{operator}` sums over one axis, but both sides have {axes}"
    label: ClassVar = "more than one common axis"
    help: ClassVar = "{remedy}"


@dataclass(frozen=True)
class LatentEquality(Mistake):
    """`if f == 0`: an event of probability zero."""

    operator: str
    code: ClassVar = "E374"
    message: ClassVar = "a latent is never exactly equal to anything"
    label: ClassVar = "`{operator}` holds with probability zero or one, whatever the data"
    help: ClassVar = "compare with `<` or `>`, or compare inputs and constants"


@dataclass(frozen=True)
class SliceNotHere(Mistake):
    """`a[1..3]` left of `=`."""

    code: ClassVar = "E375"
    message: ClassVar = "a range of elements cannot stand here"
    label: ClassVar = "expected an index, a number or a condition"
    help: ClassVar = "write a condition, such as `a[p <= 3]`"
