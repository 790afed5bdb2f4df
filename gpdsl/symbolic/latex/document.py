"""The whole text: equations, definitions, and the sentences about data, parameters and constants around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType

from gpdsl.errors import printable
from gpdsl.language import model as m
from gpdsl.symbolic.information import starts_by_data
from gpdsl.symbolic.latex.equations import Equations, Line, aligned
from gpdsl.symbolic.latex.expressions import number
from gpdsl.symbolic.latex.mathml import lines_of, mathml, plain
from gpdsl.symbolic.latex.names import escaped, index_range, levels, row_range, upright

_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[margin=2.2cm]{geometry}
\usepackage{amsmath,amssymb}
\usepackage{iftex}
\ifPDFTeX\usepackage[T1]{fontenc}\else\usepackage{fontspec}\fi
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
\raggedright
\begin{document}"""

_SETS = {
    "real": r"\mathbb{R}",
    "positive": r"\mathbb{R}_{>0}",
    "unit": "(0, 1)",
    "count": r"\{0, 1, 2, \dots\}",
    "time": r"\mathbb{R}",
    "binary": r"\{0, 1\}",
}
_MANY = 12
"""Entries of a constant array that are printed."""


def latex(declarations: m.Declarations, *, standalone: bool = False) -> str:
    """The model as LaTeX for amsmath: a fragment to put in a paper, or a `standalone` document."""
    equations = Equations(declarations)
    name, title = declarations.name, declarations.title
    head = [f"% {name}: {title}" if title else f"% {name}"]
    if title or standalone:
        head.append(rf"\paragraph{{{escaped(title or name)}.}}")
    body = [*head, aligned(equations.lines())]
    if definitions := equations.definitions():
        body += ["where", aligned(definitions)]
    body += [rf"\textbf{{{word}.}} {sentence}." + "\n" for word, sentence in sentences(equations)]
    text = "\n".join(body).rstrip() + "\n"
    return f"{_PREAMBLE}\n{text}\\end{{document}}\n" if standalone else text


def equations(declarations: m.Declarations) -> str:
    """The equations alone, as a notebook shows them."""
    return aligned(Equations(declarations).lines())


def sentences(equations: Equations) -> Iterator[tuple[str, str]]:
    """What stands below the equations: a word, and what is said of it."""
    d = equations.declarations
    rows = row_range(equations.symbols)
    groups: list[tuple[str, Sequence[str]]] = [
        ("Inputs", [_input(equations, each) for each in d.inputs.values()]),
        ("Outputs", [_output(equations, each) for each in d.outputs.values()]),
        ("Indices", [_index(equations, each) for each in d.indices.values()]),
        ("Parameters", [_param(equations, each) for each in d.params.values()]),
        ("Constants", [f"${_vector(equations, each.name)} = {_values(each.values)}$" for each in d.consts.values()]),
        ("Functions computed outside of the model", [*_externals(equations)]),
        ("Notation", _notes(equations)),
    ]
    for word, shown in groups:
        ending = f", for ${rows}$" if word == "Inputs" else ""
        if shown:
            yield word, "; ".join(shown) + ending


def _input(equations: Equations, declared: m.Input) -> str:
    if declared.label is not None:
        return _labelled(equations, declared)
    shown = f"${_vector(equations, declared.name, row=True)} \\in {_space(equations, declared.kind, declared.axes)}$"
    return shown + (f" (time in {declared.unit}s)" if declared.unit else "")


def _vector(equations: Equations, name: str, *, row: bool = False) -> str:
    """A whole quantity: bold when it has axes."""
    below = [equations.symbols.row] if row else []
    return equations.symbols.of(name).render(below, bold=bool(equations.declarations.axes_of(name)))


def _space(equations: Equations, kind: str, axes: Sequence[m.Axis]) -> str:
    size = r" \times ".join(equations.symbols.size(axis) for axis in axes)
    base = _SETS[kind]
    return base + (f"^{{{size}}}" if size else "")


def _output(equations: Equations, declared: m.Output) -> str:
    if declared.label is not None:
        return _labelled(equations, declared)
    shown = _vector(equations, declared.name, row=True)
    return f"${shown} \\in {_space(equations, declared.kind, declared.axes)}$"


def _labelled(equations: Equations, declared: m.Input | m.Output) -> str:
    """What takes the levels of an index as values."""
    shown = _vector(equations, declared.name, row=True)
    assert declared.label is not None
    index = equations.declarations.indices.get(declared.label.name or "")
    size = equations.symbols.size(declared.label)
    members = levels(index) if index is not None and index.levels else rf"\{{1, \dots, {size}\}}"
    power = r" \times ".join(equations.symbols.size(axis) for axis in declared.axes)
    ordered = ", in this order" if declared.kind == "ordinal" else ""
    return f"${shown} \\in {members}{f'^{{{power}}}' if power else ''}${ordered}"


