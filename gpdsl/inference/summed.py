"""Normal observations through inducing features that no parameter enters: all rows are summed up once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy as sp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.data.table import stays_on_disk
from gpdsl.inference.bound import Layout
from gpdsl.inference.driver import Engine, Plan, ProfileSearch, searching
from gpdsl.inference.inducing.start import distinct
from gpdsl.inference.plan.options import DEFAULT_INDUCING, EXACT_ROWS, Choice, Options
from gpdsl.inference.plan.planning import decided
from gpdsl.inference.posteriors.family import Whitened, parse_family
from gpdsl.inference.posteriors.features import factorise
from gpdsl.inference.problem import Problem, Result, as_numpy
from gpdsl.inference.warm import Start
from gpdsl.kernels.covariance import basis, variance
from gpdsl.kernels.form import Base, Form, On, Product, Scaled, Sum
from gpdsl.kernels.fourier import SMOOTHNESS
from gpdsl.kernels.functionals import Coefficients, Functionals, Values
from gpdsl.language.inducing import read_features
from gpdsl.program.evaluation import stack_inputs
from gpdsl.program.groups import kernel_values
from gpdsl.program.program import Program, take_rows
from gpdsl.program.rows import Rows, Scope
from gpdsl.symbolic.expectations import latents_in
from gpdsl.symbolic.readings import OWN
from gpdsl.symbolic.terms import output_value

# The collapsed bound from sums over the rows: Titsias (2009), with Hensman, Durrande and Solin (2018), section 4.2.
#
# For y ~ N(a f + b, s^2), f = c + sqrt(v) g, and features of g with Kuf = D Phi', where a, b, c, s, v and D depend on
# parameters and Phi on none, the bound and its maximiser need of the rows only
#
#     N,   sum y,   sum y^2,   Phi'Phi,   Phi'y,   Phi'1,
#
# so that an evaluation costs O(M^3), whatever the number of rows. With Kuu = L L', r = a sqrt(v) / s and
# z = (y - b - a c) / s,
#
#     A = r L^-1 D Phi',   B = I + A A',   bound = log N(z; 0, A'A + I) - N log s - (r^2 N k(0) - tr A A') / 2,
#
# and q of the whitened values has precision B and mean B^-1 A z.

AT_ONCE = 4_096
"""Rows of which features are held at once."""

PART = 4e10
"""Rows times squared features of which it is told that they are summed up: some seconds."""

Learnt = Mapping[str, Array]


@dataclass(frozen=True)
class Line:
    """An output that is normal about a line in the one latent: a, b, s and the latent's mean c, in parameters alone."""

    output: str
    slope: sp.Expr
    shift: sp.Expr
    noise: sp.Expr
    mean: sp.Expr


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sums:
    """Over all observed rows."""

    count: Float[Array, ""]
    centre: Float[Array, ""]
    """What y is counted from: sums of its squares about zero would round away what a large offset leaves of them."""
    y: Float[Array, ""]
    squares: Float[Array, ""]
    among: Float[Array, "M M"]
    told: Float[Array, "M"]
    ones: Float[Array, "M"]


def plan_summed(program: Program, data: Data, options: Options, start: Start | None = None) -> Plan | None:
    """The plan for Fourier features and one normal output; None for everything else."""
    if not _suited(program, options):
        return None
    choice, _, inducing = decided(program, data, replace(options, batch=0), start)
    reason = "normal observations through features that no parameter enters: all rows are summed up once"
    reasons = {"posterior": reason, "optimizer": "the bound at its best q, whose cost does not depend on the rows"}
    steps = options.steps or max(choice.steps, 2000)
    choice = replace(choice, posterior="full", optimizer="lbfgs", steps=steps, reasons=reasons)
    return Plan(choice, Layout(parse_family("full", False), False), inducing, _engine())


