"""The gallery: every model of the zoo is fitted, drawn and written down in docs/gallery.md, with pictures beside it.

Data are those of the documentation where there are some, else a draw from the model's own prior, whose truth is known.
"""

from __future__ import annotations

import csv
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "gallery"
LARGEST = 40_000
"""Bytes of a picture."""

HEAD = """# Gallery

Every model that is shipped, as `gpdsl zoo NAME` prints it, fitted and drawn by `make gallery`. Times are those of one
fit on two busy cores, with compiling; on cores with thirty programs besides for `epidemic`, `preference`, `sleep_study`
and `uncertain_inputs`. Where a model has no data of its own, they are a draw from it."""

SCHOOLS = {
    "school": list("ABCDEFGH"),
    "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    "se": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
}


@dataclass(frozen=True)
class Shown:
    """How a model is shown: so many rows are drawn, with options of the fit, and a picture of some names."""

    rows: int = 80
    seed: int = 1
    names: tuple[str, ...] | None = None
    kind: str | None = None
    sizes: Mapping[str, int] | None = None
    fit: Mapping[str, Any] = field(default_factory=dict)


SHOWN: dict[str, Shown] = {
    "abalone": Shown(names=("y",)),
    "airline": Shown(rows=300, fit={"steps": 100}),
    "boston": Shown(),
    "fourier": Shown(rows=1000),
    "integral": Shown(names=("rate",)),
    "image_convolutional": Shown(kind="calibration"),
    "usps": Shown(rows=40, kind="calibration"),
    "seismic": Shown(rows=40, names=("depth",)),
    "seismic_increments": Shown(rows=40, names=("depth",)),
    "seismic_external": Shown(rows=30, names=("depth",), fit={"steps": 30}),
    "preference": Shown(names=("f",)),
    "radon": Shown(names=("level",)),
    "uncertain_inputs": Shown(rows=60),
    "deep_latent": Shown(names=("y",), fit={"steps": 300}),
    "heteroscedastic": Shown(names=("y",)),
    "multitask": Shown(names=("y",)),
    "derivatives": Shown(rows=20, names=("y", "slope")),
    "gprn": Shown(names=("y",)),
}


