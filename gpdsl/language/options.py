"""Every option of inference: the values it takes, its default, its meaning, and the engines that read it.

The checker of `infer` lines, the arguments of `fit`, the command line, completion and the pages all read this table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpdsl.errors import GpdslError, quoted
from gpdsl.language.inducing import Inducing
from gpdsl.language.takes import (
    ENGINES_ELSEWHERE,
    NO_OPTIONS,
    OPTIONS as HABITS,
    Device,
    Encoding,
    Families,
    Names,
    Number,
    Quantities,
    Takes,
    Truth,
    Values,
    Whole,
    Words,
)
from gpdsl.language.vocabulary import closest

# What engines are called, in `infer` lines and as the option `engine`.

OWN = {
    "vi": "variational inference",
    "ep": "expectation propagation",
    "qsgp": "weights of basis functions",
    "mcmc": "Markov chains",
}
_engines = dict(OWN)

ENGINES: Mapping[str, str] = MappingProxyType(_engines)
"""What engines are called, and what they do; `name_engine` adds those that users register."""

ELSEWHERE = "registered elsewhere"


def name_engine(name: str, meaning: str) -> None:
    """Let an engine be asked for by name. Raises GpdslError for a name that `infer` lines cannot have."""
    if not isinstance(name, str) or name in {*OWN, "auto"} or not name.isidentifier():
        others = ", ".join(OWN)
        raise GpdslError(
            f"engine {quoted(name)}: expected a name of letters, digits and _ other than {others} and auto"
        )
    if not isinstance(meaning, str):
        raise GpdslError(f"engine {name}: expected its meaning as a text, not {quoted(meaning)}")
    _engines[name] = meaning


@contextmanager
def engines_known(names: Iterable[object]) -> Iterator[None]:
    """Inside, names of engines that this process has not registered are known: those that another one has fitted by."""
    new = [each for each in names if isinstance(each, str) and each.isidentifier() and each not in _engines]
    _engines.update(dict.fromkeys(new, ELSEWHERE))
    try:
        yield
    finally:
        for each in new:
            if _engines.get(each) is ELSEWHERE:
                del _engines[each]


LONGEST = 200
"""Characters of a value in a message."""

POSTERIORS = ("auto", "coupled", "full", "linear", "diagonal", "mixture(K)", "mixture_full(K)", "corrected")


@dataclass(frozen=True)
class Option:
    """A choice of inference. A default of None: the plan decides.

    `engines` are those that read it. `of`: the sort of the name that may stand before the sign in an `infer` line, as
    in `inducing f = 20`; `init ell = 2` must have it.
    """

    name: str
    takes: Takes
    default: Any
    meaning: str
    engines: tuple[str, ...] = tuple(OWN)
    of: str = ""

    def read_by(self, engine: str) -> bool:
        """Whether an engine reads it; those that users register read what all of gpdsl's do."""
        return engine in self.engines or (engine not in OWN and len(self.engines) == len(OWN))


_POINTS = ("vi", "ep")
_PLACED = (*_POINTS, "mcmc")
_WEIGHTS = ("qsgp",)
_CHAINS = ("mcmc",)
_ABOVE = "a number above 0"


