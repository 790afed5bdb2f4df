"""SymPy expressions as text in the language's own words, with short numbers: what plans and messages show."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from gpdsl.symbolic import conditions as c
from gpdsl.symbolic import functions as f

DIGITS = 6

NAMES: Mapping[type, str] = {
    f.absolute: "abs",
    f.maximum: "max",
    f.minimum: "min",
    f.ndtr: "Phi",
    f.ndtri: "probit",
}
"""Functions that the language calls otherwise."""

WRITTEN: Mapping[type, Callable[..., str]] = {
    f.log_ndtr: lambda x: f"log(Phi({x}))",
    f.log_ndtr_interval: lambda low, high: f"log(Phi({high}) - Phi({low}))",
    f.log1mexp: lambda x: f"log(1 - exp(-({x})))",
    f.log_difference: lambda a, b: f"log(exp({a}) - exp({b}))",
    f.logsumexp: lambda *each: f"log({' + '.join(f'exp({e})' for e in each)})",
    f.times_log: lambda y, x: f"{y}*log({x})",
    f.log_rising: lambda x, n: f"(lgamma({x} + {n}) - lgamma({x}))",
    f.log_beta: lambda a, b: f"(lgamma({a}) + lgamma({b}) - lgamma({a} + {b}))",
    f.log_gamma_cdf: lambda shape, x: f"log(P(Gamma({shape}, 1) < {x}))",
    f.log_gamma_sf: lambda shape, x: f"log(P(Gamma({shape}, 1) > {x}))",
    f.log_student_cdf: lambda df, x: f"log(P(StudentT({df}, 0, 1) < {x}))",
    c.less: lambda a, b: f"({a} < {b})",
    c.less_equal: lambda a, b: f"({a} <= {b})",
    c.equal: lambda a, b: f"({a} == {b})",
    c.both: lambda a, b: f"({a} and {b})",
    c.opposite: lambda a: f"(not {a})",
    c.choose: lambda holds, a, b: f"(if {holds} then {a} else {b})",
}
"""Functions that the language has no name for, as what they compute."""


class _Printer(StrPrinter):
    def _print_Float(self, expr: sp.Float) -> str:
        return f"{float(expr):.{DIGITS}g}"

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        if expr.exp.is_Float and expr.exp < 0:
            return f"{self.parenthesize(expr.base, PRECEDENCE['Pow'])}^({self._print(expr.exp)})"
        return super()._print_Pow(expr, rational).replace("**", "^")

    def _print_Function(self, expr: sp.Function) -> str:
        arguments = [self._print(each) for each in expr.args]
        if expr.func in WRITTEN:
            return WRITTEN[expr.func](*arguments)
        name = NAMES.get(expr.func, expr.func.__name__)
        return f"{name}({', '.join(arguments)})"


def written(expression: sp.Expr) -> str:
    """The expression as a reader of the language would write it."""
    return _Printer().doprint(expression)
