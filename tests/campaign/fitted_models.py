"""Random models that make sense, fitted and asked everything: what is said of one thing in two ways has to agree.

A model has inputs, groups, indices, parameters, latents, definitions and outputs as they are drawn, and an option of
the search besides. Means and variances are compared with those of 4000 samples, quantiles with the share of samples
below them, and predictions of a saved fit with those before. `wrong` is what differs by more than chance allows.
"""

from __future__ import annotations

import random
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import gpdsl
from tests.campaign.outcomes import Hung, Outcomes

NAME = "fitted models"
MODELS = 300
"""Models at scale 1."""

LIMIT, SAMPLES = 300, 4000
"""Seconds of the processor for one model, and samples that moments are compared with."""

FAR, HEAVY, SHARE = 8.0, 30.0, 0.06
"""Standard errors by which moments may differ, the kurtosis from which on these say nothing, and the difference of
shares of samples below a quantile."""

OPTIONS: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"inducing": 5}, {"inducing": 7, "batch": 8}, {"standardise": True}, {"dtype": "float32"}),
    *({"posterior": each} for each in ("full", "diagonal", "coupled", "mixture(2)", "mixture_full(2)")),
    *({"engine": "ep"}, {"engine": "qsgp", "features": 20}, {"optimizer": "adam"}, {"hyperparameters": "integrated"}),
)
KERNELS = (
    *("RBF(0.8)", "RBF(t0)", "Matern12(1)", "Matern32(1)", "Matern52(0.7)", "RationalQuadratic(1, 2)"),
    *("Periodic(1, 1.5)", "RBF(0.5) * Periodic(1, 2)", "(RBF(1) + Linear())", "(RBF(1) + 0.1 * White())"),
)
PRIORS = ("", " ~ Normal(0, 1)", " ~ StudentT(4, 0, 1)")
FUNCTIONS = ("tanh", "sin", "sigmoid", "softplus", "cos", "erf")
LAWS: dict[str, tuple[str, ...]] = {
    "real": (
        *("Normal({m}, {s})",) * 5,
        *("StudentT(4, {m}, {s})", "Laplace({m}, {s})", "Censored(Normal({m}, {s}), lower = -1)"),
        "Mixture(0.2, Normal({m}, {s}), Normal(0, 3))",
    ),
    "count": ("Poisson({p})", "NegativeBinomial({p}, 2)", "Binomial(20, logit = {m})"),
    "binary": ("Bernoulli(logit = {m})", "Bernoulli(probit = {m})", "Bernoulli(p = 0.1 + 0.8 * sigmoid({m}))"),
    "positive": ("LogNormal({m}, {s})", "Gamma(2, 2 / {p})", "Exponential(1 / {p})", "Weibull(1.5, {p})"),
    "unit": ("Beta({p}, 1 + {q})",),
    "ordinal[o]": ("Ordinal(logit = {m}, cutpoints = cut)",),
    "label[k]": ("Categorical(logits = class)",),
}


