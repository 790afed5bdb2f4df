"""gpdsl: write a Gaussian-process model the way it stands in a paper; get its posterior.

The public interface; names load what they need on first use, so that checking a model does not load JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.inference.watch import loading
from gpdsl.program.beginning import before_jax_begins

if TYPE_CHECKING:
    from gpdsl.calibration.calibration import Calibration
    from gpdsl.calibration.sbc import sbc
    from gpdsl.distributions import register_distribution
    from gpdsl.forward import ForwardModelError, opaque, register_forward_model, register_likelihood, retry, umbridge
    from gpdsl.inference.inducing.featured import register_inducing
    from gpdsl.inference.infer import register_engine
    from gpdsl.language import ModelError, format_text
    from gpdsl.model import Model, compile, load, zoo, zoo_names, zoo_text
    from gpdsl.program.tracing import register_kernel
    from gpdsl.results import score
    from gpdsl.results.criticism.checks import compare
    from gpdsl.results.fit import Fit
    from gpdsl.results.persistence import load_fit
    from gpdsl.results.prediction import Prediction

__version__ = "0.1.0"

before_jax_begins()

_HOMES = {
    "Model": "gpdsl.model",
    "compile": "gpdsl.model",
    "load": "gpdsl.model",
    "zoo": "gpdsl.model",
    "zoo_names": "gpdsl.model",
    "zoo_text": "gpdsl.model",
    "ModelError": "gpdsl.language",
    "format_text": "gpdsl.language",
    "ForwardModelError": "gpdsl.forward",
    "opaque": "gpdsl.forward",
    "retry": "gpdsl.forward",
    "umbridge": "gpdsl.forward",
    "register_distribution": "gpdsl.distributions",
    "register_engine": "gpdsl.inference.infer",
    "register_forward_model": "gpdsl.forward",
    "register_inducing": "gpdsl.inference.inducing.featured",
    "register_kernel": "gpdsl.program.tracing",
    "register_likelihood": "gpdsl.forward",
    "Fit": "gpdsl.results.fit",
    "compare": "gpdsl.results.criticism.checks",
    "Prediction": "gpdsl.results.prediction",
    "load_fit": "gpdsl.results.persistence",
    "Calibration": "gpdsl.calibration.calibration",
    "sbc": "gpdsl.calibration.sbc",
    "load_ipython_extension": "gpdsl.notebook",
}
_MODULES = {"score": "gpdsl.results.score", "sklearn": "gpdsl.sklearn"}

__all__ = [
    "Calibration",
    "Fit",
    "ForwardModelError",
    "GpdslError",
    "GpdslWarning",
    "Model",
    "ModelError",
    "Prediction",
    "compare",
    "compile",
    "format_text",
    "load",
    "load_fit",
    "opaque",
    "register_distribution",
    "register_engine",
    "register_forward_model",
    "register_inducing",
    "register_kernel",
    "register_likelihood",
    "retry",
    "sbc",
    "score",
    "umbridge",
    "zoo",
    "zoo_names",
    "zoo_text",
]


def __getattr__(name: str) -> Any:
    home = _MODULES.get(name) or _HOMES.get(name)
    if home is not None:
        with loading():
            found = import_module(home)
        globals()[name] = found if name in _MODULES else getattr(found, name)  # looked up once
        return globals()[name]
    if name.startswith("_"):  # as many look for
        raise AttributeError(f"module 'gpdsl' has no attribute {name!r}")
    from gpdsl.language.calls import no_such_function

    raise no_such_function(name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
