"""Names as labels of a drawing: Greek letters, and subscripts of a name's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu"),
    *("xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "ell"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"),
)
_GREEK = dict(zip(_NAMES, "αβγδεζηθικλμνξπρστυφχψωℓΓΔΘΛΞΠΣΦΨΩ", strict=True))


@dataclass(frozen=True)
class Label:
    """A word, its subscript and superscript. `italic` for single letters, `bold` for what has columns."""

    base: str
    below: str = ""
    above: str = ""
    italic: bool = False
    bold: bool = False

    @property
    def plain(self) -> str:
        """The label in one line of text."""
        return self.base + self.above.replace("2", "²") + (f"_{self.below}" if self.below else "")

    @property
    def width(self) -> float:
        """About how wide it is, in units of the font size."""
        return 0.6 * len(self.base) + 0.42 * max(len(self.below), len(self.above))


def label_of(name: str, *, bold: bool = False) -> Label:
    """The label of a name: `ell_g` is ℓ with subscript g, `s2` the square of s."""
    head, *tail = name.split("_")
    above = ""
    if head in {"s2", "sigma2", "tau2"}:
        head, above = head[:-1], "2"
    numbered = re.fullmatch(r"(.*\D)(\d+)", head)
    if numbered:
        head, tail = numbered[1], [numbered[2], *tail]
    base = _GREEK.get(head, head)
    if not head or "" in tail or (len(base) > 1 and any(len(each) > 1 and not each.isdigit() for each in tail)):
        return Label(name, bold=bold)
    return Label(base, ",".join(_GREEK.get(each, each) for each in tail), above, italic=len(base) == 1, bold=bold)
