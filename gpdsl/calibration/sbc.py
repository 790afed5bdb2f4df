"""`gpdsl.sbc`: many runs, in this process or in several, and what they have found together."""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from rich.console import Console

from gpdsl.calibration.calibration import Calibration
from gpdsl.errors import GpdslError, GpdslWarning, described, quoted
from gpdsl.inference.plan.options import Options, make_options
from gpdsl.inference.watch import Watch, watching
from gpdsl.language.calls import answering
from gpdsl.language.model import Declarations
from gpdsl.language.takes import FitOptions, Whole, with_options
from gpdsl.language.used import called_in
from gpdsl.model import Model
from gpdsl.results.checkpoint import SECONDS_BETWEEN_LINES, duration
from gpdsl.results.draws import falls_below
from gpdsl.results.table import predictable_outputs

if TYPE_CHECKING:
    from gpdsl.model import Model
    from gpdsl.results.fit import Fit
    from gpdsl.results.prediction import Prediction


# One run of a calibration: parameters, latents and outputs are drawn, fitted, and compared with the posterior.

DRAWS = 1000
"""Of a quantity whose distribution function has no formula."""

Shares = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Study:
    """What all runs share.

    The first `rows` of the inputs are fitted; those after them repeat some of these, for latents that are looked at
    and for outputs that the fit has not seen. They are the same in all runs: inputs that follow from parameters would
    tell of them.
    """

    model: Model
    inputs: Mapping[str, np.ndarray]
    rows: int
    sizes: Mapping[str, int]
    held: Mapping[str, np.ndarray]
    options: Mapping[str, Any]
    seed: int

    def run(self, number: int) -> Shares | str | None:
        """P(quantity < its true value), [entries], of one run; in words why there is none; None where interrupted."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GpdslWarning)
                return self._run(number)
        except GpdslError as problem:
            return str(problem)
        except Exception as problem:  # noqa: BLE001 - hours of other runs must not be lost by it
            return described(problem)

    def _run(self, number: int) -> Shares | None:
        drawn = self.model.sample_prior(
            dict(self.inputs),
            seed=self.seed + 1 + number,
            parameters=self.held,
            draw_parameters=True,
            sizes=self.sizes,
        )
        fit = self.model.fit(
            {name: values[: self.rows] for name, values in drawn.data.items()},
            progress=False,
            standardise=False,  # parameters are drawn for the numbers as they are
            **self.options,
        )
        if fit.interrupted:
            return None
        prediction = fit.predict({name: values[self.rows :] for name, values in self.inputs.items()})
        d, rng = self.model.declarations, np.random.default_rng([self.seed, number])
        truth = {name: values[self.rows :] for name, values in drawn.latents.items()}
        seen = [name for name in predictable_outputs(d) if d.outputs[name].label is None]
        truth |= {name: np.asarray(drawn.data[name][self.rows :], float) for name in seen}
        found = _of_parameters(fit, drawn.parameters)
        return found | {name: _of_rows(prediction, name, values, rng).ravel() for name, values in truth.items()}


def _of_parameters(fit: Fit, truth: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of what is learnt with a posterior; nothing where it is learnt at a point."""
    if fit.settings is None:
        return {}
    learnt = [name for name in truth if name not in fit.program.parameters.held]
    return {name: fit.settings.share_below(name, truth[name]).ravel() for name in learnt}


