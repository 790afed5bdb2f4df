"""The protocol of editors, where a message makes no sense: it has an answer all the same."""

from __future__ import annotations

from typing import Any

from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest
from pygls.protocol import LanguageServerProtocol


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
