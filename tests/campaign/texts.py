"""Texts that are no models, or hardly: mutated, made from the grammar, and hostile in size or intent.

Each is compiled, formatted, typeset, described and drawn, within two seconds of the processor.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from hypothesis import given, seed, settings, strategies as st

from tests.campaign.outcomes import Hung, Outcomes, watch
from tests.language import examples, generator
from tests.language.test_fuzzing import ALARM, ZOO, TooSlow, mutated, survives
from tests.language.test_hostile import ACCEPTED, HEAD, REFUSED

NAME = "texts"
WHOLE = 100_000
SHARES = {"mutated": 0.65, "grammar": 0.15, "models": 0.10, "hostile": 0.10}
AT_ONCE = 250
"""Examples of one run of Hypothesis: it remembers all that it has tried."""

INJECTIONS = (
    "__import__('os').system('touch hacked')",
    "exec('import os; os.system(\"touch hacked\")')",
    "().__class__.__mro__[-1].__subclasses__()",
    "{0.__class__}{__import__}%s%n",
    "lambda: open('hacked', 'w')",
    "; rm -rf /tmp/hacked; `touch hacked` $(touch hacked)",
    "\\input{/etc/passwd}\\immediate\\write18{touch hacked}",
    "</text><script>alert(1)</script>]]>",
    "!!python/object/apply:os.system ['touch hacked']",
    "\x1b]0;hacked\x07\x1b[2J\x9b31m",
    "../../../../etc/passwd",
    'use "/etc/passwd"',
)


def run(scale: float, seed: int) -> dict[str, int]:
    """Try so many texts of each sort, in proportion to the scale."""
    watch()
    survives(ZOO["gprn"])  # everything is loaded: the limit is for a text
    outcomes = Outcomes()
    for sort, texts in _SORTS.items():
        for text in texts(max(round(WHOLE * SHARES[sort] * scale), 1), seed):
            outcomes.attempt(text, lambda text=text: _survives(text))
    return dict(outcomes.counts)


def _survives(text: str) -> None:
    try:
        survives(text)
    except TooSlow as problem:
        raise Hung(str(problem)) from None


def _mutated(count: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    return (mutated(chance) for _ in range(count))


def _drawn(strategy: st.SearchStrategy[str], count: int, number: int) -> Iterator[str]:
    """So many examples of a strategy, in runs of some hundred."""
    some: list[str] = []
    while count > 0:
        several = min(count, AT_ONCE)

        @seed(number)
        @settings(ALARM, max_examples=several)
        @given(strategy)
        def collect(text: str) -> None:
            some.append(text)

        collect()
        yield from some[:several]
        count -= max(len(some[:several]), 1)
        number += 1
        some.clear()


def _grammar(count: int, seed: int) -> Iterator[str]:
    yield from _drawn(generator.texts(), count // 2, 1000 * seed)
    after = generator.texts(3).map(lambda text: examples.REGRESSION + text)
    yield from _drawn(after, count - count // 2, 1000 * seed)


def _models(count: int, seed: int) -> Iterator[str]:
    return _drawn(generator.models(), count, 1000 * seed + 500)


def _hostile(count: int, seed: int) -> Iterator[str]:
    """Known attacks with other sizes, two of them together, and code where words are expected."""
    chance = random.Random(seed)
    known = [*REFUSED.values(), *ACCEPTED.values()]
    sizes = ("0", "-1", "2", "9", "31", "99", "4999", "10001", "999999999", "1e308", "1e400", "0.5", "9" * 400)
    for _ in range(count):
        text = HEAD * (chance.random() < 0.5) + chance.choice(known)
        if chance.random() < 0.3:
            text += "\n" + chance.choice(known)
        if chance.random() < 0.5:
            pieces = re.split(r"(\d+)", text[:20_000])  # of a megabyte the beginning will do
            text = "".join(chance.choice(sizes) if p.isdigit() and chance.random() < 0.3 else p for p in pieces)
        if chance.random() < 0.5:
            code, place = chance.choice(INJECTIONS), chance.randrange(len(text) + 1)
            quoted = chance.choice(("{}", '"{}"', "# {}\n", "let a = {}\n", 'model m "{}"\n', 'index k in {{"{}"}}\n'))
            text = text[:place] + quoted.format(code.replace("\n", " ")) + text[place:]
        if chance.random() < 0.2:
            text = text[chance.randrange(len(text) + 1) :]
        yield text


_SORTS = {"mutated": _mutated, "grammar": _grammar, "models": _models, "hostile": _hostile}
