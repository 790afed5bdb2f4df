"""What an engine of your own is made of: see `gpdsl.register_engine` and the page on engines.

A `Search` is begun with a `Problem`. `LogJoint` has the densities of the problem, as functions that JAX can trace and
differentiate, and turns a Gaussian over the whitened values into a `Result`. `maximise` is L-BFGS over any tree of
arrays, and `Remembered` keeps the best point of what it maximises. `kinked` tells for `against` where curvature fails.
"""

from gpdsl.inference.ascent.lbfgs import Remembered, maximise
from gpdsl.inference.driver import Search
from gpdsl.inference.log_joint import LogJoint, kinked
from gpdsl.inference.problem import Problem, Result
from gpdsl.program.program import Program

__all__ = ["LogJoint", "Problem", "Program", "Remembered", "Result", "Search", "kinked", "maximise"]
