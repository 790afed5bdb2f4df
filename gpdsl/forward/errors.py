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
    return f"[{text}]" if np.ndim(value) else text


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


class Failed(ForwardMistake, code="F201"):
    """The function raised an exception for one row."""

    where: str
    inputs: str
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


class WrongRowShape(ForwardMistake, code="F206"):
    """A result of another shape than declared, from a function that takes one row at a time."""

    where: str
    inputs: str
    shape: str
    expected: str
    message: ClassVar = "the result has shape {shape} in {where}, expected {expected}"
    help: ClassVar = "return the array the model declares; it is called with one row at a time (vectorized=False)"


class NotNumeric(ForwardMistake, code="F204"):
    """A result that is not numbers."""

    kind: str
    message: ClassVar = "the result is not an array of real numbers but {kind}"
    help: ClassVar = "return a NumPy array of floats"


class NotFiniteResult(ForwardMistake, code="F205"):
    """NaN or infinity in a result."""

    where: str
    inputs: str
    value: str
    message: ClassVar = "the result is {value} in {where}"
    help: ClassVar = "return a finite number for these inputs: the gradient is estimated from these values"
