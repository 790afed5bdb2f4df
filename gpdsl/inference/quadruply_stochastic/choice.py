"""What this engine asks of a program, how many functions, rows and steps it takes, and its plan as text."""

from __future__ import annotations

from gpdsl.errors import GpdslError
from gpdsl.inference.driver import Plan
from gpdsl.inference.plan.explain import explain_observation, kernel_of, title_of
from gpdsl.inference.plan.options import MOST_POINTS, Choice, Options, WeightChoice
from gpdsl.inference.plan.planning import quantity
from gpdsl.inference.quadruply_stochastic.posterior import KINDS
from gpdsl.kernels.form import has_white
from gpdsl.kernels.waves import unsuited
from gpdsl.program.groups import OWN_VALUE, columns_of
from gpdsl.program.program import Program
from gpdsl.symbolic.concavity import log_concavity

MOST_FEATURES = 20_000
FEWEST_FEATURES = 2_000
PER_ROW = 10
"""Basis functions for each row, between these bounds."""

BATCH = 500
SUPPORT = 300
BLOCK = 4_000
"""Rows of a batch, support rows, and basis functions of a step: some megabytes of working memory."""

PASSES = 10
FEWEST_SWEEPS, MOST_SWEEPS = 200, 1_500
"""Passes over the rows, and bounds on the passes over the basis functions."""

MOST_SOLVED, SOLVED_WORK = 4_000, 1e12
"""Covariances with points as functions, and rows times their square, up to which q is found by linear algebra."""

NEWTON_STEPS = 50

SAMPLED_STEPS = 20_000
SAMPLED_BLOCK = 2_000

FAR = {"running": 0.05, "sampled": 0.01}
NEAR = {"running": 0.005, "sampled": 0.00001}
"""Learning rates of hyperparameters, for passes over the rows and for the paper's steps (QSGP appendix I.1)."""

RELEVANCE = 0.01
"""The same beside precisions, which take a whole fit to settle."""

FROZEN = 0.1
"""Share of the steps in which the hyperparameters stay as they are: QSGP appendix I.1."""

START_ROWS = 1_000
"""Rows on which the hyperparameters start, found by another engine: QSGP appendix I.1."""


def decide_weights(program: Program, options: Options, rows: int) -> Choice:
    """All decisions. Raises GpdslError for what does not belong to this engine, or what it does not cover."""
    _refuse_options(options)
    refuse_program(program, options.basis)
    reasons: dict[str, str] = {}
    features = options.features
    if options.basis != "fourier":
        features = min(options.features or rows, rows)
        reasons["features"] = "covariances with the rows, or with some of them"
    elif features is None:
        features = min(max(PER_ROW * rows, FEWEST_FEATURES), MOST_FEATURES)
        reasons["features"] = f"{PER_ROW} for each of {rows} rows, from {FEWEST_FEATURES} to {MOST_FEATURES}"
    sums = options.feature_sums
    if options.basis == "inducing":
        if sums == "running":
            raise GpdslError("basis = inducing has a dense prior precision, which needs feature_sums = sampled")
        if sums == "auto" and features <= MOST_SOLVED and rows * features**2 <= SOLVED_WORK:
            return _solved(program, options, rows, features, reasons)
        _refuse_learning(program, "")
        sums, reasons["feature_sums"] = "sampled", "the prior precision of the weights is dense"
    elif sums == "auto":
        sums, reasons["feature_sums"] = "running", "gradients without noise from basis functions"
    if sums == "sampled":
        _refuse_sampled(program)
    chevron = options.chevron or 0
    if options.basis == "relevance" and (chevron or sums == "sampled"):
        what = f"chevron = {chevron}" if chevron else "feature_sums = sampled"
        raise GpdslError(
            f"basis = relevance finds precisions from sums over all rows of a sweep and prunes most functions, the "
            f"first ones too, at which dense columns would stand: leave out {what}"
        )
    block = min(options.feature_batch or (BLOCK if sums == "running" else SAMPLED_BLOCK), features)
    _refuse_columns(chevron, features)
    if chevron > block:
        raise GpdslError(f"chevron = {chevron}: a step has feature_batch = {block} functions, which must hold them all")
    if sums == "running" and options.support is not None:
        raise GpdslError("support rows are those of a control variate, which feature_sums = running does not need")
    support = 0 if sums == "running" else min(SUPPORT if options.support is None else options.support, rows)
    batch = min(options.batch or BATCH, rows)
    weights = WeightChoice(features, chevron, block, support, sums, _start_rows(program, options, rows))
    steps = options.steps or _steps(weights, rows, batch)
    rate = _rate(options, weights) if options.learning_rate is None else options.learning_rate
    posterior = f"chevron({chevron})" if chevron else "diagonal"
    optimizer = "dual block ascent" if sums == "running" else "adagrad"
    return Choice(False, 0, batch, 0, optimizer, steps, reasons, posterior, rate, weights=weights)


