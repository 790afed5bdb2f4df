"""Fuzzing: whatever the text, the answer is a model or a GpdslError, within two seconds.

A few hundred inputs in the fast tests; 100,000 and more in the slow ones: byte-mutated zoo files, random statements of
the grammar, and random models that make sense. What compiles is also formatted, typeset, described and drawn.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from gpdsl.errors import GpdslError
from gpdsl.language import ModelError, compile_text
from gpdsl.language.formatter import format_text
from gpdsl.language.model import Declarations
from gpdsl.model import Model

from . import examples, generator

ROOT = Path(__file__).resolve().parents[2]
ZOO = {path.stem: path.read_text() for path in sorted((ROOT / "models").glob("*.gpm"))} | examples.ALL

SECONDS = 2.0
HUNG = 60.0
"""Seconds of the processor that one input may take, and of the wall: a wait without work is caught too."""


class TooSlow(BaseException):
    """No Exception, so that nothing on the way catches it."""


@contextmanager
def limited(text: str) -> Iterator[None]:
    """Stop what takes longer than an input may."""
    late: list[TooSlow] = []

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        late.append(TooSlow(repr(text[:2000])))
        raise late[0]

    alarms = {signal.ITIMER_PROF: (signal.SIGPROF, SECONDS), signal.ITIMER_REAL: (signal.SIGALRM, HUNG)}
    before = {which: signal.signal(which, stop) for which, _ in alarms.values()}
    try:
        for timer, (_, seconds) in alarms.items():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for timer in alarms:
            signal.setitimer(timer, 0)
        for which, handler in before.items():
            signal.signal(which, handler)
    if late:  # it was dropped where it came, as a callback of the garbage collector drops exceptions
        raise late[0]


@pytest.fixture(autouse=True, scope="module")
def _everything_is_loaded() -> None:
    """The limit is for an input, not for what the first one of a process imports."""
    assert derived(ZOO["gprn"]) is not None


def survives(text: str) -> Declarations | None:
    """What `derived` says of a text, in no more time than an input may take."""
    with limited(text):
        return derived(text)


def test_the_limit_holds_where_exceptions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.01)
    monkeypatch.setattr(sys.modules[__name__], "HUNG", 1.0)

    class Slow:
        def __del__(self) -> None:
            while True:
                pass

    monkeypatch.setattr(sys, "unraisablehook", lambda what: None)
    with pytest.raises(TooSlow), limited("slow"):
        Slow()


def derived(text: str) -> Declarations | None:
    """Compile a text, and everything that is derived from the text alone; None when it was refused, as it should be."""
    try:
        declarations = compile_text(text)
    except ModelError as error:
        inside(text, error)
        return None
    compile_text(format_text(text))
    # These may find, while they write sums out, that the model is too large.
    for derive in (Model.latex, Model.info, Model.graph):
        try:
            derive(Model(declarations))
        except GpdslError as error:
            assert str(error)
    return declarations


def inside(text: str, error: ModelError) -> None:
    """Every mistake has its place in the text, and a message."""
    lines = text.removeprefix("\ufeff").split("\n")
    assert error.diagnostics and str(error)
    for each in error.diagnostics:
        assert 1 <= each.span.line <= len(lines)
        assert 1 <= each.span.column <= len(lines[each.span.line - 1]) + 1
        assert each.code and each.message_text()


def mutated(chance: random.Random) -> str:
    """A model with a few bytes changed, lines moved, words of another model put in, or pieces repeated."""
    data = bytearray(ZOO[chance.choice(sorted(ZOO))].encode())
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(8):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[place : place + chance.choice((1, 1, 3, 20))]
            case 2:
                data[place:place] = chance.choice(PIECES).encode("utf-8", "surrogatepass")
            case 3:
                other = ZOO[chance.choice(sorted(ZOO))].encode()
                start = chance.randrange(len(other))
                data[place:place] = other[start : start + chance.choice((5, 20, 80))]
            case 4:
                end = place + chance.choice((2, 10, 50))
                data[place:place] = bytes(data[place:end]) * chance.choice((1, 2, 30))
            case 5:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                data = bytearray(b"\n".join(lines))
            case 6:
                words = data.split(b" ")
                first, second = chance.randrange(len(words)), chance.randrange(len(words))
                words[first], words[second] = words[second], words[first]
                data = bytearray(b" ".join(words))
            case 7:
                lines = data.split(b"\n")
                lines.insert(chance.randrange(len(lines)), lines[chance.randrange(len(lines))])
                data = bytearray(b"\n".join(lines))
    return data.decode("utf-8", errors="replace" if chance.random() < 0.5 else "surrogateescape")


PIECES = (
    *("(", ")", "[", "]", "{", "}", '"', "#", "\n", "\r", "\t", "\0", "\x1b[31m", "\ufeff", "\u202e", "\u2028", "\xa0"),
    *("𝐟", "ｆ", "f\u0301", "ſ", "а", "٣", "²", "½", "\ud800", "𓀀", "−", "∼", "١..٤", "1e999", "1e-999", "0x10", "1_0"),
    *("9^9^9^9", "index p in 1..1000000000", "x[1..999999999]", "x[-1]", "[0]", "^ -2", "^0.5", "1/0", "log(-1)"),
    *("sum(p, ", "prod(x)", "if ", " then ", " else ", " and not ", "D(f, x)", "f(x)", "f(f)", " @ ", "~", "..", ";"),
    *(
        "real(lower = 9, upper = 1)",
        "simplex[0]",
        "ordered",
        "fixed fixed",
        "row r ~ ",
        "function ",
        "kernel ",
        "density ",
    ),
    *("let f = f\n", "latent f(f) ~ GP(f, f)\n", "param x : real = x\n", "y ~ y\n", "infer vi: a = b\n", "external "),
)

FEW = 300
ALARM = settings(
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def fuzz(strategy: st.SearchStrategy[str], count: int) -> dict[str, bool]:
    """Run a property over so many random texts: those that it was run on, and whether they were accepted."""
    accepted = {}

    @settings(ALARM, max_examples=count)
    @given(strategy)
    def run(text: str) -> None:
        accepted[text] = survives(text) is not None

    run()
    return accepted


def many(few: int, count: int) -> Callable:
    """A few examples, and many in the slow target."""
    return pytest.mark.parametrize("count", [few, pytest.param(count, marks=pytest.mark.slow)])


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10))])
def test_mutated_models(seed: int) -> None:
    chance = random.Random(seed)
    accepted = 0
    for _ in range(FEW if seed == 0 else 10_000):
        accepted += survives(mutated(chance)) is not None
    # Some mutations fall into comments, or change a number: fuzzing that nothing survives tests only the parser.
    assert accepted > 0


@many(25, 4_000)
def test_random_statements(count: int) -> None:
    assert len(fuzz(generator.texts(), count)) > count // 2


@many(25, 4_000)
def test_random_statements_after_a_model(count: int) -> None:
    assert len(fuzz(generator.texts(3).map(lambda text: examples.REGRESSION + text), count)) > count // 2


@many(50, 6_000)
def test_random_models_that_make_sense(count: int) -> None:
    accepted = fuzz(generator.models(), count)
    assert len(accepted) > count // 2
    assert sum(accepted.values()) > len(accepted) // 4
