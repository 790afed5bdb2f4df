"""Programs of model texts, for the tests of binding and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpdsl.language import compile_text
from gpdsl.language.vocabulary import shipped
from gpdsl.program.program import Program, make_program


def program(text: str, sizes: Mapping[str, int] | None = None, **options: Any) -> Program:
    """A program without opaque functions."""
    return make_program(compile_text(text), sizes or {}, {}, {}, **options)


def zoo(name: str, sizes: Mapping[str, int] | None = None, **options: Any) -> Program:
    """A program of a shipped model."""
    return program((shipped("models") / f"{name}.gpm").read_text(encoding="utf-8"), sizes, **options)


def latents(*declared: str, lets: str = "") -> str:
    """A model with these latents over x (scalar), z (D columns), an index p in 1..3, and parameters."""
    names = [text.split("(")[0] for text in declared]
    lines = "\n".join(f"latent {text}" for text in declared)
    return (
        "model m\nindex p in 1..3\nindex q in 1..2\ninput x : real\ninput z : real[D]\noutput y[p] : real\n"
        "param a : positive = 2\nparam b : positive = 3\nparam w[p] : positive = [1, 2, 3]\n"
        "param m[p] : real = [0.1, 0.2, 0.3]\nparam ard : positive[D] = 1\nparam own[p] : positive[D] = 1\n"
        f"{lines}\n{lets}\ny[p] ~ Normal({names[0]}, 1)\n"
    )
