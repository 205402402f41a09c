"""A network of dense layers, its derivatives, and steps of Adam for its weights."""

from itertools import pairwise

import numpy as np

from skswsgp._point.adam_step import update_matrix


def draw_weights(sizes, rng):
    """Return weights and intercepts of layers of some sizes, inputs first.

    Weights are uniform, as Glorot and Bengio (AISTATS 2010) say, and intercepts zero.
    """
    most = [(np.sqrt(6.0 / sum(pair)), pair) for pair in pairwise(sizes)]
    coefs = [rng.uniform(-bound, bound, pair) for bound, pair in most]
    return coefs, [np.zeros(size) for size in sizes[1:]]


class Network:
    """Layers of rectified linear units, and a linear one at the end."""

    def __init__(self, coefs, intercepts):
        self.coefs, self.intercepts = coefs, [np.atleast_2d(row) for row in intercepts]
        self.arrays = [*self.coefs, *self.intercepts]  # which steps modify
        self._moments, self._steps = None, 0

    def layers(self, X):
        """Return X (n, D), the values of each hidden layer, and the outputs (n, K)."""
        found = [X]
        for coef, intercept in zip(self.coefs, self.intercepts, strict=True):
            last = len(found) == len(self.coefs)
            out = found[-1] @ coef + intercept
            found.append(out if last else np.maximum(out, 0.0))
        return found

    def slopes(self, layers, d_out):
        """Return the derivatives by all arrays from those by the outputs (n, K)."""
        by_coefs, by_intercepts = [], []
        for values, coef in zip(layers[-2::-1], self.coefs[::-1], strict=True):
            by_coefs.insert(0, values.T @ d_out)
            by_intercepts.insert(0, d_out.sum(axis=0, keepdims=True))
            d_out = (d_out @ coef.T) * (values > 0.0)
        return by_coefs + by_intercepts

    def step(self, slopes, rate):
        """Take a step of Adam, uphill."""
        if self._moments is None:
            self._moments = [np.zeros((len(a), 2, a.shape[1])) for a in self.arrays]
        self._steps += 1
        for each in zip(self.arrays, slopes, self._moments, strict=True):
            update_matrix(*each, self._steps, rate)
