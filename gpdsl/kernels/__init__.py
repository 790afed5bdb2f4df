"""Covariance functions: what comes in is a checked kernel expression, what goes out is one question answered,

`covariance(form, parameters, A, B)` for two arrays of linear functionals of a Gaussian process.
"""
