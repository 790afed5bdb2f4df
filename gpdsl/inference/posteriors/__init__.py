"""Posterior families over whitened inducing values and row variables, and the features of rows they act on."""
