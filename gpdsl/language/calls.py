"""The arguments of the public interface: a refusal in words of what there is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from inspect import Parameter, getmembers, isfunction, signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from gpdsl.errors import GpdslError, quoted
from gpdsl.language.vocabulary import closest

Kind = TypeVar("Kind", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def _by_word(table: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """What each word may be called here."""
    words = {word for several in table.values() for word in several.split()}
    return {word: tuple(own for own, several in table.items() if word in several.split()) for word in words}


_ARGUMENTS = {
    "seed": "random_state random_seed rng key",
    "folds": "n_splits splits cv k n_folds",
    "count": "n size n_samples num_samples samples num draws shape",
    "draws": "n size n_samples num_samples samples num count",
    "rows": "n size n_samples num_samples samples",
    "probabilities": "q quantiles p prob level percentiles",
    "level": "ci prob hdi_prob coverage confidence",
    "level = 1 - alpha": "alpha",
    "by": "groupby group groups group_by freq",
    "path": "filename file fname out save",
    "data": "x df frame newdata new_data xnew x_test dataset",
    "observed": "y y_true values",
    "names": "name columns var_names vars",
    "name": "names output var_name var",
    "condition": "event expression expr",
    "statistic": "stat t",
    "against": "reference method with_",
    "text": "source model code string",
    "model": "kernel likelihood",
    "options": "optimizer n_restarts_optimizer learning_rate",
    "externals": "functions callables",
    "fits": "models",
}
ARGUMENTS = _by_word(_ARGUMENTS)
"""Words of other tools for arguments, by what they may be called here."""

_NAMES = {
    "variance": "var",
    "sd": "std stddev scale",
    "quantile": "quantiles percentile percentiles median ppf mode",
    "interval": "hdi ci credible_interval confint conf_int intervals confidence_region",
    "covariance": "cov full_covar covariance_matrix predict_f_full_cov",
    "sample": "samples rvs sample_y rsample draw",
    "parameters": "params hyperparameters kernel_ coef coef_ get_params theta kernel lengthscale lengthscales noise "
    "likelihood state_dict trainable_variables",
    "standard_errors": "bse se stderr std_err standard_error",
    "elbo": "loglik log_lik llf lml log_marginal_likelihood marginal_likelihood evidence log_evidence bound loss",
    "log_predictive_density": "score log_prob logpdf log_likelihood nlpd predict_log_density",
    "summary": "print describe print_summary",
    "cross_validate": "kfold cv cross_val_score k_fold",
    "check_predictive": "ppc posterior_predictive_check pp_check posterior_predictive",
    "to_frame": "to_pandas to_df to_dataframe dataframe df to_csv to_dict values table",
    "probability": "prob cdf sf proba predict_proba",
    "plot": "show draw_plot plot_samples",
    "to_datatree": "to_arviz to_inferencedata idata inference_data trace",
    "predict": "posterior predict_f predict_y forecast predict_mean fittedvalues",
    "fit": "train optimize optimise minimize infer run fit_transform",
    "sample_prior": "simulate sample prior sample_prior_predictive prior_predictive",
    "save": "dump export write",
    "graph": "to_graphviz model_to_graphviz plot",
    "latex": "to_latex equations",
    "draw_functions": "sample_functions pathwise paths predict_f_samples",
    "loo": "psis_loo loo_cv lpo",
}
NAMES = _by_word(_NAMES)
"""Words of other tools for methods and attributes, by what they may be called here."""

PREDICTED = frozenset(
    {"mean", "sd", "variance", "covariance", "quantile", "interval", "sample", "draws", "probability", "total", "label"}
)
"""Methods of predictions that are looked for elsewhere."""

FITTED = frozenset(
    {"predict", "summary", "parameters", "elbo", "save", "plot", "loo", "draw_functions", "cross_validate", "report"}
)
"""Methods and attributes of fits that are looked for at models."""


class CallError(GpdslError, TypeError):
    """A call with an argument too few, too many, or of another name."""


class NoSuchPlaceError(GpdslError, IndexError):
    """An element that a sequence does not have, which also ends a loop over it."""


class NoSuchKeyError(GpdslError, KeyError):
    """A key that a table does not have."""

    __str__ = Exception.__str__  # that of a KeyError is a quotation


class Named(dict[str, Any]):
    """A table by names, which says what it has where another is asked for."""

    elsewhere = ""

    def __missing__(self, key: object) -> Any:
        known = f" among {', '.join(f'`{each}`' for each in self)}" if self else ", nor anything else"
        meant = closest(key, [*self]) if isinstance(key, str) else ""
        meant = f"; did you mean `{meant}`?" if meant else self.elsewhere
        raise NoSuchKeyError(f"there is no {quoted(repr(key))[:60]}{known}{meant}")

    def __getattr__(self, name: str) -> Any:
        meant = f"; its elements are read by `[...]`, as `[{name!r}]`" if name in self else ""
        raise NoSuchNameError(f"{type(self).__name__!r} object has no attribute {name!r}{meant}")


class Parameters(Named):
    """Values of parameters, by name."""

    elsewhere = "; latents, lets and outputs are functions of rows: `fit.predict(data).mean(name)`"


class NoSuchNameError(GpdslError, AttributeError):
    """An attribute that a thing does not have; `hasattr` is false, as of any other that is missing."""


def spoken(kind: Kind) -> Kind:
    """A class of the public interface whose methods and attributes answer in words what they do not have."""
    called = next((each.__name__ for each in kind.__mro__ if each.__name__ in MADE), kind.__name__).lower()
    for name, method in getmembers(kind, isfunction):
        if not name.startswith("_") or (name == "__init__" and kind.__name__ in MADE):
            setattr(kind, name, answering(method, f"{called}.{name}"))
    kind.__getattr__ = _no_such_name  # type: ignore[attr-defined]
    if kind.__name__ in MADE:
        kind.__getitem__ = kind.__iter__ = _no_table  # type: ignore[attr-defined, index]
        if hasattr(kind, "__len__"):  # what has none is an element of arrays of objects
            kind.__array__ = _no_table  # type: ignore[attr-defined]
    return kind


def path_of(given: object, name: str) -> Path:
    """The path that an argument is. Raises CallError for anything else."""
    if not isinstance(given, str | PathLike):
        raise CallError(f"{name}: expected the path of a file, got {quoted(repr(given))[:60]}")
    return Path(given)


MADE = {
    "Model": ("models are made by `gpdsl.compile(text)`, and read by `gpdsl.load(path)`", "`model.info()` has {key}"),
    "Fit": (
        "fits are made by `model.fit(data)`, and read by `gpdsl.load_fit(path)`",
        "`fit.parameters[{key}]` is a parameter, `fit.predict(data)` has latents and outputs",
    ),
    "Prediction": (
        "predictions are made by `fit.predict(data)`",
        "there are `prediction.mean({key})`, `sd`, `quantile`, `draws`, and `prediction.to_frame()` for a table",
    ),
    "Simulation": (
        "simulations are made by `model.sample_prior()`",
        "`drawn.data[{key}]` is an input or output, `drawn.latents[{key}]` a latent, `drawn.table()` has all columns",
    ),
}
"""What nobody makes by hand: what does instead, and what has the elements that it is asked for by brackets."""


def _no_table(self: object, key: object = "y", **how: object) -> Any:
    kind = type(self).__name__ if type(self).__name__ in MADE else "Prediction"
    raise CallError(f"a {kind} is no table: {MADE[kind][1].format(key=quoted(repr(key))[:40])}")


def answering(function: Function, name: str = "") -> Function:
    """A function that refuses what its signature does not have by a CallError under this name."""

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except GpdslError:
            raise
        except Exception:
            try:
                given = signature(function).bind(*arguments, **keywords).arguments
            except TypeError as problem:
                called = type(arguments[0]).__name__ if function.__name__ == "__init__" else name or function.__name__
                if called in MADE:
                    raise CallError(f"{called}: {MADE[called][0]}") from None
                raise _refused(function, called, str(problem), keywords) from None
            wrong = ""
            with suppress(Exception):  # of what cannot be looked through, as sparse matrices of some versions
                wrong = _mistaken(function, given)
            if wrong:
                raise CallError(f"{name or function.__name__}: {wrong}") from None
            raise

    return call  # type: ignore[return-value]


KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda given: isinstance(given, str)),
    "bool": ("True or False", lambda given: type(given).__name__ in {"bool", "bool_"}),
    "int": ("a whole number", lambda given: isinstance(given, Integral) and not isinstance(given, bool)),
    "float": ("a number", lambda given: isinstance(given, Real) and not isinstance(given, bool)),
    "Mapping": ("a dictionary", lambda given: isinstance(given, Mapping)),
    "Iterable[str]": ("a list of texts", lambda given: _is_list(given) and all(isinstance(e, str) for e in given)),
    "Sequence[str]": ("a list of texts", lambda given: _is_list(given) and all(isinstance(e, str) for e in given)),
    "Sequence[float]": ("a list of numbers", lambda given: _is_list(given) and all(isinstance(e, Real) for e in given)),
    "Externals": ("a dictionary of functions", lambda given: isinstance(given, Mapping)),
    "Path": ("the path of a file", lambda given: isinstance(given, str | PathLike)),
    "PathLike": ("the path of a file", lambda given: isinstance(given, str | PathLike)),
    "Callable": ("a function", callable),
    "Data": ("rows, as of `fit.bind(data, None, outputs=True)`", lambda given: type(given).__name__ == "Data"),
    "Fit": ("a fit, as of `model.fit(data)`", lambda given: type(given).__name__ == "Fit"),
    "Model": ("a model, as of `gpdsl.load(path)`", lambda given: type(given).__name__ == "Model"),
    "None": ("None", lambda given: given is None),
}
"""By how annotations begin, what is meant in words, and whether that is given."""

ANYTHING: tuple[str, Callable[[Any], bool]] = ("anything", lambda given: True)


def _is_list(given: object) -> bool:
    several = isinstance(given, Iterable) and getattr(given, "shape", None) != ()  # an array of no axes is a number
    return several and not isinstance(given, str | bytes | Mapping)


def _mistaken(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Which argument of a call that failed is none of the things that its annotation names, in words."""
    for name, value in given.items():
        parameter = signature(function).parameters[name]
        parts = re.split(r"\s*\|\s*(?![^\[]*\])", str(parameter.annotation))  # not those within brackets
        kinds = [KINDS.get(each, KINDS.get(each.partition("[")[0], ANYTHING)) for each in parts]
        single = parameter.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        if single and value is not parameter.default and not any(right(value) for _, right in kinds):
            words = " or ".join(dict.fromkeys(word for word, _ in kinds if word != "None"))
            return f"`{name}`: expected {words}, got {quoted(repr(value))[:60]}"
        if isinstance(value, Mapping) and (odd := [key for key in value if not isinstance(key, str)]):
            return f"`{name}`: expected a dictionary whose keys are texts, got the key {quoted(repr(odd[0]))[:60]}"
    return ""


