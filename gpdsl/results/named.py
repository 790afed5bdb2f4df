"""What the names of a model stand for: arrays [..., rows, *axes] put together from expressions and statements."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from gpdsl.data.memory import free_memory
from gpdsl.errors import GpdslError, quoted
from gpdsl.language.options import check_option
from gpdsl.results.ancestral import put_together
from gpdsl.results.chunks import over_elements
from gpdsl.results.expectation import Beliefs
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref, axis_key


def names_of(beliefs: Beliefs) -> tuple[str, ...]:
    """Names that can be asked for."""
    d = beliefs.program.declarations
    return (*d.latents, *d.rows, *d.lets, *d.outputs)


def is_output(beliefs: Beliefs, name: str) -> bool:
    """Whether a name is an output and no latent, row variable or let. Raises GpdslError for other names."""
    names = names_of(beliefs)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise GpdslError(f"the model has no latent, let or output `{name}`{hint}; it has {', '.join(names)}")
    return name in beliefs.program.declarations.outputs


def of_quantity(beliefs: Beliefs, name: str, compute: Callable[[sp.Expr, tuple[str, ...]], Any]) -> np.ndarray:
    """`compute(expression, keys)` of a latent, a row variable or a let."""
    translator, declarations = beliefs.program.translator, beliefs.program.declarations
    axes = declarations.axes_of(name)

    def pick(env: dict[str, int | str]) -> sp.Expr:
        positions = tuple(env.get(k, k) for k in map(axis_key, axes))
        if name in declarations.lets:
            return translator.let(name, positions)
        return translator.symbol(Ref("latent", name, positions))

    return np.array(over_elements(translator, axes, pick, compute))


def of_output(beliefs: Beliefs, name: str, compute: Callable[[ObservationTerms, tuple[str, ...]], Any]) -> np.ndarray:
    """`compute(statement, keys)` of the statements that observe an output, put together."""
    pieces = []
    for observation in beliefs.program.observations:
        if name not in observation.outputs:
            continue
        if observation.law is None and observation.formula is None:
            raise GpdslError(
                f"`{name}` is observed through the opaque likelihood `{observation.distribution}`, which can be "
                "evaluated but not predicted from; ask for the latents and lets instead"
            )
        values = np.asarray(compute(observation, observation.axes))
        whole = observation.law is not None and observation.law.vector
        if len(observation.axes) == len(observation.positions) or whole:
            return values
        pieces.append((observation.positions, values))
    shape = beliefs.program.translator.shape(beliefs.program.declarations.outputs[name].axes)
    return put_together(pieces, shape)


def check_draws(what: str, count: Any, seed: object, numbers: int = 1) -> int:
    """The seed. Raises GpdslError for what is none or no number of draws, and for more draws than there is room for.

    A draw is so many `numbers`.
    """
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise GpdslError(f"{what}: expected a positive number of draws, got {quoted(repr(count))[:60]}")
    found: int = check_option("seed", seed)
    needed, free = 8.0 * int(count) * numbers, free_memory()
    if needed > free:
        raise GpdslError(
            f"{what}: {count:.4g} draws take {needed / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB are free; ask for "
            "fewer draws, or for some of the rows at a time"
        )
    return found
