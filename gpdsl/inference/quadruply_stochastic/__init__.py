"""Quadruply stochastic GPs: minibatches of rows and of basis functions, at a cost that neither of their numbers raises.

QSGP: Evans and Nair, "Quadruply stochastic Gaussian processes".
"""
