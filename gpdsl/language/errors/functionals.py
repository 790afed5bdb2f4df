"""E350 to E359, E385, E386: latents at other inputs, derivatives, integrals, row variables, latents over latents."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named, OfKernel, OfLatent


class NotAPoint(OfLatent, code="E350"):
    """`f(a)` where `a` is not a declared input."""

    argument: str
    declared: str
    suggestion: str = ""
    message: ClassVar = "`{latent}` can be taken at a declared input, and this is not one"
    label: ClassVar = "expected the name of an input shaped like `{argument}`"
    help: ClassVar = "declare the other point, `input {argument}2 : {declared}`, and write `{latent}({argument}2)`"


class WrongShape(OfLatent, code="E351"):
    """`f(a)` where `a` has other columns than the latent's own argument."""

    name: str
    shape: str
    argument: str
    wanted: str
    message: ClassVar = "`{latent}` is a function of `{argument} : {wanted}`, but `{name}` is `{shape}`"
    label: ClassVar = "another shape than `{argument}`"
    help: ClassVar = "declare `input {name} : {wanted}`"


class NotALatent(Mistake, code="E352"):
    """`D(y, x)` or `integral(y, a, b)` where `y` is not a latent."""

    what: str
    latents: str
    does: str
    example: str
    remedy: str
    message: ClassVar = "{does} a latent, and this is {what}"
    label: ClassVar = "expected a latent"
    help: ClassVar = "write `{example}` with the name of a latent{latents}; {remedy}"


class NotADirection(OfLatent, code="E353"):
    """`D(f, z)` where `f` is not a function of `z`."""

    arguments: str
    example: str
    message: ClassVar = "`{latent}` can be differentiated along {arguments}, not along this"
    label: ClassVar = "not an argument of `{latent}` here"
    help: ClassVar = "write `{example}`"


class WrongColumn(Named, code="E354"):
    """`D(f, x)` for an input of several columns, `D(f, x[9])` for one of three."""

    shape: str
    remedy: str
    message: ClassVar = "a derivative is along one column, and `{name}` is `{shape}`"
    label: ClassVar = "which column?"


class TooRough(OfLatent, code="E355"):
    """The derivative of a process that has none."""

    kernel: str
    line: int
    why: str
    remedy: str
    message: ClassVar = "`{latent}` has no such derivative: {why}"
    label: ClassVar = "the kernel of `{latent}` is `{kernel}`, line {line}"


class LatentCycle(Named, code="E356"):
    """Latents that are functions of each other."""

    cycle: str
    message: ClassVar = "latent `{name}` is a function of itself"
    label: ClassVar = "{cycle}"
    help: ClassVar = "start from an input: `latent f(x) ~ ...`, then `latent g(f) ~ ...`"


class RowNotNormal(Named, code="E357"):
    """`row w ~ Gamma(1, 1)`."""

    message: ClassVar = "a row variable is Normal"
    label: ClassVar = "expected `Normal(mean, sd)`"
    help: ClassVar = (
        "write `row {name} ~ Normal(0, 1)` and transform it: `let g = exp({name})` is positive, "
        "`sigmoid({name})` is between 0 and 1"
    )


class InnerLayer(OfLatent, code="E358"):
    """`f(a)` or `D(f, x)` of a latent over other latents or row variables."""

    argument: str
    what: str
    message: ClassVar = "`{latent}` is a function of `{argument}`, {what}, and known only at the row's own value of it"
    label: ClassVar = "not possible for this latent"
    help: ClassVar = "write `{latent}`; `f(a)` and `D(f, x)` are for latents over inputs"


class TooManyReadings(OfLatent, code="E359"):
    """More points and derivatives of one latent than can be held together."""

    limit: int
    message: ClassVar = "`{latent}` is read in more than {limit} ways"
    label: ClassVar = "one more point or derivative"
    help: ClassVar = "put the points into rows of the data instead of columns, and observe `{latent}` once per row"


class NotIntegrable(OfLatent, code="E385"):
    """The integral of a latent whose covariances have none in closed form."""

    why: str
    remedy: str
    message: ClassVar = "`{latent}` has no integral here: {why}"
    label: ClassVar = "expected a latent of one input, whose kernel has integrals in closed form"


class NotABound(Mistake, code="E386"):
    """`integral(f, a, s)` where `s` is neither an input nor a number."""

    what: str
    latent: str
    message: ClassVar = "an integral is from one input or number to another, and this is {what}"
    label: ClassVar = "expected the name of an input of one column, or a number"
    help: ClassVar = "declare both ends, `input a : real` and `input b : real`, and write `integral({latent}, a, b)`"


# E380 to E383: latents over points that are the same in every row, and the points themselves.


class PointsWithoutIndex(OfLatent, code="E380"):
    """`latent f(node)` over a constant whose points no index numbers, or over several that do not go together."""

    name: str
    why: str
    remedy: str
    message: ClassVar = "`{latent}` cannot be a field over `{name}`: {why}"
    label: ClassVar = "expected points along one index"


class FieldInRow(Named, code="E381"):
    """A field where something with a value in the row is needed, or elsewhere than at its points."""

    why: str
    message: ClassVar = "`{name}` is a field, the same in every row: {why}"
    label: ClassVar = "not possible for a field"
    help: ClassVar = "a field is read whole, `{name}`, or at one of its points, `{name}[1]`"


class NoColumnsOfPoints(OfLatent, code="E382"):
    """`RBF(1, on = node[1])` for a field."""

    message: ClassVar = "the kernel of a field sees all columns of its points"
    label: ClassVar = "`on` has nothing to select from in `{latent}`"
    help: ClassVar = "leave `on` out; a length-scale for each column, `param ell : positive[2]`, tells them apart"


