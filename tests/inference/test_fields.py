"""Fields: straight rays against linear algebra, bent ones against Markov chains, opaque functions against traced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import gpdsl
from gpdsl.inference.fields import bound, engine
from gpdsl.inference.fields.calls import CURVATURES, REMAINDERS, _kernel, fit_emulator
from gpdsl.inference.fields.plan import OverFields
from gpdsl.kernels.numerics import jitters_for
from gpdsl.program.evaluation import field_means, roots
from gpdsl.program.program import make_rows
from gpdsl.results.fitting import prepare

SIDE = 5
POINTS = np.stack(np.meshgrid(*[np.linspace(0, 1, SIDE)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
NOISE = 0.05

STRAIGHT = f"""
model rays "Straight rays through a map of slowness"
index g in 1..G
input  path : real[g]
output t : real
const node[g] = lattice([0, 0], [1, 1], [{SIDE}, {SIDE}])
param s : positive = {NOISE}
param ell : positive = 0.4
latent f(node) ~ GP(1 + 0.5 * node[g, 2], 0.3 * Matern52(ell))
external travel(slowness: real[g], path: real[g]) -> real
let tau = travel(f, path)
t ~ Normal(tau, s)
"""

BENT = STRAIGHT.replace("travel(f, path)", "travel(exp(f(node)), path)").replace(
    f"positive = {NOISE}", "positive = 0.5"
)


def traced(slowness: Any, path: Any) -> Any:
    return jnp.einsum("ng,g->n", path, slowness)


def called(slowness: np.ndarray, path: np.ndarray) -> np.ndarray:
    assert slowness.shape == (SIDE**2,)
    return path @ slowness


SIGNATURE = "external travel(slowness: real[g], path: real[g]) -> real\n"
WRITTEN = STRAIGHT.replace(SIGNATURE, "").replace(
    "travel(f, path)", "sum(g, path[g] * f[g])\nlet rough = sum(g, exp(f[g]))"
)


def covariance(ell: float = 0.4) -> np.ndarray:
    r = np.linalg.norm(POINTS[:, None] - POINTS, axis=-1) * np.sqrt(5) / ell
    return 0.3 * (1 + r + r**2 / 3) * np.exp(-r)


def rays(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((rows, SIDE**2)) * (rng.random((rows, SIDE**2)) < 0.3)


def straight_data(rows: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    rng, path = np.random.default_rng(seed + 1), rays(rows, seed)
    f = (
        1
        + 0.5 * POINTS[:, 1]
        + np.linalg.cholesky(covariance() + 1e-9 * np.eye(SIDE**2)) @ rng.standard_normal(SIDE**2)
    )
    return {"path": path, "t": path @ f + NOISE * rng.standard_normal(rows)}


def exact(data: dict[str, np.ndarray], s: float, ell: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean and covariance of the field, and the log evidence: linear algebra."""
    prior, mean, path = covariance(ell), 1 + 0.5 * POINTS[:, 1], data["path"]
    total, gap = path @ prior @ path.T + s**2 * np.eye(len(path)), data["t"] - path @ mean
    gain = np.linalg.solve(total, path @ prior).T
    evidence = -0.5 * gap @ np.linalg.solve(total, gap) - 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    return mean + gain @ gap, prior - gain @ path @ prior, float(evidence)


