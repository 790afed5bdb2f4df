"""Words and orders of other tools, and the remedy that each of them gets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import gpdsl
from gpdsl.language import habits, takes
from gpdsl.language.options import WRITTEN, check_option
from gpdsl.language.vocabulary import DISTRIBUTIONS, KERNELS
from tests.goldens import assert_golden

TEXT = """input x : real
output y : real
param s2 : positive
param ell : positive{prior}
param sigma : positive
latent f(x) ~ GP(0, s2 * {kernel}(ell))
y ~ {law}
"""


SNIPPETS = {
    "levels_without_quotes": "index q in {low, high}\n",
    "a_poisson_that_is_always_zero": TEXT.replace(": real\nparam s2", ": count\nparam s2").replace(
        "{law}", "Mixture(0.3, Poisson(0), Poisson(exp(f)))"
    ),
    "stan_block": "data { int N; }\nparameters { real<lower=0> sigma; }\n",
    "stan_program": "data {\n  int N;\n}\nmodel {\n  y ~ normal(0, 1);\n}\n",
    "stan_transformed": "transformed parameters {\n  real s;\n}\n",
    "pymc_context": "with pm.Model() as model:\n    pass\n",
    "python_import": "import pymc as pm\n",
    "pc_prior_of_an_output": TEXT.replace("{law}", "PC(1, 0.5)"),
    "pc_prior_as_a_value": TEXT.replace("{law}", "Normal(f, PC(1, 0.5))"),
    "label_without_an_index": "input site : label[s]\noutput y : real\nparam a[s] : real\ny ~ Normal(a[site], 1)\n",
    "stan_declaration": "real<lower=0> sigma;\ninput x : real\noutput y : real\n",
    "stan_sampling_on_its_own": TEXT + "sigma ~ HalfNormal(1)\n",
    "pymc_distribution": TEXT.replace("{law}", "pm.Normal(f, sigma)"),
    "pymc_named": TEXT.replace("{law}", 'Normal("y", mu=f, sigma=sigma)'),
    "pymc_arguments": TEXT.replace("{law}", "Normal(mu = f, sigma = sigma)"),
    "numpyro_sample": TEXT + 'z = numpyro.sample("z", Normal(0, 1))\n',
    "pymc_prior_by_a_name": TEXT + 'tau = pm.Gamma("tau", alpha=2, beta=1)\n',
    "pymc_prior_alone": TEXT + 'pm.Beta("w", 1, 1)\n',
    "gpflow_kernel_by_a_name": TEXT + "k = gpflow.kernels.SquaredExponential()\n",
    "scipy_arguments": TEXT.replace("{law}", "Normal(loc = f, scale = sigma)"),
    "gpflow_kernel": TEXT.replace("{kernel}(ell)", "RBF(lengthscales = ell)"),
    "gpytorch_kernel": TEXT.replace("{kernel}(ell)", "ScaleKernel(RBFKernel())"),
    "sklearn_kernel": TEXT.replace("{kernel}(ell)", "RBF(length_scale = ell)"),
    "kernel_with_a_variance": TEXT.replace("{kernel}(ell)", "RBF(s2, ell)"),
    "column_behind_a_length_scale": TEXT.replace("{kernel}(ell)", "RBF(ell; x)"),
    "process_on_its_own": TEXT + "g ~ GP(0, RBF(1))\n",
    "process_as_a_statement": TEXT.replace("latent f", "gp f"),
    "covariate_as_a_statement": TEXT.replace("input x", "covariate x"),
    "process_in_lower_case": TEXT.replace("GP(", "gp("),
    "r_formula": "input x : real\noutput y : real\ny ~ x + (1 | site)\n",
    "inla_effect": 'input x : real\noutput y : real\ny ~ f(x, model = "rw2")\n',
    "brms_smooth": "input x : real\noutput y : real\ny ~ s(x)\n",
    "group_without_a_label": "input site : real\noutput y : real\nparam a[site] : real\ny ~ Normal(a[site], 1)\n",
    "label_of_its_own_name": "input s : label[s]\noutput y : real\nparam a[s] : real\ny ~ Normal(a[s], 1)\n",
    "power_of_python": TEXT.replace("{law}", "Normal(f**2, sigma)"),
    "equals_for_tilde": TEXT.replace("y ~ {law}", "y = Normal(f, sigma)"),
    "python_comment": TEXT.replace("input x : real", 'input x : real  """the position"""'),
    "semicolons": TEXT.replace("input x : real", "input x : real;"),
    "types_of_python": TEXT.replace("input x : real", "input x : float"),
    "types_of_stan": TEXT.replace("input x : real", "input x : vector[3]"),
    "integers": TEXT.replace("output y : real", "output y : int"),
    "bernoulli_logits": TEXT.replace("output y : real", "output y : binary").replace("{law}", "Bernoulli(logits = f)"),
    "python_index": TEXT.replace("input x : real", "index p in 0..3\ninput x : real"),
    "softmax": TEXT.replace("{law}", "Normal(softmax(f), sigma)"),
    "uniform_without_a_bound": TEXT.replace("{prior}", " ~ Uniform(0, inf)"),
    "plate": "plate rows in 1..N\n" + TEXT,
    "stan_target": TEXT.replace("y ~ {law}", "target += normal_lpdf(y, f, sigma)"),
    "stan_comment": "// a comment\n" + TEXT,
    "comment_behind": TEXT.replace("{law}", "Normal(f, sigma) // a comment"),
    "group_of_a_formula": TEXT.replace("{law}", "Normal(f + (1|site), sigma)"),
    "standardise_of_python": TEXT + "infer vi: standardise = True\n",
    "standardise_nothing": TEXT + "infer vi: standardise = [], seed = 1\n",
    "standardise_in_quotes": TEXT + 'infer vi: standardise = ["x"]\n',
    "standardise_without_brackets": TEXT + "infer vi: seed = 1, standardise = x, y\n",
    "standardise_by_itself": TEXT + "infer vi: standardise = auto\n",
    "active_dims": TEXT.replace("{kernel}(ell)", "RBF(ell, active_dims = [0])"),
    "forgotten_parameters": TEXT.replace("param ell : positive{prior}\nparam sigma : positive\n", ""),
    "prior_of_what_is_not_declared": TEXT.replace("param sigma : positive\n", "").replace(
        "y ~", "sigma ~ HalfNormal(1)\ny ~"
    ),
    "variance_of_a_kernel": TEXT.replace("{kernel}(ell)", "RBF(ell, variance = 2)"),
    "declared_without_a_word": TEXT.replace("param sigma", "sigma"),
    "prior_without_a_type": TEXT.replace("param sigma : positive", "param sigma ~ HalfNormal(1)"),
    "two_names": TEXT.replace("param ell : positive{prior}\nparam sigma : positive", "param ell, sigma : positive"),
    "two_inputs": TEXT.replace("input x : real", "input x, z : real"),
    "loop": TEXT + "for i in 1:N\n",
    "condition_of_python": TEXT.replace("y ~", "let g = f if x > 0 else 1\ny ~"),
    "module_of_python": TEXT.replace("y ~", "let g = np.exp(f)\ny ~"),
    "zero_mean": TEXT.replace("GP(0", "GP(Zero()"),
    "kernel_as_a_mean": TEXT.replace("GP(0", "GP(Constant(2)"),
    "weights": TEXT.replace("{law}", "Normal(f, sigma, weight = x)"),
    "exposure": TEXT.replace("output y : real", "output y : count").replace("{law}", "Poisson(exp(f), exposure = s2)"),
    "row_before": TEXT.replace("{law}", "Normal(f + y[t - 1], sigma)"),
    "level_of_what_has_no_axis": "index s in 1..S\ninput site : label[s]\n"
    + TEXT.replace("{law}", "Normal(f[site], 1)"),
    "inverse_link": TEXT.replace("{law}", "Normal(inv_logit(f), sigma)"),
    "square": TEXT.replace("{law}", "Normal(square(f), sigma)"),
    "sign": TEXT.replace("{law}", "Normal(sign(f), sigma)"),
    "derivative": TEXT.replace("{law}", "Normal(diff(f, x), sigma)"),
    "prime": TEXT.replace("{law}", "Normal(f'(x), sigma)"),
    "second_derivative": TEXT.replace("{law}", "Normal(D(D(f, x), x), sigma)"),
    "sum_of_rows": TEXT.replace("{law}", "Normal(cumsum(f), sigma)"),
    "stan_truncation": TEXT.replace("{law}", "Normal(f, sigma) T[0, ]"),
    "stan_bound": TEXT.replace("ell : positive{prior}", "ell : real<lower=0>"),
    "level_in_words": TEXT.replace("{law}", 'Normal(if x == "north" then f else 1, sigma)'),
    "cases_in_brackets": TEXT.replace("{law}", "Normal(where(x > 0, f, 1), sigma)"),
    "cases_by_signs": TEXT.replace("y ~", "let g = x > 0 ? f : 1\ny ~"),
    "kernel_by_a_name": TEXT + "kernel K = RBF(1) + White()\n",
    "size_in_the_name": TEXT.replace("param s2 : positive", "param s2[3] : positive"),
    "size_of_a_label": TEXT.replace("output y : real", "output y : label[3]"),
    "number_of_functions": TEXT.replace("latent f(x)", "latent f[3](x)"),
    "unit_of_an_input": TEXT.replace("input x : real", "input x : unit"),
    "index_of_columns": TEXT.replace("x : real", "x : real[D]").replace("ell : positive{prior}", "ell[D] : positive"),
    "bounds_in_brackets": TEXT.replace("ell : positive{prior}", "ell : positive in [0.1, 2]"),
    "bounds_for_a_type": TEXT.replace("ell : positive{prior}", "ell : [-1, 1e2]"),
    "bounds_of_a_vector": TEXT.replace("ell : positive{prior}", "ell[s] : unit in [0.1, inf] = 0.5"),
    "above_a_bound": TEXT.replace("ell : positive{prior}", "ell > 0.1"),
    "above_a_word": TEXT.replace("ell : positive{prior}", "ell > info"),
    "above_zero": TEXT.replace("ell : positive{prior}", "ell > 0"),
    "process_without_its_word": TEXT.replace("latent f", "f"),
    "sum_of_processes": TEXT.replace("{kernel}(ell))", "RBF(ell)) + GP(0, RBF(1))"),
    "noise_added": TEXT.replace("{law}", "f + Normal(0, sigma)"),
    "noise_with_arguments_added": TEXT.replace("{law}", "f + s2 * x + StudentT(4, 0, sigma)"),
    "engine_that_is_chosen": TEXT + "infer exact\n",
    "formula_of_columns": TEXT.replace("input x", "input z : real\ninput x").replace("{law}", "x + z"),
    "formula_without_a_distribution": TEXT.replace("{law}", "f + s2 * x"),
    "noise_multiplied": TEXT.replace("{law}", "f * LogNormal(0, sigma)"),
    "noise_of_another_name_added": TEXT.replace("{law}", "f + Cauchy(0, sigma)"),
    "smooth_function_added": TEXT.replace("{law}", "s2 * x + s(x)"),
    "number_times_a_process": TEXT.replace("GP(0, s2", "2 * GP(0, s2"),
    "process_with_noise": TEXT.replace("{law}", "GP(0, RBF(ell)) + Normal(0, sigma)"),
    "product_of_processes": TEXT.replace("{kernel}(ell))", "RBF(ell)) * GP(0, RBF(1))"),
    "prior_that_is_learnt": TEXT.replace("{prior}", "\nindex k in 1..2\nparam b[k] : real ~ Normal(0, s2)"),
    "function_on_the_left": TEXT + "g(x) ~ Normal(0, 1)\n",
    "latent_on_the_left": TEXT + "f(x) ~ Normal(0, 1)\n",
    "derivative_before_a_function": TEXT.replace("{law}", "Normal(d/dx f, sigma)"),
    "derivative_of_brackets": TEXT.replace("{law}", "Normal(d/dx(f), sigma)"),
    "equation_of_differentials": TEXT.replace("y ~ {law}", "du/dx ~ Normal(f, sigma)"),
    "noise_added_by_equals": TEXT.replace("y ~ {law}", "y = f + Normal(0, sigma)"),
    "latent_number": TEXT.replace("latent f(x) ~ GP(0, s2 * {kernel}(ell))", "latent f ~ Normal(0, 1)"),
    "latent_without_a_name": TEXT.replace("latent f(x)", "latent"),
    "engine_by_equals": TEXT + "infer engine = mcmc\n",
    "engine_behind_a_colon": TEXT + "infer: mcmc(chains = 4)\n",
    "unit_of_time": TEXT.replace("input x : real", "input x : time per day"),
    "outputs_side_by_side": TEXT.replace("output", "output z : real\noutput").replace("y ~ {law}", "[y, z] ~ {law}"),
    "quotient_of_differentials": TEXT.replace("{law}", "Normal(df / dx, sigma)"),
    "zeros_and_ones_as_input": TEXT.replace("input x : real", "input x : binary"),
    "scale_of_probabilities": TEXT.replace("output y : real", "output y : binary").replace("{law}", "Bernoulli(f)"),
    "standardise_as_a_statement": TEXT + "standardise x\n",
    "log_link": TEXT.replace("output y : real", "output y : count").replace("{law}", "Poisson(log = f)"),
}
"""What is written in other tools: a model with one habit each, whose message is kept beside its name."""


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_of_other_tools(name: str) -> None:
    text = SNIPPETS[name].replace("{prior}", "").replace("{kernel}", "RBF").replace("{law}", "Normal(f, sigma)")
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.compile(text, name="model.gpm")
    assert_golden(f"habits/{name}.txt", f"{text}\n{caught.value}")


@pytest.mark.parametrize(
    "word", {remedy: word for word, remedy in [*habits.KERNELS.items(), *habits.DISTRIBUTIONS.items()]}.values()
)
def test_each_remedy_has_its_message(word: str) -> None:
    kernel = {"kernel": word} if word in habits.KERNELS else {"kernel": "RBF"}
    law = "Normal(f, sigma)" if word in habits.KERNELS else f"{word}(f, sigma)"
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.compile(TEXT.format(law=law, prior="", **kernel), name="model.gpm")
    assert_golden(f"habits/word_{word}.txt", str(caught.value))


def told(kernel: str = "RBF", law: str = "Normal(f, sigma)", prior: str = "", more: str = "") -> str:
    with pytest.raises(gpdsl.ModelError) as caught:
        gpdsl.compile(TEXT.format(kernel=kernel, law=law, prior=prior) + more)
    return str(caught.value.diagnostics[0].help_text())


@pytest.mark.parametrize("word", list(habits.KERNELS))
def test_kernels_of_other_tools(word: str) -> None:
    assert told(kernel=word) == told(kernel=word.upper()) == habits.KERNELS[word]


@pytest.mark.parametrize("word", list(habits.DISTRIBUTIONS))
def test_distributions_of_other_tools(word: str) -> None:
    assert told(law=f"{word}(f, sigma)") == told(prior=f" ~ {word}(1, 2)") == habits.DISTRIBUTIONS[word]


@pytest.mark.parametrize(
    ("prior", "remedy"),
    [
        ("Gamma(2, scale = 3)", "write `Gamma` with `rate = 1 / scale`"),
        ("Gamma(mu = 2, sigma = 1)", "write `Gamma` with `shape = mean^2 / sd^2, rate = mean / sd^2`"),
        ("Exponential(scale = 3)", "write `Exponential` with `rate = 1 / scale`"),
        ("HalfNormal(tau = 3)", "write `HalfNormal` with `sd = 1 / sqrt(precision)`"),
        ("Normal(0, variance = 3)", "write `Normal` with `sd = sqrt(variance)`"),
    ],
)
def test_arguments_that_are_other_numbers_are_told_how_to_be_turned(prior: str, remedy: str) -> None:
    """The name of ours alone would make another model of the same numbers, without a word."""
    assert told(prior=f" ~ {prior}") == remedy


def test_no_habit_is_a_word_of_the_language() -> None:
    assert not {each.lower() for each in KERNELS} & set(habits.KERNELS)
    assert not {each.lower() for each in DISTRIBUTIONS} & set(habits.DISTRIBUTIONS)


DECLARED = """index c in 1..3
index d in 1..3
index q in 1..2
index task in 1..2
input x : real
input trials : count
param W[task, q] : real
param kappa[task] : positive
const S[c, d] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
param cut : ordered[2]
param p : unit
output v : real
v ~ Normal(x, 1)
const eta = 2
"""
POSITIVE = "s2, s0, ell, period, alpha, mean, sd, scale, df, sigma, shape, rate, dispersion, tau, s, phi"
DECLARED += "".join(f"param {each} : positive\n" for each in POSITIVE.split(", "))
PLACES = {
    "kernel": ["latent f(x) ~ GP(0, {})", "latent f(x, task) ~ GP(0, {})"],
    "law": [
        f"latent f(x) ~ GP(0, RBF(1))\noutput y : {kind}\n{left} ~ {{}}"
        for kind in ("real", "positive", "unit", "count", "binary", "ordinal[c]")
        for left in ("y", "log(y)")
    ]
    + ["latent f[c](x) ~ GP(0, RBF(1))\noutput y[c] : real\ny ~ {}", "param L[c, d] : correlation_factor ~ {}"],
}
OTHERWISE = ("declare", "leave", "write `Normal(g", "write `logit(y)", "write `log(y)", "odds", "a formula")
"""Remedies of several lines, some of whose words are declared there."""


def compiles(text: str) -> bool:
    try:
        return bool(gpdsl.compile(text))
    except gpdsl.ModelError:
        return False


@pytest.mark.parametrize(("place", "table"), [("kernel", habits.KERNELS), ("law", habits.DISTRIBUTIONS)])
def test_what_a_habit_says_to_write_can_be_compiled(place: str, table: Mapping[str, str]) -> None:
    codes = {each for said in table.values() for each in re.findall(r"write `([^`]*)`", said)}
    codes -= {each for said in table.values() if said.startswith(OTHERWISE) for each in re.findall("`([^`]*)`", said)}
    assert len(codes) > 13
    for code in codes:
        assert any(compiles(f"{DECLARED}{form.format(code)}\n") for form in PLACES[place]), code


def test_kernels_by_formula_that_habits_give_can_be_compiled() -> None:
    given = {said for said in habits.KERNELS.values() if "`kernel " in said}
    assert len(given) == 6
    for said in given:
        formula, *used = re.findall("`([^`]*)`", said)
        use = used[0] if used else "gibbs(1)"
        gpdsl.compile(
            f"input x : positive\noutput y : real\nparam s2 : positive\n{formula}\n"
            f"latent f(x) ~ GP(0, {use})\ny ~ Normal(f, 1)"
        )


def test_densities_that_habits_give_can_be_compiled() -> None:
    head = "input x : real\noutput y : real\nparam s : positive = 0.5\nparam a : real = 2\n"
    given = {said for said in habits.DISTRIBUTIONS.values() if "`density " in said and "none of it" not in said}
    assert len(given) == 2
    for said in given:
        density, observed = re.findall("`([^`]*)`", said)
        gpdsl.compile(f"{head}latent f(x) ~ GP(0, RBF(1))\n{density}\n{observed}\n")


LINES = (
    *("input x : real", "output y : real", "param m : real", "param s2 : positive", "param ell : positive"),
    *("param sigma : positive", "latent f(x) ~ GP(0, RBF(1))", "y ~ Normal(f, sigma)"),
)


def test_lines_that_stand_in_remedies_can_be_compiled() -> None:
    """Each in place of the line that declares the same name, or observes the same output."""
    codes = {each for said in habits.STARTS.values() for each in re.findall("`([^`]{9,})`", said)}
    assert len(codes) > 8
    first = re.compile(r"(\w+ \w+|y ~)")
    for code in codes:
        others = [each for each in LINES if first.match(each)[0] != first.match(code)[0]]  # type: ignore[index]
        kept = [each for each in others if not (code.startswith("const sigma") and each.startswith("param sigma"))]
        before = [each for each in kept if not each.startswith(("latent", "y ~"))]
        assert compiles("\n".join([*before, code, *kept[len(before) :]])), code


def test_functions_of_other_tools_are_those_that_are_to_be_written() -> None:
    """The numbers of what stands in the remedy, beside SciPy's."""
    f, x, p = np.array([-1.3, 0.4, 2.6]), np.array([9.0, -2.0, 3.0]), np.array([0.1, 0.5, 0.8])
    theirs = {
        "inv_logit": scipy.special.expit(f),
        "normcdf": scipy.special.ndtr(f),
        "inv_phi": scipy.special.ndtri(p),
        "cloglog": 1 - np.exp(-np.exp(f)),
        "log_sigmoid": scipy.special.log_expit(f),
        "logaddexp": np.logaddexp(f, x),
        "log1m": np.log1p(-p),
        "log1p_exp": np.logaddexp(0, f),
        "exp2": np.exp2(f),
        "erfc": scipy.special.erfc(f),
        "round": np.round(f),
        "ceil": np.ceil(f),
        "mod": np.mod(x, 7),
        "hypot": np.hypot(f, x),
        "inv": 1 / f,
        "swish": f * scipy.special.expit(f),
        "sign": np.sign(f),
        "relu": np.maximum(f, 0),
        "clip": np.clip(f, 0, 1),
    }
    lets = "".join(f"let _{word} = {habits.WORDS[word].split('`')[1]}\n" for word in theirs)
    text = f"input f : real\ninput x : real\ninput p : real\noutput y : real\n{lets}y ~ Normal(f, 1)\n"
    ours = gpdsl.compile(text).sample_prior({"f": f, "x": x, "p": p}).lets
    for word, values in theirs.items():
        np.testing.assert_allclose(ours[f"_{word}"], values, rtol=1e-9, err_msg=word)


