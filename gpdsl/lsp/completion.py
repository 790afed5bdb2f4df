"""What an editor shows of a place: what could stand at the cursor, and what the name under the pointer is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpdsl.language import syntax, vocabulary as v
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.distributions import Distribution, Function, KernelFamily, signature
from gpdsl.language.options import ENGINES, WRITTEN
from gpdsl.language.parser import split
from gpdsl.language.vocabulary import Span
from gpdsl.lsp.occurrences import BUILTIN, MODEL, Document, Occurrence, own_names

# What an editor shows when the pointer rests on a name: sort, type, axes, start value, and the declaring line.

_LONGEST = 60


def hover(document: Document, line: int, column: int) -> tuple[str, Span] | None:
    """Markdown about the name at a place, and where that name stands; None when there is nothing to say."""
    place = document.at(line, column)
    if place is None:
        return None
    if place.owner == BUILTIN:
        text = builtin(place.name)
    elif place.owner == MODEL:
        text = _declared(document, place)
    else:
        text = f"`{place.name}`: argument of `{place.owner}`" + _lines(document, place.owner)
    return (text, place.span) if text else None


def builtin(name: str) -> str:
    """Signature and meaning of a word of the language."""
    entry: object = v.DISTRIBUTIONS.get(name) or v.KERNELS.get(name) or v.FUNCTIONS.get(name)
    match entry:
        case Distribution():
            return _family(entry) + f"\n\nof outputs that are {', '.join(entry.kinds)}" * bool(entry.kinds)
        case KernelFamily():
            return _family(entry)
        case Function():
            arguments = ", ".join("abcdef"[: entry.arity])
            over = f"; with an index, {v.REDUCTIONS[name]}" if name in v.REDUCTIONS else ""
            return _code(f"{name}({arguments})") + f"{entry.meaning}{over}"
    if name in v.REDUCTIONS:
        return _code(f"{name}(p, ...)") + v.REDUCTIONS[name]
    if name in v.POINTS:
        return _code(f"{name}(lower, upper, points)") + v.POINTS[name]
    if name == v.PROCESS:
        return _code("GP(mean, kernel)") + "Gaussian process"
    return _code(name) + v.BUILTINS.get(name, "")


def _family(entry: Distribution | KernelFamily) -> str:
    parameters = [f"- `{each.name}`: {each.meaning}" for each in entry.parameters]
    return _code(signature(entry)) + "\n".join([entry.meaning, "", *parameters])


def _declared(document: Document, place: Occurrence) -> str:
    sort = document.sorts().get(place.name)
    if sort is None:
        return ""
    statements = document.statements_of(place.name)
    facts = [f"**{SORTS[sort].split(' ', 1)[1]}**".replace("`", "")]
    facts += _facts(document, statements[0]) if statements else ["the statement is not finished"]
    axes = _axes(document, place.name)
    if axes:
        facts.append(f"axes {axes}")
    return " · ".join(facts) + _lines(document, place.name)


def _facts(document: Document, statement: syntax.Statement) -> list[str]:
    match statement:
        case syntax.InputStatement() | syntax.OutputStatement():
            return [f"`{document.text_at(statement.type.span)}`"]
        case syntax.ParamStatement():
            facts = [f"`{document.text_at(statement.type.span)}`"]
            if statement.value is not None:
                facts.append(("fixed at " if statement.fixed else "starts at ") + _short(document, statement.value))
            if statement.prior is not None:
                facts.append(f"prior {_short(document, statement.prior)}")
            return facts
        case syntax.IndexStatement(stop=syntax.Size() as stop):
            return [f"1..{document.text_at(stop.span)}"]
        case syntax.IndexStatement():
            return [f"{len(statement.levels)} levels"]
        case syntax.LatentStatement():
            arguments = statement.given or statement.arguments
            return [f"of {', '.join(f'`{document.text_at(each.span)}`' for each in arguments)}"]
    return []


def _axes(document: Document, name: str) -> str:
    """The axes the checker found; those of the newest model that passed it."""
    model = document.declarations
    if model is None:
        return ""
    tables = (model.inputs, model.outputs, model.consts, model.params, model.latents, model.lets, model.rows)
    known = any(name in table for table in tables)
    return ", ".join(f"`{axis.describe()}`" for axis in model.axes_of(name)) if known else ""


def _lines(document: Document, name: str) -> str:
    """The declaring lines as they stand, comments included."""
    lines = [
        document.source.line(number)
        for each in document.statements_of(name)
        for number in range(each.span.line, each.span.end_line + 1)
    ]
    return "\n\n" + _code("\n".join(lines)) if lines else ""


def _short(document: Document, formula: syntax.Formula) -> str:
    text = document.text_at(formula.span)
    return f"`{text}`" if len(text) <= _LONGEST else f"`{text[:_LONGEST]}…`"


def _code(text: str) -> str:
    return f"```gpm\n{text}\n```\n"


# What could stand at the cursor: words of the language and names of the model, by the place in the statement.

_TEXT_OR_COMMENT = re.compile(r'"[^"\n]*"|#[^\n]*\Z|#[^\n]*|"')
_WORD = re.compile(r"[^\W\d]\w*\Z")
_CALLEE = re.compile(r"([^\W\d]\w*)[ \t]*\Z")
_FIRST = re.compile(r"\s*([^\W\d]\w*)?")
_TYPES = {"input": v.INPUT_KINDS, "output": v.OUTPUT_KINDS, "param": tuple(v.CONSTRAINTS), "row": tuple(v.CONSTRAINTS)}
# Sorts that a formula can read or call; densities, likelihoods and kernels have their own places.
_READABLE = ("input", "output", "const", "param", "row", "latent", "let", "index", "function", "external")


@dataclass(frozen=True)
class Suggestion:
    """A word for the cursor's place: `kind` is its sort, `detail` its form, `about` Markdown."""

    text: str
    kind: str
    detail: str = ""
    about: str = ""


