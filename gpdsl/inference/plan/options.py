"""What a user can choose about inference, checked, with the model's own `infer` line and the defaults filled in."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpdsl.errors import GpdslError
from gpdsl.inference.plan.batches import BATCH_STEPS, choose_batch
from gpdsl.inference.plan.refusals import refuse, refuse_schedule
from gpdsl.inference.plan.weights import WeightChoice

DENSE_ROWS, DENSE_ALONE = 1500, 2000
"""Up to this many rows the default is a dense posterior, of several latents and of one: with one, a fit of binary
outcomes takes some 15 s there on two cores. Where inference is exact, see `exact.engine`."""

DEFAULT_INDUCING = 200
EP_PASSES = 5
"""Passes over the data that expectation propagation on minibatches makes at least."""

EP_SAMPLES = 512
"""Points per row where moments of tilted distributions are sampled."""

ROUNDS = 200
"""Most rounds of an alternating schedule (SAVIGP 9.2)."""

CHOICES = {
    "expectations": ("auto", "closed", "quadrature", "sampled"),
    "optimizer": ("auto", "natural", "lbfgs", "adam", "adadelta"),
    "engine": ("vi", "ep", "qsgp"),
    "dtype": ("float64", "float32"),
    "entropy": ("pairwise", "jensen"),
    "sampling": ("qmc", "antithetic", "iid"),
    "gradients": ("auto", "pathwise", "score"),
    "schedule": ("joint", "alternating"),
    "inducing_start": ("auto", "kmeans", "greedy"),
    "control_variate": ("regression", "constant", "none"),
    "feature_sums": ("auto", "running", "sampled"),
    "basis": ("fourier", "inducing", "relevance"),
}


@dataclass(frozen=True)
class Options:
    """Choices of one fit. `None` means: let the plan decide.

    inducing: number of inducing points per latent, 0 for dense. samples: per expectation that is sampled, or points a
    row and round where opaque functions are evaluated. batch: rows per step, 0 for all. steps: most iterations of the
    optimiser. evaluations: the budget of calls of opaque functions, counted by rows (`inference.budget`). tolerance:
    smallest relative gain in the bound worth a step. entropy: the bound of a mixture's entropy
    (`inference.mixture_entropy`). sampling, gradients, control_variate: how expectations that are sampled are estimated
    (`inference.sampling`, `inference.score`). schedule: everything at once, or set by set (`inference.alternating`).
    decay, epsilon: of Adadelta. engine: `vi`, or `ep` with its power in (0, 1] (`inference.expectation_propagation`).
    devices: how many share the rows (`inference.sharding`). basis, features, chevron, feature_batch, support,
    feature_sums, start_rows: of engine = qsgp (`inference.plan.weights`).
    """

    posterior: str = "auto"
    inducing: int | None = None
    learn_inducing: bool = False
    inducing_start: str = "auto"
    expectations: str = "auto"
    samples: int | None = None
    sampling: str = "qmc"
    gradients: str = "auto"
    control_variate: str = "regression"
    optimizer: str = "auto"
    schedule: str = "joint"
    batch: int | None = None
    steps: int | None = None
    evaluations: int | None = None
    tolerance: float = 1e-9
    learning_rate: float | None = None
    decay: float = 0.95
    epsilon: float = 1e-6
    power: float | None = None
    features: int | None = None
    chevron: int | None = None
    feature_batch: int | None = None
    support: int | None = None
    feature_sums: str = "auto"
    basis: str = "fourier"
    start_rows: int | None = None
    seed: int = 0
    dtype: str = "float64"
    engine: str = "vi"
    device: str | None = None
    devices: int | None = None
    entropy: str = "pairwise"
    fixed: tuple[str, ...] = ()
    init: Mapping[str, Any] = field(default_factory=dict)


SINGLE_PRECISION = ("qsgp",)
"""Engines that compute in float32 unless asked otherwise: the noise of their steps is far above its rounding."""

NUMBERS = {
    "inducing": (0, int),
    "samples": (2, int),
    "batch": (0, int),
    "steps": (1, int),
    "evaluations": (1, int),
    "seed": (0, int),
    "tolerance": (0.0, float),
    "learning_rate": (0.0, float),
    "decay": (0.0, float),
    "epsilon": (0.0, float),
    "power": (1e-6, float),
    "devices": (1, int),
    "features": (2, int),
    "chevron": (0, int),
    "feature_batch": (2, int),
    "support": (1, int),
    "start_rows": (0, int),
}


def make_options(infer: Mapping[str, Any], given: Mapping[str, Any]) -> Options:
    """Options from the model's `infer` line, overridden by what the caller gave. Raises GpdslError for a bad one."""
    known = [f.name for f in dataclasses.fields(Options)]
    merged = {**infer, **{k: v for k, v in given.items() if v is not None}}
    for name, value in merged.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise GpdslError(f"unknown option `{name}`{hint}; options are {', '.join(known)}")
        merged[name] = _checked(name, value)
    if merged.get("engine") in SINGLE_PRECISION:
        merged.setdefault("dtype", "float32")
    return Options(**merged)


