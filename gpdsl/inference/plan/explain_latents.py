"""The part of the plan about latents: their kernels, their inducing points, and what the rows read of them."""

from __future__ import annotations

from gpdsl.inference.driver import Plan
from gpdsl.kernels.form import describe
from gpdsl.language.inducing import FEATURES, PLACED, read_features
from gpdsl.language.model import Latent
from gpdsl.program.groups import Group, columns_of
from gpdsl.program.program import Program
from gpdsl.symbolic.readings import OWN, shown

STARTS = {
    "kmeans": "at k-means centres",
    "greedy": "at rows that explain most of the prior variance",
    "best": "at k-means centres or greedily chosen rows, whichever explain more of the prior variance",
}

BOUNDS = " (here a little beyond the rows)"


def grouped(program: Program, group: Group, inducing: int, plan: Plan) -> list[str]:
    """The latents of a group, and its inducing points."""
    spanned = plan.choice.dense and not plan.layout.dense
    where = "at the rows" if plan.choice.dense else STARTS[plan.choice.inducing_start]
    if plan.choice.reasons.get("inducing_start", "as asked") != "as asked":
        where += f" ({plan.choice.reasons['inducing_start']})"
    named, where = "inducing points", "that determine all that the rows read" if spanned else where
    if plan.choice.features:
        named, where = "inducing variables", f"as asked, {_families(plan.choice.features)}"
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
        open_ones = part.family not in PLACED and not part.over
        found.append(f"{part}, {FEATURES[part.family]}{BOUNDS if open_ones else ''}")
    return "; ".join(found).replace("`", "")


def described(program: Program, group: Group) -> str:
    """Names, inputs and kernel of a group of latents."""
    names = ", ".join(_indexed(member.latent) for member in group.members)
    over = f"{', '.join(group.inputs)} ({columns_of(group, program.translator)} column(s))"
    return f"  {names}: {group.size} process(es) over {over}, kernel {describe(group.form)}"


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
