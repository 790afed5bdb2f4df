"""What may stand left of `~`: transforms that are monotone, elements under conditions; and outputs on the right."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from gpdsl.language import ModelError, compile_text, model as m
from gpdsl.language.checker.monotone import course

HEAD = """index i in 1..2
index p in 1..4
input x : real
input e : positive
output y : real
output z : positive
output t[p] : real
param a[i] : positive = 1
param b[i] : positive = 0.5
param c[i] : real = 0
param r : real = 0.5
param u : unit = 0.5
param h : real(lower = -2, upper = -1) = -1.5
param s : positive = 0.1
latent f(x) ~ GP(0, RBF(1))
density any(v | m) = -abs(v - m)
function warp(y; a, b, c) = y + sum(i, a[i]*tanh(b[i]*(y + c[i])))
"""
REST = {"y": "y ~ Normal(f, s)\n", "z": "z ~ Gamma(1, s)\n", "t": "t[p] ~ Normal(f, s)\n"}
PROPORTION = "output w : unit\n"


def direction(transform: str, name: str) -> int | None:
    rest = "".join(text for other, text in REST.items() if other != name)
    declared = compile_text(f"{HEAD}{PROPORTION * (name == 'w')}{transform} ~ any(f)\n{rest}")
    found = next(o for o in declared.observations if o.outputs == (name,)).transform
    assert found is not None
    return course(declared, found).direction


@pytest.mark.parametrize(
    ("transform", "name", "expected"),
    [
        ("warp(y)", "y", 1),
        ("log(z)", "z", 1),
        ("-log(z)", "z", -1),
        ("(y - r)/s", "y", 1),
        ("(r - y)/e", "y", -1),
        ("h*y", "y", -1),
        ("y/h", "y", -1),
        ("1/z", "z", -1),
        ("z^2", "z", 1),
        ("z^s", "z", 1),
        ("z^h", "z", -1),
        ("(z^s - 1)/s", "z", 1),
        ("y^3", "y", 1),
        ("2^y", "y", 1),
        ("0.5^y", "y", -1),
        ("log(sqrt(z) + 1)", "z", 1),
        ("z*exp(z)", "z", 1),
        ("exp(-y)*u", "y", -1),
        ("y + log1p(exp(y)) + softplus(2*y)", "y", 1),
        ("exp(y) - exp(-y)", "y", 1),
        ("log(z/(1 + z))", "z", None),
        ("log(w/(1 - w))", "w", 1),
        ("w/(1 - w)", "w", 1),
        ("1/(w - 1)", "w", -1),
        ("y + 0.5*sin(y)", "y", None),
        ("(z^r - 1)/r", "z", None),
    ],
)
def test_proofs(transform: str, name: str, expected: int | None) -> None:
    assert direction(transform, name) == expected


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("E335", "y^2 ~ Normal(f, s)"),
        ("E335", "sin(y) ~ Normal(f, s)"),
        ("E335", "max(y, 0) ~ Normal(f, s)"),
        ("E335", "y*exp(y) ~ Normal(f, s)"),
        ("E335", "0*y ~ Normal(f, s)"),
        ("E335", "y - 2*warp(y) + sum(i, a[i])*exp(y) ~ Normal(f, s)"),
        ("E336", "log(y) ~ Normal(f, s)"),
        ("E336", "sqrt(y) ~ Normal(f, s)"),
        ("E336", "log(z - s) ~ Normal(f, s)"),
        ("E334", "y*z ~ Normal(f, s)"),
        ("E334", "t[1] - t[2] ~ Normal(f, s)"),
        ("E334", "s + 1 ~ Normal(f, s)"),
        ("E218", "y - f ~ Normal(0, s)"),
        ("E203", "y + a ~ Normal(f, s)"),
        ("E308", "log(z) ~ Gamma(1, s)"),
        ("E318", "f ~ Normal(0, s)"),
    ],
)
def test_refused(code: str, line: str) -> None:
    with pytest.raises(ModelError) as caught:
        compile_text(HEAD + line + "\n")
    assert code in {each.code for each in caught.value.diagnostics if each.code != "E208"}
    assert all(each.code in {code, "E208"} for each in caught.value.diagnostics)


def test_a_positive_transform_takes_a_positive_distribution() -> None:
    model = compile_text(HEAD + "exp(y) ~ Gamma(2, s)\n" + REST["z"] + REST["t"])
    assert model.observations[0].transform is not None


def test_proofs_agree_with_random_parameters() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b, c = rng.gamma(1, size=2), rng.gamma(1, size=2), rng.normal(size=2)
        y = np.linspace(-5, 5, 400)
        warped = y + sum(a[k] * np.tanh(b[k] * (y + c[k])) for k in range(2))
        assert (np.diff(warped) > 0).all()


# --- what a transform reaches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("sqrt(z) ~ Normal(f, s)", False),
        ("1/z ~ Normal(f, s)", False),
        ("z/s ~ Normal(f, s)", False),
        ("(z^s - 1)/s ~ Normal(f, s)", False),
        ("log(z) ~ Normal(f, s)", True),
        ("-log(z) ~ StudentT(4, f, s)", True),
        ("z - 1/z ~ Normal(f, s)", True),
        ("log(expm1(z)) ~ Normal(f, s)", True),
        ("log(log1p(z)) ~ Normal(f, s)", True),
        ("sqrt(z) ~ Gamma(2, s)", True),
        ("sqrt(z) ~ Truncated(Normal(f, s), lower = 0)", True),
        ("sqrt(z) ~ Truncated(Normal(f, s), lower = -1)", False),
        ("log1p(z) ~ Mixture(u, Gamma(2, s), LogNormal(f, s))", True),
        ("exp(z) ~ Gamma(2, s)", False),
        ("tanh(y) ~ Normal(f, s)", False),
        ("y/sqrt(1 + y^2) ~ Normal(f, s)", False),
        ("tanh(y) ~ Truncated(Normal(f, s), lower = -1, upper = 1)", True),
        ("atan(y) ~ Normal(f, s)", False),
        ("exp(y) ~ Normal(f, s)", False),
        ("exp(y) ~ LogNormal(f, s)", True),
        ("asinh(y) ~ Laplace(f, s)", True),
        ("warp(y) ~ Normal(f, s)", True),
        ("log(w/(1 - w)) ~ Normal(f, s)", True),
        ("log(w) - log1p(-w) ~ Normal(f, s)", True),
        ("log(w) ~ Normal(f, s)", False),
        ("log(w) ~ Truncated(Normal(f, s), upper = 0)", True),
        ("sqrt(w) ~ Beta(2, s)", True),
        ("w/(1 - w) ~ Gamma(2, s)", True),
    ],
)
def test_a_transform_reaches_what_its_distribution_allows(line: str, right: bool) -> None:
    name = next(each for each in "yzw" if re.search(rf"\b{each}\b", line.split("~")[0]))
    rest = "".join(text for other, text in REST.items() if other != name)
    try:
        compile_text(f"{HEAD}{PROPORTION * (name == 'w')}{line}\n{rest}")
        codes = set()
    except ModelError as error:
        codes = {each.code for each in error.diagnostics}
    assert codes == (set() if right else {"E384"})


# --- elements and conditions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "lines"),
    [
        ([], "t[1] ~ Normal(f, s)\nt[p > 1] ~ Normal(t[p-1] + f, s)"),
        ([], "t[4] ~ Normal(f, s)\nt[p < 4] ~ Normal(t[p+1] + f, s)"),
        (["E337"], "log(z) ~ Normal(y + f, s)\nt[p != 2] ~ Normal(t[2], s)\nt[2] ~ Normal(y, s)"),
        ([], "t[p >= 3] ~ Normal(y, s)\nt[p < 3] ~ Normal(z, s)"),
        (["E338"], "t[p > 1] ~ Normal(f, s)"),
        (["E210"], "t[p > 1] ~ Normal(f, s)\nt[p < 3] ~ Normal(f, s)"),
        (["E210"], "t[p > 1] ~ Normal(f, s)\nt[1] ~ Normal(f, s)\nt[3] ~ Normal(f, s)"),
        (["E337"], "t[p] ~ Normal(t[p] + f, s)"),
        (["E337"], "t[1] ~ Normal(t[2], s)\nt[2] ~ Normal(t[1], s)\nt[p > 2] ~ Normal(f, s)"),
        (["E205"], "t[p] ~ Normal(t[p-1] + f, s)"),
        (["E205"], "t[p > 9] ~ Normal(f, s)"),
        (["E205"], "t[p > 2] ~ Normal(f, s)\nt[1] ~ Normal(t[5], s)"),
    ],
)
def test_elements(codes: list[str], lines: str) -> None:
    text = HEAD.replace("output z : positive\n", "output z : positive\noutput n : count\n")
    rest = "" if "z)" in lines.split("~")[0] else REST["z"]
    try:
        compile_text(text + lines + "\n" + rest + REST["y"] + "n ~ Poisson(exp(f))\n")
        found: list[str] = []
    except ModelError as error:
        found = [each.code for each in error.diagnostics]
    assert found == codes


def test_outputs_in_a_circle_are_refused() -> None:
    with pytest.raises(ModelError) as caught:
        compile_text(HEAD + "y ~ Normal(z, s)\nlog(z) ~ Normal(t[1], s)\nt[p] ~ Normal(y, s)\n")
    assert [each.code for each in caught.value.diagnostics] == ["E337"]


def test_a_condition_restricts_the_index_on_the_right() -> None:
    declared = compile_text(HEAD + "t[1] ~ Normal(f, s)\nt[p > 1] ~ Normal(t[p-1], s)\n" + REST["y"] + REST["z"])
    second = declared.observations[1]
    assert second.guards == (m.Guard("p", ">", 1),)
    assert second.subscripts == (m.IndexValue("p"),)


def test_ranges_of_transforms() -> None:
    declared = compile_text(HEAD + "exp(y) ~ Gamma(2, s)\n" + REST["z"] + REST["t"])
    transform = declared.observations[0].transform
    assert transform is not None
    found = course(declared, transform)
    assert (found.low, found.high, found.sign) == (0.0, math.inf, 1)
