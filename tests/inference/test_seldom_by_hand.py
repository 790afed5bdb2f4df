"""What whole fits seldom come to, against NumPy: shortened steps, flat directions, rows taken out of mixed latents."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import Damaged
from gpdsl.inference.best_gaussian import Gaussian, ascended, normals
from gpdsl.inference.images import Images
from gpdsl.inference.inducing import growth
from gpdsl.inference.inducing.loss import Loss
from gpdsl.inference.log_joint import _own_root
from gpdsl.inference.natural.site_blocks import _own_covariance_times
from gpdsl.inference.natural.sites import SitePosterior, Sites, blend
from gpdsl.inference.posteriors.family import Diagonal, Full, project, project_root
from gpdsl.inference.posteriors.features import Features
from gpdsl.inference.problem import Result
from gpdsl.inference.quadruply_stochastic import engine
from gpdsl.inference.quadruply_stochastic.unsampled import SolvedFit
from gpdsl.inference.resolution import MATTERS, jitter_note
from gpdsl.program.joint import Marginals
from gpdsl.program.white import training
from gpdsl.results.criticism.cavity import cavities
from gpdsl.results.expectation import Beliefs
from gpdsl.results.fitting import prepare
from gpdsl.results.series import _hermite
from gpdsl.results.settings import Setting, Settings
from gpdsl.results.verification import check_own
from tests.inference.problems import problem_of

HEAD = "input x : real\noutput y : real\n"


@pytest.mark.parametrize("root", [np.array([0.5]), np.array([[0.5]])], ids=["diagonal", "full"])
def test_a_flat_density_leaves_q_as_wide_as_it_may_be_at_rest(root: np.ndarray) -> None:
    """A step promises to widen it further each time, and gains nothing."""

    def density(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1e-4 * at[:, 0], np.full_like(at, 1e-4)

    q, rest = ascended(density, Gaussian(np.zeros(1), root), normals(64, 1, 0), np.array([2.0]), 0)
    assert rest and q.sds[0] == pytest.approx(2.0)


@pytest.mark.parametrize("dense", [False, True])
def test_a_diagonal_posterior_is_whitened_with_the_same_marginals(dense: bool, rng: np.random.Generator) -> None:
    """Sparse: diagonal in the whitened values; dense: in the values at the rows, whose covariance is the factor's."""
    root = np.linalg.cholesky(0.5 * np.eye(3) + 0.4)[None]
    phi, left = (root, np.zeros((1, 3))) if dense else (rng.normal(size=(1, 4, 3)), rng.uniform(size=(1, 4)))
    features = Features(jnp.asarray(phi), jnp.asarray(left), jnp.asarray(root))
    q = {"mean": jnp.asarray(rng.normal(size=(2, 1, 3))), "log_sd": jnp.asarray(rng.normal(size=(2, 1, 3)))}
    family = Diagonal(2, dense)
    white, (mean, variance) = family.whitened(q, features), family.moments(q, features)
    np.testing.assert_allclose(project(features, white.mean), mean, rtol=1e-5)
    np.testing.assert_allclose(project_root(features, white.root) + features.residual, variance, rtol=1e-4)


def test_a_newton_step_that_goes_too_far_is_halved_until_it_gains() -> None:
    """From 0 towards 8, where the bound is highest at 1: an eighth of the step, and a bound from there on."""
    program, options = SimpleNamespace(conjugate=False), SimpleNamespace(tolerance=1e-9)
    fit: Any = SimpleNamespace(
        problem=SimpleNamespace(program=program, options=options, choice=SimpleNamespace(steps=9)),
        q=0.0,
        constant=10.0,
        _here=SimpleNamespace(bound=-1.0),
        _done=0,
        _best=lambda: 8.0,
        _between=lambda goal, share: share * goal,
        _site=lambda q: SimpleNamespace(bound=-((q - 1.0) ** 2)),
    )
    assert SolvedFit.advance(fit) == (1, 10.0) and fit.q == 1.0
    fit._best = lambda: -1000.0  # a way on which no step gains anything
    assert SolvedFit.advance(fit) == (9, 10.0) and fit.q == 1.0 and fit.message == "solved"


