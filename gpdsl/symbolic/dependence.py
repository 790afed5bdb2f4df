"""Which quantities differ between rows, and which unobserved ones a quantity depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpdsl.language import model as m


def kernel_expressions(kernel: m.Kernel) -> Iterator[m.Expression]:
    """Every expression inside a covariance function: its parameters, factors and what it sees of the inputs."""
    for each in m.every_kernel(kernel):
        match each:
            case m.KernelCall(arguments=arguments, on=on):
                yield from (*arguments.values(), *on)
            case m.KernelFormula(arguments=arguments, on=on, body=body):
                yield from (*arguments.values(), *on, body)
            case m.KernelScale(factor=factor):
                yield factor


def row_quantities(declarations: m.Declarations) -> frozenset[str]:
    """The quantities that have a value of their own in each row."""
    d = declarations
    fields = {latent.name for latent in d.fields}
    varying = {*d.inputs, *d.outputs, *d.rows, *d.latents} - fields
    for name, let in d.lets.items():  # in source order: what a `let` reads, besides itself, stands before it
        if any(read.name in varying for case in let.cases for read in m.reads_of(case.body)):
            varying.add(name)
    return frozenset(varying)


def origins(declarations: m.Declarations, name: str, wanted: set[str]) -> list[str]:
    """Those of the `wanted` quantities that a `let` is computed from, through other `let`s, in order of reading."""
    found: list[str] = []
    waiting, seen = [name], {name}
    while waiting:
        for case in declarations.lets[waiting.pop()].cases:
            for read in m.reads_of(case.body):
                if read.name in wanted and read.name not in found:
                    found.append(read.name)
                if read.name in declarations.lets and read.name not in seen:
                    seen.add(read.name)
                    waiting.append(read.name)
    return found


def inputs_behind(declarations: m.Declarations, names: Iterable[str]) -> set[str]:
    """The inputs that some quantities are functions of, through everything that they are computed from."""
    d = declarations
    found, waiting, seen = set(), [*names], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in d.inputs:
            found.add(name)
        reads = list(_read_for(d, name))
        waiting += [each.name for each in reads]
        for each in reads:
            waiting += each.functional.at
            waiting += [subscript.input for subscript in each.subscripts if isinstance(subscript, m.At)]
        if name in d.latents:
            waiting += d.latents[name].arguments
    return found


def _read_for(d: m.Declarations, name: str) -> Iterator[m.Read]:
    """What one quantity reads directly."""
    if name in d.lets:
        for case in d.lets[name].cases:
            yield from m.reads_of(case.body)
    if name in d.latents:
        yield from m.reads_of(d.latents[name].mean)
    for observation in d.observations:
        if name in observation.outputs:
            yield from observation.distribution.reads()


def unobserved(declarations: m.Declarations, call: m.DistributionCall) -> list[str]:
    """Latents and row variables that a distribution depends on, directly or through `let`s."""
    d = declarations
    wanted = {*d.latents, *d.rows}
    found: dict[str, None] = {}
    for read in call.reads():
        names = origins(d, read.name, wanted) if read.name in d.lets else [read.name]
        found |= dict.fromkeys(name for name in names if name in wanted)
    return list(found)
