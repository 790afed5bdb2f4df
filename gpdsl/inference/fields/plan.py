"""What is decided about a model with fields, what is refused, and the plan in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.errors import GpdslError, plural
from gpdsl.inference.blocks import machine_for
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Task, drive
from gpdsl.inference.fields.bound import FieldBound, Joint
from gpdsl.inference.fields.calls import FIELD_CALLS, moving, probe_fields
from gpdsl.inference.fields.engine import EXPECTED, FieldProfile, FieldRun, FieldTarget
from gpdsl.inference.plan.explain import kernel_of, learnt_lines
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import Full
from gpdsl.inference.posteriors.posterior import Posterior
from gpdsl.inference.problem import Found, Monitor, Problem, as_arrays
from gpdsl.inference.warm import Start, check_start, triangular
from gpdsl.kernels.numerics import jitters_for
from gpdsl.language.inducing import shown_inducing
from gpdsl.program.evaluation import deviations, field_means, refuse_beside_fields, roots
from gpdsl.program.groups import columns_of
from gpdsl.program.joint import Marginals
from gpdsl.program.program import Program, make_rows
from gpdsl.program.rows import Rows
from gpdsl.symbolic.translate import Ref

CALLS = 64
"""Calls of an opaque function in a round."""

ROUNDS, STEPS = 20, 200
"""Of calls at most; and of L-BFGS over the hyperparameters, where there are none."""

LARGEST = 3000
"""Values of all fields together: the posterior is one covariance matrix of them."""

ALLOWED = {
    "engine": ("vi", "mcmc"),
    "posterior": ("auto", "full", "coupled"),
    "optimizer": ("auto", "natural"),
    "schedule": ("joint",),
    "hyperparameters": ("point", "integrated"),
    "parameters": ("point",),
    "expectations": ("auto", "sampled"),
    "gradients": ("auto",),
}


def decide_fields(program: Program, options: Options) -> Choice:
    """The choices for a model with fields. Raises GpdslError for what does not go with them."""
    refuse_beside_fields(program.declarations)
    named = ", ".join(f"`{field.name}`" for field in program.fields)
    for name, allowed in ALLOWED.items():
        if getattr(options, name) not in allowed:
            raise GpdslError(
                f"{name} = {getattr(options, name)} does not go with a field ({named}), whose values all rows read "
                f"together; leave it out, or set {name} = {allowed[0]}"
            )
    for name in ("inducing", "batch"):
        if asked := getattr(options, name):
            written = shown_inducing(asked) if name == "inducing" else f"{name} = {asked}"
            raise GpdslError(
                f"{written}: the values of a field ({named}) at its points are inferred "
                f"together, from all rows; leave {name} out"
            )
    if program.latents > LARGEST:
        raise GpdslError(
            f"{named}: {program.latents} values are too many for one covariance matrix (at most {LARGEST}); "
            "take fewer points"
        )
    if program.opaque:
        _refuse_passed(program)
        plain = Options()
        for name in ("engine", "hyperparameters"):
            if (asked := getattr(options, name)) != getattr(plain, name):
                raise GpdslError(
                    f"{name} = {asked}: the bound of {named} is known where opaque functions were called, not "
                    f"elsewhere; leave {name} out, or write the functions in JAX"
                )
    reasons = {"posterior": f"every row reads all values of {named}, which makes them dependent"}
    samples = options.samples or (CALLS if program.opaque else EXPECTED)
    steps = options.steps or (ROUNDS if program.opaque else STEPS)
    if program.opaque and options.evaluations is not None and options.samples is None:
        samples = max(2, min(samples, options.evaluations // (4 * max(len(program.uses()), 1))))
    return Choice(True, 0, 0, samples, "natural", steps, reasons, "full")


def _refuse_passed(program: Program) -> None:
    """A parameter that is passed to an opaque function has no gradient."""
    for use in program.uses():
        for _, elements in use.arguments:
            for ref in _read(program, elements):
                if ref.kind in {"param", "gathered"} and ref.name in program.parameters.initial:
                    raise GpdslError(
                        f"parameter `{ref.name}` is passed to the opaque function `{use.function}` beside a field, so "
                        "no gradient with respect to it exists; "
                        f"declare it `fixed`, or pass fixed=['{ref.name}'] to fit"
                    )


def _read(program: Program, elements: Sequence[sp.Expr]) -> set[Ref]:
    """Everything that expressions read, inside reductions too."""
    translator = program.translator
    found = {translator.references[s] for e in elements for s in e.free_symbols}
    inside = [translator.reduced[ref.name].body for ref in found if ref.kind == "reduced"]
    return found | {translator.references[s] for body in inside for s in body.free_symbols}


def infer_fields(task: Task) -> Found:
    """Fit q of all fields and the learnt parameters. Raises GpdslError when the bound is no number."""
    program, options = task.program, task.options
    if task.start is not None:
        check_start(task.start, program)
    choice = decide_fields(program, options)
    monitor = Monitor(choice.steps, task.callback, "fields, natural")
    rows = as_arrays(make_rows(program, task.data), options.dtype)
    learnt = as_arrays(program.parameters.unconstrained(), options.dtype)
    jitter = _jitter(program, learnt, options)
    begun = None if task.start is None else _carried(task.start, program, options.dtype)
    layout = Layout(Full(), True)
    problem = Problem(program, rows, task.data.rows, layout, choice, options, learnt, [], jitter, monitor)
    run = FieldRun(problem, begun)
    monitor.keep = None if task.keep is None else partial(task.keep, choice, jitter, monitor)
    with machine_for(program.latents):
        found = drive(monitor, run)
    if not np.isfinite(found.elbo) and not found.interrupted:
        raise GpdslError(
            "the bound is not a finite number: the likelihood overflows around the prior mean of the fields; "
            "try other initial values"
        )
    target = partial(FieldTarget, run, found) if options.engine == "mcmc" else None
    return Found(replace(found, profile=partial(FieldProfile, run), target=target), monitor, choice, jitter)


def _carried(start: Start, program: Program, dtype: str) -> Joint | None:
    """Another fit's q of the whitened values; None where the fields have values at other points, or are others."""
    alike = [each.names for each in start.program.groups] == [each.names for each in program.groups]
    means = [np.ravel(q.mean) for q in start.posterior]
    if not alike or [len(mean) for mean in means] != [group.size * group.points for group in program.groups]:
        return None
    mean = np.concatenate(means)
    root = np.concatenate([np.reshape(q.root, (-1, len(mean))) for q in start.posterior])
    return Joint(*as_arrays((mean, triangular(np.linalg.inv(root).T)), dtype))