def test_a_row_is_taken_out_of_latents_that_it_mixes() -> None:
    """Normal observations of f + 2 g: of each row the joint Gaussian given the outputs of all others."""
    x, y = np.array([0.0, 0.4, 1.0, 1.7]), np.array([0.5, -0.3, 1.0, 0.2])
    text = HEAD + "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, 0.5 * RBF(0.7))\ny ~ Normal(f + 2 * g, 0.6)"
    apart = x[:, None] - x
    prior = np.zeros((8, 8))
    prior[:4, :4], prior[4:, 4:] = np.exp(-0.5 * apart**2), 0.5 * np.exp(-0.5 * (apart / 0.7) ** 2)
    map_ = np.concatenate([np.eye(4), 2 * np.eye(4)], axis=1)

    def given(rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
        read = map_[rows] @ prior
        gain = np.linalg.solve(read @ map_[rows].T + 0.36 * np.eye(len(rows)), read).T
        return gain @ y[rows], prior - gain @ read

    def of_row(mean: np.ndarray, covariance: np.ndarray, row: int) -> tuple[np.ndarray, np.ndarray]:
        return mean[[row, row + 4]], covariance[np.ix_([row, row + 4], [row, row + 4])]

    with jax.enable_x64(True):
        problem = problem_of(text, {"x": x, "y": y}, posterior="coupled")
        mean, covariance = (
            np.stack(each) for each in zip(*(of_row(*given([*range(4)]), n) for n in range(4)), strict=True)
        )
        marginals = Marginals(mean[None], np.einsum("naa->na", covariance)[None], covariance[None])
        at = Beliefs(problem.program, {}, problem.rows, marginals, np.ones(1))
        found, sound = cavities(at, SimpleNamespace(left_open=lambda *_: None))  # type: ignore[arg-type]
        open_ = np.stack([share * each for share, each in zip((0.1, 0.2, 0.05, 0.15), covariance, strict=True)])
        partly, _ = cavities(at, SimpleNamespace(left_open=lambda *_: open_))  # type: ignore[arg-type]
    assert sound.all()
    reads = np.array([1.0, 2.0])
    for row, (known, all_, rest) in enumerate(zip(mean, covariance, open_, strict=True)):
        left = np.linalg.inv(np.linalg.inv(all_ - rest) - np.outer(reads, reads) / 0.36)  # the row tells of this part
        np.testing.assert_allclose(partly.covariance[0, row], left + rest, atol=1e-7)
        np.testing.assert_allclose(
            partly.mean[0, row], known - left @ reads * (y[row] - reads @ known) / 0.36, atol=1e-7
        )
    for row in range(4):
        mean, covariance = of_row(*given([n for n in range(4) if n != row]), row)
        np.testing.assert_allclose(found.mean[0, row], mean, atol=1e-8)
        np.testing.assert_allclose(found.covariance[0, row], covariance, atol=1e-8)
        np.testing.assert_allclose(found.variance[0, row], np.diag(covariance), atol=1e-8)


def test_of_latents_of_which_some_have_points_the_others_have_one_at_each_distinct_input() -> None:
    x = np.array([1.0, 0.0, 1.0, 2.0, 0.0])
    text = HEAD + "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(2))\ny ~ Normal(f * g, 0.3)"
    problem = problem_of(text, {"x": x, "y": x}, inducing={"f": 0, "g": 2})
    of = {
        group.names[0]: np.asarray(at.points)
        for group, at in zip(problem.program.groups, problem.inducing, strict=True)
    }
    np.testing.assert_array_equal(of["f"], [[0.0], [1.0], [2.0]])
    assert of["g"].shape == (2, 1)


WHITE = "input x : real\noutput y : {}\nlatent f(x) ~ GP(0, RBF(1) + 0.2 * White())\ny ~ {}"
TWO = {"x": np.array([0.0, 1.0]), "y": np.array([0, 1])}


@pytest.mark.parametrize("law", ["StudentT(4, f, 0.3)", "Normal(f, exp(f))", "Poisson(exp(f))"])
def test_white_noise_is_left_to_the_prior_where_no_normal_output_takes_it(law: str) -> None:
    text = WHITE.format("count" if law.startswith("Poisson") else "real", law)
    program = prepare(gpdsl.compile(text), TWO, {}, {})[0]
    found = training(program, dense=False)
    assert [group.apart for group in found.groups] == [True]
    assert [each.log_density for each in found.observations] == [each.log_density for each in program.observations]


def test_a_normal_output_takes_white_noise_as_often_as_it_reads_it() -> None:
    found = training(prepare(gpdsl.compile(WHITE.format("real", "Normal(3 * f, 0.3)")), TWO, {}, {})[0], dense=False)
    (law,) = (each.law for each in found.observations)
    assert law is not None and float(law.arguments["sd"]) == pytest.approx(np.sqrt(0.09 + 9 * 0.2))
    assert [group.apart for group in found.groups] == [False]


def test_inducing_points_of_a_file_are_of_the_latents_of_its_model() -> None:
    text = HEAD + "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\ny ~ Normal(f * g, 1)"
    problem, mine, others = problem_of(text, TWO), {"f": 3, "g": 4}, {"f": 3, "h": 4}
    asked, own = (partial(replace, each) for each in (problem.options, problem.choice))
    for options, choice in ((asked(inducing=mine), problem.choice), (asked(inducing=mine), own(own=mine))):
        check_own(problem.program, options, choice)
    for options, choice in (
        (asked(inducing=others), problem.choice),
        (asked(inducing=mine), own(own=others)),
        (asked(inducing=3), own(own=mine)),
    ):
        with pytest.raises(Damaged, match="is not that of the latents"):
            check_own(problem.program, options, choice)


@pytest.mark.parametrize("step", [0.0, 0.3, 1.0])
def test_sites_are_blended_by_the_share_of_the_step(step: float) -> None:
    old, new = Sites(jnp.full((2, 1), 2.0), jnp.full((2, 1), 1.0)), Sites(jnp.full((2, 1), -3.0), jnp.full((2, 1), 5.0))
    found = blend(old, new, step)
    np.testing.assert_allclose(found.linear, 2.0 - 5.0 * step, rtol=1e-6)
    np.testing.assert_allclose(found.precision, 1.0 + 4.0 * step, rtol=1e-6)


def test_moments_of_a_parameter_are_of_all_draws_of_chains_and_else_of_weighted_settings() -> None:
    a, b = np.array([[1.0, 2.0, 4.0], [3.0, 7.0, 1.0]]), np.array([2.0, 6.0])
    each = tuple(Setting({"a": np.array(9.0), "b": value}, ()) for value in b)
    settings = Settings(np.array([0.25, 0.75]), each, np.nan, 2.0, chains={"a": a})
    assert settings.mean("a") == pytest.approx(a.mean()) and settings.sd("a") == pytest.approx(a.std())
    assert settings.mean("b") == pytest.approx(5.0) and settings.sd("b") == pytest.approx(np.sqrt(3.0))


def test_a_place_goes_to_one_of_its_images_at_random(rng: np.random.Generator) -> None:
    """Two values that change places, and one that changes its sign."""
    images = Images(np.array([[0, 1, 2], [1, 0, 2]]), np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0]]))
    white = rng.normal(size=(40, 3))
    changed = np.stack([white[:, 1], white[:, 0], -white[:, 2]], axis=1)
    found = images.at_random(white, rng)
    there = np.all(found == changed, axis=1)
    np.testing.assert_array_equal(found, np.where(there[:, None], changed, white))
    assert 5 < there.sum() < 35
    np.testing.assert_allclose(images.of(jnp.asarray(white[0])), [white[0], changed[0]], rtol=1e-6)