@pytest.mark.parametrize(
    ("text", "function"), [(STRAIGHT, traced), pytest.param(STRAIGHT, called, marks=pytest.mark.slow), (WRITTEN, None)]
)
def test_straight_rays_are_exact(text: str, function: Any) -> None:
    data = straight_data()
    externals = {"travel": function} if function is not None else {}
    fit = gpdsl.compile(text, externals=externals).fit(data, fixed=["s", "ell"])
    mean, spread, evidence = exact(data, NOISE, 0.4)
    sd = np.sqrt(np.diag(spread))
    new = {"path": rays(6, seed=9)}
    prediction = fit.predict(new)
    assert prediction.mean("f").shape == (SIDE**2,)
    np.testing.assert_allclose(prediction.mean("f"), mean, atol=2e-3 * sd.min())
    np.testing.assert_allclose(np.sqrt(prediction.variance("f")), sd, rtol=2e-3)
    np.testing.assert_allclose(prediction.mean("tau"), new["path"] @ mean, atol=1e-3)
    assert abs(fit.elbo - evidence) < 0.01 + 3 * fit.elbo_se
    np.testing.assert_allclose(prediction.covariance("f"), spread, atol=5e-3 * sd.max() ** 2)
    if function is None:
        added = new["path"] @ spread @ new["path"].T
        np.testing.assert_allclose(prediction.covariance("tau"), added, atol=5e-3 * added.max())
        np.testing.assert_allclose(prediction.covariance("t"), added + NOISE**2 * np.eye(6), atol=5e-3 * added.max())
        with pytest.raises(gpdsl.GpdslError, match="`rough`: it is not linear in the latents"):
            prediction.covariance("rough")
    together = np.var(fit.predict(new).sample("tau", 4000, seed=1), axis=0) if function is traced else None
    if together is not None:  # drawn jointly: the variance of a sum over dependent values
        np.testing.assert_allclose(together, np.diag(new["path"] @ spread @ new["path"].T), rtol=0.15)
    if function is called:
        assert fit.usage.evaluations <= 1 + 3 * 64


def test_marginals_and_joint_samples_are_those_of_the_whitened_values(rng: np.random.Generator) -> None:
    """A load of the prior's root on mean and root of q: mean m + L mu, covariance L R R' L'."""
    program, data, _ = prepare(gpdsl.compile(WRITTEN), straight_data(), {}, {})
    jitter = 1e-9
    mean, root = rng.normal(size=SIDE**2), np.tril(rng.normal(size=(SIDE**2, SIDE**2)))
    held = SimpleNamespace(mean=jnp.asarray(mean)[None, None], root=jnp.asarray(root)[None, None])
    parameters = program.parameters.constrain(program.parameters.unconstrained())
    given: Any = SimpleNamespace(numbers=(parameters, ([held], None)), jitter=jitter)
    rows = make_rows(program, data)
    found = jax.jit(lambda: OverFields.marginals(given, program, rows, 7))()
    load = np.linalg.cholesky(covariance() + jitter * 0.3 * np.eye(SIDE**2))
    centre, spread = 1 + 0.5 * POINTS[:, 1] + load @ mean, load @ root @ root.T @ load.T
    assert found.rows == 7 and found.part(slice(1, 4)).rows == 3
    np.testing.assert_allclose(found.mean[0, 0], centre, atol=1e-8)
    np.testing.assert_allclose(found.variance[0, 0], np.diag(spread), rtol=1e-6)
    units = jnp.eye(SIDE**2)[:, None, None, :]  # what each normal adds alone
    added = np.asarray(found.at(program, units) - found.mean)[:, 0, 0]
    np.testing.assert_allclose(added.T, load @ root, atol=1e-8)


