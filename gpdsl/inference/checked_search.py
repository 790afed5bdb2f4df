"""A user's search as gpdsl drives it: what it raises, and what it returns that no engine may, names the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gpdsl.errors import GpdslError, described, quoted
from gpdsl.inference.driver import Search
from gpdsl.inference.problem import Problem, Result


class CheckedSearch:
    """A search that a user's function begins, each step of which is checked. Raises GpdslError."""

    def __init__(self, name: str, begin: Callable[[Problem], Search], problem: Problem) -> None:
        self.name, self.problem = name, problem
        with _blamed(name):
            self.search = begin(problem)
        missing = [each for each in ("run", "state", "finish") if not callable(getattr(self.search, each, None))]
        self._need(not missing, f"a search with {', '.join(missing)}", self.search)

    def run(self) -> str:
        """The user's."""
        with _blamed(self.name):
            said: object = self.search.run()
        self._need(isinstance(said, str), "a text from `run` that says how the search ended", said)
        return str(said)

    def state(self) -> Result:
        """The user's, checked."""
        with _blamed(self.name):
            return self._checked(self.search.state(), "state")

    def finish(self) -> Result:
        """The user's, checked."""
        with _blamed(self.name):
            return self._checked(self.search.finish(), "finish")

    def _need(self, true: object, expected: str, found: object) -> None:
        if not true:
            shown = "nothing" if found is None else f"{type(found).__name__} {quoted(repr(found)[:100])}"
            raise GpdslError(f"engine = {self.name}: expected {expected}, not {shown}")

    def _checked(self, found: Result, method: str) -> Result:
        """A result with as many numbers as the problem has; finite ones, where its value is finite."""
        self._need(isinstance(found, Result), f"a gpdsl.engines.Result from `{method}`", found)
        value, error = (self._number(each, f"{what} from `{method}`") for each, what in _values(found))
        shapes = {name: np.shape(start) for name, start in self.problem.parameters.items()}
        given = {name: np.shape(each) for name, each in found.parameters.items()}
        self._need(given == shapes, f"parameters of shapes {shapes} from `{method}`", given)
        groups = zip(self.problem.program.groups, self.problem.inducing, strict=True)
        means = [(1, group.size, len(points)) for group, points in groups]
        posterior = [np.shape(q.mean) for q in found.posterior]
        self._need(posterior == means, f"means of shapes {means} from `{method}`", posterior)
        roots = [np.shape(q.root)[:-1] for q in found.posterior]
        self._need(roots == means, f"roots of shapes {means}, and columns, from `{method}`", roots)
        numbers = [*found.parameters.values(), *(each for q in found.posterior for each in (q.mean, q.root))]
        finite = not np.isfinite(value) or all(np.all(np.isfinite(each)) for each in numbers)
        self._need(finite, f"finite parameters, means and roots from `{method}`, as the value is", value)
        return replace(found, elbo=value, elbo_se=error)

    def _number(self, value: Any, what: str) -> float:
        single = not isinstance(value, (str, bool)) and np.shape(value) == ()
        try:
            return float(value) if single else float("none")
        except (TypeError, ValueError):
            self._need(False, f"a number as {what}", value)
            raise


def _values(found: Result) -> tuple[tuple[object, str], tuple[object, str]]:
    return (found.elbo, "the value"), (found.elbo_se, "its error")


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """What a user's engine raises is a GpdslError that names it; an interrupt and errors of gpdsl pass."""
    try:
        yield
    except GpdslError:
        raise
    except Exception as problem:
        raise GpdslError(f"engine = {name}: {described(problem)}") from problem
