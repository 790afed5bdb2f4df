"""Did you mean: the declared or known word closest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_CANDIDATES = 400

ELSEWHERE = {"precision": "dtype"}
"""What other tools call what has a name of its own here, and is nearer to another by its letters."""


def closest(word: str, candidates: Iterable[str]) -> str:
    """The candidate most like `word`, ignoring case; empty when none is close enough to be worth saying."""
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(candidate.lower(), candidate)
        if len(known) >= MAX_CANDIDATES:
            break
    if ELSEWHERE.get(word.lower()) in known:
        return ELSEWHERE[word.lower()]
    # A short name is close to every other short name: below three letters only the case may differ.
    cutoff = 0.6 if len(word) > 2 else 0.99
    found = get_close_matches(word.lower()[:100], known, n=1, cutoff=cutoff)
    return known[found[0]] if found else ""
