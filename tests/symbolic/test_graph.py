"""Graphical models: the right arrows, plates around the right nodes, nothing drawn over anything else."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

import gpdsl
from gpdsl.errors import GpdslError
from gpdsl.language import compile_text
from gpdsl.symbolic.graph import graph
from gpdsl.symbolic.graph.layout import Layout, isotonic, lay_out
from gpdsl.symbolic.graph.network import ROWS, Label, Network, Node, Plate, label_of, label_width, layers_of, network
from tests.goldens import assert_golden

EVERYTHING = Path(__file__).with_name("everything.gpm").read_text()
MODELS = {name: gpdsl.zoo_text(name) for name in gpdsl.zoo_names()} | {"everything": EVERYTHING}
SVG = "{http://www.w3.org/2000/svg}"


def of(name: str) -> Network:
    return network(compile_text(MODELS[name]))


def arrows_of(name: str) -> set[str]:
    return {f"{a} > {b}" for a, b in of(name).arrows}


def plates_of(name: str) -> dict[str, set[str]]:
    return {key: set(node.plates) for key, node in of(name).nodes.items()}


# --- what depends on what ---------------------------------------------------------------------------------------


def test_the_network_of_regression_networks() -> None:
    expected = {"x > g", "x > w", "ell_g > g", "ell_w > w", "g > y", "w > y", "sigma > y"}
    assert arrows_of("gprn") == expected
    assert plates_of("gprn") == {
        "ell_g": set(),
        "ell_w": set(),
        "sigma": {"p"},
        "x": {ROWS},
        "g": {ROWS, "q"},
        "w": {ROWS, "p", "q"},
        "y": {ROWS, "p"},
    }


def test_an_opaque_function_stands_between_its_arguments_and_what_it_computes() -> None:
    found = arrows_of("seismic_external")
    assert {"depth > external travel_time", "velocity > external travel_time", "external travel_time > tau"} <= found
    assert "depth > tau" not in found


def test_recursion_draws_no_arrow_from_a_node_to_itself() -> None:
    assert all(a != b for a, b in of("seismic").arrows)
    assert "depth > tau" in arrows_of("seismic")


def test_places_transforms_layers_and_row_variables() -> None:
    assert {"a > f", "b > advantage", "f > advantage"} <= arrows_of("preference")
    assert {"a > y", "b > y", "c > y"} <= arrows_of("creep")
    assert {"x > h", "h > f", "f > y"} <= arrows_of("deep_gp")
    assert "w > f" in arrows_of("latent_variable")


def test_components_and_densities() -> None:
    found = arrows_of("everything")
    assert {"w0 > m1", "h > m1", "h > v2", "total > u", "g > u", "cut > r", "f > t", "s2_f > f"} <= found


def test_what_nothing_reads_is_not_drawn() -> None:
    text = "param unused : real\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n"
    assert set(network(compile_text(text)).nodes) == {"x", "f", "y"}


# --- the drawing ------------------------------------------------------------------------------------------------


def inside(layout: Layout, plate: str, key: str) -> bool:
    placed = layout.nodes[key]
    boxes = [box for box in layout.boxes if box.plate.key == plate]
    return any(box.left < placed.x < box.right and box.top < placed.y < box.bottom for box in boxes)


def assert_well_drawn(layout: Layout) -> None:
    for plate, node in itertools.product(layout.network.plates, layout.network.nodes.values()):
        assert inside(layout, plate.key, node.key) == (plate.key in node.plates), (plate.key, node.key)
    for one, two in itertools.combinations(layout.nodes.values(), 2):
        apart = abs(one.x - two.x) >= one.rx + two.rx or abs(one.y - two.y) >= one.ry + two.ry
        assert apart, (one.node.key, two.node.key)
    for box, place in zip(layout.boxes, layout.captions, strict=True):
        assert box.left <= place[0] and place[2] <= box.right, box.plate.key
        for placed in layout.nodes.values():
            across = place[0] < placed.x + placed.rx and placed.x - placed.rx < place[2]
            assert not (across and place[1] < placed.y + placed.ry and placed.y - placed.ry < place[3])
    for one, two in itertools.combinations(layout.captions, 2):
        assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]


@pytest.mark.parametrize("name", MODELS)
def test_plates_hold_their_nodes_and_nothing_overlaps(name: str) -> None:
    assert_well_drawn(lay_out(of(name)))


@pytest.mark.parametrize("name", MODELS)
def test_causes_stand_above_their_effects_among_what_varies_by_row(name: str) -> None:
    found = of(name)
    layers = layers_of(found)
    inner = [(a, b) for a, b in found.arrows if ROWS in found.nodes[a].plates and ROWS in found.nodes[b].plates]
    assert all(layers[a] < layers[b] for a, b in inner)


@pytest.mark.parametrize("name", MODELS)
def test_the_drawing_is_svg_with_everything_in_it(name: str) -> None:
    found = of(name)
    root = ET.fromstring(graph(compile_text(MODELS[name])))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    left, top, across, down = map(float, root.get("viewBox", "").split())
    assert (round(across), round(down)) == (width, height)
    drawn = {each.get("data-arrow") for each in root.iter(f"{SVG}path") if each.get("data-arrow")}
    assert drawn == {f"{a} -> {b}" for a, b in found.arrows}
    titles = {each.text for each in root.iter(f"{SVG}title")}
    assert {node.tooltip for node in found.nodes.values()} <= titles
    shown = " ".join("".join(each.itertext()) for each in root.iter(f"{SVG}text"))
    assert all(plate.label in shown for plate in found.plates)
    for text in root.iter(f"{SVG}text"):
        assert left <= float(text.get("x", "nan")) <= left + across
        assert top <= float(text.get("y", "nan")) <= top + down


def test_the_same_model_is_drawn_the_same_in_every_process() -> None:
    code = "import gpdsl; print(*(gpdsl.zoo(name).graph() for name in ('creep', 'multitask', 'student_t')))"
    own = " ".join(gpdsl.zoo(name).graph() for name in ("creep", "multitask", "student_t"))  # of whatever hashes here
    drawn = {f"{own}\n".encode()} | {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(drawn) == 1


def test_names_and_titles_are_escaped() -> None:
    text = 'model m "a < b & \\"c"\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\n'
    text = text.replace('\\"', "'")
    assert ET.fromstring(graph(compile_text(text))).findtext(f"{SVG}title") == "a < b & 'c"


@pytest.mark.parametrize("name", ["gprn", "seismic_external"])
def test_expected_descriptions_for_graphviz(name: str) -> None:
    assert_golden(f"graph/{name}.dot", graph(compile_text(MODELS[name]), "dot").rstrip("\n"))


@pytest.mark.parametrize("name", MODELS)
def test_descriptions_for_graphviz_name_every_node_once(name: str) -> None:
    text, found = graph(compile_text(MODELS[name]), "dot"), of(name)
    assert text.count("{") == text.count("}")
    for key in found.nodes:
        assert sum(line.strip().startswith(f'"{key}" [') for line in text.splitlines()) == 1
    assert text.count(" -> ") == len(found.arrows)


def test_a_format_must_be_known() -> None:
    with pytest.raises(GpdslError, match="format: expected 'svg' or 'dot', not 'png'"):
        gpdsl.zoo("boston").graph("png")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("sigma", Label("σ", italic=True)),
        ("ell_g", Label("ℓ", "g", italic=True)),
        ("s2_f", Label("s", "f", "2", italic=True)),
        ("depth0", Label("depth", "0")),
        ("travel_time", Label("travel_time")),
        ("x1", Label("x", "1", italic=True)),
    ],
)
def test_labels(name: str, label: Label) -> None:
    assert label_of(name) == label


@given(st.lists(st.integers(-20, 20).map(float), max_size=9))
def test_isotonic_regression_is_the_nearest_increasing_sequence(values: list[float]) -> None:
    found = isotonic(values)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(found))
    assert sum(found) == pytest.approx(sum(values))
    # The conditions of optimality: no block can move down or up alone.
    for k in range(len(values)):
        assert sum(values[: k + 1]) >= sum(found[: k + 1]) - 1e-9


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Any acyclic network with up to two indices, in which what depends on rows varies by row."""
    count = draw(st.integers(1, 9))
    nodes: dict[str, Node] = {}
    arrows: list[tuple[str, str]] = []
    for k in range(count):
        causes = draw(st.lists(st.sampled_from(sorted(nodes)), max_size=3, unique=True)) if nodes else []
        rows = any(ROWS in nodes[each].plates for each in causes) or draw(st.booleans())
        plates = draw(st.sets(st.sampled_from(["p", "q"]))) | ({ROWS} if rows else set())
        kind = draw(st.sampled_from(["latent", "let", "output", "row", "input"] if rows else ["param", "const", "let"]))
        name = draw(st.sampled_from(["f", "sigma", "long_name", "velocity0"])) + f"_{k}"
        nodes[name] = Node(name, kind, label_of(name), frozenset(plates), name)
        arrows += [(each, name) for each in causes]
    used = {key for node in nodes.values() for key in node.plates}
    plates_ = tuple(Plate(key, f"{key[0]} = 1, …, 9") for key in (ROWS, "p", "q") if key in used)
    return Network("m", "", nodes, tuple(arrows), plates_)