def test_a_scale_that_is_to_be_said_is_told_by_the_link() -> None:
    binary = "input x : real\noutput y : binary\nlatent f(x) ~ GP(0, RBF(1))\ny ~ "
    for law, remedy in (
        ("Bernoulli(sigmoid(f))", "for example `Bernoulli(p = sigmoid(f))`"),
        ("Bernoulli(f)", "for example `Bernoulli(logit = f)`"),
        ("Bernoulli(probs = Phi(f))", "write `Bernoulli` with `p = probs`"),
        ("Bernoulli(cloglog = f)", "write `Bernoulli` with `p = 1 - exp(-exp(f))`"),
    ):
        with pytest.raises(gpdsl.ModelError) as caught:
            gpdsl.compile(binary + law)
        assert caught.value.diagnostics[0].help_text() == remedy


@pytest.mark.parametrize(
    ("kernel", "remedy"), [("RBF(1) + s2 * White", "write `White()`"), ("RBF", "write `RBF(ell)`")]
)
def test_a_kernel_without_its_brackets(kernel: str, remedy: str) -> None:
    with pytest.raises(gpdsl.ModelError, match="lacks its brackets") as caught:
        gpdsl.compile(TEXT.format(kernel="RBF", law="Normal(f, 1)", prior="").replace("s2 * RBF(ell)", kernel))
    assert caught.value.diagnostics[0].help_text() == remedy


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("np.pi", "names have no modules: write `pi`"),
        ("pm.math.exp(x)", "names have no modules: write `exp(...)`"),
        ("if x > 0 && x < 1 then 1 else 0", "write `and`"),
        ("if x > 0 || x < 1 then 1 else 0", "write `or`"),
        ("x²", "write `x^2`"),
        ("π * x", "write `pi`"),
        ("1 – x", "this is a typographic minus or dash; write `-`"),
        ("1\u00a0- x", "this is no-break space, U+00A0: write an ordinary space"),
        ("1\u200b", "this is zero width space, U+200B: remove it"),
        ("“a”", 'write texts with straight quotation marks, "like this"'),
        ("ѕ2 * x", r"declared is 's2', which looks the same and is not '\u04552': type both anew"),
    ],
)
def test_signs_and_names_of_other_tools(written: str, remedy: str) -> None:
    assert told(more=f"let g = {written}\n") == remedy


