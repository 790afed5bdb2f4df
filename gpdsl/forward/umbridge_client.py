"""UM-Bridge models as opaque functions: protocol 1.0 over HTTP, several servers and several calls at a time.

A row is one call. Servers that vanish are tried again for a moment and then left out; when none is left, the fit ends
with its state. A server that answers one call at a time, as they do by default, is noticed and said.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from gpdsl.errors import GpdslWarning, described, quoted
from gpdsl.forward.errors import BadServer, ForwardModelError, WrongSizes
from gpdsl.forward.registry import EITHER, ForwardModel, How, _checked
from gpdsl.forward.session import MOST_NUMBERS, SHOWN, NoConnection, Server, ServerError, Servers, check_address
from gpdsl.forward.threads import Threads
from gpdsl.forward.work import Backend, Job, Pieces, Unreachable, stops, take
from gpdsl.language.calls import answering

DEFAULT_SECONDS = 60.0
LANES = 4
"""Calls at a time to each server, unless it is asked for another number or the server does one after the other."""

TRIALS = (slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 5), slice(5, 7))
"""Rows of a batch that tell how a server takes calls: one to warm up, then one alone and two together, twice."""

CALIBRATION = TRIALS[-1].stop

FAST = 1e-2
"""Seconds: of calls that are faster, it matters little how many are made at a time."""

SERIAL = 1.7
"""Two calls together take so many times as long as one where the server does one after the other."""


@answering
def umbridge(
    url: str | Sequence[str], name: str | None = None, *, config: Mapping[str, Any] | None = None, **how: Unpack[How]
) -> ForwardModel:
    """The model `name` of an UM-Bridge server, for `externals=` of `gpdsl.load`; without a name, its only model.

    Several addresses are servers of the same model, which share the work. `config` is passed on with every call.
    `workers` is how many calls each server gets at the same time, `timeout` the seconds that one may take (60), and
    that a server may take to say what it offers. The arguments of the external, one after the other, make up the input
    vectors of the model; its output vectors, one after the other, the result. Gradients are used where the server
    offers them. Raises ForwardModelError.
    """
    addresses = [url] if isinstance(url, str) else list(url)
    for each in addresses or [""]:
        try:
            check_address(str(each))
        except ValueError as problem:
            raise ForwardModelError(BadServer("umbridge", str(each), quoted(problem))) from None
    seconds = how.get("timeout", DEFAULT_SECONDS)
    model = UmbridgeModel(addresses, name, dict(config or {}), float(seconds))
    options: How = {**how, "timeout": seconds, "vectorized": False, "executor": Lanes(model, how.get("workers"))}
    return replace(_checked(ForwardModel("umbridge", model, EITHER, **options)), flat=True)


@dataclass(frozen=True)
class Sizes:
    """What a server says about a model."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    gradient: bool
    jacobian: bool


