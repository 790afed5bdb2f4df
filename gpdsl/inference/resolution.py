"""What a fit cannot resolve: noise below the jitter of covariance matrices, or below rounding; what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpdsl.inference.natural.sites import Sites

MATTERS = 0.01
"""Share of an observation's noise variance from which jitter or rounding is said."""


def rounding_note(variances: Sequence[float], size: int, dtype: str) -> tuple[str, ...]:
    """Of exact inference: `variances` of signals in units of their noise, in matrices of up to `size` values."""
    largest = max(variances, default=0.0)
    share = largest * size * float(np.finfo(dtype).eps)
    if not share > MATTERS:
        return ()
    return (
        f"the noise variance is 1/{largest:.1g} of the signal's, which {dtype} hardly resolves with {size} values: "
        "parameters and evidence are those of interpolation; give the noise a lower bound or a prior, or fix it",
    )


def jitter_note(sites: Sites, scale: np.ndarray, jitter: float) -> tuple[str, ...]:
    """Of dense posteriors by sites: `jitter` is a share of each latent's variance `scale` [columns].

    It stands in the covariance of the rows like noise of the latents, and matters where an observation tells more.
    """
    precision = np.asarray(sites.precision)
    own = np.diagonal(precision, axis1=1, axis2=2) if precision.ndim == 3 else precision
    share = float(np.max(own * np.asarray(scale))) * jitter if own.size else 0.0
    if not share > MATTERS:
        return ()
    return (
        f"jitter, {jitter:.0e} of the latents' variance, is {share:.2g} of the observations' noise variance: the bound "
        "takes it for noise, predictions at new rows do not; give the noise a lower bound or a prior, or standardise",
    )
