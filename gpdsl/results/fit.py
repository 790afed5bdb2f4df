"""Fit: parameters, posterior and history of one inference, ready to predict, score, summarise, plot and save."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gpdsl.data import Calendar, Data, bind
from gpdsl.data.bound import Standardised
from gpdsl.errors import preformatted
from gpdsl.forward import Usage, unregistered
from gpdsl.inference.infer import POSTERIORS
from gpdsl.inference.opaque.budget import predicted_uses
from gpdsl.inference.plan.options import Choice, Options
from gpdsl.inference.posteriors.family import Held, Whitened
from gpdsl.inference.posteriors.posterior import Posterior, by_parts, parts
from gpdsl.inference.problem import as_arrays, as_numpy
from gpdsl.kernels.functionals import Functionals
from gpdsl.language.calls import Parameters, path_of, spoken
from gpdsl.language.options import check_option
from gpdsl.program.cache import precision
from gpdsl.program.kept import on_use
from gpdsl.program.program import Program, make_rows
from gpdsl.program.starts import unit_factors
from gpdsl.results.averaged import Averaged
from gpdsl.results.criticised import Criticised
from gpdsl.results.criticism.finding import NEVER, Inspected
from gpdsl.results.density import log_predictive
from gpdsl.results.expectation import Beliefs, drawn_by_functions
from gpdsl.results.given import conditioned, joined
from gpdsl.results.named import located
from gpdsl.results.prediction import Origin, Prediction
from gpdsl.results.settings import Settings, refuse_named, refuse_settings
from gpdsl.results.simulations import Simulations
from gpdsl.shown import mimebundle
from gpdsl.symbolic.density_mass import doubtful

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

    from gpdsl.results.functions import DrawnFunctions
    from gpdsl.results.row_variables import RowVariable


# How a fit shows itself: summary, notebook, pictures. `Fit` is one of these.


class Shown:
    """The faces of a fit."""

    def summary(self) -> str:
        """What was fitted, how it went, and the parameters' values, as text."""
        from gpdsl.results.summary import summarise

        return summarise(cast("Fit", self))

    def __repr__(self) -> str:
        from gpdsl.results.summary import in_brief

        return in_brief(cast("Fit", self))

    def _repr_html_(self) -> str:
        """The summary, for notebooks."""
        return preformatted(self.summary())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Mapping[str, str]:
        return mimebundle(self, include, exclude)

    def report(self, path: str | Path, data: Any = None) -> None:
        """Write one web page: the model as equations and as a graph, data, fit, pictures, and what to look at next.

        It needs no other file and no network. data: rows to compare with; without them what needs them is left out.
        """
        from gpdsl.results.report import write_report

        write_report(cast("Fit", self), path_of(path, "fit.report"), data)

    def plot(
        self,
        data: Any = None,
        names: Sequence[str] | str | None = None,
        path: str | Path | None = None,
        *,
        kind: str | None = None,
        others: str = "held",
    ) -> Figure:
        """A matplotlib figure: curves with bands against one input, maps over two, effects of each of more.

        data: the rows to show. names: outputs, lets and latents. path: also write it, as .png, .pdf or .svg.
        kind: another picture, such as "residuals", "calibration", "rootogram", "bound", "inducing" or "parameters";
        a wrong one is answered with all. others: of "partial", whether the other inputs are "held" at their medians or
        "averaged" over rows. Raises GpdslError for what does not suit the model.
        """
        from gpdsl.results.pictures.plot import plot_fit

        return plot_fit(cast("Fit", self), data, names, path, kind, others)


