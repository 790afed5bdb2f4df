"""Right models become the declarations they describe."""

from __future__ import annotations

import re

import pytest

from gpdsl.language import ModelError, compile_text
from gpdsl.language.model import (
    Axis,
    ExternalCall,
    Fixed,
    Guard,
    IndexNumber,
    IndexValue,
    KernelCall,
    KernelProduct,
    KernelScale,
    KernelSum,
    Number,
    Operation,
    Read,
    Reduction,
    Whole,
)

from . import examples

LAYER = Axis("layer", size=4)


@pytest.mark.parametrize("text", examples.ALL.values(), ids=examples.ALL.keys())
def test_accepted(text: str) -> None:
    model = compile_text(text)
    assert model.observations
    assert model.source.text == text


def test_seismic_external() -> None:
    model = compile_text(examples.SEISMIC, "seismic.gpm")
    assert (model.name, model.title) == ("seismic", "Layer depths and velocities from reflection times")
    assert model.consts["depth0"].values == (200.0, 500.0, 1600.0, 2200.0)
    assert model.latents["depth"].axes == (LAYER,) and model.latents["depth"].arguments == ("s",)
    (case,) = model.lets["tau"].cases
    assert isinstance(case.body, ExternalCall)
    # The bare size of the result takes the index of the arguments.
    assert model.lets["tau"].axes == case.body.axes == (LAYER,)
    assert case.guards == (Guard("layer"),)
    (observation,) = model.observations
    assert observation.outputs == ("t",) and observation.axes == (LAYER,)
    assert observation.subscripts == (IndexValue("layer"),)


def test_recursion() -> None:
    tau = compile_text(examples.SEISMIC_SYMBOLIC).lets["tau"]
    assert tau.axes == (LAYER,)
    assert [case.guards for case in tau.cases] == [(Guard("layer", "==", 1),), (Guard("layer", ">", 1),)]
    assert tau.cases[0].body.axes == () and tau.cases[1].body.axes == (LAYER,)
    previous = tau.cases[1].body.operands[0]  # type: ignore[attr-defined]
    assert previous.name == "tau" and previous.subscripts == (IndexValue("layer", -1),)


def test_external_likelihood() -> None:
    (observation,) = compile_text(examples.SEISMIC_LIKELIHOOD).observations
    assert observation.distribution.external
    assert list(observation.distribution.arguments) == ["depth", "velocity"]


def test_free_dimensions_and_reductions() -> None:
    model = compile_text(examples.GPRN)
    p, q = Axis("p", dimension="P"), Axis("q", size=2)
    assert model.params["ell_g"].axes == (Axis(None, dimension="D"),)
    assert model.outputs["y"].axes == (p,)
    mean = model.observations[0].distribution.arguments["mean"]
    assert isinstance(mean, Reduction) and mean.axes == (p,) and mean.body.axes == (p, q)
    ell = model.latents["g"].kernel.arguments["ell"]  # type: ignore[attr-defined]
    assert isinstance(ell, Read) and ell.subscripts == (Whole(Axis(None, dimension="D")),)


def test_param_infer_and_prior() -> None:
    model = compile_text(examples.BOSTON)
    sigma = model.params["sigma"]
    assert sigma.initial == 0.1 and sigma.prior is not None and sigma.prior.name == "Gamma"
    assert dict(model.infer.options) == {
        "engine": "vi",
        "posterior": "mixture(2)",
        "inducing": 200,
        "learn_inducing": True,
        "tolerance": 1e-6,
    }


def test_label() -> None:
    model = compile_text(examples.SOFTMAX)
    levels = Axis("c", size=3)
    assert model.indices["c"].levels == (4, 7, 9)
    assert model.outputs["digit"].label == levels and model.outputs["digit"].axes == ()
    assert model.observations[0].distribution.arguments["logits"].axes == (levels,)
    assert model.params["ell"].initial == (10.0, 10.0, 20.0)
    kernel = model.latents["f"].kernel
    assert isinstance(kernel, KernelSum) and all(isinstance(term, KernelScale) for term in kernel.terms)


def test_kernels() -> None:
    kernel = compile_text(examples.BINARY).latents["f"].kernel
    assert isinstance(kernel, KernelSum)
    product, power = kernel.terms
    assert isinstance(product, KernelProduct) and isinstance(power, KernelProduct)
    periodic = product.factors[1]
    assert isinstance(periodic, KernelCall) and periodic.name == "Periodic"
    assert {name: value.value for name, value in periodic.arguments.items()} == {"ell": 1.0, "period": 12}
    assert [factor.name for factor in power.factors] == ["Linear", "Linear"]  # type: ignore[attr-defined]


