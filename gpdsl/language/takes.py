"""What kinds of values an option of inference takes; each reads a value, and says what it expects."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Protocol, TypedDict, TypeVar

from gpdsl.language.habits import by_words
from gpdsl.language.vocabulary import Record

Function = TypeVar("Function", bound=Callable[..., Any])

MOST_COMPONENTS = 100
"""Of a mixture."""

MOST_LAYERS, MOST_UNITS = 5, 1_000
"""Of a network."""


class Takes(Protocol):
    """What values an option takes. `expected` says it after that word; `words` are those that can be written."""

    @property
    def expected(self) -> str: ...

    @property
    def words(self) -> tuple[str, ...]: ...

    @property
    def example(self) -> str: ...

    def read(self, value: Any) -> Any:
        """The value as the fit keeps it, or None where the option cannot have it."""


class Words(Record):
    """One of some words; of a table, which may grow, of its keys."""

    known: Collection[str]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.known)

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    @property
    def example(self) -> str:
        return self.words[0]

    def read(self, value: Any) -> str | None:
        return value if isinstance(value, str) and value in self.words else None


class Families(Words):
    """A posterior family; K stands for a number of components."""

    def read(self, value: Any) -> str | None:
        text = re.sub(r"\s", "", value) if isinstance(value, str) else ""
        family, _, rest = text.partition("(")
        components = rest.removesuffix(")")
        if f"{family}(K)" not in self.words:
            return text if text in self.words else None
        whole = re.fullmatch("[1-9][0-9]{0,2}", components) and rest.endswith(")")
        return text if whole and int(components) <= MOST_COMPONENTS else None


class Encoding(Words):
    """`auto`, `free`, or a network with so many units in each layer."""

    @property
    def expected(self) -> str:
        return f"auto, free, or network(20, 20): 1 to {MOST_LAYERS} layers of 1 to {MOST_UNITS} units"

    @property
    def example(self) -> str:
        return self.words[-1]

    def read(self, value: Any) -> str | None:
        text = re.sub(r"\s", "", value) if isinstance(value, str) else ""
        units = text.removeprefix("network(").removesuffix(")").split(",")
        if not re.fullmatch(r"network\([1-9][0-9]{0,3}(,[1-9][0-9]{0,3})*\)", text):
            return text if text in self.words else None
        fits = len(units) <= MOST_LAYERS and all(int(each) <= MOST_UNITS for each in units)
        return f"network({', '.join(units)})" if fits else None


class Whole(Record):
    """A whole number."""

    least: int
    example: str = "100"
    most: int | None = None
    words: ClassVar[tuple[str, ...]] = ()

    @property
    def expected(self) -> str:
        return f"a whole number of at least {self.least}" + (f" and at most {self.most}" if self.most else "")

    def read(self, value: Any) -> int | None:
        number = _number(value)
        if number is None or number != int(number) or number < self.least:
            return None
        return int(number) if self.most is None or number <= self.most else None


class Number(Record):
    """A number between bounds, themselves left out unless `closed`."""

    expected: str
    example: str
    least: float = 0.0
    most: float = math.inf
    closed: tuple[bool, bool] = (False, False)
    words: ClassVar[tuple[str, ...]] = ()

    def read(self, value: Any) -> float | None:
        number = _number(value)
        if number is None or number > sys.float_info.max:
            return None
        above = number >= self.least if self.closed[0] else number > self.least
        below = number <= self.most if self.closed[1] else number < self.most
        return float(number) if above and below else None


class Truth(Record):
    """Yes or no."""

    expected: ClassVar[str] = "true or false"
    words: ClassVar[tuple[str, ...]] = ("true", "false")
    example: ClassVar[str] = "true"

    def read(self, value: Any) -> bool | None:
        return value if isinstance(value, bool) else None


class Device(Record):
    """The name of a kind of devices; JAX knows which there are."""

    expected: ClassVar[str] = "the name of a kind of devices, such as cpu or gpu"
    words: ClassVar[tuple[str, ...]] = ("cpu", "gpu", "tpu")
    example: ClassVar[str] = "cpu"

    def read(self, value: Any) -> str | None:
        return value if isinstance(value, str) and value.isidentifier() else None


class Names(Record):
    """Names of parameters: one, several, or several in one text with commas between them."""

    expected: ClassVar[str] = "names of parameters; their values are given by init={...}"
    words: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "[ell, sigma]"

    def read(self, value: Any) -> tuple[str, ...] | None:
        names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if isinstance(names, Mapping) or not isinstance(names, Iterable):
            return None
        found = tuple(names)
        return found if all(isinstance(name, str) for name in found) else None


class Quantities(Record):
    """Inputs and outputs: all that can be, none, or some by name."""

    expected: ClassVar[str] = "true, false, or names of inputs and outputs"
    words: ClassVar[tuple[str, ...]] = ("true", "false")
    example: ClassVar[str] = "true"

    def read(self, value: Any) -> bool | tuple[str, ...] | None:
        return value if isinstance(value, bool) else Names().read(value)


class Values(Record):
    """Values of parameters by name; whether a parameter can have its value, the program says."""

    expected: ClassVar[str] = (
        "values by the names of parameters, such as init={'ell': 2}; --init ell=2 in a command; to begin where another "
        "fit ended: start=fit"
    )
    words: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "2"

    def read(self, value: Any) -> dict[str, Any] | None:
        named = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        return dict(value) if named else None


def _number(value: Any) -> int | float | None:
    """A finite number of Python or NumPy."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else None


