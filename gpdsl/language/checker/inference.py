"""`infer vi: posterior = mixture(2), samples = 100`: defaults for inference, as plain values."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from gpdsl.language import syntax
from gpdsl.language.checker.quantities import initial_value
from gpdsl.language.checker.scope import SORTS, Scope
from gpdsl.language.errors.calls import BadOption, NotOfThisEngine, RepeatedOption, UnknownEngine, UnknownOption
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.habits import STANDARDISE as STANDARDISE_FORMS
from gpdsl.language.inducing import OTHERS, Inducing, per_latent
from gpdsl.language.model import Infer
from gpdsl.language.options import ENGINES, STANDARDISE, WRITTEN, Option
from gpdsl.language.takes import ENGINES_ELSEWHERE, OPTIONS as HABITS, Names, Quantities, Truth, Values


def check_infer(scope: Scope, statement: syntax.InferStatement) -> Infer:
    """The options by name, with `engine` among them."""
    engine = statement.engine
    if engine.text not in ENGINES:
        suggestion = scope.problems.suggest(engine.text, ENGINES)
        known = ", ".join(f"`{each}`" for each in ENGINES)
        scope.problems.add(
            UnknownEngine(engine.span, engine.text, known, suggestion, ENGINES_ELSEWHERE.of(engine.text))
        )
    options: dict[str, Any] = {"engine": engine.text}
    lines: dict[tuple[str, str], int] = {("engine", ""): engine.span.line}
    for written in statement.options:
        with scope.problems.contained:
            key = (written.name.text, written.subject.text if written.subject is not None else "")
            if key in lines:
                shown = " ".join(filter(None, key))
                scope.problems.fail(RepeatedOption(written.name.span, shown, lines[key]))
            lines[key] = written.span.line
            _add(scope, options, written, engine.text)
    if "inducing" in options:
        options["inducing"] = per_latent(options["inducing"], scope.latents)
    standardise = options.pop(STANDARDISE.name, None)
    return Infer(MappingProxyType(options), standardise)


def _add(scope: Scope, options: dict[str, Any], written: syntax.Option, engine: str) -> None:
    """Put the value of an option among the others. Fails for one that is unknown, or has no such value."""
    name = written.name.text
    option = WRITTEN.get(name)
    if option is None:
        suggestion = HABITS.get(name.lower()) or scope.problems.suggest(name, WRITTEN)
        scope.problems.fail(UnknownOption(written.name.span, name, ", ".join(WRITTEN), suggestion))
    if engine in ENGINES and not option.read_by(engine):
        whose = " or ".join(f"`{each}`" for each in option.engines)
        scope.problems.fail(NotOfThisEngine(written.name.span, name, engine, whose, option.engines[0]))
    _check_subject(scope, written, option)
    if isinstance(option.takes, Values):
        options.setdefault(name, {}).update(_initial(scope, written))
        return
    value = _value(scope, written, option)
    if isinstance(option.takes, Inducing):
        options.setdefault(name, {})[OTHERS if written.subject is None else written.subject.text] = value
        return
    options[name] = value


def _value(scope: Scope, written: syntax.Option, option: Option) -> Any:
    plain = _plain(written.value, option) if not isinstance(option.takes, Inducing) else _features(scope, written.value)
    value = option.takes.read(plain)
    if isinstance(option.takes, Quantities) and (
        value is None or (isinstance(value, tuple) and _unknown(scope, written.value))
    ):
        scope.problems.fail(
            BadOption(written.value.span, option.name, option.takes.expected, "", habit=STANDARDISE_FORMS)
        )
    if value is None:
        word = written.value.identifier.text if isinstance(written.value, syntax.Name) else ""
        words = {each.partition("(")[0]: each for each in option.takes.words}
        suggestion = words.get(scope.problems.suggest(word, words), "") if word else ""
        subject = "" if written.subject is None else f" {written.subject.text}"
        example = f"{option.name}{subject} = {option.takes.example}"
        expected = option.takes.expected_of(plain) if isinstance(option.takes, Inducing) else option.takes.expected
        scope.problems.fail(BadOption(written.value.span, option.name, expected, example, suggestion))
    if isinstance(option.takes, Names) or isinstance(value, tuple):
        wanted = ("param",) if isinstance(option.takes, Names) else ("input", "output")
        for identifier in _identifiers(written.value):
            _check_sort(scope, identifier, wanted, option.name)
    return value


def _unknown(scope: Scope, formula: syntax.Formula) -> bool:
    """Whether a name is among the words that nothing declares, and that resembles no input or output."""
    words = [each.text for each in _identifiers(formula)]
    known = scope.names("input", "output")
    return any(w not in scope.sorts and w not in scope.lost and not scope.problems.suggest(w, known) for w in words)


def _initial(scope: Scope, written: syntax.Option) -> dict[str, Any]:
    """`init ell = 2`: the parameter's value, under the rules for one in its declaration."""
    if written.subject is None:
        expected = "the name of a parameter before the equals sign"
        scope.problems.fail(BadOption(written.value.span, "init", expected, "init ell = 2"))
    if written.subject.text not in scope.params:  # its declaration is wrong, and was reported
        return {}
    return {written.subject.text: initial_value(scope, written.value, scope.params[written.subject.text])}