def chain(fit: Any, data: dict[str, np.ndarray], steps: int, seed: int) -> np.ndarray:
    """Draws of the field by a random walk around q that leaves q invariant (pCN), corrected to the posterior."""
    program, learnt = fit.program, {name: jnp.asarray(value) for name, value in fit.parameters.items()}
    ((sd, factor),) = roots(program, learnt, fit.jitter)
    load, centre = float(sd[0]) * np.asarray(factor[0]), np.asarray(field_means(program, learnt))
    mean, root = fit.posterior[0].mean[0, 0], fit.posterior[0].root[0, 0]

    def excess(z: np.ndarray) -> float:
        white = mean + root @ z
        gap = data["t"] - data["path"] @ np.exp(centre + load @ white)
        return float(-0.5 * np.sum((gap / 0.5) ** 2) - 0.5 * white @ white + 0.5 * z @ z)

    rng, z = np.random.default_rng(seed), np.zeros(len(mean))
    here, draws = excess(z), []
    for _ in range(steps):
        proposed = np.sqrt(1 - 0.5**2) * z + 0.5 * rng.standard_normal(len(z))
        there = excess(proposed)
        if np.log(rng.random()) < there - here:
            z, here = proposed, there
        draws.append(centre + load @ (mean + root @ z))
    return np.asarray(draws[steps // 10 :])


def bent_data() -> dict[str, np.ndarray]:
    rng, path = np.random.default_rng(4), rays(15, seed=3)
    f = (
        1
        + 0.5 * POINTS[:, 1]
        + np.linalg.cholesky(covariance() + 1e-9 * np.eye(SIDE**2)) @ rng.standard_normal(SIDE**2)
    )
    return {"path": path, "t": path @ np.exp(f) + 0.5 * rng.standard_normal(15)}


def test_bent_rays_against_a_markov_chain() -> None:
    """Nonlinear, so that q is an approximation: traced and opaque functions come to the same, and the chain near it."""
    data, found = bent_data(), {}
    for name, function in {"traced": traced, "called": called}.items():
        fit = gpdsl.compile(BENT, externals={"travel": function}).fit(data, fixed=["s", "ell"])
        prediction = fit.predict(data)
        found[name] = prediction.mean("f"), np.sqrt(prediction.variance("f")), fit
    (mean, sd, fit), (said, spread, opaque) = found["traced"], found["called"]
    assert np.sqrt(np.mean(((said - mean) / sd) ** 2)) < 0.05
    assert np.abs(np.log(spread / sd)).max() < 0.1
    assert opaque.usage.evaluations < 300
    assert abs(opaque.elbo - fit.elbo) < 4 * np.hypot(opaque.elbo_se, 0.05)
    draws = chain(fit, data, 20_000, seed=0)
    assert np.abs((draws.mean(axis=0) - mean) / draws.std(axis=0)).mean() < 0.15
    assert 0.88 < np.mean(sd / draws.std(axis=0)) < 1.05  # a Gaussian inside a bent posterior is somewhat narrow


LEARNT_DATA = straight_data(rows=40, seed=5)


@pytest.fixture(scope="module")
def learnt() -> gpdsl.Fit:
    """Straight rays with noise and length-scale learnt."""
    return gpdsl.compile(STRAIGHT, externals={"travel": traced}).fit(LEARNT_DATA)


def evidence_at(logs: np.ndarray, data: dict[str, np.ndarray] = LEARNT_DATA) -> float:
    return exact(data, *np.exp(logs))[2]


def test_hyperparameters_are_those_of_the_evidence(learnt: gpdsl.Fit) -> None:
    """Noise and length-scale learnt: the bound is the log evidence here, so they maximise it."""
    at = np.log([learnt.parameters["s"], learnt.parameters["ell"]])
    best = evidence_at(at)
    assert abs(learnt.elbo - best) < 1e-4 and learnt.message == "converged"
    steps = 0.1 * np.vstack([np.eye(2), -np.eye(2)])
    assert all(evidence_at(at + step) < best for step in steps)


def test_their_standard_errors_are_its_curvature(learnt: gpdsl.Fit) -> None:
    at, h = np.log([learnt.parameters["s"], learnt.parameters["ell"]]), 1e-3 * np.eye(2)
    second = [
        [
            evidence_at(at + a + b) - evidence_at(at + a - b) - evidence_at(at - a + b) + evidence_at(at - a - b)
            for a in h
        ]
        for b in h
    ]
    errors = np.exp(at) * np.sqrt(np.diag(np.linalg.inv(-np.array(second) / 4e-6)))
    found = learnt.standard_errors
    np.testing.assert_allclose([found["s"], found["ell"]], errors, rtol=0.01)


def test_rows_leave_a_linear_field_exactly(learnt: gpdsl.Fit) -> None:
    """Eqs. 5.10 to 5.12 of Rasmussen and Williams (2006)."""
    s, ell, path = float(learnt.parameters["s"]), float(learnt.parameters["ell"]), LEARNT_DATA["path"]
    inverse = np.linalg.inv(path @ covariance(ell) @ path.T + s**2 * np.eye(40))
    gap, own = inverse @ (LEARNT_DATA["t"] - path @ (1 + 0.5 * POINTS[:, 1])), np.diag(inverse)
    found = learnt.loo(LEARNT_DATA)
    np.testing.assert_allclose(found.pointwise, 0.5 * np.log(own / (2 * np.pi)) - 0.5 * gap**2 / own, atol=1e-5)
    assert found.method == "exact leave-one-out" and found.elpd_error == 0
    (said,) = (each for each in learnt.diagnose(LEARNT_DATA).findings if each.name == "q against the posterior")
    assert "it is the posterior" in said.said


@pytest.mark.slow
def test_they_are_exact_in_single_precision_too(learnt: gpdsl.Fit) -> None:
    single = learnt.model.fit(LEARNT_DATA, dtype="float32").loo(LEARNT_DATA)
    np.testing.assert_allclose(single.pointwise, learnt.loo(LEARNT_DATA).pointwise, atol=0.01)
    assert single.method == "exact leave-one-out" and single.elpd_error == 0


def test_what_reads_a_field_linearly_has_its_exact_law(learnt: gpdsl.Fit) -> None:
    """By samples whose covariance is 1: moments to the last digit, and all else nearly."""
    s, ell, path = float(learnt.parameters["s"]), float(learnt.parameters["ell"]), rays(4, seed=8)
    mean, spread, _ = exact(LEARNT_DATA, s, ell)
    law = scipy.stats.norm(path @ mean, np.sqrt(np.sum(path @ spread * path, axis=1) + s**2))
    prediction = learnt.predict({"path": path})
    np.testing.assert_allclose(prediction.sd("t"), law.std(), rtol=1e-5)
    np.testing.assert_allclose(prediction.quantile("t", 0.95), law.ppf(0.95), atol=2e-3)
    np.testing.assert_allclose(prediction.probability("t > 3"), law.sf(3), atol=1e-3)


def test_a_fit_goes_on_from_another(learnt: gpdsl.Fit) -> None:
    again = learnt.model.fit(LEARNT_DATA, start=learnt)
    assert again.history[0, 1] == pytest.approx(learnt.elbo, abs=1e-3) and learnt.history[0, 1] < learnt.elbo - 0.1
    assert again.elbo == pytest.approx(learnt.elbo, abs=1e-5)


def test_a_search_has_the_steps_that_noise_far_from_its_start_takes() -> None:
    data = straight_data()
    data["t"][3] = 1e6
    fit = gpdsl.compile(STRAIGHT, externals={"travel": traced}).fit(data, diagnose="no")
    assert fit.message == "converged" and float(fit.parameters["s"]) == pytest.approx(1e6 / np.sqrt(20), rel=0.05)


COUNTS = """
model counts "Counts of what two places send to each detector"
index g in 1..2
input  path : real[g]
output n : count
const node[g] = lattice(0, 1, 2)
latent f(node) ~ GP(0.5, RBF(0.7))
n ~ Poisson(sum(g, path[g] * exp(f[g])))
"""


def test_rows_leave_a_bent_field_by_its_sites(rng: np.random.Generator) -> None:
    """Against quadrature over the two values, both for the site and for the density without it."""
    path, n = rng.uniform(0, 3, (12, 2)), rng.poisson(4.0, 12).astype(float)
    data = {"path": path, "n": n}
    fit = gpdsl.compile(COUNTS).fit(data, diagnose="no")
    mean, root = fit.predict(data).mean("f"), np.linalg.cholesky(fit.predict(data).covariance("f"))
    x, w = np.polynomial.hermite_e.hermegauss(60)
    u, weights = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2), np.outer(w, w).ravel() / (2 * np.pi)

    def told(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p(n | f), its gradient and Hessian in u, of all rows."""
        parts = path * np.exp(mean + u @ root.T)[:, None]
        rate = parts.sum(axis=2)
        outer = np.einsum("sni,snj->snij", parts, parts)
        slope = parts * (n / rate - 1)[..., None]
        bend = slope[..., None] * np.eye(2) - outer * (n / rate**2)[..., None, None]
        density = n * np.log(rate) - rate - scipy.special.gammaln(n + 1)
        return density, slope @ root, np.einsum("ia,snij,jb->snab", root, bend, root)

    _, slopes, bends = (np.tensordot(weights, each, axes=1) for each in told(u))
    expected = []
    for row, (g, bend) in enumerate(zip(slopes, bends, strict=True)):
        inverse = np.linalg.inv(np.eye(2) + bend)
        density = told(u @ np.linalg.cholesky(inverse).T - inverse @ g)[0][:, row]
        expected.append(np.log(weights @ np.exp(density)))
    found = fit.loo(data)
    np.testing.assert_allclose(found.pointwise, expected, atol=0.02)
    assert np.nanmax(found.k) < 0.5


OPEN = STRAIGHT.replace("ell : positive = 0.4", "ell : positive = 0.4 ~ LogNormal(-1, 0.5)").replace(
    "let tau", "let total = sum(g, f[g])\nlet tau"
)


def on_a_grid(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Length-scales, their posterior shares, and means and standard deviations of the field at each of them."""
    grid = np.linspace(-2.5, 0.5, 61)
    known = [exact(data, NOISE, ell) for ell in np.exp(grid)]
    log = np.array([each[2] for each in known]) + scipy.stats.norm.logpdf(grid, -1, 0.5)
    sds = np.sqrt([np.diag(each[1]) for each in known])
    return np.exp(grid), np.exp(log - np.logaddexp.reduce(log)), np.stack([each[0] for each in known]), sds


@pytest.mark.parametrize(
    ("options", "off"),
    [
        ({"hyperparameters": "integrated"}, 0.02),
        pytest.param({"engine": "mcmc"}, 0.15, marks=pytest.mark.slow),
    ],
)
def test_length_scales_are_averaged_over(options: dict[str, Any], off: float) -> None:
    data = straight_data()
    fit = gpdsl.compile(OPEN, externals={"travel": traced}).fit(data, fixed=["s"], diagnose="no", **options)
    ells, weights, means, sds = on_a_grid(data)
    mean = weights @ means
    sd = np.sqrt(weights @ (sds**2 + (means - mean) ** 2))
    prediction = fit.predict(data)
    assert np.max(np.abs(prediction.mean("f") - mean) / sd) < off
    np.testing.assert_allclose(prediction.sd("f"), sd, rtol=off)
    shares = [weights @ scipy.stats.norm.cdf((end - means) / sds) for end in prediction.interval("f", 0.9)]
    np.testing.assert_allclose(shares, np.repeat([[0.05], [0.95]], SIDE**2, axis=1), atol=off / 3)
    low, high = prediction.interval("total", 0.9)
    assert low < mean.sum() < high and np.shape(low) == ()
    assert float(fit.settings.mean("ell")) == pytest.approx(weights @ ells, rel=off)
    if "engine" in options:
        assert np.isfinite(fit.loo(data).elpd)


def test_a_budget_is_kept_and_failures_are_left_out() -> None:
    data, calls = bent_data(), 0

    def failing(slowness: np.ndarray, path: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return path @ slowness if calls == 1 or calls % 10 else np.full(len(path), np.nan)

    kept = {"travel": gpdsl.opaque(failing, policy="penalise")}
    fit = gpdsl.compile(BENT, externals=kept).fit(data, fixed=["s", "ell"], evaluations=150)
    assert fit.usage.evaluations == calls <= 150
    assert fit.usage.penalised > 5
    clean = gpdsl.compile(BENT, externals={"travel": traced}).fit(data, fixed=["s", "ell"])
    gap = fit.predict(data).mean("f") - clean.predict(data).mean("f")
    assert np.sqrt(np.mean(gap**2 / clean.predict(data).variance("f"))) < 0.1
    with pytest.raises(gpdsl.GpdslError, match="NaN"):
        gpdsl.compile(BENT, externals={"travel": failing}).fit(data, fixed=["s", "ell"], evaluations=150)


@pytest.mark.slow
def test_one_row_at_a_time_and_a_result_without_rows() -> None:
    data = bent_data()
    single = gpdsl.opaque(lambda slowness, path: float(path @ slowness), vectorized=False)
    fit = gpdsl.compile(BENT, externals={"travel": single}).fit(data, fixed=["s", "ell"], samples=30, steps=2)
    text = """
model average "All that is passed is the same in every row, and so is the result"
index g in 1..6
output t : real
const node[g] = lattice(0, 1, 6)
latent f(node) ~ GP(0, RBF(0.5))
external level(field: real[g]) -> real
t ~ Normal(level(f), 0.1)
"""
    shapes = set()

    def level(field: np.ndarray) -> float:
        shapes.add(np.shape(field))
        return float(field.mean())

    other = gpdsl.compile(text, externals={"level": level}).fit({"t": np.full(5, 0.7)}, samples=20)
    assert shapes == {(6,)}
    assert abs(other.predict({"t": np.zeros(5)}).mean("f").mean() - 0.7) < 0.02
    assert np.isfinite(fit.elbo)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"posterior": "mixture(2)"}, "posterior = mixture"),
        ({"batch": 5}, "batch = 5"),
        ({"optimizer": "adam"}, "optimizer = adam"),
        ({"inducing": 10}, "inducing = 10"),
        ({"engine": "ep"}, "engine = ep"),
    ],
)
def test_what_does_not_go_with_a_field_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=said):
        gpdsl.compile(STRAIGHT, externals={"travel": traced}).fit(straight_data(), **options)


