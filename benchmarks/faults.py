"""Small wrong changes to the mathematics of a file, which `benchmarks/mutants.py` makes one at a time.

Faults are changed signs, factors of 2 and 1/2, numbers and orders off by one, dropped jitter, swapped operands and
arguments, and comparisons turned round. Limits are left as they are: how high one is that a named number sets
(`n > 2 * MANY`), and how often something is refined (`range(BISECTIONS)`), has no right value that a test could know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPPOSITE: dict[type[ast.operator] | type[ast.cmpop], type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
EXTREMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
ORDERED = frozenset(
    {"where", "subtract", "divide", "power", "matmul", "dot", "solve", "cho_solve", "arctan2", "clip", "Pow"}
)
"""Functions of several arguments of one kind, whose order counts; types tell those of most others apart."""

WORDS = (ast.JoinedStr, ast.Raise, ast.Assert)
"""What is said is not looked at: golden files hold it."""


@dataclass(frozen=True)
class Mutant:
    """A fault: characters `start` to `stop` of a file become `text`; `lines` are those of the statement around it."""

    path: str
    kind: str
    line: int
    start: int
    stop: int
    old: str
    text: str
    lines: range

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.old} -> {self.text}"


def mutants_of(path: Path, root: Path) -> Iterator[Mutant]:
    """Every fault that can be made in a file of a repository."""
    source = path.read_bytes()
    offsets = [0]
    for line in source.split(b"\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    tree = ast.parse(source)
    limits = _limits(tree)
    for node, lines, even in _formulas(tree):
        for kind, changed in _changes(node):
            if kind == "factor" and node in limits:
                continue
            if even and (isinstance(node, ast.UnaryOp) or (kind == "swap" and _difference(node))):
                continue
            start = offsets[node.lineno - 1] + node.col_offset
            stop = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
            old, text = source[start:stop].decode(), ast.unparse(changed)
            yield Mutant(path.relative_to(root).as_posix(), kind, node.lineno, start, stop, old, f"({text})", lines)


def _formulas(node: ast.AST, lines: range = range(0), even: bool = False) -> Iterator[tuple[ast.expr, range, bool]]:
    """The expressions that compute (not annotations, messages or texts), with the lines of their statements.

    And whether their sign counts for nothing, as that of what is squared does not.
    """
    if isinstance(node, WORDS):
        return
    if isinstance(node, ast.expr):
        yield node, lines, even
    if isinstance(node, (ast.stmt, ast.Lambda)):
        inner = getattr(node, "body", None)
        last = inner[0].lineno - 1 if isinstance(inner, list) else node.end_lineno
        lines = range(node.lineno, max(node.lineno, last or 0) + 1)
    skipped = {"annotation", "returns", "decorator_list", "type_params", "bases"}
    inside = _signless(node, even)
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children if name not in skipped else ():
            if isinstance(child, ast.AST):
                yield from _formulas(child, lines, inside)


def _signless(node: ast.AST, even: bool) -> bool:
    """Whether the signs of what an expression is made of count for nothing; of products if that of these does not."""
    match node:
        case ast.BinOp(_, ast.Pow(), ast.Constant(int(power))):
            return power % 2 == 0
        case ast.Call(ast.Name(name) | ast.Attribute(_, name), [_], []):
            return name in ("abs", "square")
        case ast.BinOp(_, ast.Mult() | ast.Div() | ast.MatMult(), _) | ast.UnaryOp(ast.USub(), _):
            return even
    return False


def _limits(tree: ast.AST) -> set[ast.expr]:
    """Sides of comparisons, and terms of these, that are named numbers or so many times something: no half or double of
    them is wrong."""
    compared = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    sides = (side for node in compared for side in (node.left, *node.comparators))
    return {term for side in sides for term in _terms(side) if _chosen(term)}


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            yield from (*_terms(left), *_terms(right))
        case _:
            yield node


def _chosen(node: ast.expr) -> bool:
    """Whether it is a constant by its name, in capitals, or so many times something."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name.isupper() and len(name) > 2
        case ast.BinOp(left, ast.Mult() | ast.Div(), right):
            return _chosen(left) or _chosen(right)
    return False


def _difference(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def _changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right) if not _text(left) and not _text(right):
            yield "sign", ast.BinOp(left, OPPOSITE[type(sign)](), right)
            if "jitter" in ast.unparse(right):
                yield "no jitter", left
            if isinstance(sign, ast.Sub):
                yield "swap", ast.BinOp(right, sign, left)
        case ast.BinOp(left, ast.Mult() | ast.Div() | ast.MatMult() as sign, right) if not _text(left):
            yield "factor", ast.BinOp(ast.Constant(2.0), ast.Mult(), node)
            yield "factor", ast.BinOp(ast.Constant(0.5), ast.Mult(), node)
            if not isinstance(sign, ast.Mult):
                yield "swap", ast.BinOp(right, sign, left)
        case ast.BinOp(left, ast.Pow() as sign, ast.Constant(int(power))):
            yield "off by one", ast.BinOp(left, sign, ast.Constant(power + 1))
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.Compare(left, [sign], [right]) if type(sign) in OPPOSITE:
            yield "comparison", ast.Compare(left, [OPPOSITE[type(sign)]()], [right])
        case ast.Subscript(value, ast.Slice(lower, ast.Constant(int(upper)), None), context) if upper > 0:
            slices = ast.Slice(lower, ast.Constant(upper - 1), None)
            yield "off by one", ast.Subscript(value, slices, context)
        case ast.Call(ast.Name("range" | "arange") as called, [*first, last], []) if not _starred(last) and (
            first or not _chosen(last)
        ):
            yield "off by one", ast.Call(called, [*first, ast.BinOp(last, ast.Sub(), ast.Constant(1))], [])
        case ast.Call(ast.Attribute(value, name, context), arguments, keywords) if name in EXTREMES:
            yield "extreme", ast.Call(ast.Attribute(value, EXTREMES[name], context), arguments, keywords)
        case ast.Call(ast.Attribute(_, name) as called, arguments, keywords) if name in ORDERED:
            first = 1 if name == "where" else 0
            one, two = [*arguments[first : first + 2], None, None][:2]
            if one and two and not _starred(one, two) and not _text(one) and ast.dump(one) != ast.dump(two):
                swapped = [*arguments[:first], two, one, *arguments[first + 2 :]]
                yield "swap", ast.Call(called, swapped, keywords)
        case ast.Call(called, arguments, keywords) if any(each.arg == "jitter" for each in keywords):
            others = [ast.keyword("jitter", ast.Constant(0.0)) if k.arg == "jitter" else k for k in keywords]
            yield "no jitter", ast.Call(called, arguments, others)


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _starred(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)
