"""Distributions from outside: checked when registered, and then as good as those of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy import integrate, special, stats

import gpdsl
from gpdsl.distributions import enter
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.results import conditional
from gpdsl.symbolic import registered
from gpdsl.symbolic.densities import DENSITIES, Density
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.numeric import evaluate
from gpdsl.symbolic.registered import Registration, law_of
from gpdsl.testing import check_distribution
from tests.inference.problems import unlearnt

PARAMETERS = {"location": "real", "scale": "positive"}
DENSITY = "-(y - location)/scale - exp(-(y - location)/scale) - log(scale)"
MEAN, CDF = "location + 0.5772156649015329 * scale", "exp(-exp(-(y - location)/scale))"
AT = {"location": np.array([-1.0, 0.5]), "scale": np.array([0.3, 2.0])}


def gumbel(**more: Any) -> None:
    gpdsl.register_distribution("Gumbel", PARAMETERS, "real", DENSITY, **more)


@pytest.mark.parametrize("name", ["Normal", "Beta", "Poisson", "Bernoulli"])
def test_distributions_of_the_table_hold(name: str) -> None:
    check_distribution(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DENSITIES))
def test_all_distributions_of_the_table_hold(name: str) -> None:
    check_distribution(name)


BROKEN: dict[str, tuple[Callable[[Density], dict[str, Any]], str]] = {
    "mass": (lambda d: {"log_density": lambda y, a: d.log_density(y, a) + sp.log(2)}, "integrates to 2,"),
    "mean": (lambda d: {"mean": lambda a: 2 * a["shape"] / a["rate"]}, "its mean is 2,"),
    "cdf": (lambda d: {"cdf": lambda y, a: d.cdf(y, a) ** 1.1}, "its cdf at"),  # type: ignore[misc]
    "draws": (lambda d: {"draw": lambda g, a: 1.2 * d.draw(g, a)}, "of its draws"),
}


@pytest.mark.parametrize("part", BROKEN)
def test_what_is_wrong_is_seen(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, (change, said) = DENSITIES["Gamma"], BROKEN[part]
    parts = {name: getattr(right, name) for name in ("log_density", "mean", "variance", "cdf", "draw")}
    monkeypatch.setitem(DENSITIES, "Gamma", Density(**parts | change(right)))
    with pytest.raises(AssertionError, match=said):
        check_distribution("Gamma")


def test_only_distributions_of_numbers_are_checked() -> None:
    with pytest.raises(gpdsl.GpdslError, match=r"`Mixture` is no distribution of one number; expected one of Normal"):
        check_distribution("Mixture")


@pytest.mark.parametrize(
    "given", [{}, {"mean": MEAN, "cdf": CDF}, {"cdf": lambda y, m, s: np.exp(-np.exp((m - y) / s))}]
)
def test_moments_and_draws_are_those_of_scipy(given: dict[str, Any]) -> None:
    gumbel(**given)
    reference = stats.gumbel_r(AT["location"], AT["scale"])
    mean, variance = conditional.moments(Law("Gumbel", AT))
    np.testing.assert_allclose(mean, reference.mean(), rtol=1e-9)
    np.testing.assert_allclose(variance, reference.var(), rtol=1e-8)
    many = {name: np.full(2000, value[1]) for name, value in AT.items()}
    drawn = conditional.draw(Law("Gumbel", many), np.random.default_rng(1))
    assert stats.kstest(drawn, stats.gumbel_r(0.5, 2.0).cdf).pvalue > 1e-3


GIVEN = dict.fromkeys(("mean", "variance", "cdf", "quantile", "sampler"))
AT_EDGES = np.array([-0.5, 0.0, 0.3, 1.0, 1.7, 40.0])


@pytest.mark.parametrize(
    ("support", "kind", "density", "cdf", "reference"),
    [
        ("positive", "positive", "log(k) + (k - 1)*log(y) - y^k", "1 - exp(-y^k)", stats.weibull_min),
        ("unit", "positive", "log(k) + (k - 1)*log(y)", "y^k", lambda k: stats.beta(k, 1)),
        (
            "real",
            "positive",
            "-abs(y)/k - log(2*k)",
            lambda y, k: stats.laplace.cdf(y / k),
            lambda k: stats.laplace(0, k),
        ),
        ("count", "unit", "log(k) + y * log1p(-k)", "1 - (1 - k)^(y + 1)", lambda k: stats.geom(k, loc=-1)),
    ],
    ids=["Weibull", "power", "Laplace", "geometric"],
)
def test_mathematics_of_a_registration(support: str, kind: str, density: str, cdf: Any, reference: Any) -> None:
    """In the support, at its ends and beyond; by what is given, and by integrals of the density."""
    registration, k = Registration("W", {"k": kind}, support), np.array([0.8, 0.35])
    known = reference(k[:, None])
    law, tails = law_of(registration, density, GIVEN | {"cdf": cdf})
    plain, nothing = law_of(registration, density, GIVEN)
    assert law.cdf is not None and plain.cdf is None and nothing is None
    np.testing.assert_allclose(law.cdf(AT_EDGES, {"k": k[:, None]}), known.cdf(AT_EDGES), rtol=1e-12)
    assert plain.moments is not None and plain.quantile is not None
    for found, expected in zip(plain.moments({"k": k}), (known.mean(), known.var()), strict=True):
        np.testing.assert_allclose(found, expected[:, 0], rtol=1e-6, atol=1e-9)
    p = np.array([0.13, 0.72])
    np.testing.assert_allclose(plain.quantile(p, {"k": k}), reference(k).ppf(p), rtol=1e-6)
    again = plain.quantile(p[::-1], {"k": k})  # of the same distributions: kept ones
    np.testing.assert_allclose(again, reference(k).ppf(p[::-1]), rtol=1e-6)
    drawn = plain.draw(np.random.default_rng(0), {"k": np.full(4000, 0.8)})
    one = reference(0.8)
    assert np.mean(drawn <= one.ppf(0.3)) == pytest.approx(one.cdf(one.ppf(0.3)), abs=0.03)
    assert (tails is not None) == (support in ("positive", "unit"))
    if tails is not None:
        a = {"k": sp.Float(0.8)}
        assert tails.positive == (support == "positive")
        assert evaluate(tails.below(sp.Float(0.2), a), {}) == pytest.approx(one.logcdf(0.2), rel=1e-12)
        assert evaluate(tails.above(sp.Float(0.2), a), {}) == pytest.approx(one.logsf(0.2), rel=1e-12)
        for low, high in ((0.1, 0.2), (0.8, 0.9)):
            expected = np.log(one.cdf(high) - one.cdf(low))
            found = evaluate(tails.between(sp.Float(low), sp.Float(high), a), {})
            assert found == pytest.approx(expected, rel=1e-10)


def test_distributions_are_integrated_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "AT_ONCE", 2)
    k, p = np.array([[0.8, 0.35, 1.7], [2.5, 0.6, 1.2]]), np.array([[0.1], [0.7]])
    law = law_of(Registration("W", {"k": "positive"}, "unit"), "log(k) + (k - 1)*log(y)", GIVEN)[0]
    assert law.moments is not None and law.quantile is not None
    np.testing.assert_allclose(law.moments({"k": k}), [stats.beta(k, 1).mean(), stats.beta(k, 1).var()], rtol=1e-6)
    np.testing.assert_allclose(law.quantile(p, {"k": k}), stats.beta(k, 1).ppf(p), rtol=1e-6)


def test_what_is_given_counts_before_integrals() -> None:
    """Values that the density does not have, each in its place."""
    registration, a = Registration("W", {"k": "positive", "m": "real"}, "real"), {"k": np.array([2.0]), "m": np.ones(1)}
    given = {
        "mean": "3 * k - m",
        "variance": lambda k, m: k**2 + m,
        "quantile": lambda p, k, m: p * k - m,
        "sampler": lambda generator, k, m: generator.normal(size=k.shape) * 0 + k / (1 + m),
    }
    law, _ = law_of(registration, "-(y - m)^2 / (2 * k^2) - log(k) - log(2*pi)/2", GIVEN | given)
    assert law.moments is not None and law.quantile is not None and law.mean is not None
    assert law.variance is None and law.sampled
    np.testing.assert_allclose(np.ravel(law.moments(a)), [5.0, 5.0])
    assert law.mean({"k": sp.Integer(4), "m": sp.Integer(7)}) == 5
    np.testing.assert_allclose(law.quantile(np.array([0.25]), a), [-0.5])
    np.testing.assert_allclose(law.draw(np.random.default_rng(0), a), [1.0])
    half, _ = law_of(registration, "-(y - m)^2 / (2 * k^2) - log(k) - log(2*pi)/2", GIVEN | {"mean": "3 * k"})
    assert half.moments is not None and not half.sampled
    np.testing.assert_allclose(np.ravel(half.moments(a)), [6.0, 4.0], rtol=1e-9)


def test_a_function_of_symbols_is_the_same_density() -> None:
    gumbel()
    y, m, s = sp.Symbol("y", real=True), sp.Symbol("m", real=True), sp.Symbol("s", positive=True)
    text = DENSITIES["Gumbel"].log_density(y, {"location": m, "scale": s})
    gpdsl.register_distribution(
        "Gumbel", PARAMETERS, "real", lambda y, m, s: -(y - m) / s - sp.exp(-(y - m) / s) - sp.log(s)
    )
    assert sp.simplify(DENSITIES["Gumbel"].log_density(y, {"location": m, "scale": s}) - text) == 0


def test_bounds_leave_the_moments_of_what_is_between() -> None:
    gumbel(cdf=CDF)
    inner = Law("Gumbel", {name: value[1:] for name, value in AT.items()})
    pdf, bounds = stats.gumbel_r(0.5, 2.0).pdf, {"lower": np.array([-1.0]), "upper": np.array([3.0])}
    mass, first = (integrate.quad(lambda y, k=k: y**k * pdf(y), -1, 3)[0] for k in (0, 1))
    np.testing.assert_allclose(conditional.moments(Law("Truncated", bounds, (inner,)))[0], first / mass, rtol=1e-6)
    below, above = stats.gumbel_r(0.5, 2.0).cdf(-1), stats.gumbel_r(0.5, 2.0).sf(3)
    recorded = conditional.moments(Law("Censored", bounds, (inner,)))[0]
    np.testing.assert_allclose(recorded, first - below + 3 * above, rtol=1e-6)


MODEL = """
input x : real
output y : {kind}
param s : positive = 0.3 ~ LogNormal(0, 1)
param b : real = 0 ~ {prior}(0, 1)
{more}
latent f(x) ~ GP(0, RBF(0.7))
{left} ~ {law}
"""
NEW = {"x": np.array([-0.4, 0.9])}


def fitted(law: str, kind: str = "real", left: str = "y", more: str = "", prior: str = "Gumbel") -> np.ndarray:
    """The bound, means, variances, quantiles and log densities of a fit."""
    rng, x = np.random.default_rng(0), np.linspace(-2, 2, 12)
    y = np.sin(2 * x) + 0.3 * rng.gumbel(size=12)
    data = {"x": x, "y": np.exp(y) if kind == "positive" else y}
    text = MODEL.format(kind=kind, left=left, law=law, more=more, prior=prior)
    fit = gpdsl.compile(text).fit(data, fixed=["s"])
    p = fit.predict(NEW)
    densities = fit.log_predictive_density({name: value[:2] for name, value in data.items()})
    return np.concatenate([[fit.elbo], p.mean("y"), p.variance("y"), p.quantile("y", 0.9), densities])


def test_a_registered_distribution_is_a_likelihood_and_a_prior() -> None:
    """With all it may be given, with its density alone, and as a `density` of the file: one and the same fit."""
    gumbel(mean=MEAN, variance="pi^2 * scale^2 / 6", cdf=CDF)
    given = fitted("Gumbel(f + b, s)")
    gumbel()
    np.testing.assert_allclose(given, fitted("Gumbel(f + b, s)"), rtol=1e-5)
    written = fitted("d(f + b, s)", more=f"density d(y | location, scale) = {DENSITY}")
    np.testing.assert_allclose(given, written, rtol=1e-5)


@pytest.mark.slow
def test_transforms_and_bounds_that_say_nothing_change_nothing() -> None:
    gumbel(cdf=CDF)
    plain = fitted("Gumbel(f + b, s)")
    np.testing.assert_allclose(plain, fitted("Truncated(Gumbel(f + b, s), lower = -60)"), rtol=1e-5)
    warped = fitted("Gumbel(f + b, s)", "positive", "log(y)")
    np.testing.assert_allclose(warped[5:7], np.exp(plain[5:7]), rtol=1e-4)
    gumbel()
    np.testing.assert_allclose(warped, fitted("Gumbel(f + b, s)", "positive", "log(y)"), rtol=1e-5)


def test_it_is_simulated_and_printed() -> None:
    gumbel(latex="G")
    text = MODEL.format(
        kind="real", left="y", law="Mixture(0.8, Gumbel(f, 0.2), Normal(0, 1))", more="", prior="Gumbel"
    )
    model = gpdsl.compile(text)
    assert np.isfinite(model.sample_prior({"x": np.linspace(0, 1, 5)}, seed=1).data["y"]).all()
    assert r"\mathrm{G}(f" in model.latex().replace(" ", "")


def test_a_saved_fit_asks_for_its_distribution(tmp_path: Path) -> None:
    gumbel(mean=MEAN)
    text = (
        "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Mixture(0.9, Normal(f, 1), Gumbel(f, 0.3))\n"
    )
    fit = gpdsl.compile(text).fit({"x": np.arange(3.0), "y": np.zeros(3)})
    fit.save(tmp_path / "a.gpfit")
    assert gpdsl.load_fit(tmp_path / "a.gpfit").elbo == fit.elbo
    prediction = fit.predict({"x": np.arange(3.0)})
    gumbel()
    assert gpdsl.load_fit(tmp_path / "a.gpfit").elbo == fit.elbo
    gpdsl.register_distribution("Gumbel", PARAMETERS, "real", "-(y - location)^2/(2*scale^2) - log(2*pi*scale^2)/2")
    with pytest.raises(gpdsl.GpdslError, match=r"with Gumbel\(location: .*\n  and here Gumbel\(.* is registered"):
        gpdsl.load_fit(tmp_path / "a.gpfit")
    for asked in (lambda: fit.predict({"x": np.arange(3.0)}), lambda: prediction.variance("y"), prediction.to_frame):
        with pytest.raises(gpdsl.GpdslError, match=r"with Gumbel\(location: .*\n  and `Gumbel` is registered as"):
            asked()
    enter("Gumbel", None, None, None)
    with pytest.raises(gpdsl.GpdslError, match=r"no `Gumbel` is registered; register it first \(gpdsl.register_dist"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_counts_and_proportions() -> None:
    gpdsl.register_distribution(
        "Geometric", {"p": "unit"}, "count", "log(p) + y * log1p(-p)", mean="(1 - p) / p", cdf="1 - (1 - p)^(y + 1)"
    )
    check_distribution("Geometric", {"p": 0.8})
    gpdsl.register_distribution(
        "Kumaraswamy",
        {"a": "positive", "b": "positive"},
        "unit",
        "log(a*b) + (a - 1)*log(y) + (b - 1)*log1p(-y^a)",
        quantile=lambda p, a, b: (1 - (1 - p) ** (1 / b)) ** (1 / a),
        sampler=lambda rng, a, b: (1 - rng.random(a.shape) ** (1 / b)) ** (1 / a),
    )
    check_distribution("Kumaraswamy", {"a": 0.7, "b": 3.0})


def test_the_second_replaces_the_first_and_a_refused_one_changes_nothing() -> None:
    gumbel()
    gpdsl.register_distribution("Gumbel", {"m": "real"}, "real", "-(y - m)^2/2 - log(2*pi)/2")
    law = DENSITIES["Gumbel"]
    assert [each.name for each in DISTRIBUTIONS["Gumbel"].parameters] == ["m"]
    with pytest.raises(gpdsl.GpdslError):
        gumbel(mean="location")
    assert DENSITIES["Gumbel"] is law


GUMBEL = ("G", PARAMETERS, "real", DENSITY)
RAYLEIGH = ("G", {"s": "positive"}, "positive", "log(y) - 2*log(s) - y^2/(2*s^2)")
WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "own": (("Normal", PARAMETERS, "real", DENSITY), {}, "gpdsl has a `Normal` of its own"),
    "function": (("exp", PARAMETERS, "real", DENSITY), {}, "`exp` means something else in a model"),
    "no name": (("9a", PARAMETERS, "real", DENSITY), {}, "'9a' is no name; expected letters"),
    "no parameter": (("G", {}, "real", "-y^2"), {}, "its parameters are a dict of names and constraints"),
    "constraint": (("G", {"a": "pos"}, "real", "-y"), {}, "the constraint of `a` is 'pos', expected one of real, pos"),
    "support": (("G", PARAMETERS, "label", DENSITY), {}, "its support is 'label', expected one of real"),
    "name in a text": (("G", PARAMETERS, "real", "-(y - loc)"), {}, "unknown name `loc`"),
    "mass": (("G", PARAMETERS, "real", "-(y - location)^2/scale"), {}, "integrates to 2.311, not to one, at location"),
    "arity": (("G", PARAMETERS, "real", lambda y: y), {}, r"its log density takes \(y\), expected \(y, location, sc"),
    "numpy": (("G", PARAMETERS, "real", lambda y, m, s: np.log(y)), {}, "is called with SymPy symbols, and failed"),
    "foreign": (("G", PARAMETERS, "real", lambda y, m, s: sp.zeta(y)), {}, "has `zeta`, which cannot be computed"),
    "symbol": (("G", PARAMETERS, "real", lambda y, m, s: sp.Symbol("q")), {}, "has the symbol `q`, which is no argu"),
    "number": (("G", PARAMETERS, "real", 3), {}, "its log density is of type int, expected text or a function"),
    "mean": (GUMBEL, {"mean": "location"}, "its mean is 0.4, but its density says 1.38"),
    "mean of y": (GUMBEL, {"mean": "y"}, "its mean is no formula of y; write it in loc"),
    "mean there": (
        RAYLEIGH,
        {"mean": "1.7 * sqrt(pi / 2)"},
        "its mean is 2.131, but its density says 1.639, at s = 1.3",
    ),
    "first draws": (RAYLEIGH, {"sampler": lambda g, s: g.rayleigh(s[0], s.shape)}, "of its draws are below 2.602"),
    "2 % off": (RAYLEIGH, {"sampler": lambda g, s: g.rayleigh(1.02 * s)}, "correct the sampler, which is given arrays"),
    "cdf": (GUMBEL, {"cdf": lambda y, m, s: 0.5}, "its cdf at -1.465 is 0.5, but its den"),
    "quantile": (GUMBEL, {"quantile": lambda p, m, s: p}, "its cdf at its quantile of"),
    "text": (GUMBEL, {"sampler": "y"}, "its sampler is text, expected a NumPy function"),
    "draws": (GUMBEL, {"sampler": lambda g, m, s: g.normal(m, s)}, "0.801 of its draws"),
    "shape": (GUMBEL, {"sampler": lambda g, m, s: g.normal(size=3)}, "its sampler failed"),
    "example": (
        GUMBEL,
        {"example": {"scale": -1}},
        "has scale = -1, which is not positive",
    ),
    "text in an example": (GUMBEL, {"example": {"scale": "1"}}, "has scale = '1', expected a number"),
    "list": (GUMBEL, {"example": [1]}, r"is \[1\], expected a dict of arguments"),
    "latex": (GUMBEL, {"latex": 3}, "its latex is 3, expected text"),
    "syntax": (
        ("G", PARAMETERS, "real", "-y^2\n  - (y"),
        {},
        r"line 2, column 5 of its log density: .*\n    - ",
    ),
    "argument": (GUMBEL, {"example": {"q": 1}}, "has `q`, expected arguments among loc"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_told(case: str) -> None:
    given, more, said = WRONG[case]
    with pytest.raises(gpdsl.GpdslError, match=said):
        gpdsl.register_distribution(*given, **more)
    assert "G" not in DISTRIBUTIONS


KUMARASWAMY = ("Kumaraswamy", {"a": "positive", "b": "positive"}, "unit", "log(a*b) + (a-1)*log(y) + (b-1)*log1p(-y^a)")
PROPORTION = "input x : real\noutput y : unit\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Kumaraswamy(0.3*exp(f), 0.2)\n"


def by_beta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return b * special.beta(1 + 1 / a, b)


def test_most_of_a_proportion_may_be_at_its_bounds() -> None:
    """Down to 1 - y = 1e-16 lie 97.6 % of a = 2, b = 0.1; what is beyond counts all the same."""
    gpdsl.register_distribution(*KUMARASWAMY)
    a, b = np.array([0.3, 2.0, 0.3]), np.array([0.2, 0.1, 0.5])
    for one, other in zip(a, b, strict=True):
        check_distribution("Kumaraswamy", {"a": one, "b": other})
    mean, variance = conditional.moments(Law("Kumaraswamy", {"a": a, "b": b}))
    np.testing.assert_allclose(mean, by_beta(a, b), rtol=2e-5)
    np.testing.assert_allclose(variance, b * special.beta(1 + 2 / a, b) - mean**2, rtol=2e-4)


@pytest.mark.filterwarnings("error::gpdsl.GpdslWarning")
def test_predictions_use_what_is_given() -> None:
    drawn: list[tuple[int, ...]] = []

    def sampler(generator: np.random.Generator, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        drawn.append(a.shape)
        return np.clip((1 - generator.random(a.shape) ** (1 / b)) ** (1 / a), 1e-300, 1 - 1e-16)

    def asked(**given: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        gpdsl.register_distribution(*KUMARASWAMY, **given)
        fit = unlearnt(PROPORTION, {"x": np.arange(4.0), "y": np.array([0.2, 0.9, 0.99, 0.5])})
        p = fit.predict(NEW)
        return p.mean("y"), p.variance("y"), p.sample("y", 20)

    plain, given = asked(), asked(mean=lambda a, b: by_beta(a, b) + 5e-4, sampler=sampler)
    np.testing.assert_allclose(given[0] - plain[0], 5e-4, rtol=1e-2)
    np.testing.assert_allclose(given[1], plain[1], rtol=1e-4)
    assert drawn[-1] == given[2].shape == (20, 2)
