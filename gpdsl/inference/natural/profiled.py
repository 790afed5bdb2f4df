"""Batch inference for a single Gaussian: L-BFGS over the hyperparameters of the bound maximised over q.

Inside, natural gradients find the best q for the current hyperparameters (a handful of iterations from a warm start);
outside, L-BFGS sees only the few hyperparameters. For a Gaussian likelihood the inner loop is exact after one step and
the outer objective is the exact log marginal likelihood (dense) or the collapsed bound (sparse).

A coupled posterior starts where latents that are independent of each other ended, so its bound is never lower than that
of a full Gaussian per latent: the same program finds those first, as the best of the sites without correlation. Where
the log likelihood is quadratic, the best coupled posterior is exact whatever the start, and nothing else comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gpdsl.inference.ascent.lbfgs import Outcome, looked_at, maximise, maximise_off_saddles
from gpdsl.inference.log_joint import LogJoint
from gpdsl.inference.natural.refine import RIDGE_ITERATIONS, Best, attained, refine, why_ridges
from gpdsl.inference.natural.row_space import Ascent, Given, in_row_space
from gpdsl.inference.natural.site_blocks import batch_posterior, batch_site_elbo
from gpdsl.inference.natural.site_starts import start_sites
from gpdsl.inference.natural.sites import Setting, Sites
from gpdsl.inference.posteriors.family import Whitened
from gpdsl.inference.problem import Problem, Rest, Result, as_arrays, as_numpy, of_first, tidy
from gpdsl.inference.resolution import begun_at, jitter_note
from gpdsl.kernels.functionals import Functionals
from gpdsl.program.rows import Rows

INNER_ITERATIONS = 1000

SHARE = 1e-4
"""How accurately the bound is maximised over q, as a share of what the last point of the search has gained."""

IMPOSSIBLE = 1e-3
"""Nats an observed value by which a bound of probabilities may exceed certainty, for what samples are off by."""

AS_IT_IS = 1
"""Iterations that only look at the start."""

PATIENCE, FIRST_PATIENCE = 50, 200
"""Iterations after which natural gradients of latents that an observation mixes are taken to be on a ridge.

More the first time: the program of Newton's method has to be compiled then, which costs as much as hundreds of them.
"""

EXPLORED = 1e-3
"""Nats to which the bound is maximised over q where its value alone is asked for: it is mostly 1e-5 off."""

KEPT_NUMBERS = 20_000_000
"""Numbers of sites that are kept of values of the bound, for posteriors that may be asked for at the same places."""

Compute = Callable[..., tuple[Array, Any, Sites, bool]]
"""Bound, gradient, sites, and whether these settled, from a point, sites, how far latents are coupled, and whether
there has to be a gradient."""

Ascended = tuple[Array, Any, Sites, Array | bool]
Ascend = Callable[[Any, Sites, Any, Array, int, bool], Ascended]
"""The same from a point, sites, samples, how far latents are coupled, a number of iterations, and whether the gradient
is asked for."""


class ProfiledSearch:
    """The bound maximised over q, maximised over the rest.

    Sampled terms use one fixed set of samples, so the objective is deterministic.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.ends = [Best(outer_point(problem, problem.parameters, problem.inducing), start_sites(problem))]
        """The best point of every search so far; before the first, where that starts."""
        self.compute, self.bound = _compiled(problem, self.ends[0])

    def run(self) -> str:
        """Search with latents that are independent of each other, and then, where it is coupled, from there."""
        program, begin, self.ends = self.problem.program, self.ends[0], []
        for coupling in (0.0, 1.0) if program.coupled and not program.conjugate else (1.0,):
            self.ends.append(Best(begin.point, begin.sites, reason=why_ridges(self.problem)))
            begin = self.ends[-1]
            begin.message = _maximised(self.problem, self.compute, begin, coupling).message
        return begin.message

    def state(self) -> Result:
        """The best point so far, with its bound on the samples of the search."""
        best = self.ends[-1]
        return at_sites(self.problem, best.point, best.sites, best.elbo)

    def finish(self) -> Result:
        """The best end with its bound on fresh samples."""
        best, message, bound = attained(self.problem, self.ends, self.bound)
        parameters, _ = split_point(best.point, self.problem.inducing)
        notes = jitter_note(self.problem, parameters, best.sites)
        return replace(at_sites(self.problem, best.point, best.sites, *bound), message=message, notes=notes)


