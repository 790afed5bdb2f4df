"""Inference about fields: natural gradients for one joint Gaussian, around them L-BFGS for the hyperparameters.

Functions that can be traced are differentiated. Others go in rounds: they are called at fields drawn from q, all calls
so far are interpolated (`emulator`), q is fitted to the emulators, and the rounds end when q rests. The bound is that
of the emulators, corrected by what the latest calls gave instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.inference.ascent.lbfgs import maximise
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.fields.calls import Called, Emulator, FieldCalls, emulated, fit_emulator
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import FRESH_SETS, Monitor, Result, as_numpy
from gpdsl.inference.sampling import sum_and_error
from gpdsl.kernels.functionals import Functionals, Values
from gpdsl.kernels.numerics import log_det_factor
from gpdsl.program.cache import jit
from gpdsl.program.evaluation import Roots, deviations, field_means, points_of, roots
from gpdsl.program.program import Program
from gpdsl.program.rows import Rows, Scope, row_count

# The bound of a model with fields, and the derivatives that natural gradients need: all rows read all values at once.
#
# With the whitened values w of all fields together, f = mean + A w and q(w) = N(m, V), the observations do not
# factorise over values, but they are a function of f alone. Bonnet's and Price's theorems give the gradients of the
# expected log likelihood from its derivatives in f, whatever the dimension of f:
#
#     dL_ell/dm = A' E_q[grad l(f)],      dL_ell/dV = A' E_q[hess l(f)] A / 2,
#
# so that q is best where V^-1 = I - A' E_q[hess l] A and m = A' E_q[grad l] (SAVIGP eq. 34 for one site over all of f).

Learnt = Mapping[str, Array]
Known = Mapping[str, Emulator | Array]
"""What stands for each opaque function: an emulator, or its results at the fields in question."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joint:
    """q of all whitened values: its mean, and the lower Cholesky factor of its precision."""

    mean: Float[Array, "D"]
    factor: Float[Array, "D D"]

    def root(self) -> Float[Array, "D D"]:
        """A root of the covariance: root root' = V."""
        return solve_triangular(self.factor, jnp.eye(len(self.mean), dtype=self.mean.dtype), lower=True, trans=1)

    def divergence(self) -> Float[Array, ""]:
        """KL from the prior N(0, I)."""
        spread = jnp.sum(self.root() ** 2) + jnp.sum(self.mean**2)
        return 0.5 * (spread - len(self.mean) + log_det_factor(self.factor))


