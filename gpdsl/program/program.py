"""The Program: a model bound to the sizes of its data, with every expression planned and ready to be lowered."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gpdsl.data import Data
from gpdsl.data.table import stays_on_disk
from gpdsl.errors import GpdslError
from gpdsl.forward import Accounting, ForwardModel
from gpdsl.language import model as m
from gpdsl.program import groups as grouping
from gpdsl.program.kept import Unique, identity
from gpdsl.program.parameters import Parameters, Prior, make_parameters, prior_of
from gpdsl.program.rows import RowEvaluator, Rows, Scope, refuse_outside
from gpdsl.program.tracing import traced_functions
from gpdsl.symbolic.coupling import coupled_observations
from gpdsl.symbolic.densities import DENSITIES
from gpdsl.symbolic.expectations import additive_parts, latents_in
from gpdsl.symbolic.kinks import jumps
from gpdsl.symbolic.terms import ObservationTerms, observation_terms, quadratic, with_gradients
from gpdsl.symbolic.translate import ExternalUse, NeedsElements, Translator, axis_key


@dataclass(frozen=True, eq=False)
class Program:
    """Static knowledge only: no data, no parameter values. Its functions take those as arguments."""

    declarations: m.Declarations
    sizes: Mapping[str, int]
    levels: Mapping[str, tuple]
    translator: Translator
    groups: tuple[grouping.Group, ...]
    evaluator: RowEvaluator
    observations: tuple[ObservationTerms, ...]
    parameters: Parameters
    externals: Mapping[str, ForwardModel]
    priors: Mapping[str, Prior]
    expectations: str = "auto"
    factorised: Program | None = None
    """Of a program whose latents are correlated in the posterior, the one in which they are not."""
    gradients: str = "auto"
    control: str = "regression"
    """The control variate of score-function gradients: `inference.score`."""
    registered: Mapping[str, str] = field(default_factory=dict)
    """The registered distributions that the model needs, and what they were when the program was made."""

    @cached_property
    def identity(self) -> Hashable:
        """What tells programs apart (`kept`). Raises Unique with opaque functions: they may change inside."""
        if self.externals:
            raise Unique("opaque functions")
        derived = {"translator", "evaluator"}
        return Program, tuple(identity(getattr(self, each.name)) for each in fields(self) if each.name not in derived)

    @cached_property
    def known_by(self) -> Hashable:
        """Its identity, and where there is none the program itself."""
        try:
            return self.identity
        except Unique:
            return self

    def verify_registered(self) -> None:
        """Raise GpdslError where a distribution has been registered again, as another one than here."""
        for name, was in self.registered.items():
            now = DENSITIES.get(name)
            if now is not None and now.said != was:
                raise GpdslError(
                    f"the model was fitted with {was[:300]}\n  and `{name}` is registered as {now.said[:300]}; "
                    "fit it again, or register what it was"
                )

    def log_prior(self, parameters: Mapping[str, Array]) -> Float[Array, ""] | float:
        """Log density of the learnt parameters that have priors (MAP), at these constrained values."""
        scope = Scope(parameters, Rows({}, {}, {}))
        total: Array | float = 0.0
        for prior in self.priors.values():
            total = total + jnp.sum(self.evaluator(prior.log_density, scope, prior.axes))
        return total

    def for_prediction(self) -> Program:
        """The same program with all that is read of its latents, and every opaque call, that has a name."""
        declarations = self.translator.declarations
        for name in declarations.lets if declarations.externals else ():
            # Make the opaque calls of a quantity known that no likelihood reads.
            axes = declarations.axes_of(name)
            try:
                self.translator.let(name, tuple(axis_key(axis) for axis in axes))
            except NeedsElements:
                for at in np.ndindex(self.translator.shape(axes)):
                    self.translator.let(name, tuple(place + 1 for place in at))
        fitted = {name: group.readings for group in self.groups for name in group.names}
        groups = grouping.read_more(
            self.groups, grouping.predicted_readings(self.translator, self.observations, fitted)
        )
        return replace(self, groups=groups, evaluator=RowEvaluator(self.translator, grouping.columns(groups)))

    def without_sums(self) -> Program:
        """The same program that reads no sums of readings: their covariances are worked out as such."""
        groups = grouping.without_sums(self.groups)
        return replace(self, groups=groups, evaluator=RowEvaluator(self.translator, grouping.columns(groups)))

    @property
    def coupled(self) -> bool:
        """Whether expectations are taken under one Gaussian of all latents."""
        return self.factorised is not None

    @cached_property
    def coupling(self) -> Program:
        """The same program with its expectations under one Gaussian of all latents."""
        if self.coupled:
            return self
        observations = coupled_observations(self.translator, self.observations, self.expectations)
        observations = with_gradients(self.translator, observations, self.gradients)
        return replace(self, observations=observations, factorised=self)

    @cached_property
    def one_by_one(self) -> Program:
        """The same program for moments of one latent after the other: of several components where it is coupled."""
        return replace(self, factorised=None) if self.coupled else self

    @cached_property
    def fine(self) -> Program:
        """The same program with quadratures that tell steep places apart."""
        observations = tuple(
            replace(each, terms=tuple(replace(term, fine=term.refinable) for term in each.terms))
            for each in self.observations
        )
        return replace(self, observations=observations, factorised=self.factorised and self.factorised.fine)

    @cached_property
    def mixing(self) -> tuple[str, ...]:
        """Outputs whose terms read several latents, which are therefore correlated in the posterior."""
        translator, found = self.translator, dict[str, None]()
        for observation in self.observations:
            for part in additive_parts(translator, observation.log_density):
                refs = [translator.references[symbol] for symbol in latents_in(translator, part)]
                if len({(ref.name, ref.positions) for ref in refs}) > 1:  # several readings of one latent count once
                    found |= dict.fromkeys(observation.outputs)
        return tuple(found)

    @cached_property
    def conjugate(self) -> bool:
        """Whether the log likelihood is quadratic in all latents together: their exact posterior is one Gaussian."""
        return not self.opaque and quadratic(self.translator, [o.log_density for o in self.observations])

    @property
    def latents(self) -> int:
        """Number of columns of the marginals: latent processes, once for each reading."""
        return self.groups[-1].stop if self.groups else 0

    @property
    def latent_names(self) -> list[str]:
        """What is read of each latent process, in the order of the columns of marginals."""
        return grouping.element_names(self.translator, self.groups)

    @property
    def methods(self) -> set[str]:
        """The estimators in use."""
        return {term.method for o in self.observations for term in o.terms}

    @property
    def sampled(self) -> bool:
        """Whether any term is estimated from samples."""
        return bool(self.methods & {"pathwise", "score"})

    @property
    def opaque(self) -> bool:
        """Whether a term of the likelihood is known by its values alone."""
        return "score" in self.methods

    @property
    def calls(self) -> bool:
        """Whether it does call one: jumps, of which derivatives miss what moves, have their values alone too."""
        return self.opaque and bool(self.uses())

    @cached_property
    def inner(self) -> frozenset[str]:
        """Latents and row variables that are arguments of latents (deep and latent-variable models)."""
        arguments = {name for latent in self.declarations.latents.values() for name in latent.arguments}
        return frozenset(arguments & {*self.declarations.latents, *self.declarations.rows})

    @cached_property
    def sharp(self) -> frozenset[str]:
        """Those of them that formulas read as well, which may depend on both."""
        return self.inner & {read.name for read in grouping.reads_of(self.declarations)}

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The places of the groups, each after those of its latents' arguments."""
        depth: dict[str, int] = {}
        for latent in self.declarations.latents.values():  # in the order of the layers: the checker sees to it
            depth[latent.name] = 1 + max(depth.get(name, 0) for name in latent.arguments or ("",))
        return tuple(sorted(range(len(self.groups)), key=lambda place: depth.get(self.groups[place].names[0], 0)))

    @property
    def fields(self) -> tuple[m.Latent, ...]:
        """Latents over points that are the same in every row. Where there are any, all latents are."""
        return self.declarations.fields

    @property
    def account(self) -> Accounting | None:
        """What the opaque functions of this program have cost so far; None where it has none."""
        return next((model.account for model in self.externals.values()), None)

    def uses(self) -> tuple[ExternalUse, ...]:
        """Opaque calls the likelihood needs, in an order in which they can be made."""
        return tuple(u for u in self.translator.externals.values() if u.function not in self.translator.traced)


