"""Bounds of latent variables without samples: kernels averaged over Gaussian arguments, against quadrature."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.inference.expected_log_likelihood import expected_log_likelihood
from gpdsl.inference.layered import planning
from gpdsl.inference.layered.propagation import Drawn, Expected, Layers
from gpdsl.inference.layered.settled import SettledSearch
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.features import averaged
from gpdsl.kernels.functionals import Values
from tests.inference.test_layered import _program

TEXT = """
input x : real
output y : real
param ell : positive = 0.9
{row}
latent f({arguments}) ~ GP(0.4 * x, 1.7 * {kernel})
y ~ Normal(f, 0.3)
"""

KERNELS = {
    "RBF(ell)": "x, w",
    "RBF(0.7, on = x) * RBF(ell, on = w)": "x, w",
    "Linear(ell)": "x, w",
    "RBF(ell, on = w) * Matern32(1.1, on = x)": "x, w",
    "(RBF(ell, on = w) + 0.6 * Linear(1.4, on = x) + 0.2 * Constant())": "x, w",
    "(0.5 * Linear(0.8, on = w) + Periodic(1, 2, on = x))": "x, w",
    "RBF(1.2) ": "w",
    "(RBF(ell) + 0.4 * RBF(0.6))": "w",
    "(0.7 * RBF(ell) + Linear(1.3))": "x, w",
    "RBF(ell, on = w) * (RBF(1.4) + 0.3 * Linear(0.8, on = w))": "x, w",
    "(RBF(ell, on = x + 0.6 * w) + 0.2 * Matern32(0.5, on = x))": "x, w",
    "RBF(ell, on = ell * x * w) * Linear(0.9, on = x)": "x, w",
    "RBF(ell, on = [x, 1.2 * w])": "x, w",
    "(Linear(0.8, on = [x - 0.4 * w, ell * x]) + RBF(0.6, on = [x^2, x]))": "x, w",
    "(RBF(ell, on = [w, x, w]) + 0.1 * Linear(1.7))": "x, w",
}


def _bound(kernel: str, arguments: str, row: str) -> tuple[float, float]:
    """In closed form, and by quadrature over the row variable, for random moments of everything."""
    rng = np.random.default_rng(len(kernel))
    x, y = rng.uniform(-1, 1, 5), rng.standard_normal(5)
    text = TEXT.format(row=row, arguments=arguments, kernel=kernel)
    program, rows, parameters = _program(text, {"x": x, "y": y})
    rows = rows.__class__(rows.inputs, rows.outputs, rows.observed, rows.indicators, jnp.arange(5))
    assert not averaged(program)
    width = len(arguments.split(","))
    points, posterior, place = [], {}, 0
    mean, sd = rng.standard_normal(5), rng.uniform(0.2, 1.2, 5)
    for number, group in enumerate(program.groups):
        if group.per_row:
            place = number
            points.append(Values(jnp.zeros((5, 0))))
            posterior[number] = Whitened(jnp.asarray(mean)[None, None], jnp.asarray(sd)[None, None, :, None])
        else:
            points.append(Values(jnp.asarray(rng.uniform(-1.5, 1.5, (4, width)))))
            root = np.tril(rng.standard_normal((4, 4)))[None, None]
            posterior[number] = Whitened(jnp.asarray(rng.standard_normal((1, 1, 4))), jnp.asarray(root))
    layers = Layers(program, frozenset())
    given = parameters, points, posterior, rows
    closed = float(jax.jit(lambda: Expected(layers, 0, total=5)(*given, jax.random.key(0), 1e-8))())
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    white = jnp.asarray(mean + sd * nodes[:, None])[..., None]  # q(w) as points
    drawn = Drawn(jnp.zeros((60, 5, program.latents)), {place: white})

    def at_nodes() -> jax.Array:
        found = layers.marginals(*given, drawn, 1e-8)
        return jnp.sum(expected_log_likelihood(program, parameters, rows, found), axis=1)

    total = float(weights @ np.asarray(jax.jit(at_nodes)())) / weights.sum()
    return closed, total - 0.5 * float(np.sum(sd**2 + mean**2 - 1.0 - 2.0 * np.log(sd)))


@pytest.mark.parametrize(("kernel", "arguments"), KERNELS.items())
def test_the_bound_is_that_of_quadrature_over_the_row_variable(kernel: str, arguments: str) -> None:
    closed, reference = _bound(kernel, arguments, "row w ~ Normal(0, 1)")
    few = kernel.startswith("Linear")  # two functions at four points: what jitter adds is all that is left open
    assert closed == pytest.approx(reference, rel=5e-8 if few else 1e-9)


def test_means_and_sizes_of_row_variables_are_those_of_their_prior() -> None:
    closed, reference = _bound("RBF(ell)", "w", "row w ~ Normal(x, 0.4)")
    assert closed == pytest.approx(reference, rel=1e-9)


@pytest.mark.slow
def test_a_fit_has_a_bound_without_error_and_above_that_of_samples(rng: np.random.Generator) -> None:
    x = np.sort(rng.uniform(-2, 2, 25))
    model = gpdsl.zoo("uncertain_inputs")
    data = {"x": x + 0.2 * rng.standard_normal(25), "y": np.sin(2 * x) + 0.1 * rng.standard_normal(25)}
    options = {"inducing": 8, "steps": 300, "fixed": ["s2", "ell", "sigma"]}
    closed, sampled = (model.fit(data, expectations=how, **options) for how in ("auto", "sampled"))
    assert "without samples" in model.explain(data, **options) and closed.elbo_se < 1e-9 < sampled.elbo_se
    assert closed.elbo > sampled.elbo - 3 * sampled.elbo_se


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("latent f(w) ~ GP(0, Matern32(1))\ny ~ Normal(f, 0.3)", "the kernel of `f` has no average"),
        ("latent f(w) ~ GP(0, RBF(1))\ny ~ Normal(f + w, 0.3)", "`w` is read beside"),
        ("latent f(w) ~ GP(0, RBF(1))\ny ~ Normal(f^2, 0.3)", "not quadratic in one latent"),
        ("latent f(w) ~ GP(0, RBF(1))\nlatent g(w) ~ GP(0, RBF(1))\ny ~ Normal(f + g, 0.3)", "not quadratic"),
        ("latent f(w) ~ GP(w, RBF(1))\ny ~ Normal(f, 0.3)", "the mean of `f`"),
        ("latent f(w) ~ GP(0, Linear(1) * Linear(2))\ny ~ Normal(f, 0.3)", "the kernel of `f` has no average"),
        ("latent f(w) ~ GP(0, RBF(1, on = w^2))\ny ~ Normal(f, 0.3)", "the kernel of `f` has no average"),
        ("latent f(w) ~ GP(0, RBF(1) + RBF(1, on = 2 * w))\ny ~ Normal(f, 0.3)", "the kernel of `f` has no average"),
        ("latent f(w) ~ GP(0, RBF(1, on = [w, 2 * w]))\ny ~ Normal(f, 0.3)", "the kernel of `f` has no average"),
        ("latent h(w) ~ GP(0, RBF(1))\nlatent f(h) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)", "layers below are sampled"),
    ],
)
def test_what_has_no_formula_is_sampled(line: str, why: str) -> None:
    program, _, _ = _program(f"output y : real\nrow w ~ Normal(0, 1)\n{line}\n", {"y": np.zeros(3)})
    assert why in averaged(program)
    text = f"output y : real\nrow w ~ Normal(0, 1)\n{line}\n"
    with pytest.raises(
        GpdslError, match=rf"no closed-form expectation over(.|\n)*{re.escape(why)}(.|\n)*sums and products of RBF"
    ):
        gpdsl.compile(f'model m "M"\n{text}').explain({"y": np.zeros(3)}, expectations="closed")


@pytest.mark.parametrize(("option", "told"), [("importance", "importance = 3 weighs"), ("samples", "samples = 3 asks")])
def test_closed_does_not_go_with_options_that_sample(option: str, told: str) -> None:
    model = gpdsl.compile(
        'model m "M"\noutput y : real\nrow w ~ Normal(0, 1)\nlatent f(w) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n'
    )
    assert "without samples" in model.explain({"y": np.zeros(3)}, expectations="closed")
    with pytest.raises(GpdslError, match=told):
        model.fit({"y": np.zeros(3)}, expectations="closed", **{option: 3})


@pytest.mark.slow
def test_a_curve_in_the_plane_is_found_with_the_last_layer_at_its_best() -> None:
    """Four outputs that turn along one line: -195; a last layer that followed slowly ended at -265, "still rises"."""
    x = np.sort(np.random.default_rng(3).uniform(-2, 2, 100))
    y = np.stack([np.sin(x * k) for k in range(1, 5)], 1) + 0.1 * np.random.default_rng(2).standard_normal((100, 4))
    fit = gpdsl.zoo("latent_variable").fit({"y": y})
    assert fit.message.startswith("converged") and fit.elbo > -230


@pytest.mark.slow
def test_there_may_be_more_points_than_rows() -> None:
    """Of a function of what is not known in a row, values at the rows do not tell all: the bound rises with points."""
    text = "input x : real\noutput y : real\nrow h ~ Normal(x, 0.4)\nlatent f(h) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)\n"
    data = {"x": np.array([-1.0, 0.2, 1.5]), "y": np.array([0.5, -0.3, 0.8])}
    bounds = [gpdsl.compile(text).fit(data, inducing=count).elbo for count in (3, 6)]
    assert bounds[1] == pytest.approx(-4.5537, abs=2e-3)  # that of its best six points, by SciPy
    assert bounds[1] > bounds[0] + 0.1
    deep = gpdsl.compile(text.replace("row h ~ Normal(x, 0.4)", "latent h(x) ~ GP(x, RBF(1))"))
    assert [len(z) for z in deep.fit(data, inducing=6, steps=3).inducing] == [3, 6]  # inputs have one place in a row


def test_points_leave_room_for_averages() -> None:
    """100 rows and all their points cost more than averages are worth, and fewer points less than samples."""
    model, rng = gpdsl.zoo("latent_variable"), np.random.default_rng(0)
    some, many, most = ({"y": rng.normal(size=(rows, 4))} for rows in (100, 800, 5000))
    told = model.explain(some)
    assert "70 inducing points" in told and "without samples" in told and "in up to three cycles" in told
    assert (
        "up to 3500 steps" in told
        and "and two from the start again" in told
        and "from the start again" not in model.explain(some, samples=4)
    )
    assert "30 inducing points" in model.explain(many) and "without samples" in model.explain(many)
    assert "100 inducing points" in model.explain(some, inducing=100)
    assert "without samples" not in model.explain(some, expectations="sampled")
    assert "without samples" not in model.explain(most)


def test_a_search_begins_again_and_says_where_it_ended_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a last layer that follows slowly: whoever stops it there gets the end of the cycles before, not this."""
    monkeypatch.setattr(planning, "SETTLING", 30)
    monkeypatch.setattr(planning, "FEWEST", 10)
    heard: list[Any] = []
    begins = SettledSearch._lengths

    def lengths(self: SettledSearch, steps: np.ndarray) -> np.ndarray:
        if self.slow and not heard:
            heard.append((self.ends[-1][0], self.point, self.state().elbo, self.point))
        return begins(self, steps)

    monkeypatch.setattr(SettledSearch, "_lengths", lengths)
    x = np.linspace(-1, 1, 12)
    text = "input x : real\noutput y : real\nrow w ~ Normal(0, 1)\nlatent f(x, w) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.3)\n"
    data = {"x": x, "y": np.sign(np.sin(40 * x)) * (1 + x)}

    def stop(report: Any) -> None:
        if heard:
            raise KeyboardInterrupt

    stopped = gpdsl.compile(text).fit(data, diagnose="no", callback=stop)
    assert stopped.interrupted and stopped.notes[-1].startswith("the search was to begin twice")
    heard.clear()
    fit = gpdsl.compile(text).fit(data, progress=False, diagnose="no")
    assert not any("twice" in note for note in fit.notes)
    ((best, before, told, after),) = heard
    assert told == best and before is after
    assert fit.history[-1][0] >= 40 and fit.elbo >= best - 1e-6
    assert fit.history[-1][1] == pytest.approx(fit.elbo, abs=1.0)  # a mean of its last steps


@pytest.mark.slow
def test_fewer_points_with_averages_end_above_more_with_samples() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, 80)
    y = np.sign(rng.normal(size=80)) * (1 + x) + 0.1 * rng.normal(size=80)
    text = "input x : real\noutput y : real\nparam ell : positive[2] = 1\nparam sigma : positive = 0.1\n"
    model = gpdsl.compile(text + "row w ~ Normal(0, 1)\nlatent f(x, w) ~ GP(0, RBF(ell))\ny ~ Normal(f, sigma)\n")
    sampled, chosen = (model.fit({"x": x, "y": y}, **o) for o in ({"expectations": "sampled"}, {}))
    assert chosen.elbo > sampled.elbo + 20