def value(text: str, lines: str = ""):
    model = compile_text(examples.REGRESSION + lines + f"let g = {text}\n")
    return model.lets["g"].cases[0].body


def test_precedence() -> None:
    minus = value("-f^2")
    assert isinstance(minus, Operation) and minus.operator == "neg" and minus.operands[0].operator == "^"
    tower = value("f^2^3")
    assert tower.operator == "^" and tower.operands[1].operator == "^"
    assert value("f - 1 - 2").operands[1].value == 2
    assert value("2^-1").operands[1].operator == "neg"
    assert value("pow(f, 2)").operator == "^"


def test_numbers_constants_and_indices() -> None:
    assert isinstance(value("3"), Number) and value("3").value == 3 and isinstance(value("3").value, int)
    assert value("pi").value == pytest.approx(3.14159265)
    model = compile_text(examples.REGRESSION + "index p in 1..3\nlet g[p] = 2 * p\n")
    assert isinstance(model.lets["g"].cases[0].body.operands[1], IndexNumber)  # type: ignore[attr-defined]
    consts = compile_text(examples.REGRESSION + "const a = log(191/811)\nconst b = [-1, 2^2]\n").consts
    assert consts["a"].values == pytest.approx(-1.445995, abs=1e-5)
    assert consts["b"].values == (-1.0, 4.0) and consts["b"].axes == (Axis(None, size=2),)


def test_max_of_two_and_over_an_index() -> None:
    assert isinstance(value("max(f, 0)"), Operation)
    over = value("max(p, a[p])", "index p in 1..2\nconst a[p] = [1, 2]\n")
    assert isinstance(over, Reduction) and over.operator == "max" and over.axes == ()


def test_implicit_whole_on_both_sides() -> None:
    text = "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f[p](x) ~ GP(0, RBF())\ny ~ Normal(f, 0.1)\n"
    (observation,) = compile_text(text).observations
    assert observation.subscripts == (IndexValue("p"),)
    assert observation.distribution.arguments["mean"].axes == (Axis("p", size=2),)


def test_elements_observed_apart() -> None:
    text = (
        "index p in 1..2\ninput x : real\noutput y[p] : real\nlatent f(x) ~ GP(0, RBF())\n"
        "y[1] ~ Normal(f, 0.1)\ny[2] ~ StudentT(4, f, 0.1)\n"
    )
    first, second = compile_text(text).observations
    assert first.subscripts == (Fixed(1),) and second.subscripts == (Fixed(2),) and first.axes == ()


def test_defaults_of_params_and_order_of_declarations() -> None:
    text = (
        "y ~ Normal(f, s)\nlatent f(x) ~ GP(a, RBF(b))\nparam a : real\nparam b : positive fixed\n"
        "param s : positive\nparam u : unit\noutput y : real\ninput x : real\n"
    )
    params = compile_text(text).params
    assert [params[name].initial for name in "abu"] == [0.0, 1.0, 0.5]
    assert params["b"].fixed and not params["a"].fixed


def test_brackets_continue_lines_and_names_are_unicode() -> None:
    text = (
        "input größe : real\noutput y : real\n"
        "latent η(größe) ~ GP(0,  # the mean\n   2 *\n   RBF(1)\n)\ny ~ Normal(η, 0.1)\n"
    )
    model = compile_text(text)
    assert list(model.latents) == ["η"]
    assert model.latents["η"].kernel.span.line == 4


def test_byte_order_mark_and_carriage_returns() -> None:
    model = compile_text("\ufeff" + examples.COAL_MINING.replace("\n", "\r\n"))
    assert model.name == "coal_mining"


def test_axis_of_several_inputs() -> None:
    text = (
        "input a : real\ninput b : real[2]\noutput y : real\nparam ell : positive[3] = 1\n"
        "latent f(a, b) ~ GP(0, RBF(ell))\ny ~ Normal(f, 0.1)\n"
    )
    assert compile_text(text).latents["f"].arguments == ("a", "b")
    with pytest.raises(ModelError, match="has the axis `4`"):
        compile_text(text.replace("positive[3]", "positive[4]"))