class Composed:
    """A model, `text`, and rows of it, `data`, as one seed draws them."""

    def __init__(self, seed: int) -> None:
        self.draw, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.rows, self.lines, self.data = self.draw.choice((12, 25, 40)), ["model composed"], dict[str, np.ndarray]()
        self.alone, self.along, self.positive = ["x", "f", "f"], list[str](), ["t0"]
        """What is one number in a row, what has one for each value of p, and parameters above 0."""
        self.size = self.draw.choice((0, 2, 3))
        self.of_levels, self.open_levels = list[str](), False
        """Definitions that read latents, and whether the data say which levels there are."""
        self._inputs()
        self._parameters()
        self._latents()
        self._lets()
        for number in range(self.draw.choice((1, 1, 1, 2))):
            self._output(f"y{number}", bool(self.size) and self.chance(0.35))
        self.text = "\n".join(self.lines) + "\n"

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def _inputs(self) -> None:
        self.lines += [f"index p in 1..{self.size}"] * bool(self.size) + ["input x : real"]
        self.data["x"] = self.rng.uniform(-2, 2, self.rows)
        if self.chance(0.4):
            self.lines.append("input v : real[2]")
            self.data["v"], self.alone = self.rng.normal(size=(self.rows, 2)), [*self.alone, "v[1]", "v[2]"]
        if self.size and self.chance(0.3):
            self.lines.append("input u[p] : real")
            self.data["u"], self.along = self.rng.normal(size=(self.rows, self.size)), ["u"]
        if self.chance(0.3):
            self.lines.append("input e : positive")
            self.data["e"], self.alone = self.rng.uniform(0.5, 2, self.rows), [*self.alone, "log(e)"]
        self.levels = self.draw.choice((0, 0, 2, 3, 4))
        if self.levels:
            self.open_levels = self.chance(0.6)
            codes = np.append(np.arange(self.levels), self.rng.integers(0, self.levels, self.rows - self.levels))
            self.data["site"] = np.array(list("abcd"))[codes] if self.open_levels else codes + 1
            self.lines += [f"index s in 1..{'S' if self.open_levels else self.levels}", "input site : label[s]"]

    def _parameters(self) -> None:
        for number in range(self.draw.randint(1, 3)):
            self.lines.append(f"param a{number} : real = {self.draw.choice((0, 0.3, -1))}{self.draw.choice(PRIORS)}")
            self.alone.append(f"a{number}")
        self.lines.append("param t0 : positive = 0.7" + self.draw.choice(("", " ~ Gamma(2, 2)", " ~ HalfNormal(1)")))
        if self.chance(0.3):
            self.lines.append("param q0 : unit = 0.3 ~ Beta(2, 2)")
            self.alone.append("q0")
        if self.size and self.chance(0.7):
            self.lines.append(f"param c[p] : real = 0.2{self.draw.choice(PRIORS)}")
            self.along.append("c")
        if not self.levels:
            return
        kind = self.draw.choice(("estimated", "inferred", "positive", "none"))
        if kind == "estimated":
            let = self.draw.choice(("g[s] - mean(s, g)", "2 * g[s]", "if s == 1 then 0 else g[s] + f"))
            self.lines += [f"param g[s] : real{self.draw.choice(PRIORS[::2])}"]
            self.of_levels = [f"let h[s] = {let}"]
            self.alone += ["g[site]", "h[site]"]
        elif kind == "inferred":
            self.lines += [
                "param gm : real",
                "param gt : positive = 0.5 ~ Gamma(2, 4)",
                "param g[s] : real ~ Normal(gm, gt)",
            ]
            self.alone.append("g[site]")
        elif kind == "positive":
            self.lines.append(
                "param g[s] : positive = 0.5" + self.draw.choice((" ~ Gamma(2, 2)", " ~ LogNormal(0, 0.5)"))
            )
            self.positive.append("g[site]")

    def _kernel(self) -> str:
        return self.draw.choice(("", "t0^2 * ", "0.5 * ")) + self.draw.choice(KERNELS)

    def _latents(self) -> None:
        kernel = self._kernel()
        self.lines.append(f"latent f(x) ~ GP({self.draw.choice(('0', '0', 'a0', 'a0 * x', '1'))}, {kernel})")
        if not any(each in kernel for each in ("White", "Matern12")) and self.chance(0.2):
            self.alone.append("D(f, x)")
        if self.chance(0.4):
            self.lines.append(f"latent f2(x) ~ GP(0, {self._kernel()})")
            self.alone += ["f2", "f2"]
        if self.size and self.chance(0.6):
            self.lines.append(f"latent w[p](x) ~ GP(0, {self._kernel()})")
            self.along.append("w")
        if "v" in self.data and self.chance(0.5):
            self.lines.append("latent both(x, v) ~ GP(0, RBF(1))")
            self.alone.append("both")
        if self.levels and self.chance(0.5):
            self.lines.append(f"latent m[s](x) ~ GP(0, {self._kernel()})")
            self.alone.append("m[site]")
        if self.chance(0.15):
            self.lines.append("row z ~ Normal(0, 1)")
            self.alone.append("z")
        self.lines += self.of_levels

    def _lets(self) -> None:
        for number in range(self.draw.randint(0, 2)):
            name, along = f"l{number}", bool(self.size) and self.chance(0.5)
            if along and self.chance(0.3):
                self.lines.append(f"let {name}[1] = {self._expression(False, 2)}")
                self.lines.append(f"let {name}[p > 1] = 0.5 * {name}[p - 1] + {self._expression(True, 1)}")
            else:
                self.lines.append(f"let {name}{'[p]' * along} = {self._expression(along, 2)}")
            (self.along if along else self.alone).append(name)

    def _atom(self, along: bool) -> str:
        others = [f"{each}[p]" for each in self.along] * 2 + ["2 * p"] if along else []
        if self.size and not along:
            others = [f"{each}[{self.draw.randint(1, self.size)}]" for each in self.along]
            others += [f"sum(p, {each}[p])" for each in self.along]
        return self.draw.choice([*self.alone, *others])

    def _expression(self, along: bool, depth: int) -> str:
        """A real number; corners and conditions, of which expectations take longest, are rare."""
        if depth == 0 or self.chance(0.15):
            return self._atom(along)
        one, other, atom = self._expression(along, depth - 1), self._expression(along, depth - 1), self._atom(along)
        if self.chance(0.1):
            corner = f"{self.draw.choice(('min', 'max'))}({one}, {self.draw.choice(('0', '1', atom))})"
            return self.draw.choice((corner, f"(if ({atom}) {self.draw.choice('<>')} 0.5 then {one} else {other})"))
        return self.draw.choice(
            (
                *(f"({one} + {other})", f"({one} * {atom})", f"({self.draw.choice(self.positive)} * {one})"),
                *(
                    f"{self.draw.choice(FUNCTIONS)}({one})",
                    f"({atom})^2",
                    f"({one} / {self.draw.choice(self.positive)})",
                ),
            )
        )

    def _positive(self, along: bool) -> str:
        one, atom = self._expression(along, 1), self._atom(along)
        return self.draw.choice((f"exp(0.5 * tanh({one}))", f"softplus({one})", f"exp({atom})", "exp(f)"))

    def _output(self, name: str, along: bool) -> None:
        kinds = [each for each in LAWS if not ((along or name != "y0") and each.endswith("]"))]
        kind, size = self.draw.choice(["real", "real", *kinds]), (self.rows, self.size) if along else (self.rows,)
        law, place = self.draw.choice(LAWS[kind]), "[p]" * along
        values = {
            "real": lambda: np.maximum(self.rng.normal(size=size), -1 if "Censored" in law else -9),
            "count": lambda: self.rng.poisson(2, size),
            "binary": lambda: self.rng.integers(0, 2, size),
            "positive": lambda: self.rng.gamma(2, 0.5, size) + 0.01,
            "unit": lambda: self.rng.uniform(0.05, 0.95, size),
            "ordinal[o]": lambda: self.rng.integers(1, 4, size),
            "label[k]": lambda: self.rng.integers(1, 3, size),
        }[kind]().astype(float if kind in {"real", "count"} else None)
        if kind in {"real", "count"} and self.chance(0.25):
            values.ravel()[self.rng.integers(0, values.size, 3)] = np.nan
        self.data[name] = values
        if kind == "ordinal[o]":
            self.lines += ["index o in 1..3", "param cut : ordered[2] = [-0.5, 0.5]"]
        if kind == "label[k]":
            self.lines += ["index k in 1..2", "latent class[k](x) ~ GP(0, RBF(1))"]
        sd = self.draw.choice(("0.3", *self.positive, self._positive(along)))
        parts = {"m": self._expression(along, 2), "s": sd, "p": self._positive(along), "q": self._positive(along)}
        self.lines += [f"output {name}{place} : {kind}", f"{name}{place} ~ {law.format(**parts)}"]


