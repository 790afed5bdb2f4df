"""`pickle` and `copy` of models, fits and predictions, here and in another process."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.forward import registry

X = np.linspace(0, 4, 20)
NEW = {"x": np.array([0.3, 2.2])}
GAUSS = "param s2 : positive\nlatent f(x) ~ GP(0, s2 * RBF(1))\ny ~ Normal(f, 0.3)"
LEVELS = """index c in 1..C
param cut : ordered[2]
latent f(x) ~ GP(0, RBF(1))
y ~ Ordinal(probit = f, cutpoints = cut)"""
Y = {"real": np.sin(X), "count": np.arange(20) % 4, "ordinal[c]": np.floor(X) % 3 + 4}


def fitted(kind: str, lines: str, **options: Any) -> gpdsl.Fit:
    model = gpdsl.compile(f"model m\ninput x : real\noutput y : {kind}\n{lines}")
    return model.fit({"x": X, "y": Y[kind]}, seed=1, **options)


def pickled(each: Any) -> Any:
    return pickle.loads(pickle.dumps(each))


@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy])
def test_errors_come_back_from_other_processes(again: Callable[[Any], Any]) -> None:
    """One that fails to be unpickled ends a pool of processes instead of the call that raised it."""
    text = "input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal({}, 1)\n"
    data = {"x": [0.0, 1.0], "y": [1.0, 2.0]}
    for kind, call in (
        (gpdsl.ModelError, lambda: gpdsl.compile(text.format("h"))),
        (gpdsl.GpdslError, lambda: gpdsl.compile(text.format("f")).fit({"x": [0.0, 1.0]})),
        (
            gpdsl.ForwardModelError,
            lambda: gpdsl.compile(f"external none(f: real) -> real\n{text.format('none(f)')}").fit(data),
        ),
        (KeyError, lambda: gpdsl.compile(text.format("f")).fit(data, diagnose="no").parameters["ell"]),
    ):
        with pytest.raises(kind) as caught:
            call()
        found = again(caught.value)
        assert type(found) is type(caught.value) and str(found) == str(caught.value)
        assert vars(found).keys() == vars(caught.value).keys()


@pytest.mark.parametrize(
    ("again", "kind", "lines", "options"),
    [
        (copy.deepcopy, "real", GAUSS, {}),
        (pickled, "real", GAUSS, {"inducing": 5, "dtype": "float32"}),
        (pickled, "count", "latent f(x) ~ GP(0, RBF(1))\ny ~ Poisson(exp(f))", {"posterior": "mixture(2)", "steps": 9}),
        (pickled, "real", GAUSS, {"engine": "qsgp", "steps": 5}),
        pytest.param(pickled, "ordinal[c]", LEVELS, {}, marks=pytest.mark.slow),
    ],
)
def test_a_copy_says_the_same(again: Callable[[Any], Any], kind: str, lines: str, options: dict[str, Any]) -> None:
    fit = fitted(kind, lines, **options)
    other, prediction = again(fit), fit.predict(NEW)
    assert other is not fit and other.summary() == fit.summary()
    for each in (other.predict(NEW), again(prediction)):
        np.testing.assert_array_equal(each.mean("y"), prediction.mean("y"))
        np.testing.assert_array_equal(each.variance("f"), prediction.variance("f"))
    assert len(pickle.dumps(fit)) < 50_000


def test_rows_left_out_are_carried_too() -> None:
    left = fitted("real", GAUSS).loo({"x": X, "y": Y["real"]})
    found = pickled(gpdsl.compare({"one": left, "two": left})).elpds["two"]
    assert repr(found) == repr(left)
    np.testing.assert_array_equal(found.pit("y"), left.pit("y"))


def test_a_model_with_used_files_needs_them_no_more(tmp_path: Path) -> None:
    (tmp_path / "used.gpm").write_text("function twice(a) = 2 * a\n")
    text = 'use "used.gpm"\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(twice(f), 1)\n'
    (tmp_path / "m.gpm").write_text(text)
    stored = pickle.dumps(gpdsl.load(tmp_path / "m.gpm"))
    (tmp_path / "used.gpm").unlink()
    assert pickle.loads(stored).fit({"x": X, "y": X}).rows == 20


def test_another_process_reads_them(tmp_path: Path) -> None:
    fit = fitted("real", GAUSS)
    file = tmp_path / "all.pickle"
    file.write_bytes(pickle.dumps((fit.model, fit, fit.predict(NEW))))
    code = (
        "import pickle, sys; model, fit, prediction = pickle.load(open(sys.argv[1], 'rb'));"
        "print(model.name, *prediction.mean('f').tolist(), fit.elbo)"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    name, *numbers = done.stdout.split()
    assert name == "m"
    np.testing.assert_allclose([*map(float, numbers)], [*fit.predict(NEW).mean("f"), fit.elbo], rtol=1e-12)


def double(f: np.ndarray) -> np.ndarray:
    return 2 * f


def test_opaque_functions_come_along_or_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    text = (
        "input x : real\noutput y : real\nexternal twice(f: real) -> real\nlatent f(x) ~ GP(0, RBF(1))\n"
        "let r = twice(f)\ny ~ Normal(r, 0.2)"
    )
    passed = gpdsl.compile(text, externals={"twice": double}).fit({"x": X, "y": X}, steps=3)
    again = pickle.loads(pickle.dumps(passed))
    np.testing.assert_array_equal(again.predict(NEW).mean("r"), passed.predict(NEW).mean("r"))
    gpdsl.register_forward_model("twice", lambda f: 2 * f)  # a lambda cannot be pickled
    fit = gpdsl.compile(text).fit({"x": X, "y": X}, steps=3)
    stored = pickle.dumps(fit)
    np.testing.assert_array_equal(pickle.loads(stored).predict(NEW).mean("r"), fit.predict(NEW).mean("r"))
    registry._REGISTERED.clear()
    with pytest.raises(gpdsl.GpdslError, match="twice"):
        pickle.loads(stored)


def test_dask_carries_fits_predictions_and_functions() -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="Dask's, of the extra `dev`")
    dask = pytest.importorskip("dask", reason="the extra `dask`")
    fit = fitted("real", GAUSS)
    functions, prediction = fit.draw_functions(2, seed=3), fit.predict(NEW)
    file = cloudpickle.dumps(lambda: (fit.predict(NEW).mean("f"), prediction.mean("f"), functions(NEW)))
    one, two, drawn = pickle.loads(file)()
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(drawn, functions(NEW))
    later = dask.delayed(lambda held, rows: held.predict(rows).mean("f"))(fit, NEW)
    np.testing.assert_array_equal(later.compute(scheduler="processes", num_workers=1), one)