def _suited(program: Program, options: Options) -> bool:
    parts = read_features(options.inducing) if isinstance(options.inducing, str) else None
    if not parts or [each.family for each in parts] != ["fourier"]:
        return False
    plain = options.engine == "vi" and options.schedule == "joint" and options.expectations != "sampled"
    asked = options.batch or options.optimizer != "auto" or (options.devices or 1) > 1
    if not plain or options.beta != 1 or asked or options.posterior not in {"auto", "full"}:
        return False
    # in single precision what the sums leave of the squares is a small difference of large numbers
    return options.dtype == "float64" and line_of(program) is not None


def with_waves(program: Program, data: Data, options: Options, start: Start | None = None) -> Options:
    """The options, with Fourier features where nobody asks for inducing points and these let many rows be summed up.

    As many as the fit to start from has, if there is one; none where that has points, nor where a point at each of
    few distinct inputs does better.
    """
    many = data.telling > EXACT_ROWS and not any(map(stays_on_disk, jax.tree.leaves(dict(data.inputs))))
    if options.inducing is not None or options.learn_inducing or program.inner or not many:
        return options
    terms = 0 if len(program.groups) != 1 else _terms(program.groups[0].form)
    if not terms:
        return options
    written = f"fourier({DEFAULT_INDUCING // terms})"
    if start is not None:
        written = waves_of(start.inducing_for(program) or [])
    asked = replace(options, inducing=written)
    return asked if _suited(program, asked) and _many_inputs(program, data) else options


def _many_inputs(program: Program, data: Data) -> bool:
    """Whether the one group is read at more distinct inputs than there are points at first."""
    columns = [np.asarray(data.inputs[name], float).reshape(data.rows, -1) for name in program.groups[0].inputs]
    return len(distinct(np.concatenate(columns, axis=1), DEFAULT_INDUCING + 1)) > DEFAULT_INDUCING


def told_of_waves(choice: Choice, rows: int) -> Choice:
    """The choice with the reason for features that nobody asked for."""
    reason = f"{rows} rows above {EXACT_ROWS}, which these features let be summed up once"
    return replace(choice, reasons={**choice.reasons, "inducing": reason})


def waves_of(inducing: Sequence[Functionals]) -> str:
    """How Fourier features of the one latent are written; nothing for anything else."""
    only = inducing[0] if len(inducing) == 1 else None
    return f"fourier({only.count})" if isinstance(only, Coefficients) and only.family == "fourier" else ""


def line_of(program: Program) -> Line | None:
    """The one output, where it and the latent are as this engine needs them."""
    if len(program.groups) != 1 or len(program.observations) != 1 or program.opaque or program.fields:
        return None
    (group,), (observation,), translator = program.groups, program.observations, program.translator
    law = observation.law
    if group.size != 1 or group.per_row or group.readings.all != (OWN,) or not _even(group.form):
        return None
    subscripted = any(program.declarations.outputs[name].axes for name in observation.outputs)
    if law is None or law.name != "Normal" or law.components or subscripted:
        return None
    symbols, value = latents_in(translator, law.arguments["mean"]), output_value(translator, observation)
    if len(symbols) != 1 or value not in translator.references or translator.references[value].kind != "output":
        return None
    latent = next(iter(symbols))
    slope = sp.diff(law.arguments["mean"], latent)
    shift = law.arguments["mean"].subs(latent, 0)
    mean = translator.scalar(group.members[0].latent.mean)
    found = Line(observation.outputs[0], slope, shift, law.arguments["sd"], mean)
    kinds = {translator.references[s].kind for e in (slope, shift, found.noise, mean) for s in e.free_symbols}
    return found if kinds <= {"param", "const"} else None


def _even(form: Form) -> bool:
    """Whether the variance is the same everywhere, and Fourier features are known, which no parameter enters."""
    match form:
        case Base(name=name):
            return name in SMOOTHNESS or name == "Constant"
        case On(numbers=numbers, kernel=kernel):
            return not numbers and _even(kernel)
        case Scaled(kernel=kernel):
            return _even(kernel)
        case Sum(terms=parts) | Product(factors=parts):
            return all(map(_even, parts))
    return False


