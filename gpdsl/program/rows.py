"""Row-level evaluation: values of any expression of the model at given latent values, for all rows at once.

Arrays are laid out [*lead, rows, *axes]: `lead` are samples, quadrature nodes or mixture components, `axes` the
expression's generic axes. Parameters have no rows and broadcast from the right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from gpdsl.errors import GpdslError
from gpdsl.lowering.table import align, evaluate
from gpdsl.symbolic.laws import ROUNDED
from gpdsl.symbolic.readings import Reading
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Covariance, ExternalUse, Ref, Translator

ALONG: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "sum": lambda values: jnp.sum(values, axis=-1),
        "prod": lambda values: jnp.prod(values, axis=-1),
        "mean": lambda values: jnp.mean(values, axis=-1),
        "max": lambda values: jnp.max(values, axis=-1),
        "min": lambda values: jnp.min(values, axis=-1),
        "norm": lambda values: jnp.linalg.norm(values, axis=-1),
        "logsumexp": lambda values: jax.scipy.special.logsumexp(values, axis=-1),
    }
)
"""Reductions along the last axis."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Data of some rows: inputs and outputs by name, [rows, *axes]; `observed` is 1.0 where an output is known.

    `indicators` are one-hot codes of label outputs, [rows, *axes, classes]. `numbers` says which rows of the training
    data these are (from 0), None for new ones. `mesh`: the devices they are spread over, in equal parts, if not on one.
    """

    inputs: Mapping[str, Float[Array, "rows *axes"]]
    outputs: Mapping[str, Float[Array, "rows *axes"]]
    observed: Mapping[str, Float[Array, "rows *axes"]]
    indicators: Mapping[str, Float[Array, "rows *axes c"]] = field(default_factory=dict)
    numbers: Float[Array | np.ndarray, "rows"] | None = None
    mesh: Mesh | None = field(default=None, metadata={"static": True})

    @property
    def shards(self) -> int:
        """How many devices there are."""
        return 1 if self.mesh is None else self.mesh.size


@dataclass(frozen=True)
class Scope:
    """Everything an expression may read: parameters (constrained), rows, latent values and opaque results."""

    parameters: Mapping[str, Float[Array, "*axes"]]
    rows: Rows
    latents: Float[Array, "*lead rows latents"] | None = None
    externals: Mapping[str, Float[Array, "..."]] = field(default_factory=dict)


@dataclass(frozen=True)
class RowEvaluator:
    """Evaluates translated expressions. `columns` says where each latent's values stand among all latents."""

    translator: Translator
    columns: Mapping[tuple[str, Reading], tuple[int, int]]

    def __call__(
        self,
        expression: sp.Expr,
        scope: Scope,
        axes: tuple[str, ...] = (),
        given: Mapping[sp.Symbol, Array] = MappingProxyType({}),
    ) -> Array:
        """Value of `expression`, broadcastable to [*lead, rows, *axes]; `given` values come before the scope's."""
        memo: dict[str, Array] = {}
        return evaluate(expression, lambda s: given[s] if s in given else self.load(s, scope, axes, memo, given))

    def load(
        self,
        symbol: sp.Symbol,
        scope: Scope,
        axes: tuple[str, ...],
        memo: dict[str, Array],
        given: Mapping[sp.Symbol, Array] = MappingProxyType({}),
    ) -> Array:
        """The array a symbol stands for, aligned to `axes`; `memo` keeps matrices that many symbols are entries of."""
        ref = self.translator.references[symbol]
        if ref.kind == "latent":
            assert scope.latents is not None
            return self.latent(ref, scope.latents, axes)
        if ref.kind == "reduced":
            whole = self.translator.reduced[ref.name]
            values = jnp.asarray(self(whole.body, scope, (*axes, whole.axis), given))
            lead = values.shape[:-1] if values.ndim else ()
            return ALONG[whole.operator](jnp.broadcast_to(values, (*lead, whole.count)))
        if ref.kind == "whitening":
            if ref.name not in memo:
                memo[ref.name] = self._whitening(self.translator.covariances[ref.name], scope)
            return align(memo[ref.name], ref.positions, axes)
        if ref.kind == "external" and ref.name not in scope.externals:
            if ref.name not in memo:
                memo[ref.name] = self._traced(self.translator.externals[ref.name], scope, axes, given)
            return align(memo[ref.name], ref.positions, axes)
        return align(self.source(ref, scope), ref.positions, axes)

    def _traced(
        self, use: ExternalUse, scope: Scope, axes: tuple[str, ...], given: Mapping[sp.Symbol, Array]
    ) -> Float[Array, "*lead rows *dims"]:
        """The value of a function that can be traced, which is called with flat batches of rows."""
        if use.function in self.translator.field_calls:
            return self.of_field(use, scope)
        count = row_count(scope.rows)
        passed: list[tuple[tuple[int, ...], list[Array]]] = []
        lead: tuple[int, ...] = (count,)
        for shape, elements in use.arguments:
            values = [jnp.asarray(self(e, scope, axes, given)) for e in elements]
            values = [v.reshape(v.shape[: max(v.ndim - len(axes), 0)]) for v in values]  # elements vary along none
            lead = jnp.broadcast_shapes(lead, *[v.shape for v in values])
            passed.append((shape, values))
        flat = [
            jnp.stack([jnp.broadcast_to(v, lead).ravel() for v in values], axis=-1).reshape(-1, *shape)
            for shape, values in passed
        ]
        return jnp.reshape(self.translator.traced[use.function](*flat), (*lead, *use.result))  # type: ignore[arg-type]

    def of_field(self, use: ExternalUse, scope: Scope) -> Float[Array, "*lead rows *dims"]:
        """The value of a function that takes a field and can be traced, which is called once for each field.

        Where none of its arguments differs between rows, there is one value for all of them.
        """
        assert scope.latents is not None
        function: Callable[..., Array] = self.translator.traced[use.function]  # type: ignore[assignment]
        for _ in scope.latents.shape[:-2]:
            function = jax.vmap(function)
        found = function(*self.field_arguments(use, scope))
        return (
            found
            if any(self.translator.field_calls[use.function])
            else found[(..., None, *[slice(None)] * len(use.result))]
        )

    def field_arguments(self, use: ExternalUse, scope: Scope) -> list[Float[Array, "*lead ..."]]:
        """Arguments of a function that takes a field: [*lead, rows, *dims], or without rows where they have none."""
        assert scope.latents is not None
        lead, count = scope.latents.shape[:-2], row_count(scope.rows)
        found = []
        passed = zip(use.arguments, use.whole, self.translator.field_calls[use.function], strict=True)
        for (shape, elements), whole, rows in passed:
            full = (*lead, count if rows else 1)
            if whole is not None:
                values = jnp.asarray(self(whole[1], scope, whole[0]), scope.latents.dtype)
            else:
                parts = [jnp.broadcast_to(jnp.asarray(self(e, scope), scope.latents.dtype), full) for e in elements]
                values = jnp.stack(parts, axis=-1).reshape(*full, *shape)
            found.append(jnp.broadcast_to(values, (*full, *shape)).reshape(*(full if rows else lead), *shape))
        return found

    def of_latent(self, symbol: sp.Symbol, values: Any, axes: tuple[str, ...]) -> Any:
        """`latent` for a symbol."""
        return self.latent(self.translator.references[symbol], values, axes)

    def latent(self, ref: Ref, values: Shaped[Array | np.ndarray, "*lead rows latents"], axes: tuple[str, ...]) -> Any:
        """Values (or means, or variances) of one latent read, out of those of all latents; on the host as they are."""
        start, stop = self.columns[ref.name, ref.reading]
        shape = self.translator.shape_at(ref)
        block = values[..., start:stop].reshape(*values.shape[:-1], *shape)
        return align(block, ref.positions, axes)

    def column(self, symbol: sp.Symbol) -> int:
        """Column of a latent read without generic axes."""
        ref = self.translator.references[symbol]
        shape = self.translator.shape_at(ref)
        flat = 0
        for size, position in zip(shape, ref.positions, strict=True):
            flat = flat * size + int(position) - 1
        return self.columns[ref.name, ref.reading][0] + flat

    def _whitening(self, covariance: Covariance, scope: Scope) -> Float[Array, "rows p p"]:
        """Inverse Cholesky factor of each row's covariance, with what is missing marginalised: `symbolic.multivariate`.

        A missing element becomes one of variance 1 that is independent of all others.
        """
        known = scope.rows.observed[covariance.output]
        entries = [[jnp.asarray(self(e, scope), known.dtype) for e in row] for row in covariance.entries]
        rows = known.shape[0]
        matrix = jnp.stack([jnp.stack([jnp.broadcast_to(e, (rows,)) for e in row], -1) for row in entries], -2)
        identity = jnp.eye(known.shape[1], dtype=known.dtype)
        matrix = matrix * known[:, :, None] * known[:, None, :] + identity * (1.0 - known)[:, :, None]
        factor = jnp.linalg.cholesky(matrix)
        return jax.scipy.linalg.solve_triangular(factor, jnp.broadcast_to(identity, matrix.shape), lower=True)

    def source(self, ref: Ref, scope: Scope) -> Any:
        """All values that a reference chooses from, on the host as they are. Raises KeyError for what is computed."""
        match ref.kind:
            case "param":
                return scope.parameters[ref.name]
            case "gathered":
                own = "param" if ref.name in scope.parameters else "const"
                return gathered(self.source(replace(ref, kind=own), scope), ref, scope.rows.inputs)
            case "input":
                return scope.rows.inputs[ref.name]
            case "output":
                return scope.rows.outputs[ref.name]
            case "observed":
                return scope.rows.observed[ref.name]
            case "indicator":
                return scope.rows.indicators[ref.name]
            case "external":
                return scope.externals[ref.name]
            case "const":
                const = self.translator.declarations.consts[ref.name]
                return np.broadcast_to(np.asarray(const.values, float), self.translator.shape(const.axes))
            case "index":
                axis = self.translator.declarations.indices[ref.name].axis
                return np.arange(1.0, self.translator.size(axis) + 1.0)
        raise KeyError(ref.kind)


