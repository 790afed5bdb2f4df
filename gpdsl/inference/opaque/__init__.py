"""Inference from evaluations alone: opaque functions between compiled steps, surrogates, budgets and trust."""
