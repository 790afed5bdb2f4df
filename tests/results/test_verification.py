"""Files that say what no fit says are errors when they are loaded, not later, and not different predictions."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpdsl
from gpdsl.errors import Damaged
from gpdsl.program.parameters import bijector
from gpdsl.results.verification import _inside, check_same
from tests.campaign import edited_fits
from tests.campaign.edited_fits import Kept


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    with pytest.MonkeyPatch.context() as patch:
        models = {name: edited_fits.MODELS[name] for name in ("exact", "labels", "counts")}
        asked = {name: (text, {"diagnose": "no", **choices}) for name, (text, choices) in models.items()}
        patch.setattr(edited_fits, "MODELS", asked)
        patch.setattr(edited_fits, "predictions", lambda *_: {})  # nothing is predicted from what is damaged
        return edited_fits.kept_fits(tmp_path_factory.mktemp("fits"))


HEADERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "no rows": ("rows", lambda _: 0),
    "half a row": ("rows", lambda _: 11.5),
    "rows beside the arrays": ("rows", lambda n: n + 1),
    "a bound that is none": ("elbo", lambda _: float("nan")),
    "a truth that is a number": ("interrupted", lambda _: 0),
    "notes that are numbers": ("notes", lambda _: [3]),
    "a message that is a list": ("message", lambda _: ["converged"]),
    "a size too many": ("sizes", lambda sizes: sizes | {"Q": 2}),
    "a size beyond reason": ("sizes", lambda sizes: dict.fromkeys(sizes, 10**12)),
    "another size": ("sizes", lambda sizes: {name: n + 1 for name, n in sizes.items()}),
    "columns of nothing": ("columns", lambda _: {"z": "a"}),
    "a column that is a number": ("columns", lambda _: {"x": 3}),
    "an option left out": ("options", lambda o: {n: v for n, v in o.items() if n != "seed"}),
    "an option of nothing": ("options", lambda o: o | {"dtype": None}),
    "another precision": ("options", lambda o: o | {"dtype": "float32"}),
    "another engine": ("options", lambda o: o | {"engine": "qsgp"}),
    "an option beyond numbers": ("options", lambda o: o | {"seed": 10**30}),
    "samples of a truth": ("options", lambda o: o | {"steps": True}),
    "another family": ("choice", lambda c: c | {"posterior": "mixture(3)"}),
    "no family": ("choice", lambda c: c | {"posterior": "best"}),
    "reasons without reason": ("choice", lambda c: c | {"reasons": {"batch": 1}}),
    "points of another kind": ("inducing", lambda each: [["derivatives", [0]] for _ in each]),
    "points of nothing": ("inducing", lambda each: each[:-1]),
    "other expectations": ("methods", lambda _: ["sampled by hand"]),
    "calls below nothing": ("usage", lambda u: u | {"evaluations": -1}),
    "a model with a mistake": ("model", lambda text: text.replace("GP(", "PG(")),
    "something else": ("more", lambda _: 1),
    "text too deep": ("model", lambda text: text + "\nlet q = " + "(" * 5000 + "1" + ")" * 5000),
}


def test_steps_of_a_mixture_are_counted_from_its_first_to_its_last(kept: dict[str, Kept]) -> None:
    """Three with equal weights, as many as are asked for, and after these, one at least, with weights that are free."""
    steps = {kind: fit.arrays["history"][:, 0].tolist() for kind, fit in kept.items()}
    assert steps == {"exact": [1, 2, 3], "labels": [1, 2, 3, 4], "counts": [1, 2, 3]}


@pytest.mark.parametrize("kind", ["exact", "labels"])
@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_no_fit_has_is_an_error(kind: str, name: str, kept: dict[str, Kept], tmp_path: Path) -> None:
    if (kind, name) == ("labels", "rows beside the arrays"):
        pytest.skip("where there are inducing points nothing else tells the number of rows")
    fit, (key, change) = kept[kind], HEADERS[name]
    header = copy.deepcopy(fit.header)
    header[key] = change(header.get(key))
    (tmp_path / "a.gpfit").write_bytes(fit.blob(header, fit.arrays))
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


@pytest.mark.parametrize("columns", [{}, {"n": "time"}, {"t": "time", "n": "deaths"}, {"t": []}, {"t": ["time", "n"]}])
def test_a_renamed_input_stays_renamed(columns: dict[str, Any], kept: dict[str, Kept], tmp_path: Path) -> None:
    """Without its column the fit would load, and no table that it could be given would do."""
    fit = kept["counts"]
    assert fit.header["columns"] == {"t": "time"}
    (tmp_path / "a.gpfit").write_bytes(fit.blob(fit.header | {"columns": columns}, fit.arrays))
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged: (renamed|columns)"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_a_full_posterior_of_one_latent_is_not_coupled(kept: dict[str, Kept], tmp_path: Path) -> None:
    """Nothing in the arrays tells one from the other where there is one latent."""
    fit = kept["counts"]
    assert fit.header["choice"]["posterior"] == "full"
    changed = fit.header | {"choice": fit.header["choice"] | {"posterior": "coupled"}}
    (tmp_path / "a.gpfit").write_bytes(fit.blob(changed, fit.arrays))
    with pytest.raises(gpdsl.GpdslError, match="no observation mixes latents"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


ARRAYS: dict[str, tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = {
    "a parameter below its domain": ("exact", "parameter.s", lambda a: -a),
    "a parameter of another shape": ("exact", "parameter.ell", lambda a: a[:1]),
    "a parameter of whole numbers": ("exact", "parameter.a", lambda a: a.astype(int)),
    "a parameter that is no number": ("exact", "parameter.a", lambda a: a * np.nan),
    "points without a column": ("exact", "inducing.0.0", lambda a: a[:, :1]),
    "weights that do not add up": ("labels", "weights", lambda a: 2 * a),
    "weights below nothing": ("labels", "weights", lambda a: a + [-2.0, 2.0]),
    "one weight": ("labels", "weights", lambda a: a[:1]),
    "a root without a row": ("labels", "root.0", lambda a: a[..., :-1, :]),
    "means of one component": ("labels", "mean.0", lambda a: a[:1]),
    "means in single precision": ("labels", "mean.0", lambda a: a.astype(np.float32)),
    "weights in single precision": ("labels", "weights", lambda a: a.astype(np.float32)),
    "weights of weights": ("exact", "weights", lambda a: a[None]),
    "points in half precision": ("exact", "inducing.0.0", lambda a: a.astype(np.float16)),
    "places between rows": ("exact", "regression.0.elements", lambda a: a.astype(float)),
    "half a history": ("exact", "history", lambda a: a[:, :2]),
    "truths": ("labels", "root.0", lambda a: a > 0),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_no_fit_has_are_an_error(name: str, kept: dict[str, Kept], tmp_path: Path) -> None:
    kind, key, change = ARRAYS[name]
    arrays = kept[kind].arrays | {key: change(kept[kind].arrays[key])}
    (tmp_path / "a.gpfit").write_bytes(kept[kind].blob(kept[kind].header, arrays))
    with pytest.raises(gpdsl.GpdslError, match="a.gpfit is damaged"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


@pytest.mark.parametrize("order", [["ash", "ash", "yew"], ["ash", "oak"]])
def test_levels_are_as_many_different_ones_as_the_data_had(order: list, kept: dict[str, Kept], tmp_path: Path) -> None:
    fit = kept["labels"]
    assert fit.header["levels"] == {"c": ["ash", "oak", "yew"]}
    (tmp_path / "a.gpfit").write_bytes(fit.blob(fit.header | {"levels": {"c": order}}, fit.arrays))
    with pytest.raises(gpdsl.GpdslError, match="levels of c"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_a_file_that_was_changed_has_another_checksum(kept: dict[str, Kept], tmp_path: Path) -> None:
    """A number that could be the fit's own is told by nothing else."""
    fit = kept["exact"]
    arrays = fit.arrays | {"parameter.s": fit.arrays["parameter.s"] * 1.0001}
    known = edited_fits.checksum(json.dumps(fit.header), fit.arrays)
    (tmp_path / "a.gpfit").write_bytes(fit.blob(fit.header, arrays, known))
    with pytest.raises(gpdsl.GpdslError, match="checksum"):
        gpdsl.load_fit(tmp_path / "a.gpfit")