def test_what_errors_of_outputs_take_of_the_likelihood_goes_with_their_precision() -> None:
    """n p / 2 times the variance of the errors, for a precision p of 1 / s^2."""
    y = np.array([1.0, -2.0, 0.5, 4.0])
    text = HEAD + "param s : positive = 0.4\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)"
    found = engine._noise(problem_of(text, {"x": np.arange(4.0), "y": y}))["noise of y"].log_density
    (s,) = found.free_symbols
    taken = 4 * (engine.RESOLUTION * y.std()) ** 2 / 0.5**2 / 2
    assert float(found.subs(s, 0.5)) == pytest.approx(-taken, rel=1e-6)


def test_hermite_polynomials_are_orthonormal_and_as_many_as_are_asked_for() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    found = _hermite(nodes, 7)
    np.testing.assert_allclose(found * (weights / weights.sum()) @ found.T, np.eye(7), atol=1e-9)


def test_roots_of_latents_alone_are_those_of_the_rows_of_a_root_of_all(rng: np.random.Generator) -> None:
    root = rng.normal(size=(1, 2, 3, 7))
    own = _own_root(cast(Any, SimpleNamespace(per_row=False)), jnp.asarray(root))
    wanted = np.einsum("kjmd,kjnd->kjmn", root, root)
    np.testing.assert_allclose(own @ np.swapaxes(own, -1, -2), wanted, rtol=1e-4, atol=1e-5)
    assert not np.triu(own[0, 0], 1).any()
    sds = _own_root(cast(Any, SimpleNamespace(per_row=True)), jnp.asarray(root))
    np.testing.assert_allclose(sds[..., 0], np.linalg.norm(root, axis=-1), rtol=1e-6)


