"""Random waves of a covariance function, from which random Fourier features are made.

In goes a form with its parameters, points and a stream of random numbers; out come `Waves`.
`unsuited` names a part that has none.
"""

from gpdsl.kernels.waves.draw import turning, unsuited, waves
from gpdsl.kernels.waves.families import Waves

__all__ = ["Waves", "turning", "unsuited", "waves"]