@spoken
@dataclass(frozen=True, eq=False, repr=False)
class Fit(Shown, Criticised):
    """A fitted model: `model.fit` makes it. `print(fit.summary())` first.

    `elbo` is what was maximised, in nats and the units of the data (with `elbo_se`, its standard error, when sampled):
    the evidence lower bound (SAVIGP eqs. 9 to 20), or the log evidence, plus the log prior density of the learnt
    parameters that have priors; `log_evidence_bound` is without that. `parameters` holds values by name, of data that
    were standardised in these units. `history` has columns step, elbo, seconds, and `message` says how the search
    ended; `interrupted`: by the user or an opaque function, at the best state. `usage` counts evaluations of these.
    """

    program: Program
    options: Options
    choice: Choice
    parameters: Mapping[str, np.ndarray]
    inducing: tuple[Functionals, ...]
    posterior: tuple[Whitened, ...]
    weights: np.ndarray
    jitter: float
    elbo: float
    elbo_se: float
    history: np.ndarray
    message: str
    rows: int
    seconds: float
    compile_seconds: float
    columns: Mapping[str, str]
    interrupted: bool = False
    usage: Usage = field(default_factory=Usage)
    held: Held | None = None
    """What holds the posterior where that is not over whitened inducing values, and `posterior` is empty: the data of
    exact inference, where `inducing` is what their rows read, or weights, where that is empty too."""
    notes: tuple[str, ...] = ()
    """What is doubtful about the fit, in sentences; the summary has them too."""
    inducing_loss: float | None = None
    """Nats of the evidence that inducing points lose, about; None without any, and where it cannot be told."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the values of every input and output that was fitted."""
    calendar: Calendar | None = None
    """When the times among the inputs count from, and their zones; None where no input is a time."""
    standardised: Standardised = field(default_factory=Standardised)
    """The mean and standard deviation of what was standardised; `parameters` and latents hold in these units."""
    inducing_loss_bounds: tuple[float, float] | None = None
    """Nats of the evidence that inducing points lose at least and at most, for certain, at the fit's parameters: of
    observations that are normal about one latent each; None of others."""
    settings: Settings | None = None
    """Settings of the learnt parameters that predictions average over; None where these are at `parameters` alone."""
    inspected: Inspected = NEVER

    @cached_property
    def no_bound(self) -> str:
        """Why `elbo` without the log prior is no bound of the log evidence, in words; empty where it is one."""
        if self.options.engine == "ep":
            return "expectation propagation estimates the log evidence"
        weights = self.choice.weights
        if weights is not None and self.options.basis != "inducing":
            return f"{weights.features} basis functions in place of the kernel have an evidence of their own"
        if weights is not None and weights.sums == "sampled":
            return "it lacks a constant, (m + log |K|) / 2"
        if any(each.distribution.log_density for each, _ in doubtful(self.program.translator, self.parameters)):
            return "a density of the model does not integrate to one"
        if self.averages_bound and (open_ended := self.program.parameters.initial.keys() - self.program.priors.keys()):
            return f"{', '.join(sorted(open_ended))} without a prior is flat on the real line"
        if self.options.beta < 1:
            return f"the divergence of q counts {self.options.beta:g} times"
        return "evaluations without values were penalised" if self.usage.penalised else ""

    @property
    def averages_bound(self) -> bool:
        """Whether `elbo` is the bound of the evidence with learnt parameters averaged over by q."""
        return self.options.parameters == "gaussian" and self.settings is not None

    @property
    def drawn(self) -> bool:
        """Whether the posterior is draws of chains."""
        return self.options.engine == "mcmc" and self.settings is not None

    @cached_property
    def log_prior(self) -> float:
        """Log density of the learnt parameters that have priors, at their values; 0 without any."""
        if not self.program.priors:
            return 0.0
        with precision(self.options.dtype):
            compute = on_use(("log prior", self.program.known_by), lambda: self.program.log_prior, True)
            return float(compute(as_arrays(dict(self.parameters), self.options.dtype)))

    @cached_property
    def parameters_in_data_units(self) -> dict[str, np.ndarray]:
        """Of a fit that standardised, the positive parameters whose unit the model tells, in the units of the data."""
        factors = unit_factors(self.program.translator, self.standardised.sds) if self.standardised.sds else {}
        return Parameters((name, factor * self.parameters[name]) for name, factor in factors.items())

    @property
    def log_evidence_bound(self) -> float:
        """Lower bound of log p(data | parameters), in nats, with the standard error `elbo_se`; NaN where there is none.

        `no_bound` says why. Exact inference gives the log evidence itself.
        """
        return np.nan if self.no_bound else self.elbo - (0.0 if self.averages_bound else self.log_prior)

    @property
    def model(self) -> Any:
        """The model that was fitted."""
        from gpdsl.model import Model

        return Model(self.program.declarations, dict(self.program.externals))

    def predict(
        self,
        data: Any,
        columns: Mapping[str, str] | None = None,
        *,
        given: Any = None,
        evaluations: int | None = None,
        **named: Any,
    ) -> Prediction:
        """Posterior at new rows, of which the inputs alone are looked at. Raises DataError for unusable rows.

        `given` are rows of which some outputs are known: the posterior is conditioned on them, at the parameters of the
        fit, exactly for outputs that are normal about something linear in the latents, and as the best Gaussian for
        others, in each pass through layers, which are weighed. `evaluations` is the most that it may take of opaque
        functions. Raises GpdslError for an output by its name, which `given` has, and rows that cannot be given.
        """
        if named:
            refuse_named(self.program.declarations, self.predict, named)
        index = getattr(data, "index", None)  # of a pandas frame, for `to_frame`; that of a list is a method
        bound = self.bind(data, columns, outputs=None)
        known = None if given is None else self.bind(given, columns, outputs=False, beside=bound)
        return self.predict_bound(bound, evaluations, None if callable(index) else index, known, data)

    def predict_bound(
        self, data: Data, evaluations: int | None, index: Any, known: Data | None = None, table: Any = None
    ) -> Prediction:
        """Posterior at rows that are bound already, given outputs of others; `index` names them, `table` has them."""
        units = located(self.program, self.standardised)
        about = self.options.dtype, units, Origin(self, data, evaluations, index, known, table)
        with precision(self.options.dtype):
            beliefs = self.beliefs(data if known is None else joined(self.program, known, data), evaluations)
            if known is not None:
                refuse_settings(self.settings, "predict(given=...)", "what is given tells of the parameters as well")
                return Prediction(conditioned(beliefs, known.rows, self.at_rows), *about)
            if self.settings is None:
                return Prediction(beliefs, *about)
            return Averaged(self.settings.weights, list(self.settings.beliefs(self.at_rows, beliefs)), *about)

    def log_predictive_density(
        self, data: Any, columns: Mapping[str, str] | None = None, *, evaluations: int | None = None
    ) -> np.ndarray:
        """log p(y_n | training data) in nats for every row [rows]; a row's observed outputs count together.

        A row without observed outputs has 0. `evaluations` is a budget, as of `predict`; a small one: fewer samples.
        """
        bound = self.bind(data, columns, outputs=True)
        with precision(self.options.dtype):
            beliefs = self.beliefs(bound, evaluations, likelihoods=True)
            found = by_parts(bound.rows, lambda _, r: self._log_predictive(beliefs.part(r)), size=beliefs.at_once)
        return found - self.standardised.log_jacobian(bound.observed)

    def _log_predictive(self, beliefs: Beliefs) -> np.ndarray:
        if self.settings is None:
            return log_predictive(beliefs)
        each = np.stack([log_predictive(one) for one in self.settings.beliefs(self.at_rows, beliefs)])
        return np.logaddexp.reduce(each + np.log(self.settings.weights)[:, None], axis=0)

    def bind(
        self, data: Any, columns: Mapping[str, str] | None, *, outputs: bool | None, beside: Data | None = None
    ) -> Data:
        """New data under the sizes, levels and columns of the fit, in their own units; new levels as in `beside`."""
        return bind(
            self.program.declarations,
            data,
            sizes=self.program.sizes,
            levels=self.program.levels,
            unseen=None if beside is None else beside.unseen,
            calendar=self.calendar,
            columns=columns,
            kept=self.columns if columns is None else None,
            outputs_required=outputs,
        )

    def unlike_fitted(self, data: Data) -> list[str]:
        """Inputs and outputs of which the values are not those that were fitted."""
        now = self.standardised.applied(data).digests
        return [name for name, digest in now.items() if self.digests.get(name) != digest]

    def beliefs(
        self,
        data: Data,
        evaluations: int | None = None,
        *,
        likelihoods: bool = False,
        program: Program | None = None,
    ) -> Beliefs:
        """What the posterior says at rows of all that `program` reads of the latents; by default all that has a name.

        Rows count as the fitted ones, with their row variables, where a program is given.
        """
        self.program.verify_registered()
        dtype, budget = self.options.dtype, self.options.evaluations if evaluations is None else evaluations
        if budget is not None:
            budget = check_option("evaluations", budget)
        with precision(dtype):
            made = make_rows(program or self.predicting, self.standardised.applied(data))
            rows = as_numpy(made if program is None else replace(made, numbers=np.arange(data.rows)), dtype)
            program = program or self.predicting
            at_rows = self.densities_at_rows if likelihoods else self.at_rows
            return Beliefs(
                program,
                as_arrays(dict(self.parameters), dtype),
                rows,
                at_rows.marginals(program, rows, data.rows),
                at_rows.shares(program),
                self.options.seed,
                self._simulations(program, data.rows, np.inf if budget is None else budget, likelihoods),
                blocks=partial(at_rows.blocks, program, rows, data.rows),
                functions=at_rows.functions(program, rows),
                drawn=partial(drawn_by_functions, at_rows, program, rows),
            )

    @staticmethod
    def _simulations(program: Program, count: int, budget: float, likelihoods: bool) -> Simulations | None:
        """The evaluations of a prediction at so many rows, where it takes any; of `likelihoods` too, if asked."""
        if not (program.uses() if likelihoods else predicted_uses(program)):
            return None
        return Simulations.of(program, sum(rows.stop - rows.start for rows, _ in parts(count)), budget, likelihoods)

    @cached_property
    def at_rows(self) -> Posterior:
        """What the posterior says of the latents at any rows."""
        own = self.program, self.parameters, self.inducing, self.posterior, self.weights, self.jitter
        kind = next(each for each in POSTERIORS if each.suits(self.program, self.choice))
        return kind(*own, self.options.dtype, self.held)

    @cached_property
    def densities_at_rows(self) -> Posterior:
        """The same for densities of outputs there."""
        return self.at_rows.for_densities()

    @property
    def weight_space(self) -> Any:
        """The posterior of `engine = qsgp`, over the weights of basis functions; None of other fits."""
        return None if self.choice.weights is None else self.held

    @cached_property
    def predicting(self) -> Program:
        """The program with all that is read of its latents by a name."""
        return self.program.for_prediction()

    def draw_functions(self, count: int, seed: int = 0) -> DrawnFunctions:
        """`count` whole functions from the posterior: each takes rows and gives its values there, always the same ones.

        `functions(data, name)` is [count, rows, *axes], `functions[0](data, name)` the first. Wilson et al. (2020).
        Raises GpdslError for kernels of which no random waves are known, row variables and fields.
        """
        from gpdsl.results.functions import draw_functions

        return draw_functions(self, count, seed)

    def row_variables(self, data: Any) -> Mapping[str, RowVariable]:
        """By name of the variables of rows their posterior means and standard deviations, fitted rows or new ones.

        `fit.row_variables(data)["w"].mean` is [rows, *axes]: where a latent variable model puts each row, or what an
        input with an error was. Of new rows it is the posterior given the outputs that are observed in them. Raises
        GpdslError for a model without them, for new rows where no latent is a function of them, and for rows of which
        passes through layers tell too little.
        """
        from gpdsl.results.row_variables import row_variables

        return row_variables(self, data)

    def to_datatree(self, data: Any = None, draws: int = 500, seed: int = 0) -> DataTree:
        """An xarray tree of the groups that ArviZ reads: `draws` in one chain, or the chains of `engine = mcmc`.

        Parameters are the same in every draw, unless they are drawn or integrated over. With `data` there are draws of
        latents and lets at its rows, together, of outputs in `posterior_predictive`, the data, and at the same draws
        the log likelihood of each row's outputs together, but for row variables and opaque functions; levels are those
        of `Prediction.draws`. Of Markov chains there are then the draws that predictions average over, and all of them
        without `data`.
        """
        from gpdsl.results.datatree import datatree

        return datatree(self, data, draws, seed)

    def __reduce__(self) -> tuple[Any, ...]:
        """`pickle` and `copy` take what a saved fit holds, and opaque functions that nobody has registered."""
        from gpdsl.results.persistence import arrays_of, header_of, restored

        return restored, (json.dumps(header_of(self)), arrays_of(self), unregistered(self.program.externals))

    def save(self, path: str | Path) -> None:
        """Write the fit to a file that `gpdsl.load_fit` reads; never half-written, and no pickle inside."""
        from gpdsl.results.persistence import save_fit

        save_fit(self, path_of(path, "fit.save"))
