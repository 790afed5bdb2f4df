"""How far q is from the posterior: its draws, weighted by the true joint density over that of q.

With w the whitened values of all latents, log p(y | w) + log N(w; 0, I) - log q(w) has the ELBO as its mean over q,
and the log evidence as the logarithm of the mean of its exponential; Pareto's k says whether that can be believed, and
how unlike q and the posterior are (Yao, Vehtari, Simpson and Gelman 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.errors import plural
from gpdsl.inference.bound import views, whitened_marginals
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.integrated import UNTRUSTED
from gpdsl.inference.log_joint import of_model
from gpdsl.inference.plan.options import Options
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.proposals import smoothed
from gpdsl.inference.resolution import SAME_VALUES
from gpdsl.kernels.form import only_white
from gpdsl.program.cache import jit
from gpdsl.program.kept import shapes_of
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Scope, row_count
from gpdsl.program.white import training
from gpdsl.results.criticism.finding import EVIDENCE, PROGRAMS, Finding, skipped
from gpdsl.results.criticism.left_out import ONE_GAUSSIAN
from gpdsl.results.criticism.seen import FEW, LARGEST, WHITE, WIDE, Seen
from gpdsl.results.fit import Fit
from gpdsl.results.fitting import fit_model
from gpdsl.results.table import predictable_outputs
from gpdsl.symbolic.coupling import mirrored

DRAWS = 1000

MUCH = 1.0
"""Nats between the bound and the log evidence from which q is to be doubted, where k is large."""

FEW_ROWS, EACH = 0.5, 0.05
"""Nats, and nats of each row, that are too many whatever k is: Gaussians that are right are a tenth of that below."""

SAME = 1e-3
"""Nats up to which draws have one weight: of an exact posterior, whose search has come to rest, they have."""

NUMBERS = 500_000_000
"""Rows times values of latents times draws beyond which it takes too long."""


def price_of_draws(fit: Fit, seen: Seen) -> float:
    """What `importance` costs: nothing where it has nothing to say."""
    return 2 * PROGRAMS if _weighs(fit, seen) else 0.0


def _weighs(fit: Fit, seen: Seen) -> bool:
    """Whether q is one Gaussian of whitened values that is meant to be the posterior, and is not exact, and small."""
    known = fit.posterior and (fit.at_rows.whitened or fit.at_rows.jointly)
    if fit.choice.exact or fit.options.beta != 1 or fit.program.opaque or not known:
        return False
    return fit.choice.posterior in ONE_GAUSSIAN and not takes_long(fit, seen)


def takes_long(fit: Fit, seen: Seen) -> bool:
    """Whether draws of q at all rows are too many numbers."""
    return DRAWS * sum(int(np.prod(q.mean.shape)) for q in fit.posterior) * seen.data.rows > NUMBERS


def importance(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """Pareto's k of one Gaussian as posterior, and the gap of its bound."""
    drawn, data = _drawn(fit) if _weighs(fit, seen) else None, seen.data
    if drawn is None:
        return
    ratios = _likelihoods(fit, data, drawn[0]) + drawn[1]
    if not np.isfinite(ratios).all():
        return
    _, k = smoothed(ratios)
    gap = float(np.logaddexp.reduce(ratios) - np.log(len(ratios)) - np.mean(ratios))
    others = ["coupled"] * (bool(fit.program.mixing) and fit.at_rows.independent)
    others += ["mixture_full(2)"] * (fit.options.hyperparameters == "point")
    verb = "may" if fit.choice.posterior == "coupled" else "would"  # latents are independent in a mixture
    nearer = f"posterior = {' or '.join(others)} {verb} come nearer, and " if others else ""
    doubtful = (k > UNTRUSTED and gap > MUCH) or gap > max(FEW_ROWS, EACH * data.rows)
    said = f"Pareto k {k:.2f}, and the bound about {plural(gap, 'nat', '.2g')} below the log evidence"
    if np.ptp(ratios) < SAME:
        k, doubtful, said = -np.inf, False, "it is the posterior: all draws of it have one weight"
    remedy = f"the posterior is no such Gaussian: {nearer}posterior = corrected or engine = mcmc are exact"
    yield Finding("q against the posterior", k, doubtful, said, remedy)


