"""Exact inference: observations that are normal about linear functions of the latents need no variational posterior.

`system` says what they are in units of their noise, `evidence` gives the log evidence and its gradient by one Cholesky
factorisation and one inverse, `engine` maximises it, and `posterior` predicts from the data themselves.
"""
