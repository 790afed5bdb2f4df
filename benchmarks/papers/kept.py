"""Measurements that are kept as they are made: a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from report import CONSOLE


class Kept:
    """Lists of numbers by name, one JSON line each in a file; without a file, nothing outlives the run."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.known = path, {}
        if path is not None and path.exists():
            self.known = dict(json.loads(line) for line in path.read_text().splitlines())

    def measure(self, name: str, function: Callable[[], list[float]]) -> list[float]:
        """What is known by this name, else what the function finds, which is printed at once."""
        if name not in self.known:
            self.known[name] = [float(value) for value in function()]
            CONSOLE.print(f"{name}: {', '.join(f'{value:.5g}' for value in self.known[name])}")
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([name, self.known[name]]) + "\n")
        return self.known[name]
