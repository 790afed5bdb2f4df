"""Words that other tools use for kernels and distributions, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping


class Habits(dict[str, str]):
    """What to write instead of each word of another tool, in small letters; nothing of any other word."""

    def of(self, word: str) -> str:
        """What is said of a word, however it is written; empty for one that is no habit."""
        return self.get(word.lower(), "")


def by_words(table: Mapping[str, str]) -> Habits:
    return Habits((word, said) for words, said in table.items() for word in words.split())


_MATERN12 = "write `Matern12(ell)`"
_PC = "priors that penalise complexity: `param ell : positive ~ PCLengthscale(0.1, 0.05, 1)`, or `PCScale(3, 0.01)`"

_STAN_KERNELS = {"exp_quad": "RBF(ell)", "exponential": "Matern12(ell)", "periodic": "Periodic(ell, period)"} | {
    f"matern{nu}": f"Matern{nu}(ell)" for nu in (32, 52)
}
KERNELS = by_words(
    {
        "expquad exponentiatedquadratic squaredexponential sqexp se gaussian rbfkernel scalekernel": (
            "write `RBF(ell)`; the variance stands before it, `s2 * RBF(ell)`"
        ),
        "matern maternkernel": "its smoothness is part of the name: `Matern12(ell)`, `Matern32(ell)`, `Matern52(ell)`",
        "exponential": f"{_MATERN12}; where it is exp(-r / (2 * ell)), as in GPflow and PyMC, `Matern12(2 * ell)`",
        "ornsteinuhlenbeck ou ar ar1": _MATERN12,
        "dotproduct": "write `s0^2 * Constant() + Linear()`",
        "linearkernel": "write `s2 * Linear()`",
        "whitekernel whitenoise noise nugget iid": (
            "write `White()`, or leave the noise to the distribution of the output"
        ),
        "constantkernel bias": "write `s2 * Constant()`, or `s2` before another kernel",
        "expsinesquared": "write `Periodic(ell, period)`",
        "periodickernel": "write `Periodic(ell, period)`, or `Periodic(sqrt(ell), period)` as in GPyTorch",
        **{
            f"gp_{word}_cov": f"write `alpha^2 * {kernel}`; `x` and `alpha` are no arguments of it"
            for word, kernel in _STAN_KERNELS.items()
        },
        "brownian brownianmotion wiener randomwalk": (
            "a formula of your own: `kernel walk(a, b) = (abs(a) + abs(b) - abs(a - b)) / 2`, used as `s2 * walk()`"
        ),
        "icm lmc coregionalize indexkernel": "write `RBF(ell, on = x) * Coregion(W, kappa, on = task)`",
        "arcsin arccos neuralnetwork": "write `ArcCosine(1)`, the kernel of a wide layer of neurons",
        "rq rationalquadratickernel": "write `RationalQuadratic(ell, alpha)`",
        "poly polynomialkernel": "write `Polynomial(2, 1)`",
        "add additive product": "kernels are added and multiplied, `RBF(ell) + Linear()`, `RBF(ell) * Linear()`",
        "localperiodic locallyperiodic quasiperiodic": "write `RBF(10) * Periodic(1, period)`: it changes slowly",
        "sho celerite harmonic oscillator damped": "write `Matern12(ell) * Cosine(period)`, waves that die away",
        "hamming overlap categoricalkernel categorical": (
            "categories are labels, and a latent has its own function for each: `latent f[s](x) ~ ...`, `f[site]`; or "
            "one function of both: `RBF(ell, on = x) * Coregion(W, kappa, on = task)`"
        ),
        "haversine greatcircle spherical geodesic geographic sphere": (
            "distances on a sphere are those of points in space: columns `cos(lat) * cos(lon)`, `cos(lat) * sin(lon)` "
            "and `sin(lat)` of the data, `input p : real[3]`, and a kernel of these"
        ),
        "spline cubicspline smoothingspline integratedwiener": (
            "a formula of your own, for columns of positive numbers: `kernel spline(a, b) = min(a, b)^2 * "
            "(3 * max(a, b) - min(a, b)) / 6`, used as `s2 * spline()`"
        ),
        "gibbs nonstationary": (
            "a formula of your own, here of a length-scale exp(g * x): `kernel gibbs(a, b; g) = sqrt(2 * exp(g * (a + "
            "b)) / (exp(2 * g * a) + exp(2 * g * b))) * exp(-(a - b)^2 / (exp(2 * g * a) + exp(2 * g * b)))`"
        ),
        "nngp vecchia sgpr svgp": "many rows are a matter of the fit and not of the kernel: `infer vi: inducing = 200`",
        "pc": _PC,
        "wendland compactlysupported compact": (
            "a formula of your own, for up to three columns: `kernel wendland(r; w) = if r < w then (1 - r/w)^4 * "
            "(4*r/w + 1) else 0`, used as `s2 * wendland(1)`; it makes no fit faster"
        ),
        "cauchykernel generalizedcauchy generalisedcauchy": "write `RationalQuadratic(ell, alpha)`",
        "matern72 matern92 matern7": (
            "a formula of your own: `kernel matern72(r; l) = (1 + sqrt(7)*r/l + 14*r^2/(5*l^2) + "
            "7*sqrt(7)*r^3/(15*l^3)) * exp(-sqrt(7)*r/l)`, used as `s2 * matern72(1)`"
        ),
        "tanimoto jaccard minmax": (
            "a formula of your own, for columns of bits or counts: `kernel tanimoto(a, b) = sum(a * b) / (sum(a^2) + "
            "sum(b^2) - sum(a * b))`, used as `s2 * tanimoto()`"
        ),
    }
)

DISTRIBUTIONS = by_words(
    {
        "flat halfflat improper": "leave the prior out: a parameter without one has none",
        "s f te gam": "write `Normal(g, sigma)`, with the smooth function `latent g(x) ~ GP(0, s2 * RBF(ell))`",
        "gaussian n norm": "write `Normal(mean, sd)`, with a standard deviation and no variance",
        "cauchy": "write `StudentT(1, mean, scale)`, or `HalfCauchy(scale)` for positive values",
        "chisquared chi2 chi_square": "write `Gamma(df / 2, 1 / 2)`",
        "bernoulli_logit bernoullilogit": "write `Bernoulli(logit = f)`",
        "poisson_log poissonlog": "write `Poisson(exp(f))`",
        "neg_binomial_2 negbinomial nbinom negbin": "write `NegativeBinomial(mean, dispersion)`",
        "halft half_t half_student_t": "write `HalfStudentT(df, scale)`",
        "inv_gamma invgamma": "write `InverseGamma(shape, scale)`",
        "pc": _PC,
        "dnorm": (
            "write `Normal(mean, sd)`, in R too; of BUGS and JAGS, with a precision, `Normal(mean, 1 / sqrt(tau))`"
        ),
        "ordered_logistic orderedlogistic cumulative": (
            "write `Ordinal(logit = f, cutpoints = cut)`, with `param cut : ordered[3]` for an output of `ordinal[c]`"
        ),
        "ordered_probit orderedprobit": "write `Ordinal(probit = f, cutpoints = cut)`, with `param cut : ordered[3]`",
        "lkjcholesky lkj_corr_cholesky lkjcorr lkj_corr wishart inversewishart inverse_wishart": "write `LKJ(eta)`",
        "multi_normal mvnormal mvn": "write `MultivariateNormal(mean, covariance = S)`",
        "gp": "declare `latent f(x) ~ GP(mean, kernel)`, and observe it: `y ~ Normal(f, sigma)`",
        "double_exponential doubleexponential": "write `Laplace(mean, scale)`",
        "t": "write `StudentT(df, mean, scale)`",
        "probit": "write `Bernoulli(probit = f)`",
        "rayleigh": "write `Weibull(2, sqrt(2) * scale)`",
        "truncatednormal truncated_normal truncnorm": "write `Truncated(Normal(mean, sd), lower = 0)`",
        "censorednormal tobit": "write `Censored(Normal(mean, sd), lower = 0)`",
        "zeroinflated zero_inflated zeroinflatedpoisson zero_inflated_poisson zip": "a share `p` of zeros more: write "
        "`Mixture(p, Poisson(1e-9), Poisson(mean))`",
        "zeroinflatednegativebinomial zero_inflated_negbinomial zinb": "a share `p` of zeros more: write "
        "`Mixture(p, Poisson(1e-9), NegativeBinomial(mean, dispersion))`",
        "geometric": "write `NegativeBinomial(mean, 1)`, whose mean is `(1 - p) / p`",
        "neg_binomial": "write `NegativeBinomial(mean, dispersion)`; of Stan's two numbers, `mean = alpha / beta` "
        "and `dispersion = alpha`",
        "neg_binomial_2_log": "write `NegativeBinomial(exp(f), dispersion)`",
        "binomial_logit": "write `Binomial(trials, logit = f)`",
        "betabinomial beta_binomial": "odds that differ from row to row: write "
        "`Binomial(trials, logit = f + tau * w)`, with `row w ~ Normal(0, 1)`",
        "quasipoisson": "of counts that vary more than their mean: write `NegativeBinomial(mean, dispersion)`",
        "logitnormal logit_normal logisticnormal": "write `logit(y) ~ Normal(f, sigma)`",
        "loglogistic": "write `log(y) ~ Logistic(f, s)`",
        "halflaplace": "write `Exponential(1 / scale)`",
        "cox lgcp": "write `Poisson(exp(f))` for counts of cells, with the kernel in the line of `f`",
        "betaproportion beta_proportion": "write `Beta(a = mean * phi, b = (1 - mean) * phi)`",
        "delta dirac pointmass deterministic": "what is known exactly is `const a = 1`, what is computed `let g = ...`",
        "loguniform log_uniform reciprocal jeffreys": (
            "write `LogNormal(0, 3)`, nearly flat in the logarithm; a flat density over all scales has no prior mass"
        ),
        "asymmetriclaplace asymmetric_laplace ald quantile": (
            "of a quantile, here 0.9, give its log density: `density check(y | m, s) = log(0.9 * 0.1 / s) - "
            "(y - m) / s * (0.9 - (if y < m then 1 else 0))`, and `y ~ check(f, s)`"
        ),
        "skewnormal skew_normal": (
            "give its log density: `density skew(y | m, s, a) = -log(s) - (y - m)^2 / (2 * s^2) - log(pi / 2) / 2 + "
            "log(Phi(a * (y - m) / s))`, and `y ~ skew(f, s, a)`"
        ),
        "hurdle hurdlepoisson hurdlenegativebinomial": (
            "two outputs, the second missing where the first is 0: `output any : binary` with `any ~ Bernoulli(logit = "
            "f)`, and `output more : count`, the count less one, with `more ~ NegativeBinomial(exp(g), phi)`"
        ),
        "generalizednormal exgaussian inversegaussian wald "
        "generalizedgamma inverse_gaussian betaprime multinomial "
        "generalizedpoisson tweedie discreteuniform conwaymaxwellpoisson compoisson "
        "vonmises gumbel pareto gompertz kumaraswamy gev generalizedextremevalue gpd generalizedpareto genpareto "
        "triangular huber rice bradleyterry plackettluce": (
            "not in the table, and none of it is the same: give its log density, `density name(y | m, s) = ...`"
        ),
    }
)

_OTHERS = {
    "Normal": {"weight weights w": "sd = sigma / sqrt(weight)"},
    "Poisson": {"log log_rate log_lambda eta": "mean = exp(f)"},
    "Bernoulli Binomial Categorical": {"probs prob theta": "p = probs"},
    "Bernoulli Binomial": {"cloglog": "p = 1 - exp(-exp(f))"},
    "Beta": {
        "mean mu phi kappa nu precision": "a = mean * phi, b = (1 - mean) * phi",
        "sd sigma": "a = mean * phi, b = (1 - mean) * phi, phi = mean * (1 - mean) / sd^2 - 1",
    },
    "NegativeBinomial": {"n p size prob": "mean = n * (1 - p) / p, dispersion = n"},
    "Poisson NegativeBinomial": {"exposure e": "mean = exposure * exp(f)", "offset": "mean = exp(f + offset)"},
    "Normal HalfNormal LogNormal": {
        "variance var sigma2": "sd = sqrt(variance)",
        "precision tau": "sd = 1 / sqrt(precision)",
    },
    "Exponential": {"scale mean mu": "rate = 1 / scale"},
    "Gamma": {"scale theta": "rate = 1 / scale", "mean mu sd": "shape = mean^2 / sd^2, rate = mean / sd^2"},
    "InverseGamma": {"mean mu sd": "shape = 2 + mean^2 / sd^2, scale = mean * (1 + mean^2 / sd^2)"},
}
OTHER_NUMBERS: Mapping[tuple[str, str], str] = {
    (law, word): f"write `{law}` with `{said}`"
    for laws, table in _OTHERS.items()
    for words, said in table.items()
    for law in laws.split()
    for word in words.split()
}
"""By distribution and argument of other tools, what is another number here, and not the same one by another name."""

TYPES = by_words(
    {
        "float double number numeric vector matrix continuous": "real",
        "int integer counts": "count",
        "bool boolean logical": "binary",
        "str string text factor category categorical group": "label",
        "date datetime timestamp": "time",
        "cholesky_factor_corr corr_matrix cholesky": "correlation_factor",
        "probability proportion percent fraction": "unit",
        "positive_ordered": "ordered",
    }
)
"""Types of other tools, by those that columns have here."""
BINARY_INPUT = "0 and 1 of an input are numbers: `input {name} : count`; words are levels, `input {name} : label[s]`"

_OTHER_ROWS = (
    "a statement holds for one row and reads no other: what is of another row, such as the value before, is a column "
    "of the data, `input before : real`; a sum along an input is `integral(f, a, b)`"
)
WORDS = by_words(
    {
        "inv_logit invlogit inverse_logit ilogit logistic expit": "write `sigmoid(f)`",
        "normcdf normal_cdf std_normal_cdf pnorm ncdf": "write `Phi(f)`",
        "inv_phi qnorm ndtri norminv": "write `probit(p)`",
        "cloglog inv_cloglog": "write `1 - exp(-exp(f))`",
        "square": "write `f^2`",
        "cube": "write `f^3`",
        "cbrt": "write `f^(1 / 3)`, for a positive `f`",
        "inv": "write `1 / f`",
        "exp2": "write `2^f`",
        "ln": "write `log(f)`",
        "log1m": "write `log1p(-p)`",
        "log1p_exp log1pexp": "write `softplus(f)`",
        "log_sigmoid logsigmoid log_inv_logit": "write `-softplus(-f)`",
        "logaddexp": "write `max(f, x) + softplus(-abs(f - x))`",
        "erfc": "write `1 - erf(f)`",
        "atan2 arctan2": "write `2 * atan(y / (sqrt(x^2 + y^2) + x))`",
        "hypot": "write `sqrt(f^2 + x^2)`",
        "round rint": "write `floor(f + 0.5)`",
        "ceil ceiling": "write `-floor(-f)`",
        "mod fmod modulo remainder": "write `x - 7 * floor(x / 7)`",
        "factorial": "write `exp(lgamma(f + 1))`",
        "swish silu": "write `f * sigmoid(f)`",
        "pi π": "write `pi`",
        "nan na": "missing values are empty cells of the data; a model has none",
        "gamma": "write `exp(lgamma(f))`",
        "relu": "write `max(f, 0)`",
        "sign sgn signum": "write `if f > 0 then 1 else -1`",
        "clip clamp": "write `min(max(f, 0), 1)`",
        "where ifelse if_else cond switch": "write `if x > 0 then f else 1`",
        "step heaviside indicator int_step": "write `if x > 0 then 1 else 0`",
        "diff grad gradient deriv derivative": "the derivative of a latent is `D(f, x)`",
        "cumsum cumulative_sum lag shift lead": _OTHER_ROWS,
        "zero zeromean constantmean linearmean constant_mean": (
            "a mean is an expression: `GP(0, ...)`, `GP(m, ...)`, `GP(m + slope * x, ...)`, with `param m : real`"
        ),
        "softmax": "write `y ~ Categorical(logits = f)`, with `latent f[c](x) ~ ...` for an output of `label[c]`",
        "inf infinity": "numbers are finite: leave the prior out, or take one without bounds, `HalfNormal(1)`",
        "plate for": (
            "lines hold for every row as they are; elements have an index, `index p in 1..4`, `latent f[p](x) ~ ...`"
        ),
        "pc": _PC,
        "with import from def class return": "this is Python, and a model is a text of its own: `input x : real`, "
        "`param ell : positive ~ Gamma(2, 1)`, `latent f(x) ~ GP(0, RBF(ell))`, `y ~ Normal(f, 0.1)`, each on a line; "
        "Python has it by `gpdsl.load(file)`",
        "active_dims": "write `on = x[1]`, or `on = [x[1], x[2]]`: columns are counted from 1",
    }
)
"""Functions, constants, statements and arguments."""

STARTS = by_words(
    {
        "gp process gaussian_process": "write `latent f(x) ~ GP(m, s2 * RBF(ell))`, observed by `y ~ Normal(f, sigma)`",
        "parameter parameters hyperparameter hyperparameters hyper prior hyperprior var variable": (
            "what is learnt is a parameter, `param ell : positive ~ Gamma(2, 1)`, with a prior or without"
        ),
        "covariate covariates feature features predictor predictors regressor column columns data "
        "response target observed observation outcome outcomes likelihood observe obs": (
            "columns of the data are declared, `input x : real`, `output y : real`, and what is predicted has a "
            "distribution, `y ~ Normal(f, sigma)`"
        ),
        "standardise standardize normalise normalize scale": "write `infer vi: standardise = [x, y]`, or `true`",
        "noise nugget": "noise is part of an output's distribution: `param sigma : positive`, `y ~ Normal(f, sigma)`",
        "mean mean_function": "a mean stands in the line of its latent: `latent f(x) ~ GP(m, s2 * RBF(ell))`",
        "kern cov covariance": "a kernel stands in the line of its latent: `latent f(x) ~ GP(0, s2 * RBF(ell))`",
        "fix fixed set constant": "a known number is `const sigma = 0.1`; `infer vi: fixed = [sigma]` holds a `param`",
        "option options settings config": "options of a fit stand in one line: `infer vi: steps = 500, seed = 1`",
        "lambda fn func": "write `function g(a, b) = a * exp(b)`",
    }
)
"""First words of lines."""

_LOCATED = {"StudentT": "StudentT(4, f, sigma)", "Laplace": "Laplace(f, sigma)", "Logistic": "Logistic(f, sigma)"}
PROCESSES = {
    "+": "kernels are combined, `GP(0, s2 * RBF(ell) + Matern32(w))`, or latents, each declared on its own, "
    "`y ~ Normal(f + g, sigma)`",
    "*": "latents are multiplied where they are read, each declared on its own, `y ~ Normal(f * g, sigma)`; another "
    "thing is the product of kernels, `GP(0, s2 * RBF(ell, on = x) * Matern32(w, on = t))`, which is one process",
}
"""What to do instead of adding, and multiplying, processes."""


def noise_habit(law: str, instead: str = "") -> str:
    """What to write instead of a distribution that something is added to."""
    instead = instead or _LOCATED.get(law, "Normal(f, sigma)")
    return f"noise is not added: what it is added to is an argument of its distribution, as in `y ~ {instead}`"


SUBSCRIPT_OF_A_ROW = "write `{name}` alone: " + _OTHER_ROWS

SIGNS: Mapping[str, str] = {
    "//": "a comment starts with `#`",
    "+=": "log densities are not added up: observe an output, `y ~ Normal(f, sigma)`",
    "T[": "write `Truncated(Normal(f, sigma), lower = 0)`",
    "||": "write `or`",
    "|": "effects of groups are `param a[s] : real ~ Normal(0, tau)`, read as `a[site]` with `input site : label[s]`",
    ";": "end the statement by starting a new line",
    "'": 'write texts with double quotation marks, "like this"; a derivative is `D(f, x)`',
    **dict.fromkeys("−–—", "this is a typographic minus or dash; write `-`"),
    **dict.fromkeys("“”„‟«»‘’", 'write texts with straight quotation marks, "like this"'),
    "×": "write `*` for a product",
    "·": "write `*` for a product",
    "≥": "write `>=`",
    "≤": "write `<=`",
    "≠": "write `!=`",
    "²": "write `^2` for a square",
    "∼": "write `~`, the tilde of the keyboard",
    ".": "names have no modules: write `Normal(f, sigma)`",
    "%": "a comment starts with `#`, and a remainder is `x - 7 * floor(x / 7)`",
    "!": "unequal is `!=`, and a condition is negated by `not`",
    "&": "write `and`",
}
"""Two characters, or one, at which a statement is not read."""

FORMS: Mapping[str, str] = dict.fromkeys(("real", "int", "vector"), "param sigma : positive ~ HalfNormal(1)")
"""Declarations of Stan by their first word: one statement of the kind that they become."""
BLOCK = re.compile(r"\s*(functions|(transformed\s+)?(data|parameters)|model|generated\s+quantities)\s*")
"""What stands before the bracket of a block of Stan."""
BLOCKS = (
    "there are no blocks, and each line says what it is: `input x : real`, `output y : real` what is data, "
    "`param sigma : positive ~ HalfNormal(1)` a parameter with its prior, `let g = exp(f)` what is transformed, and "
    "`latent f(x) ~ GP(0, RBF(1))`, `y ~ Normal(f, sigma)` the model"
)


SCALE = re.compile(r"(ell|l|lengthscale|length_scale|sigma|s2|tau|sd|std|scale|variance|noise|phi)\d*(_.*)?")
"""Names that are given to what is positive."""
VARIANCES = frozenset({"variance", "outputscale", "amplitude", "sigma", "s2", "eta"})
"""Arguments of kernels of other tools that are their variances."""
PRIORS = frozenset({"HalfNormal", "HalfCauchy", "HalfStudentT", "InverseGamma", "PCScale", "PCLengthscale"})
"""Distributions that are hardly ever those of an output."""


def scale_habit(name: str) -> str:
    """How a name that is nowhere declared is probably to be declared; empty where it may be anything."""
    if not SCALE.fullmatch(name):
        return ""
    return f"declare it: `param {name} : positive` to estimate it, `const {name} = 1` if it is known"


_STANDARDISED = re.compile(r"\s*infer\b.*\bstandardise\s*=\s*[^=]*", re.DOTALL)
STANDARDISE = "write `standardise = true`, `standardise = false` or `standardise = [x, y]`, names of inputs and outputs"

_LIMIT = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf(?:inity)?\b)"
_NAMED = r"\s*param\s+(\w+(?:\s*\[[^\]]*\])?)\s*"
_WITHIN = re.compile(rf"{_NAMED}(?::\s*(\w+)?)?\s*(?:in)?\s*[\[(]\s*{_LIMIT}\s*,\s*{_LIMIT}\s*[\])]")
"""A parameter with two bounds as other tools write them: `param s : positive in [0.1, 2]`, `param s in (0, 1)`."""
_BEYOND = re.compile(rf"{_NAMED}(?::\s*real\s*)?([<>])=?\s*{_LIMIT}")
"""One with one bound: `param s > 0.1`."""


_DERIVATIVE = re.compile(r"\bd\s*/\s*d(\w+)\s*\(?\s*$")


def derivative_habit(before: str, token: str) -> str:
    """What to write instead of `d/dx f`, read up to the function; empty of any other place."""
    by = _DERIVATIVE.search(before)
    return f"the derivative of a latent by one of its inputs is `D({token}, {by[1]})`" if by else ""


def standardise_habit(before: str) -> str:
    """What to write instead of a value of `standardise` that a statement is not read at; empty of any other place."""
    return STANDARDISE if _STANDARDISED.fullmatch(before) else ""


def word_habit(word: str) -> str:
    """What to write instead of a word that is neither a kernel nor a distribution; empty for one that is no habit."""
    if word.endswith(("²", "³")):
        return f"write `{word[:-1]}^{'2' if word.endswith('²') else '3'}`"
    return WORDS.of(word)


def bounds_habit(text: str) -> str:
    """What to write instead of `param s : positive in [0.1, 2]` and `param s > 0.1`; empty of what is neither."""
    if one := _BEYOND.match(text):
        side = "lower" if one[2] == ">" else "upper"
        positive = side == "lower" and float(one[3]) == 0
        return f"write `param {one[1]} : {'positive' if positive else f'real({side} = {one[3]})'}`"
    found = _WITHIN.match(text)
    if found is None:
        return ""
    name, word, low, high = found.groups()
    kind = "positive" if word in ("positive", None) and "inf" not in low and float(low) >= 0 else "real"
    sides = {side: limit for side, limit in (("lower", low), ("upper", high)) if "inf" not in limit}
    bounds = f"({', '.join(f'{side} = {limit}' for side, limit in sides.items())})" if sides else ""
    rest = text[found.end() :].split("#")[0].split("\n")[0].rstrip()
    return f"bounds stand behind the type: `param {name} : {kind}{bounds}{rest}`"
