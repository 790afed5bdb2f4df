"""Engines that users register: the Laplace approximation of the examples, against dense algebra and quadrature."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import poisson

import gpdsl
from gpdsl import testing
from gpdsl.engines import LogJoint, Problem, Result
from gpdsl.errors import GpdslError
from gpdsl.inference import infer
from gpdsl.language import options as engine_names
from gpdsl.testing import check_engine

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "laplace_engine.py"

ONE_ROW = """
input x : real
output n : count
latent f(x) ~ GP(0, RBF(1))
n ~ Poisson(exp(f))
infer laplace
"""


@pytest.fixture(autouse=True)
def laplace() -> Iterator[None]:
    """The example's engine, for one test."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("laplace_engine", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["laplace_engine"] = module
    spec.loader.exec_module(module)
    yield
    infer._registered.clear()
    engine_names._engines.pop("laplace")
    sys.modules.pop("laplace_engine")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", "vi", "ep"])
def test_engines_hold_what_all_of_them_do(name: str) -> None:
    check_engine(name)


def a_fit(text: str, asked: dict[str, Any], wrong: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Any:
    """What an engine makes, but for what is wrong with it."""
    interrupted = False
    if "callback" in asked:
        try:
            asked["callback"](None)
        except KeyboardInterrupt:
            interrupted = True
    known = {
        "elbo": -3.0,
        "message": "converged",
        "interrupted": interrupted,
        "history": [1],
        "parameters": {"s2": 1.0},
    }
    known |= {"mean": 0.3, "variance": 0.2, "save": lambda path: None} | wrong(text, asked)
    means, variances = np.full(7, known.pop("mean")), np.full(7, known.pop("variance"))
    predicted = SimpleNamespace(mean=lambda name: means, variance=lambda name: variances)
    return SimpleNamespace(**known, predict=lambda new: predicted)


def where(key: str, *texts: str, **wrong: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """What is wrong with fits of such models that are asked for something."""
    return lambda text, asked: wrong if key in asked and (not texts or text in texts) else {}


def of_itself(text: str, asked: dict[str, Any]) -> bool:
    """Whether it is the fit of counts that is made again."""
    return text == testing.COUNTS and "diagnose" in asked and not {"callback", "start"} & set(asked)


def own(text: str, **wrong: Any) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """What is wrong with the engine alone where parameters are held or there are none."""
    return lambda at, asked: wrong if at == text and asked.get("engine") == "mine" and "fixed" in asked else {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (where("engine"), ""),
        (where("engine", testing.CLASSES, elbo=np.nan), "the value nan is not finite"),
        (where("engine", testing.CLASSES, message=""), "the end of the search is not said"),
        (where("engine", testing.CLASSES, history=[]), "no step was reported to the monitor"),
        (where("engine", testing.CLASSES, parameters={"s2": -1.0}), "a positive parameter is not"),
        (where("engine", testing.CLASSES, mean=np.inf), "predictions are not finite"),
        (where("engine", testing.CLASSES, variance=0.0), "a variance is not positive"),
        (own(testing.REGRESSION, elbo=-3.0002), "is 0.0002 from the log evidence"),
        (own(testing._TWO, mean=0.3002), "are 0.0002 from the exact ones"),
        (own(testing.KINKED, elbo=2.1), "at kinks the value is 2.1, the bound -3.0"),
        (own(testing.KINKED, elbo=1.9), ""),
        (lambda text, asked: {"mean": 0.31} if of_itself(text, asked) else {}, "two fits of the same seed differ"),
        (where("path", mean=0.31), "a loaded fit predicts otherwise"),
        (where("callback", interrupted=False), "an interrupt between two steps did not end the fit"),
        (where("callback", mean=np.nan), "an interrupted fit does not predict"),
        (where("start", elbo=-3.001), "another one ends lower"),
    ],
)
def test_what_engines_hold_is_looked_at(wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lambda text: SimpleNamespace(fit=lambda data, **asked: a_fit(text, asked, wrong))  # noqa: E731
    monkeypatch.setattr(gpdsl, "compile", made)
    monkeypatch.setattr(gpdsl, "load_fit", lambda path: a_fit("", {"path": path}, wrong))
    if not said:
        check_engine("mine")
        return
    with pytest.raises(AssertionError, match=re.escape(said)):
        check_engine("mine")
    if "exact" in said or "evidence" in said:
        check_engine("mine", exact=False)


def test_the_evidence_of_one_row_is_laplace_s(rng: np.random.Generator) -> None:
    """log p(n | f*) p(f*) + log(2 pi / curvature) / 2 at the mode, near the integral."""
    fit = gpdsl.compile(ONE_ROW).fit({"x": [0.0], "n": [4]})
    mode = fit.predict({"x": [0.0]}).mean("f")[0]
    assert 4 - np.exp(mode) - mode == pytest.approx(0.0, abs=1e-6)
    height = poisson.logpmf(4, np.exp(mode)) - mode**2 / 2
    assert fit.elbo == pytest.approx(height - 0.5 * np.log(1 + np.exp(mode)), abs=1e-6)
    true = quad(lambda f: poisson.pmf(4, np.exp(f)) * np.exp(-(f**2) / 2) / np.sqrt(2 * np.pi), -8, 8)[0]
    assert fit.elbo == pytest.approx(np.log(true), abs=0.05)


KINKED = ONE_ROW.replace("count", "real").replace("Poisson(exp(f))", "Laplace(f, 0.3)")


def test_it_does_not_converge_where_there_is_no_curvature() -> None:
    """At kinks and at jumps it does not fit at all, and no mode with a slope is taken for one."""
    x = np.linspace(-2, 2, 15)
    for text in (KINKED, KINKED.replace("Laplace(f", "Normal(if f > 0 then 1 else 0")):
        with pytest.raises(GpdslError, match="the likelihood of n has kinks or jumps in the latents"):
            gpdsl.compile(text).fit({"x": x, "n": np.sin(2 * x)})
    gpdsl.register_engine("laplace", sys.modules["laplace_engine"].Laplace)
    with pytest.raises(GpdslError, match="at none of the parameters tried did Newton's method end at a mode"):
        gpdsl.compile(KINKED).fit({"x": x, "n": np.sin(2 * x)})


def test_no_evidence_is_found_where_a_curvature_vanishes() -> None:
    """Learnt parameters went to where a mode of Student's t disappears: 3.2 nats above EP there."""
    text = KINKED.replace("GP(0, RBF(1))", "GP(0, s2 * RBF(ell))").replace("Laplace(f", "StudentT(4, f")
    priors = "".join(f"param {name} : positive = 1 ~ LogNormal(0, 1)\n" for name in ("s2", "ell"))
    x = np.linspace(-2, 2, 15)
    data = {"x": x, "n": np.sin(2 * x) + 0.3 * np.random.default_rng(0).laplace(size=15)}
    model = gpdsl.compile(priors + text)
    fit = model.fit(data)
    found = {name: float(value) for name, value in fit.parameters.items()}
    there = model.fit(data, engine="ep", init=found, fixed=list(found))
    assert -3.0 < fit.elbo - there.elbo < 0.5


class Returns:
    """A search whose methods return what they are told to."""

    def __init__(self, **said: object) -> None:
        for name in ("run", "state", "finish"):
            setattr(self, name, lambda name=name: said[name](self.problem) if name in said else "converged")

    def __call__(self, problem: Problem) -> Returns:
        self.problem = problem
        return self


def a_result(**changed: object) -> Returns:
    """A search that ends with the prior, but for what is changed in it."""

    def finish(problem: Problem) -> Result:
        joint = LogJoint(problem)
        parts = {"mean": joint.start(), "root": np.eye(joint.dimension), "value": -1.0, "learnt": {}} | changed
        return joint.gaussian(**parts)

    return Returns(finish=finish)


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (lambda: None, "TypeError: .*takes 0 positional arguments"),
        (lambda problem: None, "expected a search with run, state, finish, not nothing"),
        (lambda problem: 3, "expected a search with run, state, finish, not int 3"),
        (Returns(run=lambda problem: None), "a text from `run` that says how the search ended, not nothing"),
        (Returns(run=lambda problem: {}["zz"]), "KeyError: 'zz'"),
        (Returns(finish=lambda problem: None), "expected a gpdsl.engines.Result from `finish`, not nothing"),
        (a_result(mean=np.zeros(3)), r"the mean has shape \(3,\), expected \(1,\)"),
        (a_result(root=np.ones(1)), r"the root has shape \(1,\), expected \(1, 1\)"),
        (a_result(mean=np.full(1, np.nan)), "finite parameters, means and roots from `finish`"),
        (a_result(learnt={"zz": 1.0}), "expected parameters of shapes {} from `finish`, not dict {'zz': "),
        (a_result(value="high"), "expected a number as the value from `finish`, not str 'high'"),
    ],
)
def test_what_an_engine_does_wrong_names_it(begin: Any, said: str) -> None:
    gpdsl.register_engine("laplace", begin)
    with pytest.raises(GpdslError, match=f"^engine = laplace: {said}|^engine = laplace: expected {said}"):
        gpdsl.compile(ONE_ROW).fit({"x": [0.0], "n": [4]})


