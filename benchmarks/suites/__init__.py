"""One module per comparison, each with a function `run` that prints its tables."""
