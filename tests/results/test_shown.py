"""What notebooks and prompts show of models, fits and predictions, and predictions as frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpdsl
from tests.inference.problems import unlearnt

MODEL = """model shown "<b>Counts</b>"  # <script>alert(1)</script>
index c in {"a<i>", "b"}
input x : real
output y : real
output k : label[c]
latent f(x) ~ GP(0, RBF(1))
latent g[c](x) ~ GP(0, RBF(1))
let rate = exp(f)
y ~ Normal(f, 0.3)
k ~ Categorical(logits = g)
"""
X = np.linspace(0, 3, 12)


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    return unlearnt(MODEL, {"x": X, "y": np.sin(X), "k": np.where(X > 1, "b", "a<i>")})


def test_one_line_says_what_it_is(fit: gpdsl.Fit) -> None:
    assert repr(fit.model) == "<gpdsl.Model shown: x to y, k by f, g>"
    assert repr(fit) == f"<gpdsl.Fit of shown: 12 rows, elbo {fit.elbo:.4f} nats, {fit.message}>"
    assert repr(fit.predict({"x": X[:5]})) == "<gpdsl.Prediction of shown: 5 rows of f, g, rate, y, k>"


def test_many_names_are_cut() -> None:
    lets = "\n".join(f"let quantity{i} = f + {i}" for i in range(100))
    model = gpdsl.compile(f"input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\n{lets}\ny ~ Normal(f, 1)")
    assert len(repr(model.fit({"x": X, "y": X}).predict({"x": X}))) < 300


def test_what_notebooks_show_is_escaped(fit: gpdsl.Fit) -> None:
    pages = [each._repr_html_() for each in (fit.model, fit, fit.predict({"x": X}))]
    for page in pages:
        assert page is not None and "<script>" not in page and "<i>" not in page and "<b>Counts" not in page
    assert "&lt;script&gt;" in pages[0] and 'style="' in pages[0]
    assert "&lt;b&gt;Counts" in pages[1] and "elbo" in pages[1]
    assert "k_p[a&lt;i&gt;]" in pages[2] and pages[2].count("<tr>") == 1 + 8


def test_opaque_functions_are_not_called_to_show_a_prediction() -> None:
    model = gpdsl.compile(
        "input x : real\noutput y : real\nexternal twice(f: real) -> real\nlatent f(x) ~ GP(0, RBF(1))\n"
        "let r = twice(f)\ny ~ Normal(r, 0.2)",
        externals={"twice": lambda f: 2 * f},
    )
    prediction = model.fit({"x": X, "y": X}, steps=3).predict({"x": X})
    assert prediction._repr_html_() is None and prediction.usage.evaluations == 0


def test_a_frame_keeps_the_index(fit: gpdsl.Fit) -> None:
    days = pd.date_range("2024-05-01", periods=4, tz="Europe/Paris")
    prediction = fit.predict(pd.DataFrame({"x": X[:4]}, index=days))
    frame = prediction.to_frame(quantiles=[0.1])
    assert frame.index.equals(days)
    assert list(frame) == ["y_mean", "y_sd", "y_q0.1", "k_label", "k_p[a<i>]", "k_p[b]", *(
        f"rate_{each}" for each in ("mean", "sd", "q0.1")
    )]  # fmt: skip
    np.testing.assert_array_equal(frame["y_sd"], np.sqrt(prediction.variance("y")))
    np.testing.assert_array_equal(frame["rate_q0.1"], prediction.quantile("rate", 0.1))
    only = fit.predict({"x": X[:4]}).to_frame(["f"])
    assert list(only) == ["f_mean", "f_sd", "f_q0.05", "f_q0.95"] and list(only.index) == [0, 1, 2, 3]
    with pytest.raises(gpdsl.GpdslError, match="no latent, let or output `h`"):
        prediction.to_frame(["h"])


def test_a_frame_of_one_name_and_one_quantile() -> None:
    frame = pd.DataFrame(np.stack([np.linspace(0, 1, 5), np.ones(5)], axis=1))
    model = gpdsl.compile("input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)")
    prediction = model.fit(frame, columns={"x": 0, "y": 1}, steps=1).predict(frame, columns={"x": 0})
    assert list(prediction.to_frame("y", 0.5)) == ["y_mean", "y_sd", "y_q0.5"]


def test_an_input_with_the_name_of_a_column_stands_apart() -> None:
    """In tables and in xarray: neither takes the place of the other."""
    text = "index s in 1..S\ninput y_mean : label[s]\noutput y : real\nparam a[s] : real ~ Normal(0, 1)\n"
    fit = gpdsl.compile(f"{text}y ~ Normal(a[y_mean], 1)\n").fit({"y_mean": ["a", "b"], "y": [1.0, 2.0]})
    prediction = fit.predict({"y_mean": ["b", "a"]})
    frame, dataset = prediction.to_frame(quantiles=[]), prediction.to_xarray()
    assert list(frame) == ["input y_mean", "y_mean", "y_sd"]
    assert frame["input y_mean"].tolist() == dataset["input y_mean"].values.tolist() == ["b", "a"]
    np.testing.assert_allclose(dataset["y_mean"], frame["y_mean"])
    np.testing.assert_allclose(frame["y_mean"], [1.0, 0.5])
