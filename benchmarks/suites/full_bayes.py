"""`hyperparameters = integrated` beside long NUTS runs over parameters and latents, on three data sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from peers import nuts
from report import find_data, show, verdict

import gpdsl
from suites import coverage

GAP, RATIO = 0.1, 0.1
"""Standard deviations by which a mean may be away, and share by which a standard deviation may be off."""

WARM_UP, DRAWS = 300, 500
"""Of each of four chains."""

ZOO = "boston", "laplace", "student_t", "coal_mining", "preference"
"""Models that chains of gpdsl go through in a minute or some."""

COAL = """
input x : real
output n : count
param m   : real     ~ Normal(0.5, 1)
param s2  : positive ~ LogNormal(0, 1)
param ell : positive ~ LogNormal(2.7, 0.7)
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f + m))
"""

MOTORCYCLE = """
input x : real
output y : real
param s2_f  : positive ~ LogNormal(0, 1)
param ell_f : positive ~ LogNormal(-1, 0.7)
param m     : real     ~ Normal(-2, 1.5)
param s2_g  : positive ~ LogNormal(0, 1)
param ell_g : positive ~ LogNormal(-0.5, 0.7)
latent f(x) ~ GP(0, s2_f * RBF(ell_f))
latent g(x) ~ GP(m, s2_g * RBF(ell_g))
y ~ Normal(f, exp(g / 2))
"""

SEISMIC = """
index layer in 1..4
input s : real
output t[layer] : real
const depth0[layer]    = [200, 500, 1600, 2200]
const velocity0[layer] = [1950, 2300, 2750, 3650]
const noise[layer]     = [0.025, 0.05, 0.075, 0.1]
param a   : positive ~ LogNormal(-1.9, 0.4)
param b   : positive ~ LogNormal(-2.3, 0.4)
param c   : positive ~ LogNormal(-1, 0.7)
param ell : positive ~ LogNormal(0, 0.4)
latent depth[layer](s)    ~ GP(depth0[layer],    (a * depth0[layer])^2    * RBF(ell))
latent velocity[layer](s) ~ GP(velocity0[layer], (b * velocity0[layer])^2 * RBF(ell))
let tau[1]         = 2 * depth[1] / velocity[1]
let tau[layer > 1] = tau[layer - 1] + 2 * (depth[layer] - depth[layer - 1]) / velocity[layer]
t[layer] ~ Normal(tau[layer], c * noise[layer])
"""


@dataclass(frozen=True)
class Case:
    """A model in both languages: `latents(theta, w, x)` are its values at places x by name, from w ~ N(0, I).

    `priors` are normal means and standard deviations of parameters on the real line: positive ones are log-normal.
    """

    text: str
    data: Mapping[str, np.ndarray]
    places: np.ndarray
    """Where latents are different; `own` is the place of each row."""
    own: np.ndarray
    priors: Mapping[str, tuple[float, float]]
    processes: int
    latents: Callable[[Mapping[str, Any], Any, Any], Mapping[str, Any]]
    log_likelihood: Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], Any]
    """Of parameters, of latents at the rows, and of the outputs."""
    real: frozenset[str] = frozenset({"m"})
    """Parameters that may have either sign."""

    def theta(self, u: Any) -> dict[str, Any]:
        """Parameters in their domains."""
        moved = {name: mean + sd * u[i] for i, (name, (mean, sd)) in enumerate(self.priors.items())}
        return {name: value if name in self.real else jnp.exp(value) for name, value in moved.items()}


def root(places: Any, ell: Any) -> Any:
    """Of the covariance of a smooth process with variance 1."""
    apart = (places[:, None] - places) / ell
    return jnp.linalg.cholesky(jnp.exp(-0.5 * apart**2) + 1e-8 * jnp.eye(len(places)))


def reference(case: Case) -> nuts.Draws:
    """NUTS over parameters and whitened latents, from and in the units of a Laplace approximation."""
    count, size = len(case.priors), len(case.places)

    def parts(v: Any, places: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
        theta = case.theta(v[:count])
        return theta, case.latents(theta, v[count:].reshape(case.processes, size), places)

    def log_density(v: Any, places: Any, own: Any, data: Any) -> Any:
        theta, values = parts(v, places)
        there = {name: each[own.astype(int)] for name, each in values.items()}
        return case.log_likelihood(theta, there, data) - 0.5 * v @ v

    def observe(v: Any, places: Any, *_: Any) -> Any:
        theta, values = parts(v, places)
        return jnp.concatenate([jnp.stack([*theta.values()]), *(jnp.ravel(each) for each in values.values())])

    outputs = {name: each for name, each in case.data.items() if name not in ("x", "s")}
    given = case.places, case.own, outputs
    start = np.zeros(count + case.processes * size)
    return nuts.draw_around(log_density, observe, start, given, WARM_UP, DRAWS)


def coal_mining() -> Case | None:
    """Counts in 50 bins of 800 days, sixteen of the file's each; x in years."""
    paths = find_data("coal_mining.csv")
    if paths is None:
        return None
    counts = np.loadtxt(paths[0], delimiter=",", skiprows=1)[:, 1]
    n = counts[:800].reshape(50, 16).sum(axis=1)
    x = 800 / 365.25 * (0.5 + np.arange(len(n)))

    def latents(theta: Mapping[str, Any], w: Any, x: Any) -> Mapping[str, Any]:
        return {"f": jnp.sqrt(theta["s2"]) * root(x, theta["ell"]) @ w[0]}

    def log_likelihood(theta: Mapping[str, Any], at: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        rate = at["f"] + theta["m"]
        return jnp.sum(data["n"] * rate - jnp.exp(rate))

    priors = {"m": (0.5, 1.0), "s2": (0.0, 1.0), "ell": (2.7, 0.7)}
    return Case(COAL, {"x": x, "n": n}, x, np.arange(len(x)), priors, 1, latents, log_likelihood)


def motorcycle() -> Case | None:
    """Accelerations at 133 times, 94 of them different, both standardised."""
    paths = find_data("temporal/motorcycle.csv")
    if paths is None:
        return None
    table = np.genfromtxt(paths[0], delimiter=",", names=True)
    x, y = ((each - each.mean()) / each.std() for each in (table["time_ms"], table["acceleration_g"]))
    places, own = np.unique(x, return_inverse=True)

    def latents(theta: Mapping[str, Any], w: Any, x: Any) -> Mapping[str, Any]:
        f = jnp.sqrt(theta["s2_f"]) * root(x, theta["ell_f"]) @ w[0]
        return {"f": f, "g": theta["m"] + jnp.sqrt(theta["s2_g"]) * root(x, theta["ell_g"]) @ w[1]}

    def log_likelihood(theta: Mapping[str, Any], at: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        return jnp.sum(-0.5 * at["g"] - 0.5 * (data["y"] - at["f"]) ** 2 * jnp.exp(-at["g"]))

    priors = {"s2_f": (0.0, 1.0), "ell_f": (-1.0, 0.7), "m": (-2.0, 1.5), "s2_g": (0.0, 1.0), "ell_g": (-0.5, 0.7)}
    return Case(MOTORCYCLE, {"x": x, "y": y}, places, own, priors, 2, latents, log_likelihood)


def seismic() -> Case | None:
    """Every sixth of 113 sites, their positions standardised."""
    paths = find_data("seismic_otway.csv")
    if paths is None:
        return None
    table = np.loadtxt(paths[0], delimiter=",", skiprows=1)
    s, t = ((table[:, 0] - table[:, 0].mean()) / table[:, 0].std())[::6], table[::6, 1:]
    depth0, velocity0 = np.array([200.0, 500, 1600, 2200]), np.array([1950.0, 2300, 2750, 3650])
    noise = np.array([0.025, 0.05, 0.075, 0.1])

    def latents(theta: Mapping[str, Any], w: Any, s: Any) -> Mapping[str, Any]:
        values = (root(s, theta["ell"]) @ w.T).T
        depth = depth0[:, None] * (1 + theta["a"] * values[:4])
        return {"depth": depth.T, "velocity": (velocity0[:, None] * (1 + theta["b"] * values[4:])).T}

    def log_likelihood(theta: Mapping[str, Any], at: Mapping[str, Any], data: Mapping[str, Any]) -> Any:
        expected = jnp.cumsum(2 * jnp.diff(at["depth"], axis=1, prepend=0.0) / at["velocity"], axis=1)
        scale = theta["c"] * noise
        return jnp.sum(-jnp.log(scale) - 0.5 * ((data["t"] - expected) / scale) ** 2)

    priors = {"a": (-1.9, 0.4), "b": (-2.3, 0.4), "c": (-1.0, 0.7), "ell": (0.0, 0.4)}
    return Case(SEISMIC, {"s": s, "t": t}, s, np.arange(len(s)), priors, 8, latents, log_likelihood)


CASES = {"coal mining": coal_mining, "motorcycle": motorcycle, "seismic": seismic}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "point": {},
    "integrated": {"hyperparameters": "integrated"},
    "integrated, corrected": {"hyperparameters": "integrated", "posterior": "corrected"},
}


def run() -> None:
    """Print a table of every case."""
    for name, make in CASES.items():
        case = make()
        if case is not None:
            compare(name, case)
    for name in ZOO:
        beside_chains(name)


def beside_chains(name: str) -> None:
    """A model of the zoo with the priors of `coverage`, fitted to a draw of its own, beside gpdsl's chains: a line of
    means, standard deviations and intervals for each parameter and latent."""
    case = coverage.CASES[name]
    model, spent = coverage.with_priors(name, case.priors), []
    data = model.sample_prior(coverage.inputs(model, case), sizes=case.sizes, seed=1).data
    fits = []
    for options in ({"hyperparameters": "integrated"}, {"engine": "mcmc", "draws": DRAWS, "warm_up": DRAWS}):
        begun = time.process_time()
        fits.append(model.fit(data, fixed=list(case.fixed), diagnose="no", **options))
        spent.append(time.process_time() - begun)
    print(
        f"{name}: integrated {spent[0]:.1f} s, mcmc {spent[1]:.1f} s\n{fits[0].check(data, against=fits[1])}",
        flush=True,
    )


def compare(name: str, case: Case, ways: Mapping[str, Mapping[str, Any]] = WAYS) -> None:
    """Means and standard deviations of parameters and latents beside those of NUTS."""
    gold = reference(case)
    count = len(case.priors)
    rows: list[tuple[object, ...]] = []
    for way, options in ways.items():
        begun = time.process_time()
        fit = gpdsl.compile(case.text).fit(case.data, diagnose="no", **options)
        seconds = time.process_time() - begun
        gaps, ratios = distances(case, fit, gold)
        worst = [*gaps[:count], *ratios[:count]] if fit.settings is not None else [float("nan")] * 2 * count
        shown = [f"{number:.2f}" for number in worst]
        at = f"{np.mean(np.abs(gaps[count:])):.3f}, {np.max(np.abs(gaps[count:])):.3f}"
        spread = f"{ratios[count:].min():.3f} to {ratios[count:].max():.3f}"
        rows.append((way, " ".join(shown[:count]), " ".join(shown[count:]), at, spread, seconds))
        if way == "integrated":
            verdict(f"{name}: means of parameters, standard deviations away", np.max(np.abs(gaps[:count])), GAP)
            verdict(f"{name}: means of latents", np.max(np.abs(gaps[count:])), GAP)
            verdict(f"{name}: standard deviations of parameters, off by", np.max(np.abs(ratios[:count] - 1)), RATIO)
            verdict(f"{name}: standard deviations of latents", np.max(np.abs(ratios[count:] - 1)), RATIO)
    about = f"NUTS: 4 x {DRAWS}, R-hat {gold.rhat:.4f}, least ESS {gold.least_ess:.0f}, {gold.divergences} divergences"
    about += f", {gold.processor_seconds:.0f} processor seconds after compiling"
    names = ", ".join(case.priors)
    columns = ["fit", f"gap: {names}", "sd ratio", "gaps of latents, mean, max", "sd ratio of latents", "seconds"]
    show(f"{name}: {len(case.places)} places", columns, rows, about)


def distances(case: Case, fit: gpdsl.Fit, gold: nuts.Draws) -> tuple[np.ndarray, np.ndarray]:
    """Differences of means in standard deviations of NUTS, and ratios of standard deviations: parameters, latents."""
    first = np.array([np.flatnonzero(case.own == place)[0] for place in range(len(case.places))])
    prediction = fit.predict({name: each[first] for name, each in case.data.items()})
    names = fit.model.declarations.latents
    mean = [np.ravel(prediction.mean(name)) for name in names]
    sd = [np.sqrt(np.ravel(prediction.variance(name))) for name in names]
    known = fit.settings
    if known is None:
        mean, sd = [[float(fit.parameters[n]) for n in case.priors], *mean], [[0.0] * len(case.priors), *sd]
    else:
        mean = [[float(known.mean(n)) for n in case.priors], *mean]
        sd = [[float(known.sd(n)) for n in case.priors], *sd]
    return (np.concatenate(mean) - gold.mean) / gold.sd, np.concatenate(sd) / gold.sd
