"""From a model and a CSV file to a saved fit, and from the fit to predictions, as a user runs it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.forward.errors import BadTimeout, ForwardModelError
from gpdsl.results.pictures.style import canvas, save

ROOT = Path(__file__).resolve().parents[2]
COAL = [
    "--data",
    str(ROOT / "examples/data/coal_mining_disasters.csv"),
    "--column",
    "x=year",
    "--column",
    "n=disasters",
]
SINE = (
    "model sine\ninput x : real\noutput y : real\nparam s : positive = 0.1\n"
    "latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, s)\n"
)


def read(path: Path) -> dict[str, list[float]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fit of a sine under little noise, and the rows it was fitted to."""
    folder = tmp_path_factory.mktemp("fit")
    x = np.linspace(0, 6, 20)
    y = np.sin(x) + 0.02 * np.random.default_rng(0).standard_normal(20)
    np.savetxt(folder / "d.csv", np.column_stack([x, y]), delimiter=",", header="x,y", comments="")
    (folder / "sine.gpm").write_text(SINE)
    line = [
        "fit",
        str(folder / "sine.gpm"),
        "--data",
        str(folder / "d.csv"),
        "--out",
        str(folder / "s.gpfit"),
        "--quiet",
    ]
    assert main([*line, "--set", "seed=1", "--plot", str(folder / "s.png")]) == 0
    return folder


@pytest.mark.parametrize("command", ["info", "check", "simulate", "fmt"])
def test_a_saved_fit_is_no_model(fitted: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, str(fitted / "s.gpfit")]) != 0
    assert (
        "s.gpfit: it is a saved fit, not the text of a model; read it with `gpdsl predict`" in capsys.readouterr().err
    )


def test_fit_saves_the_fit_and_the_picture(fitted: Path) -> None:
    assert (fitted / "s.png").read_bytes().startswith(b"\x89PNG")
    assert gpdsl.load_fit(fitted / "s.gpfit").model.declarations.name == "sine"


def test_a_picture_has_a_form_that_is_known(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plot", str(fitted / "s.gpfit"), "--data", str(fitted / "d.csv"), "--out"]
    assert main([*line, str(fitted / "a.gif")]) != 0 and not (fitted / "a.gif").exists()
    assert "--out" in (told := capsys.readouterr().err) and "a name ending in .png, .pdf, .svg" in told


def test_pictures_are_refused_before_the_fit_where_matplotlib_is_missing(
    fitted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fit, page, picture = str(fitted / "s.gpfit"), fitted / "page.html", fitted / "other.png"
    for line in (
        ["fit", "no_model.gpm", "--data", "no.csv", "--out", str(fitted / "other.gpfit"), "--plot", str(picture)],
        ["plot", fit, "--out", str(picture)],
        ["report", fit, "--out", str(page)],
    ):
        assert main(line) == 1
        assert "error: plots need matplotlib: install it with `pip install gpdsl[plot]`" in capsys.readouterr().err
    assert not page.exists() and not picture.exists()


def test_predict_writes_means_deviations_and_quantiles(fitted: Path) -> None:
    line = ["predict", str(fitted / "s.gpfit"), "--data", str(fitted / "d.csv"), "--out", str(fitted / "p.csv")]
    assert main([*line, "--quantiles", "0.05,0.95", "--names", "y,f", "--log-density"]) == 0
    table = read(fitted / "p.csv")
    assert list(table) == [f"{name}_{part}" for name in "yf" for part in ("mean", "sd", "q0.05", "q0.95")] + [
        "log_density"
    ]
    np.testing.assert_allclose(table["y_mean"], np.sin(np.linspace(0, 6, 20)), atol=0.05)
    assert all(
        low < mean < high
        for low, mean, high in zip(*(table[f"y_{k}"] for k in ("q0.05", "mean", "q0.95")), strict=True)
    )
    expected = gpdsl.load_fit(fitted / "s.gpfit").log_predictive_density(str(fitted / "d.csv"))
    np.testing.assert_allclose(table["log_density"], expected, rtol=1e-8)


def test_predict_prints_without_a_file(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(fitted / "s.gpfit"), "--data", str(fitted / "d.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "y_mean,y_sd"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--names", "z"], "z"),
        (["--quantiles", "5,95"], "a quantile lies between 0 and 1"),
        (["--quantiles", "low"], "expected numbers"),
        (["--column", "x=day"], "expected a column `day`"),
        (["--column", "q=day"], "no such input or output"),
        (["--out", "x.pdf"], "--out x.pdf: predictions are CSV: expected a name ending in .csv or .txt"),
    ],
)
def test_predict_refuses(line: list[str], words: str, fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(fitted / "s.gpfit"), "--data", str(fitted / "d.csv"), *line]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--set", "posterior=round"], "round"),
        (["--set", "colour=red"], "colour"),
        (["--set", "inducing=1000"], "1000 inducing points cannot be placed on 20 rows"),
        (["--fix", "sigma"], "sigma"),
        (["--column", "y=z"], "expected a column `z`"),
    ],
)
def test_fit_refuses(line: list[str], words: str, fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(fitted / "sine.gpm"), "--data", str(fitted / "d.csv"), "--quiet", *line]) == 1
    errors = capsys.readouterr().err
    assert words in errors
    assert "Traceback" not in errors


def test_the_folder_here_is_named(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(fitted / "sine.gpm"), "--data", "."]) == 1
    assert capsys.readouterr().err.startswith(".: error[D120]: the file cannot be read: it is a folder")


