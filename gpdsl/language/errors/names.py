"""E201 to E219: names that mean nothing, or not what is needed."""

from __future__ import annotations

from typing import ClassVar

from gpdsl.language.errors.base import Mistake, Named


class UnknownName(Named, code="E201"):
    """A name the file does not declare."""

    suggestion: str = ""
    first: str = "declare it"
    habit: str = ""
    message: ClassVar = "unknown name `{name}`"
    label: ClassVar = "nothing of this name is declared in this file"
    help: ClassVar = (
        "{first}: `input {name} : real` for data, `param {name} : real` to estimate it, "
        "`const {name} = ...` if it is known"
    )


class DeclaredTwice(Named, code="E202"):
    """A second declaration of a name."""

    first_line: str
    message: ClassVar = "`{name}` is declared twice"
    label: ClassVar = "first declared on line {first_line}"
    help: ClassVar = "rename or remove one of the two"


class UsedBeforeDefined(Named, code="E207"):
    """A `let` that uses a later one, or itself."""

    line: int
    message: ClassVar = "`{name}` is used before it is defined"
    label: ClassVar = "defined on line {line}"
    help: ClassVar = "a `let` uses quantities above it, so none can depend on itself: move `let {name} = ...` up"


class NeverObserved(Named, code="E208"):
    """An output without a `~`."""

    message: ClassVar = "output `{name}` is never observed"
    label: ClassVar = "declared here, but no line `{name} ~ ...` follows"
    help: ClassVar = "add an observation such as `{name} ~ Normal(f, sigma)`, or remove the output"


class NothingObserved(Mistake, code="E209"):
    """A model without observations."""

    message: ClassVar = "the model observes nothing"
    label: ClassVar = "no line has a `~` that ties an output to the latents"
    help: ClassVar = "declare `output y : real` and add an observation such as `y ~ Normal(f, sigma)`"


class ObservedTwice(Named, code="E210"):
    """Two observations of the same elements."""

    first_line: int
    message: ClassVar = "`{name}` is observed twice"
    label: ClassVar = "already observed on line {first_line}"
    help: ClassVar = "keep one of the two; several lines may observe different elements, `{name}[1] ~ ...`"


class ShadowsBuiltin(Named, code="E211"):
    """A declaration with the name of a function, kernel or distribution."""

    what: str
    message: ClassVar = "`{name}` is already the name of a {what}"
    label: ClassVar = "cannot be declared"
    help: ClassVar = "choose another name, such as `{name}_`"


class NotAnIndex(Named, code="E212"):
    """A word in brackets of a declaration that is not an index."""

    remedy: str
    suggestion: str = ""
    message: ClassVar = "`{name}` is not an index"
    label: ClassVar = "no `index {name}` is declared"


class UnknownFunction(Named, code="E217"):
    """A call of something that cannot be called."""

    example: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "unknown function `{name}`"
    label: ClassVar = "neither a function of the language nor an external of this file"
    help: ClassVar = "if it is a program of yours, declare it: `external {example}`"


class NotReadable(Named, code="E218"):
    """A name of the wrong sort for this place."""

    what: str
    place: str
    remedy: str
    message: ClassVar = "`{name}` is {what} and cannot be used in {place}"
    label: ClassVar = "not possible here"


class ArgumentNotInput(Named, code="E219"):
    """A latent over something that has no value in each row."""

    what: str
    remedy: str = (
        "a latent is a function of inputs, row variables or other latents: declare `input x : real` and write "
        "`latent f(x) ~ ...`"
    )
    message: ClassVar = "the argument `{name}` of a latent is {what}, not an input"
    label: ClassVar = "expected the name of an input, or of a row variable or another latent"


# E370 to E379: sums, products of matrices, slices and conditions that do not say what they range over.


class NothingToReduce(Mistake, code="E370"):
    """`sum(sigma)` of one number."""

    operator: str
    why: str
    remedy: str
    message: ClassVar = "`{operator}` has no axis to run over here"
    label: ClassVar = "{why}"


class SeveralToReduce(Mistake, code="E371"):
    """`sum(w)` of a matrix."""

    operator: str
    axes: str
    remedy: str
    message: ClassVar = "`{operator}` could run over {axes}"
    label: ClassVar = "more than one axis"


