"""Simulation-based calibration: data sets drawn from a model, fitted, and what the posteriors say of the truth."""
