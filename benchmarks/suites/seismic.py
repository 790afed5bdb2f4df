"""Otway seismic inversion: posteriors against NUTS, and every estimator judged by one estimate of the bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
from peers.seismic_nuts import gold as gold_of
from report import find_data, show, verdict
from timing import timed

import gpdsl
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.problem import as_arrays
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Scope

SAMPLES, AT_ONCE = 20_000, 1000
SEEDS = range(5)
RUNS: Mapping[str, tuple[str, dict[str, object]]] = {
    "full, pathwise, natural": ("seismic", {"posterior": "full"}),
    "full, pathwise, L-BFGS": ("seismic", {"optimizer": "lbfgs"}),
    "full, everything sampled": ("seismic", {"posterior": "full", "expectations": "sampled"}),
    "full, score function, natural, seed 0": ("seismic_external", {"posterior": "full"}),
    "full, score function, natural, seed 1": ("seismic_external", {"posterior": "full", "seed": 1}),
    "full, score function, natural, seed 2": ("seismic_external", {"posterior": "full", "seed": 2}),
    "full, score function, Adam": ("seismic_external", {"optimizer": "adam"}),
    "coupled, pathwise (default)": ("seismic", {}),
    "coupled, everything sampled": ("seismic", {"expectations": "sampled"}),
    "coupled, score function, seed 0": ("seismic_external", {}),
    "coupled, score function, seed 1": ("seismic_external", {"seed": 1}),
}


@dataclass(frozen=True)
class Judged:
    """A fit and the common estimate of its bound, sample by sample [SAMPLES]."""

    fit: gpdsl.Fit
    bounds: np.ndarray


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Two-way time to each layer, as the symbolic model writes it."""
    return np.cumsum(2 * np.diff(depth, axis=1, prepend=0.0) / velocity, axis=1)


def run() -> None:
    """Fit every way, evaluate all posteriors on the same fresh samples, then look for steps that are not finite."""
    paths = find_data("seismic_otway.csv")
    if paths is None:
        return
    table = np.loadtxt(paths[0], delimiter=",", skiprows=1)
    data = {"s": (table[:, 0] - table[:, 0].mean()) / table[:, 0].std(), "t": table[:, 1:]}
    gpdsl.register_forward_model("travel_time", travel_time)
    _against_nuts(data)
    judged: dict[str, Judged] = {}
    program = None
    for name, (model, options) in RUNS.items():
        fit = gpdsl.zoo(model).fit(data, **{"seed": 0, **options})
        program = program or fit.program  # the first is symbolic: it judges all
        judged[name] = Judged(fit, _bounds(program, fit, data))
    for posterior in ("full", "coupled"):
        _show(posterior, {name: each for name, each in judged.items() if name.startswith(posterior)})
    _stability(data)


def _against_nuts(data: dict[str, np.ndarray]) -> None:
    """Means and standard deviations of every latent at every site, in units of what NUTS found."""
    rows, gaps, ratios, slowest, rhat = [], [], [], 0.0, 0.0
    for model in ("seismic_increments", "seismic"):
        gold = gold_of(model, data["s"], data["t"])
        rhat = max(rhat, gold.rhat)
        rows.append((f"{model}, NUTS", 0.0, "", "", gold.seconds, gold.compile_seconds))
        for posterior in ("full", "coupled"):
            fits = [timed(lambda: _fitted(model, posterior, data)) for _ in range(2)]  # noqa: B023
            run = min(fits, key=lambda each: each.running)
            pred = run.result.predict(data)
            mean, variance = (
                np.concatenate([ask("depth"), ask("velocity")], axis=1) for ask in (pred.mean, pred.variance)
            )
            gap = float(np.mean(np.abs(mean - gold.mean) / gold.sd))
            ratio = np.mean(np.sqrt(variance) / gold.sd, axis=0)
            shown = [f"{part.min():.3f} to {part.max():.3f}" for part in (ratio[:4], ratio[4:])]
            rows.append((f"{model}, {posterior}", gap, *shown, run.running, fits[0].compiling))
            if posterior == "coupled":
                gaps.append(gap)
                ratios += [*ratio]
                slowest = max(slowest, run.running)
    columns = ["model, posterior", "mean gap / sd", "sd ratio, depths", "sd ratio, velocities", "seconds", "compiling"]
    show("seismic: against NUTS", columns, rows, "averages over sites; a ratio for each latent; the faster of two runs")
    verdict("R-hat of NUTS", rhat, 1.01)
    verdict("coupled: distance of the means, NUTS standard deviations", max(gaps), 0.03)
    verdict("coupled: a standard deviation too small by the factor", 1 / min(ratios), 1 / 0.92)
    verdict("coupled: a standard deviation too large by the factor", max(ratios), 1.03)
    verdict("coupled: seconds after compilation", slowest, 1.0)


