"""What an evaluation of the bound costs, by counting: floating-point operations and bytes."""

from __future__ import annotations

import math

import numpy as np

from gpdsl.inference.blocks import block_rows
from gpdsl.inference.driver import Plan
from gpdsl.inference.estimators.expected_log_likelihood import NODES
from gpdsl.inference.plan.options import Choice
from gpdsl.inference.plan.planning import joint_size
from gpdsl.inference.posteriors.family import Full
from gpdsl.program.groups import columns_of
from gpdsl.program.program import Program
from gpdsl.program.quadrature import split_count
from gpdsl.symbolic.terms import Term


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