def travel_time(depth: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Two-way times through flat layers, for the model that takes any function."""
    thickness = np.diff(depth, axis=1, prepend=0.0)
    return np.asarray(np.cumsum(2.0 * thickness / velocity, axis=1))


def windows(rows: int) -> dict[str, np.ndarray]:
    """White noise on a fine grid, summed up through windows of three widths, every third row through the same."""
    rng = np.random.default_rng(0)
    x, grid, instrument = rng.uniform(0, 12, rows), np.arange(-5, 17, 0.01), np.arange(rows) % 3
    white, width = rng.standard_normal(len(grid)) / np.sqrt(0.01), np.array([0.2, 0.5, 1.0])[instrument, None]
    window = np.exp(-0.5 * ((x[:, None] - grid) / width) ** 2) / (np.sqrt(2 * np.pi) * width)
    return {"x": x, "instrument": instrument + 1, "y": 0.01 * window @ white + 0.1 * rng.standard_normal(rows)}


def totals(rows: int) -> dict[str, np.ndarray]:
    """Integrals of a rate that rises and falls, over intervals of unequal lengths."""
    rng = np.random.default_rng(0)
    ends = np.cumsum(rng.uniform(0.1, 0.9, rows + 1))
    start, end = ends[:-1], ends[1:]
    exact = (end - np.cos(end)) - (start - np.cos(start))
    return {"start": start, "end": end, "x": (start + end) / 2, "total": exact + 0.1 * rng.standard_normal(rows)}


def bars(rows: int) -> dict[str, np.ndarray]:
    """Images of a bar that is three pixels long, upright or not, anywhere."""
    rng = np.random.default_rng(0)
    upright = rng.integers(0, 2, rows)
    images = 0.15 * np.abs(rng.normal(size=(rows, 8, 8)))
    for image, up, (row, column) in zip(images, upright, rng.integers(0, 6, (rows, 2)), strict=True):
        image[(slice(row, row + 3), column + 1) if up else (row + 1, slice(column, column + 3))] += 1
    return {"x": images.reshape(rows, 64), "y": upright}


def by_country() -> dict[str, Any]:
    """Days of six countries, whose numbers of people do not change."""
    people = np.random.default_rng(1).uniform(2, 20, 6)
    country = np.repeat(np.arange(6), 40)
    names = np.array(["Atlantis", "Erewhon", "Laputa", "Lilliput", "Ruritania", "Utopia"])
    return {"country": names[country], "day": np.tile(np.arange(0, 120, 3.0), 6), "population": people[country]}


def by_county() -> dict[str, Any]:
    """Homes in twelve counties, each with its uranium."""
    rng = np.random.default_rng(1)
    county, uranium = rng.integers(0, 12, 150), rng.normal(0, 1, 12)
    return {"county": county, "floor": rng.integers(0, 2, 150), "uranium": uranium[county]}


def by_subject() -> dict[str, Any]:
    """Ten days of twelve subjects."""
    return {"subject": np.repeat(np.arange(1, 13), 10), "day": np.tile(np.arange(10), 12)}


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "epidemic": by_country,
    "radon": by_county,
    "sleep_study": by_subject,
}
"""Inputs for which the others would be a strange draw."""


def forked(rows: int) -> dict[str, np.ndarray]:
    """Two branches, which an input alone cannot tell apart."""
    rng = np.random.default_rng(0)
    x, branch = rng.uniform(-2, 2, rows), rng.choice([-1, 1], rows)
    return {"x": x, "y": branch * np.clip(x, 0, None) + 0.1 * rng.standard_normal(rows)}


def data_of(name: str, model: Any, shown: Shown) -> tuple[Any, str]:
    """What a model is fitted to, and words for it."""
    if name == "coal_mining":
        with (HERE.parent / "examples" / "data" / "coal_mining_disasters.csv").open(encoding="utf-8") as file:
            years, counts = zip(*[(float(r["year"]), float(r["disasters"])) for r in csv.DictReader(file)], strict=True)
        return {"x": np.asarray(years), "n": np.asarray(counts)}, "British coal-mining disasters, 1851 to 1961, by year"
    if name == "eight_schools":
        return SCHOOLS, "the effects of coaching in eight schools (Rubin 1981)"
    if name == "convolutional":
        return windows(120), "40 rows of each instrument, of white noise through windows of widths 0.2, 0.5 and 1"
    if name == "integral":
        return totals(40), "40 totals over intervals that follow one another, of a rate of 1 + sin(t)"
    if name == "image_convolutional":
        return bars(120), "120 images with a bar each, upright (1) or not (0), on noise"
    if name == "deep_latent":
        return forked(120), "120 rows, half of which go up from zero and half down"
    if name in GIVEN:
        drawn = model.sample_prior(inputs=GIVEN[name](), seed=shown.seed)
        return (
            drawn.data,
            f"the output is drawn from the model, for inputs of {len(next(iter(drawn.data.values())))} rows",
        )
    drawn = model.sample_prior(rows=shown.rows, seed=shown.seed, sizes=shown.sizes)
    sizes = f", sizes={dict(shown.sizes)}" if shown.sizes else ""
    how = f"`sample_prior(rows={shown.rows}, seed={shown.seed}{sizes})`"
    return drawn.data, f"{shown.rows} rows drawn from the model itself, {how}"


def save(figure: Any, path: Path) -> None:
    """A PNG of few colours, coarser until it is small."""
    from PIL import Image

    for dots in (80, 65, 50, 40, 30):
        figure.savefig(path, dpi=dots)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f"{path} is larger than {LARGEST} bytes")


def entry(name: str) -> Iterator[str]:
    """The part of the page about one model; its picture is written."""
    import gpdsl
    from gpdsl.results.summary import evidence_word

    shown = SHOWN.get(name, Shown())
    externals = dict.fromkeys(gpdsl.zoo(name).declarations.externals, travel_time)
    model, text = gpdsl.zoo(name, externals=externals), gpdsl.zoo_text(name).strip()
    opening = takewhile(lambda line: line.startswith("#"), text.splitlines())
    head = [re.sub(" +", " ", line.lstrip("# ")) for line in opening]
    data, words = data_of(name, model, shown)
    yield f"## {name}\n\n{model.title}. {' '.join(head)}\n"
    began = time.perf_counter()
    try:
        fit = model.fit(data, seed=0, **shown.fit)
    except gpdsl.GpdslError as problem:
        yield f"Drawn and checked, not fitted: {str(problem).splitlines()[0]}.\n"
    else:
        took = time.perf_counter() - began
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gpdsl.GpdslWarning)
            figure = fit.plot(data, names=shown.names, kind=shown.kind)
        save(figure, PICTURES / f"{name}.png")
        yield f"![{model.title}](gallery/{name}.png)\n"
        yield f"Data: {words}. Fitted in {took:.0f} s; {evidence_word(fit)} {fit.elbo:.1f} nats.\n"
    yield f"```gpm\n{text}\n```\n"


def main(names: list[str]) -> None:
    """Rewrite the page, or the parts of it about some models."""
    import gpdsl

    PICTURES.mkdir(exist_ok=True)
    page = HERE / "gallery.md"
    before = page.read_text(encoding="utf-8").split("\n## ") if page.exists() else []
    parts = {part.split("\n", 1)[0]: f"## {part}" for part in before[1:]}
    for name in names or gpdsl.zoo_names():
        sys.stderr.write(f"{name}\n")
        parts[name] = "\n".join(entry(name))
    ordered = [parts[name].strip() for name in gpdsl.zoo_names() if name in parts]
    page.write_text("\n\n".join([HEAD, *ordered]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
