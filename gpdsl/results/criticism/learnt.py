"""What the data say of each latent, and of the latents at all: of what its prior left open, what is open still.

With P_j and Q_j the covariances of latent j at some rows by its prior and in the posterior, and C what takes the mean
over rows away (a level that two latents share is nobody's, and harms nothing):

- the largest eigenvalue of I - P_j^-1/2 Q_j P_j^-1/2 is what is known of the direction that is known best;
- tr C Q_jk Q_kk^-1 Q_kj C / tr C P_j C is the share of the prior variance of j that is open only because k is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from gpdsl.errors import plural
from gpdsl.inference.modes import cycles_beside
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.symmetries import symmetry_of
from gpdsl.inference.unrelated_rows import value_of_nothing
from gpdsl.language.model import KernelCall, KernelFormula, every_kernel, reads_of
from gpdsl.program.program import Program
from gpdsl.results.criticism.finding import EVIDENCE, EXCHANGED, PROGRAMS, Finding
from gpdsl.results.criticism.importance import divergence
from gpdsl.results.criticism.seen import FEW, Seen
from gpdsl.results.density import log_predictive
from gpdsl.shown import rounded

if TYPE_CHECKING:
    from gpdsl.inference.integrated import Learnt, Profile
    from gpdsl.results.fit import Fit

WEAK = 2.0
"""Nats of evidence below which latents may be chance: in 40 data sets of noise kernels with two learnt parameters found
1.6 at most."""

SILENT = 0.05
"""Share of the prior variance of its best known direction below which nothing is known of a latent."""

SHARED = 0.4
"""Share of the prior variance that is open because another latent is, from which two are not told apart: of two latents
with one kernel it is a half."""

LEVEL = 0.05
"""Share of the prior variance that has to remain without its level; with less, a latent is a level and no more."""

SMOOTH = 1e-8
"""Share of the largest variance below which a direction is rounding."""

CERTAIN, WIDE = 0.9, 5.0
"""Share of the deviance that is explained, and prior standard deviation of a latent, from which classes are apart."""


def worth(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """The evidence beside that of a model in which rows have nothing to do with each other."""
    program, data = seen.program, seen.data
    bijectors, held = program.parameters.bijectors, program.parameters.held
    start = {n: np.asarray(bijectors[n].inverse(v)) for n, v in fit.parameters.items() if n not in held}
    nothing = value_of_nothing(program, seen.rows, start, priors=False)
    if nothing is None:
        return
    gain = float(fit.log_evidence_bound + np.sum(fit.standardised.log_jacobian(data.observed)) - nothing)
    words = "more" if gain >= 0 else "less"
    noted = any("explain nothing" in note or "no more than chance" in note for note in fit.notes)
    said = f"the model is worth {plural(float(rounded(abs(gain))), 'nat', ',g')} {words} than unrelated rows"
    remedy = (
        f"posterior = {fit.choice.posterior} takes values of a latent apart, which costs nats: compare with full"
        if fit.choice.posterior.startswith(("diagonal", "mixture("))
        else "what the latents show may be chance: do not read their curves, compare with a model without them, or "
        "collect more rows"
    )
    yield Finding(EVIDENCE, gain, gain < WEAK and not noted, said, remedy)


def informed(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """How much is known of each latent, and which are known together alone."""
    program = fit.program
    if not (fit.at_rows.whitened or fit.at_rows.by_data):
        return
    prior, posterior = seen.prior, seen.posterior
    known = {each: _best_known(prior[each], posterior[each, each]) for each in prior}
    names = {each: program.latent_names[each] for each in prior}
    silent = [each for each in known if known[each] < SILENT]
    least = min(known, key=lambda each: known[each])
    quoted = ", ".join(f"`{names[each]}`" for each in silent or [least])
    said = f"least of {quoted}: {known[least]:.0%} of the variance of its best known direction"
    if silent:
        said = f"the data say next to nothing of {quoted}: as its prior has it"
    remedy = f"leave {quoted} out, or ask whether the likelihood reads it where there are rows"
    yield Finding("what is known of latents", known[least], bool(silent), said, remedy)
    yield from _apart(prior, posterior, names)


def _best_known(prior: Float[np.ndarray, "n n"], posterior: Float[np.ndarray, "n n"]) -> float:
    """Share of the prior variance that is gone, in the direction that is known best."""
    root = _inverse_root(prior)
    if not root.size:
        return 0.0
    return float(np.clip(1.0 - np.linalg.eigvalsh(root.T @ posterior @ root)[0], 0.0, 1.0))


def _inverse_root(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n kept"]:
    """R with R R' the inverse of a covariance matrix, but for directions that are rounding."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > SMOOTH * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def open_by_another(
    prior: Float[np.ndarray, "n n"],
    across: Float[np.ndarray, "n n"],
    other: Float[np.ndarray, "n n"],
) -> float:
    """Share of a latent's prior variance, but for its level, that would be settled if the other one were known.

    across: its posterior covariance with the other one, whose own is `other`.
    """
    centred = across - across.mean(axis=0)
    settled = float(np.sum((centred @ _inverse_root(other)) ** 2))
    total = float(np.trace(prior) - np.sum(prior) / len(prior))
    return settled / total if total > LEVEL * float(np.trace(prior)) else 0.0