# Words of other tools.

_OPTIONS = {
    "steps": "n_iter num_iter niter iter iterations num_iterations n_iterations max_iter max_iters maxiter epochs "
    "n_steps num_steps training_iter n_epochs",
    "learning_rate": "lr step_size stepsize",
    "device": "gpu cuda",
    "beta": "kl_weight kl_scale",
    "batch": "batch_size minibatch minibatch_size",
    "inducing": "num_inducing n_inducing inducing_points inducing_variable inducing_variables m",
    "seed": "random_state random_seed rng key",
    "samples": "mc_samples num_mc_samples likelihood_samples",
    "draws": "num_samples n_samples iter_sampling",
    "warm_up": "tune burn_in burnin num_warmup iter_warmup",
    "chains": "num_chains n_chains",
    "standardise": "normalize normalise normalize_y scale scaler zscore",
    "tolerance": "tol ftol gtol rtol eps",
    "optimizer": "method minimizer optim",
    "engine": "algorithm inference solver",
    "hyperparameters": "hyperparams hyperpriors marginalise marginalize",
    "init": "inits initial start_values initvals",
    "fixed": "fix freeze frozen",
    "posterior": "guide q family variational_distribution",
}

OPTIONS: Mapping[str, str] = {word: option for option, words in _OPTIONS.items() for word in words.split()}
"""Words of other tools for options of a fit, by those that they have here."""

ENGINES_ELSEWHERE = by_words(
    {
        "nuts hmc stan blackjax sampling mc": "chains are `engine = mcmc`",
        "svgp sgpr vfe fitc sparse": "inducing points are an option of `vi`, `inducing = 100`",
        "exact gpr analytic": "`vi` is exact where the model allows it",
        "advi meanfield mean_field": "it is `vi`, with `posterior = diagonal` for a factorised q",
        "inla": "averages over parameters are an option, `hyperparameters = integrated`",
        "map mle ml": "parameters are learnt by `vi`; without latents that is their mode",
    }
)
"""Engines of other tools."""

NO_OPTIONS = by_words(
    {
        "time timeout max_time time_limit budget": (
            "a search has no clock: `steps` ends it, and Ctrl-C does with the best state so far"
        ),
        "restarts n_restarts num_restarts n_restarts_optimizer": (
            "a search in doubt begins again elsewhere by itself; `init={'ell': 2}` is a start of your own"
        ),
        "weights weight sample_weight": "the model has them: `input w : positive`, `y ~ Normal(f, sigma / sqrt(w))`",
        "alpha noise noise_variance likelihood": "noise is in the model, `y ~ Normal(f, sigma)`",
        "kernel mean_function mean_module covar_module": "the model has it, `latent f(x) ~ GP(m, s2 * RBF(ell))`",
        "verbose verbosity disp progressbar": "`progress=True` shows how far a fit is",
        "n_jobs cores n_cores threads n_threads": "all cores are used by themselves",
        "validation validation_data validation_split cv": "`fit.cross_validate(data)` holds rows back",
        "patience early_stopping": "a search ends where it gains no more: `tolerance`",
    }
)
"""Words of other tools for what is no option of a fit, and where it is instead."""


# The types of the options of a fit, for editors and type checkers; `options` tells what they mean, and checks them.


class FitOptions(TypedDict, total=False):
    """Options of `Model.fit` and `Model.explain`. None stands for the default: mostly, that the plan decides."""

    posterior: str | None
    inducing: int | str | Mapping[str, int | str] | None
    learn_inducing: bool | None
    inducing_start: Literal["auto", "kmeans", "greedy"] | None
    expectations: Literal["auto", "closed", "quadrature", "sampled"] | None
    samples: int | None
    sampling: Literal["qmc", "antithetic", "iid"] | None
    gradients: Literal["auto", "pathwise", "score"] | None
    control_variate: Literal["regression", "constant", "none"] | None
    optimizer: Literal["auto", "natural", "lbfgs", "adam", "adadelta"] | None
    schedule: Literal["joint", "alternating"] | None
    batch: int | None
    steps: int | None
    evaluations: int | None
    tolerance: float | None
    learning_rate: float | None
    decay: float | None
    epsilon: float | None
    power: float | None
    features: int | None
    chevron: int | None
    feature_batch: int | None
    support: int | None
    feature_sums: Literal["auto", "running", "sampled"] | None
    basis: Literal["auto", "fourier", "inducing", "relevance"] | None
    start_rows: int | None
    seed: int | None
    dtype: Literal["float64", "float32"] | None
    engine: str | None
    hyperparameters: Literal["point", "integrated", "auto"] | None
    parameters: Literal["point", "gaussian"] | None
    diagnose: Literal["auto", "no", "full"] | None
    chains: int | None
    draws: int | None
    warm_up: int | None
    temperatures: int | None
    device: str | None
    devices: int | None
    entropy: Literal["pairwise", "jensen"] | None
    importance: int | None
    rows: str | None
    beta: float | None
    fixed: Sequence[str] | None
    init: Mapping[str, Any] | None


def with_options(function: Function) -> Function:
    """`function`, whose `**options` are spelt out in its signature: what notebooks complete, and `help` shows."""
    own = signature(function)
    parameters = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    options = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__)
        for name, kind in FitOptions.__annotations__.items()
    )
    function.__signature__ = own.replace(parameters=[*parameters, *options])  # type: ignore[attr-defined]
    return function