def gathered(values: Any, ref: Ref, inputs: Mapping[str, Any]) -> Any:
    """The elements of an array at each row's levels, [rows, ...]: those along the axes `ref.at` are chosen.

    Of NumPy or JAX.
    """
    places = [place for place, _ in ref.at]
    rest = [k for k in range(values.ndim) if k not in places]
    levels = tuple(inputs[label].astype(int) - 1 for _, label in ref.at)
    if any(isinstance(each, jax.Array) for each in levels):
        values = jnp.asarray(values)  # constants are of NumPy, which rows of a program cannot index
    return values.transpose(*places, *rest)[levels]


def row_count(rows: Rows) -> int:
    """How many rows these are; a model without inputs has no quantity in new rows but one value of each."""
    return next((values.shape[0] for values in {**rows.outputs, **rows.inputs}.values()), 1)


def observed_mask(rows: Rows, observation: ObservationTerms) -> Array:
    """1.0 where the observation counts, [rows, *axes]; several outputs (an opaque likelihood) count all together.

    A value that depends on others counts where those are observed too. A multivariate normal counts in every row: it
    knows itself what is missing.
    """
    partial = observation.distribution == "MultivariateNormal"
    outputs, positions, axes = observation.outputs, observation.positions, observation.axes
    own = rows.observed[outputs[0]]
    if partial or (len(outputs) == 1 and (positions or own.ndim == 1)):
        mask = jnp.ones_like(own[:, 0]) if partial else align(own, positions, axes)
        for name, where in observation.reads:
            mask = mask * align(rows.observed[name], where, axes)
        return mask
    masks = [rows.observed[o].reshape(rows.observed[o].shape[0], -1).min(axis=1) for o in outputs]
    return jnp.stack(masks).min(axis=0)


