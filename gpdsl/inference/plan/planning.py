"""What is decided before the first step: the posterior and its layout, the optimiser, where inducing points start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.data import Data, DataError, TooManyInducing
from gpdsl.inference.blocks import block_rows
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Plan
from gpdsl.inference.expectation_propagation.engine import suited
from gpdsl.inference.expected_log_likelihood import NODES, samples_for
from gpdsl.inference.inducing.start import spanning_rows, start_inducing
from gpdsl.inference.opaque.budget import is_simulated, refuse_scores, within_budget
from gpdsl.inference.plan.options import Choice, Options, decide
from gpdsl.inference.posteriors.family import Full, parse_family
from gpdsl.inference.problem import as_arrays
from gpdsl.inference.warm import Start
from gpdsl.kernels.covariance import covariance
from gpdsl.kernels.functionals import Coefficients, Derivatives, Functionals, Values, blocks
from gpdsl.kernels.numerics import jitter_for
from gpdsl.program.cache import jit
from gpdsl.program.groups import Group, columns_of, kernel_values
from gpdsl.program.program import Program
from gpdsl.program.quadrature import split_count
from gpdsl.program.white import training, white_beside
from gpdsl.symbolic.concavity import log_concavity
from gpdsl.symbolic.terms import Term


def numbers_learnt(program: Program, options: Options) -> int:
    """How many numbers a search on all rows learns; 0 where minibatches would be another kind of search."""
    natural = options.optimizer in {"auto", "natural"} and options.posterior in {"auto", "full"}
    plain = options.engine == "vi" and options.schedule == "joint" and options.inducing != 0
    apart = program.opaque or program.mixing or any(group.per_row for group in program.groups)
    if not (natural and plain) or apart:
        return 0
    return sum(int(np.size(value)) for value in program.parameters.initial.values())


def decided(
    program: Program, data: Data, options: Options, start: Start | None = None
) -> tuple[Choice, Layout, list[Functionals]]:
    """What variational inference and expectation propagation decide. Raises GpdslError for what cannot work."""
    learnt, latents = numbers_learnt(program, options), sum(group.size for group in program.groups)
    shape, declared = program.translator.shape, program.declarations.latents.values()
    levels = max((math.prod(shape(latent.levels)) for latent in declared), default=1)
    choice = decide(
        options,
        data.rows,
        opaque=program.opaque,
        per_row=any(group.per_row for group in program.groups),
        learnt=learnt,
        latents=latents,
        levels=levels,
        names=tuple(program.declarations.latents),
    )
    program = training(program, dense=choice.dense)
    for name, asked in choice.own.items() or [("", choice.features or choice.inducing)]:
        if isinstance(asked, int) and asked > data.rows * levels:
            raise DataError(TooManyInducing(asked, data.rows * levels, f"inducing {name}".strip()))
    choice = _with_inducing_start(program, choice, options)
    inducing, dense = start_inducing(program, data, choice, options.seed, options.dtype)
    if choice.families:
        counts = [len(z) for g, z in zip(program.groups, inducing, strict=True) if not g.per_row]
        choice = replace(choice, inducing=max(counts, default=choice.inducing))
    if start is not None:
        choice, inducing = _inducing_of(start, program, choice, inducing, options)
    determined = dense and not any(map(white_beside, program.groups)) and not kernel_parameters_learnt(program)
    if determined and choice.posterior in {"full", "linear", "coupled"}:
        reduced = [_spanning(program, g, z, options) for g, z in zip(program.groups, inducing, strict=True)]
        if sum(map(len, reduced)) < 0.7 * sum(map(len, inducing)):
            inducing, dense = reduced, False
    simulated = is_simulated(program, options, choice)
    if program.opaque:
        if not simulated:
            refuse_scores(program)
        choice = within_budget(program, options, choice, data.rows)
    if options.posterior == "auto":
        sites = choice.optimizer == "natural" or options.engine == "ep"
        choice = choose_coupling(program, choice, inducing, data.rows, sites=sites, simulated=simulated)
    if options.engine == "ep":
        choice = suited(program, choice, options)
    return choice, Layout(parse_family(choice.posterior, dense), dense, options.entropy), inducing


def _inducing_of(
    start: Start, program: Program, choice: Choice, inducing: list[Functionals], options: Options
) -> tuple[Choice, list[Functionals]]:
    """The inducing points of the fit to start from, unless it has none or another number of them was asked for."""
    if start.onto is not None:
        return _having(choice, program, start.onto), list(start.onto)
    if choice.own:
        # Those of each latent that the fit has as many of as are asked for, or whose number is open.
        found, own = list(inducing), dict(choice.own)
        for place, (group, new) in enumerate(zip(program.groups, inducing, strict=True)):
            found[place] = _kept(start, group, new, options.inducing)
            if found[place] is not new:
                own |= {name: len(found[place]) for name in group.names}
        return replace(choice, own=own, inducing=max(map(len, found))), found

    known = None if choice.dense or start.dense else start.inducing_for(program)
    if known is None or (options.inducing is not None and any(len(z) != options.inducing for z in known)):
        return choice, inducing
    reasons = {**choice.reasons, "inducing": "as in the fit it starts from"}
    return _having(replace(choice, reasons=reasons), program, known), known


def _having(choice: Choice, program: Program, inducing: Sequence[Functionals]) -> Choice:
    """The choice with inducing variables that are known already: how many, and as which features they are written."""
    pairs = [(z, g) for z, g in zip(inducing, program.groups, strict=True) if not g.per_row]
    choice = replace(choice, inducing=max(map(len, inducing)))
    own = {name: _written(z) for z, g in pairs for name in g.names}
    if all(isinstance(each, int) for each in own.values()):
        return choice
    first, *others = own.values()
    same = all(each == first for each in others)
    return replace(choice, features=str(first)) if same else replace(choice, own=own)


def _written(inducing: Functionals) -> str | int:
    """Inducing variables as they are written: the number of points alone, or families of features."""
    parts = [part for block in blocks(inducing) for _, part in block]
    if all(isinstance(part, Values) for part in parts):
        return len(inducing)
    found = []
    for part in parts:
        family = "slopes" if isinstance(part, Derivatives) else "points"
        found.append(f"{part.family}({part.count})" if isinstance(part, Coefficients) else f"{family}({len(part)})")
    return " + ".join(dict.fromkeys(found))


def _kept(start: Start, group: Group, new: Functionals, asked: Any) -> Functionals:
    """The inducing points of one group in the fit to start from, where these are as many as are asked for."""
    places = {None if at is None else at[0] for at in map(start.group_of, group.names)}
    place, wanted = places.pop(), asked.get(group.names[0])
    everywhere = start.dense or group.names[0] in start.everywhere
    if group.per_row or everywhere or place is None or places or isinstance(wanted, str) or wanted == 0:
        return new
    known = start.inducing[place]
    return known if isinstance(known, Values) and wanted in (None, len(known)) else new


def _with_inducing_start(program: Program, choice: Choice, options: Options) -> Choice:
    """Points can be chosen for a kernel that stays; centres do well whatever it becomes."""
    start, reason = options.inducing_start, "as asked"
    if start == "auto":
        learnt = kernel_parameters_learnt(program)
        start, reason = ("kmeans", "the kernel is learnt") if learnt else ("best", "the kernel is known")
    if choice.dense:
        return choice
    return replace(choice, inducing_start=start, reasons={**choice.reasons, "inducing_start": reason})


def kernel_parameters_learnt(program: Program) -> bool:
    """Whether any learnt parameter enters a kernel."""
    translator = program.translator
    for group in program.groups:
        for member in group.members:
            for expression in (*member.kernel.arguments, *member.kernel.factors):
                for symbol in translator.scalar(expression).free_symbols:
                    ref = translator.references[symbol]
                    if ref.kind == "param" and ref.name in program.parameters.initial:
                        return True
    return False


def _spanning(program: Program, group: Group, inducing: Functionals, options: Options) -> Functionals:
    """The rows that carry a dense posterior when the kernel is known: the others' values follow from theirs."""
    if group.factors > 1 or group.per_row or not isinstance(inducing, Values):
        return inducing
    rows = np.asarray(inducing.points)
    jitter = jitter_for(jnp.dtype(options.dtype))

    def matrix(parameters: dict[str, Array], points: Array) -> Array:
        kernel = kernel_values(program.evaluator, group, program.parameters.constrain(parameters))
        return covariance(group.form, [a[0] for a in kernel.arguments], Values(points))

    start = as_arrays(program.parameters.unconstrained(), options.dtype)
    values = np.asarray(jit(matrix)(start, jnp.asarray(rows, options.dtype)), float)
    if not np.all(np.isfinite(values)):  # said by the fit, with the reason
        return inducing
    return Values(rows[spanning_rows(values, jitter * float(np.mean(np.diag(values))))])


