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
    """The distribution of the standardised errors of an output.

    Methods take the share `known` of it that rows left out tell of a row: normal values
    move by that share of their way, from those of Student's t at 0 to the shape at 1.
    """

    freedom: float  # degrees of freedom of Student's t, infinite for a Gaussian
    tilt: np.ndarray  # (K,) the a_k
    level: float  # psi
    moves: np.ndarray  # (J + 1,) by which normal values at `SCORES` are moved
    squares: np.ndarray  # (3,) mean squares where 0, 1/2 and all of it are known

    def __reduce__(self):
        return make_shape, (self.freedom, self.tilt)  # the rest follows

    def square(self, known):
        """Return mean squares, by a parabola of the share that is known."""
        none, half, whole = self.squares
        slope, bend = 4.0 * half - whole - 3.0 * none, none + whole - 2.0 * half
        return none + known * (slope + 2.0 * known * bend)

    def log_density(self, t, known):
        """Return the log density of errors t."""
        density = student.log_density(t, 0.0, self.freedom)
        if not self.tilt.any():
            return density
        s = student.normal_score(t, self.freedom)
        ratio = waves_of_scores(s) @ self.tilt - self.level
        move = np.interp(s, SCORES, self.moves)
        inside = s.clip(SCORES[0], SCORES[-1])
        slope = np.exp(ratio + move * (inside + 0.5 * move))  # of s + move
        part = np.log1p(known * (slope - 1.0)) - known * move * (s + 0.5 * known * move)
        return density + np.where(known < 1.0, part, ratio)

    def normal_score(self, t, known):
        """Return the standard normal values that are as probable as t."""
        s = student.normal_score(t, self.freedom)
        return s + known * np.interp(s, SCORES, self.moves) if self.tilt.any() else s

    def from_normal(self, s, known):
        """Return the errors that are as probable as standard normal values s."""
        if self.tilt.any():
            s = s - known * self._move_to(s, known)
        return student.from_normal(s, self.freedom)

    def _move_to(self, scores, known):
        """Return the moves by which normal values get to scores."""
        low = np.zeros(np.broadcast(scores, known).shape, dtype=np.intp)
        high = low + len(MIDDLES)
        for _ in range(len(MIDDLES).bit_length()):
            middle = (low + high) // 2
            below = SCORES[middle] + known * self.moves[middle] <= scores
            below |= middle == low  # neighbours stay apart
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        left, right = (SCORES[j] + known * self.moves[j] for j in (low, high))
        share = np.clip((scores - left) / (right - left), 0.0, 1.0)
        return self.moves[low] + share * (self.moves[high] - self.moves[low])


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
    shape = Shape(freedom, tilt, np.log(total), scores - SCORES, np.ones(3))
    half = MASSES @ shape.from_normal(MIDDLES, 0.5) ** 2
    none, whole = MASSES @ t**2, parts @ t**2
    exact = student.deviation(freedom) ** 2
    return shape._replace(squares=exact * np.array([1.0, half / none, whole / none]))


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
