"""What may stand left of `~`: transforms that are monotone, elements under conditions; and outputs on the right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpdsl.language import ModelError, compile_text
from gpdsl.language import model as m
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
function warp(y; a, b, c) = y + sum(i, a[i]*tanh(b[i]*(y + c[i])))
"""
REST = {"y": "y ~ Normal(f, s)\n", "z": "z ~ Gamma(1, s)\n", "t": "t[p] ~ Normal(f, s)\n"}


def direction(transform: str, name: str) -> int | None:
    rest = "".join(text for other, text in REST.items() if other != name)
    declared = compile_text(f"{HEAD}{transform} ~ Normal(f, s)\n{rest}")
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