def asked(model: gpdsl.Model, one: Composed) -> None:
    """Fit, and ask everything. Raises AssertionError for what is wrong; refusals of one question end that alone."""
    options = one.draw.choice(OPTIONS)
    fit = model.fit(one.data, seed=0, progress=False, steps=one.draw.choice((5, 30)), diagnose="no", **options)
    new = {name: values[:7] for name, values in one.data.items() if not name.startswith("y")}
    prediction = fit.predict(new)
    fit.summary()
    for name in (*model.declarations.outputs, *model.declarations.lets, *model.declarations.latents):
        _agrees(prediction, name)
    for question in one.draw.sample(list(_questions(model, fit, one, new)), 3):
        _answered(question)
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "one.gpfit")
        again = gpdsl.load_fit(Path(folder) / "one.gpfit").predict(new)
    name = next(iter(model.declarations.outputs))
    mean = _answered(lambda: prediction.mean(name))
    if mean is not None:
        np.testing.assert_allclose(again.mean(name), mean, rtol=1e-4, atol=1e-5)


def _answered(question: Callable[[], Any]) -> Any:
    """The answer, or None where it is refused."""
    try:
        return question()
    except gpdsl.GpdslError:
        return None


def _questions(model: gpdsl.Model, fit: gpdsl.Fit, one: Composed, new: dict[str, np.ndarray]) -> Iterator[Any]:
    """What is asked of some."""
    yield lambda: model.sample_prior(rows=6, seed=1)
    yield lambda: fit.diagnose(one.data)
    yield lambda: fit.loo(one.data)
    yield lambda: fit.log_predictive_density(one.data)
    yield lambda: fit.predict(new).to_frame()
    yield lambda: fit.draw_functions(2, seed=1)(new)
    yield lambda: (model.latex(), model.graph())
    if one.open_levels:
        yield lambda: fit.predict(new | {"site": np.array(["new"] * 7)}).mean(next(iter(model.declarations.outputs)))


