"""Inference about fields: natural gradients for one joint Gaussian, around them L-BFGS for the hyperparameters.

Functions that can be traced are differentiated. Others go in rounds: they are called at fields drawn from q, all calls
so far are interpolated (`emulator`), q is fitted to the emulators, and the rounds end when q rests. The bound is that
of the emulators, corrected by what the latest calls gave instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import maximise
from gpdsl.inference.fields.bound import FieldBound, Joint, Learnt, difference, moved, reflected, start
from gpdsl.inference.fields.calls import Called, Emulator, FieldCalls, fit_emulator
from gpdsl.inference.mcmc.chains import Chains, Position
from gpdsl.inference.mcmc.engine import Whole, no_u_turn_at, without_prior
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import FRESH_SETS, Problem, Result, as_arrays, as_numpy
from gpdsl.inference.sampling import sum_and_error
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import points_of
from gpdsl.program.kept import shapes_of

NARROW = 0.1
"""Share of the prior's standard deviation that q starts with: likelihoods far from the data can overflow."""

STEPS = 30
"""Most natural-gradient steps on the way to the best q."""

RATES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001)
"""How far along a natural gradient: the first that raises the bound."""

REST = 1e-3
"""Symmetric KL divergence between one q and the next, over all values together, below which q rests."""

FINE, WIDE = 1e-8, 1.0
"""The same where bounds at several parameters are compared; and from which a whole step is no small one."""

SETTLED = 0.03
"""The same in standard deviations, root mean square over all values, between rounds of calls."""

OUTER_STEPS_A_ROUND = 5
"""Iterations of L-BFGS over the hyperparameters between two rounds of calls."""

EXPECTED = 32
"""Fields over which expectations are averaged, where no call is made for any of them."""


def _of_bound(problem: Problem, name: str, *arguments: Any) -> Any:
    """A function of `FieldBound`, as programs know it."""
    return getattr(FieldBound(problem.program, problem.jitter), name)(*arguments)


