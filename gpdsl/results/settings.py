"""Settings of the learnt parameters that a fit with `hyperparameters = integrated` averages over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, cast

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from gpdsl.errors import GpdslError, plural, quoted
from gpdsl.inference.integrated import STATISTICS, Integrated
from gpdsl.inference.posteriors.family import Held, Whitened
from gpdsl.inference.posteriors.posterior import Posterior, arrays_of, marginals_of_several
from gpdsl.inference.problem import as_arrays
from gpdsl.language.calls import Parameters, spoken, unknown_argument
from gpdsl.language.model import Declarations
from gpdsl.results.expectation import Beliefs, drawn_by_functions
from gpdsl.results.quantiles import probabilities_of, weighted_quantile, weighted_share

OWN = {"mean", "root", "z", "loadings"}
"""Arrays of a posterior that depend on the parameters: the others are those of the fit."""


jax.tree_util.register_pytree_node(
    Parameters,
    lambda table: (tuple(table.values()), tuple(table)),  # type: ignore[arg-type, return-value]
    lambda names, values: Parameters(zip(names, values, strict=True)),
)


@dataclass(frozen=True, eq=False)
class Setting:
    """Values of all parameters, in their domains, and the posterior of the latents at these."""

    parameters: Mapping[str, np.ndarray]
    posterior: tuple[Whitened, ...]
    held: Held | None = None


@spoken
@dataclass(frozen=True, eq=False)
class Settings:
    """Settings with weights that add up to 1.

    `shape` is Pareto's k of the weights (Vehtari et al. 2024): above 0.7 averages over them are not to be trusted; NaN
    of too few. `effective` is how many settings of equal weights would be worth as much.
    """

    weights: Float[np.ndarray, " settings"]
    each: tuple[Setting, ...]
    shape: float
    effective: float
    about: str = ""
    """How they were found, in a line."""
    chains: Mapping[str, Float[np.ndarray, "chains draws *axes"]] = field(default_factory=dict)
    """All draws of the parameters, where Markov chains were made; settings are some of them."""
    statistics: Mapping[str, Shaped[np.ndarray, "chains draws"]] = field(default_factory=dict)
    """What the sampler says of all draws, by names that ArviZ has: `diverging`, `lp`, `energy` and others."""
    kept: Int[np.ndarray, " kept"] = field(default_factory=lambda: np.zeros(0, int))
    """Numbers of the draws of each chain that settings are, chain by chain."""

    @classmethod
    def of(cls, found: Integrated, constrain: Callable[[Any], Mapping[str, Array]], dtype: str) -> Settings:
        """What an exploration has found, with parameters in their domains."""

        def values(learnt: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            given = {name: np.asarray(value, dtype) for name, value in learnt.items()}  # the call puts it on the device
            return {name: np.asarray(value) for name, value in constrain(given).items()}

        each = tuple(Setting(values(r.parameters), tuple(r.posterior), r.held) for r in found.results)
        chains: dict[str, np.ndarray] = {}
        if found.chains:
            every = jax.vmap(jax.vmap(constrain))(as_arrays(dict(found.chains), dtype))
            chains = {name: np.asarray(value) for name, value in every.items()}
        told = found.statistics, found.kept
        return cls(found.weights, each, found.shape, found.effective, found.about, chains, *told)

    def __repr__(self) -> str:
        return f"<gpdsl.Settings: {self.about or plural(len(self.weights), 'setting')}>"

    def values(self, name: str) -> Float[np.ndarray, "draws *axes"]:
        """A parameter in every setting, or in every draw of the chains. Raises GpdslError for other names."""
        if name not in self.each[0].parameters:
            raise GpdslError(
                f"settings: expected one of the parameters {', '.join(self.each[0].parameters)}, got {quoted(name)}; "
                "latents, levels of groups, lets and outputs are functions of the rows, of which predictions know the "
                f"mean, sd and quantile: `fit.predict(data).mean({quoted(name)!r})`"
            )
        if name in self.chains:
            return self.chains[name].reshape(-1, *self.chains[name].shape[2:])
        return np.stack([setting.parameters[name] for setting in self.each])

    def _weights(self, name: str) -> Float[np.ndarray, " draws"]:
        count = len(self.values(name))
        return np.full(count, 1.0 / count) if name in self.chains else self.weights

    def mean(self, name: str) -> np.ndarray:
        """Posterior mean of a parameter."""
        return np.tensordot(self._weights(name), self.values(name), axes=1)

    def sd(self, name: str) -> np.ndarray:
        """Posterior standard deviation of a parameter."""
        apart = self.values(name) - self.mean(name)
        return np.sqrt(np.tensordot(self._weights(name), apart**2, axes=1))

    def quantile(self, name: str, probabilities: float | Sequence[float]) -> np.ndarray:
        """Posterior quantiles of a parameter, between settings by interpolation; several in front."""
        asked, values, weights = probabilities_of(name, probabilities), self.values(name), self._weights(name)
        found = np.stack([weighted_quantile(values, weights, p, smooth=True) for p in asked])
        return found if np.ndim(probabilities) else found[0]

    def share_below(self, name: str, at: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """P(parameter < `at`), element by element: between settings as quantiles are. `at` has the parameter's shape.

        Raises GpdslError for what is no such number.
        """
        values = self.values(name)
        try:
            place = np.broadcast_to(np.asarray(at, float), values.shape[1:])
        except (TypeError, ValueError, OverflowError):
            place = np.array(np.nan)
        if np.isnan(place).any():
            shape = f"numbers of the shape {values.shape[1:]}" if values.ndim > 1 else "a number"
            raise GpdslError(f"share_below of `{name}`: expected {shape}, got {quoted(at)[:60]}")
        return weighted_share(values, self._weights(name), place)

    def drawn(self, count: int, rng: np.random.Generator) -> Int[np.ndarray, " draws"]:
        """Numbers of settings, as often as their weights say, in the order of `Averaged.over_settings`."""
        numbers, order = shared_out(count, self.weights, rng)
        found: Int[np.ndarray, " draws"] = np.repeat(np.arange(len(self.each)), numbers)[order]
        return found

    def posteriors(self, at_rows: Posterior) -> list[Posterior]:
        """The posterior of every setting, with programs compiled once for all of them."""
        return [replace(at_rows, parameters=s.parameters, q=s.posterior, held=s.held) for s in self.each]

    def beliefs(self, at_rows: Posterior, some: Beliefs) -> Iterator[Beliefs]:
        """What every setting says of the rows of `some`."""
        asked, every = (some.program, some.rows, some.count), self.posteriors(at_rows)
        for own, marginals in zip(every, marginals_of_several(every, *asked), strict=True):
            called = None if some.simulations is None else some.simulations.one_of(len(self.each))
            blocks, drawn = partial(own.blocks, *asked), partial(drawn_by_functions, own, some.program, some.rows)
            joint = replace(some, marginals=marginals, blocks=blocks, drawn=drawn)
            yield replace(joint, parameters=cast(Any, own.parameters), simulations=called)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file keeps."""
        kept = {"settings.weights": self.weights, "settings.worth": np.asarray([self.shape, self.effective])}
        if np.isnan(self.shape):
            kept["settings.worth"] = np.asarray([self.effective])
        kept |= {f"settings.chains.{name}": np.asarray(value, float) for name, value in self.chains.items()}
        kept |= {f"settings.statistics.{name}": np.asarray(value) for name, value in self.statistics.items()}
        kept |= {"settings.kept": self.kept} if len(self.kept) else {}
        for number, setting in enumerate(self.each):
            own = {f"parameter.{name}": np.asarray(value, float) for name, value in setting.parameters.items()}
            numbers = arrays_of(setting.posterior, setting.held)
            own |= {name: value for name, value in numbers.items() if OWN & set(name.split("."))}
            kept |= {f"setting.{number}.{name}": value for name, value in own.items()}
        return kept

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], names: Sequence[str], about: str, stored: Callable[..., tuple[Any, Any]]
    ) -> Settings | None:
        """The settings in a file, of which `stored` reads posteriors; None where it has none."""
        if "settings.weights" not in arrays:
            return None
        weights, worth, each = arrays["settings.weights"], arrays["settings.worth"], []
        for number in range(len(weights)):
            begin = f"setting.{number}."
            own = {name.removeprefix(begin): value for name, value in arrays.items() if name.startswith(begin)}
            posterior, held = stored({**arrays, **own})
            each.append(Setting({name: own[f"parameter.{name}"] for name in names}, posterior, held))
        shape = float(worth[0]) if len(worth) > 1 else float("nan")
        chains = {name: arrays[key] for name in names if (key := f"settings.chains.{name}") in arrays}
        said = {name: arrays[key] for name in STATISTICS if (key := f"settings.statistics.{name}") in arrays}
        kept = arrays.get("settings.kept", np.zeros(0, int))
        return cls(weights, tuple(each), shape, float(worth[-1]), about, chains, said, kept)


