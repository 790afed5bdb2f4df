"""Arguments and names that a model, a fit or a prediction does not have are refused with what stands in their place."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import gpdsl
from gpdsl.language import calls as words
from gpdsl.language.calls import CallError, NoSuchNameError, answering, spoken


@spoken
class Tool:
    """Something with methods, and a property that fails."""

    elbo = 1.0

    def cross_validate(self, data: object, folds: int = 5, *, seed: int = 0) -> tuple:
        return data, folds, seed

    def fails(self) -> object:
        return len(3)  # type: ignore[arg-type]

    @property
    def broken(self) -> object:
        return self.nothing_of_the_kind  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "keywords", "said"),
    [
        ((), {}, r"missing a required argument: 'data'; it is tool.cross_validate\(data, folds=5, \*, seed=0\)$"),
        ((1, 2, 3), {}, "too many positional arguments; it is"),
        ((1,), {"n_splits": 3}, r"has no argument `n_splits`; it is .*\); did you mean `folds`\?$"),
        ((), {"random_state": 3}, r"has no argument `random_state`; .*did you mean `seed`\?$"),
        ((1,), {"fold": 3}, r"no argument `fold`; .*did you mean `folds`\?$"),
        ((1,), {"verbose": 3}, r"no argument `verbose`; it is .*seed=0\)$"),
        ((1, 2), {"folds": 3}, "multiple values for argument 'folds'"),
    ],
)
def test_wrong_calls_say_what_the_call_is(arguments: tuple, keywords: dict, said: str) -> None:
    with pytest.raises(CallError, match=f"^tool.cross_validate.*{said}") as caught:
        Tool().cross_validate(*arguments, **keywords)
    assert isinstance(caught.value, gpdsl.GpdslError) and isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_right_calls_are_what_they_were() -> None:
    assert Tool().cross_validate(1, seed=2) == (1, 5, 2)
    assert inspect.signature(Tool.cross_validate).parameters["folds"].default == 5
    with pytest.raises(TypeError, match="has no len") as caught:  # an error inside is not one of the call
        Tool().fails()
    assert not isinstance(caught.value, gpdsl.GpdslError)


def test_names_of_other_tools_are_told_ours() -> None:
    tool = Tool()
    for name, said in (
        ("kfold", "did you mean `cross_validate`"),
        ("elbow", "`elbo`"),
        ("std", r"predict\(data\).sd`"),
    ):
        with pytest.raises(AttributeError, match=f"'Tool' object has no attribute '{name}'; .*{said}"):
            getattr(tool, name)
        assert not hasattr(tool, name)
    with pytest.raises(AttributeError, match="no attribute 'zzz'$"):
        tool.zzz  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):  # and not `broken`, which there is
        _ = tool.broken


def test_words_of_other_tools_lead_to_what_there_is() -> None:
    """Every right side of the tables is a name, or an argument, of the public interface."""
    kinds = (gpdsl.Model, gpdsl.Fit, gpdsl.Prediction)
    names = {name for kind in kinds for name in (*dir(kind), *getattr(kind, "__annotations__", ()))}
    assert {own for several in words.NAMES.values() for own in several} <= names
    public = [
        method for kind in kinds for name, method in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"
    ]
    public += [each for name in gpdsl.__all__ if inspect.isfunction(each := getattr(gpdsl, name))]
    arguments = {name for function in public for name in inspect.signature(function).parameters}
    assert {own.partition(" ")[0] for several in words.ARGUMENTS.values() for own in several} <= arguments


def test_options_of_a_fit_are_named_as_such() -> None:
    with pytest.raises(
        CallError,
        match=r"model.fit: too many .*; it is model.fit\(data, \*, .*resume=False, \*\*options\); data are one table",
    ):
        gpdsl.zoo("boston").fit([1.0], [2.0])  # type: ignore[misc]
    with pytest.raises(gpdsl.GpdslError, match="unknown option `sample_weight`; the model has them: `input w"):
        gpdsl.zoo("boston").fit({}, sample_weight=[1.0])  # type: ignore[call-arg]
    with pytest.raises(CallError, match=r"compile has no argument `source`; .*did you mean `text`\?"):
        gpdsl.compile(source="")  # type: ignore[call-arg]
    assert answering(len)([1]) == 1


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    text = "index s in 1..S\ninput site : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    model = gpdsl.compile(text + "param sd : positive = 0.1\ny ~ Normal(a[site], sd)\n")
    return model.fit({"site": ["a", "b", "a", "b"], "y": [0.0, 1.0, 0.1, 0.9]})


def test_what_nobody_makes_or_indexes_says_what_does(fit: gpdsl.Fit) -> None:
    prediction = fit.predict({"site": ["a"]})
    for call, said in (
        (lambda: gpdsl.Fit(), r"made by `model.fit\(data\)`, and read by `gpdsl.load_fit\(path\)`"),  # type: ignore[call-arg]
        (lambda: gpdsl.Prediction(), r"made by `fit.predict\(data\)`"),  # type: ignore[call-arg]
        (lambda: gpdsl.Model(), r"made by `gpdsl.compile\(text\)`"),  # type: ignore[call-arg]
        (lambda: gpdsl.Model("input x : real"), r"made by `gpdsl.compile\(text\)`"),  # type: ignore[arg-type]
        (lambda: prediction["y"], r"`prediction.mean\('y'\)`"),  # type: ignore[index]
        (lambda: fit.sd, r"has no attribute 'sd'; it is a parameter: `fit.parameters\['sd'\]`"),  # type: ignore[attr-defined]
        (lambda: fit.y, r"its values at rows are those of predictions: `fit.predict\(data\).mean\('y'\)`"),  # type: ignore[attr-defined]
        (lambda: fit["a"], r"`fit.parameters\['a'\]`"),  # type: ignore[index]
        (lambda: fit.save(3), "fit.save: expected the path of a file, got 3"),  # type: ignore[arg-type]
        (lambda: fit.report(None), "fit.report: expected the path of a file, got None"),  # type: ignore[arg-type]
        (lambda: gpdsl.load_fit(3), "load_fit: expected the path of a file"),  # type: ignore[arg-type]
        (lambda: gpdsl.load(3), "load: expected the path of a file"),  # type: ignore[arg-type]
    ):
        with pytest.raises((CallError, NoSuchNameError), match=said):
            call()


def test_levels_that_rows_have_and_the_fit_has_not_can_be_asked_for(fit: gpdsl.Fit) -> None:
    prediction = fit.predict({"site": ["new", "a"]})
    assert prediction.probability('site == "new"').tolist() == [1.0, 0.0]
    assert prediction.probability('site != "new" and site == "a"').tolist() == [0.0, 1.0]
    with pytest.raises(gpdsl.GpdslError, match='compared with "other"; expected one of a, b, new'):
        prediction.probability('site == "other"')
    numbered = gpdsl.compile(
        "index s in 1..S\ninput k : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
        "y ~ Normal(a[k], 0.1)\n"
    ).fit({"k": [101, 205, 101], "y": [0.0, 1.0, 0.1]})
    assert numbered.predict({"k": [307, 205]}).probability("k == 307").tolist() == [1.0, 0.0]


def test_a_rate_that_nothing_reads_is_told() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")
    data = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.5]}
    for how in ({}, {"optimizer": "lbfgs"}, {"engine": "ep"}):
        with pytest.warns(gpdsl.GpdslWarning, match="learning_rate = 0.1 is of Adam, and this fit takes steps as long"):
            model.fit(data, learning_rate=0.1, **how)
    model.fit(data, learning_rate=0.1, optimizer="adam", steps=2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fit", r"models have it: `gpdsl.load\(path\).fit\(data\)`"),
        ("predict", r"fits have: `model.fit\(data\).predict`"),
        ("Regressor", "it is `gpdsl.sklearn.Regressor`"),
        ("read_csv", "takes the path of a file"),
        ("nothing", "no attribute 'nothing'$"),
    ],
)
def test_what_the_package_does_not_have_is_told_where_it_is(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said) as caught:
        getattr(gpdsl, name)
    assert isinstance(caught.value, gpdsl.GpdslError) and not hasattr(gpdsl, name)
    assert not hasattr(gpdsl, "__wrapped__")


def test_arguments_that_are_something_else_are_told_what_is_expected(fit: gpdsl.Fit) -> None:
    """By the annotations of what was called, where the call has failed."""
    prediction, frame = fit.predict({"site": ["a", "b"]}), pd.DataFrame({"site": ["a"]})
    rows = {"site": ["a", "b", "a", "b"], "y": [0.0, 1.0, 0.1, 0.9]}
    calls: list[tuple[Any, str]] = [
        (lambda: fit.predict(X=frame), r"no argument `X`; it is .*; did you mean `data`\?; data are one table"),
        (lambda: gpdsl.format_text(3), "format_text: `text`: expected a text, got 3"),
        (lambda: gpdsl.compile("model m\noutput y : real\ny ~ Normal(0, 1)\n", externals=3), "expected a dictionary"),
        (lambda: fit.model.sample_prior(sizes=3), "model.sample_prior: `sizes`: expected a dictionary, got 3"),
        (lambda: fit.model.latex(standalone=np.zeros(2)), "`standalone`: expected True or False"),
        (lambda: fit.model.warnings(frame, columns=3), "model.warnings: `columns`: expected a dictionary, got 3"),
        (lambda: prediction.to_frame(names=3), "`names`: expected a list of texts, got 3"),
        (lambda: prediction.label([]), r"prediction.label: `name`: expected a text, got \[\]"),
        (lambda: prediction.pit("y", [0.0, 1.0], seed=-1), "seed = -1: expected a whole number"),
        (lambda: prediction.to_frame(names=np.array(1.0)), "`names`: expected a list of texts, got array"),
        (lambda: prediction.total("y").quantile(10**400), "expected probabilities from 0 to 1, got 1000"),
        (lambda: prediction.total("y").quantile(np.full((2, 2), 0.5)), "expected probabilities from 0 to 1, got"),
        (lambda: prediction.total("y").to_frame({0.5}), "expected probabilities from 0 to 1, got {0.5}"),
        (lambda: prediction.probability("y"), "compares nothing"),
        (lambda: fit.leave_future_out(rows), "the time. It could be a column of the"),
        (lambda: prediction.probability("y + 1"), "ends too early(.|\n)*write a condition"),
        (lambda: gpdsl.compile("model m", allow=np.array(1.0)), "allow: expected folders"),
        (lambda: gpdsl.score.sse(fit, {"site": ["a"], "y": [1.0]}), "all the same, and have no variance; use rmse"),
        (lambda: fit.save("a\0b"), "cannot write the fit to .*embedded null"),
        (lambda: fit.save("a\ud800"), "cannot write the fit to .*surrogates not allowed"),
        (lambda: gpdsl.retry("often"), "no policy for failures"),  # type: ignore[arg-type]
        (lambda: fit.model.fit(rows, engine="nuts"), "chains are `engine = mcmc`"),
        (lambda: fit.model.fit(rows, engine="SVGP"), "inducing points are an option of `vi`"),
        (lambda: fit.plot("y"), "the first argument is the data; write fit.plot\\(names='y'\\)"),
        (lambda: fit.plot("residuals"), "fit.plot\\(kind='residuals'\\)"),
        (lambda: fit.parameters.sd, r"its elements are read by .*\['sd'\]"),  # type: ignore[attr-defined]
        (lambda: fit.model.fit(np.zeros((4, 1))), "as {'x': X, 'y': y}"),
        (lambda: gpdsl.register_distribution(), "missing a required argument"),  # type: ignore[call-arg]
    ]
    for call, said in calls:
        with pytest.raises(gpdsl.GpdslError, match=said):
            call()
    with pytest.raises(ZeroDivisionError):  # of the user's own, whose arguments are as they should be
        fit.model.fit({"site": ["a", "b"], "y": [0.0, 1.0]}, callback=lambda report: 1 / 0)


def test_what_cannot_be_looked_through_leaves_the_error_as_it_is() -> None:
    """As a sparse matrix of SciPy before 1.15, which raises where its rows are asked for."""

    class Sparse(Iterable[float]):
        def __iter__(self) -> Iterator[float]:
            raise NotImplementedError

    def fit(x: Sequence[float]) -> None:
        raise ValueError("dense data is required")

    with pytest.raises(ValueError, match="dense data is required"):
        answering(fit)(Sparse())  # type: ignore[arg-type]


def test_tables_say_what_they_have(fit: gpdsl.Fit) -> None:
    drawn, prediction = fit.model.sample_prior(rows=3, sizes={"S": 2}), fit.predict({"site": ["a"]})
    tables: list[tuple[Mapping[str, Any], str, str]] = [
        (fit.parameters, "b", "no 'b' among `sd`; latents, lets and outputs are functions of rows: `fit.predict"),
        (copy.deepcopy(fit.parameters), "sds", "did you mean `sd`"),
        (prediction.labels, "y", "no 'y' among `site`"),
        (prediction.times, "site", "no 'site', nor anything else"),
        (drawn.data, "z", "no 'z' among `site`, `y`"),
        (drawn.latents, "f", "no 'f' among `a`"),
        (fit.model.info(), "input", "did you mean `inputs`"),
    ]
    for table, name, said in tables:
        with pytest.raises(KeyError) as caught:
            table[name]
        assert said in str(caught.value) and isinstance(caught.value, gpdsl.GpdslError) and name not in table
    doubled = jax.tree.map(lambda value: 2 * value, fit.parameters)  # trees of arrays, as any dictionary
    assert doubled["sd"] == 2 * fit.parameters["sd"]
    for made in (prediction, drawn, fit):
        with pytest.raises(CallError, match="is no table"):
            pd.DataFrame(made)
    assert np.array([fit, fit], dtype=object).shape == (2,)


def test_groups_of_a_total_are_called_as_their_column(fit: gpdsl.Fit) -> None:
    prediction = fit.predict({"site": ["a", "b", "a"]})
    assert prediction.total("y", by="site").to_frame().index.name == "site"
    assert prediction.total("y", by=["site"]).to_frame().index.names == ["site"]
    assert prediction.total("y", by=["u", "v", "u"]).to_frame().index.name == "group"


def test_quantiles_of_a_frame_may_be_an_array(fit: gpdsl.Fit) -> None:
    prediction = fit.predict({"site": ["a"]})
    kinds: list[Any] = [0.5, [0.5], np.array([0.5]), Fraction(1, 2), Decimal("0.5")]
    frames = [prediction.to_frame(quantiles=each) for each in kinds]
    assert all(each.equals(frames[0]) and "y_q0.5" in each for each in frames)
    sums = [prediction.total("y").to_frame(quantiles=each) for each in kinds]
    assert all(each.equals(sums[0]) and "q0.5" in each for each in sums)


def test_averages_over_parameters_refuse_what_others_do() -> None:
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\nparam s : positive ~ LogNormal(-1, 1)\n"
    data = {"x": np.arange(6.0), "y": np.sin(np.arange(6.0))}
    fit = gpdsl.compile(text + "y ~ Normal(f, s)\n").fit(data, hyperparameters="integrated")
    prediction: Any = fit.predict(data)
    for call, said in (
        (lambda: prediction.draws("y", -1), "expected a positive number of draws, got -1"),
        (lambda: prediction.sample("y", 2, seed="a"), "seed = 'a': expected a whole number"),
        (lambda: prediction.probability("y > 0", seed=-1), "seed = -1: expected a whole number"),
        (lambda: prediction.total("y", count=0), "expected a positive number of draws, got 0"),
        (lambda: prediction.total("y").to_frame(quantiles="a"), "expected probabilities from 0 to 1, got a"),
        (lambda: prediction.sample(), r"it is prediction.sample\(name, count, seed=0\)"),
    ):
        with pytest.raises(gpdsl.GpdslError, match=said):
            call()


class Pairs(Mapping[Any, Any]):
    """A table whose keys may be anything, as a caller's own may."""

    def __init__(self, *pairs: tuple[Any, Any]) -> None:
        self.pairs = pairs

    def __iter__(self) -> Iterator[Any]:
        return iter(key for key, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, key: Any) -> Any:
        return next(value for other, value in self.pairs if other == key)


