"""The sizes at which a model text is refused: it is untrusted, and must end in an answer or an error, soon."""

from __future__ import annotations

MAX_CHARACTERS = 250_000
MAX_LINE = 10_000
MAX_STATEMENTS = 5_000
MAX_DEPTH = 100  # of brackets and of operators: well inside Python's own recursion limit, here and downstream
MAX_AXIS = 10_000
MAX_ELEMENTS = 1_000_000
MAX_DEGREE = 1_000  # of a constant power, multiplied through nested powers and earlier `let`s
MAX_TERMS = 20_000  # of an expression once earlier `let`s are written out
MAX_EXPANDED = 200_000  # terms that all calls of functions together write out
MAX_FUNCTION_DEPTH = 50  # of the operations in one function, the functions it calls written out
MAX_KERNEL_POWER = 10
MAX_KERNELS = 500  # in one covariance function, powers written out
MAX_CASES = 200  # of one `let`
MAX_LAYERS = 50  # of latents over latents
MAX_NAME = 100
MAX_REPORTED = 100
MAX_USED = 50  # files that a model uses; their texts and its own are one text to the limits above
MAX_USE_DEPTH = 10  # of files that use files
MAX_READINGS = 32  # points and derivatives at which one latent is read in a row
