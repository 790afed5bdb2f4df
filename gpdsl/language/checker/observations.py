"""`y[p] ~ Normal(f[p], sigma)`: outputs tied to latents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

from gpdsl.errors import plural
from gpdsl.language import model as m, syntax
from gpdsl.language.checker.distributions import check_distribution
from gpdsl.language.checker.expressions import check_all
from gpdsl.language.checker.functions import external_arguments, same_dimensions
from gpdsl.language.checker.layers import followed
from gpdsl.language.checker.left import Observed, check_image, check_left, density_call
from gpdsl.language.checker.lets import meet, missing_element, steps, values
from gpdsl.language.checker.scope import Left, Place, Scope, describe_axes
from gpdsl.language.errors.axes import PassedAxes
from gpdsl.language.errors.calls import NotADistribution, UnknownDistribution, WrongArity, WrongKind
from gpdsl.language.errors.definitions import LeftSide, NotObservedElements, OutputCycle
from gpdsl.language.errors.limits import TooManyObservations
from gpdsl.language.errors.names import NotReadable, ObservedTwice
from gpdsl.language.habits import DISTRIBUTIONS as HABITS, noise_habit, scale_habit
from gpdsl.language.vocabulary import DISTRIBUTIONS, MAX_CASES, PROCESS, Span

# Which elements of an output each line observes, and in which order outputs that read each other can be drawn.


def guards_of(scope: Scope, observation: m.Observation, name: str) -> tuple[m.Guard, ...]:
    """One guard per declared axis of an output of a statement: `t[2] ~ ...` is a guard too."""
    axes, left = scope.outputs[name].axes, list(observation.guards)
    found = []
    subscripts = observation.subscripts or (None,) * len(axes)
    for subscript, axis in zip(subscripts, axes, strict=True):
        if isinstance(subscript, m.Fixed):
            found.append(m.Guard(axis.name or "", "==", subscript.position))
        else:
            found.append(left.pop(0) if left else m.Guard(axis.name or ""))
    return tuple(found)


def _box(scope: Scope, observation: m.Observation, name: str, sizes: Sequence[int]) -> list[frozenset[int]]:
    sized = [m.Axis(axis.name, size=size) for axis, size in zip(scope.outputs[name].axes, sizes, strict=True)]
    return [_covered(guard, axis) for guard, axis in zip(guards_of(scope, observation, name), sized, strict=True)]


@lru_cache(maxsize=1024)
def _covered(guard: m.Guard, axis: m.Axis) -> frozenset[int]:
    return frozenset(values(guard, axis))


def _sizes(scope: Scope, name: str, observations: Sequence[m.Observation]) -> list[int]:
    """The sizes of an output's axes; one that data bind counts as a little longer than every number in the file."""
    sizes = []
    for position, axis in enumerate(scope.outputs[name].axes):
        numbers = [guards_of(scope, each, name)[position].value for each in observations]
        sizes.append(axis.size if axis.size is not None else max(numbers, default=0) + 2)
    return sizes


def check_elements(scope: Scope, seen: Sequence[m.Observation], wrong: Collection[str]) -> None:
    """Where conditions choose elements, every element is observed by some line. Of `wrong` outputs a line failed."""
    for name in scope.outputs.keys() - wrong:
        own = [each for each in seen if name in each.outputs]
        conditional = next((each for each in own if each.guards), None)
        if conditional is None or name in scope.lost:
            continue
        sizes = _sizes(scope, name, own)
        boxes = [_box(scope, each, name, sizes) for each in own]
        missing = missing_element(boxes, [frozenset(range(1, size + 1)) for size in sizes])
        if missing is not None:
            scope.problems.add(NotObservedElements(conditional.span, name, ", ".join(map(str, missing))))


# --- outputs that read outputs ----------------------------------------------------------------------------------


def check_order(scope: Scope, seen: Sequence[m.Observation]) -> None:
    """Outputs must be drawable one after the other: no cycle among them, and one way along an index inside one."""
    edges: dict[str, dict[str, Span]] = {}
    for observation in seen:
        for read in output_reads(scope, observation):
            if scope.outputs[read.name].label is not None:
                advice = "the right side may read outputs whose values are numbers"
                what = f"an output of levels (`{scope.outputs[read.name].kind}`)"
                scope.problems.add(NotReadable(read.span, read.name, what, "an observation", advice))
            for name in observation.outputs:
                edges.setdefault(name, {}).setdefault(read.name, read.span)
    for name in scope.outputs:
        if name in edges.get(name, {}):
            _check_own(scope, name, seen)
    if edges:
        _check_cycles(scope, {name: {k: v for k, v in to.items() if k != name} for name, to in edges.items()})


