"""What engines are called, in `infer` lines and as the option `engine`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from gpdsl.errors import GpdslError, quoted

OWN = {
    "vi": "variational inference",
    "ep": "expectation propagation",
    "qsgp": "weights of basis functions",
    "mcmc": "Markov chains",
}
_engines = dict(OWN)

ENGINES: Mapping[str, str] = MappingProxyType(_engines)
"""What engines are called, and what they do; `name_engine` adds those that users register."""

ELSEWHERE = "registered elsewhere"


def name_engine(name: str, meaning: str) -> None:
    """Let an engine be asked for by name. Raises GpdslError for a name that `infer` lines cannot have."""
    if not isinstance(name, str) or name in {*OWN, "auto"} or not name.isidentifier():
        others = ", ".join(OWN)
        raise GpdslError(
            f"engine {quoted(name)}: expected a name of letters, digits and _ other than {others} and auto"
        )
    if not isinstance(meaning, str):
        raise GpdslError(f"engine {name}: expected its meaning as a text, not {quoted(meaning)}")
    _engines[name] = meaning


@contextmanager
def engines_known(names: Iterable[object]) -> Iterator[None]:
    """Inside, names of engines that this process has not registered are known: those that another one has fitted by."""
    new = [each for each in names if isinstance(each, str) and each.isidentifier() and each not in _engines]
    _engines.update(dict.fromkeys(new, ELSEWHERE))
    try:
        yield
    finally:
        for each in new:
            if _engines.get(each) is ELSEWHERE:
                del _engines[each]
