"""Hostile sizes, statement by statement: an answer or an error within two seconds."""

from __future__ import annotations

from typing import Any

import pytest

from gpdsl.language import ModelError, compile_text
from gpdsl.language.checker import functions

from .test_fuzzing import limited, survives

HEAD = """input x : real[2]
output y : real
param sigma : positive = 0.1
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, sigma)
"""
ROWS, SQUARE = "index p in 1..9999\n", "index p in 1..5000\nindex q in 1..5000\n"


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def doubling(line: str, first: str, depth: int) -> str:
    """Definitions each of which uses the one before it twice."""
    return first + "".join(line.format(k=k, j=k - 1) for k in range(1, depth))


REFUSED = {
    "open brackets on one line": "let a = " + "(" * 100_000,
    "open brackets, one a line": "let a = " + "(\n" * 100_000,
    "closing brackets": "let a = f" + "\n)" * 100_000,
    "brackets of all sorts": "let a = " + "([{" * 33_000,
    "quotation marks": '"\n' * 100_000,
    "a megabyte on one line": "let a = " + "f + " * 250_000 + "f",
    "a megabyte of lines": "let a = f\n" * 100_000,
    "conditionals": "let a = " + nested("if f > 0 then ", "1", " else 2", 1000),
    "negated conditions": "let a = if " + "not " * 2000 + "f > 0 then 1 else 2",
    "functions calling twice": doubling("function g{k}(u) = g{j}(u) + g{j}(u)\n", "function g0(u) = u\n", 40)
    + "let a = g39(f)",
    "functions of many calls": "function g(u) = u * u\nlet a = " + nested("g(", "f", ")", 60),
    "a long chain of functions": doubling("function g{k}(u) = g{j}(u) + 1\n", "function g0(u) = u\n", 900)
    + "let a = g899(f)",
    "a function of itself": "function g(u) = g(u)\nlet a = g(f)",
    "functions of each other": "function g(u) = h(u)\nfunction h(u) = g(u)\nlet a = g(f)",
    "powers inside a function": "function g(u) = u^9\nlet a = g(g(g(g(g(f)))))",
    "kernels of kernels": doubling("kernel k{k}(r; s) = k{j}(r)\n", "kernel k0(r; s) = exp(-r)\n", 40)
    + "latent g(x) ~ GP(0, k39(1))",
    "kernels inside kernels": "latent g(x) ~ GP(0, " + nested("ChangePoint(", "RBF(1)", ", RBF(1), at = 1)", 60) + ")",
    "powers of kernels": "latent g(x) ~ GP(0, (((RBF(1) + RBF(2))^10)^10)^10)",
    "a kernel of many powers": "kernel k(r; s) = " + nested("(1 + ", "r", ")^9", 60) + "\nlatent g(x) ~ GP(0, k(1))",
    "doubling lets": doubling("let a{k} = a{j} * a{j}\n", "let a0 = f\n", 60),
    "doubling sums": doubling("let a{k} = exp(a{j}) + exp(-a{j})\n", "let a0 = f\n", 60),
    "a huge range of elements": "let a = sum(x[1..999999999])",
    "a huge range of columns": "latent g(x) ~ GP(0, RBF(1, on = x[1..999999999]))",
    "a range that runs backwards": "let a = sum(x[9..1])",
    "a huge index": "index p in 1..1000000000",
    "a huge array": "index p in 1..10000\nindex q in 1..10000\nindex r in 1..10000\nlatent g[p,q,r](x) ~ GP(0, RBF(1))",
    "a huge matrix": SQUARE + "param A[p,q] : real = 1\nparam b[q] : real = 1\nlet c = A @ b",
    "a huge power": "let a = f^(9^9^9^9)",
    "a huge number": "let a = f * " + "9" * 9000,
    "huge bounds": "param b : real(lower = 9^9^9^9) = 1",
    "mixtures of mixtures": "output z : real\nz ~ " + nested("Mixture(0.5, ", "Normal(f, 1)", ", Normal(0, 1))", 60),
    "truncations of truncations": "output z : real\nz ~ " + nested("Truncated(", "Normal(f, 1)", ", lower = 0)", 60),
    "derivatives of derivatives": "let a = " + nested("D(", "f", ", x[1])", 60),
    "a high derivative": "let a = D(f" + ", x[1]" * 500 + ")",
    "one latent at many inputs": "".join(f"input a{k} : real[2]\nlet b{k} = f(a{k})\n" for k in range(200)),
    "many layers": doubling("latent g{k}(g{j}) ~ GP(0, RBF(1))\n", "latent g0(x) ~ GP(0, RBF(1))\n", 2000),
    "a cycle of latents": "latent a(b) ~ GP(0, RBF(1))\nlatent b(a) ~ GP(0, RBF(1))",
    "a cycle of outputs": "output u : real\noutput v : real\nu ~ Normal(v, 1)\nv ~ Normal(u, 1)",
    "one output by many lines": ROWS
    + "output u[p] : real\n"
    + "".join(f"u[p == {k}] ~ Normal(f, 1)\n" for k in range(1, 2000)),
    "logarithms of logarithms": "output u : positive\n" + nested("log(", "u", ")", 80) + " ~ Normal(f, 1)",
    "NUL": "let a\0 = f",
    "a surrogate": "let \ud800 = f",
    "right to left": "param \u202e : real = 1\nlet a\u202e = f",
    "full-width brackets": "let a = （f）",
}

