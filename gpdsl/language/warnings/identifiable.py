"""Parameters that no data can tell apart: two scales of one product, two offsets of one sum, a scale of a latent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.warnings.cautions import Absorbed, OnlyProduct, OnlySum
from gpdsl.language.warnings.factors import Roots, by_name, products, proportion, scale_of, sums

MAX_PARAMETERS = 60
"""Beyond it pairs are not compared: a generated model has no reader."""


def same_thing_twice(declarations: m.Declarations) -> Iterator[Mistake]:
    """A warning for each pair of learnt parameters without prior that can be traded against each other exactly.

    Nothing is said unless it is certain: every place where one occurs must hold the other, in the same proportion.
    """
    free = [
        each.name
        for each in declarations.params.values()
        if not each.fixed and each.prior is None and each.constraint in ("real", "positive", "unit")
    ]
    if len(free) > MAX_PARAMETERS:
        return
    in_products, in_sums = by_name(products(declarations)), by_name(sums(declarations))
    said: set[str] = set()
    for first, second in combinations(free, 2):
        if said & {first, second}:
            continue
        span = declarations.params[second].span
        powers = proportion(in_products, first, second)
        signs = proportion(in_sums, first, second)
        if powers is not None and _scales(declarations, first, second):
            said |= {first, second}
            yield OnlyProduct(span, first, second, _together(first, second, powers, "*", "/"))
        elif signs is not None and _shifts(declarations, first, second):
            said |= {first, second}
            yield OnlySum(span, first, second, _together(first, second, signs, "+", "-"))
    for latent in declarations.latents.values():
        yield from _absorbed(declarations, latent, [each for each in free if each not in said], in_products, in_sums)


def _scales(declarations: m.Declarations, *names: str) -> bool:
    """Whether multiplying all values of a parameter by a number leaves its values possible."""
    return all(_unbounded(declarations.params[name]) for name in names)


def _shifts(declarations: m.Declarations, *names: str) -> bool:
    """Whether adding to a parameter is possible; only one without axes, since a sum must move as one."""
    return all(_unbounded(declarations.params[name]) and not declarations.params[name].axes for name in names)


def _unbounded(param: m.Param) -> bool:
    return param.lower is None and param.upper is None


def _together(first: str, second: str, entries: tuple[float, float], same: str, opposite: str) -> str:
    a, b = entries
    if abs(a) == abs(b):
        return f"`{first} {same if a * b > 0 else opposite} {second}`"
    a, b = (abs(a), abs(b))
    ratio = a / b if a > b else b / a
    names = (f"{first}^{ratio:g}", second) if a > b else (first, f"{second}^{ratio:g}")
    return f"`{names[0]} {same if entries[0] * entries[1] > 0 else opposite} {names[1]}`"


def _absorbed(
    declarations: m.Declarations,
    latent: m.Latent,
    free: Sequence[str],
    in_products: Roots,
    in_sums: Roots,
) -> Iterator[Mistake]:
    """`a * f` where f has a variance of its own; `f + b` where f has a mean of its own."""
    if any(latent.name in each.arguments for each in declarations.latents.values()):
        return
    variances = [each.name for each, _ in scale_of(latent.kernel) if isinstance(each, m.Read) and each.name in free]
    zero_mean = isinstance(latent.mean, m.Number) and latent.mean.value == 0
    means = [latent.mean.name] if isinstance(latent.mean, m.Read) and latent.mean.name in free else []
    for name in free:
        span = declarations.params[name].span
        for inner in variances if zero_mean else []:
            together = proportion(in_products, name, latent.name)
            if inner != name and len(in_products[inner]) == 1 and together and _scales(declarations, name, inner):
                yield Absorbed(span, name, inner, latent.name, "variance")
                return
        for inner in means:
            together = proportion(in_sums, name, latent.name)
            if inner != name and len(in_sums[inner]) == 1 and together and _shifts(declarations, name, inner):
                yield Absorbed(span, name, inner, latent.name, "mean")
                return
