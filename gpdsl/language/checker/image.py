"""Whether a transformed left side reaches every value its distribution allows: else that is no density.

`sqrt(y) ~ Normal(f, s)` gives probability to roots below zero, which no output has: the density of `y` does not
integrate to one, and by how little it misses depends on the latents and parameters that are learnt.
"""

from __future__ import annotations

import math

from gpdsl.language import model as m
from gpdsl.language.checker.left import Observed, names_in
from gpdsl.language.checker.monotone import RANGES, Tables
from gpdsl.language.checker.scope import Scope
from gpdsl.language.checker.trial import value_at
from gpdsl.language.errors.definitions import NotReached
from gpdsl.language.vocabulary import DISTRIBUTIONS

GROWS = 0.01
"""Of a value: what it must change by between the last two points towards an end to be counted as going on for ever."""

SLACK = 1e-6

_FAR = tuple(10.0**k for k in (1, 2, 4, 8, 16, 32, 64, 100))
_NEAR = tuple(10.0**-k for k in (1, 2, 4, 8, 16, 32, 64, 100))
_ENDS = {
    "real": ([-each for each in _FAR], list(_FAR)),
    "positive": (list(_NEAR), list(_FAR)),
    "unit": (list(_NEAR), [1 - 10.0**-k for k in (1, 2, 4, 8, 12, 15)]),
}
"""Points that go towards the lower and the upper end of each kind of output."""

_FITTING = {
    "real": "`{name}` itself reaches every real number, and so does `{name} + a*tanh(b*{name})` with a, b positive",
    "positive": "`log({name})` reaches every real number",
    "unit": "`log({name}/(1 - {name}))` reaches every real number",
}

Range = tuple[float, float]


def check_image(scope: Scope, observed: Observed, call: m.DistributionCall) -> None:
    """Report a distribution with probability where the transform left of it never comes."""
    if observed.transform is None:
        return
    reached = image(scope, observed.transform, observed.output)
    allowed = _support(scope, call)
    if reached is None or (_covers(reached[0], allowed[0]) and _covers(-reached[1], -allowed[1])):
        return
    low, high = max(reached[0], allowed[0]), min(reached[1], allowed[1])
    bounds = [f"{word} = {end:.4g}" for word, end in (("lower", low), ("upper", high)) if math.isfinite(end)]
    fitting = _FITTING[observed.output.kind].format(name=observed.output.name)
    where, takes = _words(reached), _words(allowed)
    remedy = f"{fitting}; or leave no probability elsewhere: `Truncated({call.name}(...), {', '.join(bounds)})`"
    if call.name in ("Truncated", "Censored"):
        remedy = f"{fitting}; or set the bounds to {', '.join(bounds)}"
    shown = scope.quote(observed.span).strip("`")
    scope.problems.fail(NotReached(observed.span, shown, where, call.name, takes, observed.output.name, remedy))


def beyond(tables: Tables, observation: m.Observation) -> bool:
    """Whether a distribution of the table has probability where its output, as it is, cannot be."""
    call, kind = observation.distribution, tables.outputs[observation.outputs[0]].kind
    if call.external or call.log_density is not None or observation.transform is not None or kind not in _ENDS:
        return False
    own, allowed = RANGES[kind], _support(tables, call)
    return not (_covers(own[0], allowed[0]) and _covers(-own[1], -allowed[1]))


def _covers(end: float, needed: float) -> bool:
    return end <= needed + SLACK * max(1.0, abs(end)) if math.isfinite(end) else True


def _words(ends: Range) -> str:
    low, high = ends
    if math.isfinite(low) and math.isfinite(high):
        return f"from {low:.4g} to {high:.4g}"
    if math.isfinite(low):
        return f"above {low:.4g}"
    return f"below {high:.4g}" if math.isfinite(high) else "everywhere"


def image(tables: Tables, transform: m.Expression, output: m.Output) -> Range | None:
    """The values between which a transform lies at the initial parameters; None where they cannot be computed."""
    ends = []
    for points in _ENDS[output.kind]:
        try:
            values = [value_at(tables, transform, y) for y in points]
        except (KeyError, IndexError, TypeError):
            return None
        finite = [each for each in values if math.isfinite(each)]
        if len(finite) < 2:
            return None
        ends.append(_limit(finite, complete=len(finite) == len(values)))
    return min(ends), max(ends)


def _limit(values: list[float], *, complete: bool) -> float:
    """Where values go: to the last of them, or for ever on; also where one was too large for a number."""
    before, last = values[-2:]
    moves = abs(last - before) > GROWS * max(1.0, abs(last))
    return math.copysign(math.inf, last - before) if moves or not complete else round(last, 12) + 0.0


def _support(tables: Tables, call: m.DistributionCall) -> Range:
    """The values a distribution gives probability to; a bound that only data tell is taken for granted."""
    if not call.components:
        return RANGES.get(DISTRIBUTIONS[call.name].support, RANGES["real"])
    inside = [_support(tables, each) for each in call.components]
    low, high = min(each[0] for each in inside), max(each[1] for each in inside)
    bounds = [_bound(tables, call, name) for name in ("lower", "upper")]
    return (low if bounds[0] is None else max(low, bounds[0]), high if bounds[1] is None else min(high, bounds[1]))


def _bound(tables: Tables, call: m.DistributionCall, name: str) -> float | None:
    if name not in call.arguments:
        return None
    written = call.arguments[name]
    if any(each in tables.inputs for each in names_in(written)):
        return math.inf if name == "lower" else -math.inf
    return value_at(tables, written, 0.0)
