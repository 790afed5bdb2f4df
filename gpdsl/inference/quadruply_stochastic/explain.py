"""The plan of a posterior over weights as text: the basis functions, q, the steps, and what one of them costs."""

from __future__ import annotations

from gpdsl.inference.driver import Plan
from gpdsl.inference.plan.explain import explain_observation
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.plan.planning import quantity
from gpdsl.inference.plan.weights import WeightChoice
from gpdsl.inference.quadruply_stochastic.posterior import KINDS
from gpdsl.kernels.form import describe
from gpdsl.program.groups import columns_of
from gpdsl.program.program import Program
from gpdsl.symbolic.concavity import log_concavity

OPERATIONS = 30
"""Floating-point operations behind one value of a basis function, its cosine included."""


def explain_weights(program: Program, options: Options, plan: Plan, rows: int) -> str:
    """The plan for a program and `rows` rows; costs are floating-point operations and bytes per step."""
    choice, weights = plan.choice, plan.choice.weights
    assert weights is not None
    d, group = program.declarations, program.groups[0]
    columns = columns_of(group, program.translator)
    title = f"plan for {d.name}: {rows} rows" + "".join(f", {k} = {v}" for k, v in program.sizes.items())
    numbers = (2 + weights.chevron) * weights.features
    size = 8.0 if options.dtype == "float64" else 4.0
    lines = [title, "", "latent"]
    lines.append(f"  {group.names[0]}: 1 process over {', '.join(group.inputs)} ({columns} column(s))")
    lines.append(f"    kernel {describe(group.form)} by {weights.features} {KINDS[options.basis]}")
    if options.basis == "fourier":
        lines.append("    drawn again from their seed wherever they are needed, never stored")
    lines += [f"    features: {choice.reasons['features']}"] if "features" in choice.reasons else []
    lines += ["", "posterior", f"  {_family(weights)}: {numbers} numbers ({quantity(size * numbers, 'B')})"]
    if weights.chevron < weights.features:
        lines.append("  its lone diagonal in closed form (QSGP Proposition 1), the KL term analytic")
    lines += ["", "expected log likelihood"]
    for observation in program.observations:
        lines += explain_observation(program, observation, choice, options)
    lines += ["", "steps", *_steps(program, choice, weights)]
    scaling = "" if weights.sums == "solved" else ", whatever the numbers of rows and features"
    lines += ["", f"cost of one step (estimate){scaling}"]
    values, working = _cost(choice, weights, columns)
    lines.append(f"  {quantity(values, 'flop')}, {quantity(size * working, 'B')} of working memory in {options.dtype}")
    return "\n".join(lines)


def _family(weights: WeightChoice) -> str:
    if not weights.chevron:
        return "independent Gaussian weights (QSGP-0)"
    return f"Gaussian weights, a chevron root with {weights.chevron} dense columns (QSGP-{weights.chevron})"


def _steps(program: Program, choice: Choice, weights: WeightChoice) -> list[str]:
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