@dataclass(eq=False)
class FieldRun:
    """One fit: what it is about, and the best state so far."""

    problem: Problem
    begun: Joint | None = None
    """That of another fit to go on from."""
    q: Joint = field(init=False)
    elbo: float = -np.inf
    error: float = 0.0
    off: float = np.inf
    """Standard deviation of the log likelihood that emulators miss, over fields drawn from q afterwards."""
    stuck: bool = False
    """Whether the last search ended where no step raises the bound, and yet its gradient points somewhere."""
    known: dict[str, Emulator] = field(default_factory=dict)
    """What stands for opaque functions."""
    curvature: Any = None
    """Mean Hessian of the log likelihood where it was last computed: the control variate of the bound."""

    def __post_init__(self) -> None:
        problem = self.problem
        self.program, self.rows, self.learnt = problem.program, problem.rows, dict(problem.parameters)
        self.dtype, self.rng = jnp.dtype(problem.options.dtype), np.random.default_rng(problem.options.seed)
        self.q = self.first(NARROW)
        self.normals = self.draw(EXPECTED if self.program.opaque else problem.choice.samples)
        self.value, self.slope, self.target = (self._compiled(name) for name in ("value", "sloped", "target"))
        self.fields, self.likelihood = self._compiled("fields"), self._compiled("log_likelihood")
        self.moved, self.difference, self.reflected = jit(moved), jit(difference), jit(reflected)
        self._asked: tuple[Any, ...] = (None, None, None)

    def _compiled(self, name: str) -> Callable[..., Any]:
        """A function of the bound, once for all fits of the model to as many rows."""
        ready: dict[Any, Callable[..., Any]] = {}

        def call(*arguments: Any) -> Any:
            if (shapes := shapes_of(arguments)) not in ready:
                ready[shapes] = self.problem.shared(_of_bound, *arguments, context=name)
            return ready[shapes](*arguments)

        return call

    def first(self, sd: float) -> Joint:
        """Where q begins: where another fit has ended, else at the prior mean, as wide as this share of the prior."""
        return start(self.program.latents, sd, self.dtype) if self.begun is None else self.begun

    def draw(self, count: int) -> Float[Array, "S D"]:
        """Standard normals in pairs z, -z, so that linear functions are averaged exactly."""
        half = self.rng.standard_normal(((count + 1) // 2, self.program.latents))
        return jnp.asarray(np.concatenate([half, -half])[:count], self.dtype)

    def refined(self, learnt: Any, q: Joint) -> tuple[float, Joint]:
        """The best q at these parameters, from another one, and its bound."""
        if (found := self.rested(learnt, q)) is not None:
            return found
        value = -np.inf
        for _ in range(STEPS):
            before, (q, value) = q, self.ascended(learnt, q)
            if q is before or float(self.difference(before, q)) < REST:
                break
        return self.rested(learnt, q) or (value, q)

    def rested(self, learnt: Any, q: Joint) -> tuple[float, Joint] | None:
        """Where whole steps come to rest next to q, which is smooth in the parameters, and the bound there.

        Where the bound on samples is highest is not: its roughness is that of the samples. None where steps are wide.
        """
        rest = (self.normals, self.rows, self.known)
        for _ in range(STEPS):
            gradient, precision, self.curvature = self.derivatives(learnt, q)
            before, q = q, self.moved(q, gradient, precision, 1.0)
            moved = float(self.difference(before, q))
            if moved < FINE:
                value = float(self.value(learnt, q, *rest, self.curvature))
                return (value, q) if np.isfinite(value) else None
            if not moved < WIDE:
                break
        return None

    def derivatives(self, learnt: Any, q: Joint) -> tuple[Array, Array, Array]:
        """`FieldBound.target`, which is all the work of a step: a search that goes on in another way asks again."""
        here = learnt, q, self.known
        if any(one is not other for one, other in zip(self._asked, here, strict=True)):
            self._asked, self._derivatives = here, self.target(learnt, q, self.normals, self.rows, self.known)
        return self._derivatives

    def sloped(self, learnt: Any, q: Joint) -> tuple[float, Any]:
        """The bound and its gradient in the parameters; it is that of the bound at the best q where q is best."""
        return self.slope(learnt, q, self.normals, self.rows, self.known, self.curvature)

    def ascended(self, learnt: Any, q: Joint) -> tuple[Joint, float]:
        """A natural-gradient step as far as the bound rises, and the bound there; q itself where it does not."""
        rest = (self.normals, self.rows, self.known)
        gradient, precision, self.curvature = self.derivatives(learnt, q)
        value = float(self.value(learnt, q, *rest, self.curvature))
        if not bool(jnp.isfinite(jnp.linalg.cholesky(precision)).all()):
            precision = self.reflected(precision)
        for rate in RATES:
            trial = self.moved(q, gradient, precision, rate)
            new = float(self.value(learnt, trial, *rest, self.curvature))
            if np.isfinite(new) and not new <= value:
                self.stuck = False
                return trial, new
        rise = jnp.dot(gradient - q.mean, self.moved(q, gradient, precision, 1.0).mean - q.mean)
        self.stuck = not float(rise) < REST
        return q, value

    def maximised(self) -> str:
        """Move to the best q and, where any are learnt, to the best parameters; says how that ended."""
        value, self.q = self.refined(self.learnt, self.q)
        self.elbo = value
        if not jax.tree.leaves(self.learnt):
            return "stopped: no step raises the bound" if self.stuck else "converged"
        best = (value, self.learnt, self.q, self.curvature)

        def objective(learnt: Any) -> tuple[float, Any]:
            nonlocal best
            value, q = self.refined(learnt, best[2])
            if value > best[0]:
                best = (value, learnt, q, self.curvature)
            return self.sloped(learnt, q)

        asked = self.problem.asked
        if self.known:
            asked |= {"steps": OUTER_STEPS_A_ROUND, "report": lambda *_: None}
        try:
            return maximise(objective, self.learnt, **asked).message
        finally:
            self.elbo, self.learnt, self.q, self.curvature = best

    def traced(self) -> str:
        """A likelihood that can be differentiated."""
        message = self.maximised()
        self.elbo, self.error = sum_and_error(self.reassessed())
        return message

    def reassessed(self) -> Float[np.ndarray, "sets"]:
        """The bound on fresh sets of samples, for which it was not maximised."""
        rest = self.rows, self.known, self.curvature
        sets = [self.draw(len(self.normals)) for _ in range(FRESH_SETS)]
        return np.asarray([float(self.value(self.learnt, self.q, each, *rest)) for each in sets])

    def opaque(self) -> str:
        """Rounds of calls, until q rests or the budget is used up."""
        calls, known = FieldCalls(self.program), dict[str, list[Called]]()
        self.q, change = self.first(1.0), np.inf
        for number in range(1, self.problem.choice.steps + 1):
            size = self.affordable()
            if size == 0:
                self.error = self.off
                return f"the budget of evaluations is used up{self.accuracy(change)}"
            drawn = self.fields(self.learnt, self.q.mean[:, None] + self.q.root() @ self.draw(size).T)
            found, good = calls(self.program.parameters.constrain(self.learnt), self.rows, drawn)
            pairs = good % ((len(drawn) + 1) // 2)
            checked = self.checked(found, drawn[good], pairs) if self.known else (-np.inf, np.inf)
            before, self.known = self.summary(), self.emulators(known, found)
            self.q = self.q if number > 1 else self.first(NARROW)
            self.maximised()
            self.problem.monitor.report(number, self.elbo)
            change = distance(before, self.summary())
            if change < SETTLED:  # the bound is that of the latest calls, which chose neither q nor the emulators
                self.elbo, self.error = checked
                ended = "stopped, as no step raises the bound of the emulators" if self.stuck else "converged"
                return f"{ended}{self.accuracy(change)}"
        self.error = self.off
        return f"all steps done{self.accuracy(change)}"

    def accuracy(self, change: float) -> str:
        """How far q still moved, and how well the emulators did, for the message of a fit."""
        moved = f": the last round moved q by {change:.2g} posterior standard deviations"
        return moved + (f"; emulators are {self.off:.2g} nats off" if np.isfinite(self.off) else "")

    def affordable(self) -> int:
        """Fields of the next round, as far as the budget goes."""
        account, samples = self.program.account, self.problem.choice.samples
        return samples if account is None else int(min(samples, account.remaining // len(self.program.uses())))

    def emulators(self, known: dict[str, list[Called]], found: dict[str, Called]) -> dict[str, Emulator]:
        """Emulators of everything called so far."""
        emulators = {}
        for key, each in found.items():
            known.setdefault(key, []).append(each)
            arguments = np.concatenate([batch.arguments for batch in known[key]])
            results = np.concatenate([batch.results.reshape(len(batch.results), -1) for batch in known[key]])
            emulators[key] = fit_emulator(arguments, results, len(each.arguments))
        return emulators

    def checked(self, found: dict[str, Called], drawn: Array, pairs: np.ndarray) -> tuple[float, float]:
        """The bound of q with what calls at fields drawn from it gave, instead of the emulators it was fitted to.

        With its standard error. Fields of a pair are mirrored, and so not independent of each other.
        """
        gaps = np.zeros(len(drawn))
        for place, values in enumerate(drawn):
            called = {key: jnp.asarray(each.results[place].ravel(), self.dtype) for key, each in found.items()}
            true, said = (float(self.likelihood(self.learnt, values, self.rows, k)) for k in (called, self.known))
            gaps[place] = true - said
        self.off = float(np.std(gaps))
        missed = np.asarray([np.mean(gaps[pairs == pair]) for pair in np.unique(pairs)])
        return sum_and_error(missed, self.reassessed())

    def summary(self) -> Moments:
        """Means and standard deviations of all values."""
        mean, spread = self.moments(self.learnt, self.q)
        return np.asarray(mean), np.asarray(spread)

    def moments(self, learnt: Any, q: Joint) -> tuple[Array, Array]:
        """Of all values of all fields."""
        white = jnp.concatenate([q.mean[:, None], q.root()], axis=1)
        values = self.fields(learnt, white)
        zero = self.fields(learnt, jnp.zeros_like(white[:, :1]))
        return values[0], jnp.sqrt(jnp.sum((values[1:] - zero) ** 2, axis=0))

    def run(self) -> str:
        """To the end, by calls or by derivatives."""
        return self.opaque() if self.program.opaque else self.traced()

    def state(self) -> Result:
        """The best state."""
        return self.held(self.learnt, self.q.mean, self.q.root(), self.elbo, self.error)

    finish = state

    def held(self, learnt: Any, mean: Array, root: Array, elbo: float, error: float) -> Result:
        """q at these parameters, group by group, the root of its covariance by rows."""
        mean, root = as_numpy((mean, root))
        posterior: list[Whitened] = []
        points: list[Functionals] = []
        for group in self.program.groups:
            shape = (1, group.size, group.points)
            some = slice(group.start, group.stop)
            posterior.append(Whitened(mean[some].reshape(shape), root[some].reshape(*shape, -1)))
            points.append(as_numpy(Values(jnp.asarray(points_of(self.program.declarations, group)))))
        return Result(as_numpy(learnt), points, posterior, np.ones(1), elbo, error)


class FieldProfile:
    """The bound at the best q at any learnt parameters, begun at the best q so far."""

    joint = None

    def __init__(self, run: FieldRun) -> None:
        self.run, self.best = run, (run.elbo, run.q)

    def __call__(self, learnt: Learnt) -> tuple[float, Learnt]:
        """The bound, log priors included, and its gradient."""
        return self.run.sloped(learnt, self._refined(learnt)[1])

    def value(self, learnt: Learnt) -> float:
        """The bound alone."""
        return self._refined(learnt)[0]

    def at(self, learnt: Learnt) -> Result:
        """The best q there."""
        value, q = self._refined(learnt)
        return self.run.held(learnt, q.mean, q.root(), value, 0.0)

    def _refined(self, learnt: Learnt) -> tuple[float, Joint]:
        found = self.run.refined(learnt, self.best[1])
        if found[0] > self.best[0]:
            self.best = found
        return found


class FieldDensity(Whole):
    """p(parameters, w | y), the whitened values w of all fields included, up to a constant."""

    def log_likelihood(self, position: Position, data: Any) -> Float[Array, ""]:
        """Of all observations given w."""
        bound, learnt = FieldBound(self.problem.program, self.problem.jitter), position["learnt"]
        return bound.log_likelihood(learnt, bound.fields(learnt, position["white"][:, None])[0], data, {})


class FieldTarget:
    """Chains in parameters and the values of all fields."""

    made = FieldDensity, None

    def __init__(self, run: FieldRun, result: Result) -> None:
        self.run, self.problem, self.data = run, run.problem, run.rows
        known = {"learnt": result.parameters, "white": np.asarray(run.q.mean)}
        self.start: Position = as_arrays(known, run.dtype)
        self.without_prior = without_prior(run.problem)

    def sample(self, *asked: Any) -> Chains:
        """By the No-U-Turn sampler."""
        return no_u_turn_at(self, *asked)

    def at(self, position: Position) -> Result:
        """Fields that are known."""
        white = jnp.asarray(position["white"])
        return self.run.held(position["learnt"], white, jnp.zeros((len(white), 1)), np.nan, np.nan)


Moments = tuple[Float[np.ndarray, "D"], Float[np.ndarray, "D"]]


def distance(before: Moments, after: Moments) -> float:
    """The larger of the changes of means, in standard deviations, and of the logarithms of these: root mean squares."""
    shifted, widened = (after[0] - before[0]) / after[1], np.log(after[1] / before[1])
    return float(np.sqrt(max(np.mean(shifted**2), np.mean(widened**2))))