def test_a_field_beside_another_latent_is_refused() -> None:
    text = STRAIGHT.replace("let tau", "input x : real\nlatent h(x) ~ GP(0, RBF(1))\nlet tau").replace(
        "Normal(tau, s)", "Normal(tau + h, s)"
    )
    with pytest.raises(gpdsl.GpdslError, match="`f` is a field"):
        gpdsl.compile(text, externals={"travel": traced}).fit({**straight_data(), "x": np.arange(20.0)})


def test_a_fit_is_saved_and_drawn_from(tmp_path: Any) -> None:
    model = gpdsl.compile(STRAIGHT, externals={"travel": called})
    drawn = model.sample_prior({"path": rays(20, seed=2)}, seed=3)
    truth = drawn.latents["f"][0]
    assert (drawn.latents["f"] == truth).all()
    np.testing.assert_allclose(drawn.lets["tau"], rays(20, seed=2) @ truth)
    fit = model.fit(drawn.data, fixed=["s", "ell"], samples=30, steps=3, diagnose="no")
    fit.save(tmp_path / "rays.gpfit")
    again = gpdsl.load_fit(tmp_path / "rays.gpfit", externals={"travel": called})
    for name in ("f", "t"):
        np.testing.assert_array_equal(again.predict(drawn.data).mean(name), fit.predict(drawn.data).mean(name))
    plan = model.explain(drawn.data, samples=30)
    assert "does not factorise" in plan and "evaluations: 30 calls a round;" in plan
    assert "all 25 values of f jointly" in fit.summary()
    assert np.isfinite(fit.log_predictive_density(drawn.data)).all()