def _refused(function: Callable[..., Any], name: str, problem: str, keywords: Collection[str]) -> CallError:
    parameters = signature(function).parameters.values()
    taken = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD and each.name != "self"]
    open_ended = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    lacking = "missing a required argument" in problem  # an open end takes names of outputs, beside rows
    unknown = next((each for each in keywords if each not in taken and (lacking or not open_ended)), None)
    table = "; data are one table, `{'x': X, 'y': y}` by the names of the model" * (taken[:1] == ["data"])
    if unknown is None:
        meant = table if "positional" in problem else ""
        return CallError(f"{name}: {problem}; it is {name}({_written(parameters)}){meant}")
    found = unknown_argument(function, name, unknown)
    return CallError(f"{found}{table}") if lacking and "mean `data`" in str(found) else found


def unknown_argument(function: Callable[..., Any], name: str, unknown: str) -> CallError:
    """The error of a keyword that a function of this name does not know."""
    parameters = signature(function).parameters.values()
    meant = _meant(unknown, ARGUMENTS, [each.name for each in parameters])
    return CallError(f"{name} has no argument `{unknown}`; it is {name}({_written(parameters)}){meant}")


def _no_such_name(self: object, name: str) -> Any:
    kind = type(self)
    if hasattr(kind, name):  # a property that failed by an AttributeError of its own: let it say so
        return object.__getattribute__(self, name)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(text, name=name, obj=self)
    own = [each for each in object.__dir__(self) if not each.startswith("_")]
    meant = (
        _of_the_model(self, name)
        or _by_habit(name, NAMES, own)
        or _elsewhere((name, *NAMES.get(name.lower(), ())), own)
        or _meant(name, {}, own)
    )
    raise NoSuchNameError(f"{text}{meant}") if meant else AttributeError(text, name=name, obj=self)


