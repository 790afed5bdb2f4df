"""Reads LaTeX formulas the way a person does, and computes their value: an independent check of what was printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(
    r"\\begin\{cases\}|\\end\{cases\}|\\text\{[^}]*\}|\\operatorname\{[a-z]+\}|\\\\(?:\[14pt\])?|\\[a-zA-Z]+|\\,"
    r"|\d+(?:\.\d+)?|[A-Za-z](?:_\{[^{}]*\}|_\w)?|[-+^(){}<>=&,]"
)
_SKIPPED = re.compile(r"\\left|\\right|\\!|\s+")

_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    r"\exp": math.exp,
    r"\log": math.log,
    r"\sin": math.sin,
    r"\cos": math.cos,
    r"\tanh": math.tanh,
    r"\max": max,
    r"\min": min,
    r"\operatorname{sigmoid}": lambda a: 1 / (1 + math.exp(-a)),
}


class Reader:
    """One formula. `value` raises ValueError for what no reader could make sense of."""

    def __init__(self, text: str, names: Mapping[str, float]) -> None:
        text = text.replace(r"\dfrac", r"\frac").replace(r"\text{if } ", "")
        pieces = [piece for piece in _SKIPPED.split(text) if piece]
        self.tokens: list[str] = []
        for piece in pieces:
            found = _TOKEN.findall(piece)
            if "".join(found) != piece:
                raise ValueError(f"cannot read {piece!r} in {text!r}")
            self.tokens += found
        self.names, self.at = names, 0

    def value(self) -> float:
        result = self.sum()
        if self.at != len(self.tokens):
            raise ValueError(f"left over: {self.tokens[self.at :]}")
        return result

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise ValueError(f"expected {wanted!r}, found {token!r}")
        self.at += 1
        return token

    def sum(self) -> float:
        negative = self.peek() == "-" and bool(self.take())
        total = -self.product() if negative else self.product()
        while self.peek() in {"+", "-"} and self.peek():
            sign = 1 if self.take() == "+" else -1
            total += sign * self.product()
        return total

    def product(self) -> float:
        result = self.power()
        while self.peek() in {r"\,", r"\cdot", r"\times"} and self.peek():
            self.take()
            result *= self.power()
        return result

    def power(self) -> float:
        base = self.atom()
        if self.peek() == "^":
            self.take()
            base = base ** self.braced()
        if self.peek() == "^":
            raise ValueError("two exponents")
        return base

    def braced(self) -> float:
        """The argument of a command or an exponent: one token, or a group."""
        if self.peek() != "{":
            return self.atom()
        self.take("{")
        result = self.sum()
        self.take("}")
        return result

    def atom(self) -> float:
        token = self.take()
        if token in _FUNCTIONS:
            return self.function(_FUNCTIONS[token])
        if token == r"\frac":
            return self.braced() / self.braced()
        if token == r"\sqrt":
            return math.sqrt(self.braced())
        if token == r"\lvert":
            result = self.sum()
            self.take(r"\rvert")
            return abs(result)
        if token == "(":
            result = self.sum()
            self.take(")")
            return result
        if token == r"\begin{cases}":
            return self.cases()
        if token[0].isdigit():
            return float(token)
        if token in self.names:
            if self.peek() == "(":
                raise ValueError(f"{token} looks like a function")
            return self.names[token]
        raise ValueError(f"unexpected {token!r}")

    def function(self, function: Callable[..., float]) -> float:
        power = 1.0
        if self.peek() == "^":
            self.take()
            power = self.braced()
        self.take("(")
        arguments = [self.sum()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.sum())
        self.take(")")
        return float(function(*arguments)) ** power

    def cases(self) -> float:
        chosen: float | None = None
        while True:
            value = self.sum()
            self.take("&")
            holds = self.condition()
            if chosen is None and holds:
                chosen = value
            end = self.take()
            if end == r"\end{cases}":
                break
        if chosen is None:
            raise ValueError("no case holds")
        return chosen

    def condition(self) -> bool:
        if self.peek() == r"\text{otherwise}":
            self.take()
            return True
        left, relation, right = self.sum(), self.take(), self.sum()
        return {"<": left < right, ">": left > right, r"\le": left <= right, r"\ge": left >= right}[relation]