def test_a_header_that_is_too_deep_to_read_is_an_error(kept: dict[str, Kept], tmp_path: Path) -> None:
    from safetensors.numpy import save

    for text in ("[" * 200_000, '{"format": 1' + "0" * 5000 + "}", "null", '"text"', '{"format": true}'):
        (tmp_path / "a.gpfit").write_bytes(save(kept["exact"].arrays, {"gpdsl": text}))
        with pytest.raises(gpdsl.GpdslError):
            gpdsl.load_fit(tmp_path / "a.gpfit")


def test_rounding_at_the_ends_of_a_domain_is_no_damage() -> None:
    """In single precision a sigmoid ends at 1, and the elements of a simplex add up to a little less or more."""
    unit, positive, simplex, ordered = (bijector(name) for name in ("unit", "positive", "simplex", "ordered"))
    assert _inside(unit, np.array([0.0, 0.5, 1.0])) and not _inside(unit, np.array([0.5, 1.1]))
    assert _inside(positive, np.array(0.0)) and not _inside(positive, np.array(-1e-3))
    assert _inside(simplex, np.array([0.7, 0.3 + 2e-6, 0.0])) and not _inside(simplex, np.array([0.7, 0.31]))
    assert _inside(ordered, np.array([1.0, 1.0, 2.0])) and not _inside(ordered, np.array([1.0, 0.9, 2.0]))
    assert not _inside(positive, np.array(np.inf)) and not _inside(bijector("real"), np.array(np.nan))


def test_a_few_edits_at_random(kept: dict[str, Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of the campaign; `python -m tests.campaign --only edited_fits` is the long one."""
    monkeypatch.setattr(edited_fits, "kept_fits", lambda _: kept)
    counts = edited_fits.run(0.003, seed=5)
    assert counts["tried"] == 30 and counts["raw"] == counts["wrong"] == 0
    assert counts["refused"] > 15


def test_what_is_as_it_should_be_is_not_put_into_words() -> None:
    """Words for each array take longer than all else that is read, where there are hundreds."""

    class Silent(np.ndarray):
        def __repr__(self) -> str:
            raise AssertionError

    kept = {"mean": np.zeros(3).view(Silent)}
    check_same(kept, kept)
    with pytest.raises(Damaged, match="mean is of type Silent: expected ndarray"):
        check_same(kept, {"mean": np.zeros(3)})
