"""What follows single values and what a family cannot hold: effective parameters, correlations, kernels and inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np
import sympy as sp
from jaxtyping import Float

from gpdsl.data import Data
from gpdsl.errors import plural
from gpdsl.inference.posteriors.family import ELEMENTS, Inverse
from gpdsl.inference.unrelated_rows import bends, missing_level
from gpdsl.kernels.form import Base, Form, Product, Scaled, Sum, shaping
from gpdsl.language.model import reads_of
from gpdsl.program.groups import Group, elements, kernel_values
from gpdsl.program.program import Program
from gpdsl.results.criticism.finding import Finding, skipped
from gpdsl.results.criticism.places import CHANCE, calibrated, learn_noise, line_of, spreading, together
from gpdsl.results.criticism.seen import FEW, WHITE, Seen
from gpdsl.results.table import subscript
from gpdsl.symbolic.coupling import Element, centred, exchanged, mirrored
from gpdsl.symbolic.expectations import latents_in

if TYPE_CHECKING:
    from gpdsl.results.fit import Fit


# How much latents follow single values: effective parameters, and where values lie in what the others say of them.

FLEXIBLE = 0.5
"""Effective parameters a value from which latents follow single values, of more than a few values."""

SHARED, SHARED_BY_LEARNT = 0.75, 0.25
"""Share of the spread of values that the others tell, from which on latents follow what values have in common: what is
left of it is half as wide. Where length-scales are learnt beside the noise, white noise has no such share, and an
autoregression with noise on it has a third."""


def flexibility(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """The trace of I - S, with S the covariance of q in units of the prior: n - tr B^-1 under normal noise."""
    if fit.at_rows.by_data:
        inverses = list(seen.inverses())
        used = sum(float(np.sum(1.0 - each.diagonal)) for each in inverses)
        if not fit.choice.exact:  # sites are no values
            yield from _used(seen, used, spreading(fit.program))
            return
        enough = SHARED_BY_LEARNT if _reach_is_learnt(fit.program) else SHARED
        yield from _used(seen, used, "", _told_by_others(seen.program, inverses), enough)
        places = np.concatenate([each.alpha / np.sqrt(each.diagonal) for each in inverses])
        rows, whose = (np.concatenate([getattr(each, n) for each in inverses]) for n in ("rows", "elements"))
        order = np.lexsort((rows, whose))
        places, rows, whose = places[order], rows[order], whose[order]
        several, short, first = np.unique(whose), used > FLEXIBLE * seen.values, learn_noise(fit.program)
        for each in several if len(several) > 1 else ():
            own, at = places[whose == each], rows[whose == each]
            found = together(own, line_of(fit, seen.data, len(own), at), short)
            if found and (found.number > CHANCE or found.number * len(several) < CHANCE):  # a correlation, or by chance
                output = fit.program.observations[each // ELEMENTS]
                element = f"[{each % ELEMENTS + 1}]" if output.axes else ""
                yield replace(found, said=f"of `{output.outputs[0]}{element}`, {found.said}")
                return
        by_row = places[np.argsort(rows, kind="stable")]
        yield calibrated(by_row, line_of(fit, seen.data, len(places)), first, short=short)
    else:
        groups = zip(fit.program.groups, fit.posterior, strict=True)
        shared = [np.asarray(q.root, float) for group, q in groups if not group.per_row]
        used = sum(float(np.prod(root.shape[1:3]) - np.sum(root[0] ** 2)) for root in shared)
        yield from _used(seen, used, spreading(fit.program))


def _reach_is_learnt(program: Program) -> bool:
    """Whether a length-scale of a latent is learnt, or a number of a formula."""
    kernels = [member.kernel for group in program.groups if not group.per_row for member in group.members]
    shapes = [each for k in kernels for each, own in zip(k.arguments, shaping(k.form), strict=True) if own]
    return any(read.name in program.parameters.initial for each in shapes for read in reads_of(each))


def _told_by_others(program: Program, inverses: Sequence[Inverse]) -> float:
    """Share of the spread of values that the others take away from each, where the data have a word on all noise.

    That is 0 where noise is given: a walk needs as many parameters as it has values, and so does noise taken for one.
    """
    spread = sum(each.spread for each in inverses)
    if spread <= 0 or learn_noise(program):
        return 0.0
    return 1.0 - sum(float(np.sum(1.0 / each.diagonal)) for each in inverses) / spread


def _used(seen: Seen, used: float, spread: str, told: float = 0.0, enough: float = SHARED) -> Iterator[Finding]:
    if seen.white or used < 0:
        yield skipped(f"effective parameters, as {WHITE if seen.white else 'q is wider than the prior'}")
        return
    many = used > FLEXIBLE * seen.values
    said = f"{used:.1f} for {plural(seen.values, 'value')}"
    said += f", of whose spread the others tell {told:.0%}" * (many and told > 0)
    why = (
        f"{spread}; or a length-scale is too short"
        if spread
        else "a length-scale may be too short, as in another unit, the noise too small, or the likelihood without the "
        "spread that the values have; where values have no noise, as those of a walk, nothing is wrong, and learnt "
        "noise says so"
    )
    remedy = f"latents follow single values instead of what they have in common: {why}"
    yield Finding("effective parameters", used, seen.values > FEW and many and told < enough, said, remedy)


# What of a posterior its family cannot hold, and latents whose kernels do not go with the inputs.

STRANGERS, ALIKE = 0.1, 0.9995
"""Correlation of a row with that most like it, in the middle of all rows, below which a latent is noise to them; that
of the rows least alike above which it is a constant."""

IGNORED = 0.5
"""Correlation between latents from which leaving it out makes a posterior too narrow, by a seventh and more."""

STEP, LEAST = 0.01, 1e-3
"""Of differences of the log likelihood, in deviations of a latent, of which the least is a share of the largest."""

OVERLOOKED, FEW_COLUMNS = 50.0, 50
"""How many times the spread of another a column has to have for the other to be overlooked; of more columns, as those
of images, some may vary little and mean it."""

BY_DISTANCE = {"RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic"}


def symmetry(fit: Fit, _: Seen) -> Iterator[Finding]:
    """Signs and exchanges of latents that no density can tell."""
    if fit.program.fields or not fit.program.groups:
        return
    read = fit.program.translator, fit.program.observations
    sets, pairs = mirrored(*read), [] if fit.choice.exact else exchanged(*read)
    drawn = fit.options.posterior == "corrected" or fit.options.engine == "mcmc"
    mixture = fit.choice.posterior.startswith("mixture")
    by_ep = fit.options.engine == "ep"
    what = "a sign" + ", which is wrong as well where modes lie apart" * by_ep
    instead = "engine = vi and " * by_ep
    instead += f"posterior = {'mixture_full(2)' if fit.options.hyperparameters == 'point' else 'corrected'}"
    instead = "another seed, or posterior = corrected" if mixture else instead
    told = "means and deviations of these latents are those of one mode: "
    if not sets:
        yield Finding("symmetry", 1.0, False, "no latents can change their signs together")
    for some in sets:
        names = " and ".join(f"`{name}`" for name in some)
        verb = "may change its sign" if len(some) == 1 else "may change their signs together"
        several = drawn or (mixture and not _at_one(fit, np.hstack([_means(fit, (name, ())) for name in some])))
        end = "what is told is of both" if several else "q is at one of them"
        said = f"{names} {verb}, and no density knows: the posterior has two modes alike, and {end}"
        remedy = f"{told}read what does not depend on {what}, or fit with {instead}"
        yield Finding("symmetry", float(2 ** len(sets)), not several, said, remedy)
    for pair in pairs:
        one, other = (f"`{name}{subscript(at)}`" for name, at in pair)
        if not drawn and _at_one(fit, _means(fit, pair[0]) - _means(fit, pair[1])):
            said = f"{one} and {other} may be exchanged, and no density knows: which is which is by chance"
            remedy = f"{told}read what depends on neither name, give them priors that differ, or fit with {instead}"
            yield Finding("symmetry", 2.0, True, said, remedy)


def _means(fit: Fit, element: Element) -> Float[np.ndarray, "components values"]:
    """Whitened means of a latent, by component."""
    groups = zip(fit.program.groups, fit.posterior, strict=True)
    found = [np.asarray(q.mean, float)[:, elements(fit.program.translator, group, *element)] for group, q in groups]
    return np.concatenate([each.reshape(len(each), -1) for each in found], axis=1)


def _at_one(fit: Fit, means: Float[np.ndarray, "components values"]) -> bool:
    """Whether what is 0 on average over modes that are alike is at one of them."""
    sizes = np.linalg.norm(means, axis=1)
    return float(np.linalg.norm(fit.weights @ means)) > max(0.5 * float(fit.weights @ sizes), 0.1)


def correlation(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """Correlation between latents that are independent in q, by the curvature of the log likelihood at its mean.

    Of whitened values w_a and w_b with the roots R of their covariances in q, R_a' C R_b has the correlations as its
    singular values, with C = -Phi_a' diag(d^2 log p / df_a df_b) Phi_b.
    """
    found = _correlations(fit, seen) if seen.compares and not fit.program.opaque else None
    if found is None:
        return
    a, b = np.unravel_index(int(np.argmax(found)), found.shape)
    columns = [group.start + number for group in fit.program.groups for number in range(group.size)]
    one, other = (fit.program.latent_names[columns[place]] for place in (a, b))
    most = float(min(found[a, b], 1.0))
    said = f"posterior = {fit.choice.posterior} leaves out that of `{one}` and `{other}`, about {most:.2f}"
    remedy = "deviations of latents are too small: fit with posterior = coupled"
    yield Finding("correlation between latents", most, most > IGNORED, said, remedy)


def _correlations(fit: Fit, seen: Seen) -> Float[np.ndarray, "latents latents"] | None:
    """The largest correlation of each two latents; None where the log density cannot be had."""
    program, (loaded, mean, spread) = fit.program, seen.at_readings
    step = STEP * np.maximum(spread, LEAST * np.max(spread, axis=0))
    bent = bends(program, seen.rows, fit.parameters, mean, step)
    if bent is None:
        return None
    found = np.zeros((len(loaded), len(loaded)))
    for a, b in itertools.combinations(range(len(loaded)), 2):
        parts = itertools.product(loaded[a].items(), loaded[b].items())
        cross = sum((f.T * bent[i, j]) @ g for (i, f), (j, g) in parts)
        found[a, b] = np.linalg.norm(cross, 2)
    return found


def reach(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """How alike a latent is at rows next to each other, and at those far apart: by its kernel, whatever that is.

    Of a function of other latents only whether it is the same wherever these lead, which is where its inducing points
    are.
    """
    for number, group in enumerate(seen.groups):
        if seen.reaches(group):
            yield from _overlooked(fit, group, seen.points(group), seen.data)
        elif not seen.above(number):
            continue
        far = _correlated(seen.covariances(number, "far", "far"))
        for j, name in enumerate(group.names if group.factors > 1 else group.names[:1]):
            which = sum(member.count for member in group.members[:j])
            if seen.above(number):
                yield from _constant(name, "its inducing points", float(np.min(far[which])), group.form, fit.program)
                continue
            near = _correlated(seen.covariances(number, "near", "near"))
            yield from _reaches(name, near[which], far[which], group.form, fit.program)


def _overlooked(fit: Fit, group: Group, points: Float[np.ndarray, "n d"], data: Data) -> Iterator[Finding]:
    """Columns whose spread counts for nothing beside that of others, as all are measured by one length-scale."""
    names = [column for name in group.inputs for column in data.column_names.get(name, ())]
    spread = np.std(points, axis=0)
    varying = np.flatnonzero(spread > 0)
    if len(names) != len(spread) or not 2 <= len(varying) <= FEW_COLUMNS or not _by_distance(group.form):
        return
    least, most = (int(varying[pick(spread[varying])]) for pick in (np.argmin, np.argmax))
    ratio = float(spread[most] / spread[least])
    if ratio > OVERLOOKED and not _has_lengths(fit, group):
        said = f"`{group.names[0]}` measures all columns by one length-scale, but `{names[most]}` has {ratio:.2g} "
        said += f"times the spread of `{names[least]}`, which hardly counts beside it"
        remedy = "fit with standardise = true, or give each column a length-scale of its own"
        yield Finding("spread of columns", ratio, True, said, remedy)


def _has_lengths(fit: Fit, group: Group) -> bool:
    """Whether a kernel has a number for each column."""
    evaluator = fit.program.evaluator
    found = jax.eval_shape(lambda given: kernel_values(evaluator, group, given).arguments, fit.parameters)
    return any(each.ndim > 1 for each in found)


def _correlated(found: Float[np.ndarray, "factors n n"]) -> Float[np.ndarray, "factors n n"]:
    """Correlations of covariances."""
    sds = np.sqrt(np.maximum(np.einsum("knn->kn", found), 1e-300))
    return found / (sds[:, :, None] * sds[:, None, :])


# Data that the model has no place for, and rows that are there twice.

OFF_ZERO = 30.0
"""Standard deviations of an output from 0 to its mean, from which a latent about 0 bends to hold that."""

REPEATED, COMPARED = 0.25, 1_000_000
"""Share of rows that repeat another one, inputs and outputs, where no row repeats the inputs alone; numbers of all rows
up to which they are compared."""


def rows_and_levels(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """A level that latents about zero have to hold, and rows that are there more than once."""
    data, program = seen.data, fit.program
    real = [n for n, each in program.declarations.outputs.items() if each.kind == "real" and data.observed[n].any()]
    if data.rows <= FEW or program.fields:
        return
    for name in real:
        values = np.asarray(data.outputs[name])[data.observed[name]]
        if len(two := np.unique(values)) == 2:
            said = f"all are {two[0]:g} or {two[1]:g}"
            remedy = f"if these are two classes, declare `output {name} : binary` and observe "
            yield Finding(f"kind of {name}", 2.0, True, said, f"{remedy}`{name} ~ Bernoulli(logit = f)`")
        away = abs(float(np.mean(values))) / max(float(np.std(values)), 1e-300)
        if away > OFF_ZERO and np.ptp(values) > 0 and name in _about_zero(program):
            said = f"its mean {np.mean(values):.4g} is {away:.2g} of its standard deviations from 0, where latents are"
            remedy = "a curve has to bend to hold a level: give it a place, `param m : real` and `GP(m, ...)`, or fit "
            yield Finding(f"level of {name}", away, True, said, f"{remedy}with standardise = true")
    told = [n for n, each in program.declarations.outputs.items() if each.label is None and each.kind != "binary"]
    few = all(len(np.unique(data.outputs[name])) <= 2 for name in told)  # that may agree by chance
    if few or sum(each.size for each in (*data.inputs.values(), *data.outputs.values())) > COMPARED:
        return
    inputs = [np.asarray(each, float).reshape(data.rows, -1) for each in data.inputs.values() if len(each) == data.rows]
    outputs = [np.asarray(each, float).reshape(data.rows, -1) for each in data.outputs.values()]
    if inputs:
        places, whole = (len(np.unique(np.hstack(each), axis=0)) for each in (inputs, [*inputs, *outputs]))
        if places == whole < (1.0 - REPEATED) * data.rows:
            said = f"{data.rows - whole} of {data.rows} rows repeat another one in all columns"
            remedy = "each counts as often as it is there, and noise and intervals are too small: leave repeats out, "
            yield Finding(
                "repeated rows", float(data.rows - whole), True, said, f"{remedy}unless they were measured anew"
            )


def _about_zero(program: Program) -> list[str]:
    """Outputs whose mean is made of latents with mean zero, which bend to hold a level, and has no other part."""
    translator, found = program.translator, list[str]()
    bent = all(not group.per_row and _by_distance(group.form) for group in program.groups)
    if not bent or not all(centred(translator, latent) for latent in program.declarations.latents.values()):
        return found
    for each in program.observations:
        mean = sp.Integer(1) if each.law is None else each.law.arguments.get("mean", sp.Integer(1))
        if mean.xreplace(dict.fromkeys(latents_in(translator, mean), sp.Integer(0))) == 0:
            found += each.outputs
    return found


UNIT = "its length-scale may be in another unit than the input, or have gone to an end: start it elsewhere"
"""What to do where a latent reaches too far, or not far enough."""


def _reaches(name: str, near: np.ndarray, far: np.ndarray, form: Form, program: Program) -> Iterator[Finding]:
    most = np.max(np.abs(near - 2 * np.eye(len(near)) * near), axis=1, where=~np.eye(len(near), dtype=bool), initial=0)
    middle, least = float(np.median(most[: max(len(most) // 3, 1)])), float(np.min(far))
    if len(near) < 2:
        return
    same = list(_constant(name, "all rows", least, form, program)) if len(far) > 1 else []
    if middle < STRANGERS and isinstance(form, Base) and form.name == "Same":
        said = f"`{name}` has next to no two rows in one group: it is noise by another name"
        remedy = "leave it out, or group rows by what they have in common"
        yield Finding("reach of latents", middle, not spreading(program), said, remedy)  # which counts may need
    elif middle < STRANGERS:
        said = f"`{name}` has a correlation of {middle:.2g} with itself at the next row: to it, rows are all unrelated"
        spread = spreading(program)
        yield Finding("reach of latents", middle, True, said, f"{spread}; or {UNIT}" if spread else UNIT)
    elif same:
        yield from same
    else:
        said = f"`{name}` has correlations from {least:.2g} at rows far apart to {middle:.2g} at neighbours"
        yield Finding("reach of latents", middle, False, said)


def _constant(name: str, where: str, least: float, form: Form, program: Program) -> Iterator[Finding]:
    """Where its least correlation says that a latent is one, unless others are functions of it."""
    if least > ALIKE and _by_distance(form) and name not in program.inner:
        said = f"`{name}` is the same at {where}: its correlation between those least alike is {least:.6g}"
        level = missing_level(program)
        yield Finding("reach of latents", least, True, said, f"{level}; or {UNIT}" if level else UNIT)


def _by_distance(form: Form) -> bool:
    """Whether it falls with the distance, and has no part that is meant to be the same everywhere."""
    match form:
        case Base(name=name):
            return name in BY_DISTANCE
        case Scaled(kernel=kernel):
            return _by_distance(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            return all(map(_by_distance, parts))
    return False
