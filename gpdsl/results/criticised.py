"""What a fit is worth, asked of the fit. `Fit` is one of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from gpdsl.results.criticism.checks import Check
    from gpdsl.results.criticism.finding import Diagnosis, Inspection
    from gpdsl.results.criticism.left_out import Elpd, LeaveOneOut
    from gpdsl.results.criticism.reference import Distances
    from gpdsl.results.criticism.without import CrossValidation
    from gpdsl.results.fit import Fit


class Criticised:
    """The judgements of a fit."""

    def loo(self, data: Any, *, refits: int | None = None) -> LeaveOneOut:
        """How well each row of the data that were fitted is predicted by all others.

        At the parameters of the fit, or averaged over them where they are integrated over or drawn. Exact under normal
        noise; with one Gaussian as posterior by taking the row's site out of it; else by weighted draws of the row's
        latents, with Pareto's k. Rows that move the fit by more than a quarter of a nat, or whose k is above 0.7, are
        left out by fits without them, the worst `refits` of them: by itself up to 20 of 1000 rows, 5 where parameters
        are integrated over or draws corrected, and none of chains, opaque functions and minibatches. Raises GpdslError
        for other data.
        """
        from gpdsl.results.criticism.without import leave_one_out

        return leave_one_out(cast("Fit", self), data, refits)

    def waic(self, data: Any) -> Elpd:
        """The widely applicable information criterion, as an expected log predictive density (Watanabe 2010).

        It is too high where single rows move the posterior, which is warned of where rows differ from those of `loo`
        by more than a nat in all, or k there is above 0.7. With beta other than 1 it is compared with nothing.
        """
        from gpdsl.results.criticism.left_out import widely_applicable

        return widely_applicable(cast("Fit", self), data)

    def cross_validate(
        self, data: Any, folds: int | None = None, *, by: str | None = None, seed: int = 0
    ) -> CrossValidation:
        """How well rows are predicted by fits that have not seen them: K-fold cross-validation.

        The rows that were fitted are dealt to `folds` at random, to five or as many as there are; each fold is
        predicted by a fit of the others, from where this one has ended, with its options and units and the parameters
        learnt anew. by: an input, or a column of the data, of which rows with the same value stay together. Raises
        GpdslError for other data.
        """
        from gpdsl.results.criticism.without import cross_validate

        return cross_validate(cast("Fit", self), data, folds, by, seed)

    def leave_future_out(
        self,
        data: Any,
        first: int | None = None,
        *,
        ahead: int = 1,
        by: str | None = None,
        every: int | None = None,
    ) -> CrossValidation:
        """How well the next rows of a series are predicted by fits of those before: leave-future-out validation.

        The first fit has the rows of the `first` times, half of them by default, and every later one those of `every`
        times more, `ahead` by default; each predicts the rows of the `ahead` times that follow, one by one. by: the
        input or column that is the time. Fits are made as by `cross_validate` (Bürkner, Gabry and Vehtari 2020).
        """
        from gpdsl.results.criticism.without import leave_future_out

        return leave_future_out(cast("Fit", self), data, first, ahead, by, every)

    def check_predictive(
        self,
        data: Any,
        statistic: str | Callable[[np.ndarray], float],
        name: str | None = None,
        *,
        draws: int = 1000,
        seed: int = 0,
    ) -> Check:
        """A statistic of an output, the first by default, beside that of data drawn anew from the posterior.

        statistic: "min", "max", "mean", "variance", "zeros" (their share), or a function of the observed values, one
        array without missing ones. `check.p` near 0 or 1 says that such data would be rare if the model were right.
        """
        from gpdsl.results.criticism.checks import check

        return check(cast("Fit", self), data, statistic, name, draws, seed)

    def check(self, data: Any, against: str | Fit = "mcmc", **options: Any) -> Distances:
        """Means, standard deviations and intervals beside Markov chains, latent by latent, parameter by parameter.

        The chains begin where this fit has ended; options are those of `engine = mcmc` (`chains`, `draws`, `warm_up`).
        `against` may also be a fit of the same data. `print` it: it has a verdict, and `to_frame` a table. Raises
        GpdslError for other data, and where chains cannot be had.
        """
        from gpdsl.results.criticism.reference import check_against

        return check_against(cast("Fit", self), data, against, options)

    @property
    def inspection(self) -> Inspection:
        """Standard errors of what was learnt and what is to be doubted, found when first asked for."""
        return cast("Fit", self).inspected.of(cast("Fit", self))

    @property
    def standard_errors(self) -> Mapping[str, np.ndarray]:
        """Of the learnt parameters, in their domains: from the curvature of the evidence, or its bound at the best q.

        Infinite where the data leave a parameter open. Empty where `fit.inspection.lacking` says why there are none.
        Of parameters that are integrated over or drawn, their posterior standard deviations.
        """
        fit = cast("Fit", self)
        if fit.settings is None:
            return self.inspection.errors
        sds = {name: fit.settings.sd(name) for name in fit.parameters if name not in fit.program.parameters.held}
        return {name: sd for name, sd in sds.items() if np.any(sd > 0)}  # corrected at one value there is none

    def to_frame(self) -> Any:
        """A pandas frame of all parameters, element by element: value, standard error, and whether it was fixed.

        The value is the posterior mean where parameters are integrated over or drawn. Of a fit with `standardise` two
        columns more have both in the units of the data, NaN where the model does not tell the parameter's unit.
        """
        from gpdsl.results.criticism.findings import parameter_frame

        return parameter_frame(cast("Fit", self))

    def diagnose(self, data: Any = None, *, full: bool = False) -> Diagnosis:
        """What is to be doubted of the fit, each with a number and what to do; `print` it.

        Without data: what was looked at for the summary, which leaves out what takes long. data: the rows that were
        fitted, for everything: a fit keeps none, so that `full=True` asks for them. Raises GpdslError for other data,
        and for `full=True` without any.
        """
        from gpdsl.results.criticism.findings import diagnose

        return diagnose(cast("Fit", self), data, full)
