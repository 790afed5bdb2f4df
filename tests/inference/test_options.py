"""The table of options: what a file, Python and the command line may choose is the same, refused in the same words."""

from __future__ import annotations

import dataclasses
import inspect
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import gpdsl
from gpdsl.cli import make_parser
from gpdsl.cli.options import choices_of, options_text
from gpdsl.errors import GpdslError
from gpdsl.inference.plan.options import Options, make_options
from gpdsl.language.inducing import Inducing
from gpdsl.language.options import OPTIONS, check_option, engines_known
from gpdsl.language.takes import FitOptions, Words

MODEL = """input x : real
output y : real
param ell : positive
param sigma : positive = 0.3
latent f(x) ~ GP(0, RBF(ell))
y ~ Normal(f, sigma)
"""

RIGHT: dict[str, tuple[str, Any]] = {
    "posterior": ("mixture_full(3)", "mixture_full(3)"),
    "inducing": ("0", 0),
    "learn_inducing": ("true", True),
    "batch": ("0", 0),
    "samples": ("2", 2),
    "steps": ("1e3", 1000),
    "tolerance": ("0", 0.0),
    "learning_rate": ("0.02", 0.02),
    "decay": ("0.9", 0.9),
    "epsilon": ("1e-4", 1e-4),
    "power": ("0.5", 0.5),
    "chevron": ("0", 0),
    "start_rows": ("0", 0),
    "seed": ("20261123073118", 20261123073118),
    "dtype": ("float32", "float32"),
    "device": ("cpu", "cpu"),
    "devices": ("2", 2),
    "fixed": ("ell", ("ell",)),
}
"""Of the others, the example of their record."""

WRONG = {
    "posterior": ("mixture(0)", "mixture(101)", "mixture", "3"),
    "inducing": (
        "-1",
        "2.5",
        "many",
        "true",
        "fourier(0)",
        "fourier(9, over = [2, 1])",
        "slopes(9, over = [1, 2])",
        "wavelets(12)",
        "fourier(3) + fourier(4)",
    ),
    "learn_inducing": ("1", "maybe", "yes", "no", "True"),
    "samples": ("1", "1.5"),
    "batch": ("-3",),
    "steps": ("0", "1e400", "nan"),
    "tolerance": ("-1e-6", "small"),
    "learning_rate": ("0", "-1"),
    "decay": ("0", "1"),
    "power": ("0", "1.5"),
    "seed": ("-1", "9223372036854775808"),
    "dtype": ("float16",),
    "engine": (),
    "device": ("3",),
    "optimizer": ("lbfg",),
    "schedule": ("cyclic",),
}


def written(name: str, text: str) -> dict[str, Any]:
    """The options of a model whose `infer` line has one."""
    subject = " ell" if name == "init" else ""
    line = f"infer {OPTIONS[name].engines[0]}: {name}{subject} = {text}\n"
    return dict(gpdsl.compile(MODEL + line).declarations.infer.options)


def typed(name: str, text: str) -> dict[str, Any]:
    """The choices of a command line that sets one option."""
    flag = ["--init", f"ell={text}"] if name == "init" else ["--set", f"{name}={text}"]
    return choices_of(make_parser().parse_args(["fit", "m.gpm", "--data", "d.csv", *flag]))


def test_the_options_of_a_fit_are_those_of_the_table() -> None:
    fields = {each.name: each for each in dataclasses.fields(Options)}
    assert list(fields) == list(OPTIONS)
    assert Options() == Options(**{name: option.default for name, option in OPTIONS.items()})
    assert all(option.takes.read(option.default) == option.default for option in OPTIONS.values() if option.default)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "engine"])
def test_every_option_can_be_chosen_everywhere(name: str) -> None:
    text, value = RIGHT.get(name, (OPTIONS[name].takes.example, None))
    in_file, on_line = written(name, text), typed(name, text.strip("[]").replace(" ", ""))
    engine = OPTIONS[name].engines[0]
    chosen = make_options(in_file, {})
    assert chosen == make_options({}, {"engine": engine, **on_line})
    assert value is None or getattr(chosen, name) == value
    assert getattr(chosen, name) != OPTIONS[name].default or name in {"batch", "tolerance"} | {
        each for each in OPTIONS if OPTIONS[each].takes.example == OPTIONS[each].default
    }


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_wrong_value_is_refused_everywhere_in_the_same_words(name: str, text: str) -> None:
    takes = OPTIONS[name].takes
    expected = f"expected {takes.expected_of(text) if isinstance(takes, Inducing) else takes.expected}"
    with pytest.raises(GpdslError) as on_line:
        make_options({}, {"engine": OPTIONS[name].engines[0], **typed(name, text)})
    assert f"{name} = " in str(on_line.value) and expected in str(on_line.value)
    if text in {"nan", "1e400"}:
        return  # no numbers in the language
    with pytest.raises(GpdslError) as in_file:
        written(name, text)
    assert "[E321]" in str(in_file.value)
    assert expected in str(in_file.value) or "did you mean" in str(in_file.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "3", None, [3], np.bool_(True)])