def _apart(
    prior: dict[int, Float[np.ndarray, "n n"]],
    posterior: dict[tuple[int, int], Float[np.ndarray, "n n"]],
    names: dict[int, str],
) -> Iterator[Finding]:
    """Two latents of which the data know what they make together, and neither alone."""
    pairs = [pair for pair in itertools.permutations(prior, 2) if pair in posterior]
    if not pairs:
        return
    shares = [open_by_another(prior[a], posterior[a, b], posterior[b, b]) for a, b in pairs]
    a, b = pairs[int(np.argmax(shares))]
    share, one, other = max(shares), f"`{names[a]}`", f"`{names[b]}`"
    said = f"{share:.0%} of the variance of {one} is open because {other} is"
    said += ": the data know what they make together, and neither alone" * (share > SHARED)
    remedy = f"read a `let` of both, not {one} or {other}; or keep one of them, or give them kernels further apart"
    yield Finding("latents told apart", share, share > SHARED, said, remedy)


def certainty(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """Classes that the latents tell without remainder, so that only the prior holds the size of the latents."""
    program, data = fit.program, seen.data
    nothing = sum(_of_shares(data.outputs[name], data.observed[name]) for name in program.declarations.outputs)
    if not _has_free_classes(fit) or not nothing or data.rows < FEW:
        return
    if _is_bounded(fit):  # the expected log likelihood under q
        likely = float(fit.log_evidence_bound) + divergence(fit)
    else:
        likely = float(np.sum(log_predictive(fit.beliefs(data, likelihoods=True))))
    explained = 1.0 - likely / nothing
    widest = float(np.sqrt(max(np.max(seen.scale(number)) for number in range(len(program.groups)))))
    said = f"{explained:.0%} of the deviance is explained, by latents with a prior standard deviation of {widest:.2g}"
    remedy = (
        "the classes are apart, so that the data bound the size of the latents from below alone, and probabilities are "
        "near 0 and 1 beyond what they can tell: give the variance of the kernel a prior"
    )
    yield Finding("certainty of classes", explained, explained > CERTAIN and widest > WIDE, said, remedy)


def price_of_certainty(fit: Fit, _: Seen) -> float:
    """What `certainty` costs."""
    return PROGRAMS * (_has_free_classes(fit) and not _is_bounded(fit))


def _has_free_classes(fit: Fit) -> bool:
    """Whether all outputs are classes, and a parameter without a prior was learnt with latents."""
    program, outputs = fit.program, fit.program.declarations.outputs.values()
    classes = bool(outputs) and all(each.label is not None or each.kind == "binary" for each in outputs)
    free = fit.parameters.keys() - program.parameters.held.keys() - program.priors.keys()
    plain = fit.settings is None and not program.opaque and not program.inner
    return classes and bool(free) and plain and bool(program.groups)


def _is_bounded(fit: Fit) -> bool:
    """Whether q is one Gaussian of whitened values, and its bound is that of the evidence."""
    whitened = fit.at_rows.whitened and fit.at_rows.on_host and not fit.options.drawn
    return whitened and fit.options.beta == 1 and bool(np.isfinite(fit.log_evidence_bound))


def _of_shares(values: np.ndarray, observed: np.ndarray) -> float:
    """The log likelihood of classes whose probabilities are their shares, the same in all rows."""
    counts = np.unique(values[observed], return_counts=True)[1]
    return float(np.sum(counts * np.log(counts / np.sum(counts))))


# Learnt parameters: others that are as good, or better.

CALLS = KernelCall | KernelFormula


def other_places(fit: Fit, profile: Profile, learnt: Learnt) -> Iterator[Finding]:
    """Where learnt parameters are as good, which no density tells apart, or better, as periods at a part of theirs."""
    yield from _alike(fit, profile, learnt)
    yield from _other_cycles(fit, profile, learnt)


def _alike(fit: Fit, profile: Profile, learnt: Learnt) -> Iterator[Finding]:
    """Learnt parameters that no density tells apart, or whose sign none knows."""
    symmetry = symmetry_of(fit.program, profile, learnt)
    if (count := len(symmetry)) > 1:
        said = f"{'; '.join(symmetry.told)} changes no density: these values are one of {count} alike, and which name "
        yield Finding(EXCHANGED, float(count), False, f"{said}has which is by chance")


def _other_cycles(fit: Fit, profile: Profile, learnt: Learnt) -> Iterator[Finding]:
    """Periods and frequencies of which a part or a multiple explains more, with functions as smooth or all else as it
    is."""
    program, dtype = fit.program, fit.options.dtype
    periods = [name for name in program.parameters.data.steps if not np.ndim(learnt[name])]
    top = profile.value(learnt) if periods else np.inf
    for name in periods:
        beside = [
            (ratio, each)
            for ratio, moved in cycles_beside(program, learnt, name)
            for each in (moved, *_as_smooth(program, moved, name, ratio))
        ]
        worth = [profile.value(as_arrays(dict(each), dtype)) for _, each in beside]
        if worth and (gain := max(worth) - top) > 1.0:
            ratio, best = beside[int(np.argmax(worth))]
            here, better = (float(program.parameters.bijectors[name].forward(at[name])) for at in (learnt, best))
            said = f"`{name}` = {here:.4g} takes several cycles for one, or part of one: {better:.4g} is worth "
            others = [n for n in best if n != name and best[n] is not learnt[n]]
            said += f"{plural(gain, 'nat', '.2g')} more, all else as it is"
            said += "".join(f" but for `{n}`, {1 / ratio:.3g} times as large" for n in others)
            yield Finding("parameters", gain, True, said, f"begin there, init = {{{name!r}: {better:.4g}}}")


def _as_smooth(program: Program, learnt: Learnt, name: str, ratio: float) -> Iterator[Learnt]:
    """The same with the other numbers of its kernels, in units of a period, in proportion."""
    calls = [each for latent in program.declarations.latents.values() for each in every_kernel(latent.kernel)]
    own = [{read.name for a in c.arguments.values() for read in reads_of(a)} for c in calls if isinstance(c, CALLS)]
    beside = {n for each in own if name in each for n in each & {*learnt} - {name}}
    bijectors = program.parameters.bijectors
    moved = {n: np.asarray(bijectors[n].forward(learnt[n])) / ratio for n in beside}
    if moved and all(bijectors[n].contains(value) for n, value in moved.items()):
        yield {**learnt, **{n: bijectors[n].inverse(value) for n, value in moved.items()}}