def _terms(form: Form) -> int:
    """Of how many kernels of one column features are side by side; 0 where some are multiplied, which takes many."""
    match form:
        case Base(name=name):
            return int(name in SMOOTHNESS)
        case On(kernel=kernel) | Scaled(kernel=kernel):
            return _terms(kernel)
        case Sum(terms=parts):
            return sum(map(_terms, parts))
        case Product(factors=parts):
            found = [each for each in map(_terms, parts) if each]
            return found[0] if len(found) == 1 else 0
    return 0


class SummedProfile:
    """The bound at the best q of any parameters, and that q."""

    joint = None

    def __init__(self, problem: Problem) -> None:
        line = line_of(problem.program)
        assert line is not None  # the plan has seen to it
        self.problem, self.held = problem, (problem.inducing, _summed(problem, line.output))
        bound = partial(_bound, problem.program, line, problem.jitter)
        slope, at = jax.value_and_grad(lambda *each: bound(*each)[0]), (problem.parameters, *self.held)
        self._value = problem.compiled(slope, *at)
        self._ended = problem.compiled(lambda *each: bound(*each)[1:], *at)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """Value, log priors included, and gradient."""
        value, back = self._value(dict(learnt), *self.held)
        return float(value), back

    def value(self, learnt: Learnt) -> float:
        """The same, without the gradient, which is cheap here."""
        return self(learnt)[0]

    def at(self, learnt: Learnt) -> Result:
        """The posterior there."""
        mean, root, most = as_numpy(self._ended(dict(learnt), *self.held))
        q = [Whitened(mean[None, None], root[None, None])]
        found = Result(as_numpy(dict(learnt)), as_numpy(self.problem.inducing), q, np.ones(1), float("nan"), 0.0)
        return replace(found, loss_bounds=(0.0, float(most)) if np.isfinite(most) else None)


def _summed(problem: Problem, output: str) -> Sums:
    """Of all rows, part by part, each told of where there are several."""
    (features,), rows, count = problem.inducing, problem.rows, problem.count
    parts = math.ceil(count * len(features) ** 2 / PART)
    size = math.ceil(count / parts)
    y, seen = np.asarray(rows.outputs[output]), np.asarray(rows.observed[output]) > 0
    centre = jnp.asarray(np.mean(y[seen]) if seen.any() else 0.0, y.dtype)

    def part(number: int) -> tuple[Any, ...]:
        """As many rows of every part, of which the last has some that another has counted."""
        begin = min(number * size, count - size)
        own = jnp.asarray(np.arange(begin, begin + size) >= number * size, y.dtype)
        return problem.parameters, problem.inducing, take_rows(rows, slice(begin, begin + size)), own, centre

    add_up = problem.compiled(partial(_add_up, problem.program, output), *part(0))
    total = None
    for number in range(parts):
        if parts > 1:
            problem.monitor.explored(number, parts, "summing up rows")
        found = jax.block_until_ready(add_up(*part(number)))
        total = found if total is None else jax.tree.map(jnp.add, total, found)
    assert total is not None
    return replace(total, centre=centre)


def _add_up(
    program: Program,
    output: str,
    learnt: Learnt,
    inducing: list[Any],
    rows: Rows,
    own: Float[Array, "rows"],
    centre: Float[Array, ""],
) -> Sums:
    """Of some rows, those that are `own`."""
    (group,), (features,) = program.groups, inducing
    kernel = kernel_values(program.evaluator, group, program.parameters.constrain(learnt))
    functions = basis(group.form, [a[0] for a in kernel.arguments], features).functions
    points, y = stack_inputs(group.inputs, rows), rows.outputs[output]
    seen = rows.observed[output].astype(y.dtype) * own
    y = jnp.where(seen > 0, y - centre, 0.0)
    pad = -len(y) % min(AT_ONCE, len(y))

    def block(total: Sums, some: tuple[Array, Array, Array]) -> tuple[Sums, None]:
        at, y, seen = some
        phi = functions(at) * seen[:, None]
        here = Sums(jnp.sum(seen), nothing, jnp.sum(y), jnp.sum(y * y), phi.T @ phi, phi.T @ y, jnp.sum(phi, axis=0))
        return jax.tree.map(jnp.add, total, here), None

    size = len(y) + pad
    blocks = size // min(AT_ONCE, len(y))
    cut = lambda a: a.reshape(blocks, -1, *a.shape[1:])  # noqa: E731
    padded = jnp.pad(points, ((0, pad), (0, 0)), mode="edge"), jnp.pad(y, (0, pad)), jnp.pad(seen, (0, pad))
    nothing, vector = jnp.zeros((), y.dtype), jnp.zeros(len(features), y.dtype)
    empty = Sums(nothing, nothing, nothing, nothing, jnp.zeros((len(features), len(features)), y.dtype), vector, vector)
    return jax.lax.scan(block, empty, tuple(map(cut, padded)))[0]


