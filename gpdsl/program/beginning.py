"""What must be chosen before JAX starts its CPU backend, so that fits do not stop for ever on machines with few cores.

Dispatching CPU programs to a thread of their own must be off: on two busy cores a regression network stops in four
fits of five, with every thread idle and its result never announced, and never without. Calls from JAX code of the user
then return when they are finished, and give the same answers.

Programs that are not compiled by gpdsl, such as single operations outside a compiled function, keep XLA's concurrent
scheduler, whose threads wait for each other when there are no more of them than tasks that wait: with two threads a
batch of small factorisations stopped for ever in three runs of ten, with eight in none of eight. So the backend gets
eight threads at least, unless PJRT_NPROC says how many.

Importing gpdsl chooses both where JAX has been imported and has not begun, and the threads where it is yet to be
imported; the rest is chosen where gpdsl first needs JAX. Whoever computes with JAX before that is warned. On two cores
and with nothing chosen, fits of the digits of `make gpu-check` stopped in two runs of two; with the threads alone they
ended in four of four, and so did four of a regression network.
"""

from __future__ import annotations

import os
import sys
import warnings

from gpdsl.errors import GpdslWarning

FEWEST_THREADS = 8
"""Threads of the CPU backend: more than tasks that wait for each other."""

ASYNCHRONOUS = "jax_cpu_enable_async_dispatch"


forked = False
"""Whether this process was forked from one in which JAX had begun: there it may wait for ever."""


def _note_fork() -> None:
    """In the child of a fork: JAX's threads are not there, and what they held is locked for ever."""
    global forked
    forked = _begun()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def _begun() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def before_jax_begins() -> None:
    """Choose what can be chosen now. Loads no JAX."""
    jax, begun = sys.modules.get("jax"), _begun()
    if not begun:
        os.environ.setdefault("PJRT_NPROC", str(max(FEWEST_THREADS, os.cpu_count() or 1)))
    if jax is None:
        return
    few = (os.cpu_count() or 1) < FEWEST_THREADS
    if begun and few and jax.config.values.get(ASYNCHRONOUS, False) and jax.default_backend() == "cpu":
        warnings.warn(
            "JAX has computed before gpdsl could tell it how: on a machine with so few cores a fit may stop for ever; "
            "import gpdsl after jax, and before the first computation",
            GpdslWarning,
            stacklevel=3,
        )
    jax.config.update(ASYNCHRONOUS, False)  # where JAX has begun, only so that nobody is warned twice