def test_letters_without_a_font_are_no_warning(tmp_path: Path) -> None:
    figure, _ = canvas(1, 1, 2, 2, "温度 ߷")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, tmp_path / "t.svg")
        assert figure._repr_png_()


def test_a_file_that_is_no_fit(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(fitted / "d.csv"), "--data", str(fitted / "d.csv")]) == 1
    assert "is not a fit saved by gpdsl" in capsys.readouterr().err


def test_the_names_of_the_columns_are_kept_with_the_fit(tmp_path: Path) -> None:
    line = [
        "fit",
        "coal_mining",
        *COAL,
        "--out",
        str(tmp_path / "c.gpfit"),
        "--plot",
        str(tmp_path / "c.png"),
        "--quiet",
    ]
    assert main([*line, "--set", "steps=2", "--fix", "ell"]) == 0
    (tmp_path / "new.csv").write_text("year\n1850\n1970\n")
    line = ["predict", str(tmp_path / "c.gpfit"), "--data", str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv")]
    assert main(line) == 0
    table = read(tmp_path / "p.csv")
    assert list(table) == ["n_mean", "n_sd", "intensity_mean", "intensity_sd"]
    assert table["n_mean"][0] > table["n_mean"][1] > 0


def test_explain_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "coal_mining", *COAL]) == 0
    assert "closed form" in capsys.readouterr().out


def test_an_external_that_nothing_computes_ends_in_a_sentence(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SINE.replace("latent", "external unheard_of(a: real) -> real\nlatent").replace("(f,", "(unheard_of(f),")
    (fitted / "external.gpm").write_text(text)
    line = ["fit", str(fitted / "external.gpm"), "--data", str(fitted / "d.csv"), "--quiet"]
    assert main([*line, "--out", str(fitted / "none.gpfit")]) == 1
    said = capsys.readouterr().err
    assert "unheard_of" in said and "--start" not in said and not (fitted / "none.gpfit").exists()


def test_a_fault_in_mid_fit_says_where_the_state_before_is(
    fitted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: object, **__: object) -> None:
        fault = ForwardModelError(BadTimeout("double", "0"))
        fault.fit = gpdsl.load_fit(fitted / "s.gpfit")
        raise fault

    monkeypatch.setattr(gpdsl.Model, "fit", fit)
    line = ["fit", str(fitted / "sine.gpm"), "--data", str(fitted / "d.csv"), "--out", "kept.gpfit"]
    assert main(line) == 1
    assert "the state before is saved as kept.gpfit: go on with --start kept.gpfit" in capsys.readouterr().err


def test_a_forward_model_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.gpm").write_text(
        "model m\ninput x : real\noutput y : real\nexternal double(a: real) -> real\n"
        "latent f(x) ~ GP(0, RBF(1))\nlet g = double(f)\ny ~ Normal(g, 0.1)\n"
    )
    (tmp_path / "d.csv").write_text("x,y\n0,1\n1,2\n2,1\n3,0\n")
    line = ["fit", str(tmp_path / "m.gpm"), "--data", str(tmp_path / "d.csv"), "--quiet", "--set", "steps=3"]
    assert main(line) == 1
    (tmp_path / "solver.py").write_text("import gpdsl\ngpdsl.register_forward_model('double', lambda a: 2 * a)\n")
    assert main([*line, "--forward", str(tmp_path / "solver.py"), "--out", str(tmp_path / "m.gpfit")]) == 0
    assert (tmp_path / "m.gpfit").exists()


@pytest.mark.slow
def test_an_interrupt_saves_the_best_state_so_far(tmp_path: Path) -> None:
    """A fit that would take minutes is interrupted a moment after its first step."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 30_000)
    np.savetxt(tmp_path / "d.csv", np.column_stack([x, np.sin(x)]), delimiter=",", header="x,y", comments="")
    (tmp_path / "sine.gpm").write_text(SINE)
    line = ["fit", "sine.gpm", "--data", "d.csv", "--out", "s.gpfit", "--set", "steps=1000000", "--set", "tolerance=0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gpdsl.cli", *line],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    assert first.startswith("step ")
    assert process.returncode == 130, errors
    assert "the best state so far is saved as s.gpfit" in errors
    assert "interrupted" in printed
    assert gpdsl.load_fit(tmp_path / "s.gpfit").interrupted


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full here")
def test_what_cannot_be_saved_is_told_all_the_same(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["fit", str(fitted / "sine.gpm"), "--data", str(fitted / "d.csv"), "--quiet", "--set", "seed=1"]
    assert main([*line, "--out", "/dev/full"]) == 1
    told = capsys.readouterr()
    assert "evidence" in told.out and "saved as" not in told.out
    assert told.err == "error: cannot write the fit to /dev/full: No space left on device\n"


def test_a_fit_starts_where_another_ended(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["fit", str(fitted / "sine.gpm"), "--data", str(fitted / "d.csv"), "--quiet"]
    assert main([*line, "--start", str(fitted / "s.gpfit"), "--out", str(fitted / "again.gpfit")]) == 0
    first, again = (gpdsl.load_fit(fitted / name) for name in ("s.gpfit", "again.gpfit"))
    assert len(again.history) <= 5 and again.elbo >= first.elbo - 1e-6
    capsys.readouterr()
    assert main([*line, "--start", str(fitted / "nothing.gpfit")]) == 1
    assert "no such file" in capsys.readouterr().err