def test_no_value_of_python_ends_in_another_error(value: Any) -> None:
    for name in ("tolerance", "seed", "learn_inducing", "posterior", "device", "init"):
        with pytest.raises(GpdslError, match=f"^{name} = "):
            check_option(name, value)


def test_simulated_data_are_fitted_as_they_are() -> None:
    with pytest.raises(GpdslError, match="standardise is not for simulated data, which are fitted as they are"):
        check_option("standardise", True)


def test_engines_of_a_file_are_known_while_it_is_read() -> None:
    with engines_known(["unheard_of", "vi"]):
        assert check_option("engine", "unheard_of") == "unheard_of"
    with pytest.raises(GpdslError, match="engine = 'unheard_of': expected"):
        check_option("engine", "unheard_of")
    assert check_option("engine", "vi") == "vi"


def test_numbers_of_numpy_are_numbers() -> None:
    options = make_options({}, {"samples": np.int64(8), "tolerance": np.float32(0.5), "steps": 10.0})
    assert (options.samples, options.tolerance, options.steps) == (8, 0.5, 10)
    assert type(options.samples) is type(options.steps) is int


def test_a_choice_that_the_engine_does_not_read_is_refused() -> None:
    with pytest.raises(GpdslError, match=r"power = 0.5 belongs to engine = ep; engine = vi takes posterior, inducing"):
        make_options({}, {"power": 0.5})
    with pytest.raises(GpdslError, match="entropy = jensen belongs to engine = vi; engine = ep takes"):
        make_options({"engine": "ep"}, {"entropy": "jensen"})
    assert make_options({}, {"engine": "ep", "entropy": "pairwise"}).entropy == "pairwise"


def test_choices_of_the_file_are_for_its_engine() -> None:
    line = {"engine": "qsgp", "features": 500, "seed": 3}
    assert make_options(line, {}).features == 500
    moved = make_options(line, {"engine": "vi"})
    assert (moved.engine, moved.features, moved.seed, moved.dtype) == ("vi", None, 3, "float64")


def test_starts_of_the_file_hold_for_parameters_that_the_caller_leaves_out() -> None:
    line = gpdsl.compile(MODEL + "infer vi: init ell = 2 * 3, init sigma = 0.2\n").declarations.infer.options
    assert dict(line["init"]) == {"ell": 6.0, "sigma": 0.2}
    assert make_options(line, {"init": {"ell": 1.0}}).init == {"ell": 1.0, "sigma": 0.2}


def test_a_fit_takes_what_the_line_says() -> None:
    rng = np.random.default_rng(0)
    data = {"x": np.linspace(0, 1, 12), "y": rng.normal(size=12)}
    fit = gpdsl.compile(MODEL + "infer vi: fixed = [ell, sigma], init ell = 0.25, device = cpu\n").fit(data)
    assert fit.parameters["ell"] == 0.25 and fit.parameters["sigma"] == 0.3


def test_the_help_of_the_command_names_every_option() -> None:
    shown = options_text()
    assert [line.split()[0] for line in shown.splitlines()[1:] if not line.startswith("   ")] == list(OPTIONS)
    assert "a whole number of at least 2" in shown


def test_types_of_options_are_those_of_the_table() -> None:
    """Editors complete options from `FitOptions`: the same names, and the same words, as the table has."""
    types = typing.get_type_hints(FitOptions)
    assert list(types) == list(OPTIONS)
    for name, option in OPTIONS.items():
        kinds = typing.get_args(types[name])
        assert kinds[-1] is type(None)
        words = tuple(w for kind in kinds[:-1] if typing.get_origin(kind) is Literal for w in typing.get_args(kind))
        known = option.takes.known if type(option.takes) is Words else ()
        assert words == (known if isinstance(known, tuple) else ())  # of a table there may be more


@pytest.mark.parametrize("function", [gpdsl.Model.fit, gpdsl.Model.explain, gpdsl.sbc])
def test_options_are_spelt_out(function: Callable[..., Any]) -> None:
    """Notebooks complete keywords from the signature: every option once, None by default, and nothing else is open."""
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name in OPTIONS] == list(OPTIONS)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OPTIONS)
    assert all(parameters[name].default is None for name in OPTIONS)
    assert inspect.Parameter.VAR_KEYWORD not in {each.kind for each in parameters.values()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("fit({}, inducing=3, seed=None, dtype='float32')", ""),
        ("fit({}, inducng=3)", 'Unexpected keyword argument "inducng"'),
        ("fit({}, dtype='float16')", "Literal['float64', 'float32']"),
        ("explain({}, steps='many')", 'expected "int | None"'),
    ],
)
def test_a_type_checker_finds_mistaken_options(call: str, error: str, tmp_path: Path) -> None:
    from mypy import api

    script = tmp_path / "script.py"
    script.write_text(f"import gpdsl\ngpdsl.compile('').{call}\n")
    text, _, code = api.run(
        [str(script), "--no-error-summary", "--follow-imports=silent", f"--config-file={os.devnull}"]
    )
    assert (code == 0) == (not error) and error in text, text


def test_what_other_tools_call_an_option_is_known() -> None:
    """`precision` has the letters of `epsilon`."""
    with pytest.raises(GpdslError, match="did you mean `dtype`"):
        make_options({}, {"precision": "float32"})
