"""Notebooks: `%load_ext gpdsl` brings `%%gpm`, a cell that is a model, with completion.

IPython is met only where it runs already.
"""

from __future__ import annotations

from typing import Any

from gpdsl import model as models
from gpdsl.errors import GpdslError
from gpdsl.language import Source

MAGIC = "gpm"
NAME = "model"
"""Of the variable that a cell makes, where it names none."""


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gpdsl` calls."""

    def cell(line: str, text: str) -> models.Model:
        """Check the text of a cell, and name the model: `%%gpm`, or `%%gpm coal` for a variable `coal`."""
        name = line.strip() or NAME
        if not name.isidentifier():
            raise GpdslError(f"%%gpm {name}: expected a name for the model, such as `%%gpm coal`, or nothing")
        try:
            model = models.compile(text, name=f"%%gpm {line}".strip())
        except GpdslError as error:
            lines = str(error).split("\n")
            error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]  # what IPython shows of it
            raise
        shell.user_ns[name] = model
        return model

    shell.register_magic_function(cell, "cell", MAGIC)
    if getattr(shell, "Completer", None) is not None:
        shell.Completer.custom_matchers.append(_matcher())


def _matcher() -> Any:
    """What completes the words of such cells, in the form that IPython wants."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="gpdsl")  # type: ignore[untyped-decorator]
    def match(context: Any) -> dict[str, Any]:
        found = suggested(context.full_text, context.cursor_line, context.cursor_position)
        completions = [SimpleCompletion(text=text, type=kind) for text, kind in found]
        return {"completions": completions, "matched_fragment": _typed(context), "suppress": bool(found)}

    return match


def _typed(context: Any) -> str:
    """The letters of a word before the cursor."""
    before = context.full_text.split("\n")[context.cursor_line][: context.cursor_position]
    word = len(before)
    while word and (before[word - 1].isalnum() or before[word - 1] == "_"):
        word -= 1
    return str(before[word:])


def suggested(text: str, line: int, column: int) -> list[tuple[str, str]]:
    """Words for a place in a cell, both from 0, with their sorts; none where the cell is no model."""
    from gpdsl.lsp.completion import complete
    from gpdsl.lsp.occurrences import read

    first, _, rest = text.partition("\n")
    if not first.startswith(f"%%{MAGIC}") or line < 1:
        return []
    before = rest.split("\n")[line - 1][:column]
    start = next((len(before) - k for k, each in enumerate(reversed(before)) if not (each.isalnum() or each == "_")), 0)
    found = complete(read(Source(rest, "<cell>")), line, column + 1)
    return [(each.text, each.kind) for each in found if each.text.startswith(before[start:])]
