"""Models that are right, for the tests of the language: those of the design, and one per likelihood family."""

from __future__ import annotations

SEISMIC = """model seismic "Layer depths and velocities from reflection times"
index layer in 1..4
input  s : real                                        # sensor position
output t[layer] : real                                 # reflection time, s
const depth0[layer]    = [200, 500, 1600, 2200]        # m
const velocity0[layer] = [1950, 2300, 2750, 3650]      # m/s
const noise[layer]     = [0.025, 0.05, 0.075, 0.1]     # s
latent depth[layer](s)    ~ GP(depth0[layer],    (0.15 * depth0[layer])^2    * RBF(1))
latent velocity[layer](s) ~ GP(velocity0[layer], (0.10 * velocity0[layer])^2 * RBF(1))
external travel_time(depth: real[4], velocity: real[4]) -> real[4]
let tau = travel_time(depth, velocity)
t[layer] ~ Normal(tau[layer], noise[layer])
"""

SEISMIC_SYMBOLIC = SEISMIC.replace(
    "external travel_time(depth: real[4], velocity: real[4]) -> real[4]\nlet tau = travel_time(depth, velocity)\n",
    "let tau[1] = 2 * depth[1] / velocity[1]\n"
    "let tau[layer > 1] = tau[layer - 1] + 2 * (depth[layer] - depth[layer - 1]) / velocity[layer]\n",
)

SEISMIC_LIKELIHOOD = SEISMIC.replace(
    "external travel_time(depth: real[4], velocity: real[4]) -> real[4]\nlet tau = travel_time(depth, velocity)\n",
    "external likelihood reflection(t: real[4] | depth: real[4], velocity: real[4])\n",
).replace("t[layer] ~ Normal(tau[layer], noise[layer])", "t ~ reflection(depth, velocity)")

GPRN = """model gprn "Gaussian process regression network"
index p in 1..P
index q in 1..2
input  x : real[D]
output y[p] : real
param  ell_g : positive[D] = 1
param  ell_w : positive[D] = 1
param  sigma[p] : positive = 0.1
latent g[q](x)   ~ GP(0, RBF(ell_g))
latent w[p,q](x) ~ GP(0, RBF(ell_w))
y[p] ~ Normal(sum(q, w[p,q] * g[q]), sigma[p])
"""

COAL_MINING = """model coal_mining "Log Gaussian Cox process of coal-mining disasters"
input  x : real                        # day
output n : count                       # disasters in the bin
param  m   : real     = -1.446
param  s2  : positive = 1.0
param  ell : positive = 2000
latent f(x) ~ GP(0, s2 * RBF(ell))
n ~ Poisson(exp(f + m))
"""

BOSTON = """model boston
input x : real[13]
output price : real
param s2 : positive = 1
param ell : positive[13] = 1
param sigma : positive = 0.1 ~ Gamma(2, 1)
latent f(x) ~ GP(0, s2 * RBF(ell))
price ~ Normal(f, sigma)
infer vi: posterior = mixture(2), inducing f = points(200), learn_inducing = true, tolerance = 1e-6
"""

SOFTMAX = """model usps
index c in {4, 7, 9}
input x : real[256]
output digit : label[c]
param s2[c] : positive = 1
param ell[c] : positive = [10, 10, 20]
latent f[c](x) ~ GP(0, s2[c] * RBF(ell[c]) + 0.01 * White())
digit ~ Categorical(logits = f)
"""

BINARY = """input x : real
output y : binary
latent f(x) ~ GP(0, Matern52(2) * Periodic(period = 12) + Linear()^2)
y ~ Bernoulli(logit = f)
"""

ALL = {
    "seismic": SEISMIC,
    "seismic_symbolic": SEISMIC_SYMBOLIC,
    "seismic_likelihood": SEISMIC_LIKELIHOOD,
    "gprn": GPRN,
    "coal_mining": COAL_MINING,
    "boston": BOSTON,
    "softmax": SOFTMAX,
    "binary": BINARY,
}

REGRESSION = """input x : real
output y : real
param sigma : positive = 0.1
latent f(x) ~ GP(0, RBF(1))
y ~ Normal(f, sigma)
"""
"""A model to add lines to."""