def output_reads(scope: Scope, observation: m.Observation) -> list[m.Read]:
    """Every output read on the right of a statement."""
    found = [*observation.distribution.reads()]
    own = observation.outputs[0], observation.subscripts
    density = observation.distribution.log_density
    if density is not None:
        # The formula of a density holds what stands left of `~` too.
        found += [read for read in m.reads_of(density) if (read.name, read.subscripts) != own]
    return [read for read in found if read.name in scope.outputs]


def _check_own(scope: Scope, name: str, seen: Sequence[m.Observation]) -> None:
    axes = scope.outputs[name].axes
    own = [(each, read) for each in seen if name in each.outputs for read in output_reads(scope, each)]
    own = [(each, read) for each, read in own if read.name == name]
    guarded = [(guards_of(scope, each, name), read) for each, read in own]
    for position, sign in product(range(len(axes)), (1, -1)):
        if all(steps(guards[position], axes[position], read, position, sign) for guards, read in guarded):
            return
    shown = scope.quote(own[0][1].span).strip("`")
    scope.problems.add(OutputCycle(own[0][1].span, name, f"`{shown}` is not always an earlier element"))


def _check_cycles(scope: Scope, edges: dict[str, dict[str, Span]]) -> None:
    for name, span, cycle in followed({each: [*to.items()] for each, to in edges.items()}):
        if span is not None:
            shown = " → ".join(f"`{each}`" for each in (*cycle, name))
            scope.problems.add(OutputCycle(span, name, shown))
            return


def _added(scope: Scope, formula: syntax.Formula) -> str:
    """What to write instead of a distribution that something is added to; empty where there is none."""
    terms, sums, whole = list[syntax.Formula](), True, scope.quote(formula.span).strip("`")
    while isinstance(formula, syntax.Binary):
        terms, sums, formula = [formula.right, *terms], sums and formula.operator == "+", formula.left
    calls = [each for each in (formula, *terms) if isinstance(each, syntax.Call)]
    laws = [each for each in calls if each.function.text in DISTRIBUTIONS]
    if not laws:
        known = next(filter(None, (HABITS.of(each.function.text) for each in calls)), "")
        return known or _without_law(scope, [formula, *terms] if sums else [], whole)
    name, given = laws[0].function.text, laws[0].arguments
    at = next((i for i, each in enumerate(DISTRIBUTIONS[name].parameters) if each.name == "mean"), len(given))
    others = [each for each in (formula, *terms) if each is not laws[0]]
    shown = [scope.quote(each.span).strip("`") for each in (*given, *others)]
    alone = len(laws) == 1 and not any(each.function.text == PROCESS for each in calls)
    plain = sums and alone and DISTRIBUTIONS[name].support == "real"
    if not plain or at >= len(given) or "this" in shown or any(each.name for each in given):
        return noise_habit(name)
    mean = shown[at : at + 1] if shown[at] != "0" else []
    inside = [*shown[:at], " + ".join([*shown[len(given) :], *mean]), *shown[at + 1 : len(given)]]
    return noise_habit(name, f"{name}({', '.join(inside)})")


def _without_law(scope: Scope, terms: list[syntax.Formula], whole: str) -> str:
    """What to write instead of a formula of R, `y ~ x + z`, or of another value alone."""
    names = [each.identifier.text for each in terms if isinstance(each, syntax.Name)]
    if terms and len(names) == len(terms) and all(scope.sorts.get(each) == "input" for each in names):
        line = " + ".join(f"b_{each} * {each}" for each in names)
        return f"a regression is written out: `y ~ Normal(a + {line}, sigma)`, with `param a : real` and the like"
    last = names[-1] if len(terms) > 1 and isinstance(terms[-1], syntax.Name) else ""
    noise = last if scope.sorts.get(last) == "param" and scale_habit(last) else ""
    whole = " + ".join(scope.quote(each.span).strip("`") for each in terms[:-1]) if noise else whole
    law = f"Normal({whole}, {noise or 'sigma'})"
    return "" if whole == "this" else f"a value is an argument of the distribution of the output: `{law}`"


READABLE = frozenset({"const", "param", "input", "row", "latent", "let", "external"})


