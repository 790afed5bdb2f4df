"""What expectation propagation does with a program, as lines of the plan."""

from __future__ import annotations

from gpdsl.inference.expectation_propagation.tilted import choose_tilted, nodes_of
from gpdsl.inference.plan.options import EP_SAMPLES, Choice, Options
from gpdsl.program.program import Program
from gpdsl.symbolic.written import written


def explain_sites(choice: Choice) -> list[str]:
    """The posterior, by its sites."""
    per = "row, for all its latents together" if choice.posterior == "coupled" else "row and latent"
    name = "expectation propagation" if choice.power == 1 else f"power expectation propagation, power {choice.power:g}"
    lines = [
        f"  one Gaussian site per {per}, of the rank of what a row reads: {name} (SEP eqs. 2 and 10)",
        "  what inducing values leave open enters row by row, as in FITC",
    ]
    return lines + ([f"  power: {choice.reasons['power']}"] if "power" in choice.reasons else [])


def explain_tilted(program: Program, options: Options, choice: Choice) -> list[str]:
    """How moments of the tilted distributions are computed, and why."""
    tilted = choose_tilted(program, choice.power, options.expectations)
    count = nodes_of(tilted, program, choice.samples)
    how = {
        "closed": "closed form",
        "quadrature": f"quadrature, {count} nodes about the current posterior",
        "sampled": f"{count} quasi-Monte-Carlo points from the current posterior, reweighted",
    }[tilted.method]
    if program.calls:
        count = nodes_of(tilted, program, EP_SAMPLES)
        names = ", ".join(sorted({use.function for use in program.uses()}))
        how = f"{tilted.method}, {count} points, of surrogates of {names}, corrected by reweighted evaluations"
    lines = [f"  {how}", f"    why: {tilted.reason}"]
    for observation, formula in zip(program.observations, tilted.formulas, strict=False):
        lines.append(f"    log normaliser of {', '.join(observation.outputs)}: {written(formula)}")
    return lines
