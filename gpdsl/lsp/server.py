"""The language server: requests of the protocol in, answers of `occurrences` and `completion` out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol
from pygls.uris import to_fs_path
from pygls.workspace import ServerTextPosition, TextDocument

import gpdsl
from gpdsl.errors import GpdslError, quoted
from gpdsl.language import format_text
from gpdsl.language.checker.check import declared_name
from gpdsl.language.checker.scope import SORTS
from gpdsl.language.errors import Mistake
from gpdsl.language.used import NOWHERE, Reach, read_model
from gpdsl.language.vocabulary import Span
from gpdsl.lsp import occurrences
from gpdsl.lsp.completion import Suggestion, complete, hover
from gpdsl.lsp.occurrences import Document, gathered, read

# The protocol of editors, where a message makes no sense: it has an answer all the same.


class Answered(JsonRpcException):
    """A message that made no sense, and has had its answer."""


class Protocol(LanguageServerProtocol):
    """Answers what is no request with the protocol's errors: an editor waits for an answer to everything it asks."""

    def structure_message(self, data: Any) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as problem:
            if data.get("id") is None:
                raise
            understood = isinstance(data.get("method"), str)
            refuse(self, data["id"], problem if understood else JsonRpcInvalidRequest("no method"))
            raise Answered from problem


def refuse(protocol: LanguageServerProtocol, asked: Any, problem: JsonRpcException) -> None:
    """Answer with an error; `asked` is the request's number, None where it has none that could be read."""
    protocol._send_response(asked, error=problem.to_response_error())


# Where an open text finds the files it uses, and how the protocol names them.


def reach(uri: str, open_texts: Mapping[str, TextDocument]) -> Reach:
    """The folder of a text, none where it was never saved. Files that are open too are read as the editor has them."""
    path = to_fs_path(uri) if uri.startswith("file:") else None

    def read(used: Path) -> str:
        text = open_texts.get(used.as_uri())
        return text.source if text is not None else read_model(used)

    try:
        return replace(Reach.of(None, model=path), read=read)
    except GpdslError:  # a folder that is not there yet
        return NOWHERE


# What the protocol calls our sorts of words, of names and of mistakes.

ITEMS = {
    "statement": lsp.CompletionItemKind.Keyword,
    "keyword": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.TypeParameter,
    "distribution": lsp.CompletionItemKind.Class,
    "density": lsp.CompletionItemKind.Class,
    "likelihood": lsp.CompletionItemKind.Class,
    "kernel": lsp.CompletionItemKind.Class,
    "process": lsp.CompletionItemKind.Class,
    "function": lsp.CompletionItemKind.Function,
    "external": lsp.CompletionItemKind.Function,
    "constant": lsp.CompletionItemKind.Constant,
    "const": lsp.CompletionItemKind.Constant,
    "option": lsp.CompletionItemKind.Property,
    "argument": lsp.CompletionItemKind.Property,
    "value": lsp.CompletionItemKind.EnumMember,
}
SEVERITIES = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
SYMBOLS = {
    "index": lsp.SymbolKind.Enum,
    "const": lsp.SymbolKind.Constant,
    "latent": lsp.SymbolKind.Function,
    "function": lsp.SymbolKind.Function,
    "kernel": lsp.SymbolKind.Class,
    "density": lsp.SymbolKind.Class,
    "external": lsp.SymbolKind.Interface,
    "likelihood": lsp.SymbolKind.Interface,
}


# Mistakes for an editor: what it underlines and says, and the edits it offers.

_NAME = re.compile(r"[^\W\d]\w*")
_POWER_SIGN = "E110"


@dataclass(frozen=True)
class Fix:
    """An edit that removes a mistake."""

    title: str
    span: Span
    text: str
    mistake: Mistake


def sentence(document: Document, mistake: Mistake) -> str:
    """What is wrong, what was expected, what to do: one line each; led by the place where that is in a used file."""
    source, span = document.source, mistake.span
    place = f"{source.part(span.line).name}:{source.number(span.line)}:{span.column}: "
    first = mistake.message_text() if source.is_own(span) else place + mistake.message_text()
    label, advice = mistake.label_text(), mistake.help_text()
    return "\n".join([first, *([label] if label else []), *([f"help: {advice}"] if advice else [])])


def fixes(document: Document, first: int, last: int) -> list[Fix]:
    """The edits offered for the mistakes of some lines: a misspelt name put right, `**` made a power."""
    found = []
    for mistake in document.mistakes:
        if not first <= mistake.span.line <= last:
            continue
        suggestion, written = getattr(mistake, "suggestion", ""), document.text_at(mistake.span)
        if suggestion and _NAME.fullmatch(written):
            found.append(Fix(f"Change `{written}` to `{suggestion}`", mistake.span, suggestion, mistake))
        elif mistake.code == _POWER_SIGN:
            found.append(Fix("Write the power with `^`", mistake.span, "^", mistake))
    return found


