"""`infer vi: posterior = mixture(2), samples = 100`: defaults for inference, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gpdsl.language import syntax
from gpdsl.language.checker.scope import SORTS, Scope
from gpdsl.language.errors.names import NotReadable
from gpdsl.language.errors.values import BadOption, RepeatedOption, UnknownEngine, UnknownOption
from gpdsl.language.model import Infer
from gpdsl.language.vocabulary import ENGINES, OPTION_WORDS, OPTIONS, POSTERIORS

Value = int | float | str | bool
_LARGEST = 10**9
_MAX_COMPONENTS = 100
_MIXTURES = tuple(name.removesuffix("(K)") for name in POSTERIORS if name.endswith("(K)"))
_SINGLE = tuple(name for name in POSTERIORS if not name.endswith("(K)"))


def check_infer(scope: Scope, statement: syntax.InferStatement) -> Infer:
    """The options by name, with `engine` among them."""
    engine = statement.engine
    if engine.text not in ENGINES:
        suggestion = scope.problems.suggest(engine.text, ENGINES)
        known = ", ".join(f"`{each}`" for each in ENGINES)
        scope.problems.add(UnknownEngine(engine.span, engine.text, known, suggestion))
    options: dict[str, Value] = {"engine": engine.text}
    lines: dict[tuple[str, str], int] = {}
    for option in statement.options:
        with scope.problems.contained():
            key = (option.name.text, option.subject.text if option.subject is not None else "")
            if key in lines:
                shown = " ".join(filter(None, key))
                scope.problems.fail(RepeatedOption(option.name.span, shown, lines[key]))
            lines[key] = option.span.line
            value = _value(scope, option)
            if options.setdefault(option.name.text, value) != value:
                scope.problems.fail(
                    BadOption(
                        option.value.span,
                        option.name.text,
                        "the same number for every latent",
                        str(options[option.name.text]),
                    )
                )
    return Infer(MappingProxyType(options))


def _value(scope: Scope, option: syntax.Option) -> Value:
    name = option.name.text
    if name not in OPTIONS:
        suggestion = scope.problems.suggest(name, OPTIONS)
        scope.problems.fail(UnknownOption(option.name.span, name, ", ".join(OPTIONS), suggestion))
    if option.subject is not None:
        _check_subject(scope, option)
    value = _READERS[name](option.value, name)
    if value is None:
        word = option.value.identifier.text if isinstance(option.value, syntax.Name) else ""
        suggestion = scope.problems.suggest(word, _words(name)) if word else ""
        scope.problems.fail(BadOption(option.value.span, name, OPTIONS[name], _example(name), suggestion))
    return value


def _check_subject(scope: Scope, option: syntax.Option) -> None:
    subject = option.subject
    if subject is None:
        return
    if option.name.text != "inducing":
        words, advice = f"the option `{option.name.text}`", f"write `{option.name.text} = ...` for the whole model"
        scope.problems.fail(NotReadable(subject.span, subject.text, "a name", words, advice))
    sort = scope.sort_of(subject)
    if sort != "latent":
        advice = "inducing points belong to latents"
        scope.problems.fail(NotReadable(subject.span, subject.text, SORTS[sort], "the option `inducing`", advice))


def _example(name: str) -> str:
    """A value that an option can have: a number, or the first of its words."""
    takes = OPTIONS[name]
    return {"a whole number from 1": "100", "a whole number from 0": "1", "a positive number": "0.001"}.get(
        takes, takes.replace(",", " ").split()[0]
    )


def _words(name: str) -> tuple[str, ...]:
    extra = {"posterior": (*_SINGLE, *_MIXTURES), "learn_inducing": ("true", "false")}
    return OPTION_WORDS.get(name) or extra.get(name, ())


def _whole(formula: syntax.Formula, smallest: int, largest: int = _LARGEST) -> int | None:
    value = formula.value if isinstance(formula, syntax.Literal) else None
    return value if isinstance(value, int) and smallest <= value <= largest else None


def _word(formula: syntax.Formula) -> str:
    plain = isinstance(formula, syntax.Name) and formula.subscripts is None
    return formula.identifier.text if plain else ""  # type: ignore[union-attr]


def _posterior(formula: syntax.Formula, name: str) -> str | None:
    if isinstance(formula, syntax.Call) and formula.function.text in _MIXTURES and len(formula.arguments) == 1:
        components = _whole(formula.arguments[0].value, 1, _MAX_COMPONENTS)
        called = components is not None and formula.arguments[0].name is None
        return f"{formula.function.text}({components})" if called else None
    return _word(formula) if _word(formula) in _SINGLE else None


def _inducing(formula: syntax.Formula, name: str) -> int | None:
    if isinstance(formula, syntax.Call) and formula.function.text == "points" and len(formula.arguments) == 1:
        return _whole(formula.arguments[0].value, 1) if formula.arguments[0].name is None else None
    return _whole(formula, 1)


def _choice(formula: syntax.Formula, name: str) -> str | None:
    return _word(formula) if _word(formula) in OPTION_WORDS[name] else None


def _yes_no(formula: syntax.Formula, name: str) -> bool | None:
    return {"true": True, "false": False}.get(_word(formula))


def _positive(formula: syntax.Formula, name: str) -> float | None:
    value = formula.value if isinstance(formula, syntax.Literal) else 0
    return float(value) if 0 < value < float("inf") else None


def _share(formula: syntax.Formula, name: str) -> float | None:
    value = formula.value if isinstance(formula, syntax.Literal) else 0
    return float(value) if 0 < value <= 1 else None


_READERS: Mapping[str, Callable[[syntax.Formula, str], Value | None]] = MappingProxyType(
    {
        "posterior": _posterior,
        "inducing": _inducing,
        "learn_inducing": _yes_no,
        "samples": lambda formula, name: _whole(formula, 1),
        **dict.fromkeys(OPTION_WORDS, _choice),
        **dict.fromkeys(
            ("batch", "features", "chevron", "feature_batch", "support"), lambda formula, name: _whole(formula, 1)
        ),
        "seed": lambda formula, name: _whole(formula, 0),
        "steps": lambda formula, name: _whole(formula, 1),
        "evaluations": lambda formula, name: _whole(formula, 1),
        "tolerance": _positive,
        "power": _share,
    }
)
