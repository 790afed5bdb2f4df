"""What a user can choose about inference, checked, with the model's own `infer` line and the defaults filled in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpdsl.errors import GpdslError
from gpdsl.inference.plan.refusals import refuse
from gpdsl.language.inducing import counted, of_latents, supported, words_of
from gpdsl.language.options import OPTIONS, check_engine, check_option

# Whether all rows are taken at once, or minibatches: by the work that either takes.

BATCH_ROWS = 20_000
"""Beyond this many rows the default is stochastic optimisation on minibatches."""

BATCH = 1_000
"""Rows of a minibatch."""

BATCH_STEPS = 1000
"""Most natural-gradient steps on minibatches: the fit ends before, when the bound no longer rises."""

WORTH = 2.0
"""Times the work of all steps on minibatches that all rows at once may take, for a bound without noise."""


def choose_batch(rows: int, learnt: int) -> tuple[int, str]:
    """How many rows to take at a time (0: all), and why.

    A search by L-BFGS takes about 20 evaluations and 6 for every number it learns, each of which looks at every row
    twice: for the sites, and for the gradient. Natural gradients take as many steps on minibatches, whatever is learnt.
    """
    visits = 2 * rows * (20 + 6 * learnt)
    if rows > BATCH_ROWS:
        return BATCH, f"{rows} rows exceed {BATCH_ROWS}"
    if rows > 10 * BATCH and learnt and visits > WORTH * BATCH * BATCH_STEPS:
        return BATCH, f"{learnt} numbers learnt from {rows} rows at once take {visits / 1e6:.2g} million visits to rows"
    return 0, f"{rows} rows fit in one step"


DENSE_ROWS, DENSE_ALONE = 1500, 2000
"""Up to this many rows the default is a dense posterior, of several latents and of one: with one, a fit of binary
outcomes takes some 15 s there on two cores. Where inference is exact, see `exact.engine`."""

EXACT_ROWS = 6_000
"""Rows up to which the exact evidence, where a model has one, takes no more work than with inducing points."""

DEFAULT_INDUCING = 200
EP_PASSES = 5
"""Passes over the data that expectation propagation on minibatches makes at least."""

EP_SAMPLES = 512
"""Points per row where moments of tilted distributions are sampled."""

ROUNDS = 200
"""Most rounds of an alternating schedule (SAVIGP 9.2)."""


def _default(name: str) -> Any:
    default = OPTIONS[name].default
    return field(default_factory=dict) if isinstance(default, Mapping) else field(default=default)


@dataclass(frozen=True)
class Options:
    """Choices of one fit. `None` means: let the plan decide.

    inducing: number of inducing points per latent, 0 for dense, or features (`language.inducing`), by the names of
    latents where they differ. samples: per
    expectation that is sampled, or points a row and round where opaque functions are evaluated. batch: rows per step, 0
    for all. steps: most iterations of the optimiser. evaluations: the budget of calls of opaque functions, counted by
    rows (`inference.budget`). tolerance: smallest relative gain in the bound worth a step. entropy: the bound of a
    mixture's entropy (`inference.mixture_entropy`). sampling, gradients, control_variate: how expectations that are
    sampled are estimated (`inference.sampling`, `inference.score`). schedule: everything at once, or set by set
    (`inference.alternating`). decay, epsilon: of Adadelta. engine: `vi`, or `ep` with its power in (0, 1]
    (`inference.expectation_propagation`). devices: how many share the rows (`inference.sharding`). basis, features,
    chevron, feature_batch, support, feature_sums, start_rows: of engine = qsgp (`WeightChoice`). importance,
    rows: of row variables that latents are functions of (`inference.layered`). beta: `inference.inducing`. parameters:
    `inference.over_parameters`.
    """

    posterior: str = _default("posterior")
    inducing: int | str | Mapping[str, int | str] | None = _default("inducing")
    learn_inducing: bool | None = _default("learn_inducing")
    inducing_start: str = _default("inducing_start")
    expectations: str = _default("expectations")
    samples: int | None = _default("samples")
    sampling: str = _default("sampling")
    gradients: str = _default("gradients")
    control_variate: str = _default("control_variate")
    optimizer: str = _default("optimizer")
    schedule: str = _default("schedule")
    batch: int | None = _default("batch")
    steps: int | None = _default("steps")
    evaluations: int | None = _default("evaluations")
    tolerance: float = _default("tolerance")
    learning_rate: float | None = _default("learning_rate")
    decay: float = _default("decay")
    epsilon: float = _default("epsilon")
    power: float | None = _default("power")
    features: int | None = _default("features")
    chevron: int | None = _default("chevron")
    feature_batch: int | None = _default("feature_batch")
    support: int | None = _default("support")
    feature_sums: str = _default("feature_sums")
    basis: str = _default("basis")
    start_rows: int | None = _default("start_rows")
    seed: int = _default("seed")
    dtype: str = _default("dtype")
    engine: str = _default("engine")
    hyperparameters: str = _default("hyperparameters")
    parameters: str = _default("parameters")
    diagnose: str = _default("diagnose")
    chains: int | None = _default("chains")
    draws: int | None = _default("draws")
    warm_up: int | None = _default("warm_up")
    temperatures: int | None = _default("temperatures")
    device: str | None = _default("device")
    devices: int | None = _default("devices")
    entropy: str = _default("entropy")
    importance: int = _default("importance")
    rows: str = _default("rows")
    beta: float = _default("beta")
    fixed: tuple[str, ...] = _default("fixed")
    init: Mapping[str, Any] = _default("init")

    @property
    def drawn(self) -> bool:
        """Whether settings of the parameters may hold draws of the latents."""
        return self.engine == "mcmc" or self.posterior == "corrected"

    @property
    def plugs_in(self) -> bool:
        """Whether `hyperparameters = auto` has nothing to decide: other options say what becomes of parameters."""
        return self.parameters != "point" or self.drawn or self.beta != 1

    @property
    def explores(self) -> bool:
        """Whether a fit explores the evidence as a function of the learnt parameters."""
        return self.hyperparameters == "integrated" or self.parameters == "gaussian"


AUTO = "auto"
OF_FEATURES = {"features", "chevron", "feature_batch", "feature_sums", "support", "start_rows", "batch", "dtype"}
"""Choices that speak of Fourier features where no basis is named."""

MOST_POINTS = 1_000
"""Rows up to which basis functions are covariances with all of them: q has their whole root, predictions its square."""

SINGLE_PRECISION = ("qsgp",)
"""Engines that compute in float32 unless asked otherwise: the noise of their steps is far above its rounding.

