"""What the command prints: errors to standard error, in colour on a terminal."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpdsl.errors import GpdslError, GpdslWarning

if TYPE_CHECKING:
    from gpdsl.language.errors.base import Mistake
    from gpdsl.language.vocabulary import Source


def print_error(error: GpdslError) -> None:
    """Print an error of the user's; errors with a code name their place themselves."""
    from gpdsl.language import ModelError, render_colour

    if isinstance(error, ModelError) and wants_colour():
        text = render_colour(error.source, error.diagnostics)
    else:
        text = str(error)
        if "error[" not in text.split("\n")[0]:
            text = f"error: {text}"
    print(text, file=sys.stderr)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings of ours are printed as errors are, without the line of code at which they came up."""
    usual = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        ours = issubclass(category, GpdslWarning)
        return f"warning: {message}\n" if ours else usual(message, category, filename, lineno, line)

    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = usual


def print_mistakes(source: Source, mistakes: Sequence[Mistake]) -> None:
    """Print warnings about a text as errors are printed."""
    from gpdsl.language import render_colour, render_plain

    print((render_colour if wants_colour() else render_plain)(source, mistakes), file=sys.stderr)


def wants_colour() -> bool:
    """Whether standard error is a terminal that should get colours."""
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
