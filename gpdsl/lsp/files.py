"""Where an open text finds the files it uses, and how the protocol names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from gpdsl.errors import GpdslError
from gpdsl.language.files import read_model
from gpdsl.language.used import NOWHERE, Reach


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