Weights of covariances with points are as large as the inverse of their matrix, which single precision cannot hold.
"""


def make_options(
    infer: Mapping[str, Any], given: Mapping[str, Any] | Options, latents: Collection[str] = ()
) -> Options:
    """Options from the `infer` line of a model with these latents, overridden by what the caller gave.

    Those of another fit are complete.

    Of initial values and of inducing points by name, those that the caller does not name stay. Choices that the line
    makes for its own engine are left out where the caller takes another one that does not read them.

    Raises GpdslError for a bad one.
    """
    if isinstance(given, Options):
        return given
    chosen = {name: check_option(name, value) for name, value in given.items() if value is not None}
    engine = chosen.get("engine", infer.get("engine", OPTIONS["engine"].default))
    for name, value in chosen.items():
        check_engine(name, value, engine)
    own = {name: check_option(name, value) for name, value in infer.items() if OPTIONS[name].read_by(engine)}
    merged = {**own, **chosen, "engine": engine}
    if "init" in own and "init" in chosen:
        merged["init"] = {**own["init"], **chosen["init"]}
    if isinstance(chosen.get("inducing"), Mapping):
        merged["inducing"] = of_latents(own.get("inducing"), chosen["inducing"], latents)
    if engine in SINGLE_PRECISION:
        basis = merged.setdefault("basis", AUTO)
        if basis == AUTO and OF_FEATURES & merged.keys():
            basis = merged["basis"] = "fourier"
        if basis not in (AUTO, "inducing"):
            merged.setdefault("dtype", "float32")
    return Options(**merged)


def settled(options: Options, rows: int) -> Options:
    """The options for so many rows: the basis of `qsgp`, and its precision, where nobody chose them.

    A covariance with each of few rows is the exact GP of these functions; nothing of it need be sampled.
    """
    if options.engine not in SINGLE_PRECISION or options.basis != AUTO:
        return options
    if rows <= MOST_POINTS:
        return replace(options, basis="inducing")
    return replace(options, basis="fourier", dtype="float32")


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
    grid: tuple[int, ...] = ()
    """Lengths of the sides of the grid that all values of exact inference stand on, several outputs one of them."""
    sets: tuple[int, ...] = ()
    """Sizes of the sets of latent values that share no level, where the posterior is a small matrix for each."""
    features: str = ""
    """Inducing features that are not points alone, as written."""
    rows: str = "free"
    """q of row variables that latents are functions of: each row's own, or by a network as written."""
    own: Mapping[str, int | str] = field(default_factory=dict)
    """What each latent has, where they differ: a number of inducing points, 0 for one at all it is read at, or features
    as written; `inducing` is the largest number then."""

    @property
    def support(self) -> str:
        """What the inducing variables are."""
        if self.own:
            return ", ".join(f"{words_of(value)} of {name}" for name, value in self.own.items())
        return f"features {self.features}" if self.features else f"{self.inducing} inducing points"

    @property
    def families(self) -> tuple[str, ...]:
        """Inducing features of any latent, as written."""
        each = (self.features, *self.own.values())
        return tuple(value for value in each if isinstance(value, str) and value)

    @property
    def summed(self) -> bool:
        """Whether all rows are summed up once, where nobody has asked for an optimiser."""
        return self.optimizer == "lbfgs" and self.posterior == "full" and bool(self.features)

    def visited(self, rows: int) -> int:
        """Rows of one evaluation, of so many in all: where these are summed up it costs as much as of as many rows as
        there are features."""
        return min(rows, self.inducing) if self.summed else self.batch or rows

    def of(self, latent: str) -> Choice:
        """The choice as it is for one latent."""
        if latent not in self.own:
            return self
        count, features = counted(self.own[latent])
        return replace(self, dense=count == 0, inducing=count, features=features, own={})


