"""E112 to E117 and E416: files that a model uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class UseNowhere(Mistake):
    """A `use` in a text that is no file."""

    code: ClassVar = "E112"
    message: ClassVar = "`use` in a text that lies in no folder"
    label: ClassVar = "a path is relative to the folder of the model"
    help: ClassVar = 'save the text as a file and load that, or name the folder: `gpdsl.compile(text, folder="models")`'


@dataclass(frozen=True)
class UseOutside(Mistake):
    """A path that leads out of the folder of the model, or is absolute."""

    path: str
    why: str = "is not in the folder of the model"
    expected: str = "a model uses files of its own folder and of the folders in it"
    instead: str = "move the file there"
    code: ClassVar = "E113"
    message: ClassVar = "`{path}` {why}"
    label: ClassVar = "{expected}"
    help: ClassVar = (
        '{instead}, or allow its folder: `gpdsl.load("model.gpm", allow=["folder"])`, with `--allow folder` '
        "on the command line"
    )


@dataclass(frozen=True)
class UseUnread(Mistake):
    """A file that cannot be read."""

    path: str
    why: str
    instead: str
    suggestion: str = ""
    code: ClassVar = "E114"
    message: ClassVar = "`{path}` cannot be read"
    label: ClassVar = "{why}"
    help: ClassVar = "{instead}"


@dataclass(frozen=True)
class UseCycle(Mistake):
    """Files that use each other in a circle."""

    path: str
    cycle: str
    code: ClassVar = "E115"
    message: ClassVar = "`{path}` uses itself"
    label: ClassVar = "{cycle}"
    help: ClassVar = "remove one of these `use` lines; what several files need can stand in a file that all of them use"


@dataclass(frozen=True)
class NotADefinition(Mistake):
    """A statement of a used file that is no definition."""

    model: str
    code: ClassVar = "E116"
    message: ClassVar = "a used file holds definitions only"
    label: ClassVar = "expected `function`, `kernel`, `density` or another `use`"
    help: ClassVar = "move this line to {model}, or the definitions to a file of their own"


@dataclass(frozen=True)
class UsedTooMuch(Mistake):
    """Used files beyond a limit."""

    path: str
    what: str
    code: ClassVar = "E416"
    message: ClassVar = "too much is used: with `{path}`, {what}"
    label: ClassVar = "the limit is passed here"
    help: ClassVar = "put the definitions that this model needs into fewer and smaller files"