def divergence(fit: Fit) -> float:
    """KL(q | N(0, I)) of one Gaussian of whitened values: of each latent, or of all together."""
    total = -sum(_log_det(root) for root in _roots(fit))
    for q in fit.posterior:
        mean, root = np.asarray(q.mean[0], float), np.asarray(q.root[0], float)
        total += 0.5 * (np.sum(mean**2) + np.sum(root**2) - mean.size)
    return float(total)


def _roots(fit: Fit) -> list[np.ndarray]:
    """Of the covariances of independent sets of whitened values."""
    if not fit.at_rows.independent:
        return [np.concatenate([np.reshape(q.root[0], (-1, q.root.shape[-1])) for q in fit.posterior])]
    return [np.asarray(each, float) for q in fit.posterior for each in q.root[0]]


def _log_det(root: np.ndarray) -> float:
    return float(np.sum(np.log(np.abs(root))) if root.shape[1] == 1 else np.linalg.slogdet(root)[1])


def _drawn(fit: Fit) -> tuple[list[Float[np.ndarray, "draws 1 latents M"]], Float[np.ndarray, " draws"]] | None:
    """Draws of all whitened values, and log N(w; 0, I) - log q(w); None where q has no density."""
    rng, white, roots = np.random.default_rng(0), list[np.ndarray](), _roots(fit)
    common = fit.posterior[0].root.shape[-1]
    together = None if fit.at_rows.independent else rng.standard_normal((DRAWS, common))
    if together is not None and len(roots[0]) != common:
        return None
    ratio = np.full(DRAWS, sum(map(_log_det, roots)))
    for q in fit.posterior:
        mean, root = np.asarray(q.mean[0], float), np.asarray(q.root[0], float)
        normals = rng.standard_normal((DRAWS, *mean.shape)) if together is None else together
        ratio += 0.5 * np.sum(normals**2, axis=(1, 2)) if together is None else 0.0
        if together is not None:
            moved = np.einsum("jmd,sd->sjm", root, together)
        else:
            moved = normals * root[..., 0] if root.shape[-1] == 1 else np.einsum("jmd,sjd->sjm", root, normals)
        white.append((mean + moved)[:, None])
        ratio -= 0.5 * np.sum((mean + moved) ** 2, axis=(1, 2))
    return white, ratio if together is None else ratio + 0.5 * np.sum(together**2, axis=1)


def _likelihoods(fit: Fit, data: Data, white: list[np.ndarray]) -> Float[np.ndarray, " draws"]:
    """log p(y | w) of every draw; what inducing values leave open is drawn, row by row."""
    program = training(fit.program, dense=True)
    made = make_rows(program, fit.standardised.applied(data))
    rows = as_arrays(made, fit.options.dtype)
    given = as_arrays((dict(fit.parameters), list(fit.inducing), white), fit.options.dtype)
    own = np.random.default_rng(1).standard_normal((len(white[0]), data.rows, program.latents))
    arguments = *given, as_arrays(own, fit.options.dtype), rows
    dense = fit.choice.dense and min(map(len, fit.inducing)) >= data.rows  # not where fewer points determine all rows
    make = partial(_densities, kind=type(fit.at_rows), dense=dense, jitter=fit.jitter)
    compute = of_model(program, make, "densities of draws", dense, fit.jitter, shapes_of(arguments))
    return np.asarray(compute(*arguments), float)


def _densities(program: Program, kind: type[Posterior], dense: bool, jitter: float) -> Callable[..., Array]:
    def compute(parameters: Any, inducing: Any, white: list[Array], own: Array, rows: Any) -> Array:
        if (told := kind.log_likelihoods(program, parameters, rows, white, jitter)) is not None:
            return told
        seen = views(program, parameters, inducing, rows, dense, jitter)

        def one(values: list[Array], normals: Array) -> Array:
            known = [Whitened(each, jnp.zeros((*each.shape, 1), each.dtype)) for each in values]
            q = whitened_marginals(seen, known)
            at = q.mean[0] + jnp.sqrt(q.variance[0]) * normals
            return jnp.sum(log_density(program, Scope(parameters, rows, at[None, None]), (1, 1, row_count(rows))))

        return jax.lax.map(lambda each: one(*each), (white, own), batch_size=50)

    return jit(compute, brief=True)


