"""Interrupts of a fit wait until a step has ended: Ctrl-C and SIGTERM end a fit with the best state so far.

An exception that is raised wherever a signal arrives may be lost: JAX drops it where it comes while a program is traced
or compiled, and a compiled call that it ends may have used up the memory of the state. So a fit only notes the signal
and honours it between steps and between searches, where its state is whole. A second signal is not waited with.

Modules are loaded in the same way, because a signal may end the process with a crash, or be lost, while JAX is loaded.
The command line is under one watch from its first line on, and waits in these two cases only.
"""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any

SIGNALS: dict[signal.Signals, tuple[Any, ...]] = {
    signal.SIGINT: (signal.default_int_handler,),
    signal.SIGTERM: (signal.SIG_DFL, signal.default_int_handler),
}
"""What is waited with, and the handlers it is taken over from: who has chosen another one keeps that."""

SOON = 0.01
"""Seconds after which an interrupt comes again that was raised where no exception can go on."""

NOTED = b"\ninterrupted: the fit ends after this step with the best state so far; once more ends it at once\n"


@dataclass(eq=False)
class Watch:
    """Whether the user has asked what is under way to stop."""

    asked: bool = False
    number: int = signal.SIGINT
    waits: int = 0
    """How many of those under way honour a signal themselves."""
    loads: int = 0
    """How many of them load modules: they end soon, and have no state."""

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal has come. Raises KeyboardInterrupt where it is not the first, or nobody will look for it."""
        first, self.asked, self.number = not self.asked, True, number
        if not first or not self.waits:
            raise KeyboardInterrupt
        with suppress(OSError):
            if not self.loads and os.isatty(2):
                os.write(2, NOTED)  # a stream may be in the middle of something

    def lost(self, what: Any, usual: Callable[[Any], object]) -> None:
        """An exception was raised where it cannot go on: in a finaliser, or in what JAX does at each collection."""
        if not issubclass(what.exc_type, KeyboardInterrupt):
            usual(what)
            return
        again = threading.Timer(SOON, _send, (self.number,))
        again.daemon = True
        again.start()


def _send(number: int) -> None:
    """Have a signal come to the main thread, and end what that waits for where the system can."""
    main = threading.main_thread().ident
    if os.name == "posix" and main is not None:
        signal.pthread_kill(main, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


_UNDER_WAY: ContextVar[Watch | None] = ContextVar("gpdsl_watch", default=None)


@contextmanager
def loading() -> Iterator[None]:
    """Wait with signals while modules are loaded. Raises KeyboardInterrupt afterwards where one has come.

    Nor is garbage looked for: next to all that is made is kept, and to look through it again and again is a fifth of
    the time.
    """
    with watching() as watch:
        asked, collects = watch.asked, gc.isenabled()
        watch.loads += 1
        gc.disable()
        try:
            yield
        finally:
            watch.loads -= 1
            if collects:
                gc.enable()
        if watch.asked and not asked:  # who was asked before looks for it himself
            raise KeyboardInterrupt


@contextmanager
def watching(waits: bool = True) -> Iterator[Watch]:
    """Take the signals over, and wait with them while a fit goes on: KeyboardInterrupt, wherever nobody `waits`.

    A fit inside another one is under the same watch. Only the main thread gets signals: in another nothing is asked.
    """
    outer = _UNDER_WAY.get()
    watch = outer or Watch()
    before, hook, token = {}, sys.unraisablehook, _UNDER_WAY.set(watch)
    watch.waits += waits
    try:
        if outer is None and threading.current_thread() is threading.main_thread():
            sys.unraisablehook = lambda what: watch.lost(what, hook)
            for number, replaced in SIGNALS.items():
                if signal.getsignal(number) in replaced:
                    before[number] = signal.signal(number, watch.note)
        yield watch
    finally:
        watch.waits -= waits
        for number, handler in before.items():
            signal.signal(number, handler)
        if outer is None:
            sys.unraisablehook = hook
        _UNDER_WAY.reset(token)


def honour_interrupts() -> None:
    """Raise KeyboardInterrupt where the user has asked the fit under way to stop, again and again."""
    watch = _UNDER_WAY.get()
    if watch is not None and watch.asked:
        raise KeyboardInterrupt


def exit_code() -> int:
    """What a process that was asked to stop returns: 130 after Ctrl-C, 143 after SIGTERM."""
    watch = _UNDER_WAY.get()
    return 128 + (signal.SIGINT if watch is None else watch.number)
