"""The papers' experiments, one command each."""
