"""Markov chain Monte Carlo: draws from the exact posterior of parameters and latents, begun where a search ended."""