_TABLE = (
    Option("posterior", Families(POSTERIORS), "auto", "family of q: " + ", ".join(POSTERIORS)),
    Option(
        "inducing", Inducing(), None, "inducing points per latent; 0: all rows are; or features", _PLACED, of="latent"
    ),
    Option("learn_inducing", Truth(), None, "move the inducing inputs too; those of layers move by default", _POINTS),
    Option(
        "inducing_start",
        Words(("auto", "kmeans", "greedy")),
        "auto",
        "where inducing points start: `kmeans` centres, `greedy` by variance, or `auto`",
        _PLACED,
    ),
    Option(
        "expectations",
        Words(("auto", "closed", "quadrature", "sampled")),
        "auto",
        "`auto` takes closed form, then quadrature, then samples; a name forces that estimator everywhere",
    ),
    Option("samples", Whole(2), None, "samples per expectation that is sampled", _POINTS),
    Option(
        "sampling",
        Words(("qmc", "antithetic", "iid")),
        "qmc",
        "of samples: `qmc` (randomised quasi-Monte-Carlo), `antithetic` pairs, or `iid`",
        _POINTS,
    ),
    Option(
        "gradients",
        Words(("auto", "pathwise", "score")),
        "auto",
        "of sampled expectations: `pathwise`, `score` (values only, SAVIGP Theorem 1), or `auto`",
        _POINTS,
    ),
    Option(
        "control_variate",
        Words(("regression", "constant", "none")),
        "regression",
        "of score gradients: `regression`, `constant` (SAVIGP appendix F), or `none`",
        _POINTS,
    ),
    Option(
        "optimizer",
        Words(("auto", "natural", "lbfgs", "adam", "adadelta")),
        "auto",
        "`natural`, `lbfgs`, `adam`, `adadelta`, or `auto`",
        _POINTS,
    ),
    Option(
        "schedule",
        Words(("joint", "alternating")),
        "joint",
        "`joint`, or `alternating`: one set of unknowns after the other, as in SAVIGP 9.2",
        ("vi",),
    ),
    Option("batch", Whole(0, "500"), None, "rows per step; 0 is all of them"),
    Option("steps", Whole(1), None, "most iterations of the optimiser"),
    Option("evaluations", Whole(1, "10000"), None, "the most calls of opaque functions, counted by rows", _PLACED),
    Option(
        "tolerance",
        Number("a number of at least 0", "1e-6", closed=(True, False)),
        1e-9,
        "smallest relative gain in the bound worth another step",
    ),
    Option(
        "learning_rate",
        Number(_ABOVE, "0.01"),
        None,
        "of Adam; 0.01 by default, 0.1 for layers, 0.03 where row variables are arguments, 0.05 beside natural "
        "gradients, less with `qsgp`",
    ),
    Option(
        "decay",
        Number("a number above 0 and below 1", "0.95", most=1.0),
        0.95,
        "of Adadelta; the default is that of SAVIGP 9.2",
        _POINTS,
    ),
    Option("epsilon", Number(_ABOVE, "1e-6"), 1e-6, "of Adadelta; the default is that of SAVIGP 9.2", _POINTS),
    Option(
        "power",
        Number("a number of at least 1e-06 and at most 1", "0.5", 1e-6, 1.0, (True, True)),
        None,
        "of `ep`, above 0 and at most 1; towards 0 it becomes variational inference",
        ("ep",),
    ),
    Option(
        "features",
        Whole(2, "4000"),
        None,
        "of `qsgp`: basis functions, by default 10 for each row, from 2000 to 20000",
        _WEIGHTS,
    ),
    Option(
        "chevron", Whole(0), None, "of `qsgp`: dense columns of the root of q's covariance; 0 is a diagonal", _WEIGHTS
    ),
    Option("feature_batch", Whole(2, "2000"), None, "of `qsgp`: basis functions per step", _WEIGHTS),
    Option(
        "support", Whole(1), None, "of `qsgp`: rows behind the preconditioner, or behind the control variate", _WEIGHTS
    ),
    Option(
        "feature_sums",
        Words(("auto", "running", "sampled")),
        "auto",
        "of `qsgp`: `running`, known for the rows of a step, or `sampled` as in the paper",
        _WEIGHTS,
    ),
    Option(
        "basis",
        Words(("auto", "fourier", "inducing", "relevance")),
        "auto",
        "of `qsgp`: random `fourier` features, `inducing` points (S = K), or `relevance` vectors; `auto` takes a point "
        "at each of at most 1000 rows, else Fourier features",
        _WEIGHTS,
    ),
    Option(
        "start_rows",
        Whole(0, "1000"),
        None,
        "of `qsgp`: rows on which hyperparameters are found first; 1000 by default, 0 for none",
        _WEIGHTS,
    ),
    Option("seed", Whole(0, "1", 2**63 - 1), 0, "of everything random: same seed, same machine, same answer"),
    Option(
        "dtype",
        Words(("float64", "float32")),
        "float64",
        "`float64` or `float32`; `qsgp` takes `float32` unless asked otherwise",
    ),
    Option(
        "engine",
        Words(ENGINES),
        "vi",
        "`vi`, variational inference, `ep`, expectation propagation, `qsgp`, weights of basis functions, or `mcmc`, "
        "Markov chains; others can be registered",
    ),
    Option(
        "hyperparameters",
        Words(("point", "integrated", "auto")),
        "point",
        "what is learnt beside q: `point`, its most probable values, `integrated` over, with weights, or `auto`, the "
        "second where it matters and costs little",
        ("vi",),
    ),
    Option(
        "parameters",
        Words(("point", "gaussian")),
        "point",
        "q of what is learnt beside the latents: `point`, none, or one `gaussian` of all of it on the real line",
        ("vi",),
    ),
    Option(
        "diagnose",
        Words(("auto", "no", "full")),
        "auto",
        "standard errors and what is to be doubted, when the summary is asked for: `auto` leaves out what takes long, "
        "`full` nothing, `no` everything",
    ),
    Option("chains", Whole(1, "4"), None, "of `mcmc`: how many, 4 by default", _CHAINS),
    Option("draws", Whole(4, "1000"), None, "of `mcmc`: from each chain, 500 by default", _CHAINS),
    Option("warm_up", Whole(20, "1000"), None, "of `mcmc`: draws that tune each chain before, 500 by default", _CHAINS),
    Option(
        "temperatures",
        Whole(2, "10", 100),
        None,
        "of `mcmc`: chains at so many, from the posterior to the prior, exchange places: for modes that lie apart",
        _CHAINS,
    ),
    Option("device", Device(), None, "`cpu`, `gpu`, or where JAX puts things"),
    Option(
        "devices",
        Whole(1, "2"),
        None,
        "how many devices share the rows; by default one, or all of several processes",
    ),
    Option(
        "entropy",
        Words(("pairwise", "jensen")),
        "pairwise",
        "how a mixture's entropy is bounded: `pairwise`, or `jensen` as in SAVIGP eq. 18",
        ("vi",),
    ),
    Option(
        "importance",
        Whole(1, "5"),
        1,
        "replicas of the variables of each row, where latents are functions of them: the bound is tighter with more",
        ("vi",),
    ),
    Option(
        "rows",
        Encoding(("auto", "free", "network(20, 20)")),
        "auto",
        "q of row variables that latents are functions of: `free`, each row's own, or by a `network(20, 20)` of inputs "
        "and outputs; `auto` takes that network where steps are on minibatches",
        ("vi",),
    ),
    Option(
        "beta", Number(_ABOVE, "0.5"), 1.0, "by how much the divergence of q from the prior counts: beta-VI", ("vi",)
    ),
    Option("fixed", Names(), (), "parameters that keep their initial values"),
    Option("init", Values(), MappingProxyType({}), "initial values of parameters, by name", of="param"),
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _TABLE})