ACCEPTED = {
    "nested conditionals": "let a = " + nested("if f > 0 then ", "1", " else 2", 90),
    "nested conditions": "let a = if " + nested("(", "f > 0", ")", 95) + " then 1 else 2",
    "towers of powers": "let a = " + "f^" * 95 + "f",
    "many minus signs": "let a = " + "-" * 95 + "f",
    "a long product": ROWS + "let a = prod(p, f + p)",
    "a long sum of parameters": ROWS + "param g[p] : real = 1\nlet a = sum(p, g[p] * f)",
    "recursions along long indices": "index p in 1..10000\n"
    + "\n".join(f"let a{k}[1] = f\nlet a{k}[p > 1] = a{k}[p - 1] + f" for k in range(100)),
    "a norm of many": "input z : real[10000]\nlet c = norm(z) * f",
    "a sum of many kernels": "latent g(x) ~ GP(0, " + " + ".join(["RBF(1)"] * 95) + ")",
    "a function of many arguments": f"function g({', '.join(f'a{k}' for k in range(900))}) = a0\n"
    f"let b = g({', '.join('f' for _ in range(900))})",
    "a chain of outputs": "".join(
        f"output u{k} : real\nu{k} ~ Normal({f'u{k - 1}' if k else 'f'}, 1)\n" for k in range(300)
    ),
    "a transform of many terms": "output u : real\n"
    + " + ".join(f"asinh({k}*u)" for k in range(1, 90))
    + " ~ Normal(f, 1)",
    "homoglyphs": "param ѕigma : positive = 1\nparam sіgma : positive = 1",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_soon(name: str) -> None:
    with limited(name), pytest.raises(ModelError) as caught:
        compile_text(HEAD + REFUSED[name])
    assert "help:" in str(caught.value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_soon_and_derived_from(name: str) -> None:
    assert survives(HEAD + ACCEPTED[name]) is not None


def test_calls_are_counted_by_what_their_check_costs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    expand = functions.expand

    def counted(scope: Any, place: Any, call: Any, *others: Any) -> Any:
        calls.append(call.function.text)
        return expand(scope, place, call, *others)

    monkeypatch.setattr(functions, "expand", counted)
    with pytest.raises(ModelError):
        compile_text(HEAD + REFUSED["functions calling twice"])
    assert 1_000 < len(calls) < 12_000