def _of_the_model(self: object, name: str) -> str:
    """What has a quantity of the model that is asked for by a point: of predictions, `prediction.y`, and fits."""
    if type(self).__name__ == "Fit" and {"parameters", "program"} <= vars(self).keys():
        declared = vars(self)["program"].declarations
        if name in vars(self)["parameters"]:
            return f"; it is a parameter: `fit.parameters[{name!r}]`"
        if name in {*declared.latents, *declared.lets, *declared.outputs}:
            return f"; its values at rows are those of predictions: `fit.predict(data).mean({name!r})`"
    known = getattr(self, "names", ()) if "names" in dir(type(self)) and vars(self) else ()
    return f"; {MADE['Prediction'][1].format(key=repr(name))}" if name in known else ""


def no_such_function(name: str) -> AttributeError:
    """The error of a name that the package does not have."""
    if name in {"Regressor", "Classifier"}:
        meant = f"; it is `gpdsl.sklearn.{name}`"
    elif name == "fit":
        meant = "; models have it: `gpdsl.load(path).fit(data)`"
    elif name.startswith("read_"):
        meant = "; `model.fit` takes the path of a file, and frames of pandas and Polars as they are"
    else:
        meant = _elsewhere((name, *NAMES.get(name.lower(), ())), ())
    return NoSuchNameError(f"module 'gpdsl' has no attribute {name!r}{meant}")