def _of_rows(prediction: Prediction, name: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of a latent or an output; uniform between P(< value) and P(<= value), where a value has a probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = falls_below(prediction, name, values)
    if found is None:
        drawn = prediction.sample(name, DRAWS, seed=int(rng.integers(2**31)))
        found = np.sum(drawn < values, axis=0) / (DRAWS + 1), (np.sum(drawn <= values, axis=0) + 1) / (DRAWS + 1)
    low, high = found
    return np.where(np.isnan(values), np.nan, low + rng.uniform(size=np.shape(low)) * (high - low))


POLL = 0.2
FUTILE = 10
"""Runs that fail before any other has not: then all will."""

Outcome = Shares | str | None


@answering
@with_options
def sbc(
    model: Model,
    data: Any = 50,
    *,
    runs: int = 100,
    workers: int = 1,
    points: int = 5,
    sizes: Mapping[str, int] | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool = False,
    **options: Unpack[FitOptions],
) -> Calibration:
    """Simulation-based calibration: parameters from their priors, latents and outputs are drawn, fitted, and compared.

    data: how many rows, or anything `fit` takes, for its inputs, which are the same in all runs. points: rows at which
    latents, and outputs that were not fitted, are looked at. workers: processes that runs are shared among. options:
    those of `FitOptions`; `seed` is that of the draws too. A run that fails is counted. Ctrl-C ends with the runs that
    were made.

    Raises GpdslError where a learnt parameter has no prior, where no run gave anything, and for what `fit` and
    `sample_prior` refuse.
    """
    if not isinstance(model, Model):
        raise GpdslError(f"sbc: expected a model, such as of gpdsl.load, got {type(model).__name__}")
    for name, value in (("runs", runs), ("workers", workers), ("points", points)):
        if Whole(1).read(value) is None:
            raise GpdslError(f"{name}: expected a whole number from 1, got {quoted(repr(value))}")
    if Whole(1).read(rows := options.get("rows")) is not None:
        raise GpdslError(f"sbc: how many rows there are is `data`: sbc(model, {rows}, runs={runs})")
    study = _study(model, data, points, sizes, columns, dict(options))
    if workers > 1:
        _refuse_unknown(model.declarations)
    begun, shares, failures, interrupted = time.perf_counter(), [], {}, False
    with watching() as watch:
        for number, outcome in _runs(study, runs, workers, watch, _reporting(progress, runs)):
            if isinstance(outcome, str):
                failures[number] = outcome
            elif outcome is not None:
                shares.append((number, outcome))
            interrupted = watch.asked or outcome is None
            if interrupted or (not shares and len(failures) >= FUTILE):
                break
    if not shares and interrupted:
        raise KeyboardInterrupt
    if not shares:
        said = next(iter(failures.values()))
        raise GpdslError(f"sbc: no run of {len(failures)} has given anything; the first failed so: {said}")
    ordered = [each for _, each in sorted(shares, key=lambda each: each[0])]
    return Calibration(
        model=model.name,
        rows=study.rows,
        asked=runs,
        seed=study.seed,
        options=dict(options),
        shares={name: np.stack([each[name] for each in ordered]) for name in ordered[0]},
        failures=dict(sorted(failures.items())),
        seconds=time.perf_counter() - begun,
        interrupted=interrupted,
    )


def _study(
    model: Model,
    data: Any,
    points: int,
    sizes: Mapping[str, int] | None,
    columns: Mapping[str, str] | None,
    options: dict[str, Any],
) -> Study:
    """What all runs share. Raises GpdslError where no run could be made."""
    d = model.declarations
    chosen = make_options(d.infer.options, options, d.latents)
    held = _held(d, chosen)
    if d.fields:
        raise GpdslError("sbc: a latent over points of its own is the same in every row; this is not calibrated yet")
    table, rows = (None, int(data)) if isinstance(data, int | np.integer) else (data, None)
    first = model.sample_prior(table, rows=rows, seed=chosen.seed, parameters=chosen.init, sizes=sizes, columns=columns)
    given = {name: first.data[name] for name in d.inputs}
    count = len(next(iter(first.data.values())))
    looked = np.unique(np.linspace(0, count - 1, min(points, count)).round().astype(int))
    repeated = {name: np.concatenate([values, values[looked]]) for name, values in given.items()}
    held_at = {name: first.parameters[name] for name in held}
    return Study(model, repeated, count, dict(first.sizes), held_at, options, chosen.seed)


def _held(declarations: Declarations, options: Options) -> list[str]:
    """Parameters that are not learnt. Raises GpdslError where others have no prior to be drawn from."""
    held = [name for name, param in declarations.params.items() if param.fixed or name in options.fixed]
    without = [name for name, param in declarations.params.items() if param.prior is None and name not in held]
    if without:
        first, have = without[0], "has" if len(without) == 1 else "have"
        prior = "Normal(0, 1)" if declarations.params[first].constraint == "real" else "LogNormal(0, 1)"
        raise GpdslError(
            f"sbc draws what is learnt from its prior, and {', '.join(f'`{name}`' for name in without)} {have} none; "
            f"write one, as `param {first} : ... ~ {prior}`, or fix it: fixed=['{first}'], --fix {first}"
        )
    return held


def _refuse_unknown(declarations: Declarations) -> None:
    """Raise GpdslError for what processes would not know."""
    if declarations.externals or any(each.distribution.external for each in declarations.observations):
        raise GpdslError("workers: opaque functions are called from one process; use workers=1, and their own workers")
    names = [name for name, _ in called_in(declarations.source.own)]
    if names:
        raise GpdslError(f"workers: other processes do not know the registered `{names[0]}`; use workers=1")


def _runs(study: Study, runs: int, workers: int, watch: Watch, report: Any) -> Iterator[tuple[int, Outcome]]:
    """Runs as they end."""
    made = _here(study, runs) if workers == 1 else _in_processes(study, runs, workers, watch)
    failed = 0
    for done, (number, outcome) in enumerate(made, 1):
        failed += isinstance(outcome, str)
        report(done, failed)
        yield number, outcome


def _here(study: Study, runs: int) -> Iterator[tuple[int, Outcome]]:
    for number in range(runs):
        try:
            outcome = study.run(number)
        except KeyboardInterrupt:  # the runs before are kept
            outcome = None
        yield number, outcome


_STUDY: list[Study] = []
"""In a worker: the study it belongs to."""


def _begin(study: Study) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks for the runs ends them
    _STUDY[:] = [study]


def _run(number: int) -> Outcome:
    return _STUDY[0].run(number)


def _in_processes(study: Study, runs: int, workers: int, watch: Watch) -> Iterator[tuple[int, Outcome]]:
    """Spawned, not forked: JAX runs threads. After Ctrl-C those under way are waited for."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(min(workers, runs), mp_context=context, initializer=_begin, initargs=(study,))
    try:
        numbers = {executor.submit(_run, number): number for number in range(runs)}
        left = set(numbers)
        while left:
            ended, left = wait(left, timeout=POLL, return_when=FIRST_COMPLETED)
            if watch.asked:
                executor.shutdown(cancel_futures=True)
                ended, left = ended | {each for each in left if not each.cancelled()}, set()
            yield from ((numbers[each], _outcome(each)) for each in ended)
    finally:
        executor.shutdown(cancel_futures=True)


def _outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return "a process has ended before its time: out of memory, or a script without `if __name__ == '__main__':`"


def _reporting(wanted: bool, runs: int) -> Any:
    """Say on standard error how many runs are done, and how long the others take: one line on a terminal."""
    console, begun = Console(stderr=True), time.monotonic()
    last = begun

    def report(done: int, failed: int) -> None:
        nonlocal last
        now, same = time.monotonic(), console.is_terminal
        if not wanted or not (same or now - last >= SECONDS_BETWEEN_LINES or done == runs):
            return
        last = now
        left = duration((now - begun) / done * (runs - done))
        text = f"{done} of {runs} runs{f', {failed} failed' if failed else ''}, about {left} left"
        console.print(f"{text:<60}", end="\r" if same and done < runs else "\n", highlight=False)

    return report
