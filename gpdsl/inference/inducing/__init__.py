"""Inducing points: where they start, by greedy conditional variance or clusters."""