class SitesProfile:
    """The bound maximised over q at any learnt parameters, around those of a result, whose inducing inputs stay.

    `rows`: how many of them are the data's, where others only fill these up.
    """

    def __init__(self, problem: Problem, result: Result, rows: int | None = None) -> None:
        self._rows = rows
        options, sites = problem.options, result.sites
        if options.learn_inducing:  # else programs are those of the search
            options = replace(options, learn_inducing=False)
        sites = sites if sites is not None and len(sites.linear) == problem.count else None
        known = as_arrays((result.parameters, result.inducing), options.dtype)
        if sites is None:
            problem = replace(problem, **begun_at(problem, result))
        self.problem = replace(problem, options=options, parameters=known[0], inducing=known[1])
        begun = start_sites(self.problem) if sites is None else as_arrays(sites, options.dtype)
        begin = Best(outer_point(self.problem, *known), begun)
        self.compute, _ = _compiled(self.problem, begin)
        self.sites, self.highest = begin.sites, -np.inf
        self._seen: dict[bytes, tuple[Sites, float]] = {}
        self._whitened: Callable[..., list[Whitened]] | None = None
        self._room = KEPT_NUMBERS // sum(leaf.size for leaf in jax.tree.leaves(begin.sites))
        if sites is None and problem.program.coupled and not problem.program.conjugate:
            self.sites = self.compute(begin.point, begin.sites, jnp.asarray(0.0))[2]

    @property
    def joint(self) -> LogJoint | None:
        """The density whose best q this has, where it takes no samples."""
        known = self.problem.choice.dense or not self.problem.program.sampled
        return LogJoint(self.problem) if known else None

    def __call__(self, learnt: Mapping[str, Array]) -> tuple[float, Mapping[str, Array]]:
        """The bound, log priors included, and its gradient; q starts at the best one so far."""
        value, sites, gradient = self._at(learnt, True)
        return value, gradient["parameters"]

    def value(self, learnt: Mapping[str, Array]) -> float:
        """The bound alone."""
        value, sites, _ = self._at(learnt, False)
        if len(self._seen) < self._room:
            self._seen[_key(learnt)] = sites, value
        return value

    def at(self, learnt: Mapping[str, Array]) -> Result:
        """The best q there."""
        sites, value = self._seen.get(_key(learnt)) or self._at(learnt, False)[1::-1]
        point = {"parameters": dict(learnt), "inducing": []}
        if self._whitened is None:
            self._whitened = whitening(self.problem, point, sites)
        found = at_sites(self.problem, point, sites, value, whitened=self._whitened)
        return found if self._rows is None else of_first(found, self._rows)

    def _at(self, learnt: Mapping[str, Array], sloped: bool) -> tuple[float, Sites, Any]:
        point = {"parameters": dict(learnt), "inducing": []}
        coupling = np.asarray(1.0, self.problem.options.dtype)  # which JAX would compile a cast for
        found, gradient, sites, _ = self.compute(point, self.sites, coupling, sloped)
        value = float(found)
        if np.isfinite(value) and value > self.highest:
            self.sites, self.highest = sites, value
        return value, sites, gradient


def _key(learnt: Mapping[str, Array]) -> bytes:
    return b"".join(np.asarray(learnt[name]).tobytes() for name in sorted(learnt))


def at_sites(
    problem: Problem,
    point: Any,
    sites: Sites,
    value: float,
    error: float = 0.0,
    whitened: Callable[..., list[Whitened]] | None = None,
) -> Result:
    """The state with these sites; by the program `whitened` of others at places like this one, if there is one."""
    parameters, inducing = as_numpy(split_point(point, problem.inducing))
    posterior = tidy((whitened or whitening(problem, point, sites))(point, problem.inducing, sites, problem.rows))
    return Result(parameters, inducing, posterior, np.ones(1), value, error, sites=sites)


