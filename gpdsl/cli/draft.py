"""A first model of a table: a likelihood by the kind of the output, and kernels by the kinds of the other columns."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

import numpy as np

from gpdsl.cli import hints
from gpdsl.data.columns import places, spelt
from gpdsl.data.errors import DataError, NoRows, listed
from gpdsl.data.file_mistakes import NOT_UTF8, SAVE_AGAIN, Unreadable
from gpdsl.data.looks import IDENTIFIER, Look, dispersion, grades_of, heavy, look, output_kind, whole
from gpdsl.data.table import Table
from gpdsl.errors import GpdslError
from gpdsl.language.formatter import format_text
from gpdsl.language.highlight import CLAUSE_WORDS, LOGICAL_WORDS
from gpdsl.language.vocabulary import BUILTINS, STATEMENTS, closest

OUTPUT_NAMES = ("y", "target", "output", "response", "outcome", "label", "class")
"""Columns that are the output where nobody says which is; otherwise it is the last of the others."""
WHERE_AND_WHEN = ("day", "month", "year", "date", "id", "index", "hour", "week")
"""Columns that are the output only where no other can be."""

PARTS = ("", "_drift", "_trend", "_short", "_walk", *(f"_{cycle}" for cycle in hints.CYCLES))
OWN = (
    "f",
    "m",
    "sigma",
    "phi",
    "c",
    "odds",
    "cut",
    *ascii_uppercase,
    *(name + part for name in ("s2", "ell") for part in PARTS),
)
CLASSES = 10
"""Whole numbers that may be codes of classes, at most."""

TAKEN = frozenset({*BUILTINS, *STATEMENTS, *CLAUSE_WORDS, *LOGICAL_WORDS, *OWN})
OVERDISPERSED = 1.5
"""Variance over mean from which counts are not Poisson's."""


ROUNDED = (
    "# If these are measurements that were rounded: `output {y} : real`, `param sigma : positive`,\n"
    "# `{y} ~ Normal({predictor}, sigma)`."
)
CODES = (
    "# If these whole numbers are codes of classes: `index c in 1..C`, `output {y} : label[c]`,\n"
    "# `latent f[c](...) ~ GP(0, ...)` in place of `f`, `{y} ~ Categorical(logits = f)`, and no `m`."
)
COUNTED = (
    "# If these whole numbers are counts: `output {y} : count`, `param phi : positive = 5`,\n"
    "# `{y} ~ NegativeBinomial(exp({predictor}), phi)`."
)
"""What else an output of whole numbers may be."""


@dataclass(frozen=True)
class Draft:
    """The text of a model, its output, and the data columns of names that are not found by themselves.

    `passed` is a column that would rather be the output, by its name or place, and why it cannot be.
    """

    text: str
    output: str
    columns: dict[str, str]
    passed: str = ""


@dataclass(frozen=True)
class Likelihood:
    """How an output is declared and observed. A shared level of several classes would cancel: there is none."""

    kind: str
    title: str
    level: str | None
    params: tuple[str, ...]
    lines: tuple[str, ...]
    latent: str = "f"
    before: tuple[str, ...] = ()


def draft(table: Table, name: str, output: str | None) -> Draft:
    """A model of a table. Raises GpdslError where no column can be the output, or the one that is named cannot."""
    if not table.rows:
        raise DataError(NoRows(), source=table.source)
    _refuse_encoding(table)
    looks = [look(table, column) for column in table.columns]
    target = _target(looks, output)
    names = _names([each.column for each in looks])
    others = [_beside(each, looks) for each in looks if each is not target]
    times = [each for each in others if each.kind == "time" and not each.missing]
    words = [each for each in others if each.kind == "text" and not each.missing]
    numbers = [each for each in others if each.kind == "number" and not each.missing]
    used = [*times[:1], *(each for each in numbers if not each.numbered), *words] or numbers[:1]
    if not used:
        what = "there is no column beside the output that could be an input: expected numbers, times or words"
        raise GpdslError(what + _lacking(others))
    left = [each for each in others if each not in used]
    renamed = {names[each.column]: each.column for each in (*used, target) if names[each.column] != each.column}
    given_back = [n for n, column in renamed.items() if column in OWN and n == f"{column}_"]
    renamed = {name: column for name, column in renamed.items() if name not in given_back}
    found = places(table, [names[each.column] for each in (*used, target)], {}, {})
    asked = {name: column for name, column in renamed.items() if found[name] != column}
    sized = any(each.kind != "text" for each in (*used, target))
    weak = "weak: they keep a fit of few rows from following each of them"
    size = "its columns may have any size: `standardise` below has them fitted with mean 0 and standard deviation 1"
    lines = [
        f"# A first model of {_line(table.source)}, to be edited. Parameters without a value start where the data say.",
        *([f"#   {size}", f"#   the priors are for that, and {weak}"] if sized else [f"#   the priors are {weak}"]),
        *(f"#   `{name}` is the column `{_line(column)}`" for name, column in renamed.items() if name not in asked),
        *(f"#   left out: `{_line(each.column)}`, {_why(each)}" for each in left),
        *_body(name, target, used, names, asked),
        *(["", "infer vi: standardise = true"] if sized else []),
    ]
    text = "\n".join(lines) + "\n"
    for each in given_back:  # a column keeps its name, and what is the draft's own takes another
        own = each.removesuffix("_")
        text = re.sub(rf"\b{each}\b", own, re.sub(rf"\b{own}\b", f"{own}_f", text))
    return Draft(format_text(text), target.column, asked, _passed(looks))


