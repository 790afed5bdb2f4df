"""How a fit shows itself: summary, notebook, pictures. `Fit` is one of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpdsl.errors import preformatted
from gpdsl.shown import mimebundle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpdsl.results.fit import Fit


class Shown:
    """The faces of a fit."""

    def summary(self) -> str:
        """What was fitted, how it went, and the parameters' values, as text."""
        from gpdsl.results.summary import summarise

        return summarise(cast("Fit", self))

    def __repr__(self) -> str:
        from gpdsl.results.summary import in_brief

        return in_brief(cast("Fit", self))

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        return preformatted(self.summary())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, str]:
        return mimebundle(self, include, exclude)

    def report(self, path: str | Path, data: Any = None) -> None:
        """Write one web page: the model as equations and as a graph, data, fit, pictures, and what to look at next.

        It needs no other file and no network. data: rows to compare with; without them what needs them is left out.
        """
        from gpdsl.results.report.report import write_report

        write_report(cast("Fit", self), Path(path), data)

    def plot(
        self,
        data: Any = None,
        names: Sequence[str] | str | None = None,
        path: str | Path | None = None,
        *,
        kind: str | None = None,
        others: str = "held",
    ) -> Figure:
        """A matplotlib figure: curves with bands against one input, maps over two, effects of each of more.

        data: the rows to show. names: outputs, lets and latents. path: also write it, as .png, .pdf or .svg.
        kind: another picture, such as "residuals", "calibration", "rootogram", "bound", "inducing" or "parameters";
        a wrong one is answered with all. others: of "partial", whether the other inputs are "held" at their medians or
        "averaged" over rows. Raises GpdslError for what does not suit the model.
        """
        from gpdsl.results.pictures.plot import plot_fit

        return plot_fit(cast("Fit", self), data, names, path, kind, others)