def _bound(
    program: Program, line: Line, jitter: float, learnt: Learnt, inducing: list[Any], sums: Sums
) -> tuple[Float[Array, ""], Float[Array, "M"], Float[Array, "M M"], Float[Array, ""]]:
    """The bound with the log priors, mean and root of q of the whitened values, and what is lost at most."""
    (group,), (features,) = program.groups, inducing
    parameters = program.parameters.constrain(learnt)
    kernel = kernel_values(program.evaluator, group, parameters)
    arguments = [a[0] for a in kernel.arguments]
    slope, shift, noise, mean = (
        jnp.asarray(program.evaluator(each, Scope(parameters, Rows({}, {}, {})), ()), kernel.scale.dtype)
        for each in (line.slope, line.shift, line.noise, line.mean)
    )
    weights = basis(group.form, arguments, features).weights
    factor = factorise(group, kernel, inducing[0], jitter)[0]
    rate, middle = slope * jnp.sqrt(kernel.scale[0]) / noise, shift + slope * mean - sums.centre
    half = solve_triangular(factor, weights[:, None] * sums.among * weights[None, :], lower=True)
    explained = rate**2 * solve_triangular(factor, half.T, lower=True)
    told = rate / noise * solve_triangular(factor, weights * (sums.told - middle * sums.ones), lower=True)
    squares = (sums.squares - 2.0 * middle * sums.y + sums.count * middle**2) / noise**2
    unit = jnp.eye(len(told), dtype=told.dtype)
    explained = 0.5 * (explained + explained.T)
    inner = jnp.linalg.cholesky(unit + explained)
    seen = solve_triangular(inner, told, lower=True)
    one = variance(group.form, arguments, Values(features.points[:1]))[0]
    left_open = rate**2 * sums.count * one - jnp.sum(jnp.diagonal(explained))
    value = -0.5 * (sums.count * math.log(2.0 * math.pi) + squares - jnp.sum(seen**2) + left_open)
    value = value - sums.count * jnp.log(noise) - jnp.sum(jnp.log(jnp.diagonal(inner)))
    inverse = solve_triangular(inner, unit, lower=True)
    root = jnp.linalg.cholesky(inverse.T @ inverse)
    # as `certified_loss` has it, without its pass over the rows
    noisier = 1.0 + jnp.maximum(left_open, 0.0)
    later = solve_triangular(jnp.linalg.cholesky(noisier * unit + explained), told, lower=True)
    most = 0.5 * (squares - jnp.sum(seen**2) - (squares - jnp.sum(later**2)) / noisier + noisier - 1.0)
    return value + program.log_prior(parameters), inverse.T @ seen, root, most


def _engine() -> Engine:
    """Of one fit: all its searches, and what is asked of it afterwards, have the same rows."""
    known: list[SummedProfile] = []

    def profile(problem: Problem, _: Result | None = None) -> SummedProfile:
        if not known or known[0].problem.jitter != problem.jitter:
            known[:] = [SummedProfile(problem)]
        return known[0]

    return searching(
        "summed", lambda problem: ProfileSearch(problem, profile(problem)), refined=False, profiled=profile
    )
