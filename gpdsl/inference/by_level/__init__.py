"""Variational inference of latents that are independent at different levels: a small matrix for each set of rows."""
