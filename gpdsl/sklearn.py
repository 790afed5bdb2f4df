"""Estimators with the interface of scikit-learn: `Regressor` and `Classifier`, for arrays and data frames."""

from __future__ import annotations

import math
import os
import warnings
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from gpdsl import model as models
from gpdsl.data import read_table
from gpdsl.data.bound import moments
from gpdsl.data.columns import STYLES, spelt
from gpdsl.data.convert import order_of
from gpdsl.data.table import Columns, Table
from gpdsl.data.targets import WORDS_IN_Y, NotNumbersError, numbers_expected, refuse_odd_labels
from gpdsl.data.values import numbers_in_order
from gpdsl.errors import GpdslError, GpdslWarning, quoted
from gpdsl.language.calls import answering, spoken
from gpdsl.language.model import Declarations, Output
from gpdsl.results.prediction import Prediction

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as problem:
    raise GpdslError("gpdsl.sklearn needs scikit-learn 1.6 or newer: install gpdsl[sklearn]") from problem

__all__ = ["Classifier", "Regressor"]

REGRESSION = """\
model regression "A smooth function of all columns, each with a length-scale of its own"
input  x     : real[D]
output y     : real
param  s2    : positive    = 1
param  ell   : positive[D] = {width:.6g} ~ LogNormal({farther:.6g}, 0.7)
param  sigma : positive    = 0.5
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, sigma)
"""

TWO_CLASSES = """\
model two_classes "Log odds that are a smooth function of all columns"
input  x   : real[D]
output y   : binary
param  m   : real     = 0 ~ Normal(0, 5)
param  s2  : positive = 4 ~ LogNormal(2, 1.5)
param  ell : positive = {width:.6g}
latent f(x) ~ GP(m, s2 * RBF(ell))
y ~ Bernoulli(logit = f)
"""

CLASSES = """\
model classes "A smooth function of all columns for each class, with a length-scale for each column"
index  c in 1..C
input  x   : real[D]
output y   : label[c]
param  s2  : positive    = 4 ~ LogNormal(1.4, 1)
param  ell : positive[D] = {width:.6g} ~ LogNormal({far:.6g}, 1)
latent f[c](x) ~ GP(0, s2 * RBF(ell))
y ~ Categorical(logits = f)
"""


FLOOR = 1e-3
"""Noise of targets that are all the same, over their size: they tell none, and a fit of them goes on to 0 for ever."""

ENOUGH = 5e-3
"""Nats of the default model's bound that another step has to gain: data of any size leave more than that open."""

DENSE_CLASSES = 500
SPARSE: dict[str, float] = {"inducing": 200, "batch": 300, "steps": 300}
"""Rows of more than two classes above which the default model has some inducing points: on the digits of scikit-learn
200 take half a minute a fold, one for every row more than ten minutes."""


