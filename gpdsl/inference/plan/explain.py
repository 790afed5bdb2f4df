"""The plan as text, like a database's query plan: what each term of the bound costs, how it is computed and why."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.errors import plural
from gpdsl.inference.ascent.joint import split_parameters
from gpdsl.inference.bound import is_free
from gpdsl.inference.driver import Plan
from gpdsl.inference.exact.engine import explain_exact
from gpdsl.inference.expectation_propagation.engine import explain_sites, explain_tilted
from gpdsl.inference.expected_log_likelihood import NODES
from gpdsl.inference.opaque import budget
from gpdsl.inference.opaque.surrogate import is_quadratic, opaque_reads, passed_parameters
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.plan.planning import cost, held_at_once, joint_size, quantity
from gpdsl.inference.posteriors.family import Full, Linear, size
from gpdsl.kernels.form import describe, telling
from gpdsl.language import model as m
from gpdsl.language.inducing import BOUNDLESS, FEATURES, read_features
from gpdsl.language.model import Latent
from gpdsl.language.options import ENGINES
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.program import Program
from gpdsl.program.quadrature import split_count
from gpdsl.symbolic.density_mass import mass_words, masses
from gpdsl.symbolic.kernel_analysis import analyse
from gpdsl.symbolic.kernel_checks import doubtful_kernels, uses_formula
from gpdsl.symbolic.numeric import written
from gpdsl.symbolic.readings import OWN, shown
from gpdsl.symbolic.terms import Formula, ObservationTerms, Term

# The part of the plan about latents: their kernels, their inducing points, and what the rows read of them.

STARTS = {
    "kmeans": "at k-means centres",
    "greedy": "at rows that explain most of the prior variance",
    "best": "at k-means centres or greedily chosen rows, whichever explain more of the prior variance",
}

BOUNDS = " (here a little beyond the rows)"


def grouped(program: Program, group: Group, inducing: int, plan: Plan) -> list[str]:
    """The latents of a group, and its inducing points."""
    choice = plan.choice.of(group.names[0])
    if choice.sets:
        return [described(program, group), *readings(program, group)]
    spanned = choice.dense and not plan.layout.dense
    where = "at the rows" if choice.dense else STARTS[choice.inducing_start]
    if choice.reasons.get("inducing_start", "as asked") != "as asked":
        where += f" ({choice.reasons['inducing_start']})"
    named, where = "inducing points", "that determine all that the rows read" if spanned else where
    if (width := columns_of(group, program.translator)) and len(telling(group.form, width)) == width:
        where = "at the levels"
    if choice.features:
        asked = "" if "inducing" in choice.reasons else "as asked, "
        named, where = "inducing variables", f"{asked}{_families(choice.features)}"
    factor = "one Cholesky factor" if group.factors == 1 else f"{group.factors} Cholesky factors in one batch"
    shared = " shared by all (kernels differ by a factor only)" if group.factors == 1 and group.size > 1 else ""
    return [
        described(program, group),
        f"    {inducing} {named} {where}; {factor} of size {inducing}{shared}",
        *readings(program, group),
    ]


def _families(written: str) -> str:
    """The families of features, what they are, and where they are if that was not said."""
    found = []
    for part in read_features(written) or ():
        open_ones = part.family not in BOUNDLESS and not part.over
        found.append(f"{part}, {FEATURES[part.family]}{BOUNDS if open_ones else ''}")
    return "; ".join(found).replace("`", "")


def described(program: Program, group: Group) -> str:
    """Names, inputs and kernel of a group of latents."""
    names = ", ".join(_indexed(member.latent) for member in group.members)
    over = f"{', '.join(group.inputs)} ({columns_of(group, program.translator)} column(s))"
    return f"  {names}: {group.size} process(es) over {over}, kernel {kernel_of(program, group)}"


def kernel_of(program: Program, group: Group) -> str:
    """The kernel of a group of latents as the model has it; in general words where theirs differ in numbers."""
    told, source = describe(group.form), program.declarations.source
    written = {" ".join(source.written(each.latent.kernel.span).split()) for each in group.members}
    plain = len(written) == 1 and ("White" in told or not any("White" in each for each in written))
    return written.pop() if plain else told


def readings(program: Program, group: Group) -> list[str]:
    """What the rows read of a group, when it is not just the value at their own inputs."""
    if group.readings.all == (OWN,):
        return []
    d, shown_of = program.declarations, [member.latent.name for member in group.members]
    each = "; ".join(", ".join(shown(d, name, "", reading) for reading in group.readings.basis) for name in shown_of)
    jointly = ", jointly (by the variances of their sums)" if group.readings.sums else ""
    return [f"    read in each row: {each}{jointly}"]


def row_variable(group: Group) -> list[str]:
    """Variables of single rows."""
    names = ", ".join(_indexed(member.latent) for member in group.members)
    return [
        f"  {names}: {group.size} row variable(s), Normal and independent from row to row",
        "    one Gaussian per row and element; the prior at new rows",
    ]


def _indexed(latent: Latent) -> str:
    return f"{latent.name}[{','.join(a.describe() for a in latent.axes)}]" if latent.axes else latent.name


WIDEST = 110


def title_of(program: Program, rows: int) -> str:
    """What the plan is for."""
    sizes = "".join(f", {name} = {size}" for name, size in program.sizes.items())
    return f"plan for {program.declarations.name}: {plural(rows, 'row')}{sizes}"


def learnt_lines(program: Program, learnt: str = "learnt with q", also: Sequence[str] = ()) -> list[str]:
    """The parameters that are learnt, what else is, and those that are not."""
    held = [f"  held: {', '.join(program.parameters.held)}"] if program.parameters.held else []
    return [f"  {learnt}: {', '.join([*program.parameters.initial, *also]) or 'nothing'}", *held]


def explain(program: Program, options: Options, plan: Plan, rows: int) -> str:
    """The plan for a program and `rows` rows; costs are counted in floating-point operations and bytes per step."""
    choice, title = plan.choice, title_of(program, rows)
    batch = choice.visited(rows)
    if plan.choice.exact:
        found = [described(program, group) for group in program.groups]
        optimiser = _optimiser(program, options, plan, rows)
        notes = [_notes(program, observation) for observation in program.observations]
        exact = explain_exact(program, choice, optimiser, notes, options)
        return "\n".join([title, "", "latents", *found, "", *exact])
    if choice.optimizer == options.engine:
        return "\n".join([title, "", *_by_registered(program, options)])
    if not program.groups:
        return "\n".join([title, "", *_without_latents(program, options, plan, rows)])
    lines = [title, "", "latents"]
    for group, points in zip(program.groups, plan.inducing, strict=True):
        lines += row_variable(group) if group.per_row else grouped(program, group, len(points), plan)
    lines += ["", "posterior", *_posterior(program, options, plan, rows)]
    if options.engine == "ep":
        lines += ["", "tilted distributions", *explain_tilted(program, options, choice)]
    else:
        lines += ["", "expected log likelihood"]
        for observation in program.observations:
            lines += explain_observation(program, observation, choice, options)
    lines += ["", "optimiser", *_optimiser(program, options, plan, rows)]
    flops, memory = cost(program, plan, batch)
    lines += ["", "cost of one evaluation of the bound and its gradient (estimate)"]
    lines.append(f"  {quantity(flops, 'flop')}, {quantity(memory, 'B')} of working memory in {options.dtype}")
    if (held := held_at_once(program, plan, batch)) < batch:
        lines.append(f"  features of {held} rows at a time: those of all {batch} would be a burden")
    return "\n".join(lines)


def _without_latents(program: Program, options: Options, plan: Plan, rows: int) -> list[str]:
    """A model of parameters alone: what is maximised, its terms, and by what."""
    lines = ["no latents: maximum likelihood"]
    if program.priors:
        lines = [f"no latents: maximum a posteriori, with priors of {', '.join(program.priors)}"]
    if options.parameters == "gaussian":
        lines[0] += "; there q of parameters begins"
    lines += ["", "log likelihood"]
    for observation in program.observations:
        lines += explain_observation(program, observation, plan.choice, options)
    return [*lines, "", "optimiser", *_optimiser(program, options, plan, rows)]


def _by_registered(program: Program, options: Options) -> list[str]:
    """What is known of a fit by an engine that a user has registered: how it goes about it is its own."""
    groups = program.groups
    latents = [row_variable(g)[:1] if g.per_row else [described(program, g), *readings(program, g)] for g in groups]
    learnt = ", ".join(program.parameters.initial) or "nothing"
    lines = ["latents", *sum(latents, []), "", "engine", f"  {options.engine}: {ENGINES[options.engine]}"]
    return [*lines, "  one Gaussian of all values of the latents at the rows", f"  learnt: {learnt}"]


FAMILIES = {
    "full": "one Gaussian with a full covariance per latent (SAVIGP 6.2.1)",
    "linear": "one Gaussian per latent, its covariance by one number per row (SAVIGP Theorem 2)",
    "diagonal": "one Gaussian with a diagonal covariance per latent",
    "mixture": "mixture of {} diagonal Gaussians, weights learnt (SAVIGP 6.2.2)",
    "mixture_full": "mixture of {} Gaussians with full covariances, weights learnt (SAVIGP eq. 8)",
}

ENTROPIES = {
    "jensen": ", entropy by Jensen's bound (SAVIGP eq. 18)",
    "pairwise": ", entropy bounded by distances between components (Kolchinsky and Tracey 2017)",
}


def _posterior(program: Program, options: Options, plan: Plan, rows: int) -> list[str]:
    choice, layout = plan.choice, plan.layout
    components = layout.family.components
    if choice.sets:
        return _by_level(choice)
    if options.engine == "ep":
        lines = explain_sites(choice)
    elif choice.posterior == "coupled":
        lines = ["  one Gaussian across all latents, by one site with a block of their covariances per row"]
    elif choice.optimizer == "natural" and choice.batch:
        lines = ["  full Gaussian per latent, by sites of all rows tied to the inducing values (Adam et al. 2021)"]
    elif choice.optimizer == "natural":
        lines = ["  full Gaussian per latent, by one Gaussian site per row and latent (SAVIGP Theorem 2)"]
    else:
        lines = [f"  {FAMILIES[choice.posterior.partition('(')[0]].format(components)}"]
    lines += _sizes(program, plan, rows, sites=options.engine == "ep" or choice.optimizer == "natural")
    if layout.dense:
        lines.append("  dense: the rows are the inducing points, marginals at the rows are q's own (SAVIGP 6.1)")
    if options.engine == "vi":
        times = f", counted {options.beta:g} times" if options.beta != 1 else ""
        lines.append(f"  KL term: analytic{times}{ENTROPIES[layout.entropy] if components > 1 else ''}")
    shown = ("posterior", "inducing", "batch")
    lines += [f"  {name}: {choice.reasons[name]}" for name in shown if name in choice.reasons]
    return lines


def _by_level(choice: Choice) -> list[str]:
    """Sets of rows that share no level."""
    sizes = sorted({*choice.sets})
    what = "of all latents" if choice.posterior == "coupled" else "of each latent"
    return [
        f"  one Gaussian {what}, which falls into {plural(len(choice.sets), 'set')} that share no level, "
        f"matrices of {' to '.join(map(str, sizes[:1] + sizes[1:][-1:]))} values",
        "  by one Gaussian site for all rows that read the same values",
        "  KL term: analytic",
    ]


def _sizes(program: Program, plan: Plan, rows: int, *, sites: bool) -> list[str]:
    """How many numbers the posterior has, and what they take."""
    if plan.choice.posterior == "coupled":
        joint, columns = joint_size(program, plan.inducing), program.latents
        numbers = rows * (columns + columns * (columns + 1) // 2)
        whole = joint + joint * (joint + 1) // 2
        took = f"where a root of the covariance of all {joint} inducing values would take {whole}"
        return [f"  {numbers} numbers ({quantity(8.0 * numbers, 'B')}), {took}"]
    family = Linear() if sites and not plan.choice.batch else plan.layout.family
    found: dict[int, int] = {}
    for group, points in zip(program.groups, plan.inducing, strict=True):
        if not group.per_row:
            numbers = size(family, len(points), rows * len(group.readings.all))
            found[numbers] = found.get(numbers, 0) + group.size
    shown = [f"{numbers} numbers per latent ({quantity(8.0 * numbers, 'B')})" for numbers in found]
    instead = {size(Full(), len(z), 0) for g, z in zip(program.groups, plan.inducing, strict=True) if not g.per_row}
    if isinstance(family, Linear) and shown:
        shown[-1] += f", where a root of the covariance would take {', '.join(map(str, sorted(instead)))}"
    return [f"  {each}" for each in shown]


SCHEMES = {"qmc": "quasi-Monte-Carlo", "antithetic": "antithetic", "iid": "independent"}

CONTROLS = {
    "regression": "control variates (a regression on Hermite polynomials)",
    "constant": "the optimal multiple of the score as control variate (SAVIGP appendix F)",
    "none": "no control variate",
}


def explain_observation(program: Program, observation: ObservationTerms, choice: Choice, options: Options) -> list[str]:
    """One observation statement: its terms, how each is computed and why."""
    where = f"[{','.join(map(str, observation.positions))}]" if observation.positions else ""
    lines = [f"  {', '.join(observation.outputs)}{where} ~ {observation.distribution}"]
    lines += [f"    {note}" for note in _notes(program, observation)]
    for term in observation.terms:
        lines.append(f"    {_method(program, term, choice, options)}: {_shorten(written(term.expression))}")
        lines.append(f"      why: {term.reason}")
    return lines


def _notes(program: Program, observation: ObservationTerms) -> list[str]:
    """What was found out about a transform, a density by formula, and outputs that are read."""
    notes = []
    warp = observation.warp
    if warp is not None:
        way = {1: "increasing", -1: "decreasing", None: "monotone"}[warp.direction]
        how = "whatever the parameters" if warp.proved else "at the initial parameters (tried, not proved)"
        notes.append(f"left side {_shorten(written(warp.value))}: {way} {how}; log Jacobian added")
    if observation.formula is not None:
        notes.append(f"the density `{observation.distribution}` {_mass(program, observation.formula)}")
    if observation.reads:
        names = ", ".join(sorted({name for name, _ in observation.reads}))
        notes.append(f"reads observed values of {names}; counts where these are observed too")
    return notes


def _mass(program: Program, formula: Formula) -> str:
    """What to say of the integral of a density by formula."""
    found = masses(program.translator, formula, {**program.parameters.initial, **program.parameters.held})
    if found is None:
        return "calls an opaque function: its integral is not checked"
    checked = "(checked numerically at the initial parameters, latents at -1, 0 and 1.5)"
    wrong = mass_words(found)
    return f"{wrong} {checked}: subtract the log of the integral" if wrong else f"integrates to one {checked}"


def _method(program: Program, term: Term, choice: Choice, options: Options) -> str:
    match term.method:
        case "closed":
            return "closed form"
        case "quadrature" if term.integrand and term.integrand.kinks:
            return f"Gauss–Legendre quadrature between kinks, {split_count(term.integrand)} nodes"
        case "quadrature" if term.integrand:
            count = len(term.integrand.arguments)
            return f"Gauss–Hermite quadrature, {NODES[count]}{f'^{count}' if count > 1 else ''} nodes"
        case "pathwise":
            return f"sampled, {choice.samples} {SCHEMES[options.sampling]} samples, pathwise gradients"
    if budget.is_simulated(program, options, choice):
        what = "values and gradients" if budget.has_slopes(program) else "evaluations"
        carried = is_quadratic(choice.samples, opaque_reads(program).width, budget.has_slopes(program))
        degree = "quadratic" if carried else "linear"
        return f"{degree} surrogates from {choice.samples} {what} a row and round, corrected by what they leave"
    control = CONTROLS[options.control_variate]
    return f"sampled, {choice.samples} {SCHEMES[options.sampling]} samples, score-function gradients with {control}"


def _optimiser(program: Program, options: Options, plan: Plan, rows: int) -> list[str]:
    choice = plan.choice
    size = f"{choice.batch} rows a step" if choice.batch else "all rows each step"
    reason = choice.reasons.get("optimizer", "as asked")
    lines = [f"  {choice.optimizer} ({reason}); {size}; at most {choice.steps} steps"]
    if choice.optimizer == "adadelta":
        lines.append(f"  decay {options.decay:g}, epsilon {options.epsilon:g} (SAVIGP 9.2: 0.95 and 1e-06)")
    if options.schedule == "alternating":
        lines = [f"  {choice.optimizer} over one set after the other ({reason}); at most {choice.steps} rounds"]
        lines += [f"    {each}" for each in _sets(program, options, plan)]
    learnt = "learnt" if choice.exact or not program.groups else "learnt with q"
    lines += learnt_lines(program, learnt, ["inducing inputs"] if options.learn_inducing else [])
    if program.translator.traced:
        names = ", ".join(sorted(program.translator.traced))
        lines.append(f"  written in JAX, traced into the program and differentiated: {names}")
    if program.opaque and program.uses():
        names = ", ".join(sorted({u.function for u in program.uses()}))
        lines.append(f"  opaque, called in batches between compiled steps: {names}")
        if passed := ", ".join(passed_parameters(program)):
            lines.append(f"    parameters passed to them: {passed}; learnt from values around the current ones")
        lines.append(f"    evaluations: {budget.planned_evaluations(program, options, choice, rows)}")
        if budget.predicted_uses(program):
            lines.append(f"    a prediction: {budget.planned_predictions(program, choice, rows)}")
    return lines


def _sets(program: Program, options: Options, plan: Plan) -> list[str]:
    """What an alternating schedule moves, in its order."""
    hyper, likelihood = split_parameters(program)
    exact = plan.layout.dense and is_free(plan.layout.family)
    alone = " (q at the rows is held, so these see L_cross alone, exactly: SAVIGP 6.1.1)" if exact else ""
    found = ["posterior"]
    found += [f"hyperparameters {', '.join(hyper)}{alone}"] if hyper else []
    found += [f"likelihood parameters {', '.join(likelihood)}"] if likelihood else []
    return [*found, "inducing inputs"] if options.learn_inducing else found


def _shorten(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


# The part of the plan about kernels by formula: what follows from each formula, and what speaks against it.


def explain_kernels(declarations: m.Declarations) -> list[str]:
    """Lines for every latent whose kernel has a formula of the file; none without such."""
    latents = [latent for latent in declarations.latents.values() if uses_formula(latent.kernel)]
    if not latents:
        return []
    lines = ["", "kernels by formula"]
    for latent in latents:
        first, *rest = analyse(latent.kernel, declarations, latent).describe().splitlines()
        lines += [f"  {latent.name}: {first}", *(f"    {each}" for each in rest)]
    for doubt in doubtful_kernels(declarations):
        lines.append(f"  warning {doubt.code}: {doubt.message_text()}")
    return lines
