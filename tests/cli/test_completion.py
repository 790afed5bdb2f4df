"""`gpdsl completion`: the scripts know the commands, options and values of the command line, and a shell runs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import gpdsl
from gpdsl.cli import COMMANDS, main
from gpdsl.cli.completion import WRITERS
from gpdsl.language.options import OPTIONS

TRY = """
source ./script
while read -r line; do
  COMP_WORDS=($line); [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _gpdsl
  echo "${COMPREPLY[*]}"
done < lines
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its function is run as bash runs it, with the words of the line."""
    (tmp_path / "script").write_text(script("bash", capsys))
    (tmp_path / "my data.csv").write_text("")
    wanted = {
        "gpdsl gr": "graph",
        "gpdsl fit --st": "--standardise --start",
        "gpdsl graph --format d": "dot",
        "gpdsl new --from bos": "boston",
        "gpdsl fit --set indu": "inducing= inducing_start=",
        "gpdsl fit --data my": "my data.csv",
        "gpdsl explain coal": "coal_mining",
        "gpdsl fit --fix x": "",
        "gpdsl nothing x": "",
    }
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in wanted))
    done = run(["bash", "-c", TRY], tmp_path)
    assert (done.stdout.splitlines(), done.stderr) == (list(wanted.values()), "")


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell that cannot read the standard input of the tests."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 20}
    return subprocess.run(words, cwd=folder, check=False, **options)


def test_zsh_calls_what_it_names_with_no_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """A blank before an action; without it `_arguments` hands `-J` and others to `_alternative`, which refuses them."""
    text = script("zsh", capsys)
    assert text.count("_alternative") == text.count(': _alternative "words') > 3


@pytest.mark.parametrize("shell", WRITERS)
def test_the_scripts_name_everything(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    flags = ("draw-parameters", "standardise", "version")
    words = [*COMMANDS, *gpdsl.zoo_names(), *(f"{name}=" for name in OPTIONS), *flags]
    assert [word for word in words if word not in text] == []
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here to read its script")
    (tmp_path / "script").write_text(text)
    done = run([shell, "-n", "script"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