def test_tables_and_servers_of_a_fit(tmp_path: Any) -> None:
    """A table has a row per point for what has no rows; a server repeats it for every row it is asked about."""
    from gpdsl.results.serving import offered
    from gpdsl.results.table import default_names, table_of

    data = straight_data(rows=5)
    fit = gpdsl.compile(STRAIGHT, externals={"travel": traced}).fit(data, fixed=["s", "ell"], samples=4)
    declared, prediction = fit.program.declarations, fit.predict(data)
    assert default_names(declared) == ["t", "tau"]
    table = table_of(prediction, declared, ["f"], [])
    np.testing.assert_array_equal(table["f_mean"], prediction.mean("f"))
    with pytest.raises(gpdsl.GpdslError, match="the same in every row"):
        table_of(prediction, declared, ["t", "f"], [])
    served = offered(fit, ["f"])["f"].evaluate(data["path"])
    np.testing.assert_allclose(served[:, : SIDE**2], np.tile(prediction.mean("f"), (5, 1)))
    cells = fit.plot().axes[0].collections[0].get_array()
    np.testing.assert_allclose(np.ravel(cells), prediction.mean("f").reshape(SIDE, SIDE).T.ravel())


def test_jitter_of_single_precision_is_raised_by_tens(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no factor gets the next jitter: a hundred times as much would be noise that a model can see."""
    assert jitters_for("float32")[:3] == pytest.approx((1e-5, 1e-4, 1e-3))
    hopeless = lambda dtype: (-1.0, *jitters_for(dtype))  # noqa: E731
    monkeypatch.setattr("gpdsl.inference.fields.plan.jitters_for", hopeless)
    data = {"path": np.eye(SIDE**2)[:3], "t": np.ones(3)}
    fit = gpdsl.compile(WRITTEN).fit(data, dtype="float32", steps=1, fixed=["s"])
    assert fit.jitter == pytest.approx(1e-5)


@pytest.mark.parametrize("inner", [-0.6, 0.1, 0.8])
def test_the_kernel_of_the_emulator_is_an_exponential_to_third_order(inner: float) -> None:
    """rho (exp(inner / rho) - 1), but for inner^4 / 24 rho^3 and what is smaller."""
    assert abs(_kernel(inner, 4.0) - 4.0 * np.expm1(inner / 4.0)) < 1.2 * inner**4 / (24.0 * 4.0**3)


def test_an_emulator_is_the_regression_that_best_foretells_the_latest_calls() -> None:
    """Each left out in turn; what no polynomial explains grows with the sixth power of the distance, from 1 on."""
    rng, latest = np.random.default_rng(3), 4
    calls = np.concatenate([rng.normal(size=(3, 2)) * 3.0 + 5.0, rng.normal(size=(latest, 2)) + 5.0])
    results = np.stack([np.exp(0.3 * calls[:, 0]), calls[:, 0] * calls[:, 1]], axis=1) + 0.1 * rng.normal(size=(7, 2))
    centre, level = calls[-latest:].mean(axis=0), results[-latest:].mean(axis=0)
    length = np.sqrt(np.mean(np.sum((calls[-latest:] - centre) ** 2, axis=1)))
    z, y, new = (calls - centre) / length, results - level, (np.array([5.5, 4.0]) - centre) / length

    def foretold(rest: np.ndarray, at: np.ndarray, rho: float, remainder: float) -> np.ndarray:
        cubic = lambda inner: inner + inner**2 / (2 * rho) + inner**3 / (6 * rho**2)  # noqa: E731
        noise = remainder * np.maximum(np.linalg.norm(z[rest], axis=1), 1.0) ** 6
        return cubic(z[rest] @ at) @ np.linalg.solve(cubic(z[rest] @ z[rest].T) + np.diag(noise), y[rest])

    best: tuple[float, np.ndarray] = (np.inf, y[0])
    for rho in CURVATURES:
        for remainder in REMAINDERS:
            errors = [y[n] - foretold(np.arange(7) != n, z[n], rho, remainder) for n in range(7 - latest, 7)]
            missed = float(np.mean(np.square(errors)))
            best = min(best, (missed, foretold(np.ones(7, bool), new, rho, remainder)), key=lambda each: each[0])
    with jax.enable_x64(True):
        found = fit_emulator(calls, results, latest)(jnp.array([5.5, 4.0]))
    np.testing.assert_allclose(found, level + best[1], rtol=1e-6)


def test_precisions_of_no_sign_are_reflected() -> None:
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    with jax.enable_x64(True):
        found = bound.reflected(jnp.asarray(turned @ np.diag([-2.0, 0.5, 3.0]) @ turned.T))
    np.testing.assert_allclose(found, turned @ np.diag([2.0, 0.5, 3.0]) @ turned.T, atol=1e-12)


def gaussian(rng: np.random.Generator) -> tuple[bound.Joint, np.ndarray]:
    """q of three values, and its covariance."""
    precision = np.cov(rng.normal(size=(3, 9))) + np.eye(3)
    return bound.Joint(jnp.asarray(rng.normal(size=3)), jnp.linalg.cholesky(precision)), np.linalg.inv(precision)


def test_one_step_ends_at_the_posterior_of_a_linear_model_and_a_part_of_it_on_the_way(rng: np.random.Generator) -> None:
    """Of y = H w + noise, w ~ N(0, I), from wherever q is; of a precision by parts of precisions."""
    design, y, noise = rng.normal(size=(5, 3)), rng.normal(size=5), 0.4
    with jax.enable_x64(True):
        q, covariance = gaussian(rng)
        gradient, information = design.T @ (y - design @ q.mean) / noise**2, design.T @ design / noise**2
        whole, part, none = (bound.moved(q, gradient, np.eye(3) + information, rate) for rate in (1.0, 0.25, 0.0))
    exact = np.linalg.solve(np.eye(3) + information, design.T @ y / noise**2)
    np.testing.assert_allclose(whole.mean, exact)
    np.testing.assert_allclose(whole.root() @ whole.root().T, np.linalg.inv(np.eye(3) + information))
    np.testing.assert_allclose(part.mean, 0.75 * q.mean + 0.25 * exact)
    mixed = 0.75 * np.linalg.inv(covariance) + 0.25 * (np.eye(3) + information)
    np.testing.assert_allclose(part.factor @ part.factor.T, mixed)
    np.testing.assert_allclose(none.factor, q.factor)


def test_divergences_of_gaussians_are_those_of_dense_algebra(rng: np.random.Generator) -> None:
    def divergence(mean: Any, cov: Any, other: Any, own: Any) -> float:
        """KL(N(mean, cov) | N(other, own))."""
        inverse, gap = np.linalg.inv(own), mean - other
        logs = np.linalg.slogdet(own)[1] - np.linalg.slogdet(cov)[1]
        return 0.5 * float(np.trace(inverse @ cov) + gap @ inverse @ gap - len(gap) + logs)

    with jax.enable_x64(True):
        (a, cov), (b, own) = gaussian(rng), gaussian(rng)
        found, apart = float(a.divergence()), float(bound.difference(a, b))
        begun = bound.start(3, 0.1, float)
    assert found == pytest.approx(divergence(a.mean, cov, np.zeros(3), np.eye(3)))
    both = divergence(a.mean, cov, b.mean, own) + divergence(b.mean, own, a.mean, cov)
    assert apart == pytest.approx(0.5 * both)
    np.testing.assert_allclose(begun.root(), 0.1 * np.eye(3))


def test_moments_of_values_are_those_of_linear_functions_of_whitened_ones(rng: np.random.Generator) -> None:
    """And their distance is the larger of shifts, in standard deviations, and of relative widenings."""
    loading, level = rng.normal(size=(4, 3)), rng.normal(size=4)
    run: Any = SimpleNamespace(fields=lambda _, white: (level[:, None] + loading @ white).T)
    with jax.enable_x64(True):
        q, covariance = gaussian(rng)
        mean, sd = engine.FieldRun.moments(run, {}, q)
    np.testing.assert_allclose(mean, level + loading @ q.mean)
    np.testing.assert_allclose(sd, np.sqrt(np.diag(loading @ covariance @ loading.T)))
    mean, sd = np.asarray(mean), np.asarray(sd)
    assert engine.distance((mean, sd), (mean + 0.2 * sd, 1.1 * sd)) == pytest.approx(0.2 / 1.1)
    assert engine.distance((mean, sd), (mean - 0.02 * sd, sd / 1.1)) == pytest.approx(np.log(1.1))
