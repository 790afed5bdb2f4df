"""Saving and loading fits: one safetensors file, arrays and a JSON header; nothing in it is ever executed.

A checksum of all of it stands beside the header, so that a damaged file is told at once. It is no signature: a file
edited by hand can be given another one, and is then looked through by `results.verification`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gpdsl.data.bound import Standardised
from gpdsl.errors import GpdslError, need
from gpdsl.forward import ForwardModel, resolve
from gpdsl.inference.inducing.featured import registered_features
from gpdsl.inference.infer import trained
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.posteriors.posterior import arrays_of as posterior_arrays
from gpdsl.kernels.functionals import Functionals, from_outline, outline
from gpdsl.language import check, parse
from gpdsl.language.calls import Named, Parameters, answering, path_of
from gpdsl.language.model import Declarations
from gpdsl.language.options import engines_known
from gpdsl.language.syntax import SyntaxTree
from gpdsl.language.used import refuse_streams
from gpdsl.program.program import make_program
from gpdsl.program.white import predicting
from gpdsl.replacing import written
from gpdsl.results import verification
from gpdsl.results.criticism.finding import Inspected, Inspection
from gpdsl.results.fit import Fit
from gpdsl.results.settings import Settings

FORMAT = 5
SCALARS = ("jitter", "elbo", "elbo_se", "message", "rows", "seconds", "compile_seconds", "interrupted", "inducing_loss")

TROUBLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""What reading may end in where a file says something that nothing has been written to expect."""


def save_fit(fit: Fit, path: Path) -> None:
    """Write `fit` to `path`; whatever interrupts that leaves the old file whole. Raises GpdslError."""
    header, arrays = json.dumps(header_of(fit)), arrays_of(fit)
    blob = save(arrays, {"gpdsl": header, "sha256": checksum(header, arrays)})
    with written(path, "wb", f"cannot write the fit to {path}") as file:
        file.write(blob)


def header_of(fit: Fit) -> dict[str, Any]:
    """What a file says beside the arrays, in plain values."""
    program, source = fit.program, fit.program.declarations.source
    fit.inspected.of(fit)  # where nobody has asked for it yet
    kept = {
        "format": FORMAT,
        "model": source.text,
        "name": source.name,
        **({"used": [[each.line, each.name] for each in source.parts]} if source.parts else {}),
        **({"registered": dict(program.registered)} if program.registered else {}),
        **({"features": features} if (features := _registered(fit.choice)) else {}),
        **({"averaged": fit.settings.about} if fit.settings is not None else {}),
        **({"standardised": sorted(fit.standardised.sds)} if fit.standardised.sds else {}),
        "sizes": fit.program.sizes,
        "elements": verification.elements_of(program.declarations, program.sizes),
        "methods": sorted(program.methods),
        "levels": program.levels,
        "columns": fit.columns,
        "renamed": sorted(fit.columns),
        "inducing": [outline(functionals) for functionals in fit.inducing],
        "options": dataclasses.asdict(fit.options),
        "choice": {name: value for name, value in dataclasses.asdict(fit.choice).items() if name != "own" or value},
        "usage": dataclasses.asdict(fit.usage),
        "notes": fit.notes,
        "digests": fit.digests,
        "inducing_loss_bounds": fit.inducing_loss_bounds,
        **({"inspection": fit.inspected.known.plain()} if fit.inspected.known is not None else {}),
        **({"calendar": dataclasses.asdict(fit.calendar)} if fit.calendar is not None else {}),
        **{name: getattr(fit, name) for name in SCALARS},
    }
    return {name: _jsonable(value) for name, value in kept.items()}


def _registered(choice: Choice) -> dict[str, str]:
    """The registered inducing features of a fit, and what they were."""
    return {name: said for each in choice.families for name, said in registered_features(each).items()}


def arrays_of(fit: Fit) -> dict[str, np.ndarray]:
    """The numbers of a fit, by the names they have in a file."""
    arrays = {f"parameter.{n}": np.asarray(v, float) for n, v in fit.parameters.items()}
    for i, functionals in enumerate(fit.inducing):
        leaves = jax.tree.leaves(functionals)
        arrays |= {f"inducing.{i}.{j}": np.asarray(points) for j, points in enumerate(leaves)}
    arrays |= posterior_arrays(fit.posterior, fit.held)
    arrays |= {"weights": np.asarray(fit.weights), "history": np.asarray(fit.history)}
    arrays |= fit.standardised.arrays()
    arrays |= {} if fit.settings is None else fit.settings.arrays()
    return {name: np.asarray(values, order="C") for name, values in arrays.items()}


