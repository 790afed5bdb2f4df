"""Expected log likelihoods of rows: closed form, quadrature, pathwise and score-function samples."""
