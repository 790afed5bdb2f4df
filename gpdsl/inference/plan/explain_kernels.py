"""The part of the plan about kernels by formula: what follows from each formula, and what speaks against it."""

from __future__ import annotations

from gpdsl.language import model as m
from gpdsl.symbolic.kernel_analysis import analyse
from gpdsl.symbolic.kernel_checks import doubtful_kernels, uses_formula


def explain_kernels(declarations: m.Declarations) -> list[str]:
    """Lines for every latent whose kernel has a formula of the file; none without such."""
    latents = [latent for latent in declarations.latents.values() if uses_formula(latent.kernel)]
    if not latents:
        return []
    lines = ["", "kernels by formula"]
    for latent in latents:
        first, *rest = analyse(latent.kernel, declarations, latent).describe().splitlines()
        lines += [f"  {latent.name}: {first}", *(f"    {each}" for each in rest)]
    for doubt in doubtful_kernels(declarations):
        lines.append(f"  warning {doubt.code}: {doubt.message_text()}")
    return lines
