"""LaTeX of our own printer → MathML, which browsers draw without scripts; only what the printer writes is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from gpdsl.symbolic.latex.names import UNICODE

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|[0-9]+(?:\.[0-9]+)?|\s+|.", re.DOTALL)

_SYMBOLS = {
    **{name: letter for letter, name in UNICODE.items()},
    "varepsilon": "ε",
    "varphi": "φ",
    "phi": "ϕ",
    "infty": "∞",
    "partial": "∂",
    "top": "⊤",
}
_OPERATORS = {
    "sim": "∼",
    "in": "∈",
    "mid": "∣",
    "forall": "∀",
    "times": "×",
    "to": "→",
    "le": "≤",
    "ge": "≥",
    "ne": "≠",
    "cdot": "⋅",
    "dots": "…",
    "lVert": "‖",
    "rVert": "‖",
    "lvert": "|",
    "rvert": "|",
    "langle": "⟨",
    "rangle": "⟩",
    "lfloor": "⌊",
    "rfloor": "⌋",
    "sum": "∑",
    "prod": "∏",
    "int": "∫",
    "{": "{",
    "}": "}",
}
_SPACES = {"quad": "1em", "qquad": "2em", ",": "0.17em", ";": "0.28em", " ": "0.25em"}
_NOTHING = {"!", "textstyle", "bigl", "bigr", "displaystyle"}
_FUNCTIONS = frozenset(
    ["exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "min", "max", "arctan", "arcsin", "arccos", "det"]
)
_AFTER_SPACE = {"mathrm", "mathbf", "boldsymbol", "sum", "prod", "lvert", "lVert", "frac", "sqrt", *_SYMBOLS}
"""What a function's name is set apart from."""
_RELATIONS = {"sim", "in", "mid", "le", "ge", "ne", "cdot", "times", "to", "quad", "qquad", "left"}
_LARGE = {"∑", "∏"}
_ALPHABETS = {"mathbb": {"R": "ℝ"}, "mathcal": {"N": "𝒩", "G": "𝒢", "P": "𝒫"}}


def mathml(text: str) -> str:
    """A formula as a `math` element; all that is a user's is escaped."""
    return f"<math>{_Reader(text).row()}</math>"


def lines_of(text: str) -> str:
    """What stands inside `align*`: a table whose sides meet at the relation."""
    rows = "".join(f"<mtr>{_cells(line)}</mtr>" for line in _split(text, r"\\"))
    return f'<math display="block"><mtable class="equations" displaystyle="true">{rows}</mtable></math>'


def _cells(line: str) -> str:
    parts = _split(line, "&")
    places = ("left", "right", "", "where")
    shown = ((place, part) for place, part in zip(places, parts, strict=False) if place != "" or part.strip())
    return "".join(f'<mtd class="{place}">{_Reader(part).row()}</mtd>' for place, part in shown)


def _split(text: str, mark: str) -> list[str]:
    """A text at the marks that stand outside of braces and environments."""
    found, depth = [""], 0
    for token in _tokens(text):
        depth += (token == "{") - (token == "}") + (token == r"\begin") - (token == r"\end")
        if token == mark and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return found


def _tokens(text: str) -> Iterator[str]:
    return (each[0] for each in _TOKEN.finditer(text))