class NothingShared(Mistake, code="E372"):
    """`a @ b` of quantities without a common axis."""

    operator: str
    why: str
    axes: str
    remedy: str
    message: ClassVar = "`{operator}` sums over an axis that both sides have, {why}"
    label: ClassVar = "{axes}"


class SeveralShared(Mistake, code="E373"):
    """`a @ b` of quantities with several common axes."""

    operator: str
    axes: str
    remedy: str
    message: ClassVar = "`{operator}` sums over one axis, but both sides have {axes}"
    label: ClassVar = "more than one common axis"


class LatentEquality(Mistake, code="E374"):
    """`if f == 0`: an event of probability zero."""

    operator: str
    message: ClassVar = "a latent is never exactly equal to anything"
    label: ClassVar = "`{operator}` holds with probability zero or one, whatever the data"
    help: ClassVar = "compare with `<` or `>`, or compare inputs and constants"


class SliceNotHere(Mistake, code="E375"):
    """`a[1..3]` left of `=`."""

    message: ClassVar = "a range of elements cannot stand here"
    label: ClassVar = "expected an index, a number or a condition"
    help: ClassVar = "write a condition, such as `a[p <= 3]`"


# E1xx: text that does not have the form of a statement.


class UnknownStatement(Mistake, code="E101"):
    """The first word of a line is none of the statements."""

    word: str
    statements: str
    suggestion: str = ""
    habit: str = ""
    message: ClassVar = "unknown statement `{word}`"
    label: ClassVar = "no statement starts with this word"
    help: ClassVar = "a line starts with one of {statements}, or is an observation such as `y ~ Normal(f, sigma)`"


class Unexpected(Mistake, code="E102"):
    """A word or sign that cannot stand here."""

    found: str
    expected: str
    form: str
    habit: str = ""
    message: ClassVar = "`{found}` cannot stand here"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "the statement has the form `{form}`"


class EndsEarly(Mistake, code="E103"):
    """The statement stops in the middle."""

    expected: str
    form: str
    habit: str = ""
    message: ClassVar = "the statement ends too early"
    label: ClassVar = "expected {expected}"
    help: ClassVar = "the statement has the form `{form}`; only an open bracket continues it on the next line"


class StrangeCharacter(Mistake, code="E104"):
    """A character with no meaning in the language."""

    character: str
    remedy: str
    message: ClassVar = "the character `{character}` has no meaning here"
    label: ClassVar = "not part of the language"


class NeverClosed(Mistake, code="E105"):
    """An opening bracket without its partner."""

    bracket: str
    partner: str
    message: ClassVar = "this `{bracket}` is never closed"
    label: ClassVar = "opened here"
    help: ClassVar = "add the missing `{partner}`"


class NeverOpened(Mistake, code="E106"):
    """A closing bracket without its partner."""

    bracket: str
    remedy: str
    message: ClassVar = "this `{bracket}` closes nothing"
    label: ClassVar = "no bracket of this kind is open here"


class TextNeverClosed(Mistake, code="E107"):
    """A quotation mark without its partner on the same line."""

    message: ClassVar = "this text has no closing quotation mark"
    label: ClassVar = "opened here"
    help: ClassVar = 'add the missing `"` on the same line'


class MissingKeyword(Named, code="E108"):
    """`g = f + 1` without `let`."""

    habit: str = ""
    message: ClassVar = "`{name} = ...` does not say what `{name}` is"
    label: ClassVar = "a value needs a `let`, `const` or `param` before the name"
    help: ClassVar = (
        "write `let {name} = ...` for a quantity computed from others, `const {name} = ...` for a known "
        "number, `param {name} : real = ...` for one to be estimated"
    )


class ReservedWord(Named, code="E109"):
    """A statement word used as a name."""

    message: ClassVar = "`{name}` starts a statement and cannot be a name"
    label: ClassVar = "reserved word"
    help: ClassVar = "choose another name, such as `{name}_`"


class PowerSign(Mistake, code="E110"):
    """`**` for a power."""

    message: ClassVar = "a power is written `^`, not `**`"
    label: ClassVar = "write `^` here"
    help: ClassVar = "for example `sigma^2`"


class MissingTilde(Named, code="E111"):
    """`y Normal(f, s)` or `y = Normal(f, s)`."""

    distribution: str
    message: ClassVar = "an observation is written with `~`"
    label: ClassVar = "expected `~` after `{name}`"
    help: ClassVar = "write `{name} ~ {distribution}(...)`"
