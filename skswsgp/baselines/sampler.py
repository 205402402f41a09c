"""Steps of Adam, stochastic gradient Hamiltonian Monte Carlo, and its diagnosis.

`slope(x, rng)` returns the gradient of a log density at x, from a random minibatch.
"""

import numpy as np

from skswsgp._point.adam_step import update_matrix


def climb(slope, x, n_steps, rate, rng):
    """Move x (n,) by steps of Adam, uphill."""
    moments = np.zeros((1, 2, len(x)))
    for step in range(1, n_steps + 1):
        update_matrix(x[None], slope(x, rng)[None], moments, step, rate)


class SGHMC:
    """A chain over n numbers, by Chen et al. (ICML 2014).

    The size of the steps of each number follows its gradients in burn-in, as in
    Springenberg et al. (NeurIPS 2016). Gradients are those of a log density over
    `total`, so that their size does not depend on the number of rows.
    """

    def __init__(self, n, total, step_size, friction, rng):
        self.total, self.step_size, self.friction = total, step_size, friction
        self.rng, self.momentum = rng, np.zeros(n)
        # means of gradients and of their squares, over the last `memory` steps
        self.memory, self.mean, self.square = np.ones(n), np.zeros(n), np.ones(n)

    def step(self, x, gradient, adapts):
        """Return the numbers (n,) that follow x; `adapts` is true in burn-in."""
        if adapts:
            rate = 1.0 / (self.memory + 1.0)
            self.memory = 1.0 + self.memory * (1.0 - self.mean**2 / self.square)
            self.mean += rate * (gradient - self.mean)
            self.square += rate * (gradient**2 - self.square)
        eta = self.step_size**2 / (self.total * np.sqrt(self.square))
        noise = np.sqrt(2.0 * self.friction * eta) * self.rng.normal(size=len(x))
        self.momentum *= 1.0 - self.friction
        self.momentum += eta * self.total * gradient + noise
        return x + self.momentum

    def run(self, slope, x, moving, burn_in, n_samples, spacing, draws):
        """Move the entries of x that `moving` says; append each sample to `draws`."""
        for step in range(burn_in + n_samples * spacing):
            gradient, past = slope(x, self.rng)[moving], step + 1 - burn_in
            x[moving] = self.step(x[moving], gradient, adapts=step < burn_in)
            if past > 0 and past % spacing == 0:
                draws.append(x.copy())


def split_r_hat(draws, n_chains):
    """Return the split R-hat (P,) of draws (S, P), the chains one after the other.

    It compares variances between and within the halves of chains (Gelman et al.,
    "Bayesian Data Analysis", 2013) and is NaN where halves have fewer than two draws.
    """
    n, P = len(draws) // (2 * n_chains), draws.shape[1]
    if n < 2:
        return np.full(P, np.nan)
    halves = draws[: 2 * n_chains * n].reshape(2 * n_chains, n, P)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((n - 1.0) / n + between / within)
