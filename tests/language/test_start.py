"""Importing and running the language loads no numerical library and takes little time."""

from __future__ import annotations

import subprocess
import sys

from gpdsl.language import compile_text
from gpdsl.language.vocabulary import shipped
from tests.timing import takes_less_than

from . import examples

HEAVY = ("jax", "numpy", "scipy", "sympy", "pandas")


def test_loads_no_numerical_library() -> None:
    code = f"""
import sys
from gpdsl.language import compile_text
compile_text({examples.SEISMIC!r})
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_warm_compile_is_quick() -> None:
    compile_text(examples.SEISMIC)
    # Some ten milliseconds at most; the margin is for a busy machine.
    assert takes_less_than(lambda: compile_text(examples.SEISMIC), 0.1)


def test_shipped_folders() -> None:
    assert "statement" in shipped("grammar").joinpath("gpm.lark").read_text(encoding="utf-8")
