"""What `explain` says of a model of several layers."""

from __future__ import annotations

from gpdsl.inference.driver import Plan
from gpdsl.inference.layered.engine import last_layers
from gpdsl.inference.layered.predictive import pass_count
from gpdsl.inference.layered.shallow import begins_below
from gpdsl.inference.plan.explain import explain_observation
from gpdsl.inference.plan.explain_latents import described, row_variable
from gpdsl.inference.plan.options import Options
from gpdsl.program.program import Program


def explain_layers(program: Program, options: Options, plan: Plan, rows: int) -> str:
    """The layers from the inputs to the outputs, how rows go through them, the optimiser and what a step costs."""
    choice, declared = plan.choice, program.declarations
    title = f"plan for {declared.name}: {rows} rows"
    if program.sizes:
        title += ", " + ", ".join(f"{name} = {size}" for name, size in program.sizes.items())
    lines = [title, "", "layers, from below"]
    last = last_layers(program)
    for place in program.order:
        group, points = program.groups[place], len(plan.inducing[place])
        if group.per_row:
            lines.append(row_variable(group)[0])
            how = "argument" if set(group.names) & program.inner else "term"
            whose = "one Gaussian per row and element" + (f" by a {options.rows}" if options.rows != "free" else "")
            lines.append(f"    {whose} ({how} of others); the prior at new rows")
            continue
        lines.append(described(program, group))
        lines.append(f"    {points} inducing points that move, full Gaussian per latent")
        lines.append(f"    {_how(place in last, choice.optimizer)}")
    lines += ["", "expected log likelihood, in every pass"]
    for observation in program.observations:
        lines += explain_observation(program, observation, choice, options)
    batch = choice.batch or rows
    lines += [
        "",
        "optimiser",
        f"  {choice.steps} steps on {batch} rows, {choice.samples} pass(es) of each (SGPVI eq. 78)",
    ]
    if begins_below(program):
        lines.append("  from a fit of the last layer alone, with the others as they start")
    if choice.optimizer == "natural":
        lines.append("  natural gradients for the last layer, Adam for everything else")
    else:
        lines.append("  Adam for everything")
    lines += [f"  {name}: {choice.reasons[name]}" for name in ("batch", "optimizer") if name in choice.reasons]
    lines.append(f"  learnt with q: {', '.join(program.parameters.initial) or 'nothing'}")
    if program.parameters.held:
        lines.append(f"  held: {', '.join(program.parameters.held)}")
    lines += [
        "",
        "predictions",
        f"  mixtures of {pass_count(program)} passes through the layers, the same for every row",
    ]
    return "\n".join(lines)


def _how(last: bool, optimizer: str) -> str:
    if not last:
        return "sampled at sampled arguments; starts near its arguments or their principal components"
    return "its marginals given its arguments are integrated over" + (
        ", by natural gradients" * (optimizer == "natural")
    )
