"""Lark's tree of one statement to our syntax tree: one line per rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lark import Token, Transformer, v_args
from lark.tree import Meta

from gpdsl.language import syntax
from gpdsl.language.vocabulary import Span

_EXACT_DIGITS = 15


def _node(
    kind: Callable[..., Any], *first: Any, empty: Any = None, listed: int | None = None
) -> Callable[[ToSyntax, Meta, list], Any]:
    """What a rule becomes whose parts are those of its node, after its place and what its name says already.

    Parts that are not written are `empty`; those from the one that is `listed` on are one list of what is there.
    """

    def build(self: ToSyntax, meta: Meta, children: list) -> Any:
        parts = [empty if each is None else each for each in children]
        if listed is not None:
            parts[listed:] = [tuple(each for each in children[listed:] if each is not None)]
        return kind(self.span(meta), *first, *parts)

    return build


def _all(self: ToSyntax, meta: Meta, children: list) -> tuple:
    return tuple(children)


def _only(self: ToSyntax, meta: Meta, children: list) -> Any:
    return children[0]


@v_args(meta=True)
class ToSyntax(Transformer):
    """`line` is the line of the file on which the statement starts."""

    def __init__(self, line: int) -> None:
        super().__init__(visit_tokens=True)
        self.offset = line - 1

    def span(self, place: Token | Meta) -> Span:
        """The place of a token or of a rule, in lines of the file."""
        line, end_line = (place.line or 1) + self.offset, (place.end_line or 1) + self.offset
        return Span(line, place.column or 1, end_line, place.end_column or 2)

    # --- terminals

    def NAME(self, token: Token) -> syntax.Identifier:
        return syntax.Identifier(self.span(token), str(token))

    def NUMBER(self, token: Token) -> syntax.Literal:
        # int() of thousands of digits is slow and refused by Python; a float of them is infinite, which is reported.
        whole = token.isascii() and token.isdigit() and len(token) <= _EXACT_DIGITS
        return syntax.Literal(self.span(token), str(token), int(token) if whole else float(token))

    def TEXT(self, token: Token) -> tuple[str, Span]:
        return str(token)[1:-1], self.span(token)

    # --- statements

    index_range = _node(syntax.IndexStatement)
    input = _node(syntax.InputStatement)
    output = _node(syntax.OutputStatement)
    const = _node(syntax.ConstStatement)
    row = _node(syntax.RowStatement)
    let = _node(syntax.LetStatement)
    function = _node(syntax.FunctionStatement, empty=())
    density = _node(syntax.DensityStatement, empty=())
    external = _node(syntax.ExternalStatement, empty=())
    external_likelihood = _node(syntax.ExternalLikelihoodStatement, empty=())
    infer = _node(syntax.InferStatement, listed=1)

    def model(self, meta: Meta, children: list) -> syntax.ModelStatement:
        name, title = children
        return syntax.ModelStatement(self.span(meta), name, title[0] if title else "")

    def use(self, meta: Meta, children: list) -> syntax.UseStatement:
        ((path, place),) = children
        return syntax.UseStatement(self.span(meta), path, place)

    def index_levels(self, meta: Meta, children: list) -> syntax.IndexStatement:
        return syntax.IndexStatement(self.span(meta), children[0], levels=tuple(children[1:]))

    def param(self, meta: Meta, children: list) -> syntax.ParamStatement:
        declared, kind, value, fixed, prior = children
        return syntax.ParamStatement(self.span(meta), declared, kind, value, fixed is not None, prior)

    def latent(self, meta: Meta, children: list) -> syntax.LatentStatement:
        name, subscripts, *pairs, process = children
        bare = tuple(each.value for each in subscripts or () if each.comparison is None and each.stop is None)
        indices = tuple(each.identifier for each in bare if isinstance(each, syntax.Name) and each.subscripts is None)
        layered = len(indices) < len(subscripts or ())
        given = tuple(syntax.Name(each.span, each, own) for each, own in zip(pairs[::2], pairs[1::2], strict=True))
        read = any(pairs[1::2])
        return syntax.LatentStatement(
            self.span(meta),
            syntax.Declared(name, () if layered else indices),
            () if read else tuple(pairs[::2]),
            process,
            subscripts if layered else None,
            given if read else None,
        )

    def kernel(self, meta: Meta, children: list) -> syntax.KernelStatement:
        name, levels, arguments, parameters, value = children
        return syntax.KernelStatement(self.span(meta), name, arguments, parameters or (), value, levels or ())

    def observation(self, meta: Meta, children: list) -> syntax.ObservationStatement:
        left, right = children
        return syntax.ObservationStatement(self.span(meta), left if isinstance(left, tuple) else (left,), right)

    # --- parts of statements

    several = indices = names = bounds = sizes = passed = subscripts = _all
    size_number = size_name = _node(syntax.Size)
    passed_argument = _node(syntax.Passed)
    type = _node(syntax.Type, empty=())
    option = _node(syntax.Option)
    level_text = _only

    def declared(self, meta: Meta, children: list) -> syntax.Declared:
        return syntax.Declared(children[0], children[1] or ())

    def level_number(self, meta: Meta, children: list) -> tuple[int | float, Span]:
        return children[0].value, self.span(meta)

    def level_negative(self, meta: Meta, children: list) -> tuple[int | float, Span]:
        return -children[0].value, self.span(meta)

    # --- expressions

    add, subtract, multiply, divide, raise_to, contract = (_node(syntax.Binary, each) for each in "+-*/^@")
    number = group = _only
    name = element = _node(syntax.Name)
    negate = _node(syntax.Negation)
    conditional = _node(syntax.Conditional)
    either, both, negation = (_node(syntax.Logical, each, listed=0) for each in ("or", "and", "not"))
    call = _node(syntax.Call, listed=1)
    array = _node(syntax.Array, listed=0)
    positional = _node(syntax.Argument, None)
    named = _node(syntax.Argument)
    at = _node(syntax.Subscript)

    def compare(self, meta: Meta, children: list) -> syntax.Comparison:
        left, operator, right = children
        return syntax.Comparison(self.span(meta), str(operator), left, right)

    def elsewhere(self, meta: Meta, children: list) -> syntax.Elsewhere:
        name, subscripts, *inputs = children
        return syntax.Elsewhere(self.span(meta), syntax.Name(self.span(meta), name, subscripts), tuple(inputs))

    def slice(self, meta: Meta, children: list) -> syntax.Subscript:
        first, last = children
        return syntax.Subscript(self.span(meta), first, stop=last)

    def where(self, meta: Meta, children: list) -> syntax.Subscript:
        value, comparison, against = children
        return syntax.Subscript(self.span(meta), value, str(comparison), against)
