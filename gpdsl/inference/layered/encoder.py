"""q of row variables from what is known of the row: a network gives means and standard deviations.

A row's own mean and deviation are learnt in the steps that visit it; the weights of a network in all: amortised
inference (Kingma and Welling, 2014). It sees inputs and outputs, standardised, labels as indicators, and where outputs
are missing zeros and a mark. Its tanh layers stand beside a linear map of what it sees, which is where it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, row_count

SMALL = 0.1
"""Of the last weights of the tanh layers at the start, in units that would keep the size of what goes through."""

Weights = dict[str, Any]


@dataclass(frozen=True)
class Encoded:
    """Gaussians of the variables of some rows, in the order of these."""

    mean: Float[Array, "1 latents rows"]
    sd: Float[Array, "1 latents rows"]

    def moments(self, features: Any) -> tuple[Float[Array, "1 latents rows"], Float[Array, "1 latents rows"]]:
        """Means and variances at just these rows."""
        return self.mean, self.sd**2


@dataclass(frozen=True, eq=False)
class Encoder:
    """What a network sees of a row, and how it is standardised; its weights are arguments."""

    centre: Mapping[str, np.ndarray]
    scale: Mapping[str, np.ndarray]
    marked: frozenset[str]
    """Outputs that are missing in some rows."""

    @classmethod
    def of(cls, rows: Rows) -> Encoder:
        """That of all rows of some data."""
        centre, scale = {}, {}
        for name, values, known in _tables(rows):
            table = np.where(np.asarray(known), np.asarray(values), np.nan)
            table = table[~np.isnan(table).all(axis=1)]
            centre[name], sd = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
            scale[name] = np.where(np.isfinite(sd) & (sd > 0), sd, 1.0)
        missing = frozenset(name for name, known in rows.observed.items() if not np.all(np.asarray(known)))
        return cls({n: np.nan_to_num(v) for n, v in centre.items()}, scale, missing)

    def seen(self, rows: Rows) -> Float[Array, "rows columns"]:
        """What the network sees."""
        found = []
        for name, values, known in _tables(rows):
            dtype = values.dtype
            standard = (values - jnp.asarray(self.centre[name], dtype)) / jnp.asarray(self.scale[name], dtype)
            found.append(jnp.where(known, standard, 0.0))
            if name in self.marked:
                found.append(known.astype(dtype))
        return jnp.concatenate(found, axis=1)

    def start(
        self,
        rows: Rows,
        widths: tuple[int, ...],
        wanted: Mapping[str, np.ndarray],
        from_outputs: bool,
        rng: np.random.Generator,
    ) -> Weights:
        """Weights at which the means are about those `wanted`, or where these are of no row's own, random maps."""
        table = np.asarray(self.seen(rows), float)
        columns, latents = table.shape[1], np.shape(wanted["mean"])[1]
        if from_outputs:
            linear = np.linalg.lstsq(table, np.asarray(wanted["mean"])[0].T, rcond=None)[0]
        else:
            linear = rng.standard_normal((columns, latents)) * np.std(wanted["mean"]) / np.sqrt(columns)
        sizes = (columns, *widths)
        layers = [
            {"weights": rng.standard_normal((a, b)) / np.sqrt(a), "offset": np.zeros(b)}
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        ]
        last = SMALL * rng.standard_normal((sizes[-1], 2 * latents)) / np.sqrt(sizes[-1])
        sd = np.exp(np.mean(wanted["log_sd"]))
        offset = np.concatenate([np.zeros(latents), np.full(latents, np.log(np.expm1(sd)))])
        return {"linear": linear, "layers": layers, "last": {"weights": last, "offset": offset}}

    def __call__(self, weights: Weights, rows: Rows) -> Encoded:
        """q of the variables of some rows."""
        seen = self.seen(rows)
        inside = seen
        for layer in weights["layers"]:
            inside = jnp.tanh(inside @ layer["weights"] + layer["offset"])
        mean, wide = jnp.split(inside @ weights["last"]["weights"] + weights["last"]["offset"], 2, axis=1)
        mean = mean + seen @ weights["linear"]
        return Encoded(mean.T[None], jax.nn.softplus(wide).T[None])


def _tables(rows: Rows) -> Iterator[tuple[str, Any, Any]]:
    """Names, values and whether they are known, of inputs and outputs, [rows, columns]."""
    count = row_count(rows)
    for name, values in sorted(rows.inputs.items()):
        yield name, (table := values.reshape(count, -1)), jnp.ones(table.shape, bool)
    for name, values in sorted(rows.outputs.items()):
        known = rows.observed[name] > 0
        if name in rows.indicators:
            values = rows.indicators[name]
            known = jnp.broadcast_to(known[..., None], values.shape)
        yield name, values.reshape(count, -1), known.reshape(count, -1)


def encoders(
    program: Program, rows: Rows, written: str, q: dict[int, Any], seed: int, dtype: Any
) -> tuple[dict[int, Encoder], dict[int, Any]]:
    """The networks of all row variables where `written` is `network(20, 20)`, and q with their weights in it."""
    if written == "free":
        return {}, q
    rng, found = np.random.default_rng(seed), {}
    widths = tuple(int(each) for each in written.removeprefix("network(").removesuffix(")").split(","))
    for place, group in enumerate(program.groups):
        if group.per_row:
            found[place] = Encoder.of(rows)
            weights = found[place].start(rows, widths, q[place], not program.declarations.inputs, rng)
            q = {**q, place: jax.tree.map(lambda a: jnp.asarray(a, dtype), weights)}
    return found, q
