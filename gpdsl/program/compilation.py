"""Compiling with XLA: one place, because one of its CPU defaults must be turned off.

With the concurrency-optimised scheduler, programs with loops around factorisations stop for ever on machines with few
cores: every worker thread waits for work that none is given. Seen with jaxlib 0.10 on two cores: a softmax model in the
natural-gradient loop hangs every time with it and never with the scheduler for memory, which executes in sequence. Each
matrix product still uses all cores.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax

from gpdsl.program.beginning import before_jax_begins
from gpdsl.program.cache import keep_compiled_programs, says_no

SEQUENTIAL: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"),
    ("xla_cpu_enable_concurrency_optimized_scheduler", False),
)
"""What turns it off, by the name newer and older versions of XLA know it under."""

QUICK: tuple[tuple[str, Any], ...] = (("xla_cpu_use_fusion_emitters", False), ("xla_backend_optimization_level", 1))
"""What makes compilation quick: one compiler behind XLA instead of two, without its most expensive passes.

Measured with jaxlib 0.10: a minibatch program of a softmax of ten latents compiles in 2.1 s instead of 9.4 s, that of
a regression in 2.7 s instead of 4.6 s, and these programs are no slower. Nor are exponentials, reductions and
transposes on their own; in single precision powers (eight times) and normal draws (1.4 times) are.
"""

UNFUSED = "xla_cpu_use_fusion_emitters"
"""The quick compiler's loops around exponentials of large matrices take three times as long as the other's (2000 x 2000
covariances on one core, jaxlib 0.10: 0.032 s and 0.010 s)."""

LEAST: tuple[tuple[str, Any], ...] = (("xla_backend_optimization_level", 0),)
"""For programs that work little: they compile in less than half the time.

Run time grows by a third where factorisations and products lead, and by five times where samples of many latents do.
"""

PRODUCTS: tuple[tuple[str, Any], ...] = (
    ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
)
"""The library for matrix products gets these alone: its sums over a leading axis take twenty times as long as XLA's."""

ALL_BRIEF = "GPDSL_BRIEF"
"""The environment variable that asks for programs that compile quickly, however long they run."""

before_jax_begins()
keep_compiled_programs()


def jit(function: Callable[..., Any], *, given: tuple[int, ...] = (), brief: bool = False, fused: bool = False) -> Any:
    """`jax.jit` with the compiler options this project needs on the backend in use.

    The memory of the arguments in the places `given` becomes the function's, for its results: they are lost. What is
    `brief` works so little that compiling it well takes longer; what is `fused` works on large matrices element by
    element.
    """
    options = _cpu_options() if jax.default_backend() == "cpu" else None
    if options and fused:
        options = {name: value for name, value in options.items() if name != UNFUSED}
    if options and (brief or not says_no(os.environ.get(ALL_BRIEF, ""))):
        options = {**options, **{name: value for name, value in LEAST if name in options}}
    return jax.jit(function, compiler_options=options, donate_argnums=given)


@functools.cache
def _cpu_options() -> dict[str, Any]:
    """Those of the options that this version of XLA knows: all but one as a rule, and one after the other otherwise."""
    wanted = (SEQUENTIAL[0], *QUICK, *PRODUCTS)
    if _known(dict(wanted)):
        return dict(wanted)
    return {name: value for name, value in (*SEQUENTIAL, *QUICK, *PRODUCTS) if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda x: x + 1, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
