"""Saving and loading fits: one safetensors file, arrays and a JSON header; nothing in it is ever executed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gpdsl.errors import GpdslError
from gpdsl.forward import Usage, resolve
from gpdsl.inference.exact.posterior import Regression
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.plan.weights import WeightChoice
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.quadruply_stochastic.posterior import WeightSpace
from gpdsl.kernels.functionals import Functionals, from_outline, outline
from gpdsl.language import compile_text
from gpdsl.program.program import make_program
from gpdsl.results.fit import Fit

FORMAT = 2
SCALARS = ("jitter", "elbo", "elbo_se", "message", "rows", "seconds", "compile_seconds", "interrupted")


def save_fit(fit: Fit, path: Path) -> None:
    """Write `fit` to `path`, by way of a temporary file beside it so that an interruption leaves the old file whole."""
    arrays = {f"parameter.{n}": np.asarray(v, float) for n, v in fit.parameters.items()}
    for i, functionals in enumerate(fit.inducing):
        leaves = jax.tree.leaves(functionals)
        arrays |= {f"inducing.{i}.{j}": np.asarray(points) for j, points in enumerate(leaves)}
    arrays |= {f"mean.{i}": np.asarray(q.mean) for i, q in enumerate(fit.posterior)}
    arrays |= {f"root.{i}": np.asarray(q.root) for i, q in enumerate(fit.posterior)}
    arrays |= {"weights": np.asarray(fit.weights), "history": np.asarray(fit.history)}
    if fit.weight_space is not None:
        arrays |= fit.weight_space.arrays()
    if fit.regression is not None:
        arrays |= fit.regression.arrays()
    source = fit.program.declarations.source
    header = {
        "format": FORMAT,
        "model": source.text,
        "name": source.name,
        "sizes": dict(fit.program.sizes),
        "levels": {k: list(v) for k, v in fit.program.levels.items()},
        "columns": dict(fit.columns),
        "inducing": [outline(functionals) for functionals in fit.inducing],
        "options": _jsonable(dataclasses.asdict(fit.options)),
        "choice": _jsonable(dataclasses.asdict(fit.choice)),
        "usage": dataclasses.asdict(fit.usage),
        "notes": list(fit.notes),
        **{name: getattr(fit, name) for name in (*SCALARS, "inducing_loss")},
    }
    blob = save({n: np.asarray(a, order="C") for n, a in arrays.items()}, {"gpdsl": json.dumps(header)})
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as handle:
            handle.write(blob)
        os.replace(handle.name, path)
    except OSError as error:
        raise GpdslError(f"cannot write the fit to {path}: {error.strerror}") from error


def load_fit(path: str | Path, externals: Mapping[str, Any] | None = None) -> Fit:
    """Read a fit written by `Fit.save`. Opaque functions it needs are looked up in `externals`, then in the registry.

    Raises GpdslError for a file that is absent, damaged or of another format.
    """
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as handle:
            header = json.loads((handle.metadata() or {})["gpdsl"])
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise GpdslError(f"{path} is not a fit saved by gpdsl, or is damaged ({type(error).__name__})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise GpdslError(f"{path}: this version reads format {FORMAT} of saved fits, not {header.get('format')!r}")
    try:
        return _rebuild(header, arrays, externals)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise GpdslError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _rebuild(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], externals: Mapping[str, Any] | None) -> Fit:
    declarations = compile_text(header["model"], name=header["name"])
    options = Options(**{**header["options"], "fixed": tuple(header["options"]["fixed"])})
    program = make_program(
        declarations,
        header["sizes"],
        {k: tuple(v) for k, v in header["levels"].items()},
        resolve(declarations, externals),
        expectations=options.expectations,
        gradients=options.gradients,
        control=options.control_variate,
        fixed=options.fixed,
        initial=options.init,
    )
    choice = _choice(header["choice"])
    groups = range(len(header["inducing"]))
    regression = Regression.from_arrays(arrays)
    whitened = () if regression is not None else groups
    inducing = tuple(_inducing(header["inducing"][i], i, arrays) for i in groups)
    if regression is not None:
        regression.check(program, inducing, header["rows"])
    return Fit(
        program=program.under(choice.posterior),
        options=options,
        choice=choice,
        parameters={n: arrays[f"parameter.{n}"] for n in declarations.params},
        inducing=inducing,
        posterior=tuple(Whitened(arrays[f"mean.{i}"], arrays[f"root.{i}"]) for i in whitened),
        weights=arrays["weights"],
        history=arrays["history"],
        columns=header["columns"],
        usage=Usage(**header.get("usage", {})),
        weight_space=WeightSpace.from_arrays(arrays, options.basis, options.seed),
        regression=regression,
        notes=tuple(header.get("notes", ())),
        **{name: header[name] for name in SCALARS},
        inducing_loss=header.get("inducing_loss"),  # older files have none
    )


def _choice(kept: Mapping[str, Any]) -> Choice:
    weights = kept.get("weights")
    given = {"weights": None if weights is None else WeightChoice(**weights), "exact": tuple(kept.get("exact", ()))}
    return Choice(**{**kept, **given})


def _inducing(shape: list, group: int, arrays: Mapping[str, np.ndarray]) -> Functionals:
    return from_outline(shape, (arrays[f"inducing.{group}.{j}"] for j in itertools.count()))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