def test_layers_by_recursion_are_latents_one_by_one() -> None:
    written = compile_text(
        "index l in 1..3\nindex q in 1..2\ninput x : real[2]\noutput y : real\nparam ell[l] : positive = 1\n"
        "latent h[1, q](x) ~ GP(x[q], RBF(ell[1]))\n"
        "latent h[l > 1, q](h[l - 1], x) ~ GP(l * h[l - 1, q], RBF(ell[l], on = h[l - 1]) + Linear(1))\n"
        "latent f(h[3]) ~ GP(0, RBF(1))\ny ~ Normal(f + h[2, 1], 0.1)"
    )
    one_by_one = compile_text(
        "index l in 1..3\nindex q in 1..2\ninput x : real[2]\noutput y : real\nparam ell[l] : positive = 1\n"
        "latent h_1[q](x) ~ GP(x[q], RBF(ell[1]))\n"
        "latent h_2[q](h_1, x) ~ GP(2 * h_1[q], RBF(ell[2], on = h_1) + Linear(1))\n"
        "latent h_3[q](h_2, x) ~ GP(3 * h_2[q], RBF(ell[3], on = h_2) + Linear(1))\n"
        "latent f(h_3) ~ GP(0, RBF(1))\ny ~ Normal(f + h_2[1], 0.1)"
    )
    assert [*written.latents] == ["h_1", "h_2", "h_3", "f"]
    without_places = [re.sub(r"Span\([^)]*\)", "", repr(each.latents)) for each in (written, one_by_one)]
    assert without_places[0] == without_places[1]


@pytest.mark.parametrize("condition", ["l != 1", "l >= 2", "l > 1"])
def test_conditions_of_layers(condition: str) -> None:
    model = compile_text(
        "index l in 1..4\ninput x : real\noutput y : real\nlatent h[1](x) ~ GP(x, RBF(1))\n"
        f"latent h[{condition}](h[l - 1]) ~ GP(h[l - 1], RBF(l))\ny ~ Normal(h[4], 0.1)\ninfer vi: inducing h = 20"
    )
    assert model.latents["h_4"].arguments == ("h_3",)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("L : correlation_factor", "`L` is a square matrix"),
        ("L[p] : correlation_factor", "`L` is a square matrix"),
        ("L[p, q] : correlation_factor", "`L` is a square matrix"),
        ("L : ordered", "`L` is one number, but `ordered` means elements that increase"),
        ("L : simplex", "`L` is one number, but `simplex` means elements that add up to 1"),
        ("L : simplex[1]", "nothing to learn in `L`"),
        ("L[p] : unit(lower = 0)", "`unit` has no bounds of its own"),
    ],
)
def test_parameters_of_a_shape_have_it(declared: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        compile_text(f"index p in 1..3\nindex q in 1..2\noutput y : real\nparam {declared}\ny ~ Normal(0, 1)")


def test_a_condition_on_one_of_two_indices_holds_for_that_one() -> None:
    head = "index i in 1..3\nindex j in 1..2\noutput y[i, j] : real\n"
    model = compile_text(f"{head}y[i > 1, j] ~ Normal(i, 1)\ny[1, j] ~ Normal(0, 1)")
    assert model.observations[0].guards == (Guard("i", ">", 1), Guard("j"))
    with pytest.raises(ModelError, match=r"`y`.*1, 1"):
        compile_text(f"{head}y[i > 1, j] ~ Normal(i, 1)")


GROUPS = """
index s in 1..S
input site : label[s]
input x : real
output y : real
"""


def test_each_part_of_a_kernel_of_groups_sees_the_arguments_without_the_level() -> None:
    text = "latent f[s](x) ~ GP(0, RBF(1) + Matern32(1) * Linear(1))\ny ~ Normal(f[site], 1)"
    whole = compile_text(GROUPS + text).latents["f"].kernel
    assert isinstance(whole, KernelProduct)
    smooth, same = whole.factors
    assert isinstance(smooth, KernelSum) and isinstance(smooth.terms[1], KernelProduct)
    for part in (smooth.terms[0], *smooth.terms[1].factors):
        assert isinstance(part, KernelCall) and [each.name for each in part.on] == ["x"]  # type: ignore[attr-defined]
    assert isinstance(same, KernelCall) and [each.name for each in same.on] == ["site"]  # type: ignore[attr-defined]


def test_a_positive_parameter_of_groups_is_the_exponential_of_a_latent() -> None:
    model = compile_text(GROUPS + "param sigma[s] : positive ~ LogNormal(-1, 0.5)\ny ~ Normal(0, sigma[site])")
    sd = model.observations[0].distribution.arguments["sd"]
    assert isinstance(sd, Operation) and sd.operator == "exp"
    assert isinstance(sd.operands[0], Read) and sd.operands[0].name == "log_sigma"
    assert model.latents["log_sigma"].arguments == ("site",)


def test_parameters_by_level_are_found_inside_of_conditions_that_are_joined() -> None:
    text = "latent f(x, site) ~ GP(0, own(w))\ny ~ Normal(f, 1)"
    kernel = "param w[s] : positive\nkernel own[d, e](a, b; w) = if w[d] > 0 and w[e] > 0 then exp(-(a - b)^2) else 0\n"
    assert "f" in compile_text(GROUPS + kernel + text).latents
