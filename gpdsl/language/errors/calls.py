"""E301 to E319 and from E325: calls, distributions and kernels that do not fit their place."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named


class WrongArity(Named, code="E301"):
    """Too many or too few arguments by position."""

    expected: str
    given: int
    signature: str
    habit: str = ""
    message: ClassVar = "`{name}` takes {expected}, not {given}"
    label: ClassVar = "{given} given"
    help: ClassVar = "write `{signature}`"


class UnknownArgument(Named, code="E302"):
    """A named argument that does not exist."""

    argument: str
    signature: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "`{name}` has no argument `{argument}`"
    label: ClassVar = "unknown argument"
    help: ClassVar = "write `{signature}`"


class MissingArgument(Named, code="E303"):
    """An argument without default that is not given."""

    argument: str
    signature: str
    message: ClassVar = "`{name}` lacks its argument {argument}"
    label: ClassVar = "incomplete"
    help: ClassVar = "write `{signature}`"


class RepeatedArgument(Named, code="E304"):
    """An argument given twice."""

    argument: str
    signature: str
    message: ClassVar = "`{name}` gets its argument `{argument}` twice"
    label: ClassVar = "given before"
    help: ClassVar = "write `{signature}`"


class MustBeNamed(Named, code="E305"):
    """`Bernoulli(f)`: on which scale?"""

    choices: str
    example: str
    message: ClassVar = "`{name}` needs to know the scale of this argument"
    label: ClassVar = "name it: one of {choices}"
    help: ClassVar = "for example `{example}`"


class UnknownDistribution(Named, code="E306"):
    """Right of `~` stands no known distribution."""

    known: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "unknown distribution `{name}`"
    label: ClassVar = "neither a distribution nor an `external likelihood` of this file"
    help: ClassVar = (
        "distributions for this output: {known}; declare `external likelihood {name}(...)`, or register it in Python "
        "with `gpdsl.register_distribution`"
    )


class UnknownKernel(Named, code="E307"):
    """No kernel of this name."""

    known: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "unknown kernel `{name}`"
    label: ClassVar = "not a kernel"
    help: ClassVar = "kernels: {known}; any other is a formula of your own: `kernel {name}(r; ell) = exp(-r/ell)`"


class WrongKind(Mistake, code="E308"):
    """A distribution that cannot describe this output."""

    output: str
    kind: str
    line: int
    distribution: str
    kinds: str
    choices: str
    message: ClassVar = "`{distribution}` describes {kinds} outputs, but `{output}` is `{kind}`"
    label: ClassVar = "`{output}` is declared `{kind}` on line {line}"
    help: ClassVar = "for `{kind}`: {choices}; or change the declaration of `{output}`"


class UnknownType(Mistake, code="E309"):
    """A type that does not exist in this kind of declaration."""

    word: str
    statement: str
    known: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "`{word}` is not a type of {statement}"
    label: ClassVar = "expected {known}"
    help: ClassVar = "types of {statement}: {known}"


class NotADistribution(Mistake, code="E310"):
    """Something other than a call right of `~`."""

    habit: str = ""
    message: ClassVar = "right of `~` stands a distribution"
    label: ClassVar = "not a distribution"
    help: ClassVar = "for example `y ~ Normal(f, sigma)`; to define a quantity, write `let g = ...`"


class NotAProcess(Mistake, code="E311"):
    """A latent that is not a GP."""

    habit: str = ""
    message: ClassVar = "a latent is a Gaussian process"
    label: ClassVar = "expected `GP(mean, kernel)`"
    help: ClassVar = "for example `latent f(x) ~ GP(0, s2 * RBF(ell))`"


class NotAKernel(Mistake, code="E312"):
    """Arithmetic that does not give a covariance function."""

    why: str
    remedy: str
    message: ClassVar = "{why}"
    label: ClassVar = "not a kernel"


class NotAValue(Named, code="E313"):
    """A kernel, distribution or array where a number is needed."""

    what: str
    remedy: str
    message: ClassVar = "`{name}` is a {what} and has no value here"
    label: ClassVar = "expected a number or a quantity"


class LatentCalled(Named, code="E314"):
    """`f(a)`."""

    what: str
    message: ClassVar = "`{name}` is {what}; it is used without arguments"
    label: ClassVar = "every quantity is taken at the row's own inputs"
    help: ClassVar = "write `{name}`, or `{name}[p]` for one of its elements"


class NotAnOutput(Named, code="E318"):
    """Something other than an output left of `~`."""

    what: str
    remedy: str
    suggestion: str = ""
    message: ClassVar = "left of `~` stands an output, but `{name}` is {what}"
    label: ClassVar = "not an output"


class NotAPrior(Named, code="E325"):
    """A prior that is not a continuous distribution."""

    known: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "`{name}` cannot be the prior of a parameter"
    label: ClassVar = "expected a continuous distribution"
    help: ClassVar = "continuous distributions: {known}"


class OnlyOne(Named, code="E326"):
    """`Bernoulli(logit = f, p = 0.5)`."""

    choices: str
    message: ClassVar = "`{name}` takes only one of {choices}"
    label: ClassVar = "more than one given"
    help: ClassVar = "keep the one whose scale the quantity has"


# E315 to E317 and E320 to E324: values of constants, parameters and options that do not fit.


class NotANumber(Named, code="E315"):
    """A name in the value of a constant or parameter."""

    what: str
    message: ClassVar = "the value of {what} is made of numbers"
    label: ClassVar = "`{name}` is not a number"
    help: ClassVar = "write numbers, + - * / ^, exp, log, sqrt and pi; use `let` for quantities computed from others"


class WrongShape(Named, code="E316"):
    """A list of the wrong length or nesting."""

    expected: str
    given: str
    message: ClassVar = "`{name}` needs {expected}, not {given}"
    label: ClassVar = "{given} here"
    help: ClassVar = "list one value per element along each axis, or write one number for all of them"


class OutsideDomain(Mistake, code="E317"):
    """A number that violates a constraint."""

    what: str
    value: str
    domain: str
    remedy: str
    message: ClassVar = "{what} must be {domain}, not {value}"
    label: ClassVar = "must be {domain}"
    help: ClassVar = "write a value that is {domain}{remedy}"


class UnknownOption(Named, code="E320"):
    """An option of `infer` that does not exist."""

    known: str
    suggestion: str = ""
    message: ClassVar = "unknown option `{name}`"
    label: ClassVar = "not an option of `infer`"
    help: ClassVar = "options: {known}"


class BadOption(Named, code="E321"):
    """An option with a value it cannot have."""

    expected: str
    example: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "the option `{name}` cannot have this value"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "for example `{example}`"


class NotOfThisEngine(Named, code="E327"):
    """An option that the engine of the line does not read."""

    engine: str
    engines: str
    example: str
    message: ClassVar = "engine `{engine}` has no option `{name}`"
    label: ClassVar = "an option of {engines}"
    help: ClassVar = "leave it out, or write `infer {example}: ...`"


class RepeatedOption(Named, code="E322"):
    """An option or statement given twice."""

    first_line: int
    message: ClassVar = "`{name}` is given twice"
    label: ClassVar = "first given on line {first_line}"
    help: ClassVar = "keep one of the two"


class UnknownEngine(Named, code="E323"):
    """An inference engine that does not exist."""

    known: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "unknown inference engine `{name}`"
    label: ClassVar = "expected {known}"
    help: ClassVar = (
        "write `infer vi: ...` for variational inference, `infer ep: ...` for expectation propagation, "
        "`infer qsgp: ...` for weights of basis functions, `infer mcmc: ...` for Markov chains; "
        "an engine of your own is registered first, "
        "`gpdsl.register_engine`, on the command line by a file: `--forward file.py`"
    )


class NotWhole(Mistake, code="E324"):
    """A number that must be whole and written out."""

    what: str
    smallest: int
    largest: int
    message: ClassVar = "{what} must be a whole number written here, from {smallest} to {largest}"
    label: ClassVar = "expected a number from {smallest} to {largest}"
    help: ClassVar = "write the number itself, such as 2"
