"""F111 to F119 and F207 to F219: where functions run, and what goes wrong there."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.forward.errors import ForwardMistake


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


class TimedOut(ForwardMistake, code="F207"):
    """One call took too long."""

    where: str
    inputs: str
    seconds: str
    message: ClassVar = "the call for {where} took more than {seconds} s and was given up"
    help: ClassVar = "allow more with timeout=..., or go on without such evaluations with policy='penalise'"


class WorkerDied(ForwardMistake, code="F208"):
    """The process that ran the function died, twice, with the same inputs."""

    where: str
    inputs: str
    reason: str
    message: ClassVar = "the worker process died in {where}, and so did another one that tried again: {reason}"
    help: ClassVar = "a crash in compiled code or too little memory does this; policy='penalise' goes on without it"


class Gone(ForwardMistake, code="F209"):
    """What runs the function cannot be reached any more."""

    reason: str
    message: ClassVar = "what runs the function cannot be reached any more: {reason}"
    help: ClassVar = "start it again, and go on with model.fit(data, start=error.fit)"


class AllFailed(ForwardMistake, code="F210"):
    """Every evaluation of a row failed."""

    where: str
    inputs: str
    reason: str
    message: ClassVar = "no evaluation of {where} succeeded: {reason}"
    help: ClassVar = "policy='penalise' needs evaluations that succeed beside those that fail"


class EverythingFailed(ForwardMistake, code="F211"):
    """Every row of a batch failed."""

    rows: int
    message: ClassVar = "all of {rows} evaluations failed, so there is nothing to compare with"
    help: ClassVar = "leave out policy='penalise' to see why one of them fails"


class WrongGradient(ForwardMistake, code="F212"):
    """A `gradient` that is not the derivative of the function."""

    where: str
    inputs: str
    said: str
    found: str
    message: ClassVar = (
        "its gradient is not that of the function: along a random direction in {where} it says {said}, and differences "
        "of the function give {found}\n   with {inputs}"
    )
    help: ClassVar = (
        "gradient(*arguments, sensitivity) returns for each argument the sum, over the numbers of the result, of "
        "sensitivity times derivative; without a gradient evaluations alone will do"
    )