class BadLattice(Mistake, code="E383"):
    """`lattice(...)` that describes no grid."""

    why: str
    message: ClassVar = "this is no grid of points: {why}"
    label: ClassVar = "expected `lattice(lower, upper, points)`"
    help: ClassVar = "write `lattice([0, 0], [4, 2], [21, 11])`, or `lattice(0, 10, 50)` along a line"


# E390 to E396: indices that are columns of the data, `input site : label[s]`, and what is read at their levels.


class LabelNotNumber(Named, code="E390"):
    """A column of levels where a number is needed."""

    index: str
    message: ClassVar = "`{name}` is a label: its levels are names, not numbers"
    label: ClassVar = "a label stands in brackets"
    help: ClassVar = (
        "give each level its own value, `param a[{index}] : real` or `let a[{index}] = if {index} == 1 then 0 else 1`, "
        "and read that of the row: `a[{name}]`"
    )


class LevelNotSaid(Named, code="E391"):
    """`a` or `a[2]` of something that each level of a column has its own of."""

    index: str
    example: str
    without: str = ""
    message: ClassVar = "each level of `{index}` has its own `{name}`, and the levels are known only with the data"
    label: ClassVar = "expected the column that says which"
    help: ClassVar = "write `{example}`{without}"


class NotALabel(Named, code="E392"):
    """`a[x]` where `x` is an input, but no column of the levels of this index."""

    given: str
    what: str
    index: str
    remedy: str
    message: ClassVar = "`{name}` is indexed by `{index}`, and `{given}` is {what}"
    label: ClassVar = "expected a label of `{index}`"


class LabelInKernel(OfKernel, code="E393"):
    """A kernel that takes the numbers of levels for places on a line."""

    name: str
    latent: str
    message: ClassVar = "`{kernel}` sees `{name}`, a label: distances between its levels mean nothing"
    label: ClassVar = "sees the column `{name}`"
    help: ClassVar = "let it see other inputs only, `on = x`, and multiply it by `Same(on = {name})` or a `Coregion`"


class KernelByLevel(OfLatent, code="E394"):
    """`latent f[s](x) ~ GP(0, tau[s]^2 * RBF(1))` where `s` is a column of the data."""

    index: str
    column: str
    message: ClassVar = "the kernel of `{latent}` is the same for every level of `{index}`"
    label: ClassVar = "differs by `{index}`"
    help: ClassVar = (
        "leave `[{index}]` out; a scale can stand where `{latent}` is read: `tau[{column}] * {latent}[{column}]`; "
        "or say how many levels there are, `index {index} in 1..3`: kernels may then differ"
    )


class PriorOfLevels(Named, code="E395"):
    """A prior with learnt parameters, of another form than Normal: its mode says nothing."""

    given: str
    remedy: str = (
        "`real ~ Normal(mu, tau)` and `positive ~ LogNormal(m, s)` are inferred, and may learn theirs; or write numbers"
    )
    message: ClassVar = "{given} learns a prior of levels that are estimated: the best spread is then none"
    label: ClassVar = "learnt here"
    help: ClassVar = "{remedy}"


class SeveralLabels(Named, code="E396"):
    """`input site[p] : label[s]`."""

    message: ClassVar = "an input of levels is one column"
    label: ClassVar = "has an axis"
    help: ClassVar = "declare one input for each column: `input {name}1 : label[s]`, `input {name}2 : label[s]`"


# E387 and E388: an index among the arguments of a latent, `latent f(x, d)`.


class NotALevel(Named, code="E387"):
    """`latent f[d](x, d)`, or an index beside what it cannot stand beside."""

    index: str
    why: str
    remedy: str
    message: ClassVar = "the index `{index}` cannot be an argument of `{name}` here: {why}"
    label: ClassVar = "an index as an argument"


class TooManyLevels(Named, code="E388"):
    """`latent f(x, d)` with `index d in 1..1000`."""

    index: str
    count: int
    most: int
    message: ClassVar = (
        "`{name}` would be read {count} times in every row, at each value of its indices; {most} is the most"
    )
    label: ClassVar = "an index of too many values among its arguments"
    help: ClassVar = "have a row for each value: `input level : label[{index}]` and `latent {name}(x, level)`"


# E376 to E379: layers written as one latent along an index, `latent h[l > 1](h[l - 1]) ~ ...`.


class LayersNotCounted(Named, code="E376"):
    """`latent h[l > 1](...)` where nothing says how many layers there are."""

    why: str
    message: ClassVar = "the layers of `{name}` cannot be counted: {why}"
    label: ClassVar = "which layers?"
    help: ClassVar = "count them in one index, `index l in 1..3`, and write `latent {name}[l > 1]({name}[l - 1]) ~ ...`"


class LayersMissing(Named, code="E377"):
    """`latent h[l > 1](h[l - 1])` without `latent h[1](x)`."""

    layer: int
    message: ClassVar = "no statement says what `{name}[{layer}]` is a function of"
    label: ClassVar = "not every layer is declared"
    help: ClassVar = "add `latent {name}[{layer}](x) ~ GP(...)`, or widen a condition"


class LayerNotNamed(Named, code="E378"):
    """`y ~ Normal(h, s)` where `h` has layers."""

    count: int
    message: ClassVar = "`{name}` has {count} layers, and each is a latent of its own"
    label: ClassVar = "which of them?"
    help: ClassVar = "write one of them by its number, `{name}[{count}]`"


class ArgumentElement(Named, code="E379"):
    """`latent f(g[1])` where `g` has no layers."""

    message: ClassVar = "an argument of a latent is all of `{name}`, not an element of it"
    label: ClassVar = "brackets after an argument"
    help: ClassVar = "write `{name}` alone; columns are chosen in the kernel, `on = {name}[1]`"
