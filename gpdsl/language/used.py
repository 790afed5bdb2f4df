"""`use "kernels.gpm"`: the texts of the files that a model uses, gathered behind its own before anything is parsed.

A model is untrusted: what it names is read only inside its own folder and those that the caller allows, wherever
links lead.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpdsl.errors import GpdslError, quoted
from gpdsl.language import vocabulary as v
from gpdsl.language.errors.base import Mistake, ModelError
from gpdsl.language.errors.limits import UseCycle, UsedTooMuch, UseNowhere, UseOutside, UseUnread, in_order
from gpdsl.language.parser import parse, parse_piece, split
from gpdsl.language.syntax import KernelStatement, UseStatement

# Kernels that Python has made known by name: their definitions join the texts of the models that call them.

_NAME = re.compile(r"[^\W\d]\w*")
_DEFINITIONS: dict[str, str] = {}


def define(name: str, definition: str) -> None:
    """Make the definition known; another one of this name goes."""
    _DEFINITIONS[name] = definition


def definition_of(name: str) -> str:
    """The definition of a registered kernel. Raises GpdslError where there is none."""
    if name not in _DEFINITIONS:
        raise GpdslError(f"no kernel {quoted(name)} is registered; there are: {', '.join(_DEFINITIONS) or 'none'}")
    return _DEFINITIONS[name]


def statement_of(name: str, definition: str) -> KernelStatement:
    """The one statement that a definition must be. Raises GpdslError for other names and texts."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in v.STATEMENTS:
        raise GpdslError(f"kernel {quoted(name)}: expected a name of letters, digits and _, a letter first")
    if sort := v.BUILTINS.get(name) or ("distribution" if name in v.DISTRIBUTIONS else ""):
        raise GpdslError(f"kernel {name}: this is the name of a {sort} of the language; choose another one")
    form = f"`kernel {name}(r; ell) = ...` in the distance, or `kernel {name}(a, b; ell) = ...` in two points"
    if not isinstance(definition, str):
        raise GpdslError(f"kernel {name}: expected its definition as a text, {form}")
    tree = parse(v.Source(definition, f"<kernel {name}>"))
    if tree.mistakes:
        raise ModelError(tree.source, in_order(tree.mistakes))
    only = tree.statements[0] if len(tree.statements) == 1 else None
    if not isinstance(only, KernelStatement) or only.name.text != name:
        raise GpdslError(f"kernel {name}: expected one definition, {form}")
    return only


def called_in(text: str) -> Iterator[tuple[str, str]]:
    """The registered kernels that a text calls and does not define, with their definitions."""
    for name, definition in _DEFINITIONS.items():
        declares = rf"^[ \t]*(?:{'|'.join(v.STATEMENTS)})[ \t]+{name}\b"
        if re.search(rf"\b{name}[ \t]*\(", text) and not re.search(declares, text, re.MULTILINE):
            yield name, definition


# Model files: read with a limit, since a path may lead to anything.

TABLES = (".csv", ".tsv", ".parquet", ".pq", ".npz")
LARGEST = 4 * v.MAX_CHARACTERS
"""Bytes: of a text with too many characters enough is read to say so."""


def read_model(path: str | Path) -> str:
    """The text of a `.gpm` file, every line ended by a line feed. Raises GpdslError when it cannot be read."""
    return read_exactly(path).replace("\r\n", "\n").replace("\r", "\n")


def read_exactly(path: str | Path) -> str:
    """The text with its own line ends. Devices and pipes, which may have no end, are not opened."""
    try:
        refuse_streams(path)
        if Path(path).suffix.lower() in TABLES:
            then = f"`gpdsl new --data {path}` writes a first model of it, and `--data {path}` gives it to a model"
            raise GpdslError(f"{path}: it is a table by its name, not the text of a model; {then}")
        with open(path, "rb") as file:
            return decoded(file.read(LARGEST + 1), path)
    except OSError as error:
        raise GpdslError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a name with a NUL in it
        raise GpdslError(f"{path}: {error}") from error


