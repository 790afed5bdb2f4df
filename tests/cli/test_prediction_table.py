"""Predictions as columns of a CSV file, from a prediction whose numbers are known."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gpdsl.cli.saved import write_table
from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.results.table import default_names, table_of

HEAD = "model m\nindex c in {4, 7}\nindex p in 1..2\ninput x : real\n"
MODEL = compile_text(
    HEAD + "output y : label[c]\noutput t[p] : real\nlatent f[c](x) ~ GP(0, RBF(1))\nlatent g(x) ~ GP(0, RBF(1))\n"
    "let h = exp(g)\ny ~ Categorical(f)\nt[p] ~ Normal(g, 0.1)\n"
)
OPAQUE = compile_text(
    "model m\ninput x : real\noutput y : real\nexternal likelihood ell(y: real | a: real)\n"
    "latent f(x) ~ GP(0, RBF(1))\ny ~ ell(f)\n"
)


class Known:
    """A prediction of two rows."""

    labels: ClassVar[dict] = {"site": np.array(["a", "b"])}
    times: ClassVar[dict] = {"day": np.array(["2026-01-01", "2026-01-02"], "M8[D]")}

    def mean(self, name: str) -> np.ndarray:
        return {
            "t": np.array([[1.0, 2.0], [3.0, 4.0]]),
            "h": np.array([1.5, 2.5]),
            "y": np.array([[0.9, 0.1], [0.2, 0.8]]),
        }[name]

    def variance(self, name: str) -> np.ndarray:
        return 4 * np.ones_like(self.mean(name))

    def quantile(self, name: str, probabilities: list[float]) -> np.ndarray:
        return np.stack([self.mean(name) + p for p in probabilities])

    def label(self, name: str) -> np.ndarray:
        return np.array([4, 7])

    def levels(self, name: str) -> tuple[int, ...]:
        return (4, 7)


def test_numbers_arrays_and_labels() -> None:
    table = table_of(Known(), MODEL, ["t", "h", "y"], [0.05, 0.5])
    assert list(table) == [
        "site", "day",
        "t[1]_mean", "t[1]_sd", "t[1]_q0.05", "t[1]_q0.5", "t[2]_mean", "t[2]_sd", "t[2]_q0.05", "t[2]_q0.5",
        "h_mean", "h_sd", "h_q0.05", "h_q0.5", "y_label", "y_p[4]", "y_p[7]",
    ]  # fmt: skip
    np.testing.assert_array_equal(table["t[2]_mean"], [2, 4])
    np.testing.assert_array_equal(table["t[2]_q0.05"], [2.05, 4.05])
    np.testing.assert_array_equal(table["h_sd"], [2, 2])
    np.testing.assert_array_equal(table["y_p[7]"], [0.1, 0.8])


def test_written_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"h_mean": np.array([1.5, 1 / 3]), "y_label": np.array(["a,b", "c"])}
    expected = 'h_mean,y_label\n1.5,"a,b"\n0.3333333333,c\n'
    write_table(table, None)
    assert capsys.readouterr().out == expected
    write_table(table, str(tmp_path / "p.csv"))
    assert (tmp_path / "p.csv").read_text() == expected


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("old")
    with pytest.raises(ValueError, match="zip"):
        write_table({"a": np.zeros(2), "b": np.zeros(3)}, str(path))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(GpdslError, match="cannot write"):
        write_table({"a": np.zeros(2)}, str(tmp_path / "absent" / "p.csv"))


def test_what_is_predicted_by_default() -> None:
    assert default_names(MODEL) == ["y", "t", "h"]
    assert default_names(OPAQUE) == ["f"]
