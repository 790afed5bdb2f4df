"""Checked model + data → Program: sizes known, latents grouped, every term of the bound planned and lowered to JAX.

Comes in: declarations and bound data. Goes out: a `Program`, whose functions are pure and take arrays as arguments.
"""