def make_program(
    declarations: m.Declarations,
    sizes: Mapping[str, int],
    levels: Mapping[str, tuple],
    externals: Mapping[str, ForwardModel],
    *,
    expectations: str = "auto",
    gradients: str = "auto",
    control: str = "regression",
    fixed: Collection[str] = (),
    initial: Mapping[str, object] | None = None,
    inducing: object = None,
) -> Program:
    """Bind a model to sizes and opaque functions, and plan its terms. Raises GpdslError for what cannot be done.

    Latents that have different `inducing` points, by name, are computed apart.
    """
    translator = Translator(declarations, sizes)
    if externals:
        translator.traced = traced_functions(translator, externals)
    expected = "sampled" if declarations.fields else expectations
    observations = with_gradients(translator, observation_terms(translator, expected), gradients)
    each = inducing if isinstance(inducing, Mapping) else {}
    groups = grouping.make_groups(translator, grouping.fitted_readings(translator, observations), each)
    parameters = make_parameters(translator, fixed, initial)
    _refuse_jumping_parameters(translator, observations, parameters)
    evaluator = RowEvaluator(translator, grouping.columns(groups))
    return Program(
        declarations,
        dict(sizes),
        dict(levels),
        translator,
        groups,
        evaluator,
        observations,
        parameters,
        externals,
        {n: prior_of(translator, p) for n, p in declarations.params.items() if p.prior and n in parameters.initial},
        expectations,
        gradients=gradients,
        control=control,
        registered=registered_in(declarations),
    )


