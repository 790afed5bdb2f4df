"""One statement with an index that stands for a number, and with a latent for each layer that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpdsl.language import syntax
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import SubscriptOutOfRange
from gpdsl.language.errors.layers import ArgumentElement, LayerNotNamed
from gpdsl.language.vocabulary import REDUCTIONS


@dataclass(frozen=True)
class Rewriting:
    """`layers` says of each latent with layers which subscript counts them, and how many there are.

    `numbers` is what the index of the statement's own layers stands for.
    """

    scope: Scope
    layers: Mapping[str, tuple[int, int]]
    numbers: Mapping[str, int] = field(default_factory=dict)
    sort: str = "let"

    def statement(self, statement: Any) -> Any:
        """The statement, rewritten. Gives up, with a mistake, where it reads no layer that there is."""
        if isinstance(statement, syntax.InferStatement):
            return replace(statement, options=tuple(o for each in statement.options for o in self._options(each)))
        if isinstance(statement, syntax.LatentStatement):
            given = statement.given or tuple(syntax.Name(each.span, each) for each in statement.arguments)
            arguments = tuple(self._argument(each) for each in given)
            return replace(statement, arguments=arguments, given=None, process=self._node(statement.process))
        return self._node(statement)

    def _options(self, option: syntax.Option) -> list[syntax.Option]:
        """Options of a latent with layers are those of each."""
        if option.subject is None or option.subject.text not in self.layers:
            return [option]
        count = self.layers[option.subject.text][1]
        return [replace(option, subject=_named(option.subject, layer)) for layer in range(1, count + 1)]

    def _argument(self, name: syntax.Name) -> syntax.Identifier:
        found = self._name(name)
        if not isinstance(found, syntax.Name) or found.subscripts is not None:
            self.scope.problems.fail(ArgumentElement(name.span, name.identifier.text))
        return found.identifier

    def _node(self, node: Any) -> Any:
        match node:
            case syntax.Name():
                return self._name(node)
            case syntax.Elsewhere():
                return self._elsewhere(node)
            case syntax.Call(
                function=syntax.Identifier(text=function),
                arguments=(syntax.Argument(value=syntax.Name(subscripts=None) as first), _, *_),
            ) if function in REDUCTIONS:
                # `sum(l, ...)` has an index of its own
                own = {index: n for index, n in self.numbers.items() if index != first.identifier.text}
                return replace(self, numbers=own)._parts(node)
            case syntax.Node():
                return self._parts(node)
            case tuple():
                return tuple(self._node(each) for each in node)
        return node

    def _parts(self, node: Any) -> Any:
        return replace(node, **{each.name: self._node(getattr(node, each.name)) for each in fields(node)})

    def _name(self, name: syntax.Name) -> syntax.Formula:
        """What is read: a number for an index that stands for one, a layer for a latent that has layers."""
        text = name.identifier.text
        if name.subscripts is None and text in self.numbers:
            return syntax.Literal(name.span, str(self.numbers[text]), self.numbers[text])
        subscripts = None if name.subscripts is None else tuple(self._subscript(each) for each in name.subscripts)
        if text not in self.layers:
            return replace(name, subscripts=subscripts)
        position, count = self.layers[text]
        chosen = subscripts[position] if subscripts is not None and position < len(subscripts) else None
        match chosen:
            case syntax.Subscript(value=syntax.Literal(value=int(layer)), comparison=None, stop=None):
                self._check(name, layer, count)
            case _:
                self.scope.problems.fail(LayerNotNamed(name.span, text, count))
        rest = tuple(each for each in subscripts or () if each is not chosen)
        return syntax.Name(name.span, _named(name.identifier, layer), rest or None)

    def _check(self, name: syntax.Name, layer: int, count: int) -> None:
        text = name.identifier.text
        if not 1 <= layer <= count:
            index = next(iter(self.numbers), "l")
            remedy = f"restrict it on the left, `{self.sort} {text}[{index} > 1](...)`, and declare the rest"
            if not self.numbers:
                remedy = f"write a number from 1 to {count}"
            why = f"its layers are 1..{count}"
            self.scope.problems.fail(SubscriptOutOfRange(name.span, text, f"{text}[{layer}]", why, remedy))

    def _subscript(self, subscript: syntax.Subscript) -> syntax.Subscript:
        """`l - 1` as the number that it is here."""
        match subscript.value:
            case syntax.Binary(operator="+" | "-" as sign, left=syntax.Name() as left, right=syntax.Literal() as right):
                number = self.numbers.get(left.identifier.text)
                if number is not None and left.subscripts is None and isinstance(right.value, int):
                    value = number + right.value if sign == "+" else number - right.value
                    return replace(subscript, value=syntax.Literal(subscript.value.span, str(value), value))
        return replace(subscript, value=self._node(subscript.value))

    def _elsewhere(self, node: syntax.Elsewhere) -> syntax.Formula:
        """`h[2](b)`: the layer at another input."""
        element = self._name(node.element)
        if isinstance(element, syntax.Name) and element.subscripts is not None:
            return replace(node, element=element)
        inputs = tuple(syntax.Argument(each.span, None, syntax.Name(each.span, each)) for each in node.inputs)
        return syntax.Call(node.span, element.identifier, inputs)  # type: ignore[union-attr]


def _named(name: syntax.Identifier, layer: int) -> syntax.Identifier:
    return replace(name, text=f"{name.text}_{layer}")