def _compiled(problem: Problem, start: Best) -> tuple[Compute, Callable[[Any, Sites, Any], Array]]:
    """The bound at a point maximised over the sites, and at given sites with other samples: one program for both."""
    normals = problem.batch_normals(jax.random.key(problem.options.seed)) if problem.program.sampled else None
    rest = problem.rest(normals)
    ridges = bool(problem.program.mixing) and problem.at_once  # as Newton's method wants rows
    patience = FIRST_PATIENCE if ridges else INNER_ITERATIONS
    ascend = _between_programs(problem, start, rest) if in_row_space(problem) else _one_program(problem, start, rest)

    # Sites by Newton's method, and whether they have settled; without the bound's gradient it compiles sooner.
    def settle(point: Any, sites: Sites, rest: Rest, coupling: Any) -> tuple[Sites, Array]:
        setting, normals = setting_of(problem, point, rest.held, rest.rows, rest.jitter), rest.normals
        progress = refine(setting, sites, normals, _accuracy(problem), RIDGE_ITERATIONS, coupling, newton=True)
        return progress.sites, progress.done

    on_ridges = problem.compiling(settle, brief=problem.brief)

    def compute(point: Any, sites: Sites, coupling: Array, sloped: bool = True) -> tuple[Array, Any, Sites, bool]:
        nonlocal patience
        *found, settled = ascend(point, sites, normals, coupling, patience, sloped)
        if ridges and not settled:
            patience = PATIENCE
            sites, settled = on_ridges(point, found[-1], rest, coupling)
            *found, _ = ascend(point, sites, normals, coupling, AS_IT_IS, sloped)
        return *found, bool(settled) or not ridges

    def bound(point: Any, sites: Sites, normals: Any) -> Array:
        return ascend(point, sites, normals, jnp.asarray(1.0), AS_IT_IS, True)[0]

    return compute, bound


class Asked(NamedTuple):
    """Iterations at most, how far sites of different latents go together, nats to which the bound is wanted, and
    whether its gradient is."""

    iterations: Any = INNER_ITERATIONS
    coupling: Any = 1.0
    accurate: Any = None
    sloped: Any = None


def _one_program(problem: Problem, start: Best, rest: Rest) -> Ascend:
    asked = Asked(*map(jnp.asarray, (INNER_ITERATIONS, 1.0, _accuracy(problem), True)))
    ascended = problem.shared(profiled_bound, start.point, start.sites, rest, None, asked, brief=problem.brief)

    def ascend(point: Any, sites: Sites, normals: Any, coupling: Array, most: int, sloped: bool) -> Ascended:
        asked = jnp.asarray(most), coupling, jnp.asarray(_accuracy(problem, sloped)), jnp.asarray(sloped)
        return ascended(point, sites, rest._replace(normals=normals), None, Asked(*asked))

    return ascend


def _between_programs(problem: Problem, start: Best, rest: Rest) -> Ascend:
    rows, held, normals, jitter = rest
    on_host: Any = np.asarray(jitter, np.result_type(jitter))
    given = rows, held, on_host
    loop = Ascent(problem, _place, start.point, start.sites, given, normals)
    highest, gain = -np.inf, 0.0

    def ascend(point: Any, sites: Sites, normals: Any, _: Array, iterations: int, sloped: bool) -> Ascended:
        nonlocal highest, gain
        accurate = max(_accuracy(problem, sloped), SHARE * gain)
        found = loop(point, sites, given, normals, accurate, iterations, sloped)
        value = float(found[0])
        gain = max(value - highest, 0.0) if np.isfinite(highest) else 0.0
        highest = max(highest, value) if np.isfinite(value) else highest
        return found

    return ascend


def _place(problem: Problem, at: Any, given: Given) -> Setting:
    rows, held, jitter = given
    return setting_of(problem, at, held, rows, jitter)


