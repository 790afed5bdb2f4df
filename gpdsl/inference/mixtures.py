"""Mixtures that end no lower than one of their Gaussians: a search from the prior, and one from the best Gaussian.

The bound of a mixture has many maxima. Components that start apart may each end at a worse place than one Gaussian
does that has all rows to itself, and learnt parameters with them. So one Gaussian of the same kind is fitted as well,
and the mixture starts once more from there: at its images under the signs that no density can tell, and from two
halves of it on either side along the directions in which it is widest. Under the pairwise bound of the entropy equal
components are worth as much as one of them, which is what is left where nothing is higher.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpdsl.inference.attempts import Engine, Parameters, attempt
from gpdsl.inference.driver import Task, drive
from gpdsl.inference.natural.profiled import ProfiledSearch
from gpdsl.inference.posteriors.family import Diagonal, Family, Full, Whitened
from gpdsl.inference.problem import Found, Problem, Result, as_arrays
from gpdsl.inference.resolution import begun_at
from gpdsl.program.groups import elements
from gpdsl.symbolic.coupling import exchanged, mirrored

APART = 0.7
"""Standard deviations from the middle of a Gaussian to the middles of its halves: what makes them as wide as it is."""

IMAGES = 1.0
"""Distance, in prior standard deviations, from which a mean and its image under a change of signs are two places."""

CHANGES = 6
"""Of which all together are images, at most."""

MOST = 8
"""Directions of each latent that components may be apart along."""

WORTH = 1e-6
"""Share of the bound that rounding, and where searches stop, may make of equal components."""

NONE_HIGHER = "one Gaussian is as good: all components of the mixture are the same"


def exact_parameters(family: Family, task: Task, fit: Callable[[Task], Found]) -> Parameters | None:
    """The learnt parameters of greatest exact evidence, where one Gaussian is exact; `fit` is `infer`.

    A mixture of full covariances has nothing to add there, and is not to end at a lower maximum over parameters.
    """
    program, options = task.program, task.options
    if not isinstance(family, Full) or not program.conjugate or options.inducing or program.opaque:
        return None
    found = fit(Task(program, task.data, replace(options, posterior="auto", optimizer="auto")))
    return found.result.parameters if found.choice.exact else None


def attempt_mixture(problem: Problem, engine: Engine, known: Parameters | None) -> Result:
    """The best of the searches for a mixture; what goes on from a posterior has its start, and opaque calls cost.

    `known` are parameters at which one Gaussian is to be looked at as well.
    """
    if problem.begun is not None or problem.program.opaque or not problem.program.groups:
        return attempt(problem, engine)
    tried: list[_Tried] = []
    searches: tuple[Callable[[], Result], ...] = (
        lambda: _one_gaussian(problem, engine, known),
        lambda: attempt(problem, engine),
        lambda: engine(_from_one(problem, tried[0].result)),
    )
    for search in searches:
        problem.monitor.history.clear()
        result = search()
        problem.monitor.ended(result)
        tried.append(_Tried(result, tuple(problem.monitor.history)))
        if result.interrupted or not np.isfinite(tried[0].value):
            break
    return _best(problem, tried)


@dataclass(frozen=True)
class _Tried:
    """The result of a search, and its history."""

    result: Result
    history: tuple[tuple[int, float, float], ...]

    @property
    def value(self) -> float:
        """Its bound."""
        return self.result.elbo if np.isfinite(self.result.elbo) else -np.inf


def _best(problem: Problem, tried: list[_Tried]) -> Result:
    """Of searches the first of which had one Gaussian; a mixture of equal ones is the last resort."""
    one, *others = tried
    best = max(others or tried, key=lambda each: each.value)
    if problem.layout.entropy == "pairwise" and one.value > best.value + WORTH * abs(one.value):
        best = replace(one, result=replace(one.result, message=f"{one.result.message}; {NONE_HIGHER}"))
    problem.monitor.history[:] = best.history
    return replace(best.result, interrupted=any(each.result.interrupted for each in tried))


# --- one Gaussian -------------------------------------------------------------------------------------------------


def _one_gaussian(problem: Problem, engine: Engine, known: Parameters | None) -> Result:
    """One Gaussian of the kind of the components, as a mixture of equal ones; full covariances by natural gradients."""
    family, choice, monitor = problem.layout.family, problem.choice, problem.monitor
    full = isinstance(family, Full)
    natural = full and choice.optimizer == "lbfgs" and problem.options.schedule == "joint"
    single: Family = Full() if full else Diagonal(1, problem.layout.dense)
    choice = replace(choice, posterior="full" if full else "diagonal")
    if natural:
        choice, engine = replace(choice, optimizer="natural"), lambda one: drive(one.monitor, ProfiledSearch(one))
    kept = monitor.keep
    if kept is not None:  # a file has a mixture in it whenever the fit ends
        keep = kept
        monitor.keep = lambda state, ended: keep(lambda: alike(state(), family.components), ended)
    one = replace(problem, layout=replace(problem.layout, family=single), choice=choice)
    try:
        found = attempt(one, engine)
        if known is not None and not found.interrupted:
            there = engine(replace(one, parameters=as_arrays(known, one.options.dtype)))
            found = max(found, there, key=lambda each: each.elbo if np.isfinite(each.elbo) else -np.inf)
    finally:
        monitor.keep = kept
    return alike(found, family.components)


def alike(result: Result, components: int) -> Result:
    """A result of one Gaussian as a mixture of equal ones."""
    posterior = [
        Whitened(np.repeat(q.mean, components, axis=0), np.repeat(q.root, components, axis=0)) for q in result.posterior
    ]
    return replace(result, posterior=posterior, weights=np.full(components, 1.0 / components))


# --- a mixture from there -----------------------------------------------------------------------------------------


def _from_one(problem: Problem, result: Result) -> Problem:
    """The problem from where one Gaussian has ended, its images and its halves as components."""
    apart = replace(result, posterior=parted(problem, result.posterior))
    return replace(problem, **begun_at(problem, apart), continued=True)


def parted(problem: Problem, posterior: list[Whitened]) -> list[Whitened]:
    """Equal components moved apart: over the images of their mean, and along the widest directions of each."""
    images = _images(problem, posterior)
    directions = _widest(posterior)
    found, roots = [np.array(q.mean) for q in posterior], [np.array(q.root) for q in posterior]
    components = len(found[0])
    for number in range(components):
        image, turn = number % len(images), number // len(images)
        for mean, root, (order, sign) in zip(found, roots, images[image], strict=True):
            mean[number] = sign[:, None] * mean[number, order]
            root[number] = root[number, order]
        last = number + len(images) >= components and turn % 2 == 0  # the other half of it is not there
        if last:
            continue
        group, latent, direction = directions[(turn // 2) % len(directions)]
        found[group][number, latent] += APART * (1 if turn % 2 == 0 else -1) * direction
    return [Whitened(mean, root) for mean, root in zip(found, roots, strict=True)]


Image = list[tuple[np.ndarray, np.ndarray]]
"""Of each group: from which of its latents each has its values, and their signs."""


def _images(problem: Problem, posterior: list[Whitened]) -> list[Image]:
    """All together of what no density can tell and moves the mean: exchanges and signs of latents, signs first."""
    program = problem.program
    read = program.translator, program.observations
    changes: list[Image] = []
    for pair in exchanged(*read):
        orders = [np.arange(group.size) for group in program.groups]
        for group, order in zip(program.groups, orders, strict=True):
            one, other = (np.flatnonzero(elements(program.translator, group, *each)) for each in pair)
            if len(one) == len(other):  # they may be in two groups
                order[[*one, *other]] = [*other, *one]
        changes.append([(order, np.ones(len(order))) for order in orders])
    for names in mirrored(*read):
        own = [
            np.any([elements(program.translator, group, name) for name in names], axis=0) for group in program.groups
        ]
        changes.append([(np.arange(len(some)), np.where(some, -1.0, 1.0)) for some in own])
    means = [np.asarray(q.mean[0]) for q in posterior]
    moving: list[Image] = []
    for change in changes:
        moved = [sign[:, None] * mean[order] - mean for mean, (order, sign) in zip(means, change, strict=True)]
        if len(moving) < CHANGES and np.sqrt(sum(float(np.sum(each**2)) for each in moved)) > IMAGES:
            moving.append(change)
    images = []
    for chosen in itertools.product((False, True), repeat=len(moving)):
        image = [(np.arange(group.size), np.ones(group.size)) for group in program.groups]
        for change in itertools.compress(moving, chosen):
            image = [(o[order], s[order] * sign) for (o, s), (order, sign) in zip(image, change, strict=True)]
        images.append(image)
    return images


def _widest(posterior: list[Whitened]) -> list[tuple[int, int, np.ndarray]]:
    """Directions along which one Gaussian is widest, the widest first: group, latent, and one standard deviation."""
    found = []
    for group, q in enumerate(posterior):
        for latent, root in enumerate(np.asarray(q.root[0], float)):
            if root.shape[1] == 1 and root.shape[0] > 1:  # row variables
                place = int(np.argmax(np.abs(root[:, 0])))
                found.append((float(abs(root[place, 0])), group, latent, np.eye(len(root))[place] * root[place, 0]))
                continue
            left, sizes, _ = np.linalg.svd(root)
            found += [(float(size), group, latent, size * left[:, k]) for k, size in enumerate(sizes[:MOST])]
    found.sort(key=lambda each: -each[0])
    return [each[1:] for each in found]