def _jitter(program: Program, learnt: dict[str, Any], options: Options) -> float:
    """The first jitter with which the covariances of all fields can be factorised."""
    for jitter in jitters_for(options.dtype):
        if all(np.isfinite(factor).all() for _, factor in roots(program, program.parameters.constrain(learnt), jitter)):
            return jitter
    names = ", ".join(f"`{field.name}`" for field in program.fields)
    raise GpdslError(
        f"the covariance matrix of {names} at its points is not positive definite at the initial parameters; "
        "try a shorter length-scale or fewer points"
    )


def probe_called(program: Program, data: Data, dtype: Any) -> None:
    """The probing call of the opaque functions, at the prior means of the fields."""
    if program.opaque:
        rows = as_arrays(make_rows(program, data), dtype)
        parameters = program.parameters.constrain(as_arrays(program.parameters.unconstrained(), dtype))
        probe_fields(program, parameters, rows, field_means(program, parameters)[None])


def explain_fields(program: Program, data: Data, options: Options) -> str:
    """The plan: which fields, what is dependent, how expectations are taken, and what that costs."""
    choice = decide_fields(program, options)
    rows = data.rows
    lines = [
        f"plan for {program.declarations.name}: {plural(rows, 'row')}, fields that are the same in all of them",
        "",
        "fields",
    ]
    for group in program.groups:
        names = ", ".join(group.names)
        over = f"{', '.join(group.inputs)} ({columns_of(group, program.translator)} column(s))"
        where = f"at {group.points} points of {over}"
        lines.append(f"  {names}: {group.size} process(es) {where}, kernel {kernel_of(program, group)}")
    lines += [
        "",
        "posterior",
        f"  one Gaussian over all {program.latents} values, with a full covariance (SAVIGP 6.2.1)",
        f"  posterior: {choice.reasons['posterior']}",
        "",
        "observations",
    ]
    for observation in program.observations:
        where = f"[{','.join(map(str, observation.positions))}]" if observation.positions else ""
        lines.append(f"  {', '.join(observation.outputs)}{where} ~ {observation.distribution}")
        lines.append("    does not factorise: one value observed depends on all values of the fields, jointly Gaussian")
        if any(term.method == "score" for term in observation.terms):
            lines.append("    through emulators of the opaque functions, by the gradient and Hessian in all values")
        else:
            lines.append("    by the gradient and Hessian in all values (Bonnet's and Price's theorems)")
        lines.append(f"    averaged over {EXPECTED if program.opaque else choice.samples} antithetic fields")
    lines += [
        "",
        "optimiser",
        "  natural (one Gaussian: natural gradients for q, L-BFGS for the rest); all rows each step",
    ]
    lines += learnt_lines(program)
    if program.translator.traced:
        lines.append(
            f"  written in JAX, traced into the program and differentiated: {', '.join(program.translator.traced)}"
        )
    if program.opaque:
        lines += _calls(program, options, choice)
    return "\n".join(lines)