def test_what_an_engine_raises_is_the_cause_and_fails_its_check() -> None:
    gpdsl.register_engine("laplace", Returns(run=lambda problem: 1 / 0))
    with pytest.raises(GpdslError, match="engine = laplace: ZeroDivisionError") as caught:
        gpdsl.compile(ONE_ROW).fit({"x": [0.0], "n": [4]})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(AssertionError, match="engine = laplace: ZeroDivisionError"):
        check_engine("laplace")


def test_what_it_does_not_cover_is_said(rng: np.random.Generator) -> None:
    model, data = gpdsl.compile(ONE_ROW), {"x": rng.normal(size=9), "n": rng.poisson(2.0, 9)}
    with pytest.raises(GpdslError, match="engine = laplace does not cover this fit: .*leave batch and posterior out"):
        model.fit(data, batch=3)
    with pytest.raises(GpdslError, match="power = 0.5 belongs to engine = ep"):
        model.fit(data, power=0.5)
    gpdsl.register_engine("laplace", lambda problem: None, against=lambda program: "of its mood")  # type: ignore[arg-type, return-value]
    with pytest.raises(GpdslError, match="engine = laplace does not cover this fit: of its mood"):
        model.fit(data)


@pytest.mark.parametrize("name", ["vi", "two words", "", "auto", "latent", 3])
def test_names_that_engines_cannot_have(name: Any) -> None:
    with pytest.raises(GpdslError, match="expected a name|choose another name"):
        gpdsl.register_engine(name, lambda problem: None)  # type: ignore[arg-type, return-value]


