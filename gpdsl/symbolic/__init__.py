"""Model → mathematics in SymPy: densities, terms and their exact Gaussian expectations.

Comes in: checked declarations and the sizes data gave to free dimensions. Goes out: scalar SymPy expressions whose
symbols are known by reference (`Translator.references`), and the terms of the expected log likelihood. No JAX.
"""
