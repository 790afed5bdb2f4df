"""What an editor shows when the pointer rests on a name: sort, type, axes, start value, and the declaring line."""

from __future__ import annotations

from gpdsl.language import syntax
from gpdsl.language import vocabulary as v
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.distributions import Distribution, Function, KernelFamily
from gpdsl.language.source import Span
from gpdsl.lsp.occurrences import BUILTIN, MODEL, Occurrence
from gpdsl.lsp.reading import Document

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
    return _code(v.signature(entry)) + "\n".join([entry.meaning, "", *parameters])


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
