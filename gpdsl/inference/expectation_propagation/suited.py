"""What expectation propagation asks of a program, and which posterior it takes where nobody chose one."""

from __future__ import annotations

from dataclasses import replace

from gpdsl.errors import GpdslError
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.program.program import Program


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
