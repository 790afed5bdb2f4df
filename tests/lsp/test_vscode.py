"""The extension for VS Code: it declares what the repository has, starts the server, and shows its mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpdsl

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "editors" / "vscode"
BUILT = FOLDER / "dist" / "extension.js"
ARCHIVE = FOLDER / "gpdsl.vsix"
DECLARED = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
STUB = Path(__file__).with_name("editor_stub.js")

SOURCES = (FOLDER / "extension.js", FOLDER / "package.json", ROOT / "grammar" / "gpm.tmLanguage.json")


def _is_built() -> bool:
    """Whether there is an archive, of these sources."""
    return ARCHIVE.exists() and ARCHIVE.stat().st_mtime >= max(each.stat().st_mtime for each in SOURCES)


built = pytest.mark.skipif(
    shutil.which("node") is None or not _is_built(), reason="the extension is built by `make vscode`, with Node"
)

BAD = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(g, 1)\n"


def shown(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    """What the extension does with an open text, its server started by a command."""
    model = folder / "m.gpm"
    model.write_text(text, encoding="utf-8")
    words = ["node", str(STUB), str(BUILT), str(model), *command]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 90}
    return subprocess.run(words, cwd=ROOT, check=False, **options)


def test_the_extension_declares_what_the_repository_has() -> None:
    (grammar,) = DECLARED["contributes"]["grammars"]
    colours = json.loads((ROOT / "grammar" / "gpm.tmLanguage.json").read_text(encoding="utf-8"))
    assert (grammar["scopeName"], Path(grammar["path"]).name) == (colours["scopeName"], "gpm.tmLanguage.json")
    assert DECLARED["version"] == gpdsl.__version__
    assert DECLARED["contributes"]["configuration"]["properties"]["gpdsl.command"]["default"] == ["gpdsl", "lsp"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in DECLARED["devDependencies"].values())


@built
def test_the_archive_has_the_grammar_of_the_repository_and_no_other_files() -> None:
    with zipfile.ZipFile(ARCHIVE) as packed:
        names = {name for name in packed.namelist() if name.startswith("extension/")}
        assert packed.read("extension/dist/gpm.tmLanguage.json") == (ROOT / "grammar/gpm.tmLanguage.json").read_bytes()
        assert packed.read("extension/dist/extension.js") == BUILT.read_bytes()
    assert {name.removeprefix("extension/").split("/")[0] for name in names} == {
        "package.json",
        "readme.md",
        "language-configuration.json",
        "dist",
    }


@built
def test_the_extension_shows_the_mistakes_of_an_open_text(tmp_path: Path) -> None:
    done = shown(tmp_path, BAD, sys.executable, "-m", "gpdsl", "lsp")
    assert done.returncode == 0, done.stderr
    (mistake,) = json.loads(done.stdout)
    place = (mistake["line"], mistake["from"], mistake["to"])
    assert (place, mistake["code"], mistake["source"]) == ((4, 11, 12), "E201", "gpdsl")
    assert mistake["message"].startswith("unknown name `g`")


@built
def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = shown(tmp_path, BAD, "no-such-server")
    assert done.returncode == 1
    assert "no-such-server" in done.stderr
