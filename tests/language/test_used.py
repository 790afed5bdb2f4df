"""`use "kernels.gpm"`: definitions come from other files, from nowhere they should not, and each once."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpdsl
from gpdsl import cli
from gpdsl.language import Source
from gpdsl.language.used import Reach, gather
from gpdsl.language.vocabulary import MAX_CHARACTERS, MAX_USE_DEPTH, MAX_USED

MODEL = """input x : real
output y : real
param ell : positive = 1
latent f(x) ~ GP(0, bump(ell))
y ~ Normal(twice(f), 0.1)
"""
BUMP = "kernel bump(r; ell) = exp(-r^2/ell^2)\n"
TWICE = "function twice(u) = u + u\n"


def written(folder: Path, **texts: str) -> Path:
    """`a__b="..."` as the file a/b.gpm; the path of the model, `m`."""
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.gpm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "m.gpm"


def codes(path: Path, **options: object) -> list[str]:
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.load(path, **options)
    return [each.code for each in caught.value.diagnostics]


def test_used_definitions_mean_what_they_mean_in_the_model(tmp_path: Path) -> None:
    apart = written(tmp_path, m=f'use "lib/bump.gpm"\n{MODEL}', lib__bump=f'use "../twice.gpm"\n{BUMP}', twice=TWICE)
    found, whole = gpdsl.load(apart), gpdsl.compile(BUMP + TWICE + MODEL)
    assert found.latex() == whole.latex()
    assert str(found.warnings()) == str(whole.warnings()) == ""
    assert gpdsl.compile(apart.read_text(), folder=tmp_path).latex() == whole.latex()


def test_a_file_used_twice_is_read_once(tmp_path: Path) -> None:
    left, right = (f'use "top.gpm"\nfunction {each}(u) = twice(u)\n' for each in ("left", "right"))
    uses = 'use "left.gpm"\nuse "right.gpm"\nuse "top.gpm"\nuse "./top.gpm"\n'
    path = written(tmp_path, m=uses + BUMP + MODEL, left=left, right=right, top=TWICE)
    opened: list[str] = []

    def read(each: Path) -> str:
        opened.append(each.name)
        return each.read_text(encoding="utf-8")

    whole, mistakes = gather(Source(path.read_text(), "m.gpm"), Reach(tmp_path, read=read))
    assert (sorted(opened), mistakes) == (["left.gpm", "right.gpm", "top.gpm"], ())
    assert [each.name for each in whole.parts] == ["left.gpm", "top.gpm", "right.gpm"]
    assert set(gpdsl.load(path).declarations.functions) == {"left", "right", "twice"}


def test_nothing_is_read_outside_the_folder_unless_allowed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    written(outside, twice=TWICE, deep__twice='use "../twice.gpm"\n')
    paths = ("../out/twice.gpm", str(outside / "twice.gpm"), "link.gpm", "folder/twice.gpm", "sub/../../out/twice.gpm")
    for use in paths:
        path = written(inside, m=f'use "{use}"\n{BUMP}{MODEL}', sub__none="")
        if use == "link.gpm":
            (inside / use).symlink_to(outside / "twice.gpm")
            (inside / "folder").symlink_to(outside)
        assert codes(path) == ["E113"], use
        assert codes(path, allow=[inside / "sub"]) == ["E113"], use
        assert "twice" in gpdsl.load(path, allow=outside).declarations.functions
        assert "twice" in gpdsl.load(path, allow=[str(outside)]).declarations.functions
    # What a file of an allowed folder uses must lie in reach too.
    path = written(inside, m=f'use "../out/deep/twice.gpm"\n{BUMP}{MODEL}')
    assert codes(path, allow=outside / "deep") == ["E113"]
    # An absolute path works on one machine only, even where it leads into the folder of the model.
    written(inside, m=f'use "{inside}/t.gpm"\n{BUMP}{MODEL}', t=TWICE)
    assert codes(path) == ["E113"]
    with pytest.raises(gpdsl.GpdslError, match="allow: .*nowhere is no folder"):
        gpdsl.load(path, allow=[tmp_path / "nowhere"])


def test_every_cause_has_its_own_help(tmp_path: Path) -> None:
    written(tmp_path, shapes="", folder__a="")
    (tmp_path / "latin.gpm").write_bytes(b"# \xe9\n")
    (tmp_path / "d.gpm").mkdir()
    causes = {
        "shape.gpm": "did you mean `shapes.gpm`?",
        "./folder/b.txt": "give the file a name that ends in .gpm",
        "d.gpm": "name a .gpm file in this folder",
        "latin.gpm": "save the file as UTF-8 text",
        "quite_another.gpm": "relative to the folder of the file with this line",
        f"{tmp_path}/shapes.gpm": "is an absolute path, in a folder that is not allowed",
        "x" * 5000 + ".gpm": "give the file a shorter name",
    }
    for use, said in causes.items():
        path = written(tmp_path, m=f'use "{use}"\n{BUMP}{TWICE}{MODEL}')
        with pytest.raises(gpdsl.ModelError) as caught:
            gpdsl.load(path)
        assert said in str(caught.value), use
        (only,) = caught.value.diagnostics
        assert len(only.message_text()) < 300
    with pytest.raises(gpdsl.GpdslError, match=r"allow: expected folders, such as .*, not 3"):
        gpdsl.load(path, allow=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("use", ["use d.gpm", "use 'd.gpm'", 'use "d.gpm'])
def test_a_broken_line_does_not_make_its_names_unknown(tmp_path: Path, use: str) -> None:
    (only,) = codes(written(tmp_path, m=f"{use}\n{MODEL}"))
    assert only.startswith("E10")


def test_circles_are_named_whole(tmp_path: Path) -> None:
    path = written(tmp_path, m=f'use "a.gpm"\n{MODEL}', a='use "lib/b.gpm"\n', lib__b='\nuse "../m.gpm"\n')
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.load(path)
    assert "lib/b.gpm:2:5: error[E115]" in str(caught.value)
    assert "m.gpm → a.gpm → lib/b.gpm → m.gpm" in str(caught.value)
    written(tmp_path, m=f'use "m.gpm"\n{MODEL}')
    assert codes(path) == ["E115"]
    (tmp_path / "loop.gpm").symlink_to(tmp_path / "loop.gpm")
    written(tmp_path, m=f'use "loop.gpm"\n{MODEL}')
    assert codes(path) == ["E114"]


def test_limits(tmp_path: Path) -> None:
    chain = {f"c{k}": f'use "c{k + 1}.gpm"\n' for k in range(MAX_USE_DEPTH)} | {f"c{MAX_USE_DEPTH}": ""}
    assert codes(written(tmp_path, m=f'use "c0.gpm"\n{MODEL}', **chain)) == ["E416"]
    many = {f"d{k}": "" for k in range(MAX_USED + 1)}
    uses = "".join(f'use "{name}.gpm"\n' for name in many)
    assert codes(written(tmp_path, m=uses + MODEL, **many)) == ["E416"]
    long = "# a comment\n" * (MAX_CHARACTERS // 20)
    assert codes(written(tmp_path, m=f'use "e.gpm"\nuse "g.gpm"\n{MODEL}', e=long, g=long)) == ["E416"]
    assert codes(written(tmp_path, m=f'use "h.gpm"\n{MODEL}', h=long * 8)) == ["E114"]


def test_a_bracket_left_open_does_not_reach_into_the_next_file(tmp_path: Path) -> None:
    """The texts stand one behind the other: `)` of a used file would close what the model opened."""
    path = written(tmp_path, m=f'use "a.gpm"\n{BUMP}{TWICE}{MODEL}let g = (f', a="# a comment\n)\n")
    assert codes(path) == ["E105", "E106"]


def test_the_command_line_allows_folders_and_shows_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "in", m=f'use "../out/t.gpm"\n{BUMP}{MODEL}'))
    written(tmp_path / "out", t="function twice(u) = u +\n")
    assert cli.main(["check", path]) == 1
    assert "--allow folder" in capsys.readouterr().err
    assert cli.main(["check", path, "--allow", str(tmp_path / "out")]) == 1
    assert f"{tmp_path / 'out' / 't.gpm'}:1:" in capsys.readouterr().err
    written(tmp_path / "out", t=TWICE)
    for command in ("check", "latex", "info", "graph"):
        assert cli.main([command, path, "--allow", str(tmp_path / "out")]) == 0
