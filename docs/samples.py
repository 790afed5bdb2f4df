"""An example of every distribution, kernel, function and reduction, for the tables of the language reference.

`model_of` puts each into a whole model; the tests compile all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "Normal": ("y ~ Normal(f, sigma)", "y ~ Normal(mean = f, sd = exp(g))"),
    "StudentT": ("y ~ StudentT(4, f, sigma)",),
    "Laplace": ("y ~ Laplace(f, sigma)",),
    "Logistic": ("y ~ Logistic(f, sigma)",),
    "LogNormal": ("y ~ LogNormal(f, sigma)",),
    "Gamma": ("y ~ Gamma(2, 2 / exp(f))",),
    "Exponential": ("y ~ Exponential(exp(f))",),
    "Weibull": ("y ~ Weibull(1.5, exp(f))",),
    "InverseGamma": ("y ~ InverseGamma(3, exp(f))",),
    "HalfNormal": ("y ~ HalfNormal(exp(f))",),
    "HalfCauchy": ("param k : positive ~ HalfCauchy(1)",),
    "HalfStudentT": ("y ~ HalfStudentT(4, exp(f))",),
    "PCScale": ("param k : positive ~ PCScale(2, 0.05)",),
    "PCLengthscale": ("param k : positive ~ PCLengthscale(0.1, 0.05, 2)",),
    "Uniform": ("y ~ Mixture(0.95, Normal(f, sigma), Uniform(-10, 10))", "param k : unit ~ Uniform(0, 1)"),
    "Beta": ("y ~ Beta(10 * sigmoid(f), 10 * sigmoid(-f))",),
    "Poisson": ("y ~ Poisson(exp(f))",),
    "NegativeBinomial": ("y ~ NegativeBinomial(exp(f), 5)",),
    "Binomial": ("y ~ Binomial(10, logit = f)",),
    "Bernoulli": ("y ~ Bernoulli(logit = f)", "y ~ Bernoulli(probit = f)", "y ~ Bernoulli(p = 1 - exp(-exp(f)))"),
    "Categorical": ("y ~ Categorical(logits = h)",),
    "Ordinal": ("y ~ Ordinal(probit = f, cutpoints = cut)",),
    "MultivariateNormal": (
        "z ~ MultivariateNormal(u, covariance = S)",
        "z ~ MultivariateNormal(u, factor = W, sd = s)",
    ),
    "Mixture": ("y ~ Mixture(w, Normal(f, sigma), Normal(0, 10))",),
    "Truncated": ("y ~ Truncated(Normal(f, sigma), lower = 0)",),
    "Censored": ("y ~ Censored(Weibull(1.5, exp(f)), upper = 8)",),
    "Dirichlet": ("param k : simplex[3] ~ Dirichlet(2)",),
    "LKJ": ("param L[t,r] : correlation_factor ~ LKJ(2)",),
}
"""Statements; a prior is one too."""

KERNELS: Mapping[str, str] = {
    "RBF": "s2 * RBF(ell)",
    "Matern12": "Matern12(2)",
    "Matern32": "Matern32(ell)",
    "Matern52": "Matern52(ell, on = log(1 + x^2))",
    "RationalQuadratic": "RationalQuadratic(1, alpha = 2)",
    "Periodic": "Periodic(1, period = 7) * RBF(30)",
    "Cosine": "Cosine(period = 4, on = x[1])",
    "Linear": "Linear(10)",
    "Polynomial": "Polynomial(3, offset = 1)",
    "ArcCosine": "ArcCosine(order = 1)",
    "SpectralMixture": "SpectralMixture(weights, means, sds, on = x[1])",
    "Coregion": "RBF(ell, on = x) * Coregion(W, kappa, on = task)",
    "ChangePoint": "ChangePoint(RBF(1), Linear(2), at = 3, on = x[1])",
    "Patch": "Patch(RBF(1), image = [2, 1], patch = [1, 1], on = x)",
    "Constant": "RBF(ell) + 4 * Constant()",
    "Same": "RBF(ell, on = x) + Same(on = site)",
    "White": "RBF(ell) + 0.01 * White()",
}

REDUCTIONS: Mapping[str, str] = {
    "sum": "sum(q, W[1,q] * h[q])",
    "prod": "prod(q, 1 + h[q]^2)",
    "mean": "mean(q, h[q])",
    "max": "max(q, h[q])",
    "min": "min(h)",
    "norm": "norm(x)",
    "logsumexp": "logsumexp(q, h[q])",
}

_KINDS = {
    "LogNormal": "positive",
    "Gamma": "positive",
    "Exponential": "positive",
    "Weibull": "positive",
    "InverseGamma": "positive",
    "HalfNormal": "positive",
    "HalfStudentT": "positive",
    "Censored": "positive",
    "Truncated": "positive",
    "Beta": "unit",
    "Poisson": "count",
    "NegativeBinomial": "count",
    "Binomial": "count",
    "Bernoulli": "binary",
    "Categorical": "label[q]",
    "Ordinal": "ordinal[q]",
}

_MODEL = """\
index p in 1..2
index q in 1..3
index t in 1..2
index place in 1..G
input  site : label[place]
index r in 1..2
input  x : real[2]
input  task : count
output y : {kind}
output z[p] : real
param sigma : positive = 0.5
param ell : positive[2] = 1
param s2 : positive = 1
param w : unit
param s[p] : positive = 1
param W[p,q] : real = 0.5
param kappa[p] : positive = 1
param weights[t] : positive = 1
param means[t] : positive = 0.5
param sds[t] : positive = 0.2
param cut : ordered[2]
const S[p,t] = [[1, 0.5], [0.5, 1]]
latent f(x{task}) ~ GP(0, {kernel})
latent g(x) ~ GP(0, RBF(1))
latent h[q](x) ~ GP(0, RBF(1))
latent u[p](x) ~ GP(0, RBF(1))
{line}
"""


def model_of(*, distribution: str = "", kernel: str = "RBF(1)", value: str = "f") -> str:
    """A model with one example in it: a statement, a kernel, or the value of a quantity."""
    name = next((each for each, lines in DISTRIBUTIONS.items() if distribution in lines), "")
    line = distribution or f"let v = {value}\ny ~ Normal(v, sigma)"
    if not line.startswith("z"):
        line += "\nz[p] ~ Normal(u[p], 1)"
    if line.startswith(("param", "z")):
        line += "\ny ~ Normal(f, sigma)"
    return _MODEL.format(
        kind=_KINDS.get(name, "real"),
        line=line,
        kernel=kernel,
        task="".join(f", {each}" for each in ("task", "site") if each in kernel),
    )