def _agrees(prediction: gpdsl.Prediction, name: str) -> None:
    """Moments and a quantile, beside samples."""
    for question in (prediction.draws, prediction.covariance, prediction.interval):
        _answered(lambda ask=question: ask(name, 2) if ask == prediction.draws else ask(name))  # type: ignore[misc]
    mean, variance, low, samples = (
        _answered(question)
        for question in (
            lambda: prediction.mean(name),
            lambda: prediction.variance(name),
            lambda: prediction.quantile(name, 0.3),
            lambda: prediction.sample(name, SAMPLES),
        )
    )
    if samples is None or np.shape(mean) != samples.shape[1:] or not np.all(np.isfinite(samples)):
        return
    samples = samples.astype(float)
    rounding = 1e-6 * (1 + np.abs(samples.mean(axis=0)))
    sd, centred = samples.std(axis=0) + rounding, samples - samples.mean(axis=0)
    heavy = np.mean(centred**4, axis=0) / sd**4
    if np.all(heavy < HEAVY):
        off = np.abs(samples.mean(axis=0) - mean) * np.sqrt(SAMPLES) / sd
        assert not np.any(off > FAR), f"mean of {name}: {np.max(off):.1f} standard errors from that of samples"
        if variance is not None and np.shape(variance) == np.shape(mean):
            error = sd**2 * np.sqrt(np.maximum(heavy - 1, 0.01) / SAMPLES) + rounding**2
            off = np.abs(samples.var(axis=0) - variance) / error
            assert not np.any(off > FAR), f"variance of {name}: {np.max(off):.1f} standard errors from that of samples"
    if low is not None and np.shape(low) == np.shape(mean):
        slack = 1e-6 * (1 + np.abs(low))
        below, reached = np.mean(samples < low - slack, axis=0), np.mean(samples <= low + slack, axis=0)
        far = np.max(np.maximum(below - 0.3, 0.3 - reached))
        assert far < SHARE, f"quantile of {name}: a share of samples below it that is {far:.2f} off"


def _compiled(text: str) -> gpdsl.Model:
    """The model. Raises AssertionError where it is refused, as all make sense."""
    try:
        return gpdsl.compile(text)
    except gpdsl.ModelError as problem:
        raise AssertionError("a model that makes sense is refused") from problem


def _ring(number: int, frame: FrameType | None) -> None:
    raise Hung(f"more than {LIMIT} seconds of the processor")


def run(scale: float, seed: int) -> dict[str, int]:
    """Compose, fit and ask; counts of what came of it."""
    outcomes = Outcomes()
    before = signal.signal(signal.SIGVTALRM, _ring)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of samples, and moments that do not exist
            for number in range(max(1, round(MODELS * scale))):
                one = Composed(10_000 * seed + number)
                signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
                outcomes.attempt(one.text, lambda one=one: asked(_compiled(one.text), one))  # type: ignore[misc]
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return dict(outcomes.counts)
