"""What a user reads for each mistake in data: one example per code, beside the exact text printed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpdsl.data import (
    DataError,
    DataMistake,
    TooManyInducing,
    bind,
    errors,
    errors as mistakes,
    file_mistakes,
    file_mistakes as level_mistakes,
    file_mistakes as time_mistakes,
    read_table,
)
from gpdsl.data.bound import learn
from gpdsl.language.model import Declarations
from tests.data import models
from tests.goldens import assert_golden


@dataclass(frozen=True)
class Example:
    """A model, the text of a data file (or an object), and how they are bound; `levels` are those of a fit."""

    model: Declarations
    data: object
    columns: dict[str, object] | None = None
    sizes: dict[str, int] | None = None
    levels: dict[str, tuple] | None = None
    file: str = "d.csv"
    outputs_required: bool = True


def sheet(*lines: str) -> str:
    return "\n".join(lines) + "\n"


TWO_CODES = "model m\nindex p in 1..P\ninput x : real\noutput t[p] : real\noutput u[p] : real\n"
SHARED = models.compile_text(
    TWO_CODES + "latent f[p](x) ~ GP(0, RBF(1))\nt[p] ~ Normal(f[p], 0.1)\nu[p] ~ Normal(f[p], 0.1)\n"
)

LISTS = models.compile_text(
    "model m\nindex p in 1..P\nconst a[p] = [1, 2, 3]\nconst b[p] = [1, 2]\ninput x : real\noutput y[p] : real\n"
    "latent f[p](x) ~ GP(0, RBF(1))\ny[p] ~ Normal(a[p] * f[p] * b[p], 0.1)\n"
)


BINARIES = models.compile_text(
    "model m\nindex p in 1..P\ninput x : real\noutput y[p] : binary\nlatent f[p](x) ~ GP(0, RBF(1))\n"
    "y[p] ~ Bernoulli(logit = f[p])\n"
)


def sites(declared: str) -> Declarations:
    return models.compile_text(
        "model m\nindex s in 1..S\ninput site : label[s]\noutput y : real\n"
        f"param a[s] : {declared}\ny ~ Normal({'a[site, 1]' if declared.endswith(']') else 'a[site]'}, 0.1)\n"
    )


SITES = sites("real")

TASKS = models.compile_text(
    "model m\nindex t in 1..3\ninput x : real\ninput task : count\noutput y : real\nindex r in 1..2\n"
    "param V[t, r] : real = 1\nparam kappa[t] : positive = 1\n"
    "latent f(x, task) ~ GP(0, RBF(1, on = x) * Coregion(V, kappa, on = task))\ny ~ Normal(f, 0.1)\n"
)

EXAMPLES: dict[str, Example] = {
    "level_outside": Example(TASKS, sheet("x,task,y", "1,1,1", "2,4,1", "3,0,1")),
    "missing_column": Example(models.REAL, sheet("x,z", "1,2")),
    "missing_column_suggestion": Example(models.scalar("count", "Poisson(exp(f))"), sheet("X,y", "1,2", "2,4")),
    "missing_vector": Example(models.vector(), sheet("a,b,y", "1,2,3")),
    "missing_element": Example(models.several("3"), sheet("x,t1,t2", "1,2,3", "2,3,4")),
    "column_gap": Example(models.vector(), sheet("x1,x3,y", "1,2,3")),
    "unclear_columns": Example(models.vector(), sheet("x,x1,x2,y", "1,2,3,4")),
    "columns_from_zero": Example(models.vector(), sheet("x0,x1,y", "1,2,3")),
    "too_many_digits": Example(models.REAL, {"x": [1, 10**400], "y": [1, 2]}),
    "missing_several": Example(models.REAL, sheet("a,b", "1,2")),
    "unknown_mapping": Example(models.REAL, sheet("x,y", "1,2"), columns={"n": "y"}),
    "wrong_width": Example(models.vector("2"), sheet("x1,x2,x3,y", "1,2,3,4")),
    "wrong_width_old_fit": Example(models.vector(), sheet("x1,x2,x3,y", "1,2,3,4"), sizes={"D": 2}),
    "wrong_shape": Example(models.several("3"), {"x": [1.0, 2.0], "t": np.zeros((2, 3, 4))}),
    "different_lengths": Example(models.REAL, {"x": [1, 2, 3], "y": [1, 2]}),
    "sizes_disagree": Example(LISTS, {"x": [1, 2], "y": [[1, 2], [3, 4]]}),
    "wrong_width_shared": Example(SHARED, sheet("x,t1,t2,u1,u2,u3", "1,2,3,4,5,6")),
    "unbound_size": Example(models.several(), sheet("x", "1", "2"), outputs_required=False),
    "no_rows": Example(models.REAL, sheet("x,y")),
    "empty_file": Example(models.REAL, ""),
    "constant_column": Example(models.REAL, sheet("x,y", "5,2", "5,3", "5,4")),
    "below_a_limit": Example(models.REAL, sheet("x,y", "1,2", "2,<0.4", "3,4")),
    "text_in_column": Example(models.REAL, sheet("x,y", "1,2", "2,three", "3,4")),
    "comma_in_a_number": Example(models.REAL, sheet("x,y", '1,"2,5"', '2,"3,5"', "3,4")),
    "comma_and_point": Example(models.REAL, sheet("x;y", "1.5;2,5", "2;3,5", "3;4")),
    "text_in_input": Example(models.vector(), sheet("x1,x2,y", "1,2,3", "", "4,abc,6")),
    "several_mistakes": Example(models.COUNT, sheet("x,y", "1,2", "abc,-1", "3,4")),
    "missing_input": Example(models.REAL, sheet("x,y", "1,2", ",3", "4,5")),
    "infinite_input": Example(models.REAL, {"x": [1, np.inf], "y": [1, 2]}),
    "huge_output": Example(models.REAL, {"x": [1, 2], "y": [1, -2e300]}),
    "tiny_output": Example(models.REAL, {"x": [1, 2, 3], "y": [0, 3e-77, -1e-80]}),
    "infinite_output": Example(models.REAL, {"x": [1, 2], "y": [1, -np.inf]}),
    "negative_count": Example(models.COUNT, sheet("x,y", "1,2", "2,-3", "3,4")),
    "fractional_count": Example(models.COUNT, sheet("x,y", "1,2", "2,3", "3,4.5")),
    "not_positive": Example(models.POSITIVE, sheet("x,y", "1,2", "2,0", "3,4.5")),
    "not_a_proportion": Example(models.scalar("unit", "Beta(exp(f), 2)"), sheet("x,y", "1,0.5", "2,1", "3,0.2")),
    "order_unknown": Example(models.ORDINAL, sheet("x,y", "1,low", "2,mid", "3,high")),
    "not_binary": Example(models.BINARY, sheet("x,y", "1,0", "2,1", "3,2")),
    "different_words": Example(BINARIES, sheet("x,y1,y2,y3", "1,a,no,", "2,b,yes,", "3,b,no,"), outputs_required=False),
    "one_element_not_binary": Example(BINARIES, sheet("x,y1,y2", "1,0,0", "2,1,1", "3,1,2")),
    "other_word": Example(models.BINARY, sheet("x,y", "1,sick", "2,dead"), sizes={}, levels={"y": ("healthy", "sick")}),
    "zero_beside_minus_one": Example(
        models.BINARY, sheet("x,y", "1,1", "2,0"), sizes={}, levels={"y": (-1, 1)}, outputs_required=False
    ),
    "not_binary_text": Example(models.BINARY, sheet("x,y", "1,yes", "2,no", "3,maybe")),
    "label_outside": Example(models.label("{4, 7, 9}"), sheet("x,y", "1,4", "2,8", "3,9")),
    "label_outside_text": Example(models.label('{"cat", "dog"}'), sheet("x,y", "1,cat", "2,cow", "3,dog")),
    "label_outside_numbers": Example(models.label("1..3"), sheet("x,y", "1,0", "2,1", "3,2")),
    "too_many_levels": Example(models.label(), {"x": np.arange(2000.0), "y": np.arange(2000) / 7}),
    "unknown_level": Example(
        SITES, {"site": ["b", "c", "a"], "y": np.zeros(3)}, sizes={"S": 2}, levels={"s": ("a", "b")}
    ),
    **{
        f"unknown_level_{name}": Example(
            sites(declared), {"site": ["c"], "y": np.zeros(1)}, sizes={"S": 2}, levels={"s": ("a", "b")}
        )
        for name, declared in {
            "unit": "unit ~ Beta(2, 2)",
            "positive": "positive",
            "bounded": "real(lower = 0) ~ Normal(0, 1)",
            "ordered": "ordered[2]",
        }.items()
    },
    "missing_level": Example(SITES, {"site": ["b", None, "a"], "y": np.zeros(3)}),
    "nothing_observed": Example(models.REAL, sheet("x,y", "1,", "2,NA", "3,")),
    "no_such_file": Example(models.REAL, Path("absent/d.csv")),
    "unknown_format": Example(models.REAL, "x,y", file="d.xlsx"),
    "duplicate_column": Example(models.REAL, sheet("x,y,x", "1,2,3")),
    "ragged_row": Example(models.REAL, sheet("x,y", "1,2", "3,4,5")),
    "header_unlike": Example(models.REAL, sheet("# made by hand", "x,y", "1,2", "3,4")),
    "not_utf8": Example(models.REAL, sheet("x,y", "1,2").encode("utf-16")),
    "not_utf8_column": Example(models.REAL, sheet("x,y", "1,gro\xdf").encode("latin-1")),
    "zero_byte": Example(models.REAL, sheet("x,y", "1,2", "3,\0")),
    "no_header": Example(models.REAL, sheet("1,2", "3,4")),
    "not_a_parquet_file": Example(models.REAL, "x,y\n1,2\n", file="d.parquet"),
    "not_a_table": Example(models.REAL, [1, 2, 3]),
    "not_a_column": Example(models.REAL, {"x": [1, 2], "y": 3}),
    "dates_in_a_real_input": Example(models.REAL, {"x": pd.to_datetime(["2020-01-01"]).to_numpy(), "y": [1]}),
    "dates_in_a_real_output": Example(models.REAL, sheet("x,y", "1,2020-01-01T14:30", "2,2020-01-02")),
    "number_in_a_time": Example(models.TIME, sheet("t,y", "2024,2", "2025,3")),
    "text_in_a_time": Example(models.TIME, sheet("t,y", "2024-01-05,2", "5/1/2024,3")),
    "year_of_two_digits": Example(models.TIME, sheet("t,y", "05.01.24,2", "31.12.24,3")),
    "day_that_is_none": Example(models.TIME, sheet("t,y", "31.01.2025,2", "31.02.2025,3")),
    "zones_differ": Example(models.TIME, sheet("t,y", "2024-01-05T00:00+02:00,2", "2024-01-06T00:00,3")),
    "not_a_column_of_numbers": Example(models.REAL, pd.DataFrame({"x": [1, 2], "y": [{"a": 1}, None]})),
    "ragged_list": Example(models.REAL, {"x": [[1, 2], [3]], "y": [1, 2]}),
}


def error_of(example: Example, folder: Path) -> DataError:
    source = example.data
    if isinstance(source, str | bytes):
        source = folder / example.file
        text = example.data
        source.write_bytes(text if isinstance(text, bytes) else str(text).encode())
    with pytest.raises(DataError) as caught:
        bind(
            example.model,
            source,
            columns=example.columns,
            sizes=example.sizes,
            levels=example.levels,
            outputs_required=example.outputs_required,
        )
    return caught.value


@pytest.mark.parametrize("name", EXAMPLES)
def test_error_text(name: str, tmp_path: Path) -> None:
    assert_golden(f"data/{name}.txt", str(error_of(EXAMPLES[name], tmp_path)))


OTHER: dict[str, Callable[[], object]] = {
    "beyond_memory": lambda: (_ for _ in ()).throw(DataError(file_mistakes.BeyondMemory("80 GiB", "12.3 GiB"))),
    "too_many_inducing": lambda: (_ for _ in ()).throw(DataError(TooManyInducing(100, 40))),
    "outside_features": lambda: (_ for _ in ()).throw(
        DataError(errors.OutsideFeatures("x[2]", 7, "5.3", "-5", "5", "fourier(50, over = [-5, 5])"))
    ),
    "standardise_constant": lambda: learn(bind(models.REAL, {"x": [2.0, 2.0], "y": [1.0, 2.0]}, sizes={}), "x"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_error_text(name: str) -> None:
    with pytest.raises(DataError) as caught:
        OTHER[name]()
    assert_golden(f"data/{name}.txt", str(caught.value))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "d.parquet").write_text("x")
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / "d.parquet")
    assert_golden("data/missing_package.txt", str(caught.value))


def test_every_mistake_has_an_example(tmp_path: Path) -> None:
    kinds = {
        each
        for module in (mistakes, file_mistakes, level_mistakes, time_mistakes, errors)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, DataMistake) and each.code
    }
    shown = {type(mistake) for name in EXAMPLES for mistake in error_of(EXAMPLES[name], tmp_path).mistakes}
    elsewhere = {file_mistakes.MissingPackage, file_mistakes.BeyondMemory}
    assert kinds - shown == {TooManyInducing, errors.OutsideFeatures, mistakes.CannotStandardise} | elsewhere
    assert len({each.code for each in kinds}) == len(kinds)


def test_many_mistakes_are_cut() -> None:
    data = {f"x{i}": [1, 1] for i in range(1, 31)} | {"y": [1, 2]}
    with pytest.raises(DataError) as caught:
        bind(models.vector(), data)
    assert len(caught.value.mistakes) == 30
    assert str(caught.value).endswith("... and 20 more")


def test_no_control_characters_reach_the_terminal() -> None:
    with pytest.raises(DataError) as caught:
        bind(models.REAL, {"x": [1, 2], "y": ["1", "\x1b[31mred"]})
    assert "\x1b" not in str(caught.value)