def _refuse_encoding(table: Table) -> None:
    """Raise DataError for a file that is not UTF-8 anywhere: its names and words would be written into the model."""
    for column in table.columns:
        wrong = "\ufffd" in column
        try:
            table.columns[column]
        except DataError as problem:
            wrong |= getattr(problem.mistakes[0], "reason", "") == NOT_UTF8
        if wrong:
            raise DataError(Unreadable(NOT_UTF8, SAVE_AGAIN.format(encoding="LATIN1")), source=table.source)


def _target(looks: Sequence[Look], wanted: str | None) -> Look:
    """The column that is the output."""
    if wanted is None:
        able = [each for each in looks if each.kind in ("number", "text")]
        named = [each for each in able if each.column.lower() in OUTPUT_NAMES]
        if not able:
            what = "no column can be an output: expected one of numbers or words that are not all the same"
            raise GpdslError(what + _lacking([each for each in looks if each.reason]))
        able = [each for each in able if not _places_rows(each.column)] or able
        numbers = [each for each in able if each.kind == "number"]
        return (named or (able if looks[-1] in able else numbers) or able)[-1]
    found = next((each for each in looks if each.column == wanted), None)
    if found is None:
        near = closest(wanted, [each.column for each in looks])
        hint = f"did you mean `{near}`?" if near else f"there are {listed(f'`{each.column}`' for each in looks)}"
        raise GpdslError(f"--output {wanted}: there is no such column; {hint}")
    if found.kind not in ("number", "text"):
        reason = found.reason or "it holds times: expected numbers or words"
        raise GpdslError(f"--output {wanted}: this column cannot be an output: {reason}")
    return found


def _passed(looks: Sequence[Look]) -> str:
    """The column that comes last, or has the name of an output, and why it cannot be one; nothing where it can."""
    wished = next((each for each in looks if each.column.lower() in OUTPUT_NAMES), looks[-1])
    return f"`{_line(wished.column)}` cannot be: {wished.reason}" if wished.kind == "none" else ""


def _places_rows(column: str) -> bool:
    """Whether a name says that a column tells which row this is, and nothing that it has."""
    return column.lower() in WHERE_AND_WHEN or bool(IDENTIFIER.fullmatch(column))


def _several(target: Look) -> bool:
    """Whether an output has a latent for each of its classes."""
    return output_kind(target) == "label"


def _beside(each: Look, looks: Sequence[Look]) -> Look:
    """A column; left out where it says in other words what an earlier one does, as the codes of countries do."""
    before = looks[: next(place for place, other in enumerate(looks) if other is each)]
    for other in before if each.kind == "text" and not each.missing else ():
        if other.kind == "text" and not other.missing:
            pairs = len(set(zip(other.values.tolist(), each.values.tolist(), strict=True)))
            if pairs == len(other.levels) == len(each.levels):
                return replace(each, kind="none", reason=f"it says what `{_line(other.column)}` does in other words")
    return each


def _why(each: Look) -> str:
    """Why a column is no input."""
    if each.reason:
        return each.reason
    if each.missing:
        absent = f"it is missing in {each.missing} of {len(each.values)} rows"
        return f"{absent}: inputs are known: fill it in, or leave these rows out"
    return "which numbers the rows" if each.kind == "number" else "a second time"


def _lacking(left: Sequence[Look]) -> str:
    """Of every column, why it will not do."""
    return "".join(f"\n  `{_line(each.column)}`: {_why(each)}" for each in left)


def _words(each: Look) -> str:
    """How many levels, and the first of them."""
    words = ", ".join(f'"{word}"' if "," in word else word for word in map(_line, map(str, each.levels[:4])))
    kind = "numbers" if isinstance(each.levels[0], int) else "words"
    return f"{len(each.levels)} {kind}: {words}{', ...' if len(each.levels) > 4 else ''}"