STANDARDISE = Option("standardise", Quantities(), None, "inputs and outputs to be fitted with mean 0 and sd 1")
WRITTEN: Mapping[str, Option] = MappingProxyType({**OPTIONS, STANDARDISE.name: STANDARDISE})
"""What an `infer` line may say: options, and what a fit takes beside them, as it is of the data."""


def check_option(name: str, value: Any) -> Any:
    """The value of an option as a fit keeps it. Raises GpdslError for an unknown option, or a value it cannot have."""
    if name not in OPTIONS:
        if name in WRITTEN:
            raise GpdslError(f"{name} is not for simulated data, which are fitted as they are: leave it out")
        instead = f"; {NO_OPTIONS[name.lower()]}" if name.lower() in NO_OPTIONS else _meant(name, WRITTEN, HABITS)
        meant = instead or f"; options are {', '.join(WRITTEN)}"
        raise GpdslError(f"unknown option `{name}`{meant}")
    takes = OPTIONS[name].takes
    found = takes.read(value)
    if found is None:
        engine = ENGINES_ELSEWHERE.of(value) if name == "engine" and isinstance(value, str) else ""
        meant = f"; {engine}" if engine else _meant(value, takes.words) if isinstance(value, str) else ""
        meant += "; others are registered first (`gpdsl.register_engine`)" if name == "engine" else ""
        expected = takes.expected_of(value) if isinstance(takes, Inducing) else takes.expected
        raise GpdslError(f"{name} = {_shown(value)}: expected {expected}{meant}")
    return found


def check_engine(name: str, value: Any, engine: str) -> None:
    """Raise GpdslError for a choice that an engine does not read."""
    option = OPTIONS[name]
    if option.read_by(engine) or value == option.default:
        return
    own = ", ".join(each.name for each in OPTIONS.values() if each.read_by(engine))
    whose = " or ".join(option.engines)
    raise GpdslError(f"{name} = {value} belongs to engine = {whose}; engine = {engine} takes {own}")


def _shown(value: Any) -> str:
    """A value in a message, which is cut where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _meant(word: str, known: Collection[str], habits: Mapping[str, str] = MappingProxyType({})) -> str:
    near = habits.get(word.lower()) or closest(word, known)
    return f"; did you mean `{near}`?" if near else ""
