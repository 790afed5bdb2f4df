"""Lark's tree of one statement to our syntax tree: one line per rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable

from lark import Token, Transformer, v_args
from lark.tree import Meta

from gpdsl.language import syntax
from gpdsl.language.source import Span

_EXACT_DIGITS = 15


def _binary(operator: str) -> Callable[[ToSyntax, Meta, list], syntax.Binary]:
    def build(self: ToSyntax, meta: Meta, children: list) -> syntax.Binary:
        return syntax.Binary(self.span(meta), operator, *children)

    return build


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

    def model(self, meta: Meta, children: list) -> syntax.ModelStatement:
        name, title = children
        return syntax.ModelStatement(self.span(meta), name, title[0] if title else "")

    def use(self, meta: Meta, children: list) -> syntax.UseStatement:
        ((path, place),) = children
        return syntax.UseStatement(self.span(meta), path, place)

    def index_range(self, meta: Meta, children: list) -> syntax.IndexStatement:
        name, start, stop = children
        return syntax.IndexStatement(self.span(meta), name, start, stop)

    def index_levels(self, meta: Meta, children: list) -> syntax.IndexStatement:
        return syntax.IndexStatement(self.span(meta), children[0], levels=tuple(children[1:]))

    def input(self, meta: Meta, children: list) -> syntax.InputStatement:
        return syntax.InputStatement(self.span(meta), *children)

    def output(self, meta: Meta, children: list) -> syntax.OutputStatement:
        return syntax.OutputStatement(self.span(meta), *children)

    def const(self, meta: Meta, children: list) -> syntax.ConstStatement:
        return syntax.ConstStatement(self.span(meta), *children)

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

    def row(self, meta: Meta, children: list) -> syntax.RowStatement:
        return syntax.RowStatement(self.span(meta), *children)

    def function(self, meta: Meta, children: list) -> syntax.FunctionStatement:
        name, arguments, parameters, value = children
        return syntax.FunctionStatement(self.span(meta), name, arguments, parameters or (), value)

    def kernel(self, meta: Meta, children: list) -> syntax.KernelStatement:
        name, levels, arguments, parameters, value = children
        return syntax.KernelStatement(self.span(meta), name, arguments, parameters or (), value, levels or ())

    def density(self, meta: Meta, children: list) -> syntax.DensityStatement:
        name, observed, arguments, parameters, value = children
        return syntax.DensityStatement(self.span(meta), name, observed, arguments or (), parameters or (), value)

    def let(self, meta: Meta, children: list) -> syntax.LetStatement:
        return syntax.LetStatement(self.span(meta), *children)

    def external(self, meta: Meta, children: list) -> syntax.ExternalStatement:
        name, arguments, result = children
        return syntax.ExternalStatement(self.span(meta), name, arguments or (), result)

    def external_likelihood(self, meta: Meta, children: list) -> syntax.ExternalLikelihoodStatement:
        name, observed, arguments = children
        return syntax.ExternalLikelihoodStatement(self.span(meta), name, observed, arguments or ())

    def observation(self, meta: Meta, children: list) -> syntax.ObservationStatement:
        left, right = children
        return syntax.ObservationStatement(self.span(meta), left if isinstance(left, tuple) else (left,), right)

    def several(self, meta: Meta, children: list) -> tuple[syntax.Formula, ...]:
        return tuple(children)

    def infer(self, meta: Meta, children: list) -> syntax.InferStatement:
        engine, *options = children
        return syntax.InferStatement(self.span(meta), engine, tuple(each for each in options if each is not None))

    # --- parts of statements

    def declared(self, meta: Meta, children: list) -> syntax.Declared:
        return syntax.Declared(children[0], children[1] or ())

    def indices(self, meta: Meta, children: list) -> tuple[syntax.Identifier, ...]:
        return tuple(children)

    names = indices

    def type(self, meta: Meta, children: list) -> syntax.Type:
        word, bounds, sizes = children
        return syntax.Type(self.span(meta), word, bounds or (), sizes or ())

    def bounds(self, meta: Meta, children: list) -> tuple[syntax.Argument, ...]:
        return tuple(children)

    def sizes(self, meta: Meta, children: list) -> tuple[syntax.Size, ...]:
        return tuple(children)

    def size_number(self, meta: Meta, children: list) -> syntax.Size:
        return syntax.Size(self.span(meta), children[0])

    size_name = size_number

    def level_number(self, meta: Meta, children: list) -> tuple[int | float, Span]:
        return children[0].value, self.span(meta)

    def level_negative(self, meta: Meta, children: list) -> tuple[int | float, Span]:
        return -children[0].value, self.span(meta)

    def level_text(self, meta: Meta, children: list) -> tuple[str, Span]:
        return children[0]

    def passed(self, meta: Meta, children: list) -> tuple[syntax.Passed, ...]:
        return tuple(children)

    def passed_argument(self, meta: Meta, children: list) -> syntax.Passed:
        return syntax.Passed(self.span(meta), *children)

    def option(self, meta: Meta, children: list) -> syntax.Option:
        return syntax.Option(self.span(meta), *children)

    # --- expressions

    add, subtract, multiply, divide, raise_to, contract = (_binary(each) for each in "+-*/^@")

    def conditional(self, meta: Meta, children: list) -> syntax.Conditional:
        return syntax.Conditional(self.span(meta), *children)

    def compare(self, meta: Meta, children: list) -> syntax.Comparison:
        left, operator, right = children
        return syntax.Comparison(self.span(meta), str(operator), left, right)

    def either(self, meta: Meta, children: list) -> syntax.Logical:
        return syntax.Logical(self.span(meta), "or", tuple(children))

    def both(self, meta: Meta, children: list) -> syntax.Logical:
        return syntax.Logical(self.span(meta), "and", tuple(children))

    def negation(self, meta: Meta, children: list) -> syntax.Logical:
        return syntax.Logical(self.span(meta), "not", tuple(children))

    def negate(self, meta: Meta, children: list) -> syntax.Negation:
        return syntax.Negation(self.span(meta), children[0])

    def number(self, meta: Meta, children: list) -> syntax.Literal:
        return children[0]

    def name(self, meta: Meta, children: list) -> syntax.Name:
        return syntax.Name(self.span(meta), children[0])

    def element(self, meta: Meta, children: list) -> syntax.Name:
        return syntax.Name(self.span(meta), *children)

    def call(self, meta: Meta, children: list) -> syntax.Call:
        function, *arguments = children
        return syntax.Call(self.span(meta), function, tuple(each for each in arguments if each is not None))

    def elsewhere(self, meta: Meta, children: list) -> syntax.Elsewhere:
        name, subscripts, *inputs = children
        return syntax.Elsewhere(self.span(meta), syntax.Name(self.span(meta), name, subscripts), tuple(inputs))

    def array(self, meta: Meta, children: list) -> syntax.Array:
        return syntax.Array(self.span(meta), tuple(children))

    def group(self, meta: Meta, children: list) -> syntax.Formula:
        return children[0]

    def positional(self, meta: Meta, children: list) -> syntax.Argument:
        return syntax.Argument(self.span(meta), None, children[0])

    def named(self, meta: Meta, children: list) -> syntax.Argument:
        return syntax.Argument(self.span(meta), *children)

    def subscripts(self, meta: Meta, children: list) -> tuple[syntax.Subscript, ...]:
        return tuple(children)

    def at(self, meta: Meta, children: list) -> syntax.Subscript:
        return syntax.Subscript(self.span(meta), children[0])

    def slice(self, meta: Meta, children: list) -> syntax.Subscript:
        first, last = children
        return syntax.Subscript(self.span(meta), first, stop=last)

    def where(self, meta: Meta, children: list) -> syntax.Subscript:
        value, comparison, against = children
        return syntax.Subscript(self.span(meta), value, str(comparison), against)
