"""Recursion over layers, written out: `latent h[l > 1](h[l - 1]) ~ ...` declares the latents `h_2`, `h_3` and so on.

Layers are functions of different things, so that each is a latent of its own, which results know as `h_2` and which
the model reads as `h[2]`. Written out before any name is looked up, they are to all that follows like latents that
were declared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpdsl.language import syntax
from gpdsl.language.checker.lets import values
from gpdsl.language.checker.scope import Scope
from gpdsl.language.errors.axes import CasesOverlap, SubscriptCount, SubscriptOutOfRange
from gpdsl.language.errors.functionals import ArgumentElement, LayerNotNamed, LayersMissing, LayersNotCounted
from gpdsl.language.errors.limits import TooManyLayers
from gpdsl.language.model import Axis, Guard
from gpdsl.language.vocabulary import MAX_LAYERS, REDUCTIONS

# One statement with an index that stands for a number, and with a latent for each layer that it reads.


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


Cases = Mapping[str, list[syntax.LatentStatement]]


@dataclass(frozen=True)
class Recursive:
    """Along which subscript of a latent its layers run, by which index, how many they are, and which case says what."""

    position: int
    index: str
    count: int
    covered: tuple[tuple[int, ...], ...]


def layers_written_out(scope: Scope, statements: Sequence[syntax.Statement]) -> tuple[syntax.Statement, ...]:
    """The statements with one latent for each layer, and with these for what is read of them."""
    latents = [each for each in statements if isinstance(each, syntax.LatentStatement)]
    names = {each.declared.name.text for each in latents if each.subscripts is not None}
    cases = {name: [each for each in latents if each.declared.name.text == name] for name in names}
    found: dict[str, Recursive] = {}
    for name, own in cases.items():
        with scope.problems.contained:
            found[name] = _recursive(scope, own, statements)
            continue
        scope.lost.add(name)
    counts = {name: (each.position, each.count) for name, each in found.items()}
    written: list[syntax.Statement] = []
    for each in statements:
        kept: Iterable[tuple[syntax.Statement, Rewriting]]
        if not isinstance(each, syntax.LatentStatement):
            kept = [(each, Rewriting(scope, counts))]
        elif each.declared.name.text not in names:
            kept = [(each, Rewriting(scope, counts, sort="latent"))]
        elif each.declared.name.text in found:
            kept = _layers(scope, each, cases, found[each.declared.name.text], counts)
        else:
            continue
        for statement, rewriting in kept:
            with scope.problems.contained:
                written.append(rewriting.statement(statement))
                continue
            if isinstance(statement, syntax.LatentStatement):
                scope.lost.add(statement.declared.name.text)
            else:
                written.append(statement)
    scope.lost.update(names)  # what still reads them has been reported
    return tuple(written)


def _layers(
    scope: Scope, statement: syntax.LatentStatement, cases: Cases, own: Recursive, counts: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[syntax.LatentStatement, Rewriting]]:
    """The latents of one case, with what its index stands for in each."""
    name = statement.declared.name
    number = next(k for k, each in enumerate(cases[name.text]) if each is statement)
    written = _written(statement)
    others = tuple(each.value.identifier for k, each in enumerate(written) if k != own.position)  # type: ignore[union-attr]
    named = _index(written[own.position]) is not None
    for layer in own.covered[number]:
        declared = syntax.Declared(syntax.Identifier(name.span, f"{name.text}_{layer}"), others)
        latent = replace(statement, declared=declared, subscripts=None)
        yield latent, Rewriting(scope, counts, {own.index: layer} if named else {}, "latent")


def _written(statement: syntax.LatentStatement) -> tuple[syntax.Subscript, ...]:
    """The subscripts of a declaration; those that are names of indices count like any."""
    if statement.subscripts is not None:
        return statement.subscripts
    return tuple(syntax.Subscript(i.span, syntax.Name(i.span, i)) for i in statement.declared.indices)


def _index(subscript: syntax.Subscript) -> str | None:
    """The index of `l` or of `l > 1`."""
    match subscript:
        case syntax.Subscript(value=syntax.Name(subscripts=None, identifier=index), stop=None):
            return index.text
    return None


def _recursive(
    scope: Scope, statements: Sequence[syntax.LatentStatement], every: Sequence[syntax.Statement]
) -> Recursive:
    """What the cases of one latent say of its layers; gives up where they are not counted each once."""
    first, name = statements[0], statements[0].declared.name
    written = [_written(each) for each in statements]
    for each, subscripts in zip(statements, written, strict=True):
        if len(subscripts) != len(written[0]):
            expected = f"{len(written[0])} subscripts on line {first.span.line}"
            scope.problems.fail(SubscriptCount(each.declared.name.span, name.text, expected, len(subscripts)))
    positions = {k for own in written for k, s in enumerate(own) if _index(s) is None or s.comparison is not None}
    if len(positions) > 1:
        why = "conditions and numbers stand at several subscripts"
        scope.problems.fail(LayersNotCounted(name.span, name.text, why))
    (position,) = positions
    index, count = _counted(scope, name, [own[position] for own in written], every)
    covered = tuple(_covered(scope, name, own[position], index, count) for own in written)
    for k, layers in enumerate(covered):
        for j in range(k):
            if set(layers) & set(covered[j]):
                scope.problems.fail(CasesOverlap(statements[k].span, name.text, statements[j].span.line))
    missing = sorted(set(range(1, count + 1)).difference(*covered))
    if missing:
        scope.problems.fail(LayersMissing(name.span, name.text, missing[0]))
    return Recursive(position, index, count, covered)


def _counted(
    scope: Scope,
    name: syntax.Identifier,
    subscripts: Sequence[syntax.Subscript],
    every: Sequence[syntax.Statement],
) -> tuple[str, int]:
    """The index of the layers, and their number."""
    indices = sorted({index for each in subscripts if (index := _index(each)) is not None})
    if len(indices) != 1:
        shown = " and ".join(f"`{each}`" for each in indices)
        several = f"no case names an index; several functions are `index p in 1..3`, `latent {name.text}[p](...) ~ ...`"
        why = f"they have the indices {shown}" if indices else several
        scope.problems.fail(LayersNotCounted(name.span, name.text, why))
    (index,) = indices
    own = [each for each in every if isinstance(each, syntax.IndexStatement) and each.name.text == index]
    if not own:
        scope.problems.fail(LayersNotCounted(name.span, name.text, f"`{index}` is not an index"))
    match own[0].stop:
        case syntax.Size(value=syntax.Literal(value=int(count))) if count >= 1:
            if count > MAX_LAYERS:
                scope.problems.fail(TooManyLayers(name.span, name.text, MAX_LAYERS))
            return index, count
    return scope.problems.fail(LayersNotCounted(name.span, name.text, f"`{index}` does not end at a number"))


def _covered(
    scope: Scope, name: syntax.Identifier, subscript: syntax.Subscript, index: str, count: int
) -> tuple[int, ...]:
    """The layers of one case."""
    match subscript:
        case syntax.Subscript(value=syntax.Literal(value=int(number)), comparison=None, stop=None):
            guard = Guard(index, "==", number)
        case syntax.Subscript(value=syntax.Name(), comparison=None):
            guard = Guard(index)
        case syntax.Subscript(value=syntax.Name(), comparison=str(sign), against=syntax.Literal(value=int(limit))):
            guard = Guard(index, sign, limit)
        case _:
            why = "a case is `[1]`, `[l]` or a condition such as `[l > 1]`"
            scope.problems.fail(LayersNotCounted(subscript.span, name.text, why))
    found = tuple(each for each in values(guard, Axis(index, size=count)) if 1 <= each <= count)
    if not found:
        why = f"no value of `{index}` from 1 to {count} fits"
        scope.problems.fail(LayersNotCounted(subscript.span, name.text, why))
    return found