def _calls(program: Program, options: Options, choice: Choice) -> list[str]:
    lines = []
    for use in program.uses():
        names, flags = program.externals[use.function].arguments, program.translator.field_calls[use.function]
        once = [name for name, each in zip(names, flags, strict=True) if not each]
        changing = [name for name, each in zip(names, moving(program, use), strict=True) if each]
        lines.append(f"  opaque, called between compiled steps: {use.function}, once for each field and all rows")
        lines.append(
            f"    passed without rows: {', '.join(once) or 'nothing'}; emulated as a function of {', '.join(changing)}"
        )
    each = choice.samples * len(program.uses())
    limit = f"; never more than {options.evaluations:,}" if options.evaluations else ""
    lines.append(f"    evaluations: {each:,} calls a round; fits end after 3 to 8 rounds as a rule{limit}")
    lines.append(f"    a prediction: {FIELD_CALLS * len(program.uses()):,} calls for all rows")
    return lines


# The posterior of all fields at their points, as a fit holds it.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FieldMarginals(Marginals):
    """Means and variances [1, 1, D] of all values, and a root of their covariance. `count` rows read them."""

    root: Float[Array, "D R"] | None = None
    count: int = field(default=1, metadata={"static": True})

    together = True

    @property
    def rows(self) -> int:
        """Number of rows of the data."""
        return self.count

    def part(self, index: slice | np.ndarray) -> FieldMarginals:
        """For some of the rows."""
        return replace(self, count=len(np.arange(self.count)[index]))

    def at(self, program: Program, normals: Float[Array, "S K 1 D"]) -> Float[Array, "S K 1 D"]:
        """Joint samples, each of a whole field."""
        assert self.root is not None
        return self.mean + normals[..., : self.root.shape[1]] @ self.root.T


@dataclass(frozen=True, eq=False)
class OverFields(Posterior):
    """Of fields: values at points that are the same in every row, whitened, with one Gaussian across them."""

    whitened, jointly = False, True

    @staticmethod
    def suits(program: Program, choice: Choice) -> bool:
        return bool(program.fields)

    @staticmethod
    def log_likelihoods(
        program: Program, parameters: Mapping[str, Array], rows: Rows, white: Sequence[Array], jitter: float
    ) -> Float[Array, " draws"]:
        """All rows read all of them."""
        together = jnp.concatenate([each.reshape(len(each), -1) for each in white], axis=1)
        told = FieldBound(program, jitter)
        drawn = told.fields_given(parameters, together.T)
        return jax.lax.map(lambda each: told.given(parameters, each, rows, {}), drawn)

    def support(self, choice: Choice, rows: int) -> str:
        names = ", ".join(field.name for field in self.program.fields)
        return f"all {self.program.latents} values of {names} jointly"

    def marginals(self, program: Program, rows: Rows, count: int) -> FieldMarginals:
        """From the posterior of the whitened values."""
        parameters, (posterior, _) = self.numbers
        mean = jnp.concatenate([q.mean.reshape(-1) for q in posterior])
        root = jnp.concatenate([q.root.reshape(-1, q.root.shape[-1]) for q in posterior])
        whitened = jnp.concatenate([mean[:, None], root], axis=1)
        loaded = deviations(program, roots(program, parameters, self.jitter), whitened)
        centre = field_means(program, parameters) + loaded[:, 0]
        variance = jnp.sum(loaded[:, 1:] ** 2, axis=1)
        return FieldMarginals(centre[None, None], variance[None, None], None, loaded[:, 1:], count)
