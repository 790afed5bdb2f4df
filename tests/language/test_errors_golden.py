"""What a user reads for each mistake: every model of tests/golden/errors beside the exact text printed for it.

`GPDSL_GOLDEN=1` rewrites the texts; the difference is then read as prose.
"""

from __future__ import annotations

import functools
import os
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

from gpdsl.language import ModelError, compile_text, errors
from gpdsl.language.errors import base

GOLDEN = Path(__file__).parents[1] / "golden" / "errors"
MODELS = sorted(GOLDEN.glob("*.gpm"))
# Texts of these sizes are made by the tests of the limits, not kept as files.
TOO_LARGE_TO_KEEP = {"E401", "E402", "E404", "E409", "E410", "E411", "E412", "E416"}
IN_NO_FOLDER = {"E112"}


@functools.cache
def mistakes_of(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        folder = None if path.stem[:4].upper() in IN_NO_FOLDER else path
        compile_text(path.read_text(encoding="utf-8"), path.name, path=folder)
    return caught.value


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_error_text(path: Path) -> None:
    printed = str(mistakes_of(path)) + "\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("GPDSL_GOLDEN"):
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in MODELS if path.stem.startswith("e")], ids=lambda path: path.stem)
def test_file_shows_the_code_of_its_name(path: Path) -> None:
    codes = {each.code for each in mistakes_of(path).diagnostics}
    assert codes == {path.stem.split("_")[0].upper()}


@pytest.mark.parametrize("name", ["let_of_a_latent", "lets_beside_an_input"])
def test_the_remedy_for_a_latent_over_a_let_is_a_model(name: str) -> None:
    path = GOLDEN / f"e219_{name}.gpm"
    (mistake,) = {each.help_text() for each in mistakes_of(path).diagnostics}
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("latent f", "let"))]
    remedy = mistake.partition("formula: `")[2].rstrip("`")
    assert "f" in compile_text("\n".join([*kept, remedy]), path.name).latents


def test_every_code_has_a_golden_file() -> None:
    modules = [import_module(f"{errors.__name__}.{each.name}") for each in pkgutil.iter_modules(errors.__path__)]
    codes = {
        each.code
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, base.Mistake) and each.code
    }
    shown = {path.stem.split("_")[0].upper() for path in MODELS}
    assert codes - TOO_LARGE_TO_KEEP == {code for code in shown if code.startswith("E")}