def test_a_fit_predicts_where_its_engine_is_not_registered(tmp_path: Path) -> None:
    model, new = gpdsl.compile(ONE_ROW), {"x": np.linspace(-1, 1, 3)}
    fit = model.fit({"x": [0.0], "n": [4]})
    fit.save(tmp_path / "fit.gpfit")
    infer._registered.clear()
    engine_names._engines.pop("laplace")
    try:
        found = gpdsl.load_fit(tmp_path / "fit.gpfit")
        assert np.array_equal(found.predict(new).mean("n"), fit.predict(new).mean("n"))
        assert found.options.engine == "laplace" and "log evidence" in found.summary()
        assert "laplace" not in engine_names.ENGINES
        found.save(tmp_path / "again.gpfit")
        assert gpdsl.load_fit(tmp_path / "again.gpfit").elbo == fit.elbo
        vi = ONE_ROW.replace("infer laplace", "")
        with pytest.raises(GpdslError, match="expected one of vi, ep, qsgp, mcmc[a-z, ]*; others are registered first"):
            gpdsl.compile(vi).fit({"x": [0.0], "n": [4]}, engine="laplace")
        with pytest.raises(GpdslError, match="E323"):
            gpdsl.compile(ONE_ROW)
        with pytest.raises(GpdslError, match="laplace"):  # what is registered is asked, and says why not
            model.fit({"x": [0.0], "n": [4]})
    finally:
        engine_names._engines["laplace"] = ""


def test_explain_says_only_what_is_so() -> None:
    shown = gpdsl.compile(ONE_ROW).explain({"x": [0.0], "n": [4]})
    assert "laplace: Laplace's approximation at the mode" in shown and "f: 1 process(es) over x" in shown
    assert not [each for each in ("SAVIGP", "closed form", "likelihood", "KL term", "cost") if each in shown]


def test_another_fit_is_no_initial_value() -> None:
    model, data = gpdsl.compile(ONE_ROW), {"x": [0.0], "n": [4]}
    with pytest.raises(GpdslError, match="start=fit") as caught:
        model.fit(data, init=model.fit(data))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500
