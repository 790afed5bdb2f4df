"""Chains of `engine = mcmc` where observations call opaque functions: elliptical slice sampling, without a gradient.

Murray, Adams and MacKay (2010), figure 2: a move goes along an ellipse through the state and a draw of a Gaussian, from
a random angle towards where it began, until the density is above a random level. The chains move in the parameters and
in v, where w = m + R v has mean m and root R of what the sites of the search say of w at these parameters: v is about
N(0, I) whatever these are (the surrogate data of Murray and Adams 2010), as far as the search is right. The Gaussian
that ellipses are about is a wide-tailed one, learnt while chains warm up (Nishihara, Murray and Adams 2014, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from gpdsl.forward.accounting import Stopped
from gpdsl.forward.errors import EverythingFailed
from gpdsl.inference.expected_log_likelihood import log_density
from gpdsl.inference.log_joint import Learnt, LogJoint, together
from gpdsl.inference.mcmc.chains import LEAST, NEAR, Chains, Position, known_at, log_prior
from gpdsl.inference.natural.profiled import outer_point, setting_of
from gpdsl.inference.natural.sites import Sites, never_widening, site_posterior, whitened_posterior
from gpdsl.inference.opaque.budget import Spent, require
from gpdsl.inference.opaque.surrogate import FAILED, Values, arguments_of, evaluate_externals
from gpdsl.inference.posteriors.features import RowSites
from gpdsl.inference.problem import Problem, Result, as_arrays
from gpdsl.inference.symmetries import images_of_all
from gpdsl.program.cache import jit
from gpdsl.program.rows import Scope, row_count
from gpdsl.symbolic.translate import ExternalUse

TAILS = 6.0
"""Degrees of freedom of the wide-tailed Gaussian."""

MOVES = 2
"""Of everything, and of the parameters alone, between two draws."""

LOOKS = tuple((number + 1) / 12 for number in range(12))
"""Shares of the warm-up after which the Gaussian is looked at again; after the last it stays."""

ALIKE = 5
"""Draws of chains that warm up that tell, about, as much as one of its own would."""

CORRELATED = 500
"""Numbers up to which the correlations of all are learnt, not only those of the parameters."""

WIDEST = 4000
"""Values of all latents together, at most: a matrix of them is taken."""

TRIES, NEARER = 20, 0.7
"""Places at which a chain may try to begin, nearer to where the search has ended and farther from it in turn."""


class Nowhere(Exception):
    """The density is 0 wherever chains tried to begin."""


Vector = Float[np.ndarray, " numbers"]


@dataclass(frozen=True, eq=False)
class Shape:
    """A t density with `TAILS` degrees of freedom of the first numbers of a chain: mean, and root of its scale.

    Given the scale that, in the mixture of Gaussians which it is, a place belongs to, it is a Gaussian to move about.
    """

    mean: Float[np.ndarray, " n"]
    root: Float[np.ndarray, "n n"]

    def apart(self, x: Vector) -> float:
        """Squared distance from the mean, in standard deviations."""
        gap = x[: len(self.mean)] - self.mean
        return float(np.sum(scipy.linalg.solve_triangular(self.root, gap, lower=True) ** 2))

    def log_density(self, x: Vector) -> float:
        """Up to a constant."""
        return -0.5 * (TAILS + len(self.mean)) * float(np.log1p(self.apart(x) / TAILS))

    def aside(self, x: Vector, rng: np.random.Generator) -> Float[np.ndarray, " n"]:
        """A draw of the Gaussian that x belongs to, without its mean."""
        scale = 0.5 * (TAILS + self.apart(x)) / rng.gamma(0.5 * (TAILS + len(self.mean)))
        return np.asarray(np.sqrt(scale) * (self.root @ rng.standard_normal(len(self.mean))))

    def learnt_from(self, draws: Float[np.ndarray, "draws numbers"]) -> Shape:
        """Mean and covariance of draws, as far as these are many; otherwise what was known before."""
        own = draws[:, : len(self.mean)]
        if len(own) < LEAST:
            return self
        share = len(own) / (len(own) + ALIKE * own.shape[1])
        covariance = share * np.atleast_2d(np.cov(own.T)) + (1 - share) * self.root @ self.root.T
        return Shape(share * own.mean(axis=0) + (1 - share) * self.mean, np.linalg.cholesky(covariance))


@dataclass
class Chain:
    """A chain that goes on for ever."""

    x: Vector
    value: float
    shapes: Sequence[Shape]
    """About which it moves, one after the other."""
    rng: np.random.Generator
    draws: list[tuple[Vector, float, int]] = field(default_factory=list)
    """Places, their log densities, and evaluations on the way there."""

    def places(self) -> Generator[Vector, float, None]:
        """Where the density is to be evaluated next; a draw after some moves."""
        while True:
            taken = 0
            for shape in [*self.shapes] * MOVES:
                taken += yield from self._moved(shape)
            self.draws.append((self.x, self.value, taken))

    def _moved(self, shape: Shape) -> Generator[Vector, float, int]:
        """A move, under what the joint density is above the shape's; and how many evaluations it took."""
        rng, own, centre, other = self.rng, len(shape.mean), self.x.copy(), np.zeros_like(self.x)
        centre[:own], other[:own] = shape.mean, shape.aside(self.x, rng)
        here, level = self.x - centre, self.value - shape.log_density(self.x) + np.log(rng.random())
        angle, taken = 2 * np.pi * rng.random(), 0
        low, high = angle - 2 * np.pi, angle
        while True:
            x, taken = centre + here * np.cos(angle) + other * np.sin(angle), taken + 1
            value = yield x
            if value - shape.log_density(x) > level:
                self.x, self.value = x, value
                return taken
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = low + (high - low) * rng.random()


