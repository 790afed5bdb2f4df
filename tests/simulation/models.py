"""One model per feature that has to be drawn, and what it takes: texts by name."""

from __future__ import annotations

REGRESSION = """input x : real
output y : real
param ell : positive = 0.7
param sigma : positive = 0.2
latent f(x) ~ GP(1, 2 * RBF(ell))
y ~ Normal(f, sigma)
"""

DEEP = """index h in 1..3
input x : real[2]
output y : real
latent g[h](x) ~ GP(0, RBF(1))
latent f(g) ~ GP(0, RBF(1))
y ~ Normal(f, 0.1)
"""

ROWS = """index d in 1..2
index p in 1..5
output y[p] : real
row w[d] ~ Normal(0, 1)
latent f[p](w) ~ GP(0, RBF(1))
y[p] ~ Normal(f[p], 0.1)
"""

PREFERENCE = """input a : real[2]
input b : real[2]
output y : binary
latent f(a) ~ GP(0, RBF(1))
y ~ Bernoulli(probit = f(a) - f(b))
"""

DERIVATIVE = """input x : real[2]
output y : real
output dy : real
latent f(x) ~ GP(x[1]^2 + 1, 2 * RBF(1))
y ~ Normal(f, 0.1)
dy ~ Normal(D(f, x[1]), 0.1)
"""

ORDINAL = """index c in 1..4
input x : real
output y : ordinal[c]
param cut : ordered[3] = [-1, 0, 1]
latent f(x) ~ GP(0, RBF(1))
y ~ Ordinal(probit = f, cutpoints = cut)
"""

MIXTURE = """input x : real
output y : real
output z : positive
latent f(x) ~ GP(0, RBF(1))
y ~ Mixture(0.9, Normal(f, 0.1), Normal(0, 10))
z ~ Truncated(Normal(f, 1), lower = 0)
"""

CENSORED = """input x : real
input limit : positive
output z : positive
latent f(x) ~ GP(0, RBF(1))
z ~ Censored(Weibull(2, exp(f)), upper = limit)
"""

VECTOR = """index p in 1..3
index q in 1..3
input x : real
output y[p] : real
const S[p,q] = [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 2]]
latent f[p](x) ~ GP(0, RBF(1))
y ~ MultivariateNormal(f, covariance = S)
"""

WORDS = """index c in {"cat", "dog", "emu"}
input x : real
output y : label[c]
latent f[c](x) ~ GP(0, RBF(1))
y ~ Categorical(logits = f)
"""

WARPED = """input x : real
output y : positive
param a : positive = 1
function t(y; a) = log(y) + a * tanh(y)
latent f(x) ~ GP(0, RBF(1))
t(y) ~ Normal(f, 0.1)
"""

BY_FORMULA = """input x : real
output y : real
density double(y | mu, s) = -abs(y - mu) / s
latent f(x) ~ GP(0, RBF(1))
y ~ double(f, 0.5)
"""

CHAINED = """index p in 1..4
input x : real
output t[p] : real
latent f[p](x) ~ GP(0, RBF(1))
t[1] ~ Normal(f[1], 0.1)
t[p > 1] ~ Normal(t[p-1] + f[p], 0.1)
"""

RECURSION = """index p in 1..400
input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
let a[1] = f
let a[p > 1] = 0.5 * a[p - 1] + p
y ~ Normal(a[400], 0.1)
"""

CONDITIONAL = """input x : real
output y : real
latent f(x) ~ GP(0, ChangePoint(RBF(1), Matern32(0.3), at = 0))
let g = if f > 0 and not x > 1 then sqrt(f) else -f
y ~ Normal(g, 0.1)
"""

PRIORS = """input x : real
output y : real
param w : simplex[3] ~ Dirichlet(2)
param o : ordered[2] ~ Normal(0, 1)
param s : positive ~ Normal(1, 1)
param rho : real(lower = -0.1, upper = 0.1) ~ Normal(0, 1)
latent f(x) ~ GP(o[1] + rho, RBF(1))
y ~ Mixture(w, Normal(f, s), Normal(0, 1), Normal(5, 1))
"""

EXTERNAL = """index p in 1..2
input x : real
output t[p] : real
latent f[p](x) ~ GP(0, RBF(1))
external solver(f: real[2]) -> real[2]
let tau = solver(f)
t[p] ~ Normal(tau[p], 0.01)
"""

OPAQUE_LIKELIHOOD = """input x : real
output y : real
latent f(x) ~ GP(0, RBF(1))
external likelihood odd(y: real | f: real)
y ~ odd(f)
"""

DRAWN = {
    "regression": REGRESSION,
    "deep": DEEP,
    "rows": ROWS,
    "preference": PREFERENCE,
    "derivative": DERIVATIVE,
    "ordinal": ORDINAL,
    "mixture": MIXTURE,
    "censored": CENSORED,
    "vector": VECTOR,
    "words": WORDS,
    "warped": WARPED,
    "by_formula": BY_FORMULA,
    "chained": CHAINED,
    "recursion": RECURSION,
    "conditional": CONDITIONAL,
    "priors": PRIORS,
}