def test_values_times_the_covariance_of_q(rng: np.random.Generator) -> None:
    """(L L')^-1 v of a precision's factor, latent by latent, and v / p of rows."""
    factor, values = np.tril(rng.uniform(0.5, 1.5, (2, 4, 4))), rng.normal(size=(2, 4))
    of_sites = SitePosterior(*map(jnp.asarray, (values, factor, values, values, 0.0)))
    found = _own_covariance_times(of_sites, jnp.asarray(values))
    wanted = np.linalg.solve(factor @ np.swapaxes(factor, 1, 2), values[..., None])[..., 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_what_is_tempered_is_told_in_nats_of_the_bound() -> None:
    one = Result({}, [], [], np.ones(1), -4.0, 0.5, loss=Loss(1.5, 20), loss_bounds=(0.5, 3.0))
    found = growth._result(one, 0.2)
    assert (found.elbo, found.elbo_se) == pytest.approx((-0.8, 0.1))
    assert found.loss == Loss(pytest.approx(0.3), 20) and found.loss_bounds == pytest.approx((0.1, 0.6))
    nothing = growth._result(replace(one, loss=None, loss_bounds=None), 0.2)
    assert nothing.loss is None and nothing.loss_bounds is None


@pytest.mark.parametrize("coupled", [False, True])
def test_jitter_is_told_beside_the_row_that_knows_most(coupled: bool) -> None:
    """Its precision times the latent's variance, 400 and 90 here, times the jitter."""
    told = np.array([[2.0, 3.0], [100.0, 5.0], [1.0, 30.0]])
    precision = told[..., None] * np.eye(2) - 0.5 * np.ones((2, 2)) * (1 - np.eye(2)) if coupled else told
    problem: Any = SimpleNamespace(
        choice=SimpleNamespace(dense=True), inducing=[], jitter=1e-3, shared=lambda *_, **__: lambda *_: [4.0, 3.0]
    )
    sites = Sites(jnp.asarray(told), jnp.asarray(precision))
    (note,) = jitter_note(problem, {}, sites)
    assert note.startswith("jitter, 1e-03 of the latents' variance, is 0.4 of an observation's noise variance")
    problem.jitter = 0.9 * MATTERS / 400
    assert jitter_note(problem, {}, sites) == ()
    problem.jitter, problem.choice.dense = 1.0, False
    assert jitter_note(problem, {}, sites) == ()


@pytest.mark.parametrize("family", [Full(2), Diagonal(2, False), Diagonal(2, True)], ids=["full", "sparse", "dense"])
def test_terms_of_a_family_are_those_of_its_gaussians(family: Any, rng: np.random.Generator) -> None:
    """Two latents, two components: entropies, E log p, gaps and log determinants of sums, of whitened values or not."""
    root, mean = np.linalg.cholesky(0.5 * np.eye(3) + 0.4), rng.normal(size=(2, 2, 3))
    dense = family == Diagonal(2, True)
    phi, left = (root, np.zeros(3)) if dense else (rng.normal(size=(4, 3)), rng.uniform(size=4))
    features = Features(*(jnp.asarray(np.stack([each] * 2)) for each in (phi, left, root)))
    if isinstance(family, Full):
        triangles = np.tril(rng.uniform(0.5, 1.0, (2, 2, 3, 3)))
        q, covariance = {"mean": mean, "root": triangles}, triangles @ np.swapaxes(triangles, -1, -2)
    else:
        sds = rng.uniform(0.5, 1.0, (2, 2, 3))
        q, covariance = {"mean": mean, "log_sd": np.log(sds)}, sds[..., None] ** 2 * np.eye(3)
    prior, centre = (root @ root.T, mean @ root.T) if dense else (np.eye(3), mean)

    @jax.jit
    def found(q: Any) -> tuple[Any, ...]:
        return family.entropy(q), family.cross(q, features), *family.pairs(q, features)

    entropy, cross, gaps, log_dets = found(jax.tree.map(jnp.asarray, q))
    log_det = lambda matrix: np.linalg.slogdet(matrix)[1]  # noqa: E731
    precision = np.linalg.inv(prior)
    own = 0.5 * np.sum(log_det(2 * np.pi * np.e * covariance), axis=1)
    np.testing.assert_allclose(entropy, own, rtol=1e-5)
    squares = np.einsum("kji,il,kjl->kj", centre, precision, centre) + np.einsum("il,kjli->kj", precision, covariance)
    np.testing.assert_allclose(cross, -0.5 * np.sum(log_det(2 * np.pi * prior) + squares, axis=1), rtol=1e-5)
    sums, apart = covariance[:, None] + covariance, centre[:, None] - centre
    np.testing.assert_allclose(log_dets, log_det(sums).sum(axis=2), rtol=1e-4, atol=1e-5)
    wanted = np.einsum("abji,abjil,abjl->ab", apart, np.linalg.inv(sums), apart)
    np.testing.assert_allclose(gaps, wanted, rtol=1e-4, atol=1e-5)
