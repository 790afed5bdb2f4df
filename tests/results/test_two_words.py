"""Binary outputs of two words, and groups by columns that no model names."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import gpdsl

X = np.linspace(0, 6, 24)
ILL = np.sin(X) > 0


@pytest.fixture(scope="module")
def model() -> gpdsl.Model:
    return gpdsl.compile("""
input x : real
output ill : binary
latent f(x) ~ GP(0, RBF(1))
ill ~ Bernoulli(logit = f)
""")


@pytest.fixture(scope="module")
def fit(model: gpdsl.Model) -> gpdsl.Fit:
    return model.fit({"x": X, "ill": np.where(ILL, "sick", "healthy")})


def test_the_second_by_alphabet_is_1_and_the_summary_says_so(model: gpdsl.Model, fit: gpdsl.Fit) -> None:
    assert fit.elbo == model.fit({"x": X, "ill": ILL}).elbo
    assert "ill         1 is sick, and 0 is healthy" in fit.summary()
    prediction = fit.predict({"x": [1.5, 4.5]})
    assert prediction.label("ill").tolist() == ["sick", "healthy"]
    np.testing.assert_allclose(prediction.probability('ill == "sick"'), prediction.mean("ill"))
    np.testing.assert_allclose(prediction.crps("ill", ["sick", "sick"]), (1 - prediction.mean("ill")) ** 2)
    with pytest.raises(gpdsl.GpdslError, match="expected one of healthy, sick"):
        prediction.probability('ill == "yes"')


def test_scores_and_files_know_the_words_of_the_fit(model: gpdsl.Model, fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "a.gpfit")
    rows = {"x": [1.5, 4.5], "ill": ["sick", "sick"]}
    expected = np.log(fit.predict(rows).mean("ill"))
    for each in (fit, gpdsl.load_fit(tmp_path / "a.gpfit"), copy.deepcopy(fit)):
        np.testing.assert_allclose(each.log_predictive_density(rows), expected)
    with pytest.raises(gpdsl.GpdslError, match="D166.*holds `dead`, where the fit knows healthy, sick"):
        fit.log_predictive_density({"x": [1.5, 4.5], "ill": ["sick", "dead"]})
    with pytest.raises(gpdsl.GpdslError, match="D115"):
        model.fit({"x": X, "ill": ILL}).log_predictive_density(rows)


def test_totals_are_grouped_by_any_column_of_rows_in_memory(fit: gpdsl.Fit) -> None:
    rows = {"x": X, "ward": ["north"] * 10 + ["south"] * 14}
    total = fit.predict(rows).total("ill", by="ward", count=50)
    assert total.groups.tolist() == ["north", "south"]
    assert fit.predict(rows).total("ill", by=["ward"], count=50)["south"].mean == total["south"].mean
    assert "24 groups" in repr(fit.predict(rows).total("ill", by="x", count=5))


def test_totals_are_grouped_by_several_columns(fit: gpdsl.Fit) -> None:
    rows = {"x": X, "ward": (["north"] * 10 + ["south"] * 14), "month": np.arange(24) % 2 + 1, "bed": ["a"] * 24}
    prediction = fit.predict(rows)
    total = prediction.total("ill", by=["ward", "month"], count=50)
    assert total.groups is not None and total.by == ("ward", "month")
    assert total.groups.tolist() == [("north", 1), ("north", 2), ("south", 1), ("south", 2)]
    some = (np.asarray(rows["ward"]) == "south") & (rows["month"] == 2)
    np.testing.assert_array_equal(total["south", 2].draws, prediction.draws("ill", 50)[:, some].sum(axis=1))
    np.testing.assert_array_equal((total["south", 2] - total["south", 1]).draws, total.draws[:, 3] - total.draws[:, 2])
    pd = pytest.importorskip("pandas")
    frame = total.to_frame()
    assert frame.index.names == ["ward", "month"] and frame.loc[("south", 2), "mean"] == total.mean[3]
    keys = pd.DataFrame({name: rows[name] for name in ("ward", "month")})
    np.testing.assert_array_equal(prediction.total("ill", by=keys, count=50).draws, total.draws)
    assert "50 draws, mean and 90%: ('north', 1): " in repr(total)
    with pytest.raises(gpdsl.GpdslError, match=r"no group; expected one of \('north', 1\), "):
        total["south"]
    with pytest.raises(gpdsl.GpdslError, match="by = 'year' is no input of the model"):
        prediction.total("ill", by=["ward", "year"])


def test_words_of_as_many_as_rows_are_groups_unless_all_name_columns(fit: gpdsl.Fit) -> None:
    prediction = fit.predict({"x": [1.0, 2.0], "a": ["u", "v"], "b": ["w", "w"]})
    assert prediction.total("ill", by=["a", "n"], count=5).groups.tolist() == ["a", "n"]
    assert prediction.total("ill", by=["a", "b"], count=5).groups.tolist() == [("u", "w"), ("v", "w")]