# Observed values outside the bounds of a distribution, which it cannot have: refused with the row.
#
# Bounds are made of numbers, constants and inputs, and so are known before anything is learnt. The trials of a binomial
# distribution are such a bound.

REMEDIES: Mapping[str, str] = {
    "Truncated": "where no value can be; correct the value or the bound, or use `Censored` when values {word} the "
    "bound were recorded as the bound",
    "Censored": "where values {word} it are recorded as the bound itself; record the bound for this row, or correct "
    "the bound",
    "Uniform": "where no value can be; correct the value or the bound",
    "Binomial": "of which no more can succeed; correct the value or the number of trials, or use `Poisson` or "
    "`NegativeBinomial` for counts without a largest one",
}
"""Why a value beyond a bound cannot be, and what to do."""

SIDES = (
    ("lower", "lower bound", np.less, "below", -1.0),
    ("upper", "upper bound", np.greater, "above", 1.0),
    ("trials", "number of trials", np.greater, "above", 1.0),
)
"""The argument that is a bound, how it is called, and what lies beyond it in which direction."""

DATA = {"input", "const", "output", "observed", "index"}
"""Kinds of what is known before a fit."""


def refuse_outside(evaluator: RowEvaluator, o: ObservationTerms, rows: Rows) -> None:
    """Raise GpdslError for the first value beyond a bound of its distribution; bounds themselves are allowed.

    Of a transformed output it is the transform that is compared, where it depends on no parameter.
    """
    law, name = o.law, o.outputs[0]
    if law is None or law.name not in REMEDIES or name not in rows.outputs or not _known(evaluator, o):
        return
    observed, known, values, slack = _compared(evaluator, o, Scope({}, rows))
    shown = "" if o.warp is None else ", transformed,"
    for side, what, beyond, word, sign in SIDES:
        if side not in law.arguments:
            continue
        bound = np.broadcast_to(evaluator(law.arguments[side], Scope({}, rows), o.axes), values.shape)
        if side == "trials":
            _refuse_broken(name, bound, known)
        allowed = (bound + sign * slack * np.abs(bound)).astype(values.dtype)
        wrong = np.argwhere((known > 0) & beyond(values, allowed))
        if len(wrong):
            at = tuple(wrong[0])
            raise GpdslError(
                f"output `{name}`, row {at[0] + 1}: {observed[at]:g}{shown} lies {word} {float(bound[at]):g}, "
                f"the {what} of `{law.name}`, {REMEDIES[law.name].format(word=word)}"
            )