PAUSE = 0.1  # seconds without a key before a text is checked


class Server(LanguageServer):
    """Keeps one `Document` for every open text, read again when the text has changed."""

    def __init__(self) -> None:
        # Whole texts at every change: they are small, and nothing can get out of step.
        whole = lsp.TextDocumentSyncKind.Full
        super().__init__("gpdsl", gpdsl.__version__, protocol_cls=Protocol, text_document_sync_kind=whole)
        self.documents: dict[str, Document] = {}

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Say what went wrong with a message that asked for no answer."""
        if isinstance(error, ValueError | RecursionError):
            refuse(self.protocol, None, JsonRpcParseError())
        elif isinstance(error, AttributeError):
            refuse(self.protocol, None, JsonRpcInvalidRequest("a message is a JSON object"))
        elif not isinstance(error, Answered):
            super().report_server_error(error, source)

    def document(self, uri: str) -> Document:
        """The document of an open text, up to date."""
        try:
            found = self.workspace.text_documents.get(uri)
        except RuntimeError as problem:
            raise JsonRpcServerNotInitialized("the first request is `initialize`") from problem
        if found is None:
            raise JsonRpcInvalidParams(f"{quoted(uri)} is not open")
        text, before = found.source, self.documents.get(uri)
        # Gathered at every request: the files it uses change without a word to the server.
        source, missing = gathered(text, uri.rsplit("/", 1)[-1], reach(uri, self.workspace.text_documents))
        if before is None or (before.source, before.missing) != (source, missing):
            self.documents[uri] = read(source, missing, before)
        return self.documents[uri]

    def place(self, uri: str, position: lsp.Position) -> tuple[Document, int, int]:
        """The document, and line and column from 1 in characters."""
        document = self.document(uri)
        lines = document.source.lines
        found = self.workspace.position_codec.position_from_client_units(lines, position)
        return document, found.line + 1, found.character + 1

    def range(self, document: Document, span: Span) -> lsp.Range:
        """A span in the units of the client, UTF-16 unless it asked for others."""
        codec, lines = self.workspace.position_codec, document.source.lines
        ends = ((span.line, span.column), (span.end_line, span.end_column))
        start, end = (
            codec.position_to_client_units(lines, ServerTextPosition(line - 1, column - 1)) for line, column in ends
        )
        before = document.source.part(span.line).line - 1
        return lsp.Range(*(lsp.Position(each.line - before, each.character) for each in (start, end)))

    def locations(self, uri: str, document: Document, spans: Iterable[Span]) -> list[lsp.Location]:
        """Spans of a text, and of the files it uses, as the protocol names them."""
        files = [(document.source.part(span.line).path, span) for span in spans]
        return [lsp.Location(path.as_uri() if path else uri, self.range(document, span)) for path, span in files]

    def diagnostic(self, document: Document, mistake: Mistake) -> lsp.Diagnostic:
        """A mistake as the protocol shows it."""
        part = document.source.part(mistake.span.line)
        return lsp.Diagnostic(
            # A mistake in a used file is shown where the file is used.
            range=self.range(document, part.used or mistake.span),
            message=sentence(document, mistake),
            severity=SEVERITIES[mistake.severity],
            code=mistake.code,
            source="gpdsl",
        )

    def publish(self, uri: str) -> None:
        """Send the mistakes of a text."""
        document = self.document(uri)
        found = [self.diagnostic(document, each) for each in document.mistakes]
        version = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))


def make_server() -> Server:
    """A server with all it can do; `start_io` runs it."""
    server = Server()
    for method, handler in _HANDLERS.items():
        server.feature(method, _OPTIONS.get(method))(handler)
    return server


def _opened(server: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    server.publish(params.text_document.uri)


async def _changed(server: Server, params: lsp.DidChangeTextDocumentParams) -> None:
    uri, version = params.text_document.uri, params.text_document.version
    await asyncio.sleep(PAUSE)
    # A newer change, or the closing of the text, has made this one stale.
    open_text = server.workspace.text_documents.get(uri)
    if open_text is not None and open_text.version == version:
        server.publish(uri)


def _closed(server: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    server.documents.pop(uri, None)
    server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _hover(server: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    document, line, column = server.place(params.text_document.uri, params.position)
    found = hover(document, line, column)
    if found is None:
        return None
    text, span = found
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), server.range(document, span))


def _complete(server: Server, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    return [_item(each) for each in complete(*server.place(params.text_document.uri, params.position))]


def _item(suggestion: Suggestion) -> lsp.CompletionItem:
    about = lsp.MarkupContent(lsp.MarkupKind.Markdown, suggestion.about) if suggestion.about else None
    kind = ITEMS.get(suggestion.kind, lsp.CompletionItemKind.Variable)
    return lsp.CompletionItem(
        label=suggestion.text.strip(),
        insert_text=suggestion.text,
        kind=kind,
        detail=suggestion.detail,
        documentation=about,
    )


def _definition(server: Server, params: lsp.DefinitionParams) -> list[lsp.Location]:
    uri = params.text_document.uri
    document, line, column = server.place(uri, params.position)
    return server.locations(uri, document, occurrences.definition(document, line, column))


def _references(server: Server, params: lsp.ReferenceParams) -> list[lsp.Location]:
    uri = params.text_document.uri
    document, line, column = server.place(uri, params.position)
    spans = occurrences.references(document, line, column, params.context.include_declaration)
    return server.locations(uri, document, spans)


def _highlights(server: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
    document, line, column = server.place(params.text_document.uri, params.position)
    spans = filter(document.source.is_own, occurrences.references(document, line, column))
    return [lsp.DocumentHighlight(server.range(document, span)) for span in spans]


def _prepare_rename(server: Server, params: lsp.PrepareRenameParams) -> lsp.PrepareRenamePlaceholder:
    document, line, column = server.place(params.text_document.uri, params.position)
    try:
        place = occurrences.renameable(document, line, column)
    except GpdslError as error:
        raise JsonRpcInvalidRequest(str(error)) from error
    return lsp.PrepareRenamePlaceholder(server.range(document, place.span), place.name)


def _rename(server: Server, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
    uri = params.text_document.uri
    document, line, column = server.place(uri, params.position)
    try:
        spans = occurrences.rename(document, line, column, params.new_name)
    except GpdslError as error:
        raise JsonRpcInvalidRequest(str(error)) from error
    return lsp.WorkspaceEdit({uri: [lsp.TextEdit(server.range(document, span), params.new_name) for span in spans]})


def _symbols(server: Server, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = server.document(params.text_document.uri)
    found = []
    for name, sort in document.sorts().items():
        for statement in document.statements_of(name):
            named = declared_name(statement)
            if named is not None and document.source.is_own(named.span):
                whole, itself = server.range(document, statement.span), server.range(document, named.span)
                kind = SYMBOLS.get(sort, lsp.SymbolKind.Variable)
                found.append(lsp.DocumentSymbol(name, kind, whole, itself, SORTS[sort]))
    return found


def _format(server: Server, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
    document = server.document(params.text_document.uri)
    text = document.source.own
    try:
        formatted = format_text(text)
    except GpdslError:
        return None  # the mistakes are on the screen already
    lines = text.split("\n")
    whole = Span(1, 1, len(lines), len(lines[-1]) + 1)
    return [lsp.TextEdit(server.range(document, whole), formatted)] if formatted != text else []


def _actions(server: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    uri = params.text_document.uri
    document = server.document(uri)
    return [
        lsp.CodeAction(
            title=fix.title,
            kind=lsp.CodeActionKind.QuickFix,
            diagnostics=[server.diagnostic(document, fix.mistake)],
            is_preferred=True,
            edit=lsp.WorkspaceEdit({uri: [lsp.TextEdit(server.range(document, fix.span), fix.text)]}),
        )
        for fix in fixes(document, params.range.start.line + 1, params.range.end.line + 1)
    ]


_HANDLERS: Mapping[str, Callable[..., Any]] = {
    lsp.TEXT_DOCUMENT_DID_OPEN: _opened,
    lsp.TEXT_DOCUMENT_DID_CHANGE: _changed,
    lsp.TEXT_DOCUMENT_DID_CLOSE: _closed,
    lsp.TEXT_DOCUMENT_HOVER: _hover,
    lsp.TEXT_DOCUMENT_COMPLETION: _complete,
    lsp.TEXT_DOCUMENT_DEFINITION: _definition,
    lsp.TEXT_DOCUMENT_REFERENCES: _references,
    lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: _highlights,
    lsp.TEXT_DOCUMENT_PREPARE_RENAME: _prepare_rename,
    lsp.TEXT_DOCUMENT_RENAME: _rename,
    lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL: _symbols,
    lsp.TEXT_DOCUMENT_FORMATTING: _format,
    lsp.TEXT_DOCUMENT_CODE_ACTION: _actions,
}
_OPTIONS: Mapping[str, Any] = {
    lsp.TEXT_DOCUMENT_COMPLETION: lsp.CompletionOptions(trigger_characters=["~", "(", "[", ":", ",", "="]),
    lsp.TEXT_DOCUMENT_RENAME: lsp.RenameOptions(prepare_provider=True),
    lsp.TEXT_DOCUMENT_CODE_ACTION: lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]),
}