def _index(equations: Equations, index: m.Index) -> str:
    shown = f"${index_range(equations.symbols, index.axis)}$"
    return shown + (f" (${levels(index)}$)" if index.levels else "")


def _param(equations: Equations, param: m.Param) -> str:
    start = f"{'fixed at' if param.fixed else 'initially'} ${_values(param.initial)}$"
    if param.constraint in {"simplex", "ordered"} and not isinstance(param.initial, tuple):
        start = "initially all equal" if param.constraint == "simplex" else "initially evenly spaced"
    if param.constraint == "correlation_factor" and not param.fixed:
        start = "initially without correlations"
    if starts_by_data(param):
        start = "initially by the data"
    return f"${_domain(equations, param)}$ ({start})"


def _domain(equations: Equations, param: m.Param) -> str:
    symbols = equations.symbols
    symbol = symbols.of(param.name)
    whole = _vector(equations, param.name)
    if param.constraint == "correlation_factor":
        return rf"{whole} \text{{ lower triangular}},\; \operatorname{{diag}}({whole} {whole}^\top) = \mathbf{{1}}"
    if param.constraint in {"simplex", "ordered"}:
        outer = [symbols.index(axis) for axis in param.axes[:-1]]
        last, size = param.axes[-1], symbols.size(param.axes[-1])
        if param.constraint == "ordered":
            first, end = symbol.render([*outer, "1"]), symbol.render([*outer, size])
            return f"{first} < {end}" if size == "2" else rf"{first} < \dots < {end}"
        element = symbol.render([*outer, symbols.index(last)])
        return rf"{element} > 0,\; \textstyle\sum_{{{symbols.index(last)}=1}}^{{{size}}} {element} = 1"
    if param.lower is not None or param.upper is not None:
        low = number(param.lower).text if param.lower is not None else r"-\infty"
        high = number(param.upper).text if param.upper is not None else r"\infty"
        element = symbol.render([symbols.index(axis) for axis in param.axes])
        return rf"{element} \in ({low}, {high})"
    if param.constraint == "positive" and not param.axes:
        return f"{whole} > 0"
    return rf"{whole} \in {_space(equations, param.constraint, param.axes)}"


def _values(values: float | tuple) -> str:
    """A number, a row of numbers, or rows of a matrix; all equal ones as one."""
    if not isinstance(values, tuple):
        return number(values).text
    if values and isinstance(values[0], tuple) and len(values) * len(values[0]) <= _MANY:
        rows = r" \\ ".join(" & ".join(_values(each) for each in row) for row in values)
        return rf"\left(\begin{{smallmatrix}} {rows} \end{{smallmatrix}}\right)"
    shown = [_values(each) for each in values]
    if len(shown) > _MANY:
        shown = [*shown[: _MANY - 2], r"\dots", shown[-1]]
    return f"({', '.join(shown)})"


def _externals(equations: Equations) -> Iterator[str]:
    d = equations.declarations
    for external in d.externals.values():
        spaces = [_space(equations, "real", each.axes) for each in external.arguments]
        source = r" \times ".join(spaces)
        yield rf"${upright(external.name)} : {source} \to {_space(equations, 'real', external.result)}$"
    for likelihood in d.likelihoods.values():
        observed = ", ".join(
            equations.symbols.of(each.name).render(bold=bool(each.axes)) for each in likelihood.observed
        )
        given = ", ".join(equations.symbols.of(each.name).render(bold=bool(each.axes)) for each in likelihood.arguments)
        bar = rf" \mid {given}" if given else ""
        yield rf"the density ${upright(likelihood.name)}({observed}{bar})$"


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


def _notes(equations: Equations) -> list[str]:
    d = equations.declarations
    calls = [each.prior for each in d.params.values() if each.prior is not None]
    calls += [each.distribution for each in d.rows.values()]
    calls += [each.distribution for each in d.observations]
    inside = [each for call in calls for each in call.calls()]
    words = dict.fromkeys(word for each in inside for word in (each.name, *each.arguments))
    return [NOTES[word] for word in words if word in NOTES]


# The whole text for a web page: equations as MathML, and the sentences about data and parameters around them.


def web(declarations: m.Declarations) -> str:
    """The model as HTML without scripts or styles; `class` marks what a page may style."""
    equations = Equations(declarations)
    body = [_block(equations.lines())]
    if definitions := equations.definitions():
        body += ["<p>where</p>", _block(definitions)]
    body += [f"<p><b>{word}.</b> {_sentence(sentence)}.</p>" for word, sentence in sentences(equations)]
    return "\n".join(body)


def _block(lines: Sequence[Line]) -> str:
    inside = aligned(lines).removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}")
    return lines_of(printable(inside))


def _sentence(text: str) -> str:
    """Words and, between dollar signs, formulas."""
    parts = printable(text).replace(r"\$", "\0").split("$")
    shown = [mathml(part) if number % 2 else escape(plain(part)) for number, part in enumerate(parts)]
    return "".join(shown).replace("\0", "$")