Place = tuple[Position, Float[Array, "rows columns"], Float[Array, ""]]
"""Parameters and w, what every row reads of the latents, and log |R|."""


def told_by(problem: Problem, result: Result) -> Sites | None:
    """What a search says of each row, whatever the parameters are; None where it has said nothing."""
    return None if result.sites is None else never_widening(as_arrays(result.sites, problem.options.dtype))


def spread(
    problem: Problem, learnt: Learnt, v: Float[Array, " D"], data: Any, sites: Sites
) -> tuple[Float[Array, " D"], Float[Array, ""]]:
    """w = m + R v, and log |R|."""
    rows, inducing = data
    setting = setting_of(problem, outer_point(problem, dict(learnt), inducing), inducing, rows)
    if sites.coupled:
        mean, root = together(whitened_posterior(setting, sites))
        return mean + root @ v, jnp.linalg.slogdet(root)[1]
    seen, white, wider, start = setting.views(), [], jnp.zeros(()), 0
    prior = seen.prior(len(sites.linear))
    for each in (site_posterior(view, sites, prior) for view in seen):
        own, start = v[start : start + each.mean.size].reshape(each.mean.shape), start + each.mean.size
        if isinstance(each, RowSites):
            moved, diagonal = own / each.factor, each.factor
        else:
            moved = jax.vmap(partial(solve_triangular, lower=True, trans=1))(each.factor, own)
            diagonal = jnp.diagonal(each.factor, axis1=-2, axis2=-1)
        white.append(jnp.ravel(each.mean + moved))
        wider -= jnp.sum(jnp.log(diagonal))
    return jnp.concatenate(white), wider


