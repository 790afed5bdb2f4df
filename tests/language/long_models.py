"""Models of any length, for what grows with the length: right ones, and ones with a mistake in two lines of five."""

from __future__ import annotations

HEAD = """input x : real[2]
output y : real
index p in 1..3
param s : positive = 1
"""
PART = """param a{k} : positive = 1
const c{k}[p] = [1, 2, {k}]
latent f{k}(x) ~ GP(a{k}, s * RBF(a{k}))
let g{k}[p] = c{k}[p] * f{k} + exp(-a{k} * f{k}^2)  # part {k}
let h{k} = sum(p, g{k}[p]) / 3
"""
TAIL = """let total = h1 + h2
y ~ Normal(total, s)
"""


def right(lines: int) -> str:
    """A model of about `lines` statements, one a line, that passes."""
    parts = (lines - HEAD.count("\n") - TAIL.count("\n")) // PART.count("\n")
    return HEAD + "".join(PART.format(k=k) for k in range(1, parts + 1)) + TAIL


def wrong(lines: int) -> str:
    """The same with an unknown function and an unknown name in every part, each much like a known one."""
    return right(lines).replace("exp(", "epx(").replace("RBF(a", "RBF(b")


def many_outputs(lines: int) -> str:
    """Statements that are compared with each other: outputs and what observes them, cases of `let`s."""
    pairs = "".join(f"output y{k} : real\ny{k} ~ Normal(f, s)\n" for k in range(lines // 4))
    cases = "".join(f"let a{k}[1] = f\nlet a{k}[p > 1] = a{k}[p - 1] + f\n" for k in range(lines // 4))
    return HEAD.replace("output y : real\n", "") + "latent f(x) ~ GP(0, RBF(1))\n" + pairs + cases


def syntax_mistakes(lines: int) -> str:
    """A text whose every line fails in the parser, or in the splitter."""
    return HEAD + "".join(f"let b{k} = f + + 1\nlet c{k} = (f\n" for k in range(lines // 2)) + "y ~ Normal(1, s)\n"
