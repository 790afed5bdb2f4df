"""A checked model as the equations a paper would print: `latex(declarations)`.

Comes in: checked declarations. Goes out: LaTeX for amsmath. Nothing is simplified: the equations say what the file
says.
"""

from gpdsl.symbolic.latex.document import equations, latex