class Called:
    """p(parameters, w | y) by values alone: all chains have their next places evaluated together."""

    def __init__(self, problem: Problem, result: Result) -> None:
        self.problem, self.joint = problem, LogJoint(problem)
        program = problem.program
        self.sites = told_by(problem, result)
        self.found: Learnt = as_arrays(dict(result.parameters), problem.options.dtype)
        self.first = np.concatenate([*map(np.ravel, self.found.values()), np.empty(0)]).astype(float)
        self._places = jit(jax.vmap(self._place, (0, None)))
        self._arguments = {use.key: jit(jax.vmap(self._passed(use), (0, 0, None))) for use in program.uses()}
        self._density = jit(jax.vmap(self._log_density, (0, 0, None)))

    @property
    def data(self) -> Any:
        """The rows, where the values are of the latents, and what the search says of these."""
        return self.joint.data, self.sites

    def at(self, position: Position) -> Result:
        """Latents that are known at the rows."""
        return known_at(self.joint, position)

    def sample(self, chains: int, warm_up: int, draws: int, seed: int, report: Callable[[int, int], None]) -> Chains:
        """Draws of all chains, fewer where the budget of evaluations ends.

        Raises Spent where it ends before there are any, and Nowhere where the density is 0 wherever they begin.
        """
        account, allowed = self.problem.program.account, self.problem.options.evaluations
        if account is not None and allowed is not None:
            account.budget = allowed
        running = self._begun(chains, seed)
        moves = [chain.places() for chain in running]
        places = [next(move) for move in moves]
        stopped, looks, ready, made = False, [int(share * warm_up) for share in LOOKS], [0] * chains, 0
        while looks or made < draws:
            if looks and made >= looks[0]:
                looks.pop(0)
                learn([x for chain in running for x, _, _ in chain.draws[made // 2 :]], running)
                ready = ready if looks else [len(chain.draws) for chain in running]
            else:
                try:
                    report(made if looks else made + warm_up, warm_up + draws)
                    values = self.log_densities(np.stack(places)).tolist()
                except (Spent, KeyboardInterrupt) as ended:
                    if looks or made < LEAST:
                        raise
                    stopped = isinstance(ended, KeyboardInterrupt)
                    break
                places = [move.send(value) for move, value in zip(moves, values, strict=True)]
            made = min(len(chain.draws) - start for chain, start in zip(running, ready, strict=True))
        made = min(made, draws)
        every = [chain.draws[start : start + made] for chain, start in zip(running, ready, strict=True)]
        x, value, taken = (np.array([[draw[part] for draw in each] for each in every]) for part in range(3))
        known = self._places(x.reshape(-1, x.shape[-1]), self.data)
        positions, _, log_root = jax.tree.map(lambda a: np.asarray(a).reshape(chains, made, *a.shape[1:]), known)
        said = {"diverging": np.zeros(value.shape, int), "lp": value - log_root, "n_steps": taken}
        found = Chains(positions, said, interrupted=stopped)
        return found if self.problem.program.uses() else found.in_all(images_of_all(self.joint, self.found), seed)

    def log_densities(self, x: Float[np.ndarray, "places numbers"]) -> Float[np.ndarray, " places"]:
        """Log joint densities, by one call of every function for all places; none where one of them fails."""
        program = self.problem.program
        require(program, len(x) * self.problem.count * len(program.uses()))

        place = self._places(x, self.data)

        def give(use: ExternalUse, known: Values) -> list[Array]:
            known = {key: value for key, value in known.items() if key != FAILED}
            return self._arguments[use.key](place, known, self.joint.data)  # type: ignore[no-any-return]

        try:
            values = evaluate_externals(program, program.uses(), give)
        except Stopped:
            account = program.account
            if account is None or account.fault is None or not isinstance(account.fault.mistake, EverythingFailed):
                raise
            account.fault = None
            return np.full(len(x), -np.inf)
        failed = np.asarray(values.pop(FAILED, jnp.zeros((len(x), 1)))).any(axis=1)
        found = np.asarray(self._density(place, values, self.joint.data), float)
        return np.where(failed | ~np.isfinite(found), -np.inf, found)

    def _place(self, x: Float[Array, " numbers"], data: Any) -> Place:
        (rows, inducing), sites = data
        x, learnt, start = jnp.asarray(x, self.problem.options.dtype), {}, 0
        for name, found in self.found.items():
            learnt[name], start = x[start : start + found.size].reshape(found.shape), start + found.size
        white, wider = spread(self.problem, learnt, x[start:], data[0], sites)
        latents = self.joint.latents(learnt, white, (rows, inducing))
        return {"learnt": learnt, "white": white}, latents, wider

    def _passed(self, use: ExternalUse) -> Callable[[Place, Values, Any], list[Array]]:
        def passed(place: Place, values: Values, data: Any) -> list[Array]:
            program, (position, latents, _) = self.problem.program, place
            parameters = program.parameters.constrain(position["learnt"])
            return arguments_of(program, use, parameters, data[0], latents, values)

        return passed

    def _log_density(self, place: Place, values: Values, data: Any) -> Float[Array, ""]:
        program, (position, latents, log_root), rows = self.problem.program, place, data[0]
        known = {key: value[None, None] for key, value in values.items()}
        scope = Scope(program.parameters.constrain(position["learnt"]), rows, latents[None, None], known)
        likelihood = jnp.sum(log_density(program, scope, (1, 1, row_count(rows))))
        return likelihood + log_prior(self.joint, position["learnt"], position["white"]) + log_root

    def _begun(self, count: int, seed: int) -> list[Chain]:
        """Chains that begin at draws about the end of the search, where the density is above 0."""
        streams = [np.random.default_rng([seed, number]) for number in range(count)]
        sd = np.concatenate([np.full(len(self.first), NEAR), np.ones(self.joint.dimension)])
        end = np.concatenate([self.first, np.zeros(self.joint.dimension)])
        places, values = np.tile(end, (count, 1)), np.full(count, -np.inf)
        for tried in range(TRIES):
            for number in np.flatnonzero(~np.isfinite(values)).tolist():
                far = NEARER ** (tried if tried % 2 == 0 else -0.25 * tried)
                places[number] = end + far * sd * streams[number].standard_normal(len(end))
            values = np.where(np.isfinite(values), values, self.log_densities(places))
            if np.isfinite(values).all():
                sizes = [size for size in dict.fromkeys([len(end), len(self.first)]) if size]
                shapes = [Shape(end[:size], np.diag(sd[:size])) for size in sizes]
                own = zip(places, values.tolist(), streams, strict=True)
                return [Chain(x, value, shapes, rng) for x, value, rng in own]
        raise Nowhere


def learn(draws: Sequence[Vector], running: Sequence[Chain]) -> None:
    """The shapes of all chains, from draws of all of them; a move in progress keeps its own."""
    shapes = [
        shape if len(shape.mean) > CORRELATED else shape.learnt_from(np.stack(draws)) for shape in running[0].shapes
    ]
    for chain in running:
        chain.shapes = shapes