class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """What both have in common: a model, the options of a fit, and columns that become the inputs of the model.

    A data frame whose columns bear the names of the model's inputs gives them by name. Of anything else the columns are
    the inputs in the order of their declaration.
    """

    @answering
    def __init__(
        self,
        model: str | os.PathLike[str] | models.Model | None = None,
        *,
        engine: str | None = None,
        posterior: str | None = None,
        inducing: int | None = None,
        steps: int | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self.posterior = posterior
        self.inducing = inducing
        self.steps = steps
        self.seed = seed
        self.options = options

    @abstractmethod
    def _default(self, width: float) -> str:
        """The text of a model for columns that are standardised, where none is given."""

    @property
    def _declarations(self) -> Declarations:
        return self.model_.declarations

    @property
    def _output(self) -> Output:
        """The one thing that is predicted. Raises GpdslError for a model with several, or with axes."""
        outputs = self._declarations.outputs.values()
        if len(outputs) != 1 or any(each.axes for each in outputs):
            raise GpdslError(
                f"model `{self._declarations.name}`: expected one output, a number or a label for each row, not "
                f"{', '.join(f'`{each.name}`' for each in outputs)}; use `Model.fit` for several"
            )
        return next(iter(outputs))

    def _fit(self, X: Any, checked: np.ndarray | None, y: np.ndarray, **held: Any) -> None:
        """Fit rows: as they were given, and as scikit-learn has checked them. `held` are options that nobody chose."""
        inputs, targets = self._table(X, checked), read_table({self._output.name: y})
        both: ChainMap[str, np.ndarray] = ChainMap(targets.columns, inputs.columns)  # type: ignore[arg-type]
        table = Table(both, order=lambda name: (targets if name in targets.columns else inputs).order(name))
        given: dict[str, Any] = {
            "seed": self.seed,
            "progress": False,
            "engine": self.engine,
            "posterior": self.posterior,
            "inducing": self.inducing,
            "steps": self.steps,
        }
        options = {} if self.options is None else self.options
        if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise GpdslError(f"options: expected a dictionary of options, got {quoted(repr(options))[:60]}")
        for name in (each for each in options if given.get(each) not in (None, 0, options[each])):
            raise GpdslError(
                f"options: `{name}` is {quoted(options[name])} there, and {given[name]!r} beside: leave one out"
            )
        given |= held | dict(options)
        if self.model is None and all(given.get(name) is None for name in ("engine", "posterior", *SPARSE)):
            given = self._sizes(len(y)) | {name: value for name, value in given.items() if value is not None}
        self.fit_ = self.model_.fit(table, **given)

    def _sizes(self, rows: int) -> dict[str, float]:
        """Options of the default model that differ from those of any other; nearly as many rows have the same."""
        return {"tolerance": ENOUGH / 2 ** round(math.log2(rows))}

    def _start(self, X: Any, y: Any, **how: Any) -> tuple[np.ndarray | None, np.ndarray]:
        """A model that is given, and what scikit-learn has checked: no values of a frame that names inputs."""
        if self.model is not None:
            self.model_ = _compiled(self.model)
        self._by_name = self.model is not None and self._names_inputs(X)
        if self._by_name:
            validate_data(self, X, skip_check_array=True)
            self._columns = [*read_table(X).columns][-self.n_features_in_ :]  # those of an index come first
            return None, column_or_1d(y, warn=True)
        with numbers_expected(self, X, y if how.get("y_numeric") else None):
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, **how)
        return X, y

    def _compile_default(self, checked: np.ndarray | None) -> None:
        """The default model of the columns that vary; others, as corners of images, say nothing."""
        assert checked is not None
        self._centre, self._spread = moments(checked)
        self._varies = self._spread > 0
        if not self._varies.any():
            one = "the one column of X is" if len(self._spread) == 1 else f"all {len(self._spread)} columns of X are"
            raise GpdslError(f"{one} constant, from which nothing can be learnt; use sklearn.dummy for their mean")
        self._spread = np.where(self._spread > 0, self._spread, 1.0)
        self.model_ = models.compile(self._default(math.sqrt(self._varies.sum())))

    def _names_inputs(self, X: Any) -> bool:
        """Whether a frame has a column for an input of the model."""
        columns = {*read_table(X).columns} if hasattr(X, "columns") else set()
        names = {*self._declarations.inputs}
        elements = {style(name, (1,)) for name in names for style in STYLES}
        return bool(columns & (names | elements) or names & {spelt(each) for each in columns})

    def _table(self, X: Any, checked: np.ndarray | None) -> Table:
        """Columns by the names of the model."""
        if checked is None:
            known = read_table(X)  # which may have the targets in a column, in words that are numbers in the fit
            names = [name for name in known.columns if spelt(name) != self._output.name]
            return Table(Columns(names, lambda place: known.columns[names[place]], known.source), order=known.order)
        if self._by_name:  # fitted by a frame, predicted by an array of its columns
            return read_table(dict(zip(self._columns, checked.T, strict=True)))
        if self.model is None:
            checked = ((checked - self._centre) / self._spread)[:, self._varies]
        return read_table(_inputs(self._declarations, checked))

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        if self._by_name and hasattr(X, "columns"):
            validate_data(self, X, reset=False, skip_check_array=True)
            return self.fit_.predict(self._table(X, None))
        with numbers_expected(self, X):
            checked = validate_data(self, X, reset=False, dtype=np.float64)
        return self.fit_.predict(self._table(X, checked))


