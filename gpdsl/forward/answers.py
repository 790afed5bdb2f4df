"""The questions of UM-Bridge 1.0 and their answers: values of functions, and slopes times a vector."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from gpdsl.forward.server import Together


# Slopes of a function that is known by its values: differences over steps of many sizes, the best of them.

LEVELS, SHRINK = 20, 4.0
"""Steps on either side of a number, each so much smaller than the one before."""

ROUNDED, WIDE = 4, 8.0
"""Smallest steps, whose estimates differ by rounding, and how many times that an estimate may be off."""

SMOOTH = ("real", "positive", "time")
"""Kinds of inputs along which there are slopes; none along counts and labels."""


def slopes(
    evaluate: Callable[[np.ndarray], np.ndarray],
    row: Float[np.ndarray, " inputs"],
    columns: Sequence[int],
    positive: Sequence[bool],
) -> Float[np.ndarray, "outputs columns"]:
    """Derivatives of rows of outputs by some of the inputs, those that are `positive` staying so."""
    found = []
    for column in columns:
        size = 0.5 * row[column] if positive[column] else max(1.0, abs(float(row[column])))
        steps = size / SHRINK ** np.arange(LEVELS)
        moved = np.tile(row, (2 * LEVELS, 1))
        moved[:, column] += np.concatenate([steps, -steps])
        steps = 0.5 * (moved[:LEVELS, column] - moved[LEVELS:, column])  # as they are after rounding
        above, below = np.split(np.asarray(evaluate(moved), float), 2)
        size = float(np.max(np.abs([above, below])))
        found.append(_best((above - below) / (2.0 * steps[:, None]), steps, size))
    return np.stack(found, axis=1)


def _best(
    differences: Float[np.ndarray, "levels outputs"], steps: Float[np.ndarray, " levels"], size: float
) -> Float[np.ndarray, " outputs"]:
    """From central differences, largest step first, of values up to `size`.

    Of estimates without the error of second order, that of the largest step which agrees with those of all smaller ones
    within what these are off by rounding: Lepski's choice. Rounding shows where steps are smallest.
    """
    square = SHRINK**2
    better = ((square * differences[1:] - differences[:-1]) / (square - 1.0))[::-1]
    steps = steps[:0:-1]
    scatter = np.abs(np.diff(better[:ROUNDED], axis=0)) * steps[: ROUNDED - 1, None]
    off = WIDE * np.maximum(scatter.max(axis=0), np.finfo(float).eps * size) / steps[:, None]
    low, high = np.maximum.accumulate(better - off), np.minimum.accumulate(better + off)
    agree = np.logical_and.accumulate(np.isfinite(better) & (low <= high))
    last = np.maximum(np.sum(agree, axis=0) - 1, 0)
    return np.take_along_axis(better, last[None], axis=0)[0]


VERSION = 1.0
SLOPES, ABSENT = ("Gradient", "ApplyJacobian"), ("ApplyHessian",)


class Refused(Exception):
    """An answer that is an error: its HTTP status, its type in the protocol, and what it says."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.kind = kind


def answer(served: Mapping[str, Together], path: str, body: bytes) -> dict[str, Any]:
    """The answer to one question. Raises Refused for one that has none."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if name == "Info":
        return {"protocolVersion": VERSION, "models": list(served)}
    question = _question(body)
    model = served.get(question.get("name", "")) if isinstance(question.get("name", ""), str) else None
    if model is None:
        raise Refused(400, "ModelNotFound", f"there is no model {question.get('name')!r}, but {', '.join(served)}")
    match name:
        case "ModelInfo":
            supported = {"Evaluate": True, **dict.fromkeys(SLOPES, model.offered.smooth)}
            return {"support": {**supported, **dict.fromkeys(ABSENT, False)}}
        case "InputSizes":
            return {"inputSizes": list(model.offered.inputs)}
        case "OutputSizes":
            return {"outputSizes": list(model.offered.outputs)}
        case "Evaluate":
            return {"output": _evaluated(model, question.get("input"))}
    if name in SLOPES and model.offered.smooth:
        return {"output": _sloped(model, name, question)}
    if name in (*SLOPES, *ABSENT):
        raise Refused(400, "UnsupportedFeature", f"{name} is not supported")
    raise Refused(404, "InvalidInput", f"there is no question {path}")


def _question(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Refused(400, "InvalidInput", "the question is no JSON") from problem
    if not isinstance(found, dict):
        raise Refused(400, "InvalidInput", "the question is no JSON object")
    return found


def _evaluated(model: Together, given: Any) -> list[list[float]]:
    values = model.ask(_row(model, given))
    if not all(map(math.isfinite, values)):
        raise Refused(500, "InvalidOutput", "the result is not finite")
    return [part.tolist() for part in np.split(values, np.cumsum(model.offered.outputs)[:-1])]


def _sloped(model: Together, name: str, question: dict[str, Any]) -> list[float]:
    """The slopes of one vector of outputs along one of inputs, times `sens` (`Gradient`) or `vec`."""
    offered, row = model.offered, _row(model, question.get("input"))
    places = []
    for key, sizes in (("outWrt", offered.outputs), ("inWrt", offered.inputs)):
        place = question.get(key)
        if type(place) is not int or not 0 <= place < len(sizes):
            raise Refused(400, "InvalidInput", f"`{key}` is {place!r}, expected a number from 0 to {len(sizes) - 1}")
        places.append(place)
    out, into = places
    if offered.kinds[into] not in SMOOTH:
        raise Refused(400, "UnsupportedFeature", f"there are no slopes along an input of type {offered.kinds[into]}")
    key, size = ("sens", offered.outputs[out]) if name == "Gradient" else ("vec", offered.inputs[into])
    given = question.get(key)
    if not isinstance(given, list) or len(given) != size or not all(type(each) in (int, float) for each in given):
        raise Refused(400, "InvalidInput", f"`{key}` is no vector of {size} numbers")
    found = np.split(model.slopes(row, into), np.cumsum(offered.outputs)[:-1])[out]
    product = np.asarray(given, float) @ found if name == "Gradient" else found @ np.asarray(given, float)
    if not np.isfinite(product).all():
        raise Refused(500, "InvalidOutput", "the result is not finite")
    return [float(each) for each in product]


def _row(model: Together, given: Any) -> np.ndarray:
    """Vectors of numbers, one after the other. Raises Refused for anything else."""
    sizes = model.offered.inputs
    if not isinstance(given, list) or not all(isinstance(each, list) for each in given):
        raise Refused(400, "InvalidInput", "`input` is no list of vectors of numbers")
    if [len(each) for each in given] != list(sizes):  # before arrays of any length are built
        found = [len(each) for each in given]
        raise Refused(400, "InvalidInput", f"`input` has vectors of sizes {found}, expected sizes {list(sizes)}")
    if not all(type(each) in (int, float) for vector in given for each in vector):
        raise Refused(400, "InvalidInput", "`input` is no list of vectors of numbers")
    try:
        row = np.array([each for vector in given for each in vector], float)
    except OverflowError:
        row = np.array([np.inf])
    if not np.isfinite(row).all():
        raise Refused(400, "InvalidInput", "`input` has values that are not finite")
    return row
