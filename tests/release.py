"""`make release`: build the wheel and the source archive, and try them as a user meets them.

The wheel is installed in an empty environment, without extras, and fits the demo's model from outside the checkout; the
source archive must build the same wheel. Packages that gpdsl needs come from the usual index.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
DATA = ROOT / "examples" / "data" / "coal_mining_disasters.csv"
COLUMNS = ("--column", "x=year", "--column", "n=disasters")
EXTRAS = ("pandas", "pyarrow", "matplotlib", "pygls", "distributed", "sklearn", "xarray")
LOOK = f"""
import importlib.util, gpdsl
from gpdsl.language.parser import grammar
assert [name for name in {EXTRAS!r} if importlib.util.find_spec(name)] == [], "there are extras"
fit = gpdsl.load_fit("demo.gpfit")
print(gpdsl.__file__, len(gpdsl.zoo_names()), len(grammar().terminals), fit.elbo, sep="\\n")
"""


def main() -> None:
    """Build, try, and say where the files lie."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], ROOT)
    wheel, archive = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    with tempfile.TemporaryDirectory() as folder:
        print(f"{archive.name}: builds the same wheel, of {same_wheel(wheel, archive, Path(folder))} files")
        print(f"{wheel.name}: {fitted(wheel, Path(folder))}")
    print(f"ready to upload: {wheel.relative_to(ROOT)}, {archive.relative_to(ROOT)}")


def same_wheel(wheel: Path, archive: Path, folder: Path) -> int:
    """How many files the wheel has. Raises SystemExit where that of the source archive has others."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "source", filter="data")
    source = next((folder / "source").iterdir())
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], source)
    ours, theirs = contents(wheel), contents(folder / wheel.name)
    if ours != theirs:
        differ = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise SystemExit(f"the source archive builds another wheel: {', '.join(differ)}")
    return len(ours)


def contents(wheel: Path) -> dict[str, str]:
    """The files of a wheel with their digests."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: hashlib.sha256(packed.read(name)).hexdigest() for name in packed.namelist()}


def fitted(wheel: Path, folder: Path) -> str:
    """What the installed wheel says of the demo: a model of the zoo, fitted and predicted by the command."""
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    python = folder / "venv" / "bin" / "python"
    lock = ROOT / "requirements.lock"
    run([str(python), "-m", "pip", "install", "--quiet", "--constraint", str(lock), str(wheel)], folder)
    data = str(shutil.copy(DATA, folder / "demo.csv"))
    command = str(python.with_name("gpdsl"))
    run([command, "check", "--strict", "model.gpm"], zoo_model(command, folder))
    run([command, "fit", "coal_mining", "--data", data, *COLUMNS, "--quiet", "--out", "demo.gpfit"], folder)
    run([command, "predict", "demo.gpfit", "--data", data, "--out", "rows.csv"], folder)
    place, models, _, bound = run([str(python), "-c", LOOK], folder).split("\n")[:4]
    if not Path(place).is_relative_to(folder) or not models.isdigit() or int(models) < 1:
        raise SystemExit(f"{place} is not what was installed, or has no models")
    rows = len((folder / "rows.csv").read_text(encoding="utf-8").splitlines()) - 1
    return f"{models} models; the demo is fitted without extras, bound {float(bound):.2f} nats, {rows} rows predicted"


def zoo_model(command: str, folder: Path) -> Path:
    """The folder, with a model of the zoo in it."""
    run([command, "zoo", "coal_mining", "--out", "model.gpm"], folder)
    return folder


def run(words: Sequence[str], folder: Path) -> str:
    """Run a command outside the checkout's packages and return what it prints. Raises SystemExit where it fails."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