class UmbridgeModel:
    """One model, on one or several servers, as a function of one row. Calls may come from several threads."""

    def __init__(self, addresses: Sequence[str], name: str | None, config: dict[str, Any], seconds: float) -> None:
        self.servers = Servers(addresses, seconds)
        self.name = name
        self.config = config
        self.seconds = seconds
        self._sizes: Sizes | None = None
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """For the cache of evaluations: the model and its configuration, wherever it runs."""
        return json.dumps([self.name, self.config], sort_keys=True)

    @property
    def sizes(self) -> Sizes:
        """Sizes of the vectors, and which derivatives there are: asked once. Raises ForwardModelError."""
        with self._lock:
            if self._sizes is None:
                self._sizes = self._asked()
            return self._sizes

    def __call__(self, *arguments: np.ndarray | float) -> np.ndarray:
        """All output vectors, one after the other."""
        sizes = self.sizes.outputs
        return _vector(self.ask("/Evaluate", {"input": self.vectors(arguments)}, sizes), sizes)

    def gradient(
        self, out_wrt: int, in_wrt: int, arguments: Sequence[np.ndarray | float], sensitivity: np.ndarray
    ) -> np.ndarray:
        """The transposed Jacobian of one output vector in one input vector, times a vector (VJP)."""
        question = {"outWrt": out_wrt, "inWrt": in_wrt, "sens": np.ravel(sensitivity).tolist()}
        sizes = (self.sizes.inputs[in_wrt],)
        return _vector([self.ask("/Gradient", {**question, "input": self.vectors(arguments)}, sizes)], sizes)

    def apply_jacobian(
        self, out_wrt: int, in_wrt: int, arguments: Sequence[np.ndarray | float], direction: np.ndarray
    ) -> np.ndarray:
        """The Jacobian of one output vector in one input vector, times a vector (JVP)."""
        question = {"outWrt": out_wrt, "inWrt": in_wrt, "vec": np.ravel(direction).tolist()}
        sizes = (self.sizes.outputs[out_wrt],)
        return _vector([self.ask("/ApplyJacobian", {**question, "input": self.vectors(arguments)}, sizes)], sizes)

    def pull(self, *values: np.ndarray | float) -> list[np.ndarray]:
        """The vector-Jacobian product that `gradient=` wants: arguments and a sensitivity in, an array for each out.

        One question for each pair of an input and an output vector, but for sensitivities of zero.
        """
        arguments, sizes = values[:-1], self.sizes
        sensitivities = np.split(np.ravel(np.asarray(values[-1], float)), np.cumsum(sizes.outputs)[:-1])
        parts = []
        for place, size in enumerate(sizes.inputs):
            pulled = [self.gradient(out, place, arguments, s) for out, s in enumerate(sensitivities) if s.any()]
            parts.append(np.sum(pulled, axis=0) if pulled else np.zeros(size))
        shapes = [np.shape(each) for each in arguments]
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])
        return [part.reshape(s) for part, s in zip(np.split(np.concatenate(parts), ends[:-1]), shapes, strict=True)]

    def offered_gradient(self) -> Callable[..., list[np.ndarray]] | None:
        """`pull`, where the server offers gradients; None too where there is no server: the first call will say so."""
        try:
            return self.pull if self.sizes.gradient else None
        except ForwardModelError:
            return None

    def vectors(self, arguments: Sequence[np.ndarray | float]) -> list[list[float]]:
        """The arguments as the input vectors of the model. Raises ForwardModelError when they do not make them up."""
        flat = [np.ravel(np.asarray(each, float)) for each in arguments]
        inputs, given = self.sizes.inputs, [each.size for each in flat]
        if sum(given) != sum(inputs):
            found = f"input vectors of sizes {list(inputs)}"
            raise ForwardModelError(
                WrongSizes(self.name or "", self.servers.names, found, f"arguments of sizes {given}")
            )
        return [part.tolist() for part in np.split(np.concatenate(flat), np.cumsum(inputs)[:-1])]

    def ask(self, path: str, question: dict[str, Any], sizes: Sequence[int]) -> Any:
        """The `output` of an answer, vectors of these sizes, from whichever server is free."""
        answer = self.servers.ask(path, {"name": self.name, "config": self.config, **question}, sum(sizes))
        if "output" not in answer:
            raise ServerError(f"{path} answered without `output`: {quoted(answer)[:SHOWN]}")
        return answer["output"]

    def _asked(self) -> Sizes:
        """What every server says, which must be the same."""
        found = [self._told(server) for server in self.servers.all]
        for server, sizes in zip(self.servers.all, found, strict=True):
            if sizes != found[0]:
                raise self._bad(server, f"its model has sizes {sizes}, that of {self.servers.all[0].url} {found[0]}")
        return found[0]

    def _told(self, server: Server) -> Sizes:
        until = time.monotonic() + self.seconds
        try:
            info = server.ask("/Info", None, until)
            version, models = info.get("protocolVersion"), info.get("models")
            if version != 1.0 or not isinstance(models, list) or not all(isinstance(each, str) for each in models):
                raise self._bad(server, f"it speaks version {version} of the protocol, not 1.0")
            if self.name is None and len(models) == 1:
                self.name = models[0]
            if self.name not in models:
                raise self._bad(server, f"it has no model {self.name!r}, but {', '.join(map(repr, models)) or 'none'}")
            named = {"name": self.name, "config": self.config}
            support = server.ask("/ModelInfo", {"name": self.name}, until).get("support", {})
            words = ("Input", "Output")
            inputs, outputs = (_sizes(server.ask(f"/{w}Sizes", named, until)[f"{w.lower()}Sizes"]) for w in words)
            if not support.get("Evaluate"):
                raise self._bad(server, f"its model {self.name!r} does not support Evaluate")
            derivatives = bool(support.get("Gradient")), bool(support.get("ApplyJacobian"))
            return Sizes(inputs, outputs, *derivatives)
        except (ServerError, NoConnection, Unreachable, TimeoutError) as problem:
            raise self._bad(server, str(problem)) from problem
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise self._bad(server, f"its answers are not those of UM-Bridge: {described(problem)}") from problem

    def _bad(self, server: Server, reason: str) -> ForwardModelError:
        return ForwardModelError(BadServer(self.name or "umbridge", server.url, quoted(reason)))