@dataclass(frozen=True)
class FieldBound:
    """The functions of one problem that get compiled. They take numbers only, so that new ones need no compilation."""

    program: Program
    jitter: float

    def log_likelihood(self, learnt: Learnt, values: Float[Array, "D"], rows: Rows, known: Known) -> Float[Array, ""]:
        """log p(all observations | fields)."""
        parameters = self.program.parameters.constrain(learnt)
        latents = values[None]
        count = row_count(rows)
        scope = Scope(parameters, rows, latents, emulated(self.program, parameters, rows, latents, known))
        return jnp.sum(log_density(self.program, scope, (count,)))

    def fields(self, learnt: Learnt, white: Float[Array, "D S"]) -> Float[Array, "S D"]:
        """Values of all fields."""
        means = field_means(self.program, self.program.parameters.constrain(learnt))
        return (means[:, None] + deviations(self.program, self._roots(learnt), white)).T

    def value(
        self,
        learnt: Learnt,
        q: Joint,
        normals: Float[Array, "S D"],
        rows: Rows,
        known: Known,
        curvature: Float[Array, "D D"],
    ) -> Float[Array, ""]:
        """The bound, its expectation over the samples that `normals` make.

        `curvature` is a Hessian in the values: the quadratic form with it, whose expectation is known, is a control
        variate that leaves nothing to sample where the likelihood is Gaussian and the fields enter linearly.
        """
        around = deviations(self.program, self._roots(learnt), q.root() @ normals.T).T
        centre = self.fields(learnt, q.mean[:, None])[0]
        values = jax.lax.map(lambda each: self.log_likelihood(learnt, centre + each, rows, known), around)
        loaded = deviations(self.program, self._roots(learnt), q.root())
        known_part = 0.5 * jnp.sum(loaded * (curvature @ loaded))
        sampled_part = 0.5 * jnp.sum(around * (around @ curvature), axis=1)
        prior = self.program.log_prior(self.program.parameters.constrain(learnt))
        return jnp.mean(values - sampled_part) + known_part - q.divergence() + prior

    def target(
        self, learnt: Learnt, q: Joint, normals: Float[Array, "S D"], rows: Rows, known: Known
    ) -> tuple[Float[Array, "D"], Float[Array, "D D"], Float[Array, "D D"]]:
        """The gradient A' E[grad l], the precision I - A' E[hess l] A that q has if it stays, and E[hess l]."""
        drawn = self.fields(learnt, q.mean[:, None] + q.root() @ normals.T)

        def derivatives(f: Array) -> tuple[Array, Array]:
            of = lambda at: self.log_likelihood(learnt, at, rows, known)  # noqa: E731
            return jax.grad(of)(f), jax.hessian(of)(f)

        slopes, curvatures = jax.lax.map(derivatives, drawn)
        identity = jnp.eye(drawn.shape[1], dtype=drawn.dtype)
        loading, curvature = deviations(self.program, self._roots(learnt), identity), jnp.mean(curvatures, axis=0)
        return loading.T @ jnp.mean(slopes, axis=0), identity - loading.T @ curvature @ loading, curvature

    def _roots(self, learnt: Learnt) -> Roots:
        return roots(self.program, self.program.parameters.constrain(learnt), self.jitter)


def moved(q: Joint, gradient: Float[Array, "D"], precision: Float[Array, "D D"], rate: Any) -> Joint:
    """A natural-gradient step; a short one is a part of a whole one, in the mean and in the precision.

    (The mean's own short step would divide by the precision that it leads to, which may still be far too small.)
    """
    mixed = (1.0 - rate) * (q.factor @ q.factor.T) + rate * precision
    step = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(precision), True), gradient - q.mean)
    return Joint(q.mean + rate * step, jnp.linalg.cholesky(0.5 * (mixed + mixed.T)))


def reflected(precision: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """A matrix with its negative eigenvalues turned positive, for a step from where the likelihood is convex."""
    values, vectors = jnp.linalg.eigh(0.5 * (precision + precision.T))
    return (vectors * jnp.abs(values)) @ vectors.T


def start(dimension: int, sd: float, dtype: Any) -> Joint:
    """Around the prior mean, with this share of its standard deviation."""
    return Joint(jnp.zeros(dimension, dtype), jnp.eye(dimension, dtype=dtype) / sd)


def difference(a: Joint, b: Joint) -> Float[Array, ""]:
    """The mean of the KL divergences of two Gaussians from each other."""
    gap = a.mean - b.mean
    spread = jnp.sum((a.factor.T @ b.root()) ** 2) + jnp.sum((b.factor.T @ a.root()) ** 2) - 2 * len(gap)
    apart = jnp.sum((a.factor.T @ gap) ** 2) + jnp.sum((b.factor.T @ gap) ** 2)
    return 0.25 * (spread + apart)


NARROW = 0.1
"""Share of the prior's standard deviation that q starts with: likelihoods far from the data can overflow."""

STEPS = 30
"""Most natural-gradient steps on the way to the best q."""

RATES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001)
"""How far along a natural gradient: the first that raises the bound."""

REST = 1e-3
"""Symmetric KL divergence between one q and the next, over all values together, below which q rests."""

SETTLED = 0.03
"""The same in standard deviations, root mean square over all values, between rounds of calls."""

OUTER_STEPS = 30
"""Iterations of L-BFGS over the hyperparameters."""

OUTER_STEPS_A_ROUND = 5
"""The same between two rounds of calls."""