def _line(text: str) -> str:
    """Text that stays on its line."""
    return " ".join(text.split())[:60]


def _names(columns: Sequence[str]) -> dict[str, str]:
    """A name of the language for every column: its own where it can be."""
    found: dict[str, str] = {}
    for column in columns:
        name = spelt(column).removeprefix("each_").removeprefix("of_").removeprefix("sd_") or "x"
        while name in TAKEN or name in found.values():
            name += "_"
        found[column] = name
    return found


def _body(name: str, target: Look, used: Sequence[Look], names: dict[str, str], asked: dict[str, str]) -> Iterator[str]:
    """The statements. What `asked` has is not found by its name: it is said which column it is."""
    y, numbers = names[target.column], [each for each in used if each.kind == "number"]
    clocks = {
        names[each.column]: hints.clock_of(each.values, hints.walks(each.values, target))
        for each in used
        if each.kind == "time"
    }
    texts = {names[each.column]: each for each in used if each.kind == "text"}
    smooth = [each for each in used if each.kind != "text"]
    level = ["f"] if smooth else [] if _several(target) or grades_of(target) else ["m"]
    predictor = " + ".join([*level, *(f"of_{each}[{each}]" for each in texts)])
    classes = ", c" if _several(target) else ""
    likelihood = _likelihood(y, target, predictor, used)
    yield 'model {} "{}"'.format(name, likelihood.title.replace('"', "'"))
    yield ""
    yield from likelihood.before
    yield from (
        f"index each_{name} in 1..{letter}"
        for name, letter in zip(texts, ascii_uppercase.replace("C", ""), strict=False)
    )
    about = {name: f"time(per = {clock.unit})" for name, clock in clocks.items()}
    about |= {names[each.column]: f"real    # {_spread(each)}" for each in numbers}
    about |= {name: f"label[each_{name}]    # {_words(each)}" for name, each in texts.items()}
    yield from (f"input {each} : {_placed(kind, each, asked)}" for each, kind in about.items())
    yield f"output {y} : {_placed(likelihood.kind, y, asked)}"
    yield ""
    terms, weak = [], hints.Weak(hints.spread(target))
    if likelihood.level is not None:
        yield f"param m : real{weak.level(hints.centre(target))}    # {likelihood.level}"
    for each, clock in clocks.items():
        yield from clock.params(each, weak)
        terms += clock.terms(each)
    walking = not clocks and len(numbers) == 1 and hints.walks(numbers[0].values, target)
    if walking:
        yield hints.walk_param(weak)
    elif numbers:
        these = "these numbers explain" if len(numbers) > 1 else f"{names[numbers[0].column]} explains"
        yield f"param s2 : positive{weak.variance}    # variance of what {these}"
        each = "a length-scale for each of them: short ones matter most" if len(numbers) > 1 else "its length-scale"
        yield f"param ell : positive{_size(numbers)}{hints.lengths(len(numbers))}    # {each}"
    for name in texts:
        yield f"param sd_{name} : positive{weak.effect}    # how far the levels of {name} differ"
        yield f"param of_{name}[each_{name}{classes}] : real ~ Normal(0, sd_{name})"
    yield from likelihood.params
    yield ""
    on = _on([names[each.column] for each in numbers]) if clocks and numbers else ""
    if walking:
        terms.append(hints.walk_term(float(np.ptp(numbers[0].values) / np.std(numbers[0].values)), ""))
    elif numbers:
        terms.append(f"s2 * RBF(ell{on})")
    if terms:
        broken = "\n    " if len(terms) > 1 else " "
        kernel = f" +{broken}".join(terms)
        mean = "0" if likelihood.level is None else "m"
        arguments = _wrapped(", ".join(names[each.column] for each in smooth))
        yield f"latent {likelihood.latent}({arguments}) ~ GP({mean},{broken}{kernel})"
    yield ""
    yield from likelihood.lines


def _placed(kind: str, name: str, asked: dict[str, str]) -> str:
    """A kind with a comment that says which column a name stands for, where it must be told."""
    if name not in asked:
        return kind
    argument = shlex.quote(f"{name}={_line(asked[name])}")
    return f"{kind}{'; ' if '#' in kind else '    # '}the column `{_line(asked[name])}`: --column {argument}"


def _size(numbers: Sequence[Look]) -> str:
    return f"[{len(numbers)}]" if len(numbers) > 1 else ""


def _on(names: Sequence[str]) -> str:
    return f", on = [{_wrapped(', '.join(names))}]" if len(names) > 1 else f", on = {names[0]}"


