"""What an inference hands to whoever keeps its best state while it goes on."""

from __future__ import annotations

from collections.abc import Callable

from gpdsl.inference.monitor import Monitor
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.problem import Result

Keep = Callable[[Choice, float, Monitor, Callable[[], Result], bool], None]
"""Takes the decisions, the jitter, the history, how to get at the best state, and whether a search has ended there."""