class _Reader:
    """A formula, read token by token."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0

    def row(self, *ends: str) -> str:
        """Everything up to a token, as one group."""
        parts: list[str] = []
        while (token := self._peek()) and token not in ends:
            parts.append(self._scripted())
            if token[1:] in _FUNCTIONS and self._peek()[:1].isalnum() | (self._peek()[1:] in _AFTER_SPACE):
                parts.append('<mspace width="0.17em"/>')
        self.at += bool(ends)
        return f"<mrow>{''.join(parts)}</mrow>"

    def _peek(self) -> str:
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self.at += 1
        return token

    def _scripted(self) -> str:
        """One thing with what is below and above it."""
        base, below, above = self._atom(), "", ""
        while (token := self._peek()) in {"_", "^", "'"}:
            self.at += 1
            if token == "_":
                below = self._atom()
            else:
                above += "<mo>′</mo>" if token == "'" else self._atom()
        if "′" in above and "<m" in above.replace("<mo>′</mo>", ""):
            above = f"<mrow>{above}</mrow>"
        limits = base in {f"<mo>{each}</mo>" for each in _LARGE}
        if below and above:
            kind = "munderover" if limits else "msubsup"
            return f"<{kind}>{base}{below}{above}</{kind}>"
        if below:
            kind = "munder" if limits else "msub"
            return f"<{kind}>{base}{below}</{kind}>"
        return f"<msup>{base}{above}</msup>" if above else base

    def _atom(self) -> str:
        token = self._next()
        if token == "{":
            return self.row("}")
        if not token.startswith("\\"):
            return _letter(token, prefix=not self._after_operand())
        word = token[1:]
        if word in _SYMBOLS:
            return f"<mi>{_SYMBOLS[word]}</mi>"
        if word in _OPERATORS:
            looks = (
                ' stretchy="false"'
                if _OPERATORS[word] in "‖|∣⟨⟩⌊⌋{}"
                else ' form="infix"'
                if word in _RELATIONS
                else ""
            )
            return f"<mo{looks}>{_OPERATORS[word]}</mo>"
        if word in _FUNCTIONS:
            return f"<mi>{word}</mi>"
        if word in _SPACES:
            return f'<mspace width="{_SPACES[word]}"/>'
        if word in _NOTHING:
            return "<mrow></mrow>"
        return self._command(word)

    def _after_operand(self) -> bool:
        """Whether a sign stands between two operands."""
        before = [each for each in self.tokens[: self.at - 1] if not each.isspace()]
        return bool(before) and (before[-1][-1].isalnum() or before[-1] in ")]}'|") and before[-1][1:] not in _RELATIONS

    def _command(self, word: str) -> str:
        match word:
            case "frac" | "dfrac" | "tfrac":
                return f"<mfrac>{self._atom()}{self._atom()}</mfrac>"
            case "sqrt":
                return f"<msqrt>{self._atom()}</msqrt>"
            case "left":
                left = self._fence()
                inside = self.row(r"\right")
                return f"<mrow>{left}{inside}{self._fence()}</mrow>"
            case "begin":
                return self._environment()
            case "mathrm" | "operatorname" | "mathtt" | "text" | "texttt" | "textbf" | "mathbf" | "boldsymbol":
                return self._word(word)
            case "mathbb" | "mathcal":
                letters = "".join(_ALPHABETS[word].get(each, each) for each in self._braced())
                return f"<mi>{escape(letters)}</mi>"
        escaped = "\\" + word if word.isalpha() else word  # `\_`, or a command that nobody knows
        return f"<mtext>{escape(escaped)}</mtext>"

    def _fence(self) -> str:
        token = self._next().removeprefix("\\")
        token = "" if token == "." else _OPERATORS.get(token, token)
        return f'<mo fence="true" stretchy="true">{escape(token)}</mo>' if token else ""

    def _word(self, kind: str) -> str:
        """A word, upright; bold where it is a vector."""
        text = self._braced()
        inner = _SYMBOLS.get(text[1:].strip(), plain(text)) if text.startswith("\\") else plain(text)
        if kind in {"text", "texttt", "textbf"}:
            return f"<mtext>{escape(inner).replace(' ', chr(160))}</mtext>"
        style = ' class="bold"' if kind in {"mathbf", "boldsymbol"} else ""
        return f'<mi mathvariant="normal"{style}>{escape(inner)}</mi>'

    def _braced(self) -> str:
        """The text between the braces that follow, as it is; spaces count."""
        self._next()
        found, depth = "", 1
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            depth += (token == "{") - (token == "}")
            if not depth:
                break
            found += token
        return found

    def _environment(self) -> str:
        """Cases and small matrices."""
        name, inside, depth = self._braced(), "", 1
        while self.at < len(self.tokens) and depth:
            token = self.tokens[self.at]
            self.at += 1
            depth += (token == r"\begin") - (token == r"\end")
            inside += token if depth else ""
        self._braced()
        rows = (_split(re.sub(r"^\s*\[\d+pt\]", "", line), "&") for line in _split(inside, r"\\"))
        body = "".join(f"<mtr>{''.join(f'<mtd>{_Reader(cell).row()}</mtd>' for cell in row)}</mtr>" for row in rows)
        looks = 'class="cases" displaystyle="true"' if name == "cases" else 'class="matrix"'
        table = f"<mtable {looks}>{body}</mtable>"
        return f'<mrow><mo fence="true" stretchy="true">{{</mo>{table}</mrow>' if name == "cases" else table


def _letter(token: str, *, prefix: bool) -> str:
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{escape(token)}</mi>"
    form = ' form="prefix"' if prefix and token in "+-" else ' form="infix"' if token in "=<>" else ""
    form = ' stretchy="false"' if token in "()[]|" else form
    return f"<mo{form}>{'−' if token == '-' else escape(token)}</mo>"


def plain(text: str) -> str:
    """Text of LaTeX's text mode as it is read."""
    for command, letter in ((r"\textbackslash{}", "\\"), (r"\textasciitilde{}", "~"), (r"\textasciicircum{}", "^")):
        text = text.replace(command, letter)
    return re.sub(r"\\([&%$#_{}])", r"\1", text)