def _wrapped(listed: str) -> str:
    """A long list on lines of its own, indented as the formatter does."""
    return listed if len(listed) < 70 else "\n    " + textwrap.fill(listed, 100).replace("\n", "\n    ")


def _spread(each: Look) -> str:
    return f"{each.values.min():.4g} to {each.values.max():.4g}"


def _likelihood(y: str, target: Look, predictor: str, used: Sequence[Look]) -> Likelihood:
    """The distribution of an output by what its values are."""
    kind = output_kind(target)
    if kind == "label" and target.kind != "text":
        low, high = (f"{each:.0f}" for each in np.unique(target.known))
        index = f"index c in {{{low}, {high}}}    # two values, taken for classes; counts would be `output {y} : count`"
        line = f"{y} ~ Categorical(logits = {predictor})"
        return Likelihood("label[c]", f"Is {y} {low} or {high}?", None, (), (line,), "f[c]", (index,))
    if kind == "label":
        index = f"index c in 1..C    # {len(target.levels)} classes: the distinct words of the data"
        lines = (*hints.if_grades(y, target, predictor), f"{y} ~ Categorical(logits = {predictor})")
        return Likelihood("label[c]", f"Which class is {y}?", None, (), lines, "f[c]", (index,))
    if kind == "ordinal":
        return _grades(y, target, predictor)
    if kind == "binary":
        line = f"{y} ~ Bernoulli(logit = {predictor})"
        if target.kind == "text":
            second = _line(str(target.levels[1]))
            return Likelihood(kind, f"Is {y} {second}?", f"log odds of {second}", (), (f"{line}    # 1 is {second}",))
        return Likelihood(kind, f"Is {y} true?", "log odds on average", (), (line,))
    if kind == "count":
        return _counts(y, target, predictor, used)
    noise = f"param sigma : positive{hints.Weak(hints.spread(target)).noise}    # standard deviation of the noise"
    counted = (COUNTED.format(y=y, predictor=predictor),) if whole(target.known) else ()
    if kind == "positive":
        lines = (
            *counted,
            f"log({y}) ~ Normal({predictor}, sigma)    # positive and skewed: noise that multiplies",
        )
        return Likelihood(kind, f"A positive {y}", f"level of log({y})", (noise,), lines)
    if kind == "unit":
        lines = (f"logit({y}) ~ Normal({predictor}, sigma)    # between 0 and 1",)
        return Likelihood(kind, f"A proportion {y}", f"level of logit({y})", (noise,), lines)
    hint = f"# {y} ~ StudentT(4, {predictor}, sigma)    # instead, since some values lie far out: it forgives them"
    more = (hint,) if heavy(target.known) else ()
    lines = (*counted, f"{y} ~ Normal({predictor}, sigma)", *more)
    return Likelihood("real", f"{y} as a smooth function", f"level of {y}", (noise,), lines)


def _grades(y: str, target: Look, predictor: str) -> Likelihood:
    levels = grades_of(target)
    index = f"{hints.index_of(levels)}    # from lowest to highest; if they have no order: `label[c]`, `Categorical`"
    line = f"{y} ~ Ordinal(probit = {predictor}, cutpoints = cut)"
    counted = (COUNTED.format(y=y, predictor=predictor),) if target.kind == "number" else ()
    return Likelihood(
        "ordinal[c]", f"Grades of {y}", None, (hints.cutpoints(target, levels),), (*counted, line), "f", (index,)
    )


def _may_be_codes(target: Look) -> bool:
    """Whether whole numbers without a gap, each several times, may stand for classes."""
    values, times = np.unique(target.known, return_counts=True)
    return len(values) <= CLASSES and np.ptp(values) == len(values) - 1 and bool(times.min() > 2)


def _counts(y: str, target: Look, predictor: str, used: Sequence[Look]) -> Likelihood:
    ratio = dispersion(used, target.values)
    rounded = ROUNDED.format(y=y, predictor=predictor)
    others = (*hints.if_grades(y, target, predictor), *((CODES.format(y=y),) if _may_be_codes(target) else ()), rounded)
    if ratio < OVERDISPERSED:
        lines = (*others, f"{y} ~ Poisson(exp({predictor}))")
        return Likelihood("count", f"Counts of {y}", "log of the rate", (), lines)
    spread = "param phi : positive = 5 ~ LogNormal(1.6, 1.5)    # the variance is rate + rate^2 / phi"
    lines = (
        *others,
        f"{y} ~ NegativeBinomial(exp({predictor}), phi)    # they vary {ratio:.2g} times as much as Poisson's",
    )
    return Likelihood("count", f"Counts of {y}", "log of the rate", (spread,), lines)