def _compared(evaluator: RowEvaluator, o: ObservationTerms, scope: Scope) -> tuple[np.ndarray, np.ndarray, Any, float]:
    """Values [rows, *axes], 1 where they are known, what bounds are compared with, and how far that may miss."""
    name, rows = o.outputs[0], scope.rows
    observed, known = (
        np.asarray(align(jnp.asarray(table[name]), o.positions, o.axes)) for table in (rows.outputs, rows.observed)
    )
    if o.warp is None:
        return observed, known, observed, 0.0
    return observed, known, np.broadcast_to(evaluator(o.warp.value, scope, o.axes), observed.shape), float(ROUNDED)


def censored(evaluator: RowEvaluator, o: ObservationTerms, scope: Scope) -> np.ndarray:
    """Of each row, how many values lie at a bound of `Censored`: they have a probability there and no density."""
    assert o.law is not None
    _, known, values, slack = _compared(evaluator, o, scope)
    found = np.zeros(values.shape, bool)
    for side, *_, sign in SIDES:
        if side in o.law.arguments:
            bound = np.broadcast_to(evaluator(o.law.arguments[side], scope, o.axes), values.shape)
            found |= sign * values >= (sign * bound - slack * np.abs(bound)).astype(values.dtype)
    return np.sum((found & (known > 0)).reshape(len(found), -1), axis=1)


def _refuse_broken(name: str, trials: np.ndarray, known: np.ndarray) -> None:
    """Raise GpdslError for the first number of trials that is no whole number from 0."""
    wrong = np.argwhere((known > 0) & ((trials < 0) | (trials != np.floor(trials))))
    if len(wrong):
        at = tuple(wrong[0])
        raise GpdslError(
            f"output `{name}`, row {at[0] + 1}: `Binomial` has {float(trials[at]):g} trials, expected a whole number "
            "from 0; correct the value, or declare the input of trials `count`"
        )


def _known(evaluator: RowEvaluator, o: ObservationTerms) -> bool:
    """Whether neither the transform of the output nor its bounds depend on what is learnt."""
    assert o.law is not None
    formulas = [o.law.arguments[side] for side, *_ in SIDES if side in o.law.arguments]
    formulas += [] if o.warp is None else [o.warp.value]
    symbols = {symbol for formula in formulas for symbol in formula.free_symbols}
    return all(evaluator.translator.references[symbol].kind in DATA for symbol in symbols)