def refuse_streams(path: str | Path) -> None:
    """Raise GpdslError for a device or a pipe, which may have no end, and OSError where nothing is."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise GpdslError(f"{path}: it is a device or a pipe, not a file")


def decoded(content: bytes, path: str | Path) -> str:
    """The text of so many bytes at most. Raises GpdslError for more, or other bytes."""
    try:
        if len(content) <= LARGEST:
            return content.decode("utf-8")
        reason = f"it has more than {v.MAX_CHARACTERS} characters"
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text (byte {error.start})"
    if content[8:9] == b"{":  # of safetensors, after the length of the header
        read = "`gpdsl predict`, `gpdsl serve`, `gpdsl fit --start`, or gpdsl.load_fit in Python"
        reason = f"it is a saved fit, not the text of a model; read it with {read}"
    raise GpdslError(f"{path}: {reason}")


_BEGINS = re.compile(r"^[ \t]*use\b", re.MULTILINE)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Reach:
    """Where the files that a model uses may lie: its `folder`, and `allowed` ones. `model` is the file itself."""

    folder: Path | None = None
    allowed: tuple[Path, ...] = ()
    model: Path | None = None
    read: Callable[[Path], str] = read_model

    @classmethod
    def of(
        cls, folder: PathLike | None, allow: PathLike | Sequence[PathLike] = (), model: PathLike | None = None
    ) -> Reach:
        """The reach of a model, its folders checked. Raises GpdslError for one that there is not."""
        several = [allow] if isinstance(allow, (str, os.PathLike)) else allow
        if not isinstance(several, Iterable) or getattr(several, "shape", None) == ():
            raise GpdslError(f'allow: expected folders, such as ["shared"], not {quoted(allow)}')
        file = None if model is None else Path(model)
        own = file.parent if folder is None and file is not None and file.parent.is_dir() else folder
        return cls(
            None if own is None else _folder("folder", own),
            tuple(_folder("allow", each) for each in several),
            None if file is None else file.resolve(),
        )

    def holds(self, target: Path, absolute: bool) -> bool:
        """Whether a file may be read; an absolute path is right on one machine only, so its folder must be allowed."""
        own = () if absolute or self.folder is None else (self.folder,)
        return any(target.is_relative_to(each) for each in (*own, *self.allowed))


NOWHERE = Reach()

LONGEST_PATH = 200
"""Characters of a path in a message."""

MOST_LISTED = 1000
"""Files of a folder that a mistyped name is compared with."""

ABSOLUTE = (
    "is an absolute path, in a folder that is not allowed",
    "it is right on one machine only",
    "write it relative to the folder of the file with this line",
)
"""What is wrong with such a path, wherever it leads."""

ADVICE = {
    "No such file": "the path of a .gpm file is relative to the folder of the file with this line",
    "directory": "name a .gpm file in this folder",
    "UTF-8": "save the file as UTF-8 text",
    "characters": "put its definitions into several files, and use those that this model needs",
    "pipe": "write what it gives to a file, and use that",
    "too long": "give the file a shorter name",
}
"""What to do about a file that cannot be read, by words of the reason."""


def _advice(why: str) -> str:
    return next((advice for words, advice in ADVICE.items() if words in why), "see that the file may be read")


def _near(target: Path, path: str) -> str:
    """The path with the name of a file that is there, where it was mistyped."""
    if os.path.lexists(target):
        return ""
    try:
        stems = [each.stem for each in islice(target.parent.iterdir(), MOST_LISTED) if each.suffix == ".gpm"]
    except (OSError, ValueError):
        return ""
    near = v.closest(target.stem, stems)
    return str(Path(path).with_name(f"{near}.gpm")) if near else ""


def _folder(option: str, path: PathLike) -> Path:
    try:
        found = Path(path).resolve()
        if found.is_dir():
            return found
    except (OSError, RuntimeError, ValueError, TypeError):
        pass
    raise GpdslError(f"{option}: {quoted(path)} is no folder")


def gather(source: v.Source, reach: Reach) -> tuple[v.Source, tuple[Mistake, ...]]:
    """A model's text with those of all files it uses behind it, each once, and the `use` lines that cannot be.

    Last come the definitions of registered kernels that it calls.
    """
    if not _DEFINITIONS and not _BEGINS.search(source.text):
        return source, ()
    gathering = _Gathering(source, reach)
    if reach.folder is None:
        for statement in _uses(source.text):
            gathering.mistakes.append(UseNowhere(statement.span))
    else:
        chain = [(reach.model, source.name)] if reach.model is not None else []
        gathering.use_all(source.text, 1, reach.folder, chain)
    for name, definition in called_in("\n".join(gathering.texts)):
        gathering.add(definition, f"<kernel {name}>")
    return v.Source("\n".join(gathering.texts), source.name, tuple(gathering.parts)), tuple(gathering.mistakes)


def _uses(text: str) -> Iterator[UseStatement]:
    """The `use` lines of a text."""
    if _BEGINS.search(text):
        for piece in split(v.Source(text))[0]:
            statement = parse_piece(piece) if _BEGINS.match(piece.text.lstrip("\n")) and not piece.broken else None
            if isinstance(statement, UseStatement):
                yield statement


class _Gathering:
    """The texts found so far, the model's own first."""

    def __init__(self, source: v.Source, reach: Reach) -> None:
        self.reach, self.shown = reach, Path(source.name).parent
        self.texts, self.parts = [source.text], list[v.Part]()
        self.lines = source.text.count("\n") + 1
        self.known: set[Path] = set()
        self.mistakes: list[Mistake] = []

    def use_all(self, text: str, first: int, folder: Path, chain: list[tuple[Path, str]]) -> None:
        """Add what a text uses that begins on line `first`; `chain` are the files that led to it, itself last."""
        for statement in _uses(text):
            place = statement.place
            span = v.Span(place.line + first - 1, place.column, place.end_line + first - 1, place.end_column)
            wrong = self._use(statement.path, span, folder, chain)
            self.mistakes += [] if wrong is None else [wrong]

    def _use(self, written: str, span: v.Span, folder: Path, chain: list[tuple[Path, str]]) -> Mistake | None:
        path = written if len(written) <= LONGEST_PATH else f"{written[: LONGEST_PATH - 1]}…"
        try:
            target = (folder / written).resolve()
        except (OSError, RuntimeError, ValueError) as problem:  # a circle of links, a NUL
            return UseUnread(span, path, quoted(problem), "name the file itself")
        absolute = Path(written).is_absolute()
        if not self.reach.holds(target, absolute):
            return UseOutside(span, path, *(ABSOLUTE if absolute else ()))
        if target.suffix != ".gpm":  # a message quotes lines, which may be nobody's to show
            return UseUnread(span, path, "not the name of a .gpm file", "give the file a name that ends in .gpm")
        files = [each for each, _ in chain]
        if target in files:
            names = [name for _, name in chain[files.index(target) :]]
            return UseCycle(span, path, " → ".join([*names, names[0]]))
        if target in self.known:
            return None
        self.known.add(target)
        if len(chain) > v.MAX_USE_DEPTH:
            return UsedTooMuch(span, path, f"files use files more than {v.MAX_USE_DEPTH} deep")
        if len(self.parts) == v.MAX_USED:
            return UsedTooMuch(span, path, f"there are more than {v.MAX_USED} used files")
        try:
            text = self.reach.read(target).removeprefix("\ufeff")
        except GpdslError as problem:
            why = str(problem).removeprefix(f"{target}: ")
            return UseUnread(span, path, why, _advice(why), _near(target, written))
        if sum(map(len, self.texts)) + len(text) > v.MAX_CHARACTERS:
            return UsedTooMuch(span, path, f"model and used files have more than {v.MAX_CHARACTERS} characters")
        led = next((each.used for each in reversed(self.parts) if each.line <= span.line), span)
        part = self.add(text, self._name(target), target, led)
        self.use_all(text, part.line, target.parent, [*chain, (target, part.name)])
        return None

    def add(self, text: str, name: str, path: Path | None = None, used: v.Span | None = None) -> v.Part:
        """Put a text behind the others."""
        part = v.Part(self.lines + 1, name, path, used)
        self.parts.append(part)
        self.texts.append(text)
        self.lines += text.count("\n") + 1
        return part

    def _name(self, target: Path) -> str:
        """A file as messages show it: beside the model where it lies there, as its path is otherwise."""
        folder = self.reach.folder
        inside = folder is not None and target.is_relative_to(folder)
        return str(self.shown / target.relative_to(folder)) if inside and folder is not None else str(target)
