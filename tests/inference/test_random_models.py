"""Linear models drawn at random, whose text and whose dense algebra are made together: one knows nothing of the other.

Latents of several inputs, by label or along an index, sums and products of kernels, derivatives, integrals and values
at another input, coefficients that are functions of inputs, conditions, effects and noise of levels, variables of rows,
logarithms of outputs and missing values, in any company.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import gpdsl

Array = np.ndarray
Data = dict[str, Array]

HEAD = """input x : real
input x2 : real
input end : real
input z : real[2]
index s in 1..3
index q in 1..2
index p in 1..3
input site : label[s]
param effect[s] : real ~ Normal(0, 0.8)
const k[s] = [1, 0.5, -2]
"""
COLUMNS = {"x": {"x": "x"}, "z": {"z[1]": "z1", "z[2]": "z2"}, "x, z": {"x": "x", "z[1]": "z1", "z[2]": "z2"}}
"""Inputs of a latent: as a kernel names their columns, and where they are in the data."""

COEFFICIENTS: dict[str, Callable[[Data], Any]] = {
    "1": lambda d: 1.0,
    "-2": lambda d: -2.0,
    "x": lambda d: d["x"],
    "(1 + z[1]^2)": lambda d: 1 + d["z1"] ** 2,
    "(if x > 0 then 1 else 0.2)": lambda d: np.where(d["x"] > 0, 1.0, 0.2),
    "k[site]": lambda d: np.array([1.0, 0.5, -2.0])[d["site"] - 1],
}
NODES = np.polynomial.legendre.leggauss(24)
STEP, SLOPE = 2e-3, {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
"""A derivative as differences of values."""


@dataclass(frozen=True)
class Kernel:
    text: str
    at: Callable[[Array, Array], Array]
    smooth: bool
    integrated: bool
    """Whether there are integrals of it."""


def kernel_of(draw: random.Random, names: list[str], smooth: bool) -> Kernel:
    """A factor, of all columns or of one of them."""
    on = draw.choice([list(range(len(names))), [draw.randrange(len(names))]])
    ell, period = round(draw.uniform(0.5, 2), 2), round(draw.uniform(1, 4), 2)
    given = f", on = {names[on[0]]}" if len(on) < len(names) else ""

    def apart(a: Array, b: Array) -> Array:
        return np.sqrt((((a[:, None] - b[None])[..., on]) ** 2).sum(-1)) / ell

    table: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
        "RBF": (f"{ell}", lambda a, b: np.exp(-0.5 * apart(a, b) ** 2)),
        "RationalQuadratic": (f"{ell}, 1.5", lambda a, b: (1 + apart(a, b) ** 2 / 3) ** -1.5),
        "Linear": (f"{ell}", lambda a, b: a[:, on] @ b[:, on].T / ell**2),
    }
    if len(on) == 1:
        table["Periodic"] = (
            f"{ell}, {period}",
            lambda a, b: np.exp(-2 * np.sin(np.pi * apart(a, b) * ell / period) ** 2 / ell**2),
        )
    if not smooth:
        table["Matern12"] = (f"{ell}", lambda a, b: np.exp(-apart(a, b)))
        table["Matern32"] = (f"{ell}", lambda a, b: (1 + 3**0.5 * (u := apart(a, b))) * np.exp(-(3**0.5) * u))
        table["Matern52"] = (
            f"{ell}",
            lambda a, b: (1 + 5**0.5 * (u := apart(a, b)) + 5 * u**2 / 3) * np.exp(-(5**0.5) * u),
        )
    name = draw.choice(list(table))
    arguments, at = table[name]
    integrated = name not in ("RationalQuadratic", "Periodic")
    return Kernel(f"{name}({arguments}{given})", at, not name.startswith("Matern"), integrated)


def combined(draw: random.Random, names: list[str], smooth: bool) -> Kernel:
    """A sum or product of factors, with a variance."""
    variance, found = round(draw.uniform(0.3, 2), 2), kernel_of(draw, names, smooth)
    text, parts = f"{variance} * {found.text}", [("*", lambda a, b: variance * found.at(a, b))]
    for _ in range(draw.choice([0, 0, 1, 2])):
        other, sign = kernel_of(draw, names, smooth), draw.choice("+*")
        sign = "+" if other.text.startswith("Linear") else sign  # products of many would be as large as rounding is not
        text = f"({text}) {sign} {other.text}"
        parts.append((sign, other.at))
        integrated = found.integrated and other.integrated and sign == "+"
        found = Kernel(text, found.at, found.smooth and other.smooth, integrated)

    def at(a: Array, b: Array) -> Array:
        value = parts[0][1](a, b)
        for sign, other in parts[1:]:
            value = value + other(a, b) if sign == "+" else value * other(a, b)
        return value

    return replace(found, text=text, at=at)


@dataclass(frozen=True)
class Latent:
    name: str
    inputs: str
    by_level: bool
    kernel: Kernel
    slope: float

    def points(self, d: Data) -> Array:
        return np.stack([d[each] for each in COLUMNS[self.inputs].values()], 1)

    def mean(self, points: Array) -> Array:
        return 0.7 + self.slope * points[:, 0]


@dataclass(frozen=True)
class Read:
    """A coefficient times a value, slope or integral of a latent: a sum of values with weights."""

    coefficient: str
    latent: Latent
    kind: str

    @property
    def text(self) -> str:
        name = self.latent.name + "[site]" * self.latent.by_level
        written = {"slope": f"D({name}, x)", "integral": f"integral({name}, x, end)", "elsewhere": f"{name}(x2)"}
        return f"{self.coefficient} * {written.get(self.kind, name)}"

    def nodes(self, d: Data) -> list[tuple[Array, Array]]:
        times, points = COEFFICIENTS[self.coefficient](d) * np.ones(len(d["x"])), self.latent.points(d)
        if self.kind == "slope":
            return [(times * share / STEP, points + at * STEP) for at, share in SLOPE.items()]
        if self.kind == "integral":
            half = (d["end"] - d["x"]) / 2
            return [
                (times * share * half, points + ((at + 1) * half)[:, None]) for at, share in zip(*NODES, strict=True)
            ]
        return [(times, d["x2"][:, None] if self.kind == "elsewhere" else points)]


@dataclass(frozen=True)
class Output:
    """One column: reads, an effect of the level, a variable of the row that it shares, mixed functions, and noise."""

    reads: tuple[Read, ...]
    sd: Callable[[Data], Array]
    effect: bool = False
    row: float = 0.0
    mixed: tuple[Latent, Array] | None = None
    logarithm: bool = False

    def mean(self, d: Data) -> Array:
        reads = sum(w * each.latent.mean(at) for each in self.reads for w, at in each.nodes(d))
        return reads + np.sin(d["x"])


def covariance(one: Output, d: Data, other: Output, e: Data) -> Array:
    """Between two columns, at two sets of rows, without noise."""
    same = d["site"][:, None] == e["site"][None]
    found = 0.64 * same * (one.effect and other.effect) + one.row * other.row * np.eye(len(d["x"]), len(e["x"])) * (
        d is e
    )
    for a in one.reads:
        for b in other.reads:
            if a.latent is b.latent:
                kernel = a.latent.kernel.at
                shared = sum(np.outer(u, v) * kernel(s, t) for u, s in a.nodes(d) for v, t in b.nodes(e))
                found = found + shared * (same if a.latent.by_level else 1.0)
    if one.mixed and other.mixed:
        latent = one.mixed[0]
        found = found + one.mixed[1] @ other.mixed[1] * latent.kernel.at(latent.points(d), latent.points(e))
    return found


def drawn(seed: int) -> tuple[str, list[tuple[str, Output]]]:
    """A model and its columns, `y1` or `v[2]`."""
    draw, text = random.Random(seed), HEAD
    latents, outputs = [], []
    for number in range(draw.randint(1, 3)):
        inputs = draw.choice(list(COLUMNS))
        kernel = combined(draw, list(COLUMNS[inputs]), draw.random() < 0.6)
        latent = Latent(f"f{number}", inputs, draw.random() < 0.35, kernel, draw.choice([0.0, 0.3]) * (inputs == "x"))
        mean = "0.7 + 0.3 * x" if latent.slope else "0.7"
        text += f"latent {latent.name}{'[s]' * latent.by_level}({inputs}) ~ GP({mean}, {kernel.text})\n"
        latents.append(latent)
    for number in range(draw.randint(1, 2)):
        reads = []
        for _ in range(draw.randint(1, 3)):
            latent, kinds = draw.choice(latents), ["value", "value"]
            if latent.inputs == "x" and not latent.by_level:
                kinds += ["elsewhere", *["integral"] * latent.kernel.integrated, *["slope"] * latent.kernel.smooth]
            reads.append(Read(draw.choice(list(COEFFICIENTS)), latent, draw.choice(kinds)))
        name, sd, effect = f"y{number}", round(draw.uniform(0.1, 0.6), 2), draw.random() < 0.4
        logarithm, by_site = draw.random() < 0.2, draw.random() < 0.4
        mean = " + ".join([*(each.text for each in reads), "sin(x)", *["effect[site]"] * effect])
        sds = np.array([sd, 2 * sd, sd / 2]) if by_site else np.full(3, sd)
        text += f"output {name} : {'positive' if logarithm else 'real'}\nconst s{number}[s] = {sds.tolist()}\n"
        text += f"let g{number} = {mean}\n" * (draw.random() < 0.5)
        mean = f"g{number}" if f"let g{number}" in text else mean
        noise = f"s{number}[site]" if by_site else f"{sd}"
        text += f"{f'log({name})' if logarithm else name} ~ Normal({mean}, {noise})\n"
        output = Output(tuple(reads), lambda d, sds=sds: sds[d["site"] - 1], effect, 0.0, None, logarithm)
        outputs.append((name, output))
    if draw.random() < 0.6:
        weights, inputs = (
            np.array([[round(draw.gauss(0, 1), 2) for _ in "12"] for _ in "123"]),
            draw.choice(list(COLUMNS)),
        )
        mixed = Latent("h", inputs, False, combined(draw, list(COLUMNS[inputs]), True), 0.0)
        own, row = Read("x", latents[0], "value"), draw.choice([0.0, 0.0, 0.7])
        text += f"output v[p] : real\nconst W[p, q] = {weights.tolist()}\nconst sv[p] = [0.3, 0.4, 0.5]\n"
        text += f"latent h[q]({inputs}) ~ GP(0, {mixed.kernel.text})\n"
        text += "row w ~ Normal(0, 1)\n" * bool(row)
        text += f"v[p] ~ Normal(sum(q, W[p, q] * h[q]) + {own.text}{f' + {row} * w' if row else ''} + sin(x), sv[p])\n"
        for place in range(3):
            sd = 0.3 + 0.1 * place
            output = Output((own,), lambda d, sd=sd: np.full(len(d["x"]), sd), False, row, (mixed, weights[place]))
            outputs.append((f"v{place + 1}", output))
    return text, outputs


def rows(rng: np.random.Generator, count: int) -> Data:
    x, x2 = rng.uniform(-2, 2, (2, count))
    z1, z2 = rng.normal(size=(2, count))
    return {"x": x, "x2": x2, "end": rng.uniform(2, 3, count), "z1": z1, "z2": z2, "site": rng.integers(1, 4, count)}


@pytest.mark.parametrize("seed", [291, 570, *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 130))])
def test_evidence_predictions_and_rows_left_out_are_those_of_dense_algebra(seed: int) -> None:
    text, outputs = drawn(seed)
    rng = np.random.default_rng(seed)
    seen, new = rows(rng, int(rng.integers(6, 20))), rows(rng, 4)
    columns = [each for _, each in outputs]

    def blocks(one: Data, other: Data) -> Array:
        return np.block([[covariance(a, one, b, other) for b in columns] for a in columns])

    mean, noise = (
        np.concatenate([of(each) for each in columns]) for of in (lambda c: c.mean(seen), lambda c: c.sd(seen))
    )
    root = linalg.cholesky(blocks(seen, seen) + np.diag(noise**2), lower=True)
    values = mean + root @ rng.normal(size=len(mean))
    known = rng.random(len(values)) > rng.choice([0.0, 0.2])
    known[0] = True
    data, change = dict(seen), np.zeros(len(values))
    for place, (name, output) in enumerate(outputs):
        own = slice(place * len(seen["x"]), (place + 1) * len(seen["x"]))
        change[own] = -values[own] * output.logarithm
        data[name] = np.where(known[own], np.exp(values[own]) if output.logarithm else values[own], np.nan)
    whole = (root @ root.T)[np.ix_(known, known)]
    rest, precision = (values - mean)[known], linalg.inv(whole)
    evidence = -0.5 * (rest @ precision @ rest + np.linalg.slogdet(2 * np.pi * whole)[1]) + change[known].sum()

    fit = gpdsl.compile(text).fit(data)
    assert fit.elbo == pytest.approx(evidence, rel=1e-6, abs=1e-5), text

    between = blocks(new, seen)[:, known]
    means = np.concatenate([each.mean(new) for each in columns]) + between @ precision @ rest
    variances = np.diag(blocks(new, new) - between @ precision @ between.T) + np.concatenate(
        [each.sd(new) ** 2 for each in columns]
    )
    prediction = fit.predict(new)
    for place, (name, output) in enumerate(outputs):
        own = slice(4 * place, 4 * place + 4)
        mean, variance = means[own], variances[own]
        if output.logarithm:
            mean, variance = np.exp(mean + variance / 2), np.expm1(variance) * np.exp(2 * mean + variance)
        element = (slice(None), int(name[1]) - 1) if name[0] == "v" else slice(None)
        name = "v" if name[0] == "v" else name
        assert prediction.mean(name)[element] == pytest.approx(mean, rel=1e-4, abs=5e-5), text
        assert prediction.variance(name)[element] == pytest.approx(variance, rel=1e-4, abs=5e-5), text

    if len(outputs) == 1:
        without = 1 / np.diag(precision)
        pointwise = -0.5 * (np.log(2 * np.pi * without) + (precision @ rest) ** 2 * without) + change[known]
        assert fit.loo(data).pointwise[known] == pytest.approx(pointwise, abs=1e-5), text
