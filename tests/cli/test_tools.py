"""`gpdsl latex`, `graph`, `info` and `new`: models printed, drawn, described and begun; where mistakes end."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import gpdsl
from gpdsl.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_latex_is_printed_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latex", "gprn"]) == 0
    assert capsys.readouterr().out == gpdsl.zoo("gprn").latex()
    assert main(["latex", "gprn", "--standalone", "--out", "gprn.tex"]) == 0
    assert Path("gprn.tex").read_text() == gpdsl.zoo("gprn").latex(standalone=True)


def test_a_graph_goes_by_its_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "gprn"]) == 0
    assert ET.fromstring(capsys.readouterr().out).tag.endswith("svg")
    assert main(["graph", "gprn", "--out", "gprn.dot"]) == 0
    assert Path("gprn.dot").read_text().startswith("digraph")
    assert main(["graph", "gprn", "--format", "dot", "--out", "gprn.txt"]) == 0
    assert Path("gprn.txt").read_text() == Path("gprn.dot").read_text()


def test_info_says_what_data_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "ordinal"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["role"], each["kind"]) for each in told["data"]] == [
        ("x", "input", "real"),
        ("y", "output", "ordinal"),
    ]
    assert {each["name"]: each["initial"] for each in told["params"]}["cut"] == [-1.5, -0.5, 0.5, 1.5]
    assert main(["info", "ordinal", "--out", "ordinal.json"]) == 0
    assert json.loads(Path("ordinal.json").read_text()) == told
    capsys.readouterr()
    assert main(["info", "ordinal", "--table"]) == 0
    assert "Ordinal(" in capsys.readouterr().out


def test_info_says_which_data_decide_a_size() -> None:
    text = "index p in 1..P\nindex q in 1..3\ninput x : real\ninput z : real[q]\noutput y : real[p]\n"
    model = gpdsl.compile(f"{text}latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + z[1], 1)")
    assert {each["name"]: each["binds"] for each in model.info()["data"]} == {"x": [], "z": [], "y": ["P"]}


def test_info_leaves_to_the_data_what_they_decide(capsys: pytest.CaptureFixture[str]) -> None:
    text = "model m\ninput x : real\noutput y : real\nparam s : positive\nparam share : unit\nrow w ~ Normal(0, 1)\n"
    Path("m.gpm").write_text(f"{text}latent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f + w * share, s)\n")
    assert [each["initial"] for each in gpdsl.load("m.gpm").info()["params"]] == [None, 0.5]
    assert main(["info", "m.gpm", "--table"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "Row variables" in lines  # a heading wider than its table
    assert next(line for line in lines if line.startswith("s ")).split() == ["s", "positive", "by", "the", "data"]


@pytest.mark.parametrize("words", [["mine"], ["mine.gpm"], ["--out", "mine.gpm"], ["mine", "--out", "mine.gpm"]])
def test_a_model_is_begun(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", *words, "--from", "creep"]) == 0
    assert "gpdsl check mine.gpm" in capsys.readouterr().out
    assert gpdsl.load("mine.gpm").declarations.name == "mine"
    assert main(["new", *words, "--from", "boston"]) == 1
    assert "mine.gpm exists already" in capsys.readouterr().err
    assert "warp" in Path("mine.gpm").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["new", "mine"], "what to start from?"),
        (["new", "mine", "--from", "bostn"], "has no model `bostn`"),
        (["new", "2nd", "--from", "boston"], "`2nd` cannot be the name of a model"),
        (["latex", "absent.gpm"], "absent.gpm"),
        (["latex", "m" * 400], "File name too long"),
        (["fmt", "m" * 400], "File name too long"),
        (["fmt", ""], "No such file"),
        (["graph", "boston", "--out", "g" * 400], "File name too long"),
        (["fit", "boston", "--data", "d.csv", "--forward", "f" * 400 + ".py"], "no such file"),
        (["latex", "boston", "--out", "nowhere/a.tex"], "the folder"),
        (["graph", "boston", "--out", "."], "this is a folder"),
        (["graph", "boston", "--out", "a.png"], "write --out a.svg, or --out a.dot and then dot -Tpng a.dot -o a.png"),
        (["graph", "boston", "--out", "g.xyz"], "--out g.xyz: expected a name ending in .svg, .dot, .gv"),
        (["predict", "absent.gpfit", "--data", "d.csv"], "absent.gpfit: no such file"),
        (["serve", "absent.gpfit"], "absent.gpfit: no such file"),
        (["fit", "boston", "--data", "d.csv", "--start", "absent.gpfit"], "absent.gpfit: no such file"),
        (["info", "boston", "--out", "nowhere/a.json"], "the folder"),
    ],
)
def test_mistakes_end_in_a_sentence(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert told in capsys.readouterr().err


def test_the_name_of_a_file_is_no_text_of_a_model() -> None:
    with pytest.raises(gpdsl.GpdslError, match="`absent.gpm` names a file, which gpdsl.load reads"):
        gpdsl.compile("absent.gpm")


def test_what_there_is_to_start_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in gpdsl.zoo_names())


@pytest.mark.parametrize("name", gpdsl.zoo_names())
def test_every_model_of_the_zoo_says_what_it_is(name: str) -> None:
    """What it is, where it comes from, and which data it wants, before its first statement."""
    text = gpdsl.zoo_text(name)
    what, *more = text.partition("\nmodel ")[0].splitlines()
    assert what.startswith("# ") and what.endswith(".")
    assert [line[4:8] for line in more if line[4:8].strip()][:1] == ["From"]
    assert any(line.startswith("#   Data:  columns ") for line in more)
    model = gpdsl.zoo(name).declarations
    assert (model.name, bool(model.title)) == (name, True)
