"""Names to functions: registered or passed in, never looked up anywhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpdsl.forward import (
    ForwardModelError,
    opaque,
    register_forward_model,
    register_likelihood,
    resolve,
    retry,
    umbridge,
)
from gpdsl.language import compile_text
from tests.goldens import assert_golden

SEISMIC = compile_text(
    "model seismic\ninput x : real\noutput t : real\n"
    "external travel_time(depth: real, speed: real) -> real\n"
    "latent depth(x) ~ GP(0, RBF(1))\nlatent speed(x) ~ GP(0, RBF(1))\n"
    "let tau = travel_time(depth, speed)\nt ~ Normal(tau, 0.1)\n"
)
REFLECTION = compile_text(
    "model seismic\ninput x : real\noutput t : real\nexternal likelihood reflection(t: real | depth: real)\n"
    "latent depth(x) ~ GP(0, RBF(1))\nt ~ reflection(depth)\n"
)
PLAIN = compile_text("model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 0.1)\n")


def travel_time(depth: object, speed: object) -> object:
    return depth


def test_a_registered_function_is_found_with_the_names_of_its_arguments() -> None:
    register_forward_model("travel_time", travel_time, vectorized=False, workers=4)
    found = resolve(SEISMIC)["travel_time"]
    assert found.function is travel_time
    assert (found.vectorized, found.workers, found.arguments) == (False, 4, ("depth", "speed"))


def test_a_likelihood_takes_the_observed_first() -> None:
    register_likelihood("reflection", travel_time)
    assert resolve(REFLECTION)["reflection"].arguments == ("t", "depth")


def test_passed_in_wins_over_registered() -> None:
    register_forward_model("travel_time", travel_time)
    assert resolve(SEISMIC, {"travel_time": max})["travel_time"].function is max


def test_the_last_registration_counts() -> None:
    register_forward_model("travel_time", travel_time)
    register_forward_model("travel_time", max)
    assert resolve(SEISMIC)["travel_time"].function is max


def test_a_model_without_externals_needs_none() -> None:
    assert resolve(PLAIN) == {}


def test_the_scope_of_the_caller_is_not_looked_at() -> None:
    assert callable(globals()["travel_time"])
    with pytest.raises(ForwardModelError, match="no function of this name is registered"):
        resolve(SEISMIC)


def test_decorators_register_and_leave_the_function_alone() -> None:
    @register_forward_model("travel_time", vectorized=False, policy=retry(2))
    def slowly(depth: object, speed: object) -> object:
        return depth

    @register_likelihood("reflection")
    def density(t: object, depth: object) -> object:
        return t

    assert (slowly(1, 2), density(1, 2)) == (1, 1)
    found = resolve(SEISMIC)["travel_time"]
    assert (found.function, found.vectorized, found.failures.attempts) == (slowly, False, 2)
    assert resolve(REFLECTION)["reflection"].function is density


def test_an_opaque_function_is_what_the_model_declares_and_is_not_registered() -> None:
    one = opaque(travel_time, timeout=3)
    assert resolve(SEISMIC, {"travel_time": one})["travel_time"].sort == "forward model"
    assert resolve(REFLECTION, {"reflection": one})["reflection"].sort == "likelihood"
    with pytest.raises(ForwardModelError, match="no function of this name is registered"):
        resolve(SEISMIC)


def test_externals_of_one_model_share_an_account_and_fits_do_not() -> None:
    register_forward_model("travel_time", travel_time)
    first, second = resolve(SEISMIC)["travel_time"], resolve(SEISMIC)["travel_time"]
    assert first.account is not second.account
    assert first.executor is second.executor


def wrong_sort() -> object:
    register_likelihood("travel_time", travel_time)
    return resolve(SEISMIC)


def unregistered_beside_others() -> object:
    register_forward_model("traveltime", travel_time)
    return resolve(SEISMIC)


MISTAKES: dict[str, Callable[[], object]] = {
    "not_registered": lambda: resolve(SEISMIC),
    "not_registered_likelihood": lambda: resolve(REFLECTION),
    "not_registered_beside_others": unregistered_beside_others,
    "wrong_sort": wrong_sort,
    "not_callable": lambda: register_forward_model("travel_time", 3),  # type: ignore[arg-type]
    "not_callable_passed_in": lambda: resolve(SEISMIC, {"travel_time": 3.5}),  # type: ignore[dict-item]
    "not_a_name": lambda: register_forward_model("travel time", travel_time),
    "not_a_gradient": lambda: register_forward_model("travel_time", travel_time, gradient=1.0),  # type: ignore[arg-type]
    "workers_not_positive": lambda: register_forward_model("travel_time", travel_time, workers=0),
    "workers_no_number": lambda: register_forward_model("travel_time", travel_time, workers=True),
    "unknown_executor": lambda: register_forward_model("travel_time", travel_time, executor="process"),
    "executor_is_no_executor": lambda: register_forward_model("travel_time", travel_time, executor=3),
    "unknown_policy": lambda: register_forward_model("travel_time", travel_time, policy="ignore"),
    "retry_nothing": lambda: retry(0),
    "bad_timeout": lambda: register_forward_model("travel_time", travel_time, timeout=-1),
    "wrong_arity": lambda: resolve(SEISMIC, {"travel_time": lambda depth: depth}),
    "no_address": lambda: umbridge("localhost:4242"),
    "unknown_external": lambda: resolve(SEISMIC, {"travel_time": max, "speed": max}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_error_text(name: str) -> None:
    with pytest.raises(ForwardModelError) as caught:
        MISTAKES[name]()
    assert_golden(f"forward/{name}.txt", str(caught.value))
