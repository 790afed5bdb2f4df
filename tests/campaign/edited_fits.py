"""Saved fits, edited at random: each loads and predicts as before, or is a GpdslError when it is loaded.

Five kinds of fits; edits of the header, of the arrays and of bytes. Most edits come with the checksum made again, as a
hand that edits files would make it, so that the checks behind it are what is tried.

What an edit that is still a fit says is what the file then says: where a number has become another number, or the text
of the model or of a label another text, predictions may be others, and the edit counts as `restated`. Everything else
that predicts something else, without a word, is `wrong`; an exception that is no GpdslError is `raw`.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

import gpdsl
from gpdsl.results.persistence import checksum

NAME = "edited fits"
EDITS = 10_000
"""Edits at scale 1."""

FORGET = 200
"""Edits after which compiled programs are forgotten: every fit that loads brings its own."""

Numbers = dict[str, np.ndarray]
Header = dict[str, Any]

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": (
        "model exact\ninput x : real[D]\noutput y[p] : real\nindex p in 1..P\nparam ell : positive[D] = 1\n"
        "param a[p] : real = 0.5\nparam s : positive = 0.3 ~ Gamma(2, 4)\nlatent f(x) ~ GP(0, RBF(ell))\n"
        "y[p] ~ Normal(a[p] * f, s)",
        {"steps": 3},
    ),
    "counts": (
        "model counts\ninput t : real\noutput n : count\nparam m : real = 0.2\nparam w : unit = 0.3\n"
        "latent f(t) ~ GP(0, w * Matern32(0.7))\nlet rate = exp(f + m)\nn ~ Poisson(rate)",
        {"steps": 3, "init": {"m": 0.1}, "fixed": ["w"], "columns": {"t": "time"}},
    ),
    "labels": (
        "model labels\nindex c in 1..C\ninput x : real\noutput y : label[c]\nparam ell : positive = 1\n"
        "latent f[c](x) ~ GP(0, RBF(ell))\ny ~ Categorical(logits = f)",
        {"posterior": "mixture(2)", "inducing": 4, "steps": 3, "samples": 8},
    ),
    "coupled": (
        "model coupled\ninput x : real\noutput y : positive\nparam mix : simplex[2]\n"
        "latent f(x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, Matern52(1))\n"
        "y ~ Gamma(2, exp(mix[1] * f + mix[2] * g))",
        {"posterior": "coupled", "inducing": 5, "steps": 3},
    ),
    "weights": (
        "model weights\ninput x : real\noutput y : real\nparam ell : positive = 1\nparam s : positive = 0.3\n"
        "latent f(x) ~ GP(0, RBF(ell))\ny ~ Normal(f, s)",
        {"engine": "qsgp", "basis": "relevance", "features": 12, "batch": 8, "steps": 10, "start_rows": 0},
    ),
}


@dataclass
class Kept:
    """A saved fit, taken apart; where it predicts, and what."""

    header: Header
    arrays: Numbers
    new: dict[str, np.ndarray]
    predicted: Numbers

    def blob(self, header: Header, arrays: Numbers, known: str | None = None) -> bytes:
        """The bytes of a file, with the checksum that belongs to it or another."""
        text = json.dumps(header)
        tidy = {name: np.array(values, order="C") for name, values in arrays.items()}
        return bytes(save(tidy, {"gpdsl": text, "sha256": known or checksum(text, tidy)}))


def data_of(kind: str) -> dict[str, np.ndarray]:
    """Rows that a kind of fit is fitted to."""
    rng = np.random.default_rng(3)
    x = np.linspace(0, 3, 12)
    wave = np.sin(2 * x)
    match kind:
        case "exact":
            y = np.stack([wave, -wave], axis=1) + 0.1 * rng.normal(size=(12, 2))
            return {"x": np.stack([x, wave], axis=1), "y": y}
        case "counts":
            return {"time": x, "n": rng.poisson(np.exp(wave))}
        case "labels":
            return {"x": x, "y": np.array(["ash", "oak", "yew"])[rng.integers(0, 3, 12)]}
        case "coupled":
            return {"x": x, "y": np.exp(wave)}
    return {"x": x, "y": wave}


def kept_fits(folder: Path) -> dict[str, Kept]:
    """One fit of every kind, saved and taken apart."""
    found = {}
    for kind, (text, choices) in MODELS.items():
        data = data_of(kind)
        fit = gpdsl.compile(text).fit(data, seed=1, **choices)
        fit.save(folder / "kept.gpfit")
        with safe_open(folder / "kept.gpfit", framework="numpy") as handle:
            header = json.loads(handle.metadata()["gpdsl"])
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
        header |= {"seconds": 1.0, "compile_seconds": 0.5}  # so that the same seed makes the same edits
        arrays["history"][:, 2] = 0.0
        inputs = {fit.columns.get(name, name) for name in fit.model.declarations.inputs}
        new = {name: values[2:5] + 0.05 for name, values in data.items() if name in inputs}
        found[kind] = Kept(header, arrays, new, predictions(fit, new))
    return found


def predictions(fit: gpdsl.Fit, new: dict[str, np.ndarray]) -> Numbers:
    """Means and variances of everything."""
    declared, predicted = fit.model.declarations, fit.predict(new)
    found = {}
    for name in (*declared.latents, *declared.lets, *declared.outputs):
        found[f"mean {name}"] = np.asarray(predicted.mean(name))
        if name not in declared.outputs or declared.outputs[name].label is None:
            found[f"variance {name}"] = np.asarray(predicted.variance(name))
    return found


# --- edits ------------------------------------------------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, -0.5, 0.5, 1e308, 10**9, 10**30, -(10**30)),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "auto", "full", "coupled", "diagonal", "\x00", "é" * 300),
    *([], [1], ["x"], [[]], {}, {"x": 1}, {"": None}),
)


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every place in a header."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


def at(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def put(tree: Any, path: tuple, value: Any) -> None:
    at(tree, path[:-1])[path[-1]] = value


def restates(before: Any, after: Any, path: tuple) -> bool:
    """Whether an edit says another number, or another text where a text says what the fit is of."""
    number = lambda each: isinstance(each, (int, float)) and not isinstance(each, bool)  # noqa: E731
    if number(before) and number(after):
        return True
    return isinstance(before, str) and isinstance(after, str) and path[0] in ("model", "levels", "columns")


def edit_header(header: Header, rng: np.random.Generator) -> tuple[Header, bool]:
    """A header with one thing changed, and whether that is another valid number or text perhaps."""
    header = copy.deepcopy(header)
    every = list(places(header))
    path = every[rng.integers(len(every))]
    old = at(header, path)
    how = rng.integers(8)
    if how == 0:
        del at(header, path[:-1])[path[-1]]
        return header, False
    if how == 1:
        parent = at(header, path[:-1])
        extra = HOSTILE[rng.integers(len(HOSTILE))]
        if isinstance(parent, list):
            parent.insert(int(rng.integers(len(parent) + 1)), extra)
        else:
            parent["extra"] = extra
        return header, False
    if how == 2:
        other = at(header, every[rng.integers(len(every))])
        put(header, path, copy.deepcopy(other))
        return header, restates(old, other, path)
    if how == 3 and isinstance(old, (list, dict)) and len(old) > 1:
        if isinstance(old, list):
            put(header, path, [old[i] for i in rng.permutation(len(old))])
        else:
            put(header, path, dict(zip(old, [old[k] for k in rng.permutation(list(old))], strict=True)))
        return header, False
    if how == 4:
        deep: Any = []
        for _ in range(int(rng.integers(1, 400))):
            deep = [deep] if rng.random() < 0.5 else {"x": deep}
        put(header, path, deep)
        return header, False
    if how <= 6 and isinstance(old, (int, float)) and not isinstance(old, bool):
        new = (old + 1, old - 1, 2 * old, -old, old * 1e300, old + 0.5, 0)[rng.integers(7)]
        put(header, path, new)
        return header, True
    if how <= 6 and isinstance(old, str) and old:
        spot = int(rng.integers(len(old)))
        new = old[:spot] + chr(int(rng.integers(1, 127))) + old[spot + int(rng.integers(2)) :]
        put(header, path, new)
        return header, restates(old, new, path)
    new = HOSTILE[rng.integers(len(HOSTILE))]
    put(header, path, new)
    return header, restates(old, new, path)


def edit_arrays(arrays: Numbers, rng: np.random.Generator) -> tuple[Numbers, bool]:
    """Arrays of which one is changed, and whether that is in numbers alone."""
    arrays, names = dict(arrays), sorted(arrays)
    name = names[rng.integers(len(names))]
    old = arrays[name]
    how = rng.integers(9)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[names[rng.integers(len(names))] + ".x"] = arrays.pop(name) if rng.random() < 0.5 else old
    elif how == 2:
        arrays[name] = old.astype(("f2", "f4", "f8", "i4", "i8", "u1", "?")[rng.integers(7)])
    elif how == 3:
        ways: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
            np.transpose,
            np.ravel,
            lambda a: a[None],
            lambda a: a[..., None],
            lambda a: a[:0] if a.ndim else a[None][:0],
            lambda a: a[:-1] if a.ndim else a,
            lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a]),
            lambda a: a[..., :-1] if a.ndim else a,
        )
        arrays[name] = ways[rng.integers(len(ways))](old)
        return arrays, False
    elif how == 4:
        other = names[rng.integers(len(names))]
        arrays[name], arrays[other] = arrays[other], old
        return arrays, arrays[name].shape == old.shape and arrays[name].dtype == old.dtype
    else:
        new = np.array(old)
        if new.size:
            values = (np.nan, np.inf, -np.inf, 0, -1, 1, 1e300, -1e300, 0.5, rng.normal())
            spot = tuple(int(rng.integers(n)) for n in new.shape)
            with np.errstate(all="ignore"):
                new[spot if how < 8 else ...] = np.asarray(values[rng.integers(len(values))]).astype(new.dtype)
        arrays[name] = new
        return arrays, True
    return arrays, False


def edit_bytes(blob: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, lost, repeated or added."""
    spot, how = int(rng.integers(len(blob))), rng.integers(4)
    if how == 0:
        return blob[:spot] + bytes([blob[spot] ^ (1 << int(rng.integers(8)))]) + blob[spot + 1 :]
    if how == 1:
        return blob[:spot]
    if how == 2:
        return blob[:spot] + blob[spot : spot + 50] + blob[spot:]
    return blob + bytes(rng.integers(0, 256, int(rng.integers(1, 64)), dtype=np.uint8))


