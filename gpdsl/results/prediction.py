"""Prediction: the distribution of latents, deterministic quantities and outputs at new rows."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy as sp

from gpdsl.data import Data
from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError, preformatted
from gpdsl.forward import Usage
from gpdsl.program.precision import in_precision
from gpdsl.results import expectation as ex
from gpdsl.results.accuracy import error_of, error_of_law, verify_asked
from gpdsl.results.ancestral import DRAWS, Ancestral, put_together
from gpdsl.results.chunks import by_parts, over_elements
from gpdsl.results.draws import LatentDraws
from gpdsl.results.existence import existing, said
from gpdsl.results.formula import ByFormula
from gpdsl.results.predictive import Predictive
from gpdsl.results.quantiles import quantile_of
from gpdsl.results.table import frame_of, html_of
from gpdsl.results.warp import Warped
from gpdsl.symbolic.reduced import field_quantities
from gpdsl.symbolic.sources import marginal
from gpdsl.symbolic.terms import ObservationTerms
from gpdsl.symbolic.translate import Ref, axis_key

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpdsl.results.fit import Fit

SHOWN_ROWS = 8
"""Of a prediction in a notebook."""


class Origin(NamedTuple):
    """What a prediction was made of, so that it can be made again: the fit, its rows, a budget, and what names rows."""

    fit: Fit
    data: Data
    evaluations: int | None
    index: Any


class Prediction:
    """What a fit says about some rows.

    Every method takes the name of a latent, a row variable, a `let` or an output and returns arrays [rows, *axes],
    [*axes] of a field and of what is computed from fields alone. The mean of a label or ordinal output holds the
    probabilities of its levels, [rows, levels].
    """

    def __init__(self, beliefs: ex.Beliefs, dtype: str, origin: Origin | None = None) -> None:
        self.beliefs = beliefs
        self.dtype = dtype
        self.origin = origin
        self._declarations = beliefs.program.declarations

    @property
    def names(self) -> tuple[str, ...]:
        """Names that can be asked for."""
        d = self._declarations
        return (*d.latents, *d.rows, *d.lets, *d.outputs)

    def to_frame(self, names: Sequence[str] | None = None, quantiles: Sequence[float] = (0.05, 0.95)) -> DataFrame:
        """A pandas frame: `y_mean`, `y_sd`, `y_q0.05` of each quantity, `y_label`, `y_p[4]` of labels.

        Names are those of outputs and lets by default. Rows keep the index of the frame that was predicted.
        """
        return frame_of(self, names, quantiles)

    def __repr__(self) -> str:
        return f"<gpdsl.Prediction of {self._declarations.name}: {self.beliefs.count} rows of {listed(self.names)}>"

    def _repr_html_(self) -> str | None:
        """Its first rows, for notebooks; nothing where that would call opaque functions."""
        if self.beliefs.simulations:
            return None
        first = Prediction(self.beliefs.part(slice(0, SHOWN_ROWS)), self.dtype)
        return f"{preformatted(repr(self))}{html_of(first)}"

    def __reduce__(self) -> tuple[Any, ...]:
        """`pickle` and `copy` take its fit and its rows, and predict again."""
        assert self.origin is not None
        fit, *rest = self.origin
        return type(fit).predict_bound, (fit, *rest)

    @in_precision
    def mean(self, name: str) -> np.ndarray:
        """Posterior (predictive) mean, SAVIGP eqs. 36 and 38; probabilities for a label output.

        NaN, with a warning, where there is none: of a Student-t of one degree of freedom, of a ratio.
        """
        return said(name, "mean", self._by_parts(name, lambda part, _: part._mean(name)), self._declarations)

    @in_precision
    def variance(self, name: str) -> np.ndarray:
        """Posterior (predictive) variance; that of the class indicators for a label output."""
        return said(name, "variance", self._by_parts(name, lambda part, _: part._variance(name)), self._declarations)

    def _by_parts(self, name: str, compute: Callable[[Prediction, int], np.ndarray], axis: int = 0) -> np.ndarray:
        """Something about all rows, some rows at a time; without rows where it is the same in all of them."""
        if name in field_quantities(self._declarations):
            first = Prediction(self.beliefs.part(slice(0, 1)), self.dtype)
            return np.take(compute(first, 0), 0, axis)
        return by_parts(
            self.beliefs.count,
            lambda number, rows: compute(Prediction(self.beliefs.part(rows), self.dtype), number),
            axis,
        )

    def _mean(self, name: str) -> np.ndarray:
        if self._is_output(name):
            return self._output(name, self._output_mean)
        return self._deterministic(name, lambda e, keys: existing(self.beliefs, e, keys, ex.mean_of))

    def _variance(self, name: str) -> np.ndarray:
        if self._is_output(name):
            return self._output(name, self._output_variance)
        return self._deterministic(name, lambda e, keys: existing(self.beliefs, e, keys, ex.variance_of))

    @in_precision
    def quantile(self, name: str, probabilities: float | Sequence[float]) -> np.ndarray:
        """Quantiles [rows, *axes], or [probabilities, rows, *axes] for several.

        Exact for latents, for monotone functions of one latent, and for outputs up to the quadrature over the latents.
        """
        several = np.atleast_1d(np.asarray(probabilities, dtype=float))
        if np.any((several <= 0) | (several >= 1)):
            raise GpdslError(
                f"quantile of `{name}`: probabilities must lie strictly between 0 and 1, got {probabilities}"
            )
        if self._is_output(name) and self._declarations.outputs[name].kind == "label":
            raise GpdslError(f"`{name}` is a label: it has no quantiles; use mean for the levels' probabilities")
        found = self._by_parts(name, lambda part, _: np.stack([part._quantile_of(name, p) for p in several]), axis=1)
        return found if np.ndim(probabilities) else found[0]

    def _quantile_of(self, name: str, p: float) -> np.ndarray:
        if self._is_output(name):
            return self._output(name, partial(self._output_quantile, p=p))
        return self._deterministic(name, lambda e, keys: quantile_of(self.beliefs, e, keys, p))

    @in_precision
    def error(self, name: str, of: str | float = "mean") -> np.ndarray:
        """Standard error of what `mean`, `variance`, or the quantile of a probability says, [rows, *axes].

        It is that of finitely many evaluations of opaque functions, and of finitely many samples where three or more
        latents enter what has no formula. Of a quadrature over two it is what nodes between its own add; 0 else.
        """
        verify_asked(name, of)
        return self._by_parts(name, lambda part, _: part._error(name, of))

    @property
    def usage(self) -> Usage:
        """What the opaque functions of this prediction have cost so far: its quantities share their evaluations."""
        simulations = self.beliefs.simulations
        return Usage() if simulations is None else simulations.account.usage()

    def _error(self, name: str, of: str | float) -> np.ndarray:
        if not self._is_output(name):
            return self._deterministic(name, lambda e, keys: jnp.asarray(error_of(self.beliefs, e, keys, of)))

        def error(o: ObservationTerms, keys: tuple[str, ...]) -> np.ndarray:
            known = self._without_reads(o)
            law = None if known is None else self._predictive(known, keys)
            return error_of_law(name, law if isinstance(law, Predictive) else None, of)

        return self._output(name, error)

    @in_precision
    def sample(self, name: str, count: int, seed: int = 0) -> np.ndarray:
        """`count` draws [count, rows, *axes], each row on its own; label outputs give level numbers from 1."""
        if count < 1:
            raise GpdslError(f"sample of `{name}`: expected a positive number of draws, got {count}")

        def draw(part: Prediction, number: int) -> np.ndarray:
            return part._sample(name, count, np.random.default_rng([seed, number] if number else seed))

        return self._by_parts(name, draw, axis=1)

    def _sample(self, name: str, count: int, rng: np.random.Generator) -> np.ndarray:
        latents = LatentDraws.of(self.beliefs, count, rng)
        if self._is_output(name):
            ancestral = self._ancestral(latents, rng)
            return self._output(name, lambda o, keys: ancestral.draw(o))
        return self._deterministic(name, latents.values)

    @in_precision
    def label(self, name: str) -> np.ndarray:
        """Most probable level of a label output (the levels as in the data), or most probable value of a binary one."""
        declared = self._declarations.outputs.get(name)
        if declared is None or declared.kind not in {"label", "ordinal", "binary"}:
            raise GpdslError(f"`{name}` is not a label, ordinal or binary output")
        if declared.label is None:
            return (self.mean(name) > 0.5).astype(int)
        return np.asarray(self.levels(name))[np.argmax(self.mean(name), axis=-1)]

    def levels(self, name: str) -> tuple:
        """Levels of a label output, in the order of its probabilities."""
        axis = self._declarations.outputs[name].label if name in self._declarations.outputs else None
        if axis is None:
            raise GpdslError(f"`{name}` is not a label output, and has no levels")
        count = self.beliefs.program.translator.size(axis)
        return self.beliefs.program.levels.get(str(axis.name), tuple(range(1, count + 1)))

    # --- latents and lets ---------------------------------------------------------------------------------------

    def _is_output(self, name: str) -> bool:
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise GpdslError(f"the model has no latent, let or output `{name}`{hint}; it has {', '.join(self.names)}")
        return name in self._declarations.outputs

    def _deterministic(self, name: str, compute: Callable[[sp.Expr, tuple[str, ...]], Any]) -> np.ndarray:
        translator, axes = self.beliefs.program.translator, self._declarations.axes_of(name)

        def pick(env: dict[str, int | str]) -> sp.Expr:
            positions = tuple(env.get(k, k) for k in map(axis_key, axes))
            if name in self._declarations.lets:
                return translator.let(name, positions)
            return translator.symbol(Ref("latent", name, positions))

        return np.array(over_elements(translator, axes, pick, compute))

    # --- outputs ------------------------------------------------------------------------------------------------

    def _output(self, name: str, compute: Callable[[ObservationTerms, tuple[str, ...]], Any]) -> np.ndarray:
        """Put the statements that observe an output together into [..., rows, *axes]."""
        pieces = []
        for observation in self.beliefs.program.observations:
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
        shape = self.beliefs.program.translator.shape(self._declarations.outputs[name].axes)
        return put_together(pieces, shape)

    def _predictive(self, o: ObservationTerms, keys: tuple[str, ...]) -> Predictive | Warped | ByFormula:
        law = None if o.law is None else Predictive(self.beliefs, o.law, keys, self._sizes(keys))
        if o.formula is not None:
            return ByFormula(self.beliefs, o.formula, keys, self._sizes(keys), None if o.warp else law)
        assert law is not None
        return law if o.warp is None else Warped(self.beliefs, law, o.warp)

    def _output_mean(self, o: ObservationTerms, keys: tuple[str, ...]) -> np.ndarray:
        known = self._without_reads(o)
        return self._draws(o).mean(axis=0) if known is None else self._predictive(known, keys).mean()

    def _output_variance(self, o: ObservationTerms, keys: tuple[str, ...]) -> np.ndarray:
        known = self._without_reads(o)
        return self._draws(o).var(axis=0) if known is None else self._predictive(known, keys).variance()

    def _output_quantile(self, o: ObservationTerms, keys: tuple[str, ...], p: float) -> np.ndarray:
        known = self._without_reads(o)
        return np.quantile(self._draws(o), p, axis=0) if known is None else self._predictive(known, keys).quantile(p)

    def _without_reads(self, o: ObservationTerms) -> ObservationTerms | None:
        """The statement with the outputs it reads integrated out, where that has a formula."""
        program = self.beliefs.program
        return marginal(program.translator, program.observations, o)

    def _draws(self, o: ObservationTerms) -> np.ndarray:
        """Many draws of an output that reads others, always the same ones."""
        rng = np.random.default_rng(self.beliefs.seed)
        return self._ancestral(LatentDraws.of(self.beliefs, DRAWS, rng), rng).draw(o)

    def _ancestral(self, latents: LatentDraws, rng: np.random.Generator) -> Ancestral:
        def values(expression: sp.Expr, keys: tuple[str, ...], drawn: Mapping[sp.Symbol, np.ndarray]) -> np.ndarray:
            return np.asarray(latents.values(expression, keys, drawn))

        def one(o: ObservationTerms, at: Callable[[sp.Expr], np.ndarray]) -> np.ndarray:
            return self._predictive(o, o.axes).draw(at, rng)

        return Ancestral(self.beliefs.program, values, one)

    def _sizes(self, keys: tuple[str, ...]) -> tuple[int, ...]:
        table = {axis_key(a): a for o in self._declarations.outputs.values() for a in o.axes}
        return self.beliefs.program.translator.shape(tuple(table[k] for k in keys))