def shared_out(
    count: int, weights: Float[np.ndarray, " settings"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " settings"], Int[np.ndarray, " draws"]]:
    """How many of so many draws each setting makes, as often as its weight says, and in which order they are taken."""
    return rng.multinomial(count, weights), rng.permutation(count)


def refuse_settings(settings: Settings | None, what: str, instead: str) -> None:
    """Raise GpdslError for what is not to be had where a fit is an average."""
    if settings is not None:
        raise GpdslError(
            f"{what}: not of a fit that averages over draws or parameters (hyperparameters = integrated, parameters = "
            f"gaussian, posterior = corrected, engine = mcmc); {instead}"
        )


def refuse_named(declarations: Declarations, predict: Callable[..., Any], named: Mapping[str, Any]) -> NoReturn:
    """Of arguments that `predict` does not have: outputs are told with the inputs of their rows."""
    name = next(iter(named))
    if name not in declarations.outputs and name.rstrip("0123456789_") not in declarations.outputs:
        raise unknown_argument(predict, "fit.predict", name)
    inputs = "".join(f"{each!r}: ..., " for each in declarations.inputs)
    raise GpdslError(
        f"predict: `{name}` is no argument; outputs that are known are rows, with their inputs: "
        f"predict(data, given={{{inputs}{name!r}: ...}})"
    )
