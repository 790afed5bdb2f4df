"""E540 to E546 and W640: kernels that prove wrong once their formula or their number of columns is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpdsl.language.errors.base import Mistake


@dataclass(frozen=True)
class Asymmetric(Mistake):
    """A formula that changes when its points change places."""

    kernel: str
    points: str
    swapped: str
    difference: str
    code: ClassVar = "E540"
    message: ClassVar = "`{kernel}` is not symmetric: `{kernel}({points})` differs from `{kernel}({swapped})`"
    label: ClassVar = "not a covariance: {difference}"
    help: ClassVar = "a covariance of two points is the same in either order; use (a - b)^2, abs(a - b), a*b or a + b"


@dataclass(frozen=True)
class NoVariance(Mistake):
    """A formula with no finite value on the diagonal."""

    kernel: str
    where: str
    code: ClassVar = "E541"
    message: ClassVar = "`{kernel}` has no finite value {where}, and so no variance"
    label: ClassVar = "infinite or undefined {where}"
    help: ClassVar = (
        "a covariance is finite everywhere; add a positive constant to what is divided by or taken a log of"
    )


@dataclass(frozen=True)
class NegativeVariance(Mistake):
    """A formula whose diagonal is negative."""

    kernel: str
    variance: str
    code: ClassVar = "E542"
    message: ClassVar = "the variance of `{kernel}` is negative: {variance}"
    label: ClassVar = "negative where its two points are the same"
    help: ClassVar = "a covariance of a point with itself is a variance; check the signs, or add a constant"


@dataclass(frozen=True)
class ImageSize(Mistake):
    """An image that does not have as many pixels as the data have columns."""

    height: int
    width: int
    columns: int
    code: ClassVar = "E543"
    message: ClassVar = "an image of {height} by {width} has {pixels} pixels, but the input has {columns} columns"
    label: ClassVar = "does not fit the data"
    help: ClassVar = "correct `image = [height, width]`, or select the pixels with `on = ...`"
    pixels: int = 0


@dataclass(frozen=True)
class NoRealValue(Mistake):
    """A formula that is not a real number at ordinary points."""

    kernel: str
    where: str
    code: ClassVar = "E544"
    message: ClassVar = "`{kernel}` is not a real number {where}"
    label: ClassVar = "outside the domain of a function it uses"
    help: ClassVar = "a covariance is a finite number for any two points: check square roots, logs and divisions"


@dataclass(frozen=True)
class RoughFormula(Mistake):
    """A derivative of a latent whose kernel by formula has too few."""

    latent: str
    kernel: str
    times: str
    code: ClassVar = "E545"
    message: ClassVar = "`{latent}` has no such derivative: a process with the kernel `{kernel}` is {times}"
    label: ClassVar = "the formula has a kink where its two points meet"
    help: ClassVar = "read fewer derivatives, or use a smoother kernel, such as `RBF` or `Matern52`"


@dataclass(frozen=True)
class NoFeatures(Mistake):
    """Inducing features that a kernel does not have."""

    latent: str
    features: str
    why: str
    code: ClassVar = "E546"
    message: ClassVar = "`{latent}` has no inducing features of the family `{features}`"
    label: ClassVar = "{why}"
    help: ClassVar = "ask for other features, such as `points(50)`, or use a kernel that has them"


@dataclass(frozen=True)
class NotPositiveDefinite(Mistake):
    """A formula with a negative eigenvalue at some points, or a negative spectral density."""

    kernel: str
    finding: str
    advice: str
    severity: ClassVar[str] = "warning"
    code: ClassVar = "W640"
    message: ClassVar = "`{kernel}` is not a covariance: {finding}"
    label: ClassVar = "not positive definite"
    help: ClassVar = "no Gaussian process has it, and a fit may fail; {advice}"