def _checked(name: str, value: Any) -> Any:
    if name in CHOICES and value not in CHOICES[name]:
        raise GpdslError(f"{name} = {value!r}: expected one of {', '.join(CHOICES[name])}")
    if name in NUMBERS:
        least, kind = NUMBERS[name]
        number_given = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number_given or (kind is int and value != int(value)) or not value >= least:
            what = "a whole number" if kind is int else "a number"
            raise GpdslError(f"{name} = {value!r}: expected {what} of at least {least}")
        return kind(value)
    if name == "learn_inducing" and not isinstance(value, bool):
        raise GpdslError(f"learn_inducing = {value!r}: expected true or false")
    if name == "fixed":
        names = (value,) if isinstance(value, str) else value
        if isinstance(names, Mapping) or not isinstance(names, Iterable) or not all(isinstance(n, str) for n in names):
            raise GpdslError(f"fixed = {value!r}: expected names of parameters; their values are given by init={{...}}")
        return tuple(names)
    return value


@dataclass(frozen=True)
class Choice:
    """The options after the plan's decisions, with the reason for each."""

    dense: bool
    inducing: int
    batch: int
    samples: int
    optimizer: str
    steps: int
    reasons: Mapping[str, str]
    posterior: str = "full"
    learning_rate: float = 0.01
    inducing_start: str = "kmeans"
    weights: WeightChoice | None = None
    power: float = 1.0
    exact: tuple[int, ...] = ()
    """Sizes of the matrices of exact inference, where the evidence is known in closed form and maximised itself."""