EXPECTED = 32
"""Fields over which expectations are averaged, where no call is made for any of them."""


@dataclass(eq=False)
class FieldRun:
    """One fit: what it is about, and the best state so far."""

    program: Program
    rows: Rows
    choice: Choice
    options: Options
    learnt: dict[str, Array]
    jitter: float
    monitor: Monitor
    q: Joint = field(init=False)
    elbo: float = -np.inf
    error: float = 0.0
    off: float = np.inf
    """Standard deviation of the log likelihood that emulators miss, over fields drawn from q afterwards."""
    stuck: bool = False
    """Whether the last search ended where no step raises the bound, and yet its gradient points somewhere."""
    curvature: Any = None
    """Mean Hessian of the log likelihood where it was last computed: the control variate of the bound."""

    def __post_init__(self) -> None:
        bound, dimension = FieldBound(self.program, self.jitter), self.program.latents
        self.dtype = jnp.dtype(self.options.dtype)
        self.rng = np.random.default_rng(self.options.seed)
        self.q = start(dimension, NARROW, self.dtype)
        self.normals = self.draw(EXPECTED if self.program.opaque else self.choice.samples)
        self.value, self.target = jit(bound.value), jit(bound.target)
        self.slope = jit(jax.value_and_grad(bound.value))
        self.fields = jit(bound.fields)
        self.likelihood = jit(bound.log_likelihood)
        self.moved, self.difference, self.reflected = jit(moved), jit(difference), jit(reflected)

    def draw(self, count: int) -> Float[Array, "S D"]:
        """Standard normals in pairs z, -z, so that linear functions are averaged exactly."""
        half = self.rng.standard_normal(((count + 1) // 2, self.program.latents))
        return jnp.asarray(np.concatenate([half, -half])[:count], self.dtype)

    def refined(self, learnt: Any, q: Joint, known: Any, steps: int = STEPS) -> tuple[float, Joint]:
        """The best q at these parameters, from another one, and its bound."""
        value = -np.inf
        for _ in range(steps):
            before, (q, value) = q, self.ascended(learnt, q, known)
            if q is before or float(self.difference(before, q)) < REST:
                break
        return value, q

    def ascended(self, learnt: Any, q: Joint, known: Any) -> tuple[Joint, float]:
        """A natural-gradient step as far as the bound rises, and the bound there; q itself where it does not."""
        rest = (self.normals, self.rows, known)
        gradient, precision, self.curvature = self.target(learnt, q, *rest)
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

    def maximised(self, known: Any) -> str:
        """Move to the best q and, where any are learnt, to the best parameters; says how that ended."""
        value, self.q = self.refined(self.learnt, self.q, known)
        self.elbo = value
        if not jax.tree.leaves(self.learnt):
            return "stopped: no step raises the bound" if self.stuck else "converged"
        best = (value, self.learnt, self.q)

        def objective(learnt: Any) -> tuple[float, Any]:
            nonlocal best
            value, q = self.refined(learnt, best[2], known)
            if value > best[0]:
                best = (value, learnt, q)
            return self.slope(learnt, q, self.normals, self.rows, known, self.curvature)

        asked: dict[str, Any] = {"steps": OUTER_STEPS_A_ROUND if known else OUTER_STEPS}
        try:
            return maximise(
                objective, self.learnt, tolerance=self.options.tolerance, report=lambda *_: None, **asked
            ).message
        finally:
            self.elbo, self.learnt, self.q = best

    def traced(self) -> str:
        """A likelihood that can be differentiated."""
        message = self.maximised({})
        self.monitor.report(1, self.elbo)
        self.elbo, self.error = self.assessed({})
        return message

    def assessed(self, known: Any) -> tuple[float, float]:
        """The bound and its standard error, on samples for which it was not maximised."""
        return sum_and_error(self.reassessed(known))

    def reassessed(self, known: Any) -> Float[np.ndarray, "sets"]:
        """The bound on fresh sets of samples."""
        sets = [self.draw(len(self.normals)) for _ in range(FRESH_SETS)]
        value = lambda each: float(self.value(self.learnt, self.q, each, self.rows, known, self.curvature))  # noqa: E731
        return np.asarray([value(each) for each in sets])

    def opaque(self) -> str:
        """Rounds of calls, until q rests or the budget is used up."""
        calls, known = FieldCalls(self.program), dict[str, list[Called]]()
        self.q, change = start(self.program.latents, 1.0, self.dtype), np.inf
        emulators: dict[str, Emulator] = {}
        for number in range(1, self.choice.steps + 1):
            size = self.affordable()
            if size == 0:
                self.error = self.off
                return f"the budget of evaluations is used up{self.accuracy(change)}"
            drawn = self.fields(self.learnt, self.q.mean[:, None] + self.q.root() @ self.draw(size).T)
            found, good = calls(self.program.parameters.constrain(self.learnt), self.rows, drawn)
            pairs = good % ((len(drawn) + 1) // 2)
            checked = self.checked(found, drawn[good], pairs, emulators) if emulators else (-np.inf, np.inf)
            before, emulators = self.summary(), self.emulators(known, found)
            self.q = self.q if number > 1 else start(self.program.latents, NARROW, self.dtype)
            self.maximised(emulators)
            self.monitor.report(number, self.elbo)
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
        account, uses = self.program.account, len(self.program.uses())
        return self.choice.samples if account is None else int(min(self.choice.samples, account.remaining // uses))

    def emulators(self, known: dict[str, list[Called]], found: dict[str, Called]) -> dict[str, Emulator]:
        """Emulators of everything called so far."""
        emulators = {}
        for key, each in found.items():
            known.setdefault(key, []).append(each)
            arguments = np.concatenate([batch.arguments for batch in known[key]])
            results = np.concatenate([batch.results.reshape(len(batch.results), -1) for batch in known[key]])
            emulators[key] = fit_emulator(arguments, results, len(each.arguments))
        return emulators

    def checked(
        self, found: dict[str, Called], drawn: Array, pairs: np.ndarray, emulators: dict[str, Emulator]
    ) -> tuple[float, float]:
        """The bound of q with what calls at fields drawn from it gave, instead of the emulators it was fitted to.

        With its standard error. Fields of a pair are mirrored, and so not independent of each other.
        """
        gaps = np.zeros(len(drawn))
        for place, values in enumerate(drawn):
            called = {key: jnp.asarray(each.results[place].ravel(), self.dtype) for key, each in found.items()}
            true, said = (float(self.likelihood(self.learnt, values, self.rows, k)) for k in (called, emulators))
            gaps[place] = true - said
        self.off = float(np.std(gaps))
        missed = np.asarray([np.mean(gaps[pairs == pair]) for pair in np.unique(pairs)])
        return sum_and_error(missed, self.reassessed(emulators))

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
        """The best state, group by group, the root of the covariance by rows."""
        root, mean = np.asarray(self.q.root()), np.asarray(self.q.mean)
        posterior: list[Whitened] = []
        points: list[Functionals] = []
        for group in self.program.groups:
            shape = (1, group.size, group.points)
            some = slice(group.start, group.stop)
            posterior.append(Whitened(mean[some].reshape(shape), root[some].reshape(*shape, -1)))
            points.append(as_numpy(Values(jnp.asarray(points_of(self.program.declarations, group)))))
        learnt = as_numpy(self.learnt)
        return Result(learnt, points, posterior, np.ones(1), self.elbo, self.error)

    finish = state


Moments = tuple[Float[np.ndarray, "D"], Float[np.ndarray, "D"]]


def distance(before: Moments, after: Moments) -> float:
    """The larger of the changes of means, in standard deviations, and of the logarithms of these: root mean squares."""
    shifted, widened = (after[0] - before[0]) / after[1], np.log(after[1] / before[1])
    return float(np.sqrt(max(np.mean(shifted**2), np.mean(widened**2))))