def _maximised(problem: Problem, compute: Compute, best: Best, coupling: float) -> Outcome:
    """A search from the start that `best` is, which keeps the best point."""
    monitor, done = problem.monitor, len(problem.monitor.history)

    def objective(at: Any) -> tuple[float, Any]:
        # From the best sites: those of a trial far from there may be of another maximum, or of none.
        found, gradient, refined, settled = compute(at, best.sites, np.asarray(coupling, problem.options.dtype))
        value = float(found)
        if value > problem.ceiling + IMPOSSIBLE * problem.observed:
            return float("nan"), gradient  # an error of samples, or of rounding
        if np.isfinite(value):
            best.see(at, refined, value, settled)
        return value, gradient

    def report(step: int, value: float) -> None:
        monitor.report(done + step, value)

    if not jax.tree.leaves(best.point):  # nothing but q to learn
        return looked_at(objective, best.point, report)
    search = maximise_off_saddles if problem.may_have_saddles else maximise
    return search(objective, best.point, **{**problem.asked, "report": report})


def outer_point(problem: Problem, parameters: dict[str, Array], inducing: list[Functionals]) -> dict[str, Any]:
    """What L-BFGS moves: learnt parameters, and the inducing inputs when they are learnt."""
    return {"parameters": parameters, "inducing": inducing if problem.options.learn_inducing else []}


def split_point(point: dict[str, Any], held: list[Functionals]) -> tuple[dict[str, Array], list[Functionals]]:
    """Parameters and inducing inputs of a point of the search; `held` are the inducing inputs that do not move."""
    return point["parameters"], point["inducing"] or held


def setting_of(problem: Problem, point: Any, held: Any, rows: Rows, jitter: Array | float | None = None) -> Setting:
    """The setting of the sites at a point of the search, with the problem's jitter or another."""
    learnt, inducing = split_point(point, held)
    jitter = problem.jitter if jitter is None else jitter
    return Setting.at(problem.program, learnt, inducing, rows, problem.layout.dense, jitter)


def whitened_at(problem: Problem, point: Any, sites: Sites) -> list[Whitened]:
    """The posterior of the sites at a point of the search."""
    return whitening(problem, point, sites)(point, problem.inducing, sites, problem.rows)


def whitening(problem: Problem, point: Any, sites: Sites) -> Callable[..., list[Whitened]]:
    """The program of that for all points like this one: of a point, inducing inputs, sites and rows."""
    return problem.shared(_whitened, point, problem.inducing, sites, problem.rows, brief=True)


def _whitened(problem: Problem, _: Any, point: Any, held: Any, sites: Sites, rows: Rows) -> list[Whitened]:
    return batch_posterior(setting_of(problem, point, held, rows), sites)


def _accuracy(problem: Problem, sloped: bool = True) -> float:
    """Gradients, whose differences are curvatures, take q at its best; so do the last places of values."""
    best = max(problem.options.tolerance, 1e-7 if problem.program.opaque else 1e-12) * problem.count
    return best if sloped else max(best, EXPLORED)


def profiled_bound(
    problem: Problem, _: Any, point: Any, sites: Sites, rest: Rest, surrogate: Any = None, asked: Asked | None = None
) -> tuple[Array, Any, Sites, Array]:
    """Value, gradient and refined sites at a point of the search, from a warm start, and whether these have settled.

    A coupling of 0 keeps the sites of different latents apart."""
    rows, held, normals, jitter = rest
    iterations, coupling, accurate, sloped = asked or Asked()
    setting = setting_of(problem, point, held, rows, jitter)
    accurate = _accuracy(problem) if accurate is None else accurate
    progress = refine(setting, sites, normals, accurate, iterations, coupling, surrogate)
    refined = jax.lax.stop_gradient(progress.sites)

    def bound(at: Any) -> Array:
        return batch_site_elbo(setting_of(problem, at, held, rows, jitter), refined, normals, surrogate)

    if not jax.tree.leaves(point):
        return progress.elbo, point, refined, progress.done
    if sloped is None:
        value, gradient = jax.value_and_grad(bound)(point)
    else:
        alone = lambda at: (progress.elbo + setting.log_prior, jax.tree.map(jnp.zeros_like, at))  # noqa: E731
        value, gradient = jax.lax.cond(sloped, jax.value_and_grad(bound), alone, point)
    return value, gradient, refined, progress.done