@spoken
class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Regression by a Gaussian process, or by any model with one output that is a number.

    model: a text, the path of a `.gpm` file, or a `Model`. By default inputs and targets are standardised, and the
    model is a smooth function (RBF with a length-scale for each column) with noise. engine, posterior, inducing, steps
    and seed are options of `Model.fit`, and `options` are others by name.

    `fit_` is the fit, `model_` the model; the columns of `fit_` are standardised by default.

    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> mean, sd = Regressor().fit(X, [0.0, 1.0, 2.0, 3.0]).predict([[1.5]], return_std=True)
    """

    def _default(self, width: float) -> str:
        return REGRESSION.format(**_lengths(width))

    def fit(self, X: Any, y: Any) -> Self:
        """Fit rows X to numbers y. Raises ValueError for other data, GpdslError for what the model refuses."""
        checked, y = self._start(X, y, y_numeric=True)
        try:
            y = np.asarray(y, np.float64)
        except (TypeError, ValueError) as problem:
            raise NotNumbersError(WORDS_IN_Y) from problem
        self._mean, self._sd, held = 0.0, 1.0, dict[str, Any]()
        if self.model is None:
            self._compile_default(checked)
            self._mean, self._sd = map(float, moments(y))
            if self._sd <= 8 * np.finfo(float).eps * abs(self._mean):
                self._sd = abs(self._mean) or 1.0
                held = {"fixed": ["s2", "ell", "sigma"], "init": {"s2": FLOOR**2, "sigma": FLOOR}}
                warnings.warn(
                    f"Regressor: all {len(y)} values of y are {y[0]:g}, which tells no noise: standard deviations are "
                    f"not learnt, and taken to be {FLOOR * self._sd:g} or a little more",
                    GpdslWarning,
                    stacklevel=2,
                )
        if self._output.label is not None or self._output.kind == "binary":
            raise GpdslError(f"Regressor: output `{self._output.name}` is a {self._output.kind}; use Classifier")
        self._fit(X, checked, (y - self._mean) / self._sd, **held)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predictive mean [rows]; with `return_std` also the standard deviation of an observation, with its noise.

        With `return_cov` also the covariance of observations at all rows. Raises GpdslError where both are asked for.
        """
        if return_std and return_cov:
            raise GpdslError("Regressor.predict: ask for return_std or return_cov, whose diagonal is its square")
        prediction, name = self._predict(X), self._output.name
        mean = self._mean + self._sd * prediction.mean(name)
        if return_cov:
            return mean, self._sd**2 * prediction.covariance(name)
        return (mean, self._sd * np.sqrt(prediction.variance(name))) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of new observations [rows, n_samples], of all rows together."""
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        drawn = self._predict(X).draws(self._output.name, n_samples, seed=seed)
        return self._mean + self._sd * drawn.T


@spoken
class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classification by Gaussian processes, or by any model with one output that is binary, a label or ordinal.

    Arguments are those of `Regressor`. By default inputs are standardised, and the log odds of two classes, or the
    logits of several, are smooth functions. Labels are anything that scikit-learn takes; `classes_` has them in order.
    """

    def _default(self, width: float) -> str:
        return (TWO_CLASSES if len(self.classes_) == 2 else CLASSES).format(**_lengths(width))

    def _sizes(self, rows: int) -> dict[str, float]:
        return SPARSE if len(self.classes_) > 2 and rows > DENSE_CLASSES else super()._sizes(rows)

    def fit(self, X: Any, y: Any) -> Self:
        """Fit rows X to labels y. Raises ValueError for other data, GpdslError for what the model refuses."""
        refuse_odd_labels(self, y)
        order, plain = order_of(y, "y"), np.asarray(y)
        checked, y = self._start(X, plain if plain.dtype == bool else y)  # of other types, truths become numbers
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier needs labels of two classes or more; got one class: {self.classes_[0]}")
        if self.model is None:
            self._compile_default(checked)
        kind, levels = self._output.kind, self._levels
        if kind not in {"binary", "label", "ordinal"}:
            raise GpdslError(f"Classifier: output `{self._output.name}` is a {kind}; use Regressor")
        ordered = {*map(str, self.classes_)} <= {*(order := order or numbers_in_order(self.classes_))}
        if kind == "ordinal" and not (levels or ordered) and self.classes_.dtype.kind not in "biuf":
            words, label = ", ".join(f'"{each}"' for each in self.classes_[:5]), self._output.label
            raise GpdslError(
                f"Classifier: y holds the levels {quoted(words)}, and nothing says in which order they stand; list "
                f"them in the model, the lowest first: `index {label and label.name} in {{...}}`, or pass y as an "
                "ordered categorical"
            )
        if kind == "binary" and len(self.classes_) > 2:
            raise GpdslError(f"output `{self._output.name}` is binary, and y has {len(self.classes_)} classes")
        names = [str(each) for each in self.classes_] if ordered else self.classes_.tolist()
        stand = [*(levels or (sorted(names, key=order.index) if ordered else names))]
        if strange := [each for each in names if each not in stand]:
            listed = ", ".join(map(repr, stand))
            odd = quoted(repr(strange[0]))[:60]
            raise GpdslError(
                f"Classifier: y holds {odd}, which is no level of output `{self._output.name}`: "
                f"the model lists {quoted(listed)[:200]}; add it there, or leave its rows out"
            )
        self._places = np.array([stand.index(each) for each in names])
        self._fit(X, checked, np.asarray(y) if levels else self._places[numbers] + (kind != "binary"))
        return self

    @property
    def _levels(self) -> tuple[Any, ...]:
        """The labels that the model itself names."""
        label = self._output.label
        return () if label is None else self._declarations.indices[label.name or ""].levels or ()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [rows, classes], in the order of `classes_`; classes that y did not have are left out."""
        chances = self._predict(X).mean(self._output.name)
        if self._output.kind == "binary":
            chances = np.stack([1.0 - chances, chances], axis=1)
        chosen = chances[:, self._places]
        return chosen / chosen.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        chances = self.predict_proba(X)
        return self.classes_[np.argmax(chances, axis=1)]


def _lengths(width: float) -> dict[str, float]:
    """Where the length-scales of columns begin that are this far apart in all, and where priors of them are centred."""
    return {"width": width, "far": math.log(width) + 0.5, "farther": math.log(width) + 1.0}


def _compiled(model: str | os.PathLike[str] | models.Model) -> models.Model:
    """A model from its text, which has several lines, or from its file."""
    if isinstance(model, models.Model):
        return model
    if isinstance(model, str) and "\n" in model:
        return models.compile(model)
    if not isinstance(model, str | os.PathLike) or not os.path.exists(model):
        said = quoted(repr(model))[:200]
        raise GpdslError(f"model = {said}: expected a path of a .gpm file, a text of lines, or a Model")
    return models.load(Path(model))


def _inputs(declarations: Declarations, X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns in the order of the inputs. Raises GpdslError where they are not as many as the model asks for."""
    inputs = declarations.inputs.values()
    open_ended = [each for each in inputs if each.axes and each.axes[0].size is None]
    widths = {each.name: each.axes[0].size or 0 if each.axes else 1 for each in inputs}
    if len(open_ended) == 1:
        widths[open_ended[0].name] = X.shape[1] - sum(widths.values())
    if sum(widths.values()) != X.shape[1] or min(widths.values()) < 1 or any(len(each.axes) > 1 for each in inputs):
        said = ", ".join(f"`{each.name}`" for each in inputs)
        raise GpdslError(
            f"model `{declarations.name}`: {X.shape[1]} columns without names cannot be shared out among its inputs "
            f"{said}; pass a data frame with columns of these names"
        )
    ends = np.cumsum([*widths.values()])
    parts = np.split(X, ends[:-1], axis=1)
    return {each.name: part if each.axes else part[:, 0] for each, part in zip(inputs, parts, strict=True)}
