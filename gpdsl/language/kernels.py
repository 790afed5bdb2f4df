"""The table of covariance functions: what each is called, takes and means."""

from __future__ import annotations

from collections.abc import Mapping

from gpdsl.language.distributions import KernelFamily, Parameter, table

_ELL = Parameter("ell", "length-scale; one per input column when it has that axis", "positive", 1.0, vector=True)
_PERIOD = Parameter("period", "period", "positive", 1.0)

KERNELS: Mapping[str, KernelFamily] = table(
    (  # type: ignore[assignment]
        KernelFamily("RBF", (_ELL,), "squared exponential, exp(-r^2 / 2): infinitely smooth"),
        KernelFamily("Matern12", (_ELL,), "exponential, exp(-r): continuous, nowhere differentiable"),
        KernelFamily("Matern32", (_ELL,), "once differentiable"),
        KernelFamily("Matern52", (_ELL,), "twice differentiable"),
        KernelFamily(
            "RationalQuadratic",
            (_ELL, Parameter("alpha", "weight of the long scales", "positive", 1.0)),
            "a scale mixture of squared exponentials",
        ),
        KernelFamily("Periodic", (_ELL, _PERIOD), "exactly periodic"),
        KernelFamily("Cosine", (_PERIOD,), "one sinusoid"),
        KernelFamily("Linear", (_ELL,), "linear functions through the origin, slopes of size 1 / ell"),
        KernelFamily(
            "Polynomial",
            (
                Parameter("degree", "degree", "count", literal=True),
                Parameter("offset", "offset", "positive", 1.0),
                _ELL,
            ),
            "polynomials of a given degree",
        ),
        KernelFamily(
            "ArcCosine",
            (
                Parameter("order", "0, 1 or 2: steps, ramps or parabolas", "count", 1.0, literal=True, least=0, most=2),
                Parameter("weight", "variance of the weights", "positive", 1.0, vector=True),
                Parameter("bias", "variance of the biases", "positive", 1.0),
            ),
            "an infinitely wide layer of neurons (Cho and Saul)",
        ),
        KernelFamily(
            "SpectralMixture",
            (
                Parameter("weights", "weight of each component", "positive", array=("components",)),
                Parameter("means", "mean frequency of each component", array=("components", "columns")),
                Parameter("sds", "spread of its frequencies", "positive", array=("components", "columns")),
            ),
            "a Gaussian mixture as spectral density (Wilson and Adams); its variance is the sum of the weights",
        ),
        KernelFamily(
            "Coregion",
            (
                Parameter("W", "loadings of each level on a few factors", array=("levels", "factors")),
                Parameter("kappa", "variance of each level's own", "positive", array=("levels",)),
            ),
            "covariance W W' + diag(kappa) between the levels of a column, numbered from 1",
            one_column=True,
        ),
        KernelFamily(
            "ChangePoint",
            (
                Parameter("before", "kernel before the change", role="kernel"),
                Parameter("after", "kernel after it", role="kernel"),
                Parameter("at", "where the change is"),
                Parameter("width", "how long it takes: the scale of a sigmoid", "positive", 1.0),
            ),
            "one kernel gives way to another along one column",
            one_column=True,
        ),
        KernelFamily(
            "Patch",
            (
                Parameter("kernel", "kernel between patches", role="kernel"),
                Parameter("image", "height and width", role="sizes"),
                Parameter("patch", "height and width", role="sizes"),
                Parameter(
                    "weights",
                    "what each patch counts, row by row; one value of an index for each",
                    default=1.0,
                    array=("patches",),
                    optional=True,
                ),
            ),
            "image-convolutional: the mean over all pairs of patches of two images (van der Wilk et al.)",
        ),
        KernelFamily("Constant", (), "one unknown level for all rows"),
        KernelFamily("Same", (), "1 between two rows of the same level of a label, 0 between others"),
        KernelFamily("White", (), "independent noise at each row"),
    )
)
