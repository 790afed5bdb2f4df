"""A checked model in, data drawn from its own prior out: `simulate` follows the declarations as they are written.

Expressions are interpreted in NumPy, element by element, and not compiled: what is simulated does not depend on the
symbolic stage, so that a fit of simulated data checks that stage too. Kernels and samplers are those of a fit.
"""
