"""q over the learnt parameters: one Gaussian on the real line (`parameters = gaussian`)."""