def _solved(program: Program, options: Options, rows: int, features: int, reasons: dict[str, str]) -> Choice:
    """Few enough covariances with points: neither sums over functions nor rows are sampled."""
    for name in ("feature_batch", "support"):
        if getattr(options, name) is not None:
            raise GpdslError(f"{name} belongs to feature_sums = sampled; without it, q is solved for")
    if options.start_rows == 0:
        _refuse_learning(program, "leave start_rows = 0 out, or ")
    chevron = (features if features <= MOST_POINTS else 0) if options.chevron is None else options.chevron
    _refuse_columns(chevron, features)
    weights = WeightChoice(features, chevron, features, 0, "solved", _start_rows(program, options, rows))
    posterior = f"chevron({chevron})" if chevron else "diagonal"
    steps = 1 if program.conjugate else options.steps or NEWTON_STEPS
    return Choice(False, 0, rows, 0, "newton", steps, reasons, posterior, weights=weights)


def _refuse_learning(program: Program, instead: str) -> None:
    """There are no steps of hyperparameters, whose bound has log |K| in it: they stay as the start finds them."""
    if program.parameters.initial:
        names = ", ".join(f"`{name}`" for name in program.parameters.initial)
        raise GpdslError(
            "basis = inducing has no estimator of log |K| (QSGP section 2.3), so no step learns hyperparameters: "
            f"{instead}pass fixed=[...] for {names} with values that engine = vi found, or use basis = fourier"
        )


def _refuse_columns(chevron: int, features: int) -> None:
    if chevron > features:
        raise GpdslError(f"chevron = {chevron}: there are {features} basis functions, and no more columns")


def _rate(options: Options, weights: WeightChoice) -> float:
    """Of Adam: hyperparameters that start where exact inference puts them have no far way to go."""
    if options.basis == "relevance":
        return RELEVANCE
    return (NEAR if weights.start_rows else FAR)[weights.sums]


