"""Saving, loading, summarising and plotting fits."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import gpdsl


@pytest.fixture(scope="module")
def fit() -> gpdsl.Fit:
    x = np.linspace(0, 4, 25)
    n = np.random.default_rng(0).poisson(np.exp(np.sin(x) + 0.5))
    return gpdsl.zoo("coal_mining").fit({"day": x, "n": n}, columns={"x": "day"}, init={"ell": 1.0}, seed=4)


def test_a_loaded_fit_says_the_same(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "a.gpfit")
    again = gpdsl.load_fit(tmp_path / "a.gpfit")
    new = {"day": np.linspace(-1, 5, 9), "n": np.arange(9)}
    for name in ("f", "intensity", "n"):
        np.testing.assert_array_equal(again.predict(new).mean(name), fit.predict(new).mean(name))
    np.testing.assert_array_equal(again.log_predictive_density(new), fit.log_predictive_density(new))
    assert again.summary() == fit.summary()
    assert again.options == fit.options and again.choice == fit.choice
    np.testing.assert_array_equal(again.history, fit.history)


def test_saving_leaves_no_other_file_behind(fit: gpdsl.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "a.gpfit")
    fit.save(tmp_path / "a.gpfit")
    assert [p.name for p in tmp_path.iterdir()] == ["a.gpfit"]


def test_saving_through_a_link_replaces_the_file_behind_it(fit: gpdsl.Fit, tmp_path: Path) -> None:
    (tmp_path / "real.gpfit").write_text("old")
    (tmp_path / "real.gpfit").chmod(0o640)
    (tmp_path / "a.gpfit").symlink_to("real.gpfit")
    fit.save(tmp_path / "a.gpfit")
    assert (tmp_path / "a.gpfit").is_symlink() and gpdsl.load_fit(tmp_path / "real.gpfit").elbo == fit.elbo
    assert (tmp_path / "real.gpfit").stat().st_mode & 0o777 == 0o640


def test_a_picture_of_no_known_kind_is_refused(fit: gpdsl.Fit, tmp_path: Path) -> None:
    with pytest.raises(gpdsl.GpdslError, match="expected a name ending in"):
        fit.plot({"day": np.linspace(0, 4, 25)}, names=["n"], path=tmp_path / "p.xyz")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_an_error_and_keeps_the_fit(fit: gpdsl.Fit, tmp_path: Path) -> None:
    with pytest.raises(gpdsl.GpdslError, match="cannot write the fit to"):
        fit.save(tmp_path / "nowhere" / "a.gpfit")


def _damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    if how == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    elif how == "noise":
        path.write_bytes(bytes(range(256)) * 4)
    else:
        with safe_open(path, framework="numpy") as handle:
            header = json.loads(handle.metadata()["gpdsl"])
            arrays = {k: handle.get_tensor(k) for k in handle.keys()}  # noqa: SIM118
        if how == "format":
            header["format"] = 99
        elif how == "missing":
            arrays.pop("mean.0")
        elif how == "model":
            header["model"] = "latent f(x) ~ ("
        elif how == "options":
            header["options"]["surprise"] = 1
        save_file(arrays, path, {"gpdsl": json.dumps(header)})


@pytest.mark.parametrize("how", ["cut", "noise", "format", "missing", "model", "options"])
def test_a_damaged_file_is_an_error_not_a_crash(fit: gpdsl.Fit, tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.gpfit"
    fit.save(path)
    _damage(path, how)
    with pytest.raises(gpdsl.GpdslError):
        gpdsl.load_fit(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(gpdsl.GpdslError, match="nothing.gpfit"):
        gpdsl.load_fit(tmp_path / "nothing.gpfit")


def test_what_cannot_be_read_is_not_called_missing_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.gpfit")
    (tmp_path / "kept.gpfit").write_bytes(b"")
    for name, said in (("pipe.gpfit", "it is a device or a pipe"), (".", "Is a directory")):
        with pytest.raises(gpdsl.GpdslError, match=said):
            gpdsl.load_fit(tmp_path / name)

    def refuse(*_: object) -> None:  # as the system does, but to the superuser
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(gpdsl.GpdslError, match="kept.gpfit: Permission denied"):
        gpdsl.load_fit(tmp_path / "kept.gpfit")


def test_the_summary_shows_what_was_learnt(fit: gpdsl.Fit) -> None:
    text = fit.summary()
    assert "Log Gaussian Cox process" in text and "25" in text and "elbo" in text
    for name, value in fit.parameters.items():
        assert f"{name}" in text and f"{float(value):.4g}" in text


def test_a_plot_shows_band_mean_and_points(fit: gpdsl.Fit, tmp_path: Path) -> None:
    x = np.linspace(0, 4, 25)
    figure = fit.plot({"day": x, "n": np.ones(25)}, names=["n", "intensity"], path=tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
    counts, intensity = figure.axes
    grid, mean = intensity.lines[0].get_data()
    np.testing.assert_allclose(mean, fit.predict({"day": grid}).mean("intensity"))
    assert len(counts.lines) == 2 and len(counts.collections) == 1


def test_scores_are_those_of_the_papers() -> None:
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(30, 2)), "y": rng.normal(size=30) + 20}
    fit = gpdsl.zoo("boston").fit(data, steps=3)
    mean = fit.predict(data).mean("y")
    assert gpdsl.score.rmse(fit, data) == pytest.approx(np.sqrt(np.mean((mean - data["y"]) ** 2)))
    assert gpdsl.score.sse(fit, data) == pytest.approx(np.mean((mean - data["y"]) ** 2) / np.var(data["y"]))
    missing = {"x": np.tile(data["x"], (2, 1)), "y": np.append(data["y"], np.full(30, np.nan))}
    for name in ("nlpd", "rmse", "sse"):
        score = getattr(gpdsl.score, name)
        assert score(fit, missing) == pytest.approx(score(fit, data)), name
    with pytest.raises(gpdsl.GpdslError, match="no output `f`; it has y"):
        gpdsl.score.rmse(fit, data, "f")
    with pytest.raises(gpdsl.GpdslError, match="expected a fit, and then the data, got dict first"):
        gpdsl.score.rmse(data, fit)
    with pytest.raises(gpdsl.GpdslError, match="not a label output"):
        fit.predict(data).levels("f")
    labels = "index c in 1..2\ninput x : real[D]\noutput k : label[c]\nlatent g[c](x) ~ GP(0, RBF(1))\n"
    data["k"] = 1 + (data["x"][:, 0] > 0)
    classes = gpdsl.compile(labels + "k ~ Categorical(logits = g)").fit(data, steps=2)
    for score in (gpdsl.score.rmse, gpdsl.score.sse):
        with pytest.raises(gpdsl.GpdslError, match="use error_rate"):
            score(classes, data)