SAMPLES, STEPS = 100, 2000  # where nobody asks for others: of an expectation, and of L-BFGS at most


def decide(
    options: Options,
    rows: int,
    *,
    opaque: bool,
    per_row: bool = False,
    learnt: int = 0,
    latents: int = 2,
    levels: int = 1,
    names: Collection[str] = (),
) -> Choice:
    """Fill in what the options leave open, for so many rows and numbers that are learnt, and latents of these names.

    A row reads a latent at so many `levels` of the indices among its arguments.

    Raises GpdslError for combinations that cannot work.
    """
    reasons: dict[str, str] = {}
    batch = options.batch
    if batch is None:
        batch, reasons["batch"] = choose_batch(rows, learnt)
    alone = latents == 1 and options.engine == "vi" and options.dtype == "float64" and not opaque
    limit, values = DENSE_ALONE if alone else DENSE_ROWS, rows * levels
    default = 0 if values <= limit and not batch else min(values, DEFAULT_INDUCING)
    asked: Any = default if options.inducing is None else options.inducing
    number, features, open_ones = asked, "", ""
    own: dict[str, int | str] = {}
    if not isinstance(asked, int):
        number, features, own = supported(asked, default, names, batch, moving=bool(options.learn_inducing))
        open_ones = ", ".join(name for name in own if name not in asked)
    inducing = int(number)
    if options.inducing is None or open_ones:
        what = f"{rows} rows" + (f" of {levels} values" if levels > 1 else "")
        whose = f" of {open_ones}" if open_ones else ""
        reasons["inducing"] = f"{what}{whose} {'at most' if not default else 'above'} {limit}"
    dense = inducing == 0
    if dense and batch:
        raise GpdslError("a dense posterior (inducing = 0) needs all rows at once: set batch = 0 or inducing > 0")
    if options.learn_inducing and dense:
        raise GpdslError("learn_inducing needs inducing points: a dense posterior (inducing = 0) has none to move")
    posterior = "full" if options.posterior == "auto" else options.posterior
    if options.engine == "ep":
        if batch and per_row:
            raise GpdslError("engine = ep on minibatches does not cover row variables: set batch = 0")
        found = _decide_ep(options, rows, batch, dense, inducing, posterior, reasons)
        return replace(found, features=features, own=own)
    optimizer = options.optimizer
    if optimizer == "auto" and options.schedule == "alternating":
        optimizer, reasons["optimizer"] = "lbfgs", "each set of unknowns in turn, as in SAVIGP 9.2"
    elif optimizer == "auto":
        if latents and posterior in {"full", "coupled"} and not batch:
            optimizer, reasons["optimizer"] = "natural", "a full Gaussian: natural gradients for q, L-BFGS for the rest"
        elif latents and posterior == "full" and not opaque and not per_row:
            optimizer = "natural"
            reasons["optimizer"] = "a full Gaussian on minibatches: natural gradients for q, Adam for the rest"
        elif batch or opaque:
            optimizer, reasons["optimizer"] = "adam", _noisy(posterior, opaque)
        else:
            optimizer, reasons["optimizer"] = "lbfgs", "all rows, a deterministic objective"
    refuse(optimizer, posterior, batch, opaque, per_row, options.schedule)
    samples = options.samples or (200 if opaque else SAMPLES)
    most = {"natural": 300 if opaque else 200, "lbfgs": STEPS, "adam": 2000, "adadelta": 2000}
    on_batches = optimizer == "natural" and batch > 0
    most["lbfgs"] = ROUNDS if options.schedule == "alternating" else most["lbfgs"]
    steps = options.steps or (BATCH_STEPS if on_batches else most[optimizer])
    rate = (0.05 if on_batches else 0.01) if options.learning_rate is None else options.learning_rate
    found = Choice(dense, inducing, batch, samples, optimizer, steps, reasons, posterior, rate, features=features)
    return replace(found, own=own) if own else found