def checksum(header: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a header and of names, types, shapes and bytes of the arrays."""
    found = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        values = arrays[name]
        found.update(f"\n{name} {values.dtype.str} {values.shape}\n".encode())
        found.update(values.tobytes())
    return found.hexdigest()


@answering
def load_fit(path: str | Path, externals: Mapping[str, Any] | None = None) -> Fit:
    """Read a fit written by `Fit.save`. Opaque functions it needs are looked up in `externals`, then in the registry.

    Raises GpdslError for a file that is absent, damaged, of another format, or that says what no fit says.
    """
    path = path_of(path, "load_fit")
    try:
        refuse_streams(path)
        path.open("rb").close()  # which says why it cannot: `safe_open` calls missing what it may not read
        with safe_open(path, framework="numpy") as handle:
            said = handle.metadata() or {}
            header = json.loads(said["gpdsl"])
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise GpdslError(f"{path}: no such file") from error
    except (OSError, SafetensorError, *TROUBLE) as error:
        if isinstance(error, OSError) and error.strerror:
            raise GpdslError(f"{path}: {error.strerror}") from error
        if path.suffix == ".gpm":
            raise GpdslError(f"{path} is a model, not a fit: fit it to data first, and save that") from error
        raise GpdslError(f"{path} is not a fit saved by gpdsl, or is damaged ({type(error).__name__})") from error
    if not isinstance(header, dict) or type(header.get("format")) is not int or header["format"] != FORMAT:
        known = header.get("format") if isinstance(header, dict) else None
        raise GpdslError(f"{path}: this version reads format {FORMAT} of saved fits, not {str(known)[:20]}")
    with _damage_of(path):
        need(said == {"gpdsl": said["gpdsl"], "sha256": checksum(said["gpdsl"], arrays)}, "its checksum is another one")
        verification.check_header(header)
        verification.check_arrays(arrays)
        tree, engines = _read_model(header)
    verification.check_registered(path, header)
    with engines_known(engines), _damage_of(path):
        declarations = check(tree)
        verification.check_sizes(declarations, header)
    found = resolve(declarations, externals)
    with engines_known(engines), _damage_of(path):
        fit = _rebuild(header, arrays, declarations, found)
        verification.check_same(header, header_of(fit))
        verification.check_same(arrays, arrays_of(fit))
        verification.check_fit(fit)
    return fit


def restored(header: str, arrays: Mapping[str, np.ndarray], externals: Mapping[str, Any]) -> Fit:
    """The fit that `Fit.__reduce__` has taken apart."""
    said = json.loads(header)
    tree, engines = _read_model(said)
    with engines_known(engines):
        declarations = check(tree)
        return _rebuild(said, arrays, declarations, resolve(declarations, externals))


def _read_model(header: Mapping[str, Any]) -> tuple[SyntaxTree, list[str]]:
    """The model of a fit, and the engines that it names: predictions need none of them."""
    tree = parse(verification.read_source(header))
    return tree, [header["options"]["engine"], *tree.engines]


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside is a GpdslError about this file."""
    try:
        yield
    except (GpdslError, *TROUBLE) as error:
        kind = "" if isinstance(error, (GpdslError, ValueError)) else f"{type(error).__name__}: "
        raise GpdslError(f"{path} is damaged: {kind}{str(error)[:500]}") from error


def _rebuild(
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    declarations: Declarations,
    externals: Mapping[str, ForwardModel],
) -> Fit:
    options, choice = verification.read_options(header["options"]), verification.read_choice(header["choice"])
    program = make_program(
        declarations,
        header["sizes"],
        {k: tuple(v) for k, v in header["levels"].items()},
        externals,
        expectations=options.expectations,
        gradients=options.gradients,
        control=options.control_variate,
        fixed=options.fixed,
        initial=options.init,
        inducing=options.inducing,
    )
    verification.check_own(program, options, choice)
    inducing = tuple(_inducing(shape, i, arrays) for i, shape in enumerate(header["inducing"]))
    parameters = Parameters((n, arrays[f"parameter.{n}"]) for n in declarations.params)
    said, shapes = header.get("inspection"), {n: np.shape(value) for n, value in parameters.items()}
    fit = Fit(
        program=trained(program, choice, predicting),
        options=options,
        choice=choice,
        parameters=parameters,
        inspected=Inspected(known=None if said is None else Inspection.of_plain(said, shapes)),
        inducing=inducing,
        posterior=(),
        weights=arrays["weights"],
        history=arrays["history"],
        columns=Named(header["columns"]),
        usage=verification.read_usage(header["usage"]),
        notes=tuple(header["notes"]),
        digests=header["digests"],
        calendar=verification.read_calendar(declarations, header.get("calendar")),
        standardised=Standardised.from_arrays(arrays),
        inducing_loss_bounds=verification.read_bounds(header["inducing_loss_bounds"]),
        **{name: header[name] for name in SCALARS},
    )
    stored = partial(fit.at_rows.stored, rows=fit.rows, options=options)
    posterior, held = stored(arrays)
    settings = Settings.from_arrays(arrays, list(parameters), str(header.get("averaged", "")), stored)
    return replace(fit, posterior=posterior, held=held, settings=settings)


def _inducing(shape: list, group: int, arrays: Mapping[str, np.ndarray]) -> Functionals:
    return from_outline(shape, (arrays[f"inducing.{group}.{j}"] for j in itertools.count()))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