def _elsewhere(words: Sequence[str], own: Collection[str]) -> str:
    """What else has it, where some word names a method of predictions or of fits."""
    for names, where in (
        (PREDICTED, "predictions have: `fit.predict(data)."),
        (FITTED, "fits have: `model.fit(data)."),
    ):
        if found := next((each for each in words if each in names - {*own}), ""):
            return f"; {where}{found}`"
    return ""


def _by_habit(word: str, habits: Mapping[str, Iterable[str]], own: Collection[str]) -> str:
    near = next((each for each in habits.get(word.lower(), ()) if each.partition(" ")[0] in own), "")
    return f"; did you mean `{near}`?" if near else ""


def _meant(word: str, habits: Mapping[str, Iterable[str]], own: Collection[str]) -> str:
    """What may have been meant, of what there is: by the words of other tools, then by its letters."""
    near = closest(word, own)
    return _by_habit(word, habits, own) or (f"; did you mean `{near}`?" if near else "")


def _written(parameters: Collection[Parameter]) -> str:
    """The arguments of a function, without types, and options of inference named as such."""
    from gpdsl.language.options import OPTIONS

    shown: list[str] = []
    spelt_out = {*OPTIONS} if {*OPTIONS} <= {each.name for each in parameters} else set()
    for each in parameters:
        if each.name in {"self", *spelt_out} or each.kind is Parameter.VAR_KEYWORD:
            continue
        if each.kind is Parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(each.name if each.default is Parameter.empty else f"{each.name}={each.default!r}")
    options = bool(spelt_out) or any(
        each.kind is Parameter.VAR_KEYWORD and each.name == "options" for each in parameters
    )
    return ", ".join([*shown, *["**options"] * options])
