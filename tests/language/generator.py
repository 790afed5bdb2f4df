"""Random texts for property tests and fuzzing: any statement the grammar allows, and whole models that make sense.

`statements` derives from the compiled rules of `grammar/gpm.lark`, so a new rule is generated without a change here.
`models` builds texts whose names, axes and types fit together, so that most of them pass the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hypothesis import strategies as st
from lark.lexer import PatternStr

from gpdsl.language.parser import grammar

# Every sort of word a formula may hold: declared by nobody, built in, not ASCII, combining, and wide on a terminal.
WORDS = ("x", "y", "f", "g_2", "ell", "σ", "é", "長さ", "tau", "exp", "sum", "RBF", "GP", "Normal", "real", "pi", "D")
NUMBERS = ("0", "1", "2", "13", "0.5", "1.", ".25", "1e3", "2.5E-7", "007", "1e-400")
TEXTS = ('""', '"a title"', '"# ( [ {"', '"∂ — 長さ"')
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

Words = tuple[str, ...]


# --- any statement of the grammar ------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _rules() -> dict[str, list[tuple[tuple[str, bool], ...]]]:
    """The expansions of every rule of the compiled grammar, each a row of names, marked when they are terminals."""
    table: dict[str, list[tuple[tuple[str, bool], ...]]] = {}
    for rule in grammar().rules:
        expansion = tuple((symbol.name, symbol.is_term) for symbol in rule.expansion)
        if expansion not in table.setdefault(rule.origin.name, []):
            table[rule.origin.name].append(expansion)
    return table


@lru_cache(maxsize=1)
def _depths() -> dict[str, int]:
    """How deep the shallowest derivation of every rule is."""
    depths = dict.fromkeys(_rules(), 10**6)
    changed = True
    while changed:
        changed = False
        for name, expansions in _rules().items():
            least = min(_depth(each, depths) for each in expansions)
            if least < depths[name]:
                depths[name], changed = least, True
    return depths


def _depth(expansion: tuple[tuple[str, bool], ...], depths: dict[str, int]) -> int:
    return 1 + max((depths[name] for name, terminal in expansion if not terminal), default=0)


@lru_cache(maxsize=1)
def _terminals() -> dict[str, Words]:
    fixed = {each.name: (each.pattern.value,) for each in grammar().terminals if isinstance(each.pattern, PatternStr)}
    return fixed | {"NAME": WORDS, "NUMBER": NUMBERS, "TEXT": TEXTS, "COMPARISON": COMPARISONS}


@st.composite
def derivations(draw: st.DrawFn, rule: str = "statement", depth: int = 14) -> Words:
    """The tokens of a random derivation of a rule; past `depth` only the shallowest expansions are taken."""
    words: list[str] = []
    stack = [(rule, False, depth)]
    while stack:
        name, terminal, left = stack.pop()
        if terminal:
            words.append(draw(st.sampled_from(_terminals()[name])))
            continue
        expansions = _rules()[name]
        fitting = [each for each in expansions if _depth(each, _depths()) <= left] or [
            min(expansions, key=lambda each: _depth(each, _depths()))
        ]
        chosen = draw(st.sampled_from(fitting))
        stack.extend((symbol, is_term, left - 1) for symbol, is_term in reversed(chosen))
    return tuple(words)


def statements(depth: int = 14) -> st.SearchStrategy[Words]:
    """The tokens of one statement. An observation does not begin with `if`: the parser takes that for a misspelling."""
    return derivations("statement", depth).filter(lambda words: words[0] != "if")


@st.composite
def texts(draw: st.DrawFn, size: int = 8) -> str:
    """A whole text of random statements, comments and blank lines, spaced at random; it parses."""
    lines = []
    for words in draw(st.lists(statements(), max_size=size)):
        lines += draw(st.lists(st.sampled_from(("", "   ", "# a note", "\t#σ  note  ", "#")), max_size=2))
        lines.append(draw(spaced(words)))
    return "\n".join(lines) + draw(st.sampled_from(("", "\n", "\n\n")))


@st.composite
def spaced(draw: st.DrawFn, words: Words) -> str:
    """Tokens as text: any blanks between them, line ends and comments only where a bracket is open."""
    open_brackets = 0
    parts = [draw(st.sampled_from(("", "", " ", "\t  ")))]
    for word, following in zip(words, (*words[1:], ""), strict=True):
        parts.append(word)
        open_brackets += (word in "([{") - (word in ")]}")
        between = ("", " ", " ", "  ", "\t") + (("\n", "\n\n   ", "  # why\n", "\n#(\n ") if open_brackets else ())
        gap = draw(st.sampled_from(between)) if following else draw(st.sampled_from(("", " ", "  # end", "\t#")))
        parts.append(gap if gap or not following or not clashes(word, following) else " ")
    return "".join(parts)


def clashes(word: str, following: str) -> bool:
    """Whether two tokens written without a blank would be read as others."""
    if word[-1].isalnum() or word[-1] in "_." or not word[-1].isascii():
        return following[0].isalnum() or following[0] in "_." or not following[0].isascii()
    return word[-1] in "-<>=!" and following[0] in "=>" or (word[-1] == "." and following[0] == ".")


# --- models that make sense ------------------------------------------------------------------------------------

_HEAD = """model generated "A model made by a test"
index p in 1..3
index c in {4, 7, 9}
input x : real[2]
input s : positive
"""
_PARAMS = (
    "param a : real = {n}",
    "param b : positive = {n}",
    "param b : positive = {n} fixed",
    "param b : positive = {n} ~ Gamma(2, {n})",
    "param e : real(lower = -1, upper = 9)",
    "param u : unit = 0.5",
    "param m[p] : real = {n}",
)
_KERNELS = (
    "RBF({n})",
    "{n} * Matern32({n}) + White()",
    "RBF(ell = {n}) * Periodic({n}, {n})",
    "RBF({n}, on = x[1..2])",
    "(RBF({n}) + Linear({n}))^2",
    "spiral({n})",
)
_DEFINITIONS = (
    "function warp(r; k) = r + k * tanh(r)",
    "kernel spiral(r; ell) = exp(-2 * sin(pi * r)^2 / ell^2)",
    "density huber(r | mu, k) = -log(2 * k) - abs(r - mu) / k",
    "external solver(depth: real[3]) -> real[3]",
    "row w ~ Normal(0, 1)",
    "latent h(x, w) ~ GP(0, RBF({n}))",
)
_LETS = (
    "let t1 = {e}",
    "let t2 = if {e} > 0 then {e} else {e}",
    "let t3[p] = m[p] * g[p] + {e}",
    "let t4[1] = g[1]\nlet t4[p > 1] = t4[p - 1] + g[p]",
    "let t5 = sum(p, g[p] * m[p])",
    "let t6 = max(p, g[p])",
    "let t7 = m @ m",
)
_OBSERVED = (
    ("output y : real", "y ~ Normal({e}, {n})"),
    ("output y : real", "y ~ StudentT(4, {e}, exp({e}))"),
    ("output y : positive", "log(y) ~ Normal({e}, {n})"),
    ("output y : real", "y ~ huber({e}, {n})"),
    ("output y : count", "y ~ Poisson(exp({e}))"),
    ("output y : binary", "y ~ Bernoulli(logit = {e})"),
    ("output y[p] : real", "y[p] ~ Normal(g[p] + {e}, {n})"),
    ("output y[p] : real", "y[1] ~ Normal({e}, {n})\ny[p > 1] ~ Normal(g[p] + y[p - 1], {n})"),
    ("output y : label[c]", "y ~ Categorical(logits = z)"),
)
_INFER = ("infer vi: posterior = mixture(2), samples = 50", "infer vi: inducing = 20", "")
_SCALARS = ("f", "a", "b", "s", "x[1]", "g[1]", "m[2]", "0.5", "2", "pi")
_SHAPES: tuple[Callable[[str, str], str], ...] = (
    lambda left, right: f"({left} + {right})",
    lambda left, right: f"{left} - ({right})",
    lambda left, right: f"({left}) * ({right})",
    lambda left, right: f"({left}) / (1 + ({right})^2)",
    lambda left, right: f"exp({left})",
    lambda left, right: f"tanh({left}) * {right}",
    lambda left, right: f"-({left})^2",
    lambda left, right: f"max({left}, {right})",
    lambda left, right: f"(if {left} <= {right} then {left} else {right})",
)


def formulas() -> st.SearchStrategy[str]:
    """A formula with one value per row, of the names that `models` always declares."""
    return st.recursive(
        st.sampled_from(_SCALARS),
        lambda inner: st.tuples(st.sampled_from(_SHAPES), inner, inner).map(lambda drawn: drawn[0](*drawn[1:])),
        max_leaves=6,
    )


@st.composite
def models(draw: st.DrawFn) -> str:
    """A model with one output, one statement of every other sort at most a few times, in a sensible order."""

    def fill(template: str) -> str:
        while "{e}" in template:
            template = template.replace("{e}", draw(formulas()), 1)
        while "{n}" in template:
            template = template.replace("{n}", draw(st.sampled_from(("0.3", "1", "2.5"))), 1)
        return template

    output, observation = draw(st.sampled_from(_OBSERVED))
    params = {line.split()[1]: line for line in draw(st.permutations(_PARAMS))}
    lines = [output, *map(fill, params.values())]
    lines += [fill(each) for each in _DEFINITIONS if draw(st.booleans()) or "spiral" in each or "huber" in each]
    lines += [
        f"latent {each}(x) ~ GP({draw(st.sampled_from(('0', 'a', '2 * a')))}, {{kernel}})" for each in ("f", "g[p]")
    ]
    lines = [line.replace("{kernel}", fill(draw(st.sampled_from(_KERNELS)))) for line in lines]
    lines.append("latent z[c](x) ~ GP(0, RBF(2))")
    lines += [fill(each) for each in draw(st.lists(st.sampled_from(_LETS), unique=True, max_size=4))]
    return _HEAD + "\n".join([*lines, fill(observation), draw(st.sampled_from(_INFER))]).rstrip() + "\n"
