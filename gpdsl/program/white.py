"""White noise in a kernel beside other kernels: no inducing value says anything of it, so it is taken apart.

f = g + e with e independent from row to row. Where e reaches one observed value alone, with a normal distribution, it
is part of that value's noise: y ~ Normal(a f + b, s) is y ~ Normal(a g + b, sqrt(s^2 + a^2 V[e])), and g is inferred.
Else inducing values are those of g, and q leaves e as it is in the prior.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce

import sympy as sp

from gpdsl.kernels.form import has_white, only_white
from gpdsl.language import model as m
from gpdsl.program.groups import Group, with_kernels
from gpdsl.program.program import Program
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.laws import Law
from gpdsl.symbolic.readings import OWN
from gpdsl.symbolic.terms import ObservationTerms, with_gradients, with_law
from gpdsl.symbolic.translate import Ref, axis_key

NORMAL = ("Normal", "LogNormal")
"""Laws of which noise is a part of `sd`."""


def training(program: Program, *, dense: bool) -> Program:
    """The program whose latents are inferred: without white noise that is noise of observed values."""
    if not any(map(white_beside, program.groups)):
        return program
    noise = _noise(program)
    groups = [smooth(program, g) if g in noise else g for g in program.groups]
    observations = [_widened(program, each, noise) or each for each in program.observations]
    planned = with_gradients(program.translator, tuple(observations), program.gradients)
    return replace(program, groups=_apart(groups, () if dense else groups), observations=planned)


def predicting(program: Program, *, dense: bool) -> Program:
    """The program as a fit holds it: new rows have white noise of their own, which inducing values are free of."""
    those = program.groups if not dense else _noise(program)
    return replace(program, groups=_apart(program.groups, those)) if those else program


def notes_on_white(program: Program) -> tuple[str, ...]:
    """What q says nothing of, in a program for training."""
    names = ", ".join(f"`{name}`" for group in program.groups if group.apart for name in group.names)
    return (
        f"White() in the kernel of {names} is left as in the prior, which may cost much of the bound: inducing points "
        "say nothing of it, and it is not the noise of one normal output; inducing = 0 infers it, and so does a "
        "variable of each row instead (`row e ~ Normal(0, sd)`)",
    )


def white_beside(group: Group) -> bool:
    """Whether white noise stands beside other kernels."""
    return not group.per_row and not group.points and has_white(group.form) and not only_white(group.form)


def _apart(groups: Sequence[Group], those: Collection[Group]) -> tuple[Group, ...]:
    return tuple(replace(g, apart=True) if g in those and white_beside(g) else g for g in groups)


def _noise(program: Program) -> list[Group]:
    """The groups of which all white noise is noise of observed values."""
    return [
        group
        for group in program.groups
        if white_beside(group)
        and not has_white(smooth(program, group).form)
        and all(_alone(program, name) for name in group.names)
        and all(_widened(program, each, [group]) is not None for each in program.observations)
    ]


def smooth(program: Program, group: Group) -> Group:
    """The group without its white noise; as it is where kernels differ without it."""
    kernels = [_split(member.latent.kernel)[0] or member.latent.kernel for member in group.members]
    return with_kernels(program.translator, group, kernels) or group


def _split(kernel: m.Kernel) -> tuple[m.Kernel | None, list[list[m.Expression]]]:
    """A kernel without terms that are white noise, if any is left, and the factors of each of these."""
    match kernel:
        case m.KernelCall(name="White"):
            return None, [[]]
        case m.KernelScale(factor=factor, kernel=inner):
            left, white = _split(inner)
            return left if left is None else replace(kernel, kernel=left), [[factor, *each] for each in white]
        case m.KernelSum(terms=terms):
            parts = [_split(term) for term in terms]
            smooth = tuple(left for left, _ in parts if left is not None)
            found = [each for _, white in parts for each in white]
            return (replace(kernel, terms=smooth) if len(smooth) > 1 else next(iter(smooth), None)), found
    return kernel, []


def _alone(program: Program, name: str) -> bool:
    """Whether every value of a latent's elements is read once, by the observations alone."""
    if name in program.inner:
        return False
    found: list[Ref] = []
    for observation in program.observations:
        read = (program.translator.references[s] for s in latents_in(program.translator, observation.log_density))
        found += [ref for ref in read if ref.name == name]
    generic = any(isinstance(position, str) for ref in found for position in ref.positions)
    return len(found) == 1 if generic else len(set(found)) == len(found)


def _widened(program: Program, observation: ObservationTerms, groups: Sequence[Group]) -> ObservationTerms | None:
    """An observation with the white noise of some groups in its own; None where that is not its form."""
    translator, law = program.translator, observation.law
    latents = latents_in(translator, observation.log_density)
    noisy = [s for s in latents if translator.references[s].name in {name for g in groups for name in g.names}]
    if not noisy:
        return observation
    if law is None or law.name not in NORMAL or law.components or latents_in(translator, law.arguments["sd"]):
        return None
    variance: sp.Expr = sp.Integer(0)
    for symbol in noisy:
        ref, slope = translator.references[symbol], sp.diff(law.arguments["mean"], symbol)
        one_to_one = {p for p in ref.positions if isinstance(p, str)} == set(observation.axes)
        if ref.reading != OWN or not one_to_one or slope == 0 or latents_in(translator, slope):
            return None
        variance += slope**2 * _variance(program, ref)
    wider = {**law.arguments, "sd": sp.sqrt(law.arguments["sd"] ** 2 + variance)}
    return with_law(translator, observation, Law(law.name, wider), program.expectations)


def _variance(program: Program, ref: Ref) -> sp.Expr:
    """Of the white noise of one element of a latent."""
    latent = program.translator.declarations.latents[ref.name]
    at = dict(zip(map(axis_key, latent.axes), ref.positions, strict=True))
    terms = _split(latent.kernel)[1]
    scalars = [[program.translator.scalar(factor, at) for factor in factors] for factors in terms]
    return reduce(sp.Add, [sp.Mul(*each) for each in scalars])
