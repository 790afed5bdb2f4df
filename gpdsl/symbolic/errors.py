"""Mistakes that show only once a model's sizes are known and its definitions are written out."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named, OfKernel, OfLatent
from gpdsl.language.warnings.cautions import Caution


class TooLarge(Mistake, code="E501"):
    """An expression that explodes once definitions and sums are written out."""

    what: str
    limit: int
    message: ClassVar = "written out, {what} has more than {limit} operations"
    label: ClassVar = "too large to compile"
    help: ClassVar = "shorten the index, or compute it in an `external` function"


class TooDeep(Mistake, code="E502"):
    """An expression whose operations stand one inside the other too often."""

    what: str
    limit: int
    message: ClassVar = "written out, {what} nests more than {limit} operations"
    label: ClassVar = "too deep to compile"
    help: ClassVar = "shorten the index, or compute it in an `external` function"


class InnerElsewhere(OfLatent, code="E547"):
    """`D(h, x)`, `integral(h, x, b)` or `h(a)` of a latent that is an argument of another one."""

    others: str
    message: ClassVar = "`{latent}` is an argument of {others}, and is fitted at the row's own inputs only"
    label: ClassVar = "more than its value there"
    help: ClassVar = "write `{latent}` itself, or read this of a latent that is no argument of others"


class NotReal(Mistake, code="E503"):
    """An operation whose value is infinite or not a real number, whatever the data."""

    what: str
    message: ClassVar = "{what} is not a finite real number"
    label: ClassVar = "overflow, division by zero or outside the function's domain"
    help: ClassVar = "correct the formula, or the constants it reads"


class NoCase(Mistake, code="E504"):
    """An element of a `let` by cases that none of the cases defines, at the size the data gave its index."""

    element: str
    message: ClassVar = "no case defines `{element}`"
    label: ClassVar = "the data made the index this long"
    help: ClassVar = "add a case for it"


class BeyondData(Mistake, code="E570"):
    """`x[7]` of an axis that the data made shorter."""

    element: str
    axis: str
    size: int
    message: ClassVar = "`{element}` does not exist: the data have {size} along `{axis}`"
    label: ClassVar = "out of range for these data"
    help: ClassVar = "use a number from 1 to {size}, or give data of the size that the model expects"


class CutpointCount(Mistake, code="E560"):
    """Cutpoints that do not fit the levels the data have."""

    output: str
    levels: int
    expected: int
    given: int
    message: ClassVar = "`{output}` has {levels} levels and needs {expected} cutpoints, one fewer, not {given}"
    label: ClassVar = "{given} cutpoints"
    help: ClassVar = "declare them with that length: `param cut : ordered[{expected}]`"


class ComponentWeights(Mistake, code="E561"):
    """Weights of a mixture that do not fit its components, at the size the data gave their index."""

    given: int
    expected: int
    message: ClassVar = "a mixture of {expected} distributions has {expected} weights, not {given}"
    label: ClassVar = "{given} weights"
    help: ClassVar = "declare them with that length: `param w : simplex[{expected}]`"


class NoSlope(Mistake, code="E562"):
    """An argument with respect to which a distribution function cannot be differentiated."""

    distribution: str
    argument: str
    name: str
    message: ClassVar = "the distribution function of `{distribution}` has no derivative with respect to `{name}`"
    label: ClassVar = "`{argument}` of a truncated or censored `{distribution}` must not depend on `{name}`"
    help: ClassVar = "write a number or constant there, or declare a parameter `fixed`"


class LatentCovariance(Named, code="E563"):
    """A covariance matrix of outputs that depends on a latent."""

    message: ClassVar = "the covariance of `MultivariateNormal` must not depend on `{name}`"
    label: ClassVar = "reads `{name}`, whose values are not known"
    help: ClassVar = "let the mean carry the latents: `y[p] ~ Normal(sum(k, W[p, k] * g[k]), s)` mixes outputs too"


class VectorTooLong(Mistake, code="E564"):
    """A multivariate output with too many elements."""

    output: str
    size: int
    limit: int
    message: ClassVar = "`{output}` has {size} elements, and `MultivariateNormal` describes at most {limit}"
    label: ClassVar = "too many to write out"
    help: ClassVar = "let latents carry the dependence: `y[p] ~ Normal(sum(k, W[p, k] * g[k]), s)`"


class MatrixSizes(Mistake, code="E565"):
    """A covariance matrix that is not square, at the sizes the data gave its indices."""

    first: str
    size: int
    second: str
    other: int
    message: ClassVar = "a covariance matrix is square, but `{first}` has {size} values and `{second}` has {other}"
    label: ClassVar = "{size} by {other}"
    help: ClassVar = "declare both indices with the same size"


class NotPositiveDefinite(Mistake, code="E566"):
    """A matrix of numbers that is no covariance matrix."""

    why: str
    message: ClassVar = "this is no covariance matrix"
    label: ClassVar = "{why}"
    help: ClassVar = "check its entries, or build it as `factor = W, sd = s`, which is always a covariance"


class NoDerivative(Mistake, code="E530"):
    """A transformed left side through a function whose derivative is not known."""

    output: str
    message: ClassVar = "the left side has no derivative in `{output}` that could be written out"
    label: ClassVar = "its density needs the derivative"
    help: ClassVar = "build it from + - * / ^, exp, log, sqrt, tanh, softplus, sigmoid, erf, Phi and conditions"


class NotNormalised(Caution, code="W641"):
    """A density by formula whose integral is not one."""

    name: str
    output: str
    mass: str
    message: ClassVar = "the density `{name}` {mass}"
    label: ClassVar = "over `{output}`, at the initial parameters, with latents at -1, 0 and 1.5"
    help: ClassVar = "what is learnt is then wrong: subtract the log of the integral in the formula of `{name}`"


class OutsideOutput(Caution, code="W620"):
    """A distribution with probability where no value of its output is: a Gaussian for what is never negative."""

    name: str
    output: str
    kind: str
    mass: str
    cut: str
    message: ClassVar = "`{name}` has probability outside of `{output} : {kind}`: it {mass}"
    label: ClassVar = "over `{output}`, at the initial parameters, with latents at -1, 0 and 1.5"
    help: ClassVar = (
        "cut it with `Truncated(..., {cut})`, or use a distribution for {kind} outputs; if other values may be, "
        "declare `output {output} : real`"
    )


# E540 to E546 and W640: kernels that prove wrong once their formula or their number of columns is known.


class Asymmetric(OfKernel, code="E540"):
    """A formula that changes when its points change places."""

    points: str
    swapped: str
    difference: str
    forms: str = "(a - b)^2, abs(a - b), a*b or a + b"
    message: ClassVar = "`{kernel}` is not symmetric: `{kernel}{points}` differs from `{kernel}{swapped}`"
    label: ClassVar = "not a covariance: {difference}"
    help: ClassVar = "a covariance of two points is the same in either order; use {forms}"


class NoVariance(OfKernel, code="E541"):
    """A formula with no finite value on the diagonal."""

    where: str
    message: ClassVar = "`{kernel}` has no finite value {where}, and so no variance"
    label: ClassVar = "infinite or undefined {where}"
    help: ClassVar = (
        "a covariance is finite everywhere; add a positive constant to what is divided by or taken a log of"
    )


class NegativeVariance(OfKernel, code="E542"):
    """A formula whose diagonal is negative."""

    variance: str
    message: ClassVar = "the variance of `{kernel}` is negative: {variance}"
    label: ClassVar = "negative where its two points are the same"
    help: ClassVar = "a covariance of a point with itself is a variance; check the signs, or add a constant"


class ImageSize(Mistake, code="E543"):
    """An image that does not have as many pixels as the data have columns."""

    height: int
    width: int
    columns: int
    message: ClassVar = "an image of {height} by {width} has {pixels} pixels, but the input has {columns} columns"
    label: ClassVar = "does not fit the data"
    help: ClassVar = "correct `image = [height, width]`, or select the pixels with `on = ...`"
    pixels: int = 0


class NoRealValue(OfKernel, code="E544"):
    """A formula that is not a real number at ordinary points."""

    where: str
    message: ClassVar = "`{kernel}` is not a real number {where}"
    label: ClassVar = "outside the domain of a function it uses"
    help: ClassVar = "a covariance is a finite number for any two points: check square roots, logs and divisions"


class RoughFormula(OfLatent, code="E545"):
    """A derivative of a latent whose kernel by formula has too few."""

    kernel: str
    times: str
    message: ClassVar = "`{latent}` has no such derivative: a process with the kernel `{kernel}` is {times}"
    label: ClassVar = "the formula has a kink where its two points meet"
    help: ClassVar = "read fewer derivatives, or use a smoother kernel, such as `RBF` or `Matern52`"


class NoFeatures(OfLatent, code="E546"):
    """Inducing features that a kernel does not have."""

    features: str
    why: str
    remedy: str = "ask for other features, such as `points(50)`, or use a kernel that has them"
    message: ClassVar = "`{latent}` has no inducing features of the family `{features}`"
    label: ClassVar = "{why}"


class NotACovariance(OfKernel, code="W640"):
    """A formula with a negative eigenvalue at some points, or a negative spectral density."""

    finding: str
    advice: str
    severity: ClassVar[str] = "warning"
    message: ClassVar = "`{kernel}` is not a covariance: {finding}"
    label: ClassVar = "not positive definite"
    help: ClassVar = "no Gaussian process has it, and a fit may fail; {advice}"
