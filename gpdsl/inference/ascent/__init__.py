"""Gradient ascent on the bound itself: joint, alternating, and Adam on noisy gradients."""