def with_statistics(fit: Fit) -> list[str]:
    """Outputs that are numbers, and are drawn soon."""
    outputs = fit.program.declarations.outputs
    names = () if fit.program.opaque else predictable_outputs(fit.program.declarations)
    return [each for each in names if outputs[each].label is None and outputs[each].kind != "binary"]


# What is not looked at because of what a fit is, and why: a silent check would pass for a content one.

Asked = Callable[["Fit", Seen], bool]

OWN_STATISTIC = "no output is a number: fit.check_predictive(data, statistic) takes one of your own"

REASONS: dict[str, tuple[str, Asked]] = {
    "layers": ("latents are functions of others, or of variables of rows", lambda fit, _: bool(fit.program.inner)),
    "fields": ("the model has a field", lambda fit, _: bool(fit.program.fields)),
    "row variables": ("rows have variables of their own", lambda fit, _: any(g.per_row for g in fit.program.groups)),
    "white": (WHITE, lambda _, seen: seen.white),
    "white in q": (WHITE, lambda fit, seen: seen.white and not fit.at_rows.by_data),
    "constant": (SAME_VALUES, lambda fit, _: any(SAME_VALUES in note for note in fit.notes)),
    "opaque functions": ("an observation calls an opaque function", lambda fit, _: bool(fit.program.opaque)),
    "settings": ("parameters are averaged over", lambda fit, _: fit.settings is not None),
    "draws": ("the posterior is draws", lambda fit, _: fit.options.drawn),
    "mixture": ("the posterior is a mixture of Gaussians", lambda fit, _: len(fit.weights) > 1),
    "readings": ("rows read slopes, integrals, sums or several values of a latent", lambda _, seen: not seen.plain),
    "bound": ("no bound of the evidence is known", lambda fit, _: fit.options.beta != 1 or bool(fit.no_bound)),
    "family": ("the posterior is no Gaussian over the values of each latent", lambda fit, _: not _is_gaussian(fit)),
    "few values": (f"{FEW} values and less tell too little", lambda _, seen: seen.values <= FEW),
    "few rows": (f"less than {FEW} rows tell too little", lambda _, seen: len(seen.some) < FEW),
    "arguments": ("no latent is a function of inputs alone", lambda fit, seen: not any(map(seen.reaches, seen.groups))),
    "one row": ("there is one row", lambda _, seen: seen.data.rows < 2),
    "classes": (OWN_STATISTIC, lambda fit, _: not with_statistics(fit)),
    "size": ("there are too many values", lambda fit, seen: fit.at_rows.by_data and seen.values > LARGEST),
    "rows": ("there are too many rows", lambda _, seen: seen.data.rows > WIDE),
    "draws of q": ("there are too many rows and values of latents", takes_long),
}
"""In words, and of which fits they hold."""

ELSE = "nothing can be computed of this fit"


def _is_gaussian(fit: Fit) -> bool:
    return fit.at_rows.by_data or (bool(fit.posterior) and fit.choice.posterior in ONE_GAUSSIAN)


def _has_latents(fit: Fit, _: Seen) -> bool:
    return bool(fit.program.groups)


def _has_places(fit: Fit, _: Seen) -> bool:
    """Whether a latent has values at places that its kernel relates."""
    return any(not (group.per_row or only_white(group.form)) for group in fit.program.groups)


def _leaves_out(fit: Fit, _: Seen) -> bool:
    """Whether q is one Gaussian that takes latents for independent which an observation mixes."""
    return bool(fit.program.mixing) and fit.at_rows.independent and not fit.options.drawn and bool(fit.posterior)


def _is_approximate(fit: Fit, _: Seen) -> bool:
    return bool(fit.program.groups) and not fit.choice.exact


PLAIN, TRACEABLE = ("layers", "fields", "row variables"), ("layers", "opaque functions")
"""What is no model of latents at places alone, and what has no density of draws of q."""

