"""Small models the data tests bind to."""

from __future__ import annotations

from gpdsl.language import compile_text
from gpdsl.language.model import Declarations


def scalar(kind: str = "real", distribution: str = "Normal(f, 0.1)") -> Declarations:
    """One scalar input `x`, one output `y` of a kind."""
    return compile_text(
        f"model m\ninput x : real\noutput y : {kind}\nlatent f(x) ~ GP(0, RBF(1))\ny ~ {distribution}\n"
    )


def vector(size: str = "D") -> Declarations:
    """One vector input `x`, one real output `y`."""
    return compile_text(
        f"model m\ninput x : real[{size}]\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    )


def several(size: str = "P") -> Declarations:
    """One scalar input `x`, an output `t` along an index."""
    return compile_text(
        f"model m\nindex p in 1..{size}\ninput x : real\noutput t[p] : real\n"
        "latent f[p](x) ~ GP(0, RBF(1))\nt[p] ~ Normal(f[p], 0.1)\n"
    )


def label(index: str = "1..C") -> Declarations:
    """One scalar input `x`, a label `y` of an index."""
    return compile_text(
        f"model m\nindex c in {index}\ninput x : real\noutput y : label[c]\n"
        "latent f[c](x) ~ GP(0, RBF(1))\ny ~ Categorical(f)\n"
    )


def timed(kind: str = "time") -> Declarations:
    """One time `t`, one real output `y`."""
    return compile_text(
        f"model m\ninput t : {kind}\noutput y : real\nlatent f(t) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n"
    )


TIME = timed()
COUNT = scalar("count", "Poisson(exp(f))")
POSITIVE = scalar("positive", "LogNormal(f, 0.1)")
BINARY = scalar("binary", "Bernoulli(logit = f)")
REAL = scalar()
ORDINAL = compile_text(
    "model m\nindex c in 1..C\ninput x : real\noutput y : ordinal[c]\nparam cut : ordered[2]\n"
    "latent f(x) ~ GP(0, RBF(1))\ny ~ Ordinal(logit = f, cutpoints = cut)\n"
)
