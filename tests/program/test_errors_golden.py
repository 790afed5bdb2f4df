"""What a user reads when sizes, constants or formulas turn out wrong: models of tests/golden/sizes, all sizes three.

`GPDSL_GOLDEN=1` rewrites the texts; the difference is then read as prose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpdsl.language import ModelError, compile_text, model as m
from gpdsl.program.program import make_program
from tests.goldens import GOLDEN, assert_golden

MODELS = sorted((GOLDEN / "sizes").glob("*.gpm"))
SIZE = 3


def sizes_of(declarations: m.Declarations) -> dict[str, int]:
    """Three for everything that data would say."""
    everything = (declarations.inputs, declarations.outputs, declarations.params, declarations.indices)
    found = [each for table in everything for each in table.values()]
    axes = [axis for each in found for axis in (each.axes if hasattr(each, "axes") else (each.axis,))]
    axes += [each.label for each in declarations.outputs.values() if each.label is not None]
    return {str(axis.dimension): SIZE for axis in axes if axis.size is None}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_text(path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        declarations = compile_text(path.read_text(encoding="utf-8"), path=path)
        make_program(declarations, sizes_of(declarations), {}, {})
    assert {each.code for each in caught.value.diagnostics} == {path.stem.split("_")[0].upper()}
    assert_golden(f"sizes/{path.stem}.txt", str(caught.value))
