"""Prediction: the distribution of latents, deterministic quantities and outputs at new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import jax.numpy as jnp
import numpy as np

from gpdsl.data import Data
from gpdsl.data.bound import Standardised
from gpdsl.data.errors import listed
from gpdsl.data.times import Calendar, words_of
from gpdsl.errors import GpdslError, plural
from gpdsl.forward import Usage
from gpdsl.inference.posteriors.posterior import by_parts
from gpdsl.language.calls import Named, spoken
from gpdsl.program.cache import in_precision
from gpdsl.results import draws as drawing, expectation as ex
from gpdsl.results.accuracy import error_of, error_of_law, of_passes, verify_asked
from gpdsl.results.conditions import ROWS_AT_ONCE, condition_of
from gpdsl.results.datatree import dataset_of
from gpdsl.results.levels import in_levels, levels_of
from gpdsl.results.named import check_draws, is_output, names_of, of_output, of_quantity
from gpdsl.results.nodes import existing, said
from gpdsl.results.quantiles import probabilities_of, quantile_of
from gpdsl.results.scored import Scored
from gpdsl.results.table import Total, ends_of, frame_of, html_of, total_of
from gpdsl.shown import mimebundle
from gpdsl.symbolic.readings import field_quantities

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset

    from gpdsl.results.fit import Fit


class Origin(NamedTuple):
    """What a prediction was made of, so that it can be made again: the fit, its rows, a budget, and what names rows.

    `known` are rows whose outputs are given, `table` what the rows were read from, where that is in memory.
    """

    fit: Fit
    data: Data
    evaluations: int | None
    index: Any
    known: Data | None = None
    table: Any = None

    def first_rows(self, rows: slice) -> Origin:
        """Of some rows."""
        return self._replace(data=self.data.take(rows), table=None)


@spoken
class Prediction(Scored):
    """What a fit says about some rows.

    Every method takes the name of a latent, a row variable, a `let` or an output and returns arrays [rows, *axes],
    [*axes] of a field and of what is computed from fields alone. The mean of a label or ordinal output holds the
    probabilities of its levels, [rows, levels].
    """

    def __init__(
        self, beliefs: ex.Beliefs, dtype: str, standardised: Standardised, origin: Origin | None = None
    ) -> None:
        self.beliefs = beliefs
        self.dtype = dtype
        self.standardised = standardised
        self.origin = origin
        self._declarations = beliefs.program.declarations

    @property
    def names(self) -> tuple[str, ...]:
        """Names that can be asked for."""
        return names_of(self.beliefs)

    @property
    def times(self) -> dict[str, np.ndarray]:
        """The inputs that are times, as dates [rows, *axes]: of NumPy, or of Python in the zone of the fit."""
        calendar = self._calendar
        if self.origin is None or calendar is None:
            return Named()
        moments = self.origin.data.moments.items()
        return Named((name, calendar.dates(name, each)) for name, each in moments)

    @property
    def _calendar(self) -> Calendar | None:
        return None if self.origin is None else self.origin.fit.calendar

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """The inputs that are labels, in the words of the data [rows, *axes]."""
        if self.origin is None:
            return Named()
        data = self.origin.data
        return Named(words_of(self._declarations.inputs, data.inputs, data.every_level))

    @property
    def shown_inputs(self) -> dict[str, np.ndarray]:
        """The inputs [rows, *axes] as they were given: times as dates, labels in words."""
        assert self.origin is not None
        return Named({**self.origin.data.inputs, **self.times, **self.labels})

    @property
    def without_unit(self) -> tuple[str, ...]:
        """Latents and lets in standard deviations, since outputs were standardised and nothing tells their unit."""
        if not {*self._declarations.outputs} & {*self.standardised.sds}:
            return ()
        return tuple(
            n for n in (*self._declarations.latents, *self._declarations.lets) if n not in self.standardised.sds
        )

    def to_frame(
        self, names: Sequence[str] | None = None, quantiles: float | Sequence[float] = (0.05, 0.95)
    ) -> DataFrame:
        """A pandas frame: inputs that are labels or times, `y_mean`, `y_sd`, `y_q0.05`, `y_label`, `y_p[4]` of labels.

        Names are those of outputs and lets by default. Rows keep the index of the frame that was predicted, and
        `frame.attrs["standardised"]` names what is in standard deviations, of data that were standardised.
        """
        asked: Any = quantiles if np.ndim(quantiles) else [quantiles]
        return frame_of(self, [names] if isinstance(names, str) else names, asked)

    def to_xarray(
        self, names: Sequence[str] | None = None, quantiles: float | Sequence[float] = (0.05, 0.95)
    ) -> Dataset:
        """An xarray dataset with the axes of the model: `y_mean`, `y_sd`, `y_quantile`, `y_p` and `y_label` of labels.

        Its coordinates are the inputs, and the index of the frame that was predicted. What is in standard deviations,
        of data that were standardised, has the attribute `units`, "standardised".
        """
        asked: Any = quantiles if np.ndim(quantiles) else [quantiles]
        return dataset_of(self, [names] if isinstance(names, str) else names, asked)

    def __repr__(self) -> str:
        rows = plural(self.beliefs.count, "row")
        return f"<gpdsl.Prediction of {self._declarations.name}: {rows} of {listed(self.names)}>"

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def first_rows(self, rows: slice) -> Prediction:
        """The same of some rows."""
        origin = None if self.origin is None else self.origin.first_rows(rows)
        return Prediction(self.beliefs.part(rows), self.dtype, self.standardised, origin)

    @property
    def weighted(self) -> list[tuple[float, Prediction]]:
        """The predictions that it is a mixture of, with their weights."""
        return [(1.0, self)]

    def __len__(self) -> int:
        """The number of rows."""
        return self.beliefs.count

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, str]:
        return mimebundle(self, include, exclude)

    def __reduce__(self) -> tuple[Any, ...]:
        """`pickle` and `copy` take its fit and its rows, and predict again."""
        assert self.origin is not None
        fit, *rest = self.origin._replace(table=None)
        return type(fit).predict_bound, (fit, *rest)

    @in_precision
    def mean(self, name: str) -> np.ndarray:
        """Posterior (predictive) mean, SAVIGP eqs. 36 and 38; probabilities for a label output.

        Of a binary one it is the probability of the second of its `levels`, whatever these are, and the variance that
        of 0 and 1. NaN, with a warning, where there is none: of a Student-t of one degree of freedom, of a ratio.
        """
        found = self.standardised.back(name, self._of_rows(name, lambda part: part._mean(name)))
        return said(name, "mean", found, self._declarations)

    @in_precision
    def variance(self, name: str) -> np.ndarray:
        """Posterior (predictive) variance, in squared units; that of the class indicators for a label output."""
        found = self.standardised.widened(name, self._of_rows(name, lambda part: part._variance(name)), 2)
        return said(name, "variance", found, self._declarations)

    def sd(self, name: str) -> np.ndarray:
        """The root of the variance; of an output it has the noise in it."""
        return np.sqrt(self.variance(name))

    def _by_parts(self, name: str, compute: Callable[[Prediction, int], np.ndarray], axis: int = 0) -> np.ndarray:
        """Something about all rows, some rows at a time; without rows where it is the same in all of them."""
        at = self.beliefs
        if not is_output(at, name) and name in field_quantities(self._declarations):
            return np.take(compute(self._part(slice(0, 1)), 0), 0, axis)
        return by_parts(at.count, lambda number, rows: compute(self._part(rows), number), axis, at.at_once)

    def _of_rows(self, name: str, compute: Callable[[Prediction], np.ndarray], axis: int = 0) -> np.ndarray:
        """`_by_parts` of what rows that are alike have in common: it is worked out for one of these."""
        if not self.beliefs.alike:
            return self._by_parts(name, lambda part, _: compute(part), axis)
        one = self.first_rows(slice(0, 1))._by_parts(name, lambda part, _: compute(part), axis)
        return np.repeat(one, self.beliefs.count, axis)

    def _part(self, rows: slice) -> Prediction:
        whole = len(range(*rows.indices(self.beliefs.count))) == self.beliefs.count
        # the beliefs themselves keep what was worked out of them
        return Prediction(self.beliefs if whole else self.beliefs.part(rows), self.dtype, self.standardised)

    def _mean(self, name: str) -> np.ndarray:
        if is_output(self.beliefs, name):
            return of_output(self.beliefs, name, partial(drawing.output_mean, self.beliefs))
        return of_quantity(self.beliefs, name, lambda e, keys: existing(self.beliefs, e, keys, ex.mean_of))

    def _variance(self, name: str) -> np.ndarray:
        if is_output(self.beliefs, name):
            return of_output(self.beliefs, name, partial(drawing.output_variance, self.beliefs))
        return of_quantity(self.beliefs, name, lambda e, keys: existing(self.beliefs, e, keys, ex.variance_of))

    @in_precision
    def quantile(self, name: str, probabilities: float | Sequence[float]) -> np.ndarray:
        """Quantiles [rows, *axes], or [probabilities, rows, *axes] for several.

        Exact for latents, for monotone functions of one latent, and for outputs up to the quadrature over the latents.
        Ordinal and binary outputs have those of their levels that are numbers; of words, see `draws`.
        """
        several = probabilities_of(name, probabilities)
        if is_output(self.beliefs, name) and self._declarations.outputs[name].kind == "label":
            raise GpdslError(f"`{name}` is a label: it has no quantiles; use mean for the levels' probabilities")
        found = in_levels(self.beliefs.program, name, self._quantiles(name, several))
        return found if np.ndim(probabilities) else found[0]

    @in_precision
    def _quantiles(self, name: str, several: Sequence[float] | np.ndarray) -> np.ndarray:
        """Several, [probabilities, rows, *axes], with levels as the fit numbers them."""

        def of_part(part: Prediction) -> np.ndarray:
            known: dict[Any, Any] = {}
            return np.stack([part._quantile_of(name, p, known) for p in several])

        return self.standardised.back(name, self._of_rows(name, of_part, axis=1))

    def _quantile_of(self, name: str, p: float, known: dict[Any, Any] | None = None) -> np.ndarray:
        """One quantile; what several have in common is `known` from the first on."""
        known = {} if known is None else known
        if is_output(self.beliefs, name):
            return of_output(self.beliefs, name, partial(drawing.output_quantile, self.beliefs, p, known))
        return of_quantity(self.beliefs, name, lambda e, keys: quantile_of(self.beliefs, e, keys, p, known))

    def interval(self, name: str, level: float = 0.9) -> np.ndarray:
        """The central interval of so much probability, [2, rows, *axes]: its lower and its upper end."""
        return self.quantile(name, ends_of(level))

    @in_precision
    def error(self, name: str, of: str | float = "mean") -> np.ndarray:
        """Standard error of what `mean`, `variance`, or the quantile of a probability says, [rows, *axes].

        It is that of finitely many evaluations of opaque functions, and of finitely many samples where three or more
        latents enter what has no formula, or of passes through layers. Of a quadrature over two it is what nodes
        between its own add; 0 else.
        """
        verify_asked(name, of)
        found = self._by_parts(name, lambda part, _: part._error(name, of))
        return self.standardised.widened(name, found, 2 if of == "variance" else 1)

    @property
    def usage(self) -> Usage:
        """What the opaque functions of this prediction have cost so far: its quantities share their evaluations."""
        simulations = self.beliefs.simulations
        return Usage() if simulations is None else simulations.account.usage()

    def _error(self, name: str, of: str | float) -> np.ndarray:
        if self.beliefs.program.inner:
            return of_passes([Prediction(b, self.dtype, self.standardised) for b in self.beliefs.sets()], name, of)
        if not is_output(self.beliefs, name):
            return of_quantity(self.beliefs, name, lambda e, keys: jnp.asarray(error_of(self.beliefs, e, keys, of)))
        at = self.beliefs
        return of_output(at, name, lambda o, keys: error_of_law(name, drawing.law_of_output(at, o, keys), of))

    @in_precision
    def sample(self, name: str, count: int, seed: int = 0) -> np.ndarray:
        """`count` draws [count, rows, *axes], each row on its own; levels as in `draws`."""
        seed = check_draws(f"sample of `{name}`", count, seed, self.beliefs.marginals.mean[0].size)

        def draw(part: Prediction, number: int) -> np.ndarray:
            rng = np.random.default_rng([seed, number] if number else seed)
            return drawing.row_by_row(part.beliefs, count, rng).of(name)

        return self._in_units(name, self._by_parts(name, draw, axis=1))

    def _in_units(self, name: str, drawn: np.ndarray) -> np.ndarray:
        """Draws as the data have them: in their units, and levels that are numbers as these."""
        return in_levels(self.beliefs.program, name, self.standardised.back(name, drawn))

    @in_precision
    def draws(self, name: str, count: int, seed: int = 0) -> np.ndarray:
        """`count` draws [count, rows, *axes] of all rows together, each a whole function of the posterior.

        Draws with one seed belong together, whatever names are asked for. Levels that are numbers are drawn as these;
        words by their places in `levels`, from 1 for labels, and 0 and 1 of a binary output. More rows than have room
        for their covariances, 5000 with one latent, are drawn as `draw_functions` does. Raises GpdslError where that
        cannot be; `sample` has no such limit.
        """
        seed = check_draws(f"draws of `{name}`", count, seed, self.beliefs.marginals.mean[0].size)
        is_output(self.beliefs, name)
        found = self._in_units(name, self._together.draws(count, np.random.default_rng(seed)).of(name))
        return found[:, 0] if name in field_quantities(self._declarations) else found

    @in_precision
    def covariance(self, name: str) -> np.ndarray:
        """Posterior covariances between rows, [rows, *axes, rows, *axes], of what is linear in the latents.

        Of an output it is that of the next values, noise included. Of a field, and of what is computed from fields
        alone, it is [*axes, *axes]. Raises GpdslError for anything else.
        """
        if name in field_quantities(self._declarations):
            (one,) = drawing.covariances(drawing.Together(self.beliefs.part(slice(0, 1))), name)
            return self.standardised.covariance(name, one.take(0, axis=one.ndim // 2))
        return self.standardised.covariance(name, drawing.covariances(self._together, name))

    def over_settings(self, count: int, seed: int, draw: Callable[[Prediction, int, int], np.ndarray]) -> np.ndarray:
        """`draw(prediction, count, seed)`; where parameters are averaged over, of each of their settings."""
        return draw(self, count, seed)

    def of_each(self, seed: int, draw: Callable[[Prediction, int, int], np.ndarray]) -> np.ndarray:
        """`draw(prediction, 1, seed)`; where parameters are averaged over, of each of their settings once."""
        return draw(self, 1, seed)

    @cached_property
    def mark(self) -> str:
        """What draws of this prediction have in common with no others."""
        return uuid4().hex

    @cached_property
    def _together(self) -> drawing.Together:
        return drawing.Together(self.beliefs)

    @in_precision
    def probability(self, condition: str, *, draws: int = 4096, seed: int = 0, error: bool = False) -> np.ndarray:
        """P(condition) in each row, [rows], such as of `"y > 3 and rate < 2"`; its standard error where `error` asks.

        The condition is an expression of the language in outputs, latents, row variables, lets, parameters, constants
        and inputs, in the units of the data. One output or latent against what is known is exact, but for passes
        through layers; all else is a share of draws of each row. Labels are compared by their levels where these are
        numbers, else by their place, from 1; words of labels and times stand in quotes.
        """
        seed = check_draws("probability", draws, seed, min(self.beliefs.count, ROWS_AT_ONCE))
        unseen = {} if self.origin is None else self.origin.data.unseen
        asked = condition_of(self.beliefs, condition, self.standardised, self._calendar, unseen)
        return asked.probability(draws, seed, error)

    def total(self, name: str, *, by: Any = None, how: str = "sum", count: int = 2000, seed: int = 0) -> Total:
        """Sum over all rows (`how` may be mean, max or min too), from `count` draws of all rows together.

        by: a group for each row, an array or the name of a column of the rows; names of several columns, for each
        combination of their values that rows have. Raises GpdslError where `draws` does, and for labels, fields and
        groups that do not suit the rows.
        """
        return total_of(self, name, by, how, count, seed)

    @in_precision
    def label(self, name: str) -> np.ndarray:
        """Most probable level of a label output (the levels as in the data), or most probable value of a binary one.

        That is 0 or 1, or one of the two words, or of -1 and 1, where the data have these.
        """
        declared = self._declarations.outputs.get(name)
        if declared is None or declared.kind not in {"label", "ordinal", "binary"}:
            raise GpdslError(f"`{name}` is not a label, ordinal or binary output")
        mean = self.mean(name)
        likely = (mean > 0.5).astype(int) if declared.label is None else np.argmax(mean, axis=-1)
        return np.asarray(self.levels(name))[likely]

    def levels(self, name: str) -> tuple:
        """Levels of a label output, in the order of its probabilities; the two values of a binary one."""
        return levels_of(self.beliefs.program, name)