# Whether a posterior that nobody chose keeps the correlation between latents: where it arises and can be afforded.
#
# Where the expectations are sampled, and the log density is concave in the latents, as of a softmax, it does not. A
# block of covariances per row has room to follow the errors of one set of samples, and the bound that is maximised
# over it is not attained on others: by 9 nats on 124 rows of three classes, more than the correlation is worth there,
# in eight times the time. A ridge, along which independent latents are far too narrow, a concave log density does not
# have.


LARGEST = 600
"""Whitened values of all latents together up to which one Gaussian across them is the default.

Measured: the bound and its gradient take 0.05 s at 200 of them, 0.5 s at 600, 1.2 s at 1000.
"""

LARGEST_ROWS = 20_000_000
"""Numbers in what all rows read of them, [rows, columns, whitened values]."""


def choose_coupling(
    program: Program, choice: Choice, inducing: Sequence[Functionals], rows: int, *, sites: bool, simulated: bool
) -> Choice:
    """A single Gaussian becomes `coupled` where observations mix latents and it is small; the reason is kept.

    `sites` says that the engine keeps a site per row, which can be one for all latents; `simulated`, that opaque
    functions have surrogates.
    """
    mixed = program.mixing
    if choice.posterior != "full" or not mixed:
        return choice
    size = joint_size(program, inducing)
    named = ", ".join(f"`{name}`" for name in mixed)
    if choice.batch:
        reason = "minibatches leave latents independent, with standard deviations that are too small"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; batch = 0 takes all rows at once")
    if not sites:
        return choice
    if size > LARGEST or rows * program.latents * size > LARGEST_ROWS:
        reason = f"{named} mixes latents, but {size} inducing values in all are too many for one covariance matrix"
        return _because(choice, "full", f"{reason}; posterior = coupled insists")
    if program.opaque and not simulated and choice.samples < samples_for(program.latents):
        reason = f"{choice.samples} samples are too few to estimate the covariances of {program.latents} latent values"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; posterior = coupled insists")
    if program.coupling.sampled and not program.sampled:
        return _because(choice, "full", f"{named} mixes more latents than a closed form of their covariances can hold")
    # Whether expectations are sampled, with gradients through the samples, of concave log densities alone.
    sampled = [o for o in program.coupling.observations if any(term.method == "pathwise" for term in o.terms)]
    if bool(sampled) and log_concavity(program.coupling.translator, sampled).verdict == "proved":
        reason = "its log density is concave, where correlation is worth less than one Gaussian that follows samples"
        return _because(choice, "full", f"{named} mixes latents, but {reason}; posterior = coupled insists")
    return _because(choice, "coupled", f"{named} mixes latents, which makes them correlated")


