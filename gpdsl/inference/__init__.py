"""Program + data → Fit: posterior families, inducing features, expected log likelihoods, optimisers and engines."""
