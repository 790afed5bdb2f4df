"""Opaque functions: registered by name, resolved for a model, called with batches and checked.

In comes a Python function; out comes a `ForwardModel` that `call` evaluates on arrays [rows, *dims].
"""

from __future__ import annotations

from gpdsl.forward.call import call
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.registry import ForwardModel, register_forward_model, register_likelihood, resolve

__all__ = [
    "ForwardModel",
    "ForwardModelError",
    "call",
    "register_forward_model",
    "register_likelihood",
    "resolve",
]