def check_observation(scope: Scope, statement: syntax.ObservationStatement, seen: list[m.Observation]) -> None:
    """Check one `~` statement and append it to those `seen`."""
    observed = [check_left(scope, part, statement.distribution) for part in statement.left]
    call = statement.distribution
    if not isinstance(call, syntax.Call):
        scope.problems.fail(NotADistribution(call.span, _added(scope, call)))
    name = call.function.text
    if name in scope.likelihoods:
        distribution = _external(scope, call, observed, scope.likelihoods[name])
    elif scope.sorts.get(name) == "density" and name not in scope.lost:
        distribution = _by_formula(scope, call, observed)
    elif name in DISTRIBUTIONS:
        distribution = _known(scope, call, observed)
    else:
        _unknown(scope, call, observed[0].output)
    axes = observed[0].axes
    subscripts = observed[0].subscripts if len(observed) == 1 else ()
    names = tuple(each.output.name for each in observed)
    guards = observed[0].guards if len(observed) == 1 else ()
    transform = observed[0].transform if len(observed) == 1 else None
    new = m.Observation(names, axes, distribution, statement.span, subscripts, guards, transform)
    for each in observed:
        # No element of an output is observed by two lines.
        name = each.output.name
        earlier = scope.observed.setdefault(name, [])
        if len(earlier) == MAX_CASES:
            scope.lost.add(name)  # said once
            scope.problems.fail(TooManyObservations(each.span, name, MAX_CASES))
        guards = guards_of(scope, new, name)
        for line, old in earlier:
            if all(map(meet, old, guards, each.output.axes)):
                scope.problems.fail(ObservedTwice(each.span, name, line))
        earlier.append((new.span.line, guards))
    seen.append(new)


def _known(scope: Scope, call: syntax.Call, observed: list[Observed]) -> m.DistributionCall:
    entry = DISTRIBUTIONS[call.function.text]
    if len(observed) > 1:
        _refuse_several(scope, observed, entry.name)
    left = observed[0]
    output = left.output
    if left.kind not in entry.kinds:
        choices = ", ".join(each.name for each in DISTRIBUTIONS.values() if left.kind in each.kinds)
        name = output.name if left.transform is None else scope.quote(left.span).strip("`")
        what = name, left.kind, output.span.line, entry.name, " and ".join(entry.kinds) or "no"
        scope.problems.fail(WrongKind(call.function.span, *what, choices))
    place = _place(scope, left)
    if left.transform is not None:
        if entry.support == "vector":
            remedy = f"give each element a distribution of its own: `log({output.name}) ~ Normal(...)`"
            scope.problems.fail(LeftSide(left.span, f"`{entry.name}` describes a whole vector", remedy))
        output = replace(output, kind=left.kind)
    found = check_distribution(scope, place, call, left.axes, output)
    if left.transform is not None:
        check_image(scope, left, left.transform, found)
    return found


def _place(scope: Scope, left: Observed) -> Place:
    text, name = scope.quote(left.span).strip("`"), left.output.name
    shown = Left("observation", name, text, tuple(left.bound()))
    return Place(f"an observation of `{name}`", READABLE | {"output"}, shown, left.bound())


def _by_formula(scope: Scope, call: syntax.Call, observed: list[Observed]) -> m.DistributionCall:
    name = call.function.text
    if len(observed) > 1:
        _refuse_several(scope, observed, name)
    return density_call(scope, _place(scope, observed[0]), call, observed[0])


def _refuse_several(scope: Scope, observed: list[Observed], name: str) -> None:
    expected, form = "one output on its left", f"y ~ {name}(...)"
    scope.problems.fail(WrongArity(observed[1].span, name, expected, len(observed), form))


def _unknown(scope: Scope, call: syntax.Call, output: m.Output) -> None:
    name = call.function.text
    if name in scope.lost:
        scope.problems.give_up()
    fitting = [each.name for each in DISTRIBUTIONS.values() if output.kind in each.kinds]
    suggestion = scope.problems.suggest(name, [*DISTRIBUTIONS, *scope.likelihoods, *scope.densities])
    scope.problems.fail(UnknownDistribution(call.function.span, name, ", ".join(fitting), suggestion, HABITS.of(name)))


def _external(
    scope: Scope, call: syntax.Call, observed: list[Observed], likelihood: m.ExternalLikelihood
) -> m.DistributionCall:
    """An opaque density sees whole outputs, of the declared dimensions, in the declared order."""
    name = likelihood.name
    if len(observed) != len(likelihood.observed):
        expected = f"{plural(len(likelihood.observed), 'output')} on its left"
        shown = ", ".join(each.name for each in likelihood.observed)
        scope.problems.fail(WrongArity(observed[0].span, name, expected, len(observed), f"({shown}) ~ {name}(...)"))
    for each, declared in zip(observed, likelihood.observed, strict=True):
        if not each.plain or not same_dimensions(each.axes, declared.axes):
            given = describe_axes(each.axes) if each.plain else "a single element"
            scope.problems.fail(PassedAxes(each.span, name, declared.name, describe_axes(declared.axes), given))
    left = Left("observation", observed[0].output.name, observed[0].output.name)
    place = Place(f"an argument of `{name}`", READABLE, left)
    arguments = external_arguments(scope, place, call, likelihood.arguments, check_all)
    by_name = {declared.name: given for declared, given in zip(likelihood.arguments, arguments, strict=True)}
    return m.DistributionCall(name, by_name, call.span, external=True)
