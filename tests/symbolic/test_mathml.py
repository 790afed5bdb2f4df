"""LaTeX of the printer as MathML: well formed, complete, and nothing of the user's is markup."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gpdsl
from gpdsl.symbolic.latex.document import web
from gpdsl.symbolic.latex.mathml import lines_of, mathml

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "golden" / "latex").glob("*.tex"))


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("x", "<mi>x</mi>"),
        (r"\sigma_n^2", "<msubsup><mi>σ</mi><mi>n</mi><mn>2</mn></msubsup>"),
        (r"\frac{a}{2}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        (r"\mathrm{a\_b}", '<mi mathvariant="normal">a_b</mi>'),
        (r"\mathbf{x}'", '<msup><mi mathvariant="normal" class="bold">x</mi><mo>′</mo></msup>'),
        (r"\text{<b> & c}", "<mtext>&lt;b&gt;\N{NO-BREAK SPACE}&amp;\N{NO-BREAK SPACE}c</mtext>"),
        ("1 - 2", "<mn>1</mn><mo>−</mo><mn>2</mn>"),
        (r"\left(-1\right)", '<mrow><mo fence="true" stretchy="true">(</mo><mrow><mo form="prefix">−</mo>'
         '<mn>1</mn></mrow><mo fence="true" stretchy="true">)</mo></mrow>'),
        (r"\sum_{i=1}^{3} b", '<munderover><mo>∑</mo><mrow><mi>i</mi><mo form="infix">=</mo><mn>1</mn></mrow>'
         "<mrow><mn>3</mn></mrow></munderover><mi>b</mi>"),
        (r"\mathrm{Gamma}", '<mi mathvariant="normal">Gamma</mi>'),
    ],
)  # fmt: skip
def test_a_formula(text: str, inside: str) -> None:
    assert mathml(text) == f"<math><mrow>{inside}</mrow></math>"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_all_that_the_printer_writes_is_known(path: Path) -> None:
    blocks = re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end\{align\*\}", path.read_text(), re.DOTALL)
    for block in blocks:
        found = lines_of(block)
        ElementTree.fromstring(found)
        assert "\\" not in found and "$" not in found
        relations = len(re.findall(r"&(?:\\sim|=)", block))
        assert len(re.findall(r'<mo form="infix">[∼=]</mo>', found)) >= relations


def test_a_model_is_a_fragment_without_scripts_and_styles() -> None:
    text = """
    model hostile "a <script> & $x$"
    index c in {"<img src=x onerror=alert(1)>", "b$"}
    input x : real
    output y : label[c]
    latent f[c](x) ~ GP(0, RBF(1))
    y ~ Categorical(logits = f)
    """
    found = web(gpdsl.compile(text).declarations)
    ElementTree.fromstring(f"<div>{found}</div>")
    assert "&lt;img src=x onerror=alert(1)&gt;" in found.replace("\N{NO-BREAK SPACE}", " ")
    assert not re.search(r"<(script|img|style)", found) and " style=" not in found
