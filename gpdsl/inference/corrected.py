"""`posterior = corrected`: the search for a Gaussian, and its draws corrected to the posterior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from gpdsl.data import Data
from gpdsl.errors import GpdslError
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.corrected_draws import Around, Drawn, Weighing, resampled
from gpdsl.inference.driver import Plan, Planner
from gpdsl.inference.images import images_of
from gpdsl.inference.integrated import UNTRUSTED, Integrated
from gpdsl.inference.log_joint import together
from gpdsl.inference.mcmc.engine import Joint, sampled
from gpdsl.inference.plan.options import Options
from gpdsl.inference.problem import Monitor, Result, as_arrays
from gpdsl.inference.proposals import smoothed, worth
from gpdsl.inference.warm import Start
from gpdsl.program.program import Program

DRAWS, LEAST = 4096, 64
"""Of q in all, and of each setting of the parameters at least."""

FEWER = 8
"""Times fewer of those that are moved."""

FROM_PRIOR = 64
"""Whitened values up to which draws are sent from the prior too: beyond, they come to the posterior too slowly."""

MORE = 0.2
"""Nats of the evidence by which they may differ: two estimates of one number do so by about half of that."""

KEPT = 400
"""Draws that predictions average over, about: a setting of the parameters has one at least."""

LARGEST = 2000
"""Whitened values of all latents together: a matrix of them is a root of q's covariance."""

SITES = {"natural", "ep"}
"""Searches for one Gaussian of the whitened values."""

ROOM = 3e8
"""Bytes, about, that the draws of a setting may take at once."""

UNSETTLED = "the corrected draws were moved and have not come to rest"

UNEVEN = "the corrected draws have uneven weights"

NONE_KEPT = "interrupted while draws were corrected: this is q, as the search left it"


def plan_corrected(
    others: Sequence[Planner], program: Program, data: Data, options: Options, start: Start | None
) -> Plan:
    """The plan, by other engines, of the search for q. Raises GpdslError where its draws cannot be weighed."""
    reason = ""
    if program.opaque or program.fields or program.inner:
        reason = "it takes thousands of evaluations of the joint density, of latents row by row"
    elif options.batch:
        reason = "the joint density is that of all rows: leave batch out"
    elif options.engine not in {"vi", "ep"}:
        reason = f"engine = {options.engine} has no Gaussian of the latents: leave engine out"
    if not reason:
        planned = next(p for each in others if (p := each(program, data, _plain(options), start)) is not None)
        values = sum(group.size * len(z) for group, z in zip(program.groups, planned.inducing, strict=True))
        if planned.choice.exact:
            return planned
        known = planned.choice.dense or not program.sampled
        if planned.engine.name in SITES and values <= LARGEST and known:
            return replace(planned, engine=replace(planned.engine, target=Joint))
        reason = f"{values} values of the latents, of which a matrix is taken: take fewer rows, or inducing points"
        if planned.engine.name not in SITES:
            reason = f"it takes the Gaussian of natural gradients, and not of {planned.engine.name}"
        elif not known:
            reason = "what inducing points leave open of an observation would be sampled: take inducing = 0"
    raise GpdslError(f"posterior = corrected does not cover this fit: {reason}")


def _plain(options: Options) -> Options:
    return replace(options, posterior="auto", batch=0)


@dataclass(frozen=True)
class _Setting:
    """Parameters with their weight among others, the value of the bound there, and q."""

    weight: float
    value: float
    q: Around


