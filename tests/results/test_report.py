"""The report: one page that needs nothing else, in which nothing of the user's is markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import main
from gpdsl.cli.saved import KINDS
from gpdsl.results.pictures.plot import KINDS as PICTURES
from gpdsl.results.report import _parameters, _spread, advice, report
from tests.inference.problems import unlearnt

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
MODEL = gpdsl.compile("""
model evil "a <script>alert(0)</script> & $x$"
# </pre><script>alert(3)</script>
input x : real
output n : count
output y : real
param a : real = 0 ~ Normal(0, 1)
param s : positive = 0.3
param unused : positive = 1
latent f(x) ~ GP(0, RBF(1))
n ~ Poisson(exp(f + a))
y ~ Normal(f, s)
""")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng, x = np.random.default_rng(0), np.linspace(0, 4, 40)
    y = np.sin(x) + 0.05 * rng.normal(size=40)
    y[7] = 2.0
    return {EVIL: x, "n": rng.poisson(np.exp(np.sin(x))), "y": y}


@pytest.fixture(scope="module")
def fit(data: dict[str, np.ndarray]) -> gpdsl.Fit:
    return unlearnt(MODEL, data, columns={"x": EVIL}, init={"s": 0.1}, fixed=["s"])


@pytest.fixture(scope="module")
def page(fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> str:
    return report(fit, data)


def test_nothing_of_the_users_is_markup_and_nothing_is_asked_for(page: str) -> None:
    tags = Tags(page)
    names = [name for name, _ in tags.found]
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(names)
    attributes = [each for _, each in tags.found]
    assert not any(key.startswith("on") or key == "style" for each in attributes for key in each)
    assert {str(each[key])[:11] for each in attributes for key in ("src", "href") if key in each} <= {
        "data:image/",
        *(f"#{anchor}" for anchor in ("next", "pictures", "model", "data", "fit")),
    }
    assert "<script>alert(0)" in tags.text and EVIL in tags.text and "</pre><script>alert(3)" in tags.text
    assert names.count("img") == 7  # curves, residuals, calibration, counts, bound, parameters, and the graph


def test_the_policy_allows_the_style_of_the_page_and_its_images_alone(page: str) -> None:
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    policy = dict(Tags(page).found[3][1])["content"]
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_pictures_are_whole_and_name_no_other_place(page: str) -> None:
    for raw in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page):
        drawing = ElementTree.fromstring(base64.b64decode(raw))
        links = [value for each in drawing.iter() for key, value in each.attrib.items() if key.endswith("href")]
        assert all(link.startswith(("#", "data:")) for link in links)
        assert not any(each.tag.endswith("script") for each in drawing.iter())


def test_it_says_what_to_look_at(page: str, fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> None:
    text = Tags(page).text
    assert re.search(r"\d+ values? of `y` lies? further off than a normal residual of 4.5", text)
    assert "`unused`" in text and "stopped at the limit of steps" in text
    assert "40 rows of data: the rows that were fitted." in text
    assert f"{fit.elbo:.4f} nats" in text and f"{float(fit.parameters['a']):.5g}" in text
    other = Tags(report(fit, {**data, "y": data["y"] + 1})).text
    assert "not the 40 rows that were fitted" in other
    assert "no data were given" in Tags(report(fit)).text


def test_the_same_fit_gives_the_same_page(page: str, fit: gpdsl.Fit, data: dict[str, np.ndarray]) -> None:
    assert report(fit, data) == page


def test_it_is_written(fit: gpdsl.Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit.save(tmp_path / "a.gpfit")
    (tmp_path / "d.csv").write_text("where,n,y\n" + "\n".join(f"{x},1,0.5" for x in range(4)) + "\n")
    command = ["report", str(tmp_path / "a.gpfit"), "--data", str(tmp_path / "d.csv"), "--column", "x=where"]
    assert main([*command, "--out", str(tmp_path / "r.html")]) == 0
    assert "<td>where</td>" in (tmp_path / "r.html").read_text()
    assert main([*command, "--out", str(tmp_path / "r.pdf")]) == 1
    assert "expected a name ending in .html, got r.pdf" in capsys.readouterr().err


def test_a_picture_is_drawn_from_the_command_line(
    fit: gpdsl.Fit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit.save(tmp_path / "a.gpfit")
    (tmp_path / "d.csv").write_text("where,n,y\n" + "\n".join(f"{x},1," for x in range(4)) + "\n")
    command = ["plot", str(tmp_path / "a.gpfit"), "--data", str(tmp_path / "d.csv"), "--column", "x=where"]
    assert main([*command, "--name", "y", "--out", str(tmp_path / "r.svg")]) == 0
    assert "<svg" in (tmp_path / "r.svg").read_text()
    assert main([*command[:2], "--kind", "bound", "--out", str(tmp_path / "b.png")]) == 0
    assert (tmp_path / "b.png").read_bytes()[1:4] == b"PNG"
    capsys.readouterr()
    for words, said in (
        (["--out", str(tmp_path / "r.html")], "expected a name ending in .png"),
        (["--name", "z", "--out", str(tmp_path / "r.png")], "there is no 'z'; expected one of f, n, y"),
    ):
        assert main([*command, *words]) == 1
        assert said in capsys.readouterr().err
    assert set(KINDS) == set(PICTURES)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_browser_shows_it_and_asks_nobody(page: str, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    path, log = tmp_path / "r.html", tmp_path / "net.json"
    path.write_text(page)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--log-net-log={log}"]
    for each in (f"--screenshot={tmp_path}/r.png", f"--print-to-pdf={tmp_path}/r.pdf"):
        command = [CHROMIUM, *options, f"--user-data-dir={tmp_path}/u", each, path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "CONSOLE" not in done.stderr  # the policy was not broken
        events = json.loads(log.read_text())["events"]
        asked = {event["params"]["url"] for event in events if "url" in event.get("params", {})}
        own = ("google", "gvt1")  # what the browser asks for itself
        assert not [url for url in asked if url.startswith("http") and not any(each in url for each in own)]
    assert (tmp_path / "r.png").stat().st_size > 20_000 and (tmp_path / "r.pdf").read_bytes()[:4] == b"%PDF"


def test_rows_that_do_not_vary_and_models_without_inputs() -> None:
    model = gpdsl.compile("output y : real\nparam m : real\nparam s : positive\ny ~ Normal(m, s)")
    assert "Learnt values" in report(model.fit({"y": [1.0, 2.0, 4.0]}, steps=2), {"y": [1.0, 2.0, 4.0]})
    with pytest.raises(gpdsl.GpdslError, match="no input varies in these rows"):
        MODEL.fit({"x": [1.0], "n": [2], "y": [0.5]}, steps=1).plot()


def test_it_says_what_the_diagnosis_doubts_and_how_much_was_checked() -> None:
    x = np.linspace(0, 4, 30)
    data = {"x": x, "y": np.sin(x) + 0.3 * np.random.default_rng(1).normal(size=30)}
    text = (
        "input x : real\noutput y : real\nparam s : positive = 0.3\nlatent f(x) ~ GP(0, RBF({ell}))\ny ~ Normal(f, s)"
    )
    constant, right = (gpdsl.compile(text.format(ell=ell)).fit(data) for ell in (3000, 1))
    said = Tags(report(constant)).text
    doubts = [each.doubt for each in constant.diagnose().doubtful if each.name != "note"]
    assert doubts
    assert all(each in said for each in doubts)
    assert "start it elsewhere" in said
    assert "Nothing was noted" not in said
    looked = sum(each.verdict != "open" for each in right.diagnose())
    assert f"none of {looked} checks says that it is to be doubted" in Tags(report(right)).text


@pytest.mark.parametrize(
    ("message", "shown"),
    [("converged; best of 2 starts (nats below it: 0.0 from the first start)", 0), ("12 steps; no step gains", 1)],
)
def test_one_of_several_starts_is_nothing_to_look_at(fit: gpdsl.Fit, message: str, shown: int) -> None:
    said = advice(replace(fit, message=message), None)
    assert sum("The optimiser ended so" in each for each in said) == shown


@pytest.mark.slow
def test_averaged_parameters_are_told_by_their_means_and_labels_by_their_words() -> None:
    data = {"g": np.array(["oak", "yew"])[np.arange(12) % 3 // 2], "y": np.linspace(1, 2, 12)}
    model = gpdsl.compile(
        "index s in 1..S\ninput g : label[s]\noutput y : real\nparam m : real ~ Normal(0, 5)\n"
        "param a[s] : real ~ Normal(m, 1)\ny ~ Normal(a[g], 0.5)\n"
    )
    drawn = model.fit(data, hyperparameters="integrated")
    page = report(drawn, data)
    assert drawn.settings is not None
    assert f'<td>m</td><td class="number">{float(drawn.settings.mean("m")):.5g}</td><td>its mean</td>' in page
    assert "<td>oak (8), yew (4)</td>" in page


def test_columns_are_told_by_what_they_span_and_parameters_up_to_so_many(
    fit: gpdsl.Fit, data: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([0.5, 4.0, 1.0, 2.5])
    found = _spread(fit, fit.bind(data, None, outputs=True), "x", x)
    assert found == ("0.5", "1.75", "2", "4", f"{np.std(x):.4g}")
    assert "more</p>" not in _parameters(fit)
    monkeypatch.setattr("gpdsl.results.report.MOST", 2)
    assert "<p>and 1 more</p>" in _parameters(fit)


def test_labels_are_told_by_how_often_each_is_met_up_to_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of inputs count from 1; of nothing nothing is told."""
    given = {"site": SimpleNamespace(label=SimpleNamespace(name="s"), unit="")}
    program = SimpleNamespace(declarations=SimpleNamespace(outputs={}, inputs=given))
    known: Any = SimpleNamespace(program=program, calendar=None)
    data: Any = SimpleNamespace(every_level={"s": ("oak", "yew", "elm")})
    values = np.array([1.0, 3, 3, 2, 2, 2])
    rest = ("–",) * 4
    assert _spread(known, data, "site", values) == ("yew (3), elm (2), oak (1)", *rest)
    monkeypatch.setattr("gpdsl.results.report.LEVELS", 2)
    assert _spread(known, data, "site", values) == ("yew (3), elm (2), …", *rest)
    assert _spread(known, data, "site", values[:0]) == ("–", *rest)
