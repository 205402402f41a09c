"""Rows that no candidate has learned from, and the choice between kernels by them."""

from contextlib import closing

import numpy as np

from skswsgp._initialization.kernel_learning import MAX_WIDE_NEIGHBORS
from skswsgp._initialization.statistics import exceeds_standard_error

ERRORS = 2.0  # standard errors by which a later candidate must be better


class Judges:
    """Rows, each predicted from its H nearest others, by which kernels are compared.

    `rows` are numbers of rows of a `KernelLearner`. H is `n_neighbors`, or that of
    learning if it is None, and at most MAX_WIDE_NEIGHBORS.
    """

    def __init__(self, learner, rows, n_neighbors):
        self.learner, self.rows = learner, np.sort(rows)
        n_neighbors = n_neighbors or learner.options.tuning.learning_neighbors
        self.H = min(n_neighbors, MAX_WIDE_NEIGHBORS)
        self.weight = learner.weight[self.rows]
        self._seen = []  # pairs of a fit and what the rows say of it

    def better(self, fit, other, favoured=False):
        """Return the first fit unless the rows prefer the other one.

        The mean log density must be larger by two standard errors, or the other one
        `favoured` and no less likely by as much. The mean absolute error must not be
        larger: a few rows may gain what nearly all of them lose.
        """
        if other is fit:
            return fit
        (density, error), (after, error_after) = self.say(fit), self.say(other)
        if not np.isfinite(after).all():
            return fit
        if not np.isfinite(density).all():
            return other
        closer = np.average(error - error_after, weights=self.weight) >= 0.0
        wins = exceeds_standard_error(after - density, self.weight, errors=ERRORS)
        if favoured and not wins:
            loss = density - after
            wins = not exceeds_standard_error(loss, self.weight, errors=ERRORS)
        return other if wins and closer else fit

    def say(self, fit):
        """Return log density and absolute error, each (n,), summed over outputs.

        Variances have the common factor that suits the rows best.
        """
        for seen, said in self._seen:
            if seen is fit:
                return said
        with closing(self.learner.process(fit, self.H)) as process:
            square, v = process.standardised(self.rows, self.weight)
        factor = np.average(square.mean(axis=1), weights=self.weight)
        factor = max(factor, np.finfo(float).tiny)
        density = -0.5 * np.sum(square / factor + np.log(factor * v), axis=1)
        said = density, np.sum(np.sqrt(square * v), axis=1)
        self._seen.append((fit, said))
        return said

    def noise_share(self, fit):
        """Return the mean share of noise in the variances of the rows.

        Of several outputs it is that with the least noise.
        """
        with closing(self.learner.process(fit, self.H)) as process:
            _, v = process.standardised(self.rows, self.weight)
            share = process.noise_of(self.rows, self.weight) / v
        return np.average(share.min(axis=1), weights=self.weight)

    def calibrated(self, fit):
        """Return a fit with the noise and the common factor that suit the rows."""
        fit = self.learner.fit_noise(fit, self.rows)
        return self.learner.rescale_variance(fit, self.H, self.rows)
