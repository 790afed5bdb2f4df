"""Evaluations of opaque functions for one prediction: few, shared by all that is asked of it, and within a budget.

Every row gets some points, and more as long as its polynomials, or lines between the points, leave too much open
(`results.responses`). Rows that neither describes are evaluated at the samples themselves. Means, variances, quantiles
and draws come from the same evaluations.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.errors import GpdslError, GpdslWarning
from gpdsl.forward import Accounting
from gpdsl.inference.fields.calls import FIELD_CALLS, field_samples
from gpdsl.inference.opaque.budget import DIRECT, DOUBLINGS, columns_read, first_points, most_points, predicted_uses
from gpdsl.inference.opaque.surrogate import arguments_of, evaluate_externals
from gpdsl.inference.sampling import base_normals
from gpdsl.program.program import Program
from gpdsl.results.pieces import Externals, Known, Piece, by_point, by_row, make_piece, of_rows
from gpdsl.results.responses import FURTHEST, by_lines, ends_of, importance, stretch
from gpdsl.symbolic.translate import ExternalUse

if TYPE_CHECKING:
    from gpdsl.results.expectation import Beliefs

SETS, MOST = 8, 4096
"""Samples come in so many sets, shifted apart, whose scatter is their error; at most so many where polynomials answer.

Where functions are called at them there are `DIRECT`.
"""

NUMBERS = 4_000_000
"""Of all samples held, above which there are no more than where functions are called."""

KEPT = 8
"""Sets of draws whose evaluations are kept, for the next name that is drawn with the same seed."""


@dataclass(eq=False)
class Simulations:
    """The evaluations of one prediction; `program` counts them. Parts of the rows are known by where they lie."""

    program: Program
    touched: int
    known: dict[tuple[int, int], Known] = field(default_factory=dict)
    drawn: dict[bytes, tuple[Array, Externals]] = field(default_factory=dict)
    held: tuple[tuple[int, int], tuple[Array, Externals]] | None = None
    """The samples of the part of the rows that was asked about last."""
    short: bool = False
    likelihoods: tuple[ExternalUse, ...] = ()
    """Opaque calls of likelihoods, for which half of the budget is left."""

    @staticmethod
    def of(program: Program, touched: int, evaluations: float, likelihoods: bool = False) -> Simulations:
        """For a program, so many rows, and a budget, out of which calls of `likelihoods` may come too."""
        account = Accounting(budget=evaluations)
        externals = {name: replace(model, account=account) for name, model in program.externals.items()}
        counted = replace(program, externals=externals)
        called = tuple(use for use in program.uses() if use.likelihood and likelihoods)
        kind = OfFields if program.fields else Simulations
        return kind(counted, touched, likelihoods=called)

    def one_of(self, count: int) -> Simulations:
        """Those of one of so many beliefs about the same rows, which know nothing of each other and share a budget."""
        return replace(self, touched=count * self.touched, known={}, drawn={}, held=None)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """What the functions read."""
        return columns_read(self.program)

    @property
    def account(self) -> Accounting:
        """What the prediction has cost so far."""
        found = self.program.account
        assert found is not None
        return found

    @property
    def uses(self) -> tuple[ExternalUse, ...]:
        """The opaque calls that predictions need."""
        return predicted_uses(self.program)

    def samples(self, beliefs: Beliefs) -> tuple[Float[Array, "S K rows latents"], Externals]:
        """Samples of the latents, and what opaque functions give there."""
        place = beliefs.start, beliefs.start + beliefs.count
        if self.held is None or self.held[0] != place:
            self.held = place, self._sampled(beliefs)
        latents, found = self.held[1]
        return latents, dict(found)

    def _sampled(self, beliefs: Beliefs) -> tuple[Float[Array, "S K rows latents"], Externals]:
        known = self.at(beliefs)
        latents = beliefs.marginals.at(beliefs.program, self._sets(beliefs))
        found = self._answered(known, latents, beliefs.seed)
        if known.direct.size:
            index = _first(len(latents), known.count)[_tile(len(latents), known.count)]
            latents = latents.at[:, :, known.direct].set(latents[index][:, :, known.direct])
            index = _tile(len(latents), known.count)
            found = {k: _put(v, known.direct, known.values[k][index]) for k, v in found.items()}
        return latents, found

    def draws(
        self, beliefs: Beliefs, latents: Float[Array, "S K rows latents"]
    ) -> tuple[Float[Array, "S K rows latents"], Externals]:
        """The same at draws; functions are called there only where no polynomial answers, and only once."""
        digest = hashlib.blake2b(np.asarray(latents).tobytes() + bytes(str(beliefs.start), "ascii"), digest_size=8)
        key = digest.digest()
        if key not in self.drawn:
            self.drawn[key] = self._draws(beliefs, latents, key)
            for old in list(self.drawn)[:-KEPT]:
                del self.drawn[old]
        return self.drawn[key]

    def _draws(self, beliefs: Beliefs, latents: Array, key: bytes) -> tuple[Array, Externals]:
        known = self.at(beliefs)
        found = self._answered(known, latents, int.from_bytes(key, "little"))
        cost = latents.shape[0] * latents.shape[1] * known.direct.size * len(self.uses)
        if known.direct.size and cost <= self.account.remaining:
            values = self.evaluate(_part(beliefs, known.direct), latents[:, :, known.direct])
            found = {k: _put(v, known.direct, values[k]) for k, v in found.items()}
        return latents, found

    def at(self, beliefs: Beliefs) -> Known:
        """What is known of these rows, after as many evaluations as that takes."""
        place = beliefs.start, beliefs.start + beliefs.count
        if place not in self.known:
            self.known[place] = self._learnt(beliefs)
        return self.known[place]

    def evaluate(self, beliefs: Beliefs, latents: Float[Array, "S K rows latents"]) -> Externals:
        """Call the functions."""

        def give(use: ExternalUse, known: Externals) -> list[Array]:
            return arguments_of(self.program, use, beliefs.parameters, beliefs.rows, latents, known)

        return evaluate_externals(self.program, self.uses, give)

    def likelihood_values(self, beliefs: Beliefs, latents: Array, externals: Externals) -> Externals:
        """What likelihoods give there, beside the values of other functions."""

        def give(use: ExternalUse, known: Externals) -> list[Array]:
            at = beliefs.parameters, beliefs.rows, latents, {**externals, **known}
            return arguments_of(self.program, use, *at)

        return evaluate_externals(self.program, self.likelihoods, give)

    def _rows_from(self, beliefs: Beliefs) -> int:
        """Rows to come, these and later ones, that are each called for."""
        return max(self.touched - beliefs.start, beliefs.count)

    # --- how a part of the rows is learnt ---
    def _learnt(self, beliefs: Beliefs) -> Known:
        first = first_points(self.columns)
        latents, allowed = self._design(beliefs, first), self._allowance(beliefs)
        values: dict[str, np.ndarray] = {}
        rows, taken, pieces = np.arange(beliefs.count), 0, []
        self._require(allowed(rows))
        for wanted in (first << doubling for doubling in range(DOUBLINGS + 1)):
            points = min(wanted, taken + allowed(rows), len(latents))
            if points == taken:
                break
            new = self.evaluate(_part(beliefs, rows), jnp.asarray(latents[taken:points, :, rows]))
            known = {k: np.asarray(v) for k, v in new.items()}
            values, taken = {k: np.concatenate([values[k], v]) if taken else v for k, v in known.items()}, points
            marginals = _part(beliefs, rows).marginals
            piece = make_piece(self.program, self.columns, marginals, rows, latents[:taken], values)
            settled = np.all(piece.polynomials.settled.reshape(-1, rows.size), axis=0)
            if settled.any():
                pieces.append(of_rows(piece, np.flatnonzero(settled)))
            rest = of_rows(piece, np.flatnonzero(~settled))
            rows, values = rest.rows, dict(rest.values)
            if not rows.size:
                return Known(pieces, rows, 0, {})
        if taken == len(latents):
            rows = rows[~np.all(by_lines(rest.polynomials).reshape(-1, rows.size), axis=0)]
        count = min(allowed(rows), DIRECT) if rows.size else 0
        return self._with_direct(beliefs, [*pieces, rest], rows, count, taken)

    def _allowance(self, beliefs: Beliefs) -> Callable[[np.ndarray], int]:
        """How many points more of some rows the budget has, of which these beliefs get their share."""
        account, a_point = self.account, len(beliefs.weights) * len(self.uses)
        share = (0.5 if self.likelihoods else 1.0) * beliefs.count / self.touched
        end = account.evaluations + min(account.budget * share, account.remaining)
        return lambda rows: int(min((end - account.evaluations) / (a_point * rows.size), 1e9))

    def likelihood_samples(self, beliefs: Beliefs, most: int) -> int:
        """At how many samples the budget allows for calls of likelihoods in these rows. Raises GpdslError for none."""
        a_sample = self._rows_from(beliefs) * len(beliefs.weights) * len(self.likelihoods)
        count = int(min(most, self.account.remaining / a_sample if a_sample else most))
        self._require(count)
        return count

    def _require(self, points: int) -> None:
        """Raise GpdslError where the budget has not even a point for every row."""
        if not points:
            raise GpdslError(
                f"evaluations = {self.account.budget:g}: a prediction at {self.touched} rows takes more than that for "
                "one point of every row; allow more with predict(data, evaluations=...), or predict fewer rows"
            )

    def _with_direct(self, beliefs: Beliefs, pieces: list[Piece], rows: np.ndarray, count: int, taken: int) -> Known:
        """Rows that polynomials do not describe are evaluated at the samples, where the budget has enough for it."""
        count = count // SETS * SETS
        if not rows.size or count < 2 * taken:
            self._warn(rows.size)
            return Known(pieces, rows[:0], 0, {})
        latents = beliefs.marginals.at(beliefs.program, self._sets(beliefs))
        found = self.evaluate(_part(beliefs, rows), latents[_first(len(latents), count)][:, :, rows])
        return Known(pieces, rows, count, {key: np.asarray(value) for key, value in found.items()})

    def _warn(self, rows: int) -> None:
        if rows and not self.short and np.isfinite(self.account.budget):
            self.short = True
            warnings.warn(
                f"evaluations = {self.account.budget:g} are too few for accurate predictions through opaque functions "
                f"in {rows} rows: `error` says by how much, and predict(..., evaluations=...) allows more",
                GpdslWarning,
                stacklevel=2,
            )

    def _design(self, beliefs: Beliefs, first: int) -> Float[np.ndarray, "S K rows latents"]:
        """Points somewhat wider than the posterior, for all rows, the first of them at both ends of every axis."""
        key = jax.random.fold_in(jax.random.key(beliefs.seed), SETS)
        components, rows, latents = beliefs.marginals.mean.shape
        normals = base_normals(key, most_points(first) if self.columns else 1, components, rows, latents)
        normals = jnp.clip(normals, -FURTHEST, FURTHEST)
        ends = ends_of(len(self.columns))
        for place, column in enumerate(self.columns[: first // 4]):
            normals = normals.at[2 * place : 2 * place + 2, :, :, column].set(ends[:, None, None])
        return np.asarray(beliefs.marginals.at(beliefs.program, stretch(len(self.columns)) * normals))

    def wider(
        self, beliefs: Beliefs
    ) -> tuple[Float[Array, "S K rows latents"], Externals, Float[np.ndarray, "S K rows"]]:
        """Samples of what is read that are as wide as the points, what is known there, and their weights."""
        normals, columns = self._sets(beliefs), np.asarray(self.columns, int)
        normals = normals.at[..., columns].multiply(stretch(columns.size))
        latents = beliefs.marginals.at(beliefs.program, normals)
        weights = importance(by_row(np.asarray(normals[..., columns], float)))[..., None]
        found = self._answered(self.at(beliefs), latents, beliefs.seed)
        return latents, found, by_point(weights, normals.shape[1], ())

    def _sets(self, beliefs: Beliefs) -> Float[Array, "S K rows latents"]:
        components, rows, latents = beliefs.marginals.mean.shape
        few = MOST * components * rows * latents <= NUMBERS and len(self.uses) == len(self.program.uses())
        each = (MOST if few else DIRECT) // SETS  # likelihoods are called at all of them
        keys = [jax.random.fold_in(jax.random.key(beliefs.seed), number) for number in range(SETS)]
        return jnp.concatenate([base_normals(key, each, components, rows, latents) for key in keys])

    def _answered(self, known: Known, latents: Array, seed: int) -> Externals:
        """What polynomials say, with what they leave."""
        found = {use.key: np.zeros((*latents.shape[:3], *use.result)) for use in self.uses}
        read = np.asarray(latents)[..., np.asarray(self.columns, int)]
        for piece in known.pieces:
            x = read[:, :, piece.rows]
            said = piece.polynomials(piece.whitening(by_row(np.asarray(x, float))), seed)
            for use in self.uses:
                found[use.key][:, :, piece.rows] = by_point(said[use.key], latents.shape[1], use.result)
        return {key: jnp.asarray(value, latents.dtype) for key, value in found.items()}


class OfFields(Simulations):
    """Of functions of fields: one call is for all rows."""

    def _sampled(self, beliefs: Beliefs) -> tuple[Array, Externals]:
        """Fields and what functions give there, as many as the budget has."""
        count = int(min(FIELD_CALLS, self.account.remaining / len((*self.uses, *self.likelihoods))))
        self._require(count)
        components, rows, columns = beliefs.marginals.mean.shape
        key = jax.random.key(beliefs.seed)
        normals = base_normals(key, count, components, rows, columns, sampling="antithetic")
        return self._called(beliefs, beliefs.marginals.at(beliefs.program, normals))

    def _draws(self, beliefs: Beliefs, latents: Array, key: bytes) -> tuple[Array, Externals]:
        """The same at draws, or where the budget has not enough for that, those fields again and again."""
        if len(latents) * len(self.uses) <= self.account.remaining:
            return self._called(beliefs, latents)
        fields, found = self.samples(beliefs)
        again = np.arange(len(latents)) % len(fields)
        return fields[again], {key: value[again] for key, value in found.items()}

    def _called(self, beliefs: Beliefs, latents: Array) -> tuple[Array, Externals]:
        return field_samples(self.program, self.uses, beliefs.parameters, beliefs.rows, latents[:, 0, 0])

    def likelihood_values(self, beliefs: Beliefs, latents: Array, externals: Externals) -> Externals:
        at = beliefs.parameters, beliefs.rows, latents[:, 0, 0], externals
        return field_samples(self.program, self.likelihoods, *at)[1]

    def _rows_from(self, beliefs: Beliefs) -> int:
        return 1


def _put(values: Array, rows: np.ndarray, new: Array | np.ndarray) -> Array:
    """Other values in some of the rows."""
    return values.at[:, :, rows].set(jnp.asarray(new, values.dtype))


def _part(beliefs: Beliefs, rows: np.ndarray) -> Beliefs:
    return beliefs.part(rows) if rows.size < beliefs.count else beliefs


def _first(total: int, count: int) -> np.ndarray:
    """The first samples of every set, `count` in all."""
    return (np.arange(SETS)[:, None] * (total // SETS) + np.arange(count // SETS)).ravel()


def _tile(total: int, count: int) -> np.ndarray:
    """Where among the first samples of every set each of all samples is found, when these are repeated."""
    each = count // SETS
    return (np.arange(SETS)[:, None] * each + np.arange(total // SETS) % each).ravel()
