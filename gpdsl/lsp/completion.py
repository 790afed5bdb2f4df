"""What could stand at the cursor: words of the language and names of the model, by the place in the statement."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpdsl.language import syntax
from gpdsl.language import vocabulary as v
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.parser import split
from gpdsl.lsp.hover import builtin
from gpdsl.lsp.occurrences import own_names
from gpdsl.lsp.reading import Document

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
    option = v.WRITTEN.get(words[0]) if words else None
    if bare == "infer":
        yield from (Suggestion(name, "value", meaning) for name, meaning in v.ENGINES.items())
    elif bare.endswith((":", ",")):
        engine = re.findall(r"\w+", bare)[1:2]
        others = [each for each in v.WRITTEN.values() if all(map(each.read_by, engine))]
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
    return Suggestion(name, kind, v.signature(entry) if entry is not None else kind, builtin(name))


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