def _node(key: str, kind: str, *plates: str) -> Node:
    return Node(key, kind, label_of(key), frozenset(plates), key)


PLATES_IN_PLATES = Network(
    "m",
    "",
    {
        node.key: node
        for node in (
            _node("sigma_0", "param", "p"),
            _node("f_1", "param"),
            _node("f_2", "latent", ROWS),
            _node("f_3", "param"),
            _node("f_4", "latent", "p", "q", ROWS),
            _node("f_5", "latent", "q", ROWS),
        )
    },
    (("f_1", "f_5"), ("f_2", "f_5")),
    tuple(Plate(key, f"{key[0]} = 1, …, 9") for key in (ROWS, "p", "q")),
)
"""The plate of the rows reached over what stands below it."""


@given(networks())
@example(PLATES_IN_PLATES)
@settings(max_examples=150, deadline=None)
def test_random_networks_are_drawn_well(found: Network) -> None:
    layout = lay_out(found)
    for plate, node in itertools.product(found.plates, found.nodes.values()):
        assert inside(layout, plate.key, node.key) == (plate.key in node.plates)
    for one, two in itertools.combinations(layout.nodes.values(), 2):
        assert abs(one.x - two.x) >= one.rx + two.rx or abs(one.y - two.y) >= one.ry + two.ry


def test_a_drawing_takes_time_in_proportion_to_the_model() -> None:
    count = 1200
    lines = [f"param a{k} : positive = 1" for k in range(count)]
    sums = [" + ".join(f"a{j}" for j in range(k, k + 60)) for k in range(0, count, 60)]
    lines += [f"let z{k} = {each}" for k, each in enumerate(sums)]
    total = " + ".join(f"z{k}" for k in range(len(sums)))
    head = "model m\ninput x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))"
    model = gpdsl.compile("\n".join([head, *lines, f"y ~ Normal(f + {total}, 1)"]))
    start = time.process_time()
    drawn = model.graph()
    assert time.process_time() - start < 4  # it took 20 s, and that of four times as many parameters minutes
    assert drawn.count("data-arrow") == count + len(sums) + 2


def test_labels_of_plates_are_as_wide_as_the_letters_of_a_wide_font() -> None:
    textpath = pytest.importorskip("matplotlib.textpath")
    label = "n = 1, …, N"
    drawn = textpath.TextPath((0, 0), label, size=12.5, prop={"family": "DejaVu Serif"}).get_extents().width
    assert drawn < label_width(Plate(ROWS, label)) < 1.2 * drawn