def _decide_ep(
    options: Options, rows: int, batch: int, dense: bool, inducing: int, posterior: str, reasons: dict[str, str]
) -> Choice:
    """Expectation propagation: hyperparameters after the sites have settled, or with every sweep or visit."""
    if posterior not in {"full", "coupled"}:
        raise GpdslError(f"engine = ep has Gaussian sites, not posterior = {posterior}: use full, coupled or auto")
    if batch and (posterior == "coupled" or options.optimizer == "lbfgs"):
        what = "posterior = coupled" if posterior == "coupled" else "optimizer = lbfgs"
        raise GpdslError(f"engine = ep with {what} takes all rows at once: set batch = 0, or leave {what} out")
    if options.optimizer == "natural":
        raise GpdslError(
            "optimizer = natural belongs to engine = vi; engine = ep takes optimizer = lbfgs (hyperparameters once the "
            "sites have settled), adam or adadelta (with every sweep)"
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


def _noisy(posterior: str, opaque: bool) -> str:
    """Why Adam is the choice."""
    if posterior != "full":
        return "noisy gradients"
    if opaque:
        return "noisy gradients, of a function that has none of its own"
    return "noisy gradients; row variables have a factor of q in every row, which minibatches visit one by one"


# The decisions about a posterior over the weights of basis functions (engine = qsgp).


@dataclass(frozen=True)
class WeightChoice:
    """How many basis functions and dense columns of the root, and what one step takes.

    A step moves the weights of `block` functions, with `support` rows behind its control variate.
    `sums` over basis functions are `running`, known for the rows of every step, or `sampled` as in the paper.
    `start_rows` are those on which the hyperparameters start, 0 for their declared values.
    """

    features: int
    chevron: int
    block: int
    support: int
    sums: str
    start_rows: int

    @property
    def steps_a_sweep(self) -> int:
        """Steps of a pass over all basis functions."""
        return -(-self.features // self.block)
