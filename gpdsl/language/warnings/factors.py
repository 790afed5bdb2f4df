"""Where parameters and latents stand as factors of a product or terms of a sum, all over a model.

A root is a largest product (or sum): each name in it with its power (or its sign). Two names whose entries are in one
and the same proportion in every root they occur in can be traded against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from gpdsl.language import model as m
from gpdsl.language.errors.base import Mistake
from gpdsl.language.warnings.cautions import Absorbed, OnlyProduct, OnlySum, value_of

Root = Mapping[str, float]
Roots = Mapping[str, list[Root]]


def expressions(declarations: m.Declarations) -> Iterator[m.Expression]:
    """Every value of a model that is no covariance function; a function of the file where it is called."""
    for latent in declarations.latents.values():
        yield latent.mean
        yield from _of_kernel(latent.kernel)
    for let in declarations.lets.values():
        yield from (case.body for case in let.cases)
    for row in declarations.rows.values():
        yield from row.distribution.expressions()
    for observation in declarations.observations:
        yield from observation.distribution.expressions()
        if observation.transform is not None:
            yield observation.transform


def _of_kernel(kernel: m.Kernel) -> Iterator[m.Expression]:
    """What stands inside the kernels of a covariance function, without the factors before them."""
    match kernel:
        case m.KernelCall(name="Linear", arguments=arguments):
            yield from (value for name, value in arguments.items() if name != "ell")
        case m.KernelCall(arguments=arguments, kernels=inside, on=on):
            yield from arguments.values()
            yield from on
            for each in inside:
                yield from _of_kernel(each)
                yield from _every_factor(each)
        case m.KernelFormula(body=body, on=on):
            yield from (body, *on)
        case _:
            for each in m.kernels_in(kernel):
                yield from _of_kernel(each)


def _every_factor(kernel: m.Kernel) -> Iterator[m.Expression]:
    yield from (factor for factor, _ in scale_of(kernel))
    for term in _sums_inside(kernel):
        yield from _every_factor(term)


def products(declarations: m.Declarations) -> list[Root]:
    """Every largest product, by name and power; the scale of each covariance function is one."""
    found = [each for latent in declarations.latents.values() for each in _kernel_products(latent.kernel)]
    found += ([(each, 1.0)] for each in expressions(declarations))
    return [root for parts in found for root in _collected(declarations, parts, _factors)]


def sums(declarations: m.Declarations) -> list[Root]:
    """Every largest sum, by name and sign."""
    kernels = [each for latent in declarations.latents.values() for each in _kernel_products(latent.kernel)]
    found = [*(factor for factors in kernels for factor, _ in factors), *expressions(declarations)]
    return [root for each in found for root in _collected(declarations, [(each, 1.0)], _terms)]


def scale_of(kernel: m.Kernel) -> list[tuple[m.Expression, float]]:
    """The factors before a whole covariance function, with their powers; those inside the terms of a sum are not."""
    match kernel:
        case m.KernelScale(factor=factor, kernel=inside):
            return [(factor, 1.0), *scale_of(inside)]
        case m.KernelProduct(factors=several):
            return [each for inside in several for each in scale_of(inside)]
        case m.KernelCall(name="Linear", arguments=arguments) if "ell" in arguments:
            return [(arguments["ell"], -2.0)]
    return []


def _kernel_products(kernel: m.Kernel) -> Iterator[list[tuple[m.Expression, float]]]:
    yield scale_of(kernel)
    for term in _sums_inside(kernel):
        yield from _kernel_products(term)


def _sums_inside(kernel: m.Kernel) -> Iterator[m.Kernel]:
    match kernel:
        case m.KernelSum(terms=terms):
            yield from terms
        case m.KernelScale(kernel=inside):
            yield from _sums_inside(inside)
        case m.KernelProduct(factors=several):
            for each in several:
                yield from _sums_inside(each)


Parts = list[tuple[m.Expression, float]]
Split = Callable[[m.Declarations, m.Expression, float], Parts | None]


def _collected(declarations: m.Declarations, start: Parts, split: Split) -> list[Root]:
    """The root made of some parts, and all roots inside what cannot be split."""
    roots: list[Root] = []
    pending: list[Parts] = [start]
    while pending:
        root: dict[str, float] = {}
        for leaf, power in _leaves(declarations, pending.pop(), split):
            match leaf:
                case m.Read(functional=m.Functional(derivative=(_, *_))) if split is _terms:
                    continue  # a constant added to a latent does not show in its derivative
                case m.Read(functional=m.Functional(integrated=True)) if split is _terms:
                    continue  # and grows with the interval in its integral
                case m.Read(name=name):
                    root[name] = root.get(name, 0.0) + power
                case m.FunctionCall(body=body):
                    pending.append([(body, 1.0)])
                case _:
                    pending += [[(part, 1.0)] for part in m.parts(leaf)]
        if root:
            roots.append(root)
    return roots


def _leaves(declarations: m.Declarations, parts: Parts, split: Split) -> Iterator[tuple[m.Expression, float]]:
    pending = list(parts)
    while pending:
        expression, power = pending.pop()
        inside = split(declarations, expression, power)
        if inside is None:
            yield expression, power
        else:
            pending += inside


def _factors(declarations: m.Declarations, expression: m.Expression, power: float) -> Parts | None:
    match expression:
        case m.Operation(operator="*", operands=(a, b)):
            return [(a, power), (b, power)]
        case m.Operation(operator="/", operands=(a, b)):
            return [(a, power), (b, -power)]
        case m.Operation(operator="neg", operands=(a,)):
            return [(a, power)]
        case m.Operation(operator="sqrt", operands=(a,)):
            return [(a, power / 2)]
        case m.Operation(operator="^", operands=(a, m.Number() as exponent)):
            return [(a, power * (value_of(declarations, exponent) or 0.0))]
        case m.FunctionCall(body=body):
            return [(body, power)]
    return None


def _terms(declarations: m.Declarations, expression: m.Expression, sign: float) -> Parts | None:
    match expression:
        case m.Operation(operator="+", operands=(a, b)):
            return [(a, sign), (b, sign)]
        case m.Operation(operator="-", operands=(a, b)):
            return [(a, sign), (b, -sign)]
        case m.Operation(operator="neg", operands=(a,)):
            return [(a, -sign)]
        case m.FunctionCall(body=body):
            return [(body, sign)]
    return None


def by_name(roots: Iterable[Root]) -> dict[str, list[Root]]:
    """The roots that each name is in."""
    found: dict[str, list[Root]] = {}
    for root in roots:
        for name in root:
            found.setdefault(name, []).append(root)
    return found


def proportion(roots: Roots, a: str, b: str) -> tuple[float, float] | None:
    """The entries of two names when they are in one proportion wherever either occurs, else None."""
    shared: tuple[float, float] | None = None
    for root in (*roots.get(a, ()), *roots.get(b, ())):
        entry = (root.get(a, 0.0), root.get(b, 0.0))
        if 0.0 in entry or (shared is not None and entry[0] * shared[1] != entry[1] * shared[0]):
            return None
        shared = shared or entry
    return shared


# Parameters that no data can tell apart: two scales of one product, two offsets of one sum, a scale of a latent.

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
