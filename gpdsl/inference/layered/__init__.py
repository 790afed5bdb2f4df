"""Latents over latents and over row variables: layers are sampled through, the last one is integrated in closed form.

Doubly stochastic inference (Salimbeni and Deisenroth, 2017), with variables of rows as arguments, importance-weighted
where asked (Salimbeni et al., 2019): SGPVI sections 4.2 to 4.6. A layer has inducing points in the space of its
arguments and one Gaussian over its whitened inducing values; rows go through all layers but the last as samples, and
the last one's marginals are what the expected log likelihood takes, one component of a mixture for each sample.
"""