def _fitted(model: str, posterior: str, data: dict[str, np.ndarray]) -> gpdsl.Fit:
    return gpdsl.zoo(model).fit(data, posterior=posterior, seed=0)


def _bounds(program: Program, fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> np.ndarray:
    """log p(y | f_s) - KL(q | prior) for fresh f_s from q's marginals: its mean is the bound."""
    bound = fit.bind(data, None, outputs=True)
    with jax.enable_x64(True):
        rows = as_arrays(make_rows(program, bound), "float64")
        marginals = fit.at_rows.marginals(fit.program, rows, bound.rows)

        @jax.jit
        def chunk(key: jax.Array) -> jax.Array:
            normals = jax.random.normal(key, (AT_ONCE, *marginals.mean.shape))
            values = log_density(program, Scope({}, rows, marginals.at(fit.program, normals)), normals.shape[:3])
            return values[:, 0].sum(axis=-1)

        keys = jax.random.split(jax.random.key(20_000), SAMPLES // AT_ONCE)
        return np.concatenate([chunk(k) for k in keys]) - _divergence(fit)


def _divergence(fit: gpdsl.Fit) -> float:
    """KL between q and the prior of the whitened inducing values; the roots of a coupled q belong together."""
    roots = [np.asarray(q.root)[0] for q in fit.posterior]
    if fit.program.coupled:
        roots = [np.concatenate([root.reshape(-1, root.shape[-1]) for root in roots])]
    log_det = sum(float(np.sum(np.linalg.slogdet(root)[1])) for root in roots)
    means, squares = (np.concatenate([np.ravel(a) for a in each]) for each in ([q.mean for q in fit.posterior], roots))
    return 0.5 * float(np.sum(means**2) + np.sum(squares**2) - means.size) - log_det


def _show(posterior: str, judged: Mapping[str, Judged]) -> None:
    best = max(judged.values(), key=lambda j: j.bounds.mean())
    rows, furthest, noise = [], 0.0, np.std(best.bounds) / np.sqrt(SAMPLES)
    for name, j in judged.items():
        gap = best.bounds - j.bounds  # the same samples judge both, so the difference is sharper than either
        error, gap_error = (np.std(b) / np.sqrt(SAMPLES) for b in (j.bounds, gap))
        furthest = max(furthest, float(gap.mean()))
        reported = f"{j.fit.elbo:.3f} ± {j.fit.elbo_se:.2g}" if j.fit.elbo_se else f"{j.fit.elbo:.3f}"
        common, short = f"{j.bounds.mean():.3f} ± {error:.2g}", f"{gap.mean():.3f} ± {gap_error:.1g}"
        rows.append((name, reported, common, short, len(j.fit.history), j.fit.seconds))
    columns = ["estimator, optimiser", "ELBO reported", "ELBO, common estimate", "below the best", "steps", "seconds"]
    show(
        f"seismic, {posterior}: one estimate of every bound, {SAMPLES} fresh samples",
        columns,
        rows,
        "± one standard error, nats",
    )
    limit = 3 * np.sqrt(2) * noise  # three standard errors of the difference between two such estimates
    verdict("furthest from the best, nats; three standard errors allowed", furthest, float(limit))


def _stability(data: dict[str, np.ndarray]) -> None:
    rows, bad = [], 0
    for name, (model, options) in RUNS.items():
        if "seed" in options:
            continue
        bounds = [gpdsl.zoo(model).fit(data, **{**options, "seed": seed}).history[:, 1] for seed in SEEDS]
        broken = sum(int(np.sum(~np.isfinite(b))) for b in bounds)
        bad += broken
        rows.append(
            (
                name.removesuffix(", seed 0"),
                sum(map(len, bounds)),
                broken,
                min(float(b[-1]) for b in bounds),
                max(float(b[-1]) for b in bounds),
            )
        )
    show(
        f"seismic: steps that are not finite, {len(SEEDS)} seeds",
        ["estimator, optimiser", "steps", "not finite", "last ELBO, least", "last ELBO, largest"],
        rows,
    )
    verdict("steps that are not finite", bad, 0)
