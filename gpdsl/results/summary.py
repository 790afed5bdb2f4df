"""A fit as text: the model, how inference went, and the parameters' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gpdsl.data.times import texts_of
from gpdsl.errors import GpdslError, plural, quoted
from gpdsl.inference.inducing.growth import counts_bending
from gpdsl.inference.inducing.loss import Loss
from gpdsl.language.checker.left import suspect
from gpdsl.language.warnings.cautions import unbounded_priors
from gpdsl.program.program import Program
from gpdsl.results.criticism.finding import PLUGGED, SKIPPED
from gpdsl.results.criticism.plugged import why_plugged
from gpdsl.results.fit import Fit
from gpdsl.shown import rounded
from gpdsl.symbolic.density_mass import doubtful

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit
    from gpdsl.results.settings import Settings


NO_MEAN = 1e-12
"""Of a standard deviation: what is left of a mean that is 0."""
TELLING = 10.0
"""Times the nats that inducing points lose, about, up to which a certain bound of them tells anything."""
SHOWN = 8

OF_TAIL = 10.0
"""Times as wide as 90% of the probability from which a standard deviation is that of a tail that nobody knows."""

TOLD = 1.1
"""Times as wide as averages over parameters make a latent, from which that is said."""

SAID = ("note", "inducing points")
"""Findings that the summary tells elsewhere."""

EVIDENCE = {"vi": "elbo", "ep": "log Z (EP)", "qsgp": "elbo", "mcmc": "elbo"}
"""What the value of a fit is, by engine: a lower bound, or an estimate of the log evidence."""
STOPPED = "stopped"
"""How the message of a fit begins that a fault of an opaque function ended."""


def summarise(fit: Fit) -> str:
    """Several lines, no colours."""
    d, choice = fit.program.declarations, fit.choice
    error = f" ± {fit.elbo_se:.2g}" if fit.elbo_se else ""
    error = " ± an unknown error" if not np.isfinite(fit.elbo_se) else error
    at_point = bool(fit.program.priors) and not fit.averages_bound
    prior = f", of which {fit.log_prior:.4f} are the log prior of parameters" if at_point else ""
    begin = ", where the chains begin" if fit.drawn else ""
    lines = [
        f"{d.name}: {d.title}" if d.title else d.name,
        f"  rows        {fit.rows}",
        *_times(fit),
        f"  posterior   {_posterior(fit)}",
        f"  {'begun at' if fit.drawn else 'optimizer':<11} {choice.optimizer}: {fit.message}{_see_notes(fit)}",
        f"  {evidence_word(fit):<11} {fit.elbo:.4f}{error} nats{prior}{begin}",
        f"  time        {fit.seconds:.2f} s, of which compiling {fit.compile_seconds:.2f} s",
    ]
    for name, output in fit.program.declarations.outputs.items():
        if output.kind == "binary" and (words := fit.program.levels.get(name)):
            zero, one = words
            said = f"1 is {one}, and 0 is {zero}" if isinstance(one, str) else f"{zero} or {one}; its mean is P({one})"
            lines.append(f"  {name:<11} {said}")
    if fit.standardised.sds:
        lines.append(f"  standardised {'; '.join(_standard(fit, name) for name in fit.standardised.sds)}")
    if fit.settings is not None:
        how = "corrected" if fit.options.posterior == "corrected" else "integrated"
        how = "chains" if fit.drawn else how
        how = "gaussian" if fit.averages_bound else how
        lines.append(f"  {how:<11} {fit.settings.about}")
    if fit.no_bound:
        lines.append(f"  bound       of the log evidence: none, as {fit.no_bound}")
    elif at_point and not fit.choice.exact:
        lines.append(f"  bound       {fit.log_evidence_bound:.4f}{error} nats, of the log evidence at these parameters")
    if fit.inducing_loss is not None:
        lines.append(f"  inducing    {_lost(fit)}")
    for number, line in enumerate(fit.usage.lines(fit.seconds)):
        lines.append(f"  {'' if number else 'simulator':<10}  {line}")
    lines += [f"  note        {each}" for each in fit.notes]
    lines += _plugged_in(fit) + _diagnosis(fit)
    if fit.parameters:
        lines.append("  parameters" + (", of standardised data" if fit.standardised.sds else "") + _errors(fit))
        width, errors = max(len(n) for n in fit.parameters), fit.standard_errors
        for name, value in fit.parameters.items():
            held = "  (fixed)" if name in fit.program.parameters.held else ""
            shown = (
                _with_error(value, errors.get(name)) if held or fit.settings is None else _averaged(fit.settings, name)
            )
            lines.append(f"    {name:<{width}}  {shown}{held}{_in_data_units(fit, name)}")
    return "\n".join(lines)


def _diagnosis(fit: Fit) -> list[str]:
    """What is to be doubted, but for what has a line of its own, and how much was looked at."""
    found = fit.inspection
    if not found.findings:
        return []
    looked, doubtful = sum(each.name != SKIPPED for each in found.findings), len(found.diagnosis.doubtful)
    lines = [f"  doubtful    {each}" for each in own_doubts(fit)]
    left = "".join(f"; {SKIPPED}: {each.said}" for each in found.findings if each.name == SKIPPED)
    left += f"; left for fit.diagnose(data): {', '.join(found.left)}" if found.left else ""
    left += "".join(f"; could not be looked at: {each}" for each in found.failed)
    verdict = f"{doubtful} doubtful" if doubtful else "none says that the fit is to be doubted"
    return [*lines, f"  diagnosis   {plural(looked, 'check')}, {verdict}{left}"]


def _plugged_in(fit: Fit) -> list[str]:
    """What averaging over the parameters would change, where it would be seen; a doubt has a line of its own.

    And why nothing was averaged over where that was left to the fit.
    """
    decides = fit.options.hyperparameters == "auto" and not fit.options.plugs_in and fit.program.parameters.initial
    if decides and fit.settings is None:
        return [f"  plugged in  {why_plugged(fit)}: hyperparameters = auto has them at a point"]
    found = (each for each in fit.inspection.findings if each.name == PLUGGED and not each.doubtful)
    return [f"  plugged in  {each.said}: hyperparameters = integrated" for each in found if each.number >= TOLD]


def own_doubts(fit: Fit) -> list[str]:
    """What the diagnosis doubts with its remedies, but for what notes tell."""
    return [each.doubt for each in fit.inspection.diagnosis.doubtful if each.name not in SAID]


def _errors(fit: Fit) -> str:
    """What stands behind the values of parameters, or why nothing does."""
    if fit.settings is not None:
        return ", posterior mean ± standard deviation (5% to 95%)"
    return ", ± standard error" if fit.standard_errors else f" (no standard errors: {fit.inspection.lacking})"


def _with_error(value: np.ndarray, errors: np.ndarray | None) -> str:
    """Values with their standard errors, `?` where the data leave them open."""
    flat = np.ravel(value)
    if errors is None or flat.size > SHOWN:
        return _show(value)
    pairs = zip(flat, np.ravel(errors), strict=True)
    text = ", ".join(f"{rounded(v, 4)} ± {rounded(e) if np.isfinite(e) else '?'}" for v, e in pairs)
    return text if flat.size == 1 else f"[{text}]"


def _averaged(settings: Settings, name: str) -> str:
    """What settings say of a parameter."""
    moments = settings.mean(name), settings.sd(name), settings.quantile(name, 0.05), settings.quantile(name, 0.95)
    flat = np.stack([np.ravel(each) for each in moments], axis=1)
    text = "; ".join(
        f"{mean:.4g} ± {rounded(sd) if sd <= OF_TAIL * (high - low) else '?'} ({low:.4g} to {high:.4g})"
        for mean, sd, low, high in flat[:SHOWN]
    )
    return text if len(flat) <= SHOWN else f"{text} … ({len(flat)} values)"


def _times(fit: Fit) -> list[str]:
    """What the inputs that are times count, and since when, by the clock of their zone."""
    if fit.calendar is None:
        return []
    origin, found = np.array([fit.calendar.origin], "M8[us]"), []
    for name, zone in fit.calendar.zones.items():
        (since,), unit = texts_of(fit.calendar.dates(name, origin)), fit.program.declarations.inputs[name].unit
        found.append(f"  times       `{name}` in {unit}s since {since}{f' ({zone})' if zone else ''}")
    return found


def _in_data_units(fit: Fit, name: str) -> str:
    """A parameter once more, where standardising has changed it and its unit is known."""
    factor, error = in_data_units(fit, name), fit.standard_errors.get(name)
    if not np.any(np.isfinite(factor)) or np.allclose(factor, 1.0):
        return ""
    error = None if error is None else error * factor
    return f"  ({_with_error(estimate(fit, name) * factor, error)} in the units of the data)"


def estimate(fit: Fit, name: str) -> np.ndarray:
    """A parameter: its posterior mean where it is averaged over."""
    return fit.parameters[name] if fit.settings is None else fit.settings.mean(name)


def in_data_units(fit: Fit, name: str) -> np.ndarray:
    """What a parameter is multiplied by to be in the units of the data; NaN where the model does not tell."""
    there = fit.parameters_in_data_units.get(name)
    return np.array(np.nan) if there is None else np.asarray(there / fit.parameters[name])


def in_brief(fit: Fit) -> str:
    """One line: what was fitted to how many rows, its evidence, and how it ended."""
    name, value = fit.program.declarations.name, f"{evidence_word(fit)} {fit.elbo:.4f} nats"
    return f"<gpdsl.Fit of {name}: {plural(fit.rows, 'row')}, {value}, {quoted(fit.message)}>"


def _standard(fit: Fit, name: str) -> str:
    """By which numbers an input or output was standardised."""
    mean, sd = fit.standardised.means[name], fit.standardised.sds[name]
    mean = np.where(np.abs(mean) < NO_MEAN * sd, 0.0, mean)  # of a column that was standardised already
    return f"{name}: mean {_show(mean)}, sd {_show(sd)}"


def _see_notes(fit: Fit) -> str:
    """Whether notes tell more of the search; those of chains are about the chains."""
    return ", but see the notes" if fit.notes and not fit.drawn else ""


def _posterior(fit: Fit) -> str:
    """Its family and what carries it; of parameters there is none."""
    if fit.drawn and fit.program.groups:
        exact = "draws of the parameters, with the exact posterior of the latents at each"
        return exact if fit.choice.exact else "draws of the parameters and of the latents"
    if not fit.program.groups:
        where = "have one Gaussian on the real line" if fit.averages_bound else "are at their most probable values"
        if fit.settings is not None and not fit.averages_bound:
            where = "are averaged over"
        return f"none: the model has no latents, and its parameters {where}"
    return f"{fit.choice.posterior}, {fit.at_rows.support(fit.choice, fit.rows)}"


def _lost(fit: Fit) -> str:
    """What inducing points lose."""
    assert fit.inducing_loss is not None
    if fit.choice.exact:
        return "none: any affordable number of them would lose much, so the evidence is exact"
    loss, most = Loss(fit.inducing_loss, fit.rows), (fit.inducing_loss_bounds or (0.0, np.inf))[1]
    tells = most <= max(TELLING * loss.nats, loss.slight)
    certain = f"; at most {most:,.2g} at the fit's parameters" if tells else ""
    if loss.much:
        return too_few(fit) + certain
    told = counts_bending(fit.options, fit.choice, fit.message) or not fit.program.parameters.initial
    bent = "" if told else ", if they have not bent the parameters too"
    more = "" if loss.small else f"; {more_points(fit)}"
    what = "features" if fit.choice.features else "inducing variables" if fit.choice.families else "points"
    return f"{what} lose about {plural(loss.nats, 'nat', '.2g')} of the evidence{bent}{certain}{more}"


def too_few(fit: Fit) -> str:
    """A warning that many nats are lost."""
    lost = f"{fit.inducing_loss or 0.0:,.0f}"
    return f"{fit.choice.support} lose about {lost} nats of the evidence, and predictions suffer; {more_points(fit)}"


def more_points(fit: Fit) -> str:
    """What to do about lost evidence."""
    count = fit.choice.inducing
    if fit.choice.families:
        return "more of them take longer and lose less"
    if fit.choice.own:
        return f"ask for more, as inducing={ {name: 2 * count for name, count in fit.choice.own.items()} }"
    if fit.options.inducing is None:
        return f"more, as inducing={2 * count}, take longer and lose less"
    return f"leave `inducing` out for as many as it takes, or ask for more, as inducing={2 * count}"


def evidence_word(fit: Fit) -> str:
    """What the value is."""
    return (
        "evidence" if fit.choice.exact and not fit.averages_bound else EVIDENCE.get(fit.options.engine, "log evidence")
    )


def _show(value: np.ndarray) -> str:
    flat = np.asarray(value, float).ravel()
    text = " ".join(rounded(v, 4) for v in flat[:SHOWN])
    if flat.size > SHOWN:
        text += f" … ({flat.size} values, {rounded(flat.min(), 4)} to {rounded(flat.max(), 4)})"
    return text if flat.size == 1 else f"[{text}]"


# What is to be doubted of a fit: the model, with the parameters that were learnt, and an end below the start.

SCATTER = 25.0
"""Standard errors of the reported bound, a mean over many steps, that the bound of a single step may be wrong by."""


class WorseThanStart(GpdslError):
    """A fit of opaque functions that ended below its start; `fit` is what it came to."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        super().__init__(
            f"the bound ended at {fit.elbo:.6g} nats ({fit.message}), where it started from {fit.history[0, 1]:.6g}: "
            "the estimates from opaque functions led the wrong way; leave optimizer, engine and estimators to the "
            "plan, or take more samples, a smaller learning_rate, or other starts of the parameters with init={...}"
        )


def doubts(program: Program, parameters: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Densities that do not integrate to one, and priors whose density has no bound."""
    notes = [f"{each.message_text()}: the fit maximises it" for each in unbounded_priors(program.declarations)]
    for observation, said in doubtful(program.translator, parameters) if any(suspect(program.declarations)) else ():
        name, output = observation.distribution.name, observation.outputs[0]
        what = (
            f"the density `{name}`" if observation.distribution.log_density is not None else f"`{name}` of `{output}`"
        )
        notes.append(f"{what} {said}, at these parameters: they are learnt wrongly")
    return tuple(dict.fromkeys(notes))


def verify_progress(fit: Fit) -> None:
    """Raise WorseThanStart where a bound estimated from opaque functions is lower at the end than at the start."""
    if fit.options.engine != "vi" or fit.interrupted or not len(fit.history):
        return
    start, error = fit.history[0, 1], fit.elbo_se if np.isfinite(fit.elbo_se) else 0.0
    if fit.elbo < start - SCATTER * error - 1.0:
        raise WorseThanStart(fit)
