"""Opaque functions: registered by name, resolved for a model, called with batches and checked.

In comes a Python function, with how and where it runs; out comes a `ForwardModel` that `call` evaluates on arrays
[rows, *dims].
"""

from __future__ import annotations

from gpdsl.forward.accounting import Accounting, Usage, fitting, stopping_fit
from gpdsl.forward.call import call, evaluate, stand_ins
from gpdsl.forward.errors import ForwardModelError
from gpdsl.forward.registry import (
    ForwardModel,
    Policy,
    opaque,
    register_forward_model,
    register_likelihood,
    resolve,
    retry,
    unregistered,
)
from gpdsl.forward.umbridge_client import umbridge
