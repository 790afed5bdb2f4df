"""What expectation propagation does with a program, as lines of the plan."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.errors import GpdslError
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


# --- What expectation propagation asks of a program, and which posterior it takes where nobody chose one -------------


def suited(program: Program, choice: Choice, options: Options) -> Choice:
    """The choice for this engine. Raises GpdslError for a program it does not cover."""
    if program.calls and (choice.batch or choice.optimizer != "lbfgs"):
        names = ", ".join(sorted({f"`{use.function}`" for use in program.uses()}))
        what = f"optimizer = {choice.optimizer}" if not choice.batch else f"batch = {choice.batch}"
        raise GpdslError(
            f"{names} is opaque, and engine = ep evaluates opaque functions for all rows in rounds, which {what} does "
            "not: set batch = 0 and leave optimizer out"
        )
    jointly = [name for group in program.groups if group.readings.sums for name in group.names]
    if not jointly or choice.posterior == "coupled":
        return choice
    named = ", ".join(f"`{name}`" for name in jointly)
    reason = f"a row reads {named} in several places, which belong to one site"
    if choice.batch:
        raise GpdslError(f"{reason}, which minibatches do not cover: set batch = 0 with engine = ep")
    if options.posterior == "auto":
        return replace(choice, posterior="coupled", reasons={**choice.reasons, "posterior": reason})
    raise GpdslError(f"{reason}: use posterior = coupled with engine = ep")