LOOKED: dict[str, tuple[Asked, Sequence[str]]] = {
    "symmetry": (_has_latents, ("fields",)),
    "reach of latents": (_has_places, ("one row", "arguments")),
    EVIDENCE: (_has_latents, (*PLAIN, "white", "opaque functions", "settings", "bound", "few values", "constant")),
    "what is known of latents": (_has_latents, (*PLAIN, "white", "draws", "mixture", "readings", "few rows")),
    "correlation between latents": (_leaves_out, ("layers", "fields", "white", "opaque functions", "mixture", "rows")),
    "effective parameters": (_has_latents, ("layers", "draws", "mixture", "white in q", "family", "size")),
    "data drawn anew": (lambda *_: True, ("opaque functions", "classes")),
    "q against the posterior": (_is_approximate, (*TRACEABLE, "draws", "mixture", "bound", "family", "draws of q")),
    "rows left out": (lambda *_: True, ("white", "opaque functions")),
}
"""Of which fits each look has something to say, and what keeps it from finding that."""


def reasons(fit: Fit, seen: Seen, silent: Sequence[str]) -> Iterator[Finding]:
    """A line for every reason of those looks that found nothing to say, where they might have."""
    of = {look: _reason(fit, seen, look) or ELSE for look in silent if look in LOOKED and LOOKED[look][0](fit, seen)}
    for why in dict.fromkeys(of.values()):
        yield skipped(f"{', '.join(look for look, each in of.items() if each == why)}, as {why}")


def kept_from(fit: Fit, seen: Seen, look: str) -> bool:
    """Whether a look would find nothing, however much time there were."""
    return look in LOOKED and not (LOOKED[look][0](fit, seen) and not _reason(fit, seen, look))


def _reason(fit: Fit, seen: Seen, look: str) -> str:
    """The first that holds, in words; empty where none does."""
    return next((REASONS[why][0] for why in LOOKED[look][1] if REASONS[why][1](fit, seen)), "")


# A mixture beside the one Gaussian that a plan takes by itself.

COMPARED, WORSE = 400, 1.0
"""Whitened values up to which one Gaussian across all is soon found, and nats by which a mixture may be below it."""


def price_of_one(fit: Fit, _: Seen) -> float:
    """What `one_gaussian` costs: a fit."""
    return 4 * PROGRAMS * _may_be_one(fit)


def _may_be_one(fit: Fit) -> bool:
    """Whether the posterior is a mixture beside which one Gaussian is soon found."""
    program = fit.program
    plain = fit.options.beta == 1 and not (fit.choice.batch or program.sampled or program.opaque or program.inner)
    values = sum(int(np.prod(q.mean.shape[1:])) for q in fit.posterior)
    mixture = fit.choice.posterior.startswith("mixture")
    return mixture and plain and values <= COMPARED and bool(np.isfinite(fit.elbo))


def one_gaussian(fit: Fit, seen: Seen) -> Iterator[Finding]:
    """The bound of the Gaussian that a plan takes by itself, at the parameters and inducing points of a mixture."""
    if not _may_be_one(fit):
        return
    inducing = None if fit.choice.dense else fit.options.inducing if fit.choice.own else fit.choice.inducing
    fixed, dtype, seed = tuple(fit.parameters), fit.options.dtype, fit.options.seed
    options = Options(inducing=inducing, dtype=dtype, seed=seed, diagnose="no", fixed=fixed)
    single = fit_model(fit.model, seen.data, fit.columns, None, False, options, start=fit)
    gap = float(single.log_evidence_bound - fit.log_evidence_bound)
    said = "one Gaussian across all values, at the same parameters, has a bound "
    said += f"{abs(gap):.2g} nats {'higher' if gap > 0 else 'lower'}"
    remedy = f"fit with posterior = {single.choice.posterior}, which is nearer to the posterior"
    both = fit.choice.posterior.startswith("mixture_full")
    alike = both and mirrored(fit.program.translator, fit.program.observations)
    remedy += ", but at one of its modes alike" if alike else ", or mixture_full(2), which keeps two modes" * (not both)
    yield Finding("mixture against one Gaussian", gap, gap > WORSE, said, remedy)
