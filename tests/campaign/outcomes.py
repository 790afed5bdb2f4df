"""What came of each trial, counted; and the watch over what no text, file or server may make gpdsl do."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable

from gpdsl.errors import GpdslError

SHOWN = 5
"""Failures of each sort that are described on standard error."""

FORBIDDEN = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "subprocess.Popen",
    "pty.spawn",
    "pickle.find_class",
}
"""What the interpreter reports when a process is started or an object made of bytes."""


class Hung(BaseException):
    """A trial took longer than its limit; no Exception, so that nothing on the way catches it."""


class Outcomes:
    """Counts of one kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(tried=0, raw=0, hung=0, executed=0, lost=0, wrong=0)

    def attempt(self, name: object, trial: Callable[[], object], *allowed: type[BaseException]) -> None:
        """Count what comes of a trial: it returns, or ends in a GpdslError with words, or something is wrong."""
        self.counts["tried"] += 1
        before = len(_SEEN)
        try:
            trial()
        except AssertionError as problem:
            self.note("wrong", name, problem)
        except GpdslError as problem:
            if not str(problem).strip() or not str(problem).replace("\n", "").isprintable():
                self.note("wrong", name, problem)
        except Hung as problem:
            self.note("hung", name, problem)
        except Exception as problem:  # noqa: BLE001 - this is what is looked for
            if not isinstance(problem, allowed):
                self.note("raw", name, problem)
        if len(_SEEN) > before:
            self.note("executed", name, RuntimeError(f"forbidden: {_SEEN[before:]}"))

    def note(self, sort: str, name: object, problem: BaseException) -> None:
        """Count a failure, and describe it as long as there are few."""
        self.counts[sort] += 1
        if self.counts[sort] <= SHOWN:
            place = "".join(traceback.format_exception(problem)[-3:])
            print(f"--- {sort}: {str(name)[:3000]!r}\n{place[-3000:]}", file=sys.__stderr__, flush=True)


_SEEN: list[str] = []
"""Forbidden events since `watch`."""


def watch() -> None:
    """From now on note when a process is started, or a file written to outside Python's own caches."""
    if not _WATCHING:
        _WATCHING.append(True)
        sys.addaudithook(_audit)


_WATCHING: list[bool] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in FORBIDDEN:
        _SEEN.append(f"{event} {arguments!r}"[:300])
