"""Natural gradients by Gaussian sites of rows: at fixed hyperparameters, profiled over them, and on minibatches."""