def _steps(weights: WeightChoice, rows: int, batch: int) -> int:
    if weights.sums == "sampled":
        return SAMPLED_STEPS
    sweeps = min(max(PASSES * -(-rows // batch), FEWEST_SWEEPS), MOST_SWEEPS)
    return sweeps * weights.steps_a_sweep


def _start_rows(program: Program, options: Options, rows: int) -> int:
    if not program.parameters.initial:
        return 0
    return min(START_ROWS if options.start_rows is None else options.start_rows, rows)


def _refuse_sampled(program: Program) -> None:
    """Theorem 3 is a lower bound where the likelihood is log-concave, and nothing elsewhere."""
    if program.conjugate:
        return
    known = log_concavity(program.translator, program.observations)
    if not known.holds:
        raise GpdslError(
            f"feature_sums = sampled needs a log-concave likelihood (QSGP Theorem 3): {known.reason}; use feature_sums "
            "= running, or engine = vi"
        )


def _refuse_options(options: Options) -> None:
    if options.posterior not in {"auto", "diagonal"}:
        raise GpdslError(
            f"engine = qsgp has a posterior over weights, not posterior = {options.posterior}: leave it out, and set "
            "chevron to the number of dense columns of its root (0: diagonal)"
        )
    if options.devices not in {None, 1}:
        raise GpdslError("engine = qsgp runs on one device: leave out devices, or use engine = vi")
    if options.batch == 0:
        raise GpdslError("engine = qsgp takes some rows a step: set batch to at least 1, or use engine = vi")


def refuse_program(program: Program, basis: str) -> None:
    """Raise GpdslError, naming what is in the way and the engine that covers it."""
    instead = "; use engine = vi"
    if program.opaque:
        names = ", ".join(sorted({f"`{use.function}`" for use in program.uses()}))
        raise GpdslError(f"engine = qsgp needs densities that can be traced, and {names} is opaque{instead}")
    varying = [name for group in program.groups if group.per_row for name in group.names]
    if varying:
        raise GpdslError(f"engine = qsgp has no weights for the row variable `{varying[0]}`{instead}")
    latents = [name for group in program.groups for name in group.names]
    processes = sum(group.size for group in program.groups)
    if processes != 1:
        raise GpdslError(
            f"engine = qsgp fits one latent process, and this model has {processes} ({', '.join(latents)}){instead}"
        )
    group = program.for_prediction().groups[0]
    if group.readings != OWN_VALUE or group.points:
        raise GpdslError(f"engine = qsgp reads `{latents[0]}` at the row's own input alone{instead}")
    if program.sampled:
        raise GpdslError(f"engine = qsgp needs expectations in closed form or by quadrature, not sampled ones{instead}")
    why = unsuited(group.form, columns_of(group, program.translator))
    if has_white(group.form):
        raise GpdslError(f"`{latents[0]}` has no random Fourier features, and no other basis functions: {why}{instead}")
    if why is not None and basis == "fourier":
        raise GpdslError(f"`{latents[0]}` has no random Fourier features: {why}; use basis = inducing, or engine = vi")


# The plan of a posterior over weights as text: the basis functions, q, the steps, and what one of them costs.

OPERATIONS = 30
"""Floating-point operations behind one value of a basis function, its cosine included."""


def explain_weights(program: Program, options: Options, plan: Plan, rows: int) -> str:
    """The plan for a program and `rows` rows; costs are floating-point operations and bytes per step."""
    choice, weights = plan.choice, plan.choice.weights
    assert weights is not None
    group, title = program.groups[0], title_of(program, rows)
    columns = columns_of(group, program.translator)
    numbers = (2 + weights.chevron) * weights.features
    size = 8.0 if options.dtype == "float64" else 4.0
    lines = [title, "", "latent"]
    lines.append(f"  {group.names[0]}: 1 process over {', '.join(group.inputs)} ({columns} column(s))")
    lines.append(f"    kernel {kernel_of(program, group)} by {weights.features} {KINDS[options.basis]}")
    if options.basis == "fourier":
        lines.append("    drawn again from their seed wherever they are needed, never stored")
    lines += [f"    features: {choice.reasons['features']}"] if "features" in choice.reasons else []
    lines += ["", "posterior", f"  {_family(weights)}: {numbers} numbers ({quantity(size * numbers, 'B')})"]
    if weights.chevron < weights.features:
        lines.append("  its lone diagonal in closed form (QSGP Proposition 1), the KL term analytic")
    lines += ["", "expected log likelihood"]
    for observation in program.observations:
        lines += explain_observation(program, observation, choice, options)
    lines += ["", "steps", *_steps_said(program, choice, weights)]
    scaling = "" if weights.sums == "solved" else ", whatever the numbers of rows and features"
    lines += ["", f"cost of one step (estimate){scaling}"]
    values, working = _cost(choice, weights, columns)
    lines.append(f"  {quantity(values, 'flop')}, {quantity(size * working, 'B')} of working memory in {options.dtype}")
    return "\n".join(lines)


def _family(weights: WeightChoice) -> str:
    if not weights.chevron:
        return "independent Gaussian weights (QSGP-0)"
    return f"Gaussian weights, a chevron root with {weights.chevron} dense columns (QSGP-{weights.chevron})"


def _steps_said(program: Program, choice: Choice, weights: WeightChoice) -> list[str]:
    start = [f"  hyperparameters from {weights.start_rows} rows first"] if weights.start_rows else []
    if weights.sums == "solved":
        if program.conjugate:
            return [*start, "  none: the best mean and covariance by linear algebra"]
        own = f"  newton: at most {choice.steps} steps of the mean, each with the covariance that belongs to it"
        return [*start, own]
    lines = [f"  {choice.optimizer}: {choice.steps} steps on {choice.batch} rows and {weights.block} features", *start]
    learnt = ", ".join(program.parameters.initial)
    lines.append(f"  learnt with q by Adam after a tenth of the steps: {learnt or 'nothing'}")
    reason = choice.reasons.get("feature_sums", "as asked")
    if weights.sums == "running":
        lines.append(f"  sums over features are known exactly for the rows of a step ({reason})")
        lines.append(
            f"  {weights.steps_a_sweep} step(s) are a pass, after which its rows are at their best given others"
        )
    elif program.conjugate:
        lines.append(f"  sums over features are sampled ({reason}): unbiased for the bound (QSGP Theorems 1 and 2)")
        lines.append(f"  with a control variate of rank {weights.support} (QSGP Proposition 3)")
    else:
        lines.append(f"  sums over features are sampled ({reason}): a lower bound of the bound (QSGP Theorem 3)")
        lines.append(f"    {log_concavity(program.translator, program.observations).reason}")
    return lines


def _cost(choice: Choice, weights: WeightChoice, columns: int) -> tuple[float, float]:
    """Operations and numbers in working memory of one step."""
    if weights.sums == "solved":
        square = float(weights.features**2)
        return square * (2.0 * choice.batch + 5.0 * weights.features), 6.0 * square
    running = weights.sums == "running"
    rows = 2 * choice.batch + weights.support
    values = float(rows * weights.block)
    square = choice.batch if running else 0
    gram = 2.0 * square**2 * weights.block + square**3 / 3.0 / weights.steps_a_sweep
    flops = values * (OPERATIONS + 2 * columns + 4 * (1 + weights.chevron)) * 2 + gram
    return flops, 3.0 * values + square**2 + (4 + 3 * weights.chevron) * weights.block