def test_rows_left_out_registrations_and_keys_are_told_as_all_else() -> None:
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")
    data = {"x": np.arange(6.0), "y": np.sin(np.arange(6.0))}
    fit = model.fit(data)
    left: Any = fit.loo(data)
    prediction, kernel = fit.predict(data), "kernel damped(r; ell) = exp(-r/ell)"
    lists, whole = Pairs((["x"], 1)), Pairs(("ell", "positive"), (1, "positive"))
    register: Any = gpdsl
    for call, said in (
        (lambda: left.pit(["y"]), r"leaveoneout.pit: `name`: expected a text, got \['y'\]"),
        (lambda: left.pit("z"), "pit of `z`: expected an output, of which there are `y`"),
        (lambda: left.pit("y", seed="a"), "seed = 'a': expected a whole number"),
        (lambda: left.pits("y"), "did you mean `pit`"),
        (lambda: register.register_inducing("u"), r"it is register_inducing\(name, features, \*, kernels, columns=1"),
        (lambda: register.register_inducing("u", len, kernels=3), "`kernels`: expected a list of texts, got 3"),
        (lambda: register.register_kernel("damped", kernel, parameters=whole), "keys are texts, got the key 1"),
        (lambda: model.fit(data, columns=lists), r"model.fit: `columns`: .*keys are texts, got the key \['x'\]"),
        (lambda: register.compare(lists, data), r"compare: `fits`: .*keys are texts, got the key \['x'\]"),
        (lambda: register.opaque(len, executor=np.ones(2)), "executor"),
        (lambda: register.opaque(len, policy=np.ones(2)), "policy"),
        (lambda: fit.beliefs(data), "fit.beliefs: `data`: expected rows, as of `fit.bind"),  # type: ignore[arg-type]
        (lambda: prediction.sample("y", 10**400), r"more than 1e\+100 draws take .* GiB"),
        (lambda: prediction.quantile("y", 10**400), "probabilities must lie strictly between 0 and 1"),
    ):
        with pytest.raises(gpdsl.GpdslError, match=said):
            call()
    np.testing.assert_array_equal(left.pit("y"), left.pit("y", seed=np.int64(0)))