def decide(
    options: Options,
    rows: int,
    *,
    opaque: bool,
    sampled: bool,
    per_row: bool = False,
    learnt: int = 0,
    latents: int = 2,
) -> Choice:
    """Fill in what the options leave open, for so many rows and numbers that are learnt.

    Raises GpdslError for combinations that cannot work.
    """
    reasons: dict[str, str] = {}
    batch = options.batch
    if batch is None:
        batch, reasons["batch"] = choose_batch(rows, learnt)
    inducing = options.inducing
    if inducing is None:
        alone = latents == 1 and options.engine == "vi" and options.dtype == "float64" and not opaque
        limit = DENSE_ALONE if alone else DENSE_ROWS
        inducing = 0 if rows <= limit and not batch else min(rows, DEFAULT_INDUCING)
        reasons["inducing"] = f"{rows} rows {'at most' if not inducing else 'above'} {limit}"
    dense = inducing == 0
    if dense and batch:
        raise GpdslError("a dense posterior (inducing = 0) needs all rows at once: set batch = 0 or inducing > 0")
    if options.learn_inducing and dense:
        raise GpdslError("learn_inducing needs inducing points: a dense posterior (inducing = 0) has none to move")
    posterior = "full" if options.posterior == "auto" else options.posterior
    if options.engine == "ep":
        if batch and per_row:
            raise GpdslError("engine = ep on minibatches does not cover row variables: set batch = 0")
        return _decide_ep(options, rows, batch, dense, inducing, posterior, reasons)
    optimizer = options.optimizer
    if optimizer == "auto" and options.schedule == "alternating":
        optimizer, reasons["optimizer"] = "lbfgs", "each set of unknowns in turn, as in SAVIGP 9.2"
    elif optimizer == "auto":
        if posterior in {"full", "coupled"} and not batch:
            optimizer, reasons["optimizer"] = "natural", "a full Gaussian: natural gradients for q, L-BFGS for the rest"
        elif posterior == "full" and not opaque and not per_row:
            optimizer = "natural"
            reasons["optimizer"] = "a full Gaussian on minibatches: natural gradients for q, Adam for the rest"
        elif batch or opaque:
            optimizer, reasons["optimizer"] = "adam", _noisy(posterior, opaque, per_row)
        else:
            optimizer, reasons["optimizer"] = "lbfgs", "all rows, a deterministic objective"
    refuse(optimizer, posterior, batch, opaque, per_row)
    refuse_schedule(options, optimizer)
    samples = options.samples or (200 if opaque else 100)
    most = {"natural": 300 if opaque else 200, "lbfgs": 2000, "adam": 2000, "adadelta": 2000}
    on_batches = optimizer == "natural" and batch > 0
    most["lbfgs"] = ROUNDS if options.schedule == "alternating" else most["lbfgs"]
    steps = options.steps or (BATCH_STEPS if on_batches else most[optimizer])
    rate = (0.05 if on_batches else 0.01) if options.learning_rate is None else options.learning_rate
    return Choice(dense, inducing, batch, samples, optimizer, steps, reasons, posterior, rate)


def _decide_ep(
    options: Options, rows: int, batch: int, dense: bool, inducing: int, posterior: str, reasons: dict[str, str]
) -> Choice:
    """Expectation propagation: hyperparameters after the sites have settled, or with every sweep or visit."""
    if posterior not in {"full", "coupled"}:
        raise GpdslError(f"engine = ep has Gaussian sites, not posterior = {posterior}: use full, coupled or auto")
    if batch and (posterior == "coupled" or options.optimizer == "lbfgs"):
        what = "posterior = coupled" if posterior == "coupled" else "optimizer = lbfgs"
        raise GpdslError(f"engine = ep with {what} takes all rows at once: set batch = 0, or leave {what} out")
    if options.power is not None and options.power > 1:
        raise GpdslError(f"power = {options.power!r}: expected a number above 0 and at most 1")
    if options.schedule == "alternating" or options.optimizer == "natural":
        what = "schedule = alternating" if options.schedule == "alternating" else "optimizer = natural"
        raise GpdslError(
            f"{what} belongs to engine = vi; engine = ep takes optimizer = lbfgs (hyperparameters once the sites have "
            "settled), adam or adadelta (with every sweep)"
        )
    optimizer = options.optimizer
    if optimizer == "auto":
        optimizer, reasons["optimizer"] = "lbfgs", "hyperparameters once the sites have settled"
        if batch:
            optimizer, reasons["optimizer"] = "adam", "hyperparameters with every visit to some rows"
    least = 200 if optimizer == "lbfgs" else BATCH_STEPS
    steps = options.steps or (max(least, EP_PASSES * -(-rows // batch)) if batch else least)
    rate = 0.05 if options.learning_rate is None else options.learning_rate
    power = options.power
    if power is None:
        power = 0.5 if options.learn_inducing and not dense else 1.0
        if power < 1:
            reasons["power"] = "at power 1 inducing inputs that move raise the evidence above that of the dense model"
    samples = options.samples or EP_SAMPLES
    return Choice(dense, inducing, batch, samples, optimizer, steps, reasons, posterior, rate, power=power)


def _noisy(posterior: str, opaque: bool, per_row: bool) -> str:
    """Why Adam is the choice."""
    if posterior != "full":
        return "noisy gradients"
    if opaque:
        return "noisy gradients, of a function that has none of its own"
    return "noisy gradients; row variables have a factor of q in every row, which minibatches visit one by one"
