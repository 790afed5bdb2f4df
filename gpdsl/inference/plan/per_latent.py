"""Inducing points and features by the names of latents: `inducing f = 10, inducing g = fourier(20)`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpdsl.errors import GpdslError, quoted
from gpdsl.language.inducing import OTHERS, PerLatent, per_latent, read_features, shown_inducing
from gpdsl.language.source import closest


def of_latents(
    line: int | str | PerLatent | None, asked: PerLatent, latents: Collection[str]
) -> int | str | dict[str, int | str] | None:
    """What a caller asks by name, before what the model's `infer` line asks. Raises GpdslError for an unknown name."""
    for name in asked:
        if name not in latents and name != OTHERS:
            near = closest(name, latents)
            meant = f"; did you mean `{near}`?" if near else ""
            known = ", ".join(f"`{each}`" for each in latents) or "none"
            raise GpdslError(f"inducing of {quoted(name)}: the model has no such latent; its latents: {known}{meant}")
    before = line if isinstance(line, Mapping) else {} if line is None else {OTHERS: line}
    return per_latent({**before, **asked}, latents)


def asked_of(asked: int | str | PerLatent | None, latent: str) -> int | str | None:
    """What is asked for one latent; None where the plan decides."""
    return asked.get(latent) if isinstance(asked, Mapping) else asked


def shown_of(asked: int | str | PerLatent | None, latent: str, instead: int | None = None) -> str:
    """That, or another number instead, as it is written in an `infer` line."""
    value = asked_of(asked, latent) if instead is None else instead
    return f"inducing {latent} = {value}" if isinstance(asked, Mapping) else f"inducing = {value}"


def counted(asked: int | str) -> tuple[int, str]:
    """How many inducing variables are asked for, and the features that they are, where they are not points alone."""
    if isinstance(asked, str):
        return sum(part.count for part in read_features(asked) or ()), asked
    return asked, ""


def words_of(asked: int | str) -> str:
    """What one latent has."""
    if isinstance(asked, str):
        return f"features {asked}"
    return f"{asked} inducing points" if asked else "points at all rows"


def supported(
    asked: str | PerLatent, default: int, names: Collection[str], batch: int, *, moving: bool
) -> tuple[int, str, dict[str, int | str]]:
    """The number of inducing variables, 0 where rows are all of them; features; and either of each latent.

    Of latents that differ the number is the largest one. `moving`: the inducing inputs are learnt. Raises GpdslError
    for what that, or minibatches, do not cover.
    """
    if not isinstance(asked, Mapping):
        number, features = counted(asked)
        if features and moving:
            raise GpdslError(f"learn_inducing moves inducing points, which inducing = {asked} are not: leave it out")
        return number, features, {}
    own = {name: asked.get(name, default) for name in names or asked}
    number = max(counted(each)[0] for each in own.values())
    if number == 0:
        return 0, "", {}
    for name, each in own.items():
        what = shown_inducing({name: each})
        if moving and (each == 0 or isinstance(each, str)):
            are = "features are not" if each else "a latent with a point at all its rows does not have"
            raise GpdslError(f"learn_inducing moves inducing points, which {are}: leave it out, or change {what}")
        if batch and each == 0:
            raise GpdslError(f"{what} takes a point at all rows: set batch = 0, or a number of points above 0")
    return number, "", own
