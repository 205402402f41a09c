"""Distributions of standardised errors: Student's t, its density times waves.

Noise may be skewed, have short tails, or be a mixture, which no degrees of freedom
describe. With s the standard normal value that is as probable as an error under
Student's t, the density of the error is multiplied by

    exp(sum_k a_k w_k(r(s)) - psi),    r(s) = (s + R) / (2 R) between 0 and 1

for the K waves of `scale_waves`, R = `LARGEST_SCORE`, and the psi that keeps the
probability one: the smooth alternatives of Neyman (1937). Tails beyond R keep their
form. With u the sums of waves over n errors, less their expectations under Student's t,
and C the covariance of waves there, the statistic of Neyman's test is

    T = u' C^-1 u / n,    with a mean of K + n K v    if a is from N(0, v C^-1),

and a standard deviation of sqrt(2 K) by chance. So v = max(T - K - sqrt(2 K), 0) / n K
is taken for the prior variance (empirical Bayes, on the side of chance), and a
maximises the posterior density. Waves as small as chance makes them leave Student's t.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr, ndtri

from skswsgp._law import student
from skswsgp._law.scale_waves import HALVES, MOST_HALF_WAVES, waves_along

LARGEST_SCORE = 2.5  # in deviations: some 1 % of the errors lie beyond, on both sides

SCORES = np.linspace(-8.0, 8.0, 641)  # (J + 1,) ends of intervals of normal values
MIDDLES = 0.5 * (SCORES[1:] + SCORES[:-1])
MASSES = np.diff(ndtr(SCORES[:321]))
MASSES = np.append(MASSES, MASSES[::-1])  # (J,) which has all digits in both tails


class Shape(NamedTuple):
    """The distribution of the standardised errors of an output."""

    freedom: float  # degrees of freedom of Student's t, infinite for a Gaussian
    tilt: np.ndarray  # (K,) the a_k
    level: float  # psi
    moves: np.ndarray  # (J + 1,) by which normal values at `SCORES` are moved
    deviation: float  # root of the mean square

    def log_density(self, t):
        """Return the log density of errors t."""
        density = student.log_density(t, 0.0, self.freedom)
        if not self.tilt.any():
            return density
        s = student.normal_score(t, self.freedom)
        return density + waves_of_scores(s) @ self.tilt - self.level

    def normal_score(self, t):
        """Return the standard normal values that are as probable as t."""
        s = student.normal_score(t, self.freedom)
        return s + np.interp(s, SCORES, self.moves) if self.tilt.any() else s

    def from_normal(self, s):
        """Return the errors that are as probable as standard normal values s."""
        if self.tilt.any():
            s = s - np.interp(s, SCORES + self.moves, self.moves)
        return student.from_normal(s, self.freedom)


def waves_of_scores(s):
    """Return the waves (..., K) at normal values s."""
    shares = np.clip(0.5 + 0.5 * s / LARGEST_SCORE, 0.0, 1.0)
    return waves_along(shares[..., None], HALVES)


def make_shape(freedom, tilt):
    """Return the `Shape` of degrees of freedom and waves (K,)."""
    density = np.exp(waves_of_scores(MIDDLES) @ tilt)
    tails = density[[0, -1]] * ndtr(SCORES[0])
    total = density @ MASSES + tails.sum()
    parts = density * MASSES / total  # (J,)
    below = np.cumsum(np.append(tails[0] / total, parts))
    above = np.cumsum(np.append(tails[1] / total, parts[::-1]))[::-1]
    scores = np.where(below < above, ndtri(below), -ndtri(above))
    t = student.from_normal(MIDDLES, freedom)
    wider = np.sqrt((parts @ t**2) / (MASSES @ t**2)) * student.deviation(freedom)
    return Shape(freedom, tilt, np.log(total), scores - SCORES, float(wider))


def fit_shape(freedom, t):
    """Return the `Shape` of errors t (n,), of which Student's t is known."""
    waves = waves_of_scores(student.normal_score(t, freedom))
    n, K = waves.shape
    nodes = waves_of_scores(MIDDLES)  # (J, K)
    mean = MASSES @ nodes
    covariance = (nodes.T * MASSES) @ nodes - np.outer(mean, mean)
    excess = waves.sum(axis=0) - n * mean
    more = excess @ np.linalg.solve(covariance, excess) / n - K - np.sqrt(2 * K)
    if not more > 0.0:
        return make_shape(freedom, np.zeros(K))
    sums, prior = waves.sum(axis=0) / n, covariance * K / more

    def loss(a):
        level = logsumexp(nodes @ a, b=MASSES)
        slope = (MASSES * np.exp(nodes @ a - level)) @ nodes - sums + prior @ a
        return level - sums @ a + 0.5 * a @ prior @ a, slope

    tilt = minimize(loss, np.zeros(K), jac=True, method="L-BFGS-B").x
    return make_shape(freedom, tilt)


GAUSSIAN = make_shape(np.inf, np.zeros(MOST_HALF_WAVES))