def _sizes(found: Any) -> tuple[int, ...]:
    """Sizes of vectors as a server gives them. Raises ValueError for what cannot be answered in bounded size."""
    sizes = tuple(each for each in found if type(each) is int and each >= 0)
    if not isinstance(found, list) or len(sizes) < len(found) or sum(sizes) > MOST_NUMBERS:
        raise ValueError(f"{quoted(found)[:SHOWN]} are no sizes of vectors")
    return sizes


def _vector(answer: Any, sizes: Sequence[int]) -> np.ndarray:
    """Vectors of these sizes, one after the other. Lengths are looked at before anything is built."""
    if not isinstance(answer, list) or not all(isinstance(each, list) for each in answer):
        raise ServerError(f"the answer is no list of vectors: {quoted(answer)[:SHOWN]}")
    found = [len(each) for each in answer]
    if found != list(sizes):
        raise ServerError(f"the answer has vectors of sizes {quoted(found)[:SHOWN]}, not {list(sizes)}")
    try:
        return np.array([_number(each) for part in answer for each in part], float)
    except (TypeError, OverflowError) as problem:
        raise ServerError(f"the answer is no list of vectors of numbers: {quoted(answer)[:SHOWN]}") from problem


def _number(found: Any) -> float:
    """A number as JSON has it; `null` is what some servers have for NaN."""
    if found is None:
        return np.nan
    if type(found) not in (int, float):
        raise TypeError("no number")
    return float(found)


class Lanes(Backend):
    """Rows spread over the servers by threads that wait for them."""

    def __init__(self, model: UmbridgeModel, lanes: int | None) -> None:
        self.model = model
        self.lanes = lanes
        self.place = f"through UM-Bridge at {model.servers.names}"
        self._judged = lanes is not None
        for server in model.servers.all:
            server.lanes = lanes or LANES

    def run(self, job: Job, arguments: Sequence[np.ndarray]) -> Pieces:
        rows, servers = len(arguments[0]), self.model.servers
        assert self.model.sizes
        job = replace(job, timeout=2.0 * self.model.seconds + servers.patience)
        first: Pieces = []
        if not self._judged and rows >= CALIBRATION * len(servers.all):
            self._judged = True
            for number in range(len(servers.all)):
                first += self._judge(job, arguments, number)
                if any(stops(answer, job.stop) for _, answer in first):
                    return first
        start = sum(piece.stop - piece.start for piece, _ in first)
        rest = Threads(servers.capacity).run(job, take(arguments, slice(start, rows))) if start < rows else []
        return [*first, *((slice(p.start + start, p.stop + start), answer) for p, answer in rest)]

    def _judge(self, job: Job, arguments: Sequence[np.ndarray], number: int) -> Pieces:
        """Call one server with a few rows, alone and together, and see what it makes of calls at the same time."""
        server, offset = self.model.servers.all[number], CALIBRATION * number
        found: Pieces = []
        seconds: list[float] = []
        with self.model.servers.only(server):
            for piece in TRIALS:
                here = slice(piece.start + offset, piece.stop + offset)
                begun = time.perf_counter()
                some = Threads(here.stop - here.start).run(job, take(arguments, here))
                seconds.append(time.perf_counter() - begun)
                found += [(slice(p.start + here.start, p.stop + here.start), answer) for p, answer in some]
                if any(stops(answer, job.stop) for _, answer in some):
                    return found
        alone, together = min(seconds[1], seconds[3]), min(seconds[2], seconds[4])
        if alone > FAST and together > SERIAL * alone:
            server.lanes = 1
            warnings.warn(
                f"the UM-Bridge server {server.url} answers one call at a time (two together took "
                f"{together / alone:.1f} times as long as one): start it with max_workers > 1, or pass the "
                "addresses of several servers",
                GpdslWarning,
                stacklevel=2,
            )
        return found
