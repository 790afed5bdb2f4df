"""The figure that pictures are drawn on; it is imported where something is drawn, as matplotlib is."""

from __future__ import annotations

import io
import warnings
from typing import Any

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that notebooks show by themselves: they know those of matplotlib only once pyplot was imported."""

    def savefig(self, fname: Any, **how: Any) -> None:
        """Write the picture. Letters that no font here has are drawn as boxes, of which nobody need be warned."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph .* missing from")
            super().savefig(fname, **how)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()
