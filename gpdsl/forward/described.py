"""How opaque functions are called, in words, for `explain`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpdsl.forward.backend import Job
from gpdsl.forward.backends import Here
from gpdsl.forward.policy import Policy
from gpdsl.forward.registry import ForwardModel


def explain_externals(models: Iterable[ForwardModel]) -> list[str]:
    """Lines of a plan: a line for each function; nothing when there is none."""
    lines = [f"  {model.name}: {described(model)}" for model in models]
    return ["", "opaque functions", *lines] if lines else []


def described(model: ForwardModel) -> str:
    """Where a function runs and how, what happens when it fails, and what spares calls of it."""
    rows = "all rows at once" if model.vectorized else "a row at a time"
    parts = [f"{rows}, {model.backend.place}", _time(model), _failures(model.failures)]
    if model.gradient is not None:
        parts.append("with a gradient")
    if model.cache is not None:
        parts.append(f"values kept in {model.cache}")
    return "; ".join(parts)


def _time(model: ForwardModel) -> str:
    if model.timeout is None and isinstance(model.backend, Here) or model.timeout == math.inf:
        return "no time-out"
    job = Job(model.name, model.function, model.vectorized, model.timeout)
    return f"at most {job.patience:g} s a call"


def _failures(policy: Policy) -> str:
    last = "penalised" if policy.penalises else "an error"
    if not policy.attempts:
        return f"a failure is {last}"
    return f"a failure is tried again {policy.attempts} time{'s' * (policy.attempts > 1)}, then {last}"
