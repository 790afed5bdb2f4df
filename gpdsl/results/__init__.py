"""Fit and Prediction: what inference found, what it says about new rows, and how to keep, show and score it."""
