"""Fields: one joint Gaussian over the values of all latents that are the same in every row of the data."""
