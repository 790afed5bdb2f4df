"""Distributions as LaTeX, in the parametrisation papers use, and the sentence that says which one it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gpdsl.language import model as m
from gpdsl.language.vocabulary import DISTRIBUTIONS
from gpdsl.symbolic.latex.expressions import Expressions, applied
from gpdsl.symbolic.latex.names import upright

_Printer = Callable[[Expressions, m.DistributionCall], str]


def squared(expression: m.Expression) -> m.Expression:
    """The square of an expression; of `0.1` it is `0.01`, of `sqrt(v)` `v`, of `exp(g / 2)` `exp(g)`."""
    span, axes = expression.span, expression.axes
    two = m.Number(span, (), 2)
    match expression:
        case m.Number(value=value) if abs(value) < 1e6:
            return m.Number(span, axes, float(f"{value * value:.10g}"))
        case m.Operation(operator="sqrt", operands=(inner,)):
            return inner
        case m.Operation(operator="exp", operands=(inner,)):
            return m.Operation(span, axes, "exp", (_doubled(inner, two),))
    return m.Operation(span, axes, "^", (expression, two))


def _doubled(expression: m.Expression, two: m.Number) -> m.Expression:
    match expression:
        case m.Operation(operator="/", operands=(inner, m.Number(value=2))):
            return inner
        case m.Operation(operator="*", operands=(m.Number(value=0.5), inner)):
            return inner
    return m.Operation(expression.span, expression.axes, "*", (two, expression))


def _normal(printer: Expressions, call: m.DistributionCall) -> str:
    name = r"\mathcal{N}" if call.name == "Normal" else upright(call.name)
    return applied(name, rf"{printer.text(call.arguments['mean'])},\; {printer.text(squared(call.arguments['sd']))}")


def _student(printer: Expressions, call: m.DistributionCall) -> str:
    df, mean, scale = (printer.text(call.arguments[each]) for each in ("df", "mean", "scale"))
    return applied(rf"\mathrm{{St}}_{{{df}}}", rf"{mean},\; {scale}")


def _plain(printer: Expressions, call: m.DistributionCall) -> str:
    """A distribution by its name, arguments in their declared order; a probability through the link that they name."""
    links, entry = {"logit": r"\operatorname{sigmoid}", "probit": r"\Phi"}, DISTRIBUTIONS.get(call.name)
    shown = [
        applied(links[name], printer.text(each)) if name in links else printer.text(each)
        for name, each in call.arguments.items()
    ]
    return applied(upright(entry.latex if entry and entry.latex else call.name), r",\; ".join(shown))


def _categorical(printer: Expressions, call: m.DistributionCall) -> str:
    (name, argument) = next(iter(call.arguments.items()))
    if name != "logits":
        return applied(r"\mathrm{Categorical}", printer.vector(argument))
    if isinstance(argument, m.Read) and printer.reads.is_whole(argument):
        return applied(r"\mathrm{Categorical}", applied(r"\operatorname{softmax}", printer.vector(argument)))
    label = printer.symbols.index(argument.axes[-1]) if argument.axes else ""
    softmax = applied(rf"\operatorname{{softmax}}_{{{label}}}", printer.text(argument))
    return applied(r"\mathrm{Categorical}", softmax)


def _ordinal(printer: Expressions, call: m.DistributionCall) -> str:
    link = "probit" if "probit" in call.arguments else "logit"
    word = r"\Phi" if link == "probit" else r"\operatorname{sigmoid}"
    cutpoints = printer.vector(call.arguments["cutpoints"])
    return applied(rf"\mathrm{{Ordinal}}_{{{word}}}", rf"{printer.text(call.arguments[link])};\; {cutpoints}")


def _multivariate(printer: Expressions, call: m.DistributionCall) -> str:
    arguments = {name: printer.vector(each) for name, each in call.arguments.items()}
    covariance = arguments.get("covariance")
    if covariance is None:
        factor = arguments.get("factor", "")
        covariance = rf"{factor}\, {factor}^\top"
        if "sd" in arguments:
            covariance += rf" + \operatorname{{diag}}({arguments['sd']})^2"
    return applied(r"\mathcal{N}", rf"{arguments['mean']},\; {covariance}")


def _mixture(printer: Expressions, call: m.DistributionCall) -> str:
    weight = next(iter(call.arguments.values()))
    parts = [distribution(printer, each) for each in call.components]
    if len(parts) == 2 and not weight.axes:
        first = printer.printed(weight)
        return rf"{first.at_least(2)}\, {parts[0]} + (1 - {printer.text(weight, 1)})\, {parts[1]}"
    vector = printer.vector(weight)
    return rf"\mathrm{{Mixture}}({', '.join([vector, *parts])})"


def _bounded(printer: Expressions, call: m.DistributionCall) -> str:
    """A truncated or censored distribution, its bounds as an interval."""
    lower = printer.text(call.arguments["lower"]) if "lower" in call.arguments else r"-\infty"
    upper = printer.text(call.arguments["upper"]) if "upper" in call.arguments else r"\infty"
    inside = distribution(printer, call.components[0])
    return rf"\mathrm{{{call.name}}}_{{[{lower},\, {upper}]}}\bigl({inside}\bigr)"


_TABLE: Mapping[str, _Printer] = MappingProxyType(
    {
        "Normal": _normal,
        "LogNormal": _normal,
        "StudentT": _student,
        "Categorical": _categorical,
        "Ordinal": _ordinal,
        "MultivariateNormal": _multivariate,
        "Mixture": _mixture,
        "Truncated": _bounded,
        "Censored": _bounded,
    }
)
"""Distributions with a form of their own; the others are printed by name."""

NOTES: Mapping[str, str] = MappingProxyType(
    {
        "Normal": r"$\mathcal{N}(m, v)$ is the normal distribution with mean $m$ and variance $v$",
        "LogNormal": r"$\mathrm{LogNormal}(m, v)$ is the exponential of a normal variable with mean $m$ and "
        r"variance $v$",
        "StudentT": r"$\mathrm{St}_\nu(m, s)$ is Student's $t$ distribution with $\nu$ degrees of freedom, "
        r"location $m$ and scale $s$",
        "Laplace": r"$\mathrm{Laplace}(m, s)$ has density $\exp(-\lvert y - m\rvert / s) / 2s$",
        "Logistic": r"$\mathrm{Logistic}(m, s)$ has location $m$ and scale $s$",
        "Gamma": r"$\mathrm{Gamma}(a, b)$ has shape $a$ and rate $b$, mean $a/b$",
        "Exponential": r"$\mathrm{Exponential}(b)$ has rate $b$, mean $1/b$",
        "Weibull": r"$\mathrm{Weibull}(a, s)$ has shape $a$ and scale $s$",
        "InverseGamma": r"$\mathrm{InverseGamma}(a, b)$ has shape $a$ and scale $b$, mean $b/(a - 1)$",
        "HalfNormal": r"$\mathrm{HalfNormal}(s)$ is $\lvert z\rvert$ for $z \sim \mathcal{N}(0, s^2)$",
        "HalfCauchy": r"$\mathrm{HalfCauchy}(s)$ has density $2 / \pi s(1 + y^2/s^2)$ for $y > 0$",
        "HalfStudentT": r"$\mathrm{HalfStudentT}(\nu, s)$ is $\lvert z\rvert$ for $z \sim \mathrm{St}_\nu(0, s)$",
        "PCScale": r"$\mathrm{PCScale}(s_0, \alpha)$ penalises complexity: it exceeds $s_0$ with probability $\alpha$",
        "PCLengthscale": r"$\mathrm{PCLengthscale}(\ell_0, \alpha, d)$ penalises complexity in $d$ dimensions: it is "
        r"below $\ell_0$ with probability $\alpha$",
        "LKJ": r"$\mathrm{LKJ}(\eta)$ gives $\mathbf{R} = \mathbf{L} \mathbf{L}^\top$ a density proportional to "
        r"$\det(\mathbf{R})^{\eta - 1}$",
        "NegativeBinomial": r"$\mathrm{NegBin}(m, \phi)$ has mean $m$ and variance $m + m^2/\phi$",
        "Binomial": r"$\mathrm{Binomial}(n, p)$ counts successes among $n$ trials of probability $p$",
        "Ordinal": r"$\mathrm{Ordinal}_{F}(m; \mathbf{c})$ takes one of the first $j$ levels with probability "
        r"$F(c_j - m)$",
        "MultivariateNormal": r"$\mathcal{N}(\mathbf{m}, \mathbf{S})$ is the normal distribution with mean "
        r"$\mathbf{m}$ and covariance $\mathbf{S}$",
        "Censored": r"$\mathrm{Censored}_{[a, b]}$ records values outside of $[a, b]$ as the nearer bound",
        "Truncated": r"$\mathrm{Truncated}_{[a, b]}$ is the distribution given that its value lies in $[a, b]$",
        "logit": r"$\operatorname{sigmoid}(z) = 1 / (1 + e^{-z})$",
        "probit": r"$\Phi$ is the distribution function of $\mathcal{N}(0, 1)$",
    }
)
"""Which parametrisation a symbol stands for, and what the links are, by distribution and by argument."""


def distribution(printer: Expressions, call: m.DistributionCall) -> str:
    """A distribution with its arguments."""
    if call.external:
        return applied(upright(call.name), ", ".join(printer.vector(each) for each in call.arguments.values()))
    return _TABLE.get(call.name, _plain)(printer, call)


def calls_inside(call: m.DistributionCall) -> list[m.DistributionCall]:
    """A distribution and those inside it."""
    return [call, *(inner for each in call.components for inner in calls_inside(each))]
