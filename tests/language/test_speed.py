"""`gpdsl check` answers at once, in time linear in the length of the text: seconds of processor, not of the wall."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpdsl.language import ModelError, compile_text
from tests.timing import holds_once, processor_seconds, takes_less_than

from . import long_models

ROOT = Path(__file__).resolve().parents[2]
ZOO = sorted((ROOT / "models").glob("*.gpm"))
WARM, COLD, LONG = 0.5, 1.5, 5.0
GROWTH = 10
"""What four times the lines may cost: linear time takes 4 times as long, quadratic 16."""

SHAPES = (long_models.right, long_models.wrong, long_models.many_outputs, long_models.syntax_mistakes)


def check(text: str) -> None:
    try:
        compile_text(text)
    except ModelError as error:
        str(error)


@pytest.mark.parametrize("path", ZOO, ids=lambda path: path.stem)
def test_a_zoo_model_is_checked_at_once(path: Path) -> None:
    text = path.read_text()
    assert takes_less_than(lambda: check(text), WARM)


def test_from_a_cold_start_without_numerical_libraries() -> None:
    code = (
        "import sys; from gpdsl.cli import main; code = main(['check', *sys.argv[1:]]); "
        "print(code, [m for m in ('jax', 'numpy', 'scipy', 'sympy') if m in sys.modules])"
    )
    plain = [path for path in ZOO if "\nkernel " not in path.read_text()]  # algebra looks at kernels by formula
    command = [sys.executable, "-c", code, *map(str, plain)]

    def quick() -> bool:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr
        # the whole zoo together: each model alone takes less
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < COLD + WARM

    assert holds_once(quick)


def test_long_models_say_what_they_should() -> None:
    assert len(compile_text(long_models.right(2000)).latents) > 350
    for make, code in ((long_models.wrong, "E201"), (long_models.syntax_mistakes, "E105")):
        with pytest.raises(ModelError) as caught:
            compile_text(make(2000))
        assert code in {each.code for each in caught.value.diagnostics}
        assert len(caught.value.diagnostics) == 101


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_time_grows_linearly_with_length(make: Callable[[int], str]) -> None:
    brief, lengthy = make(500), make(2000)
    check(make(50))

    def linear() -> bool:
        short, long = processor_seconds(lambda: check(brief)), processor_seconds(lambda: check(lengthy))
        return long < min(LONG, GROWTH * max(short, 0.01))

    assert holds_once(linear)
