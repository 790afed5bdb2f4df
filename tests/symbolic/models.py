"""Model texts of the tests of the mathematics, and their terms."""

from __future__ import annotations

from collections.abc import Mapping

from gpdsl.language import compile_text
from gpdsl.symbolic.terms import ObservationTerms, observation_terms
from gpdsl.symbolic.translate import Translator


def scalar(distribution: str, kind: str = "real", lets: str = "") -> str:
    """Three scalar latents f, g, h, a parameter s, and one output."""
    latents = "".join(f"latent {name}(x) ~ GP(0, RBF(1))\n" for name in "fgh")
    head = f"model m\ninput x : real\noutput y : {kind}\nparam s : positive = 1\n"
    return f"{head}{latents}{lets}\ny ~ {distribution}\n"


def indexed(size: int, lets: str, observation: str) -> str:
    """Latents u[p], v[p] and outputs y[p]."""
    latents = "".join(f"latent {name}[p](x) ~ GP(0, RBF(1))\n" for name in "uv")
    return (
        f"model m\nindex p in 1..{size}\ninput x : real\noutput y[p] : real\nparam s : positive = 1\n"
        f"{latents}{lets}\n{observation}\n"
    )


def translator(text: str, sizes: Mapping[str, int] | None = None) -> Translator:
    """The translator of a model text."""
    return Translator(compile_text(text), sizes or {})


def terms(text: str, expectations: str = "auto") -> tuple[ObservationTerms, ...]:
    """The terms of all observations of a model text."""
    return observation_terms(translator(text), expectations)