def edited(kept: Kept, rng: np.random.Generator) -> tuple[bytes, bool, bool]:
    """The bytes of an edited file; whether its checksum is right; and whether it may say another valid thing."""
    how = rng.random()
    if how < 0.1:
        return edit_bytes(kept.blob(kept.header, kept.arrays), rng), False, False
    if how < 0.2:
        header, _ = edit_header(kept.header, rng)
        text = json.dumps(kept.header)
        return kept.blob(header, kept.arrays, checksum(text, kept.arrays)), json.dumps(header) == text, False
    if how < 0.7:
        header, restated = edit_header(kept.header, rng)
        return kept.blob(header, kept.arrays), True, restated
    arrays, restated = edit_arrays(kept.arrays, rng)
    return kept.blob(kept.header, arrays), True, restated


# --- what comes of them -----------------------------------------------------------------------------------------


def judged(kept: Kept, path: Path, sealed: bool, restated: bool) -> str:
    """What comes of a file: `refused`, `same`, `restated`, `wrong` or `raw`."""
    try:
        fit = gpdsl.load_fit(path)
    except gpdsl.GpdslError:
        return "refused"
    restated = restated and sealed  # nothing else may be said under the old checksum
    fit.summary()
    try:
        found = predictions(fit, kept.new)
    except gpdsl.GpdslError:
        return "restated" if restated else "wrong"
    alike = found.keys() == kept.predicted.keys() and all(
        np.array_equal(found[name], kept.predicted[name], equal_nan=True) for name in found
    )
    return "same" if alike else "restated" if restated else "wrong"


def run(scale: float, seed: int) -> dict[str, int]:
    """Edit and load; the counts."""
    counts = Counter[str]()
    counts.update(dict.fromkeys(("tried", "raw", "hung", "lost", "wrong"), 0))
    with tempfile.TemporaryDirectory() as folder:
        fits = kept_fits(Path(folder))
        path = Path(folder) / "edited.gpfit"
        for number in range(max(round(scale * EDITS), 1)):
            kind = list(fits)[number % len(fits)]
            content, sealed, restated = edited(fits[kind], np.random.default_rng([seed, number]))
            path.write_bytes(content)
            counts["tried"] += 1
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore", gpdsl.GpdslWarning)  # of numbers too large to compute with
                    found = judged(fits[kind], path, sealed, restated)
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                found = "raw"
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
            if found in ("raw", "wrong"):
                sys.stderr.write(f"{kind} {number}: {found}\n")
            counts[found] += 1
            if number % FORGET == FORGET - 1:
                jax.clear_caches()
    return dict(counts)
