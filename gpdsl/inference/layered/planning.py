"""What is decided about a model of several layers, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import jax
import numpy as np

from gpdsl.data import Data
from gpdsl.data.errors import listed
from gpdsl.errors import GpdslError
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Plan, searching
from gpdsl.inference.layered.engine import LayeredSearch, last_layers
from gpdsl.inference.layered.predictive import pass_count
from gpdsl.inference.layered.propagation import inner_width
from gpdsl.inference.layered.settled import SettledSearch, begins_below, may_go_on, most_steps, settles
from gpdsl.inference.layered.start import start_layers
from gpdsl.inference.plan.explain import described, explain_observation, learnt_lines, row_variable, title_of
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.posteriors.features import averaged
from gpdsl.inference.warm import Start
from gpdsl.kernels.functionals import Functionals, Values, outline
from gpdsl.kernels.numerics import jitter_for
from gpdsl.language.inducing import asked_of, shown_of
from gpdsl.language.model import VALUE
from gpdsl.language.options import OPTIONS
from gpdsl.program.groups import reads_of
from gpdsl.program.program import Program, make_rows
from gpdsl.program.white import training
from gpdsl.symbolic.concavity import log_concavity
from gpdsl.symbolic.errors import InnerElsewhere
from gpdsl.symbolic.readings import OWN

INDUCING, LAST, BATCH, STEPS = 100, 256, 1_000, 3_000
"""Inducing points of each inner latent and of each of the last layer, rows of a step, and steps."""

FEWEST = 300
"""The fewest steps from a fit of the last layer alone."""

WORK, SETTLING = 6e10, 1_500
"""Passes times rows times squared inducing points of the last layer in all steps of a search that sees all rows, and
the most of these: in up to three cycles."""

RATE, RATE_OF_ROWS = 0.1, 0.03
"""Lengths of steps from a fit of the last layer alone: parameters of inner layers have far to go, against the noise of
minibatches. And of those beside row variables.
"""

FEW, LEAST = 500_000, 30
"""Rows times squares of inducing points: up to so many, averages over row variables cost little more than samples. So
many points, where more rows leave room for no more, at twice the cost: they end higher than more points with samples.
Of minibatches they do not, where rows are so many.
"""

NETWORK = "network(20, 20)"
"""What finds q of row variables where minibatches visit a row now and then."""

PASSES, MOST_PASSES = 1_000, 10
"""Passes of rows through the layers in a step, about, and of each row."""

ALLOWED = {
    "engine": ("vi",),
    "posterior": ("auto", "full"),
    "optimizer": ("auto", "natural", "adam"),
    "schedule": ("joint",),
    "gradients": ("auto",),
    "hyperparameters": ("point", "auto"),
    "parameters": ("point",),
    "inducing_start": ("auto", "kmeans"),
}

UNREAD = {
    "tolerance": "all `steps` are taken",
    "epsilon": "it belongs to Adadelta, and layers are fitted by Adam",
    "decay": "it belongs to Adadelta, and layers are fitted by Adam",
    "evaluations": "layers take no opaque functions",
    "sampling": "rows go through the layers in fresh random passes",
    "control_variate": "gradients are those of paths, not of scores",
}
"""Options that tell nothing here, and why."""


def plan_layered(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan:
    """The plan for a model with latents over latents or row variables. Raises GpdslError for what it cannot fit."""
    program = training(program, dense=False)
    _refuse(program, options)
    choice = _without_samples(program, data.rows, options, _decide(program, data.rows, options))
    jitter, rows = jitter_for(np.dtype(options.dtype)), make_rows(program, data)
    last = () if _number(options) or not choice.samples else last_layers(program)
    many = _points(data.rows, choice.batch)
    usual = [many if place in last else choice.inducing for place in range(len(program.groups))]
    asked = [asked_of(options.inducing, group.names[0]) or n for group, n in zip(program.groups, usual, strict=True)]
    points, q, _ = start_layers(program, rows, asked, jitter, options.seed, data)
    for place, group in enumerate(program.groups):
        known = None if start is None or group.per_row else start.group_of(group.names[0])
        if start is None or known is None:
            continue
        begun, name = start.inducing[known[0]], group.names[0]
        if not _goes_on(asked_of(options.inducing, name), points[place], begun):
            has = f"{len(begun)} inducing {'points' if isinstance(begun, Values) else 'variables of another kind'}"
            same = f", or set {shown_of(options.inducing, name, len(begun))}" if isinstance(begun, Values) else ""
            raise GpdslError(
                f"{shown_of(options.inducing, name)}, but start = fit has {has} of `{name}`, from which layers go on: "
                f"leave out inducing{same}"
            )
        points[place] = begun
    choice = _by_name(program, options, choice, [len(each) for each in points])
    search = SettledSearch if settles(program, choice.batch, choice.optimizer, choice.samples) else LayeredSearch
    engine = searching("layered", partial(search, start=q), refined=False, explain=explain_layers)
    return Plan(choice, Layout(Full(), False), points, engine)


def _goes_on(asked: int | str | None, points: Functionals, begun: Functionals) -> bool:
    """Whether a search that has begun goes on with what is asked for, of which these would be taken at first."""
    if not asked:
        return True
    if isinstance(asked, int):
        return isinstance(begun, Values) and len(begun) in (asked, len(points))
    bounds = zip(jax.tree.leaves(points), jax.tree.leaves(begun), strict=True)
    same = outline(points) == outline(begun)
    return same and ("over" not in asked or all(np.allclose(a, b) for a, b in bounds))


def _number(options: Options) -> int:
    """Inducing points of every latent, where one number is asked for; else 0."""
    return 0 if isinstance(options.inducing, Mapping) else int(options.inducing or 0)


def _by_name(program: Program, options: Options, choice: Choice, counts: list[int]) -> Choice:
    """The choice that says how many inducing points each latent has, where they differ or were asked for by name."""
    groups = [each for each in zip(program.groups, counts, strict=True) if not each[0].per_row]
    own = {name: count for group, count in groups for name in group.names}
    if len(set(own.values())) == 1 and not isinstance(options.inducing, Mapping):
        return choice
    most, asked = max(own.values()), {name: asked_of(options.inducing, name) for name in own}
    return replace(choice, own=own | {n: each for n, each in asked.items() if isinstance(each, str)}, inducing=most)


def _decide(program: Program, rows: int, options: Options) -> Choice:
    reasons: dict[str, str] = {}
    batch = options.batch
    if batch is None:
        batch = BATCH if rows > 2 * BATCH else 0
        reasons["batch"] = f"{rows} rows {'at most' if not batch else 'above'} {2 * BATCH}"
    inducing = _number(options) or min(INDUCING, rows)
    optimizer = options.optimizer
    if optimizer == "auto":
        concave = log_concavity(program.translator, program.observations)
        optimizer = "natural" if concave.verdict == "proved" else "adam"
        reasons["optimizer"] = concave.reason
    samples = options.samples or max(1, min(MOST_PASSES, PASSES // ((batch or rows) * options.importance)))
    if not options.samples and settles(program, batch, optimizer):
        samples = MOST_PASSES if inner_width(program) == 1 else samples + samples % 2
    usual = RATE if begins_below(program) else RATE_OF_ROWS
    rate = usual if options.learning_rate is None else options.learning_rate
    many = LAST if _number(options) else _points(rows, batch)
    steps = options.steps or STEPS
    if not options.steps and settles(program, batch, optimizer):
        steps = max(FEWEST, min(SETTLING, int(WORK / (samples * rows * many**2))))
    written = options.rows
    if written == "auto":
        written = "free"
        if batch and program.inner & program.declarations.rows.keys():
            written = NETWORK
            reasons["rows"] = f"by a {NETWORK}, taught by every step: {batch} of {rows} rows are visited in one"
    return Choice(False, inducing, batch, samples, optimizer, steps, reasons, "full", rate, rows=written)


def _points(rows: int, batch: int) -> int:
    """Inducing points of each latent of the last layer."""
    return min(LAST if batch else max(INDUCING, min(LAST, rows // 2)), rows)


def _without_samples(program: Program, rows: int, options: Options, choice: Choice) -> Choice:
    """The choice with no samples of row variables, where the moments at these have a formula that costs little.

    It has as many inducing points as that leaves room for, unless their number is given. In single precision
    samples are taken unless formulas are asked for.

    Raises GpdslError where formulas are asked for and there is none.
    """
    if options.expectations == "closed":
        # What would make `expectations = closed` go on with samples.
        why = averaged(program) or (f"samples = {options.samples} asks for them" if options.samples else "")
        if options.importance > 1:
            why = f"importance = {options.importance} weighs samples"
        if name := _featured(program, options):
            why = f"{shown_of(options.inducing, name)} are not points"
        if why:
            inner = listed(f"`{name}`" for name in sorted(program.inner))
            raise GpdslError(
                f"no closed-form expectation over what {inner} may be: {why}; there is one "
                "of row variables alone, where the likelihood is quadratic in one latent at a time "
                "(`y ~ Normal(f, sigma)`) and kernels of them are sums and products of RBF, of Linear once in a "
                "product, and of any kernels of inputs, of each as it is or of lines in them, where one line alone "
                "has it (`on = [x, 2 * w]`); use expectations = auto"
            )

    if options.expectations not in ("auto", "closed") or options.importance > 1 or options.samples:
        return choice
    if options.expectations == "auto" and options.dtype == "float32":  # whitened averages lose all digits: 60 nats
        return choice
    taken, points = choice.batch or rows, _number(options) or min(LAST, rows)
    if options.expectations == "auto" and not _number(options) and not choice.batch:
        points = min(points, max(LEAST, math.isqrt(FEW // taken)))
    if _featured(program, options):
        return choice
    asked = [asked_of(options.inducing, program.groups[place].names[0]) for place in last_layers(program)]
    most = max(int(each or points) for each in asked)
    if (options.expectations == "auto" and taken * most**2 > 2 * FEW) or averaged(program):
        return choice
    steps = choice.steps if options.steps or choice.batch else min(choice.steps, SETTLING)
    return replace(choice, samples=0, inducing=points, steps=steps)


def _featured(program: Program, options: Options) -> str:
    """A latent whose inducing features are not points alone, if there is one."""
    names = (name for group in program.groups for name in group.names)
    return next((name for name in names if isinstance(asked_of(options.inducing, name), str)), "")


def _refuse(program: Program, options: Options) -> None:
    """Raise GpdslError for what layers do not cover."""
    names = ", ".join(f"`{name}`" for name in sorted(program.inner))
    for name, allowed in ALLOWED.items():
        if getattr(options, name) not in allowed:
            raise GpdslError(
                f"{name} = {getattr(options, name)} does not go with latents that are functions of {names}, through "
                f"which rows are sampled; leave it out, or set {name} = {' or '.join(allowed)}"
            )
    for name, why in UNREAD.items():
        if getattr(options, name) != OPTIONS[name].default:
            raise GpdslError(
                f"{name} = {getattr(options, name)} does not go with latents that are functions of {names}: {why}; "
                "leave it out"
            )
    for group in program.groups:
        moving = sorted(program.inner & set(group.inputs))
        if moving and isinstance(asked_of(options.inducing, group.names[0]), str):
            raise GpdslError(
                f"{shown_of(options.inducing, group.names[0])}: `{group.names[0]}` is a function of `{moving[0]}`, "
                "whose values move during the search, and features stay where they are: give the number of its "
                "inducing points (latents of inputs alone may have features)"
            )
    if (options.devices or 1) > 1:
        raise GpdslError(f"devices = {options.devices}: latents that are functions of {names} are fitted on one device")
    if program.opaque:
        raise GpdslError(
            f"an opaque function above latents that are functions of {names} has no gradient; leave it out"
        )
    for group in program.groups:
        for name in sorted(program.inner & set(group.names)):
            if group.readings.all != (OWN,):
                raise _elsewhere(program, name)


def _elsewhere(program: Program, name: str) -> GpdslError:
    """What to raise for a latent that is an argument of others, and of which more is read than its value."""
    declared = program.declarations
    others = listed(f"`{each.name}`" for each in declared.latents.values() if name in each.arguments)
    spans = [each.span for each in reads_of(declared) if each.name == name and each.functional != VALUE]
    span = min(spans, key=lambda each: each.line) if spans else declared.latents[name].span
    return program.translator.failure(InnerElsewhere(span, name, others))


# What `explain` says of a model of several layers.


def explain_layers(program: Program, options: Options, plan: Plan, rows: int) -> str:
    """The layers from the inputs to the outputs, how rows go through them, the optimiser and what a step costs."""
    choice = plan.choice
    lines = [title_of(program, rows), "", "layers, from below"]
    last = last_layers(program)
    for place in program.order:
        group, points = program.groups[place], len(plan.inducing[place])
        if group.per_row:
            lines.append(row_variable(group)[0])
            how = "argument" if set(group.names) & program.inner else "term"
            whose = "one Gaussian per row and element" + (f" by a {choice.rows}" if choice.rows != "free" else "")
            lines.append(f"    {whose} ({how} of others); the prior at new rows")
            continue
        lines.append(described(program, group))
        asked = asked_of(options.inducing, group.names[0])
        what = f"inducing variables as asked, {asked}" if isinstance(asked, str) else "inducing points that move"
        lines.append(f"    {points} {what}, full Gaussian per latent")
        lines.append(f"    {_how(place in last, choice.optimizer)}")
    lines += ["", "expected log likelihood" + (", in every pass" if choice.samples else "")]
    for observation in program.observations:
        lines += explain_observation(program, observation, choice, options)
    batch = choice.batch or rows
    passes = f"{choice.samples} pass(es) of each (SGPVI eq. 78)"
    if not choice.samples:
        passes = "without samples: what is expected of kernels at row variables has a formula (Titsias and Lawrence)"
    cycles = not options.steps and settles(program, choice.batch, choice.optimizer, choice.samples)
    most = f"up to {choice.steps if choice.samples else most_steps(choice.steps)}" if cycles else str(choice.steps)
    lines += ["", "optimiser", f"  {most} steps on {batch} rows, {passes}"]
    if cycles:
        lines.append(
            "  in up to three cycles, until one gains next to nothing; the last layer is at its best in each step"
            + ("" if choice.samples else "\n  after two, and two from the start again where it follows slowly at first")
        )
    if begins_below(program):
        lines.append("  from a fit of the last layer alone, with the others as they start")
        if may_go_on(program, options):
            lines.append(
                "  and from one with as many inducing points as it takes, where that ends higher than all layers do"
            )
    if choice.optimizer == "natural":
        lines.append("  natural gradients for the last layer, Adam for everything else")
    else:
        lines.append("  Adam for everything")
    lines += [f"  {name}: {choice.reasons[name]}" for name in ("batch", "optimizer", "rows") if name in choice.reasons]
    lines += learnt_lines(program)
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
