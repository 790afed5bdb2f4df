"""What `explain` says of exact inference."""

from __future__ import annotations

from collections.abc import Sequence

from gpdsl.inference.exact.system import statement
from gpdsl.inference.plan.cost import quantity
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.program.program import Program
from gpdsl.symbolic.written import written

NUMBERS = {"float64": 8, "float32": 4}
"""Bytes of a number."""


def explain_exact(
    program: Program, choice: Choice, optimiser: Sequence[str], notes: Sequence[Sequence[str]], options: Options
) -> list[str]:
    """The posterior, the observations with what was found out of each, the optimiser, and what an evaluation costs."""
    lines = ["posterior", f"  exact: {choice.reasons['posterior']}"]
    lines.append(f"  {_matrices(choice.exact)}; no jitter: the noise makes them positive definite")
    lines += ["", "observations, in units of their noise"]
    for observation, noted in zip(program.observations, notes, strict=True):
        found = statement(program, observation)
        assert found is not None
        where = f"[{','.join(map(str, observation.positions))}]" if observation.positions else ""
        lines.append(f"  {observation.outputs[0]}{where} ~ {observation.distribution}: {written(found.residual)}")
        lines += [f"    {each}" for each in noted]
    lines += ["", "optimiser", *optimiser]
    flops = sum(float(size) ** 3 for size in choice.exact)
    memory = 4.0 * NUMBERS[options.dtype] * sum(float(size) ** 2 for size in choice.exact)
    lines += ["", "cost of one evaluation of the evidence and its gradient (estimate)"]
    lines.append(f"  {quantity(flops, 'flop')}, {quantity(memory, 'B')} of working memory in {options.dtype}")
    return lines


def _matrices(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"one Cholesky factor and one inverse of size {sizes[0]} an evaluation"
    largest, smallest = max(sizes), min(sizes)
    shown = str(largest) if largest == smallest else f"{smallest} to {largest}"
    return f"{len(sizes)} parts that share no latent: a Cholesky factor and an inverse each, of size {shown}"
