"""A real editor's side of the protocol: `python -m gpdsl lsp` in a process of its own, asked over its pipes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
URI = "file:///tmp/model.gpm"
PATIENCE = 60  # seconds; answers take milliseconds
Answer = TypeVar("Answer")


class Editor:
    """A client with one open text."""

    def __init__(self, uri: str = URI) -> None:
        from lsprotocol import types
        from pygls.lsp.client import LanguageClient

        self.types, self.loop = types, asyncio.new_event_loop()
        self.client = LanguageClient("editor", "1")
        self.uri, self.version = uri, 0
        self.published: list[Any] = []
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda found: self.published.append(found))
        self.wait(self.client.start_io(sys.executable, "-m", "gpdsl", "lsp", "--stdio", cwd=ROOT))
        rename = types.RenameClientCapabilities(prepare_support=True)
        can = types.ClientCapabilities(text_document=types.TextDocumentClientCapabilities(rename=rename))
        self.started = self.wait(self.client.initialize_async(types.InitializeParams(can, root_uri=ROOT.as_uri())))
        self.client.initialized(types.InitializedParams())

    def wait(self, answer: Awaitable[Answer]) -> Answer:
        return self.loop.run_until_complete(asyncio.wait_for(answer, PATIENCE))

    def show(self, text: str) -> list[Any]:
        """Open the text, or change it; the mistakes that come back."""
        types = self.types
        self.version += 1
        if self.version == 1:
            item = types.TextDocumentItem(self.uri, "gpm", self.version, text)
            self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        else:
            whole = [types.TextDocumentContentChangeWholeDocument(text)]
            identifier = types.VersionedTextDocumentIdentifier(version=self.version, uri=self.uri)
            self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, whole))
        return self.wait(self._mistakes(self.version))

    async def _mistakes(self, version: int) -> list[Any]:
        while not self.published or self.published[-1].version != version:
            await asyncio.sleep(0.005)
        return list(self.published[-1].diagnostics)

    def at(self, line: int, character: int) -> dict[str, Any]:
        """What a request about a place says, lines and characters from 0."""
        return {
            "text_document": self.types.TextDocumentIdentifier(self.uri),
            "position": self.types.Position(line, character),
        }

    def labels(self, line: int, character: int) -> set[str]:
        """What is offered for completion."""
        items = self.wait(
            self.client.text_document_completion_async(self.types.CompletionParams(**self.at(line, character)))
        )
        return {item.label for item in items}

    def stop(self) -> int | None:
        """Say goodbye in the proper order; the exit code of the server."""
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.close()
        return self.client._server.returncode