def joint_size(program: Program, inducing: Sequence[Functionals]) -> int:
    """Whitened values of all latents together."""
    return sum(group.size * len(points) for group, points in zip(program.groups, inducing, strict=True))


def _because(choice: Choice, posterior: str, reason: str) -> Choice:
    return replace(choice, posterior=posterior, reasons={**choice.reasons, "posterior": reason})


# What an evaluation of the bound costs, by counting: floating-point operations and bytes.


def cost(program: Program, plan: Plan, batch: int) -> tuple[float, float]:
    """Floating-point operations and bytes of one evaluation with gradient: SAVIGP eqs. 40 and 41, times three."""
    flops = memory = 0.0
    held = held_at_once(program, plan, batch)
    choice, components = plan.choice, plan.layout.family.components
    if choice.sets:
        sizes = np.asarray(choice.sets, float)
        return 12 * float(np.sum(sizes**3)), 48 * float(np.sum(sizes**2))
    full = choice.optimizer == "natural" or isinstance(plan.layout.family, Full)
    for group, points in zip(program.groups, plan.inducing, strict=True):
        if group.per_row:
            continue
        m = len(points)
        width, looked_at = columns_of(group, program.translator), batch * len(group.readings.all)
        flops += group.factors * (m**3 / 3 + 2 * m * m * width)
        if not plan.layout.dense:
            flops += group.factors * (m * m * looked_at + 2 * m * looked_at * width)
        flops += group.size * components * (2 * looked_at * m * m + m**3 / 3 if full else 2 * looked_at * m)
        features = m * m + m * held * len(group.readings.all)
        memory += 8 * (group.factors * features + group.size * components * (m * m if full else m))
    if choice.posterior == "coupled":
        joint, columns = joint_size(program, plan.inducing), program.latents
        flops += 2 * joint**3 + 2 * batch * joint * (joint + columns**2)
        memory += 8 * (3 * joint**2 + batch * columns * joint)
    evaluations = sum(_evaluations(t, choice) for o in program.observations for t in o.terms)
    flops += 20 * components * batch * evaluations * program.latents
    memory += 8 * components * held * evaluations * max(program.latents, 1)
    return 3 * flops, 3 * memory


def held_at_once(program: Program, plan: Plan, batch: int) -> int:
    """Rows whose features are held at once: those of a step, or of a block of them."""
    blocks = not plan.layout.dense and plan.choice.posterior != "coupled"
    return (block_rows(program, plan.inducing, batch) if blocks else 0) or batch


def _evaluations(term: Term, choice: Choice) -> int:
    """How often a term is evaluated per row: nodes or samples."""
    if term.method == "closed":
        return 1
    if term.integrand is None:
        return choice.samples
    count = len(term.integrand.arguments)
    return split_count(term.integrand) if term.integrand.kinks else NODES[count] ** count


# --- Amounts of work and memory in words -----------------------------------------------------------------------------


def quantity(value: float, unit: str) -> str:
    """A number with three digits and the prefix of its unit."""
    if value <= 0:
        return f"0 {unit}"
    power = min(int(math.log10(value) // 3), 5)
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P'][power]}{unit}"
