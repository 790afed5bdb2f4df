"""Scalable expectation propagation (SEP) for any likelihood: sites of O(rows) numbers, power alpha, log Z_q.

In goes a `Problem`, out comes the same `Result` as from variational inference; its bound is the estimate of the log
marginal likelihood.
"""
