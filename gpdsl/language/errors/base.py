"""What a mistake in a model is: a value with a code, a place and templates; and the exception that carries them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from gpdsl.errors import GpdslError
from gpdsl.language.source import Source, Span


@dataclass(frozen=True)
class Mistake:
    """One mistake. Subclasses give the code and the three templates, filled with the fields of the instance.

    A field `suggestion`, when not empty, replaces the help by "did you mean ...?", and a field
    `habit` by what to write instead of a word of another tool.
    """

    span: Span

    severity: ClassVar[str] = "error"
    code: ClassVar[str] = ""
    message: ClassVar[str] = ""
    label: ClassVar[str] = ""
    help: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.span.line}:{self.span.column}: {self.severity}[{self.code}]: {self.message_text()}"

    def _fill(self, template: str) -> str:
        return template.format(**{each.name: getattr(self, each.name) for each in fields(self)})

    def message_text(self) -> str:
        """What is wrong, in one sentence."""
        return self._fill(self.message)

    def label_text(self) -> str:
        """What stands beside the caret; may be empty."""
        return self._fill(self.label)

    def help_text(self) -> str:
        """What to do; may be empty."""
        if habit := getattr(self, "habit", ""):
            return str(habit)
        suggestion = getattr(self, "suggestion", "")
        return f"did you mean `{suggestion}`?" if suggestion else self._fill(self.help)


class ModelError(GpdslError):
    """A model that cannot be accepted: every mistake found in one run, ordered by position.

    `diagnostics` are the mistakes, `source` the text they refer to; the text of the exception is the plain rendering.
    """

    def __init__(self, source: Source, diagnostics: tuple[Mistake, ...]) -> None:
        from gpdsl.language.render import render_plain

        self.source = source
        self.diagnostics = diagnostics
        super().__init__(render_plain(source, diagnostics))