def registered_in(declarations: m.Declarations) -> dict[str, str]:
    """The registered distributions that a model needs, and what they are."""
    calls = [each.distribution for each in declarations.observations]
    calls += [each.prior for each in declarations.params.values() if each.prior is not None]
    names = {each.name for call in calls for each in call.calls() if each.log_density is None}
    return {name: DENSITIES[name].said for name in sorted(names & DENSITIES.keys()) if DENSITIES[name].said}


def _refuse_jumping_parameters(
    translator: Translator, observations: tuple[ObservationTerms, ...], parameters: Parameters
) -> None:
    """A parameter in a condition on a latent moves a jump, and values with score-function gradients do not see it."""
    for term in (term for observation in observations for term in observation.terms if term.method == "score"):
        for symbol in {s for condition in jumps(term.expression, term.latents) for s in condition.free_symbols}:
            ref = translator.references[symbol]
            if ref.name in parameters.initial:
                raise GpdslError(
                    f"parameter `{ref.name}` decides where a latent makes a jump, so no gradient with respect to it "
                    f"exists; declare it `fixed`, pass fixed=['{ref.name}'] to fit, or let the branches meet there"
                )


HARMLESS = {"positive": 1.0, "unit": 0.5}
"""What stands for a missing value of an output, by kind; 0 for the others."""


def at_values(program: Program, values: Mapping[str, Any]) -> Program:
    """The program, with learnt parameters that start at these values."""
    initial = {name: np.asarray(values[name], float) for name in program.parameters.initial}
    return replace(program, parameters=replace(program.parameters, initial=initial))


def make_rows(program: Program, data: Data) -> Rows:
    """The arrays of the data as the program wants them: missing outputs get a harmless value and no weight.

    Inputs that are memory maps stay what they are.

    Raises GpdslError for a value beyond a bound of `Truncated` or `Censored`.
    """
    outputs: dict[str, Any] = {}  # NumPy arrays, until a compiled function takes them
    observed: dict[str, Any] = {}
    indicators: dict[str, Any] = {}
    for name, values in data.outputs.items():
        declared = program.declarations.outputs[name]
        known = data.observed[name]
        harmless = HARMLESS.get(declared.kind, 0.0)
        outputs[name] = np.where(known, values, harmless).astype(float)
        observed[name] = known.astype(float)
        if declared.label is not None:
            classes = np.arange(program.translator.size(declared.label))
            indicators[name] = (outputs[name][..., None] == classes).astype(float)
    inputs: dict[str, Any] = {n: v if stays_on_disk(v) else v.astype(float) for n, v in data.inputs.items()}
    rows = Rows(inputs, outputs, observed, indicators)
    for observation in program.observations:
        refuse_outside(program.evaluator, observation, rows)
    return rows


def take_rows(rows: Rows, index: np.ndarray | Array | slice) -> Rows:
    """Some of the rows."""
    pick = lambda table: {name: values[index] for name, values in table.items()}  # noqa: E731
    numbers = None if rows.numbers is None else rows.numbers[index]
    return Rows(pick(rows.inputs), pick(rows.outputs), pick(rows.observed), pick(rows.indicators), numbers)
