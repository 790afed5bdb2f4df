"""Files written whole or not at all: the new text takes the place of the old one once it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO


class Replacing:
    """A text file that takes the place of another at the end of the `with` block, with the permissions of the old one.

    A link stays a link: the file it leads to is replaced. Line ends are written as given. Raises OSError.
    """

    def __init__(self, target: Path) -> None:
        self.target = target.resolve()

    def __enter__(self) -> IO[str]:
        self.file = tempfile.NamedTemporaryFile(
            "w", dir=self.target.parent, prefix=f".{self.target.name}.", delete=False, newline="", encoding="utf-8"
        )
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.file.close()
        try:
            if kind is None:
                if self.target.exists():
                    shutil.copymode(self.target, self.file.name)
                os.replace(self.file.name, self.target)
        finally:
            if os.path.exists(self.file.name):
                os.unlink(self.file.name)
