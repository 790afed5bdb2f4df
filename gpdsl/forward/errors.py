"""F1xx and F2xx: an opaque function that is missing, or that answers with what cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gpdsl.errors import GpdslError, Worded

MAX_ELEMENTS = 8


class ForwardMistake(Worded):
    """One mistake. Subclasses give the code and the templates.

    `inputs` is the text of the arguments of the offending row, when one row is to blame.
    """

    function: str

    def text(self) -> str:
        """The whole message: what is wrong, with which inputs, what to do."""
        lines = [f"`{self.function}`: error[{self.code}]: {self.message_text()}"]
        if inputs := getattr(self, "inputs", ""):
            lines.append(f"   with {inputs}")
        if self.help:
            lines.append(f"   help: {self.help_text()}")
        return "\n".join(lines)


class RowMistake(ForwardMistake):
    """One in a row: which rows those are, in words, and the arguments of the first."""

    where: str
    inputs: str


class ForwardModelError(GpdslError):
    """An opaque function that is missing or failed; `__cause__` is the exception of the function itself, if any.

    `fit` is the best state of the fit that it ended, when there is one: `model.fit(data, start=error.fit)` goes on.
    """

    def __init__(self, mistake: ForwardMistake) -> None:
        self.mistake = mistake
        super().__init__(mistake.text())

    def __str__(self) -> str:
        kept = "\n   the fit until here is kept: go on with model.fit(data, start=error.fit)"
        return super().__str__() + (kept if self.fit is not None else "")


def describe_row(names: Sequence[str], arguments: Sequence[np.ndarray], row: int) -> str:
    """The arguments of one row (from 0) as text: `depth = [199.8, 504.1], velocity = 1950`."""
    return ", ".join(f"{name} = {_short(values[row])}" for name, values in zip(names, arguments, strict=True))


def _short(value: np.ndarray) -> str:
    flat = np.ravel(value).tolist()
    words = [f"{each:.6g}" for each in flat[:MAX_ELEMENTS]]
    text = ", ".join(words) + (", ..." if len(flat) > MAX_ELEMENTS else "")
    shape = f" of shape {list(np.shape(value))}" if len(flat) > MAX_ELEMENTS or np.ndim(value) > 1 else ""
    return f"[{text}]{shape}" if np.ndim(value) else text


class NotRegistered(ForwardMistake, code="F101"):
    """An external the model declares and nobody provided."""

    register: str
    known: str
    message: ClassVar = "the model declares this external, but no function of this name is registered ({known})"
    help: ClassVar = (
        "call gpdsl.{register}('{function}', your_function) before, pass externals={{'{function}': your_function}}, "
        "or on the command line --forward file.py with a file that registers it"
    )


class WrongSort(ForwardMistake, code="F102"):
    """A likelihood registered where the model wants a forward model, or the reverse."""

    found: str
    expected: str
    register: str
    message: ClassVar = "it is registered as a {found}, but the model declares a {expected}"
    help: ClassVar = "register it with gpdsl.{register}"


class NotCallable(ForwardMistake, code="F103"):
    """Something that is no function."""

    kind: str
    message: ClassVar = "expected a function, found a value of type {kind}"
    help: ClassVar = "pass the function itself, without calling it"


class NotAName(ForwardMistake, code="F104"):
    """A name no model could declare."""

    message: ClassVar = "this is no name a model could declare"
    help: ClassVar = "use letters, digits and underscores, starting with a letter"


class NotAGradient(ForwardMistake, code="F105"):
    """A gradient that is no function."""

    kind: str
    message: ClassVar = "expected a function as gradient, found a value of type {kind}"
    help: ClassVar = (
        "pass a vector-Jacobian product: gradient(*arguments, sensitivity), with a sensitivity like the result, "
        "returns an array like each argument; or leave it out, and it is estimated from values"
    )


class WorkersNotPositive(ForwardMistake, code="F106"):
    """A number of workers that is no positive whole number."""

    workers: str
    message: ClassVar = "workers = {workers} is no number of workers"
    help: ClassVar = "use 1, or more where calls may be made at the same time: in threads, processes or on servers"


class UnknownExternal(ForwardMistake, code="F107"):
    """`externals=` names something the model does not declare."""

    declared: str
    message: ClassVar = "passed in externals=, but the model declares no such external"
    help: ClassVar = "the model declares {declared}"


class WrongArity(ForwardMistake, code="F108"):
    """A function that cannot be called with the arguments the model declares."""

    signature: str
    declared: str
    message: ClassVar = "the function is {function}{signature}, but the model passes {declared}"
    help: ClassVar = "let it take these arguments, in this order"


class UnknownPolicy(ForwardMistake, code="F110"):
    """A policy for failures that does not exist."""

    found: str
    message: ClassVar = "policy = {found} is no policy for failures"
    help: ClassVar = "use 'raise', 'penalise', gpdsl.retry(3) or gpdsl.retry(3, 'penalise')"


class Failed(RowMistake, code="F201"):
    """The function raised an exception for one row."""

    exception: str
    message: ClassVar = "the function failed in {where}: {exception}"
    help: ClassVar = (
        "it is called with sampled values, also unusual ones: let it return a finite number for these inputs"
    )


class FailedTogether(ForwardMistake, code="F202"):
    """The function raised an exception for a batch, though no single row makes it fail."""

    rows: int
    exception: str
    message: ClassVar = "the function failed for a batch of {rows} rows, but not for its rows one by one: {exception}"
    help: ClassVar = "arguments are arrays with the rows first; register it with vectorized=False if it takes one row"


class WrongResultShape(ForwardMistake, code="F203"):
    """A result of another shape than declared."""

    shape: str
    expected: str
    message: ClassVar = "the result has shape {shape}, expected {expected}"
    help: ClassVar = (
        "arguments come with the rows first, and so does the result; a function of one row is registered with "
        "vectorized=False"
    )


class WrongRowShape(RowMistake, code="F206"):
    """A result of another shape than declared, from a function that takes one row at a time."""

    shape: str
    expected: str
    message: ClassVar = "the result has shape {shape} in {where}, expected {expected}"
    help: ClassVar = "return the array the model declares; it is called with one row at a time (vectorized=False)"


class NotNumeric(ForwardMistake, code="F204"):
    """A result that is not numbers."""

    kind: str
    message: ClassVar = "the result is not an array of real numbers but {kind}"
    help: ClassVar = "return a NumPy array of floats"


class NotFiniteResult(RowMistake, code="F205"):
    """NaN or infinity in a result."""

    value: str
    message: ClassVar = "the result is {value} in {where}"
    help: ClassVar = "return a finite number for these inputs: the gradient is estimated from these values"


# F111 to F119 and F207 to F219: where functions run, and what goes wrong there.


class UnknownExecutor(ForwardMistake, code="F111"):
    """An `executor` of no known sort."""

    found: str
    message: ClassVar = "executor = {found} is nothing that runs functions"
    help: ClassVar = (
        "use 'threads', 'processes', 'dask', the address of a Dask scheduler as 'tcp://host:8786', an executor of "
        "concurrent.futures, or any object with `map`"
    )


class BadTimeout(ForwardMistake, code="F112"):
    """A time-out that is no positive number of seconds."""

    found: str
    message: ClassVar = "timeout = {found} is no positive number of seconds"
    help: ClassVar = "give the seconds that one call of the function may take; leave it out for the default"


class CannotTravel(ForwardMistake, code="F113"):
    """A function that another process cannot be given."""

    reason: str
    message: ClassVar = "the function cannot be sent to worker processes: {reason}"
    help: ClassVar = (
        "define it at the top level of a module or script, not inside another function, as a lambda or in a notebook; "
        "or use executor='threads', or executor='dask', which sends such functions too"
    )


class MissingExtra(ForwardMistake, code="F114"):
    """A backend whose package is not installed."""

    executor: str
    package: str
    extra: str
    message: ClassVar = "executor = {executor} needs the package {package}, which is not installed"
    help: ClassVar = "pip install 'gpdsl[{extra}]'"


class NoWorkers(ForwardMistake, code="F115"):
    """Worker processes that do not start, or that all die."""

    reason: str
    message: ClassVar = "the worker processes cannot do their work: {reason}"
    help: ClassVar = (
        "each worker imports the script that started it: put what the script does under `if __name__ == '__main__':`, "
        "and define the function above that line"
    )


class BadCache(ForwardMistake, code="F116"):
    """A file of evaluations that cannot be used."""

    path: str
    reason: str
    message: ClassVar = "cache = {path} cannot be used: {reason}"
    help: ClassVar = "name a file that gpdsl wrote, or one that does not exist yet in a folder that does"


class WrongSizes(ForwardMistake, code="F117"):
    """An UM-Bridge model whose vectors have other sizes than the model declares."""

    url: str
    found: str
    expected: str
    message: ClassVar = "the model at {url} has {found}, but the external has {expected}"
    help: ClassVar = (
        "declare one argument for each input vector of the server, or arguments that make up its one vector; the "
        "result likewise"
    )


class BadServer(ForwardMistake, code="F118"):
    """An UM-Bridge server that is not there, or lacks the model."""

    url: str
    reason: str
    message: ClassVar = "the server {url} cannot be used: {reason}"
    help: ClassVar = "start the server before the fit, and check the address and the name of the model"


class TimedOut(RowMistake, code="F207"):
    """One call took too long."""

    seconds: str
    message: ClassVar = "the call for {where} took more than {seconds} s and was given up"
    help: ClassVar = "allow more with timeout=..., or go on without such evaluations with policy='penalise'"


class WorkerDied(RowMistake, code="F208"):
    """The process that ran the function died, twice, with the same inputs."""

    reason: str
    message: ClassVar = "the worker process died in {where}, and so did another one that tried again: {reason}"
    help: ClassVar = "a crash in compiled code or too little memory does this; policy='penalise' goes on without it"


class Gone(ForwardMistake, code="F209"):
    """What runs the function cannot be reached any more."""

    reason: str
    message: ClassVar = "what runs the function cannot be reached any more: {reason}"
    help: ClassVar = "start it again, and go on with model.fit(data, start=error.fit)"


class AllFailed(RowMistake, code="F210"):
    """Every evaluation of a row failed."""

    reason: str
    message: ClassVar = "no evaluation of {where} succeeded: {reason}"
    help: ClassVar = "policy='penalise' needs evaluations that succeed beside those that fail"


class EverythingFailed(ForwardMistake, code="F211"):
    """Every row of a batch failed."""

    rows: int
    message: ClassVar = "all of {rows} evaluations failed, so there is nothing to compare with"
    help: ClassVar = "leave out policy='penalise' to see why one of them fails"


class WrongGradient(RowMistake, code="F212"):
    """A `gradient` that is not the derivative of the function."""

    said: str
    found: str
    message: ClassVar = (
        "its gradient is not that of the function: along a random direction in {where} it says {said}, and differences "
        "of the function give {found}"
    )
    help: ClassVar = (
        "gradient(*arguments, sensitivity) returns for each argument the sum, over the numbers of the result, of "
        "sensitivity times derivative; without a gradient evaluations alone will do"
    )