def test_priors_and_processes_on_lines_of_their_own() -> None:
    assert told(more="sigma ~ HalfNormal(1)\n").endswith("`param sigma : positive ~ HalfNormal(1)`")
    assert told(more="g ~ GP(0, RBF(1))\n").endswith("`latent g(x) ~ GP(0, RBF(1))`")


def test_single_numbers_of_a_parameter_in_a_kernel() -> None:
    kernel = "param scale : positive[2]\nkernel k(a, b; scale) = exp(-((a[1] - b[1]) / scale[1])^2)\n"
    told_of = told(more=kernel + "input z : real[2]\nlatent g(z) ~ GP(0, k())\n")
    assert (
        told_of
        == "in a kernel, divide all columns at once, `norm((a - b) / scale)`, or name numbers, `scale1`, `scale2`"
    )


@pytest.mark.parametrize("prior", ["HalfNormal(1)", "HalfCauchy(2)", "HalfStudentT(4, 1)", "InverseGamma(3, 2)"])
def test_priors_of_positive_parameters(prior: str) -> None:
    model = gpdsl.compile(TEXT.format(kernel="RBF", law="Normal(f, sigma)", prior=f" ~ {prior}"))
    assert model.declarations.params["ell"].prior is not None


def test_what_belongs_elsewhere(tmp_path: Path) -> None:
    text = TEXT.format(prior="", kernel="RBF", law="Normal(f, sigma)")
    (tmp_path / "m.gpm").write_text(text)
    with pytest.raises(gpdsl.GpdslError, match="gpdsl.compile takes the text of a model"):
        gpdsl.load(text)
    with pytest.raises(gpdsl.GpdslError, match="m.gpm is a model, not a fit: fit it to data first"):
        gpdsl.load_fit(tmp_path / "m.gpm")
    with pytest.raises(gpdsl.GpdslError, match="unknown option `what`; options are .*, fixed, init, standardise$"):
        gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, what=1)  # type: ignore[call-arg]
    with pytest.raises(gpdsl.GpdslError, match="unknown option `standardize`; did you mean `standardise`?"):
        gpdsl.compile(text).fit({"x": [0.0, 1.0], "y": [0.0, 1.0]}, standardize=True)  # type: ignore[call-arg]


def test_what_is_no_option_is_no_option_by_another_name_either() -> None:
    assert not set(takes.NO_OPTIONS) & {*WRITTEN, *takes.OPTIONS}


@pytest.mark.parametrize("word", list(takes.OPTIONS))
def test_options_of_other_tools_are_named_as_they_are_here(word: str) -> None:
    with pytest.raises(gpdsl.GpdslError, match=f"unknown option `{word}`; did you mean `{takes.OPTIONS[word]}`"):
        check_option(word, 3)
    assert takes.OPTIONS[word] in WRITTEN and word not in WRITTEN
    text = f"input x : real\noutput y : real\nlatent f(x) ~ GP(0, RBF(1))\ny ~ Normal(f, 1)\ninfer vi: {word} = 3\n"
    with pytest.raises(gpdsl.GpdslError, match=f"did you mean `{takes.OPTIONS[word]}`"):
        gpdsl.compile(text)