def drawn(result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result of a search that has a density to draw from, with draws: of chains, or of q and corrected."""
    draw = corrected if options.posterior == "corrected" else sampled
    return draw(result, options, rows, monitor)


def corrected(result: Result, options: Options, rows: int, monitor: Monitor) -> Result:
    """The result of the search with draws of the exact posterior; Ctrl-C leaves it as it is."""
    if result.interrupted or result.target is None or not result.posterior:
        return result
    try:
        with machine_for(rows):
            found, notes = _corrected(result, options, monitor)
    except KeyboardInterrupt:
        return replace(result, interrupted=True, notes=(*result.notes, NONE_KEPT))
    return replace(result, integrated=found, notes=(*result.notes, *notes))


def _corrected(result: Result, options: Options, monitor: Monitor) -> tuple[Integrated, tuple[str, ...]]:
    assert result.target is not None
    target = result.target()
    assert isinstance(target, Joint)
    settings = _settings(result, options.dtype)
    images = images_of(target.joint, settings[0].q.learnt)
    room = int(ROOM / 8 / (len(images) * target.joint.dimension + 4 * target.joint.problem.count))
    draws = max(min(DRAWS // len(settings), room), LEAST)
    weighing, how = Weighing(target.joint, images, draws), "q, reweighted"
    found = _everywhere(_drawing(weighing.weighed, settings, options.seed, monitor), len(settings))
    log_weights, shape = smoothed(np.concatenate([each.log_weights for each in found]))
    moving = Weighing(target.joint, images, max(draws // FEWER, LEAST))
    priors = [replace(each, q=each.q.prior()) for each in settings]
    from_q = _drawing(moving.tempered, settings, options.seed, monitor)
    from_prior = None
    if target.joint.dimension <= FROM_PRIOR:
        from_prior = _drawing(moving.tempered, priors, options.seed, monitor)
    stayed = None if shape > UNTRUSTED else _stayed(weighing, settings, found, options.seed, from_prior)
    if stayed is None:
        found, how = _moved(len(settings), from_q, from_prior)
        draws, shape = moving.draws, float("nan")  # draws of a setting have one weight, and no tail
        log_weights = np.concatenate([each.log_weights for each in found])
        log_weights -= np.logaddexp.reduce(log_weights)
    weights, rng = np.exp(log_weights), np.random.default_rng(options.seed)
    chosen, shares = _chosen(weights.reshape(len(settings), draws), rng)
    white = np.concatenate([each.white for each in found])[chosen]
    if stayed is not None and len(settings) == 1 and len(stayed) == KEPT:
        white = stayed  # moved draws reach farther than those of q
    turned = images.at_random(white, rng)
    owner = chosen // draws
    results = tuple(
        target.at({"learnt": settings[number].q.learnt, "white": white})
        for number, white in zip(owner.tolist(), turned, strict=True)
    )
    about = f"{len(weights)} draws of {how}, worth {worth(weights):.0f}"
    about += f", over {len(np.unique(owner))} settings of the parameters" if len(settings) > 1 else ""
    about += f", Pareto k {shape:.2f}" if np.isfinite(shape) else ""
    about += f", {len(images)} images by signs and exchanges of latents" if len(images) > 1 else ""
    doubts: tuple[str, ...] = (
        (f"{UNEVEN} (Pareto k {shape:.2f}): compare with engine = mcmc",) if shape > UNTRUSTED else ()
    )
    if any(each.settled is False for each in found):
        doubts += (f"{UNSETTLED}: means or standard deviations still changed; compare with engine = mcmc",)
    return Integrated(shares, results, shape, min(worth(weights), worth(shares)), 0, about=about), doubts


def _chosen(
    weights: Float[np.ndarray, "settings draws"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]:
    """Numbers of the draws that are kept, and their weights: about `KEPT`, and one of each setting at least.

    Settings far out have little weight and much of a parameter's variance, of which equal weights would lose most.
    """
    chosen, shares = [], []
    for number, (own, share) in enumerate(zip(weights, weights.sum(axis=1), strict=True)):
        if share > 0.0:
            count = max(1, round(KEPT * share))
            chosen.append(number * len(own) + resampled(own / share, count, rng))
            shares.append(np.full(count, share / count))
    return np.concatenate(chosen), np.concatenate(shares)


def _settings(result: Result, dtype: str) -> list[_Setting]:
    """The settings of the parameters that are averaged over, or the one that the search has found."""
    known = result.integrated
    if known is None:
        return [_Setting(1.0, 0.0, _around(result, dtype))]
    each = zip(known.weights.tolist(), known.results, strict=True)
    return [_Setting(weight, own.elbo, _around(own, dtype)) for weight, own in each]


def _around(result: Result, dtype: str) -> Around:
    """q of a result over the values of all latents together."""
    mean, root = together(result.posterior)
    learnt, numbers = as_arrays((dict(result.parameters), [mean, root, np.linalg.inv(root)]), dtype)
    return Around((learnt, *numbers, float(np.linalg.slogdet(root)[1])))


Drawing = Callable[[Around, Array], Drawn]
AtSetting = Callable[[int], Drawn]


def _drawing(draw: Drawing, settings: Sequence[_Setting], seed: int, monitor: Monitor) -> AtSetting:
    """Draws about q of a setting, by its number, made once: with weights among those of all settings."""
    keys = jax.random.split(jax.random.key(seed), len(settings))

    @cache
    def at(number: int) -> Drawn:
        monitor.explored(number, len(settings), stage="correcting")
        each = settings[number]
        own = draw(each.q, keys[number])
        return replace(own, log_weights=own.log_weights + np.log(each.weight) - each.value)

    return at


def _everywhere(drawn: AtSetting, count: int) -> list[Drawn]:
    return [drawn(number) for number in range(count)]


def _stayed(
    weighing: Weighing, settings: Sequence[_Setting], found: Sequence[Drawn], seed: int, from_prior: AtSetting | None
) -> Float[np.ndarray, "moved D"] | None:
    """Weighted draws of the setting that counts most, moved, where they stay and draws from the prior find no more."""
    most = int(np.argmax([each.log_evidence for each in found]))
    stayed, moved = weighing.stays(settings[most].q, found[most], KEPT, jax.random.key(seed))
    if not stayed or (from_prior is not None and from_prior(most).log_evidence - found[most].log_evidence > MORE):
        return None
    return moved


def _moved(count: int, from_q: AtSetting, from_prior: AtSetting | None) -> tuple[list[Drawn], str]:
    """Draws that went to the posterior from the prior, or from q where these find more, and how."""
    found = _everywhere(from_q, count)
    if from_prior is not None:
        others = _everywhere(from_prior, count)
        if _log_evidence(others) > _log_evidence(found) - MORE:
            return others, "the prior, moved to the posterior"
    return found, "q, moved to the posterior"


def _log_evidence(found: Sequence[Drawn]) -> float:
    return float(np.logaddexp.reduce([each.log_evidence for each in found]))
