"""The tables of the language reference, written from the vocabulary and the options, so that they cannot disagree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import samples

from gpdsl.inference.plan.options import Options
from gpdsl.language import vocabulary as v

MEANINGS = {
    "posterior": "family of q: " + ", ".join(v.POSTERIORS),
    "inducing": "inducing points per latent; 0 is dense: every row is one",
    "learn_inducing": "move the inducing inputs too",
    "expectations": "`auto` takes closed form, then quadrature, then samples; a name forces that estimator everywhere",
    "samples": "samples per expectation that is sampled",
    "sampling": "of samples: `qmc` (randomised quasi-Monte-Carlo), `antithetic` pairs, or `iid`",
    "gradients": "of sampled expectations: `pathwise`, `score` (values only, SAVIGP Theorem 1), or `auto`",
    "control_variate": "of score gradients: `regression`, `constant` (SAVIGP appendix F), or `none`",
    "inducing_start": "where inducing points start: `kmeans` centres, `greedy` by variance, or `auto`",
    "optimizer": "`natural`, `lbfgs`, `adam`, `adadelta`, or `auto`",
    "schedule": "`joint`, or `alternating`: one set of unknowns after the other, as in SAVIGP 9.2",
    "decay": "of Adadelta; the default is that of SAVIGP 9.2",
    "epsilon": "of Adadelta; the default is that of SAVIGP 9.2",
    "batch": "rows per step; 0 is all of them",
    "steps": "most iterations of the optimiser",
    "evaluations": "the most calls of opaque functions, counted by rows",
    "tolerance": "smallest relative gain in the bound worth another step",
    "learning_rate": "of Adam; 0.01 by default, 0.05 beside natural gradients, less with `qsgp`",
    "seed": "of everything random: same seed, same machine, same answer",
    "dtype": "`float64` or `float32`; `qsgp` takes `float32` unless asked otherwise",
    "engine": "`vi`, variational inference, `ep`, expectation propagation, or `qsgp`, weights of basis functions",
    "power": "of `ep`, above 0 and at most 1; towards 0 it becomes variational inference",
    "basis": "of `qsgp`: random `fourier` features, `inducing` points (S = K), or `relevance` vectors",
    "features": "of `qsgp`: basis functions, by default 10 for each row, from 2000 to 20000",
    "chevron": "of `qsgp`: dense columns of the root of q's covariance; 0 is a diagonal",
    "feature_batch": "of `qsgp`: basis functions per step",
    "support": "of `qsgp`: rows behind the preconditioner, or behind the control variate",
    "feature_sums": "of `qsgp`: `running`, known for the rows of a step, or `sampled` as in the paper",
    "start_rows": "of `qsgp`: rows on which hyperparameters are found first; 1000 by default, 0 for none",
    "device": "`cpu`, `gpu`, or where JAX puts things",
    "devices": "how many devices share the rows; by default one, or all of several processes",
    "entropy": "how a mixture's entropy is bounded: `pairwise`, or `jensen` as in SAVIGP eq. 18",
    "fixed": "parameters that keep their initial values",
    "init": "initial values of parameters, by name",
}


def distributions() -> str:
    """Every distribution: how it is written, its outputs, its meaning and examples."""
    rows = (
        (f"`{v.signature(d)}`", ", ".join(d.kinds) or "priors only", d.meaning, _codes(samples.DISTRIBUTIONS[d.name]))
        for d in v.DISTRIBUTIONS.values()
    )
    return _table(("distribution", "outputs", "meaning", "example"), rows)


def kernels() -> str:
    """Every kernel, with its parameters and an example."""
    rows = (
        (
            f"`{v.signature(k)}`",
            k.meaning,
            "; ".join(f"`{p.name}`: {p.meaning}" for p in k.parameters),
            _codes([samples.KERNELS[k.name]]),
        )
        for k in v.KERNELS.values()
    )
    return _table(("kernel", "meaning", "parameters", "example"), rows)


def functions() -> str:
    """Elementary functions, then reductions over an index."""
    plain = ((f"`{f.name}({', '.join('ab'[: f.arity])})`", f.meaning) for f in v.FUNCTIONS.values())
    over = (
        (f"`{name}(i, ...)`", f"{meaning}: {_codes([samples.REDUCTIONS[name]])}")
        for name, meaning in v.REDUCTIONS.items()
    )
    return _table(("function", "meaning"), (*plain, *over))


def options() -> str:
    """Every option of `fit`, with its default."""
    rows = []
    for field in dataclasses.fields(Options):
        default = "the plan decides" if field.default is None else f"`{field.default!r}`"
        if field.default is dataclasses.MISSING:
            default = "`{}`"
        rows.append((f"`{field.name}`", default, MEANINGS[field.name]))
    return _table(("option", "default", "meaning"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "distributions": distributions,
    "kernels": kernels,
    "functions": functions,
    "options": options,
}


def write(folder: Path) -> None:
    """Write each table as `folder`/NAME.md."""
    folder.mkdir(exist_ok=True)
    for name, make in TABLES.items():
        (folder / f"{name}.md").write_text(make(), encoding="utf-8")


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