def _check_subject(scope: Scope, written: syntax.Option, option: Option) -> None:
    subject = written.subject
    if subject is None:
        return
    if not option.of:
        words, advice = f"the option `{option.name}`", f"write `{option.name} = ...` for the whole model"
        scope.problems.fail(NotReadable(subject.span, subject.text, "a name", words, advice))
    if option.of == "latent" and subject.text not in scope.sorts and subject.text not in scope.lost:
        known = ", ".join(f"`{name}`" for name in scope.latents)
        advice = f"name a latent: {known}" if known else "there is no latent"
        place = f"the option `{option.name}`"
        scope.problems.fail(NotReadable(subject.span, subject.text, "not declared", place, advice))
    _check_sort(scope, subject, (option.of,), option.name)


_BELONGS = {
    "latent": "inducing points belong to latents",
    "param": "name a parameter: `param ell : positive = 1`",
    "input": "name inputs and outputs, or write `standardise = true`",
}


def _check_sort(scope: Scope, identifier: syntax.Identifier, wanted: tuple[str, ...], option: str) -> None:
    sort = scope.sort_of(identifier)
    if sort not in wanted:
        place = f"the option `{option}`"
        scope.problems.fail(NotReadable(identifier.span, identifier.text, SORTS[sort], place, _BELONGS[wanted[0]]))


def _plain(formula: syntax.Formula, option: Option) -> Any:
    """What a formula is as an option's value in Python: a number, a word, a truth, words; None for anything else."""
    match formula:
        case syntax.Literal(value=number):
            return number
        case syntax.Name(identifier=word, subscripts=None):
            truth = {"true": True, "false": False}.get(word.text)
            if isinstance(option.takes, Truth):
                return truth
            return truth if truth is not None and isinstance(option.takes, Quantities) else word.text
        case syntax.Call(function=word, arguments=(_, *_) as given):
            numbers = [each.value.value for each in given if not each.name and isinstance(each.value, syntax.Literal)]
            return f"{word.text}({', '.join(map(str, numbers))})" if len(numbers) == len(given) else None
        case syntax.Array():
            return tuple(each.text for each in _identifiers(formula)) or None
    return None


def _features(scope: Scope, formula: syntax.Formula) -> int | float | str:
    """A number, or the text of anything else, which may go over several lines."""
    if isinstance(formula, syntax.Literal):
        return formula.value
    return scope.source.written(formula.span)


def _identifiers(formula: syntax.Formula) -> list[syntax.Identifier]:
    """The names of `ell` or `[ell, sigma]`; none where anything else is among them."""
    items = formula.items if isinstance(formula, syntax.Array) else (formula,)
    found = [each.identifier for each in items if isinstance(each, syntax.Name) and each.subscripts is None]
    return found if len(found) == len(items) else []
