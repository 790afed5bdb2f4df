"""Learnt parameters integrated over: many settings of them with weights, each with a posterior of the latents."""