@dataclass(frozen=True)
class _Bracket:
    """A bracket open at the cursor: its sign, the name before it, and the commas passed inside."""

    sign: str
    callee: str
    commas: int


def complete(document: Document, line: int, column: int) -> list[Suggestion]:
    """The suggestions for a place, none inside comments and texts. The editor filters by what is already typed."""
    before = _code_before(document, line, column)
    if before is None:
        return []
    head = _WORD.sub("", before)
    found = {each.text: each for each in _suggestions(document, head)}
    return list(found.values())


def _code_before(document: Document, line: int, column: int) -> str | None:
    """The statement up to the cursor, comments and texts left out; None when the cursor is inside one of these."""
    text, first = document.source.line(line), line
    for piece in split(document.source)[0]:
        if piece.line <= line <= piece.line + piece.text.count("\n"):
            text, first = piece.text, piece.line
    lines = text.split("\n")[: line - first + 1]
    lines[-1] = lines[-1][: column - 1]
    before = "\n".join(lines)
    marks = [match.group() for match in _TEXT_OR_COMMENT.finditer(before)]
    if '"' in marks or (marks and marks[-1].startswith("#") and before.endswith(marks[-1])):
        return None
    return _TEXT_OR_COMMENT.sub('""', before)


def _suggestions(document: Document, head: str) -> Iterator[Suggestion]:
    match = _FIRST.match(head)
    first = (match.group(1) if match else "") or ""
    brackets = _open_brackets(head)
    bare = head.rstrip()
    if not bare:
        yield from (Suggestion(word, "statement", form) for word, form in v.STATEMENTS.items())
        yield from _names(document, ("output", "function"))
    elif first == "infer":
        yield from _infer(document, bare, head)
    elif not brackets and first in _TYPES and bare.endswith(":"):
        yield from (Suggestion(word, "type") for word in _TYPES[first])
    elif first == "external":
        yield from [Suggestion("real", "type")] if bare.endswith((":", "->")) else []
        yield from [Suggestion("likelihood", "keyword")] if bare.endswith("external") else []
    elif first == "index" and "in" not in bare.split()[2:]:
        yield from [Suggestion("in", "keyword", v.STATEMENTS["index"])] if len(bare.split()) == 2 else []
    elif bare.endswith("~"):
        yield from _right_of_tilde(document, first)
    elif first in v.STATEMENTS and len(bare.split()) == 1:
        return  # a name that the user makes up
    elif brackets:
        yield from _inside(document, first, head, brackets)
    else:
        yield from [Suggestion("fixed", "keyword", "not estimated")] if first == "param" else []
        yield from _formula(document)


def _right_of_tilde(document: Document, first: str) -> Iterator[Suggestion]:
    if first == "latent":
        yield _builtin(v.PROCESS, "process")
    else:
        yield from (_builtin(name, "distribution") for name in v.DISTRIBUTIONS)
        yield from _names(document, ("density", "likelihood"))


