"""Functions drawn from a posterior by bending draws of the prior: what bends them, where covariances have jitter."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from gpdsl.errors import GpdslError
from gpdsl.inference.posteriors import pathwise
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import factorise
from gpdsl.inference.posteriors.pathwise import BOUNDLESS, bent, refuse_unsuited
from gpdsl.kernels.functionals import Coefficients, Integrals
from gpdsl.program.cache import precision
from gpdsl.program.groups import kernel_values
from tests.inference.problems import problem_of

MODEL = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, 0.5)
"""


def test_what_bends_draws_of_the_prior_is_that_of_independent_normals() -> None:
    """L'w = v - L^-1 g(Z), where v and L^-1 g(Z) are both standard normal where q is the prior: so is the jitter's
    share of g(Z)."""
    count, points, jitter = 400, 6, 4.0  # so much jitter that it shows
    with precision("float64"):
        x = 5.0 * np.arange(8.0)
        problem = problem_of(MODEL, {"x": x, "y": np.sin(x)}, inducing=points)
        program, parameters = problem.program, problem.program.parameters.constrain(problem.parameters)
        prior = Whitened(np.zeros((1, 1, points)), np.eye(points)[None, None])
        given = parameters, [prior], problem.inducing, jitter, np.zeros(count, int), np.random.default_rng(0)
        (found,) = bent(program, *given, seed=1)
        (group,) = program.groups
        factor = factorise(group, kernel_values(program.evaluator, group, parameters), problem.inducing[0], jitter)
        numbers = np.asarray(jnp.einsum("jab,jas->jbs", factor, found.weights))[0]
    assert numbers.shape == (points, count)
    assert np.mean(numbers**2) == pytest.approx(2.0, rel=5 * np.sqrt(2 / numbers.size))
    assert np.abs(np.mean(numbers)) < 5 * np.sqrt(2 / numbers.size)


@pytest.mark.parametrize(
    ("group", "at", "why"),
    [
        ({"per_row": True}, None, "it has a value of its own in each row"),
        ({"points": True}, None, "it is a field, with its points alone"),
        ({}, "spherical", "draws are known by their values, which its inducing features are not"),
    ],
)
def test_latents_of_which_no_function_can_be_drawn_are_named(group: dict[str, bool], at: str | None, why: str) -> None:
    one = SimpleNamespace(**({"per_row": False, "points": False, "names": ["f"]} | group))
    features = [] if at is None else [Coefficients(jnp.zeros((2, 1)), next(iter(BOUNDLESS)), 3, 3)]
    with pytest.raises(GpdslError, match=f"no whole functions of `f` can be drawn: {why}; prediction.draws"):
        refuse_unsuited(SimpleNamespace(groups=[one]), features)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [3, 5, 10, 20])
def test_functions_of_points_are_the_same_so_many_at_a_time(size: int) -> None:
    points = np.arange(20.0).reshape(10, 2)
    found = pathwise._in_blocks(lambda x: jnp.stack([x[:, 0], x[:, 1] ** 2], axis=1), jnp.asarray(points), size)
    np.testing.assert_allclose(found, np.stack([points[:, 0], points[:, 1] ** 2], axis=1))


def test_integrals_of_drawn_functions_run_from_the_lower_end_to_the_upper() -> None:
    """Of x^3 and of a wave, backwards too."""
    lower, upper = np.array([[-1.0], [2.0], [0.5]]), np.array([[2.0], [-0.5], [0.5]])
    with precision("float64"):
        at = Integrals(jnp.asarray(lower), jnp.asarray(upper))
        found = pathwise._at(lambda x: jnp.concatenate([x**3, jnp.cos(3 * x)], axis=1), at)
    expected = np.concatenate([(upper**4 - lower**4) / 4, (np.sin(3 * upper) - np.sin(3 * lower)) / 3], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("corners", [[[0.0], [4.0]], [[0.0, -1.0], [4.0, 1.0]]])
def test_nets_reach_beyond_the_corners_of_features_by_a_quarter_of_their_distance(corners: list[list[float]]) -> None:
    """Evenly spread, eight of them for each feature, or the next power of two."""
    net = pathwise._net(Coefficients(jnp.asarray(corners), "fourier", 3, 6))
    low, high = np.array([[-1.0, -1.5], [5.0, 1.5]])[:, : net.shape[1]]
    assert len(net) == (48 if net.shape[1] == 1 else 64)
    assert np.all(net >= low) and np.all(net <= high)
    np.testing.assert_allclose(net.mean(axis=0), (low + high) / 2, atol=0.05 * (high - low).max())
    assert np.all(np.ptp(net, axis=0) > 0.95 * (high - low))
