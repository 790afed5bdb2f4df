"""What happens to a row without a usable value: raise an error, penalise it, or try again first."""

from __future__ import annotations

from dataclasses import dataclass

from gpdsl.forward.errors import ForwardModelError, UnknownPolicy

OTHERWISE = ("raise", "penalise")


@dataclass(frozen=True)
class Policy:
    """`attempts` further attempts, and then `otherwise`: an error, or a penalty.

    A penalised evaluation counts, in the fit, as the worst log likelihood among the samples of its row: the posterior
    is pushed away from where the function fails. Predictions leave such evaluations out.
    """

    attempts: int = 0
    otherwise: str = "raise"

    @property
    def penalises(self) -> bool:
        """Whether rows may go on without a value."""
        return self.otherwise == "penalise"


def retry(attempts: int, otherwise: str = "raise") -> Policy:
    """The policy that calls the function up to `attempts` more times for a row that failed, for failures by chance.

    `otherwise` is what happens to a row that still fails: `raise` or `penalise`. Raises ForwardModelError for others.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1 or otherwise not in OTHERWISE:
        raise ForwardModelError(UnknownPolicy("retry", f"retry({attempts!r}, {otherwise!r})"))
    return Policy(attempts, otherwise)


def policy_of(name: str, given: object) -> Policy:
    """The policy a registration asks for. Raises ForwardModelError for none that exists."""
    match given:
        case Policy():
            return given
        case "raise" | "penalise":
            return Policy(0, given)
    raise ForwardModelError(UnknownPolicy(name, repr(given)))
