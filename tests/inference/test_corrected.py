"""Corrected draws against brute force: products of latents, squares, and parameters that are integrated over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

import gpdsl
from gpdsl.inference import corrected, proposals
from gpdsl.inference.corrected import KEPT, _chosen
from gpdsl.inference.corrected_draws import Drawn
from gpdsl.inference.images import Images, generated
from gpdsl.inference.plan.options import Options

X = np.array([-1.0, -0.4, 0.1, 0.6])
Y = np.array([1.2, 0.9, 1.5, 1.1])
TEXT = """
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1.5))
latent g(x) ~ GP(0, RBF(1.5))
let h = {mean}
y ~ Normal(h, 0.3)
"""


def prior_draws(rng: np.random.Generator, ell: float, count: int, x: np.ndarray = X) -> np.ndarray:
    covariance = np.exp(-0.5 * ((x[:, None] - x) / ell) ** 2) + 1e-10 * np.eye(len(x))
    return rng.standard_normal((count, len(x))) @ np.linalg.cholesky(covariance).T


MEANS = {
    "f*g": (lambda f, g: f * g, 4),
    "f^2 + 0.1*g": (lambda f, g: f**2 + 0.1 * g, 2),
    "f + g^2": (lambda f, g: f + g**2, 2),
    "sin(3*f) + 0.1*g": (lambda f, g: np.sin(3 * f) + 0.1 * g, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("mean", MEANS)
def test_modes_and_spreads_of_products_are_those_of_brute_force(mean: str, tmp_path: Path) -> None:
    fit = gpdsl.compile(TEXT.format(mean=mean)).fit({"x": X, "y": Y}, posterior="corrected")
    rng = np.random.default_rng(0)
    f, g = prior_draws(rng, 1.5, 400_000), prior_draws(rng, 1.5, 400_000)
    of, images = MEANS[mean]
    h = of(f, g)
    weights = np.exp(stats.norm.logpdf(Y, h, 0.3).sum(axis=1))
    weights /= weights.sum()
    assert fit.settings is not None and (f"{images} images" in fit.summary()) is (images > 1)
    prediction = fit.predict({"x": X})
    for name, values in (("f", f), ("g", g), ("h", h)):
        exact = weights @ values
        sd = np.sqrt(weights @ (values - exact) ** 2)
        np.testing.assert_allclose(np.sqrt(prediction.variance(name)), sd, rtol=0.12, err_msg=name)
        np.testing.assert_allclose(prediction.mean(name), exact, atol=0.2 * sd.max(), err_msg=name)
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    assert again.summary() == fit.summary()
    np.testing.assert_array_equal(again.predict({"x": X}).mean("h"), prediction.mean("h"))


X_APART = np.array([0.0, 0.5, 1.2, 2.0])


@pytest.mark.slow
def test_draws_reach_farther_than_q_where_its_tails_are_thin() -> None:
    text = "input x : real\noutput y : binary\nlatent f(x) ~ GP(0, 4*RBF(1))\nlatent g(x) ~ GP(1, 4*RBF(0.5))\n"
    model = gpdsl.compile(text + "y ~ Bernoulli(logit = f*g)\n")
    y, rng = np.array([1, 1, 0, 1]), np.random.default_rng(0)
    f = 2 * prior_draws(rng, 1.0, 1_000_000, X_APART)
    g = 1 + 2 * prior_draws(rng, 0.5, 1_000_000, X_APART)
    weights = np.exp(-np.logaddexp(0, (1 - 2 * y) * f * g).sum(axis=1))
    sd = np.sqrt(weights @ f**2 / weights.sum() - (weights @ f / weights.sum()) ** 2)
    fits = [model.fit({"x": X_APART, "y": y}, posterior="corrected", seed=seed) for seed in range(4)]
    assert all("q, reweighted" in fit.summary() for fit in fits)
    ratios = [np.sqrt(fit.predict({"x": X_APART}).variance("f")) / sd for fit in fits]
    assert abs(np.mean(ratios) - 1) < 0.04  # weighted draws alone have 0.93


@pytest.mark.slow
def test_modes_that_q_never_visits_are_found_from_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """q of the larger of two latents has half of their standard deviations, and its weights look even."""
    monkeypatch.setattr(corrected, "DRAWS", 1024)
    fit = gpdsl.compile(TEXT.format(mean="max(f, g)")).fit({"x": X, "y": Y}, posterior="corrected")
    rng = np.random.default_rng(0)
    f, g = prior_draws(rng, 1.5, 400_000), prior_draws(rng, 1.5, 400_000)
    weights = np.exp(stats.norm.logpdf(Y, np.maximum(f, g), 0.3).sum(axis=1))
    weights /= weights.sum()
    exact = weights @ f
    sd = np.sqrt(weights @ (f - exact) ** 2)
    prediction = fit.predict({"x": X})
    for name in ("f", "g"):
        np.testing.assert_allclose(np.sqrt(prediction.variance(name)), sd, rtol=0.25, err_msg=name)
        np.testing.assert_allclose(prediction.mean(name), exact, atol=0.3 * sd.max(), err_msg=name)


@pytest.mark.slow
def test_parameters_too_are_corrected_from_the_bound_to_the_evidence() -> None:
    text = """
    input x : real
    output n : count
    param s : positive ~ LogNormal(0, 0.5)
    latent f(x) ~ GP(0, s^2 * RBF(1.5))
    n ~ Poisson(exp(f))
    """
    n = np.array([0, 0, 6, 9])
    fit = gpdsl.compile(text).fit({"x": X, "n": n}, posterior="corrected", hyperparameters="integrated")
    rng = np.random.default_rng(1)
    s = np.exp(0.5 * rng.standard_normal(400_000))
    f = s[:, None] * prior_draws(rng, 1.5, len(s))
    weights = np.exp(stats.poisson.logpmf(n, np.exp(f)).sum(axis=1))
    weights /= weights.sum()
    mean = weights @ s
    sd = np.sqrt(weights @ (s - mean) ** 2)
    assert fit.settings is not None and fit.settings.shape < 0.7 and "reweighted" in fit.settings.about
    assert abs(fit.settings.mean("s") - mean) < 0.12 * sd
    assert abs(fit.settings.sd("s") / sd - 1) < 0.12
    exact = weights @ f
    np.testing.assert_allclose(
        fit.predict({"x": X}).mean("f"), exact, atol=0.12 * np.sqrt(weights @ (f - exact) ** 2).max()
    )


def test_changes_generate_a_group() -> None:
    flips = [((0, 1, 2), (-1, -1, 1)), ((0, 1, 2), (1, 1, -1))]
    assert len(generated(3, flips)) == 4
    assert len(generated(3, [*flips, ((1, 0, 2), (1, 1, 1))])) == 8
    assert len(generated(3, [((1, 0, 2), (1, 1, 1)), ((0, 2, 1), (1, 1, 1))])) == 6


@pytest.mark.parametrize(
    ("options", "words"), [({"batch": 2}, "leave batch out"), ({"engine": "qsgp"}, "has no Gaussian of the latents")]
)
def test_what_cannot_be_corrected_is_said(options: dict[str, object], words: str) -> None:
    model = gpdsl.compile(TEXT.format(mean="f*g", ell=1))
    with pytest.raises(gpdsl.GpdslError, match=f"posterior = corrected does not cover this fit: .*{words}"):
        model.fit({"x": X, "y": Y}, posterior="corrected", **options)


def test_an_exact_posterior_stays() -> None:
    fit = gpdsl.compile(TEXT.format(mean="f + g", ell=1)).fit({"x": X, "y": Y}, posterior="corrected")
    assert fit.held is not None and fit.settings is None


def test_every_setting_of_the_parameters_keeps_its_share_of_the_weight() -> None:
    rng = np.random.default_rng(0)
    weights = rng.gamma(0.1, size=(50, 64)) * np.exp(-np.arange(50.0))[:, None]
    weights /= weights.sum()
    chosen, shares = _chosen(weights, rng)
    assert len(chosen) == len(shares) <= KEPT + 50
    np.testing.assert_allclose(np.bincount(chosen // 64, shares, 50), weights.sum(axis=1), rtol=1e-12)
    numbers = np.arange(64.0)
    found = np.bincount(chosen // 64, shares * numbers[chosen % 64], 50)
    first = weights[0] @ numbers
    assert abs(found[0] - first) < 1.0 / KEPT * 64  # systematic: within one draw


class FakeWeighing:
    """Draws of two settings, of which the first has log weights about 0 and the second about 1."""

    made: ClassVar[list[int]] = []
    stay = True
    prior = 0.0
    """Log evidence of draws from the prior above that of draws from q."""

    def __init__(self, joint: Any, images: Any, draws: int) -> None:
        self.draws = draws
        self.made.append(draws)

    def weighed(self, q: Any, key: Any) -> Drawn:
        noise = np.random.default_rng(int(q.learnt["s"])).normal(size=self.draws)
        return Drawn(np.full((self.draws, 3), q.learnt["s"]), q.learnt["s"] + 0.1 * noise)

    def tempered(self, q: Any, key: Any) -> Drawn:
        above = self.prior if q.from_prior else 0.0
        white = np.full((self.draws, 3), q.learnt["s"] + 10 * q.from_prior)
        return Drawn(white, np.full(self.draws, q.learnt["s"] + above), q.learnt["s"] == 0)

    def stays(self, q: Any, drawn: Drawn, count: int, key: Any) -> tuple[bool, np.ndarray]:
        return self.stay, drawn.white[:count]


@dataclass(frozen=True)
class FakeAround:
    s: float
    from_prior: bool = False

    @property
    def learnt(self) -> dict[str, float]:
        return {"s": self.s}

    def prior(self) -> FakeAround:
        return FakeAround(self.s, True)


WEIGHTS, BOUNDS = np.array([0.3, 0.7]), np.array([-5.0, -4.5])
PULLS = WEIGHTS * np.exp([0.0 - BOUNDS[0], 1.0 - BOUNDS[1]])
"""Each setting counts by its weight, and as its evidence does beside its bound."""


@pytest.fixture
def correcting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, tuple[str, ...]]]:
    """Corrects draws of settings that are weighed as above, with two images, three values and five rows."""
    images = Images(np.tile(np.arange(3), (2, 1)), np.ones((2, 3)))
    joint = SimpleNamespace(dimension=3, problem=SimpleNamespace(count=5))
    target: Any = type("Target", (), {"joint": joint, "at": staticmethod(lambda place: place)})
    settings = [corrected._Setting(w, v, FakeAround(s)) for s, w, v in zip((0.0, 1.0), WEIGHTS, BOUNDS, strict=True)]  # type: ignore[arg-type]
    for name, stands in (("Weighing", FakeWeighing), ("Joint", target), ("images_of", lambda *_: images)):
        monkeypatch.setattr(corrected, name, stands)
    monkeypatch.setattr(FakeWeighing, "made", [])

    def run(number: int = 2, **kept: Any) -> tuple[Any, tuple[str, ...]]:
        for name, value in kept.items():
            monkeypatch.setattr(FakeWeighing if hasattr(FakeWeighing, name) else corrected, name, value)
        monkeypatch.setattr(corrected, "_settings", lambda *_: settings[:number])
        result, monitor = SimpleNamespace(target=target), SimpleNamespace(explored=lambda *_, **__: None)
        return corrected._corrected(result, Options(seed=3), monitor)  # type: ignore[arg-type]

    return run


def shares_of(found: Any) -> np.ndarray:
    return np.bincount([int(each["learnt"]["s"]) for each in found.results], found.weights)


def test_settings_count_by_their_weights_and_what_their_draws_say_of_the_evidence(correcting: Any) -> None:
    found, doubts = correcting(DRAWS=4096)
    assert FakeWeighing.made == [2048, 256] and not doubts
    np.testing.assert_allclose(shares_of(found), PULLS / PULLS.sum(), rtol=0.02)
    assert all(np.all(each["white"] == each["learnt"]["s"]) for each in found.results)
    assert found.about.startswith("4096 draws of q, reweighted, worth ") and "over 2 settings" in found.about
    assert ", 2 images by signs" in found.about
    assert found.effective == pytest.approx(1 / np.sum(found.weights**2))  # of fewer draws than the weights are worth
    known = 2048 * PULLS.sum() ** 2 / np.sum(PULLS**2) / np.exp(0.1**2)
    assert float(re.findall(r"worth (\d+)", found.about)[0]) == pytest.approx(known, rel=0.01)


def test_draws_are_worth_as_many_of_equal_weight() -> None:
    assert proposals.worth(np.full(7, 0.3)) == pytest.approx(7) == proposals.worth(np.repeat([1 / 7, 0.0], 7))
    values = np.random.default_rng(0).standard_normal((4000, 50))
    weights = np.linspace(0.0, 3.0, 50)
    spread = np.var(values @ weights / weights.sum())  # of an average of independent values of unit variance
    assert proposals.worth(weights) == pytest.approx(1 / spread, rel=0.1)


@pytest.mark.parametrize(("room", "few", "made"), [(8 * 26 * 1000, 4096, 1000), (1, 4096, 64), (3e8, 100, 64)])
def test_as_many_draws_as_there_is_room_for(correcting: Any, room: float, few: int, made: int) -> None:
    """Numbers of each draw: of three values in two images, and four of each of five rows."""
    correcting(ROOM=room, DRAWS=few)
    assert FakeWeighing.made == [made, max(made // 8, 64)]


@pytest.mark.parametrize(("prior", "how"), [(0.5, "the prior"), (-0.1, "the prior"), (-0.3, "q")])
def test_draws_that_do_not_stay_are_moved_from_where_more_is_found(correcting: Any, prior: float, how: str) -> None:
    """Those from the prior are, where both find as much."""
    found, doubts = correcting(stay=False, prior=prior)
    assert f"draws of {how}, moved to the posterior" in found.about and "Pareto" not in found.about
    assert np.isnan(found.shape) and doubts and corrected.UNSETTLED in doubts[0]
    np.testing.assert_allclose(shares_of(found), PULLS / PULLS.sum(), rtol=1e-9)
    assert found.results[0]["white"][0] == (10 if how == "the prior" else 0)


def test_draws_of_q_go_where_draws_from_the_prior_find_more(correcting: Any) -> None:
    assert "draws of q, reweighted" in correcting(prior=0.19)[0].about
    assert "draws of the prior, moved" in correcting(prior=0.25)[0].about
    assert "draws of q, reweighted" in correcting(prior=0.25, FROM_PRIOR=2)[0].about


def test_one_setting_has_its_moved_draws(correcting: Any) -> None:
    found, _ = correcting(1)
    assert len(found.results) == KEPT and found.weights == pytest.approx(np.full(KEPT, 1 / KEPT))
    assert "settings" not in found.about
