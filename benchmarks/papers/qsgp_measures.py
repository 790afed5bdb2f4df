"""What `qsgp.py` measures of single steps: the variance of an estimate, and processor time and memory by m and n."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from kept import Kept
from report import CONSOLE, find_data, show

import gpdsl

ARD = """
input x : real[D]
output y : real
param s2    : positive = 1
param ell   : positive[D] = {ell}
param noise : positive = 0.3
latent f(x) ~ GP(0, s2 * RBF(ell))
y ~ Normal(f, noise)
"""


def split(name: str, number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None:
    """Training and test rows of one split: inputs standardised by the training rows, `y` in its own unit."""
    files = find_data(f"{name}.npz")
    if files is None:
        return None
    table = np.load(files[0])
    test = table["test_mask"][:, number].astype(bool)
    x = table["x"].astype(float)
    mean, sd = x[~test].mean(axis=0), x[~test].std(axis=0)
    varying = sd > 0
    x = (x[:, varying] - mean[varying]) / sd[varying]
    rows = {"x": x, "y": table["y"].astype(float).ravel()}
    return tuple({key: values[where] for key, values in rows.items()} for where in (~test, test))  # type: ignore[return-value]


def variance(kept: Kept, folder: Path) -> None:
    """Figure 1: variance of the estimate of mu'Phi'Phi mu / sigma^2 and of its gradient, by rank of the control.

    kin40k, 10,000 random Fourier features of an ARD kernel whose hyperparameters 1000 rows gave, mu from the prior, 500
    rows and two times 500 functions a draw.
    """
    data = split("kin40k", 0)
    if data is None:
        return
    ranks = (0, 30, 100, 300, 1000)
    found = {rank: kept.measure(f"variance {rank}", lambda r=rank: _variance(data[0], r)) for rank in ranks}
    start = found[0]
    rows = [[rank, value / start[0], slope / start[1]] for rank, (value, slope) in found.items()]
    show("QSGP figure 1, kin40k, m = 10,000", ("rank", "variance of the value", "of the gradient"), rows)
    figure, panel = _figure()
    for column, label in ((1, "objective"), (2, "gradient")):
        panel.semilogy([row[0] for row in rows], [row[column] for row in rows], "o-", label=label)
    panel.set(xlabel="rank of the control variate", ylabel="variance, normalised")
    _save(figure, panel, folder / "qsgp_control_variate.png")


def _variance(rows: dict[str, np.ndarray], rank: int, draws: int = 1000, size: int = 500) -> list[float]:
    """Variance of the value, and that of the gradient averaged over the elements of mu."""
    import jax
    import jax.numpy as jnp

    from gpdsl.inference.quadruply_stochastic.sampled import support_at
    from gpdsl.inference.quadruply_stochastic.weights import fourier_features
    from gpdsl.program.cache import jit

    some = {name: values[:1000] for name, values in rows.items()}
    fit = gpdsl.compile(ARD.format(ell=2.8)).fit(some, inducing=0, seed=0)
    m, n = 10_000, len(rows["y"])
    problem = _problem(ARD.format(ell=2.8), rows, {"init": dict(fit.parameters), "features": m, "dtype": "float32"})
    features, learnt = fourier_features(problem.program, m, 0), problem.parameters
    rng = np.random.default_rng(0)
    x = jnp.asarray(rows["x"], jnp.float32)
    support = x[rng.permutation(n)[:rank]]
    mu = jnp.asarray(rng.normal(size=m), jnp.float32)
    exact = (
        jnp.concatenate([features.values(learnt, support, jnp.arange(i, i + 1000)) for i in range(0, m, 1000)], 1) @ mu
    )
    weight = n / float(fit.parameters["noise"]) ** 2
    form = support_at(problem, features, learnt, support, rng).form if rank else None

    def estimate(mu: jax.Array, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, 3)
        here = x[jax.random.randint(keys[0], (size,), 0, n)]
        index = [jax.random.randint(each, (size,), 0, m) for each in keys[1:]]
        sums = lambda points: [features.values(learnt, points, i) @ mu[i] * (m / size) for i in index]  # noqa: E731
        one, two = sums(here)
        value = weight * jnp.mean(one * two)
        if not rank:
            return value
        one, two = sums(support)
        pulled = form @ exact
        tangent = pulled @ (one + two)  # the gradient of the expectation in the drawn weights alone: appendix F.1
        return value + tangent - jax.lax.stop_gradient(tangent) + exact @ pulled - one @ form @ two

    @jit
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(estimate)(mu, key)

    values, first, second = [], 0.0, 0.0
    for number in range(draws):
        value, slope = draw(jax.random.key(number))
        values.append(float(value))
        slope = np.asarray(slope, float)
        first, second = first + slope / draws, second + slope**2 / draws
    return [float(np.var(values)), float(np.mean(second - first**2))]


def cost(kept: Kept, folder: Path) -> None:
    """Processor time and working memory of a step against m and n, by either way of summing over basis functions."""
    cases = [(m, 10_000) for m in (10_000, 100_000, 1_000_000, 10_000_000)]
    cases += [(10_000, n) for n in (100_000, 1_000_000)]
    rows = []
    for sums in ("sampled", "running"):
        for m, n in cases:
            found = kept.measure(f"cost {sums} {m} {n}", lambda m=m, n=n, s=sums: _cost(m, n, s))
            rows.append([sums, m, n, *found])
    columns = ("sums", "m", "n", "ms a step (CPU, median)", "working memory, MB")
    show("QSGP, the cost of a step (500 rows, blocks of 2000 functions, 8 columns)", columns, rows)
    figure, panel = _figure()
    for sums in ("sampled", "running"):
        own = [row for row in rows if row[0] == sums and row[2] == 10_000]
        panel.semilogx([row[1] for row in own], [row[3] for row in own], "o-", label=f"{sums} sums, n = 10,000")
        own = [row for row in rows if row[0] == sums and row[1] == 10_000]
        panel.semilogx([row[2] for row in own], [row[3] for row in own], "s--", label=f"{sums} sums, m = 10,000, by n")
    panel.set(xlabel="m or n", ylabel="processor time of a step, ms", ylim=(0, None))
    _save(figure, panel, folder / "qsgp_cost.png")


def _cost(m: int, n: int, sums: str, seconds: float = 20.0) -> list[float]:
    """Of a fit that is stopped after some steps, without the pass over all functions at its end."""
    import jax
    import jax.numpy as jnp

    from gpdsl.inference.quadruply_stochastic import engine
    from gpdsl.inference.quadruply_stochastic.weights import fourier_features, start_weights

    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 8)).astype(np.float32)
    rows = {"x": x, "y": np.sin(x[:, 0]) + 0.1 * rng.normal(size=n)}
    problem = _problem(ARD.format(ell=2.8), rows, {"features": m, "feature_sums": sums, "feature_batch": 2000})
    features = fourier_features(problem.program, m, 0)
    ascent: Any = engine.ASCENTS[sums](problem, features, start_weights(m, 0, 1.0, "float32"), problem.parameters)
    memory = ascent.working_memory() / 2**20
    jax.block_until_ready(jnp.zeros(()))
    times, done, begun = [], 0, time.process_time()
    while not times or (time.process_time() - begun < seconds and len(times) < 30):
        start = time.process_time()
        now, _ = ascent.advance()
        times.append((time.process_time() - start) / (now - done) * 1e3)
        done = now
    return [float(np.median(times)), memory]


def _problem(text: str, rows: dict[str, Any], options: dict[str, Any]) -> Any:
    """What the engine is given, by the parts of `infer`."""
    import jax.numpy as jnp

    from gpdsl.inference.infer import plan
    from gpdsl.inference.problem import Monitor, Problem, as_arrays
    from gpdsl.program.program import make_rows
    from gpdsl.results.fitting import prepare

    program, data, known = prepare(gpdsl.compile(text), rows, {}, {"engine": "qsgp", "start_rows": 0, **options})
    planned = plan(program, data, known)
    placed = as_arrays(make_rows(program, data), known.dtype)
    parameters = as_arrays(program.parameters.unconstrained(), known.dtype)
    monitor = Monitor(planned.choice.steps, None, "cost")
    return Problem(
        program, placed, data.rows, planned.layout, planned.choice, known, parameters, [], jnp.zeros(()), monitor
    )


def _figure() -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 4))


def _save(figure: Any, panel: Any, path: Path) -> None:
    panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    CONSOLE.print(f"wrote {path}")