def _inside(document: Document, first: str, head: str, brackets: Sequence[_Bracket]) -> Iterator[Suggestion]:
    innermost = brackets[-1]
    if first == "latent" and "~" not in head:
        yield from _names(document, ("index",) if innermost.sign == "[" else ("input", "row", "latent"))
        return
    if innermost.sign == "[":
        yield from _names(document, ("index",))
    if innermost.sign == "(":
        yield from _arguments(document, innermost.callee)
    if any(each.callee == v.PROCESS and each.commas for each in brackets):
        yield from (_builtin(name, "kernel") for name in v.KERNELS)
        yield from _names(document, ("kernel",))
    entry = v.DISTRIBUTIONS.get(innermost.callee)
    if entry is not None and entry.components:
        yield from _right_of_tilde(document, "")
    yield from _formula(document)


def _arguments(document: Document, callee: str) -> Iterator[Suggestion]:
    """The arguments of a call that can be given by name."""
    entry = v.DISTRIBUTIONS.get(callee) or v.KERNELS.get(callee)
    if callee == "time":
        yield from (Suggestion(f"per = {unit}", "argument", "what it counts") for unit in v.TIME_UNITS)
    if callee in v.CONSTRAINTS:
        yield from (Suggestion(f"{word} = ", "argument", "bound") for word in ("lower", "upper"))
    if entry is not None:
        yield from (Suggestion(f"{each.name} = ", "argument", each.meaning) for each in entry.parameters)
        yield from [Suggestion("on = ", "argument", "the columns it looks at")] if callee in v.KERNELS else []
    for statement in document.statements_of(callee):
        # What a kernel compares is not given in a call.
        named = statement.parameters if isinstance(statement, syntax.KernelStatement) else own_names(statement)
        yield from (Suggestion(f"{each.text} = ", "argument", f"of {callee}") for each in named)


def _infer(document: Document, bare: str, head: str) -> Iterator[Suggestion]:
    words = re.findall(r"\w+", bare.replace(":", ",").split(",")[-1])
    option = WRITTEN.get(words[0]) if words else None
    if bare == "infer":
        yield from (Suggestion(name, "value", meaning) for name, meaning in ENGINES.items())
    elif bare.endswith((":", ",")):
        engine = re.findall(r"\w+", bare)[1:2]
        others = [each for each in WRITTEN.values() if all(map(each.read_by, engine))]
        yield from (Suggestion(each.name, "option", each.takes.expected, each.meaning) for each in others)
    elif option is not None and bare.endswith("="):
        yield from (Suggestion(word, "value") for word in option.takes.words)
        yield from _names(document, ("param",) if option.name == "fixed" else ())
    elif option is not None and head.endswith((" ", "\t")) and "=" not in bare.split(",")[-1]:
        yield from _names(document, (option.of,))


def _formula(document: Document) -> Iterator[Suggestion]:
    yield from _names(document, _READABLE)
    yield from (_builtin(name, "function") for name, sort in v.BUILTINS.items() if sort == "function")
    yield from (_builtin(name, "constant") for name in v.CONSTANTS)
    yield from (Suggestion(word, "keyword", "if a > 0 then b else c") for word in ("if", "then", "else"))


def _names(document: Document, sorts: Iterable[str]) -> Iterator[Suggestion]:
    wanted = set(sorts)
    for name, sort in document.sorts().items():
        if sort in wanted:
            statements = document.statements_of(name)
            line = document.source.line(statements[0].span.line).strip() if statements else ""
            yield Suggestion(
                name, sort, SORTS[sort].split(" ", 1)[1].strip("`"), f"```gpm\n{line}\n```" if line else ""
            )


def _builtin(name: str, kind: str) -> Suggestion:
    entry = v.DISTRIBUTIONS.get(name) or v.KERNELS.get(name)
    return Suggestion(name, kind, signature(entry) if entry is not None else kind, builtin(name))


def _open_brackets(head: str) -> list[_Bracket]:
    """The brackets open at the end of a text, from the outermost."""
    stack: list[_Bracket] = []
    for match in re.finditer(r"[()\[\]{},;]", head):
        sign = match.group()
        if sign in "([{":
            callee = _CALLEE.search(head, 0, match.start())
            stack.append(_Bracket(sign, callee.group(1) if callee else "", 0))
        elif sign in ",;" and stack:
            stack[-1] = _Bracket(stack[-1].sign, stack[-1].callee, stack[-1].commas + 1)
        elif sign in ")]}" and stack:
            stack.pop()
    return stack
