"""All warnings about one model, in the order of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpdsl.language.errors.base import Mistake
from gpdsl.language.model import Declarations
from gpdsl.language.render import render_plain
from gpdsl.language.source import Source
from gpdsl.language.warnings.identifiable import same_thing_twice
from gpdsl.language.warnings.outputs import doubtful_likelihoods
from gpdsl.language.warnings.priors import doubtful_priors, unbounded_priors
from gpdsl.language.warnings.scales import far_from_data
from gpdsl.language.warnings.unused import unused_names


@dataclass(frozen=True)
class Report:
    """What there is to say about a model; its text is the plain rendering, empty when there is nothing."""

    source: Source
    warnings: tuple[Mistake, ...]

    def __iter__(self) -> Iterator[Mistake]:
        return iter(self.warnings)

    def __len__(self) -> int:
        return len(self.warnings)

    def __str__(self) -> str:
        return render_plain(self.source, self.warnings)


def find_warnings(declarations: Declarations, spreads: Mapping[str, tuple[float, ...]] | None = None) -> Report:
    """Every warning about a checked model. `spreads` are the standard deviations of the columns of inputs, if known."""
    found = [
        *unused_names(declarations),
        *same_thing_twice(declarations),
        *doubtful_likelihoods(declarations),
        *doubtful_priors(declarations),
        *unbounded_priors(declarations),
        *far_from_data(declarations, spreads or {}),
    ]
    ordered = sorted(found, key=lambda each: (each.span.line, each.span.column, each.code))
    return Report(declarations.source, tuple(ordered))
