"""The marginal likelihood of all rows, which teaches a kernel more where rows are few.

Outputs q are independent, y_q ~ N(0, K + noise_q diag(ratios_q)); the formulas are 2.30
and 5.9 of Rasmussen and Williams (Gaussian Processes for Machine Learning, 2006).
"""

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.optimize import minimize

from skswsgp._compiled.linalg import inverse_of_factor
from skswsgp._compiled.special import LOG_2PI
from skswsgp._covariance.compile import compile_kernel, constant_slots, updated_kernel
from skswsgp._covariance.matrix import CovarianceMatrix
from skswsgp._initialization.metric import moving_map
from skswsgp._initialization.neighbor_likelihood import PRIOR_VARIANCE
from skswsgp._initialization.statistics import climbed, effective_sample_size
from skswsgp._linear.columns import mapped
from skswsgp._point.adam_step import LOG_NOISE_BOUNDS

MAX_STEPS = 100  # steps of L-BFGS
DIFFERENCE = 1e-3  # step of a difference quotient, in prior standard deviations
# Least logarithm of the noise variance of an output, if there are several. They share
# a kernel, and the likelihood of one without noise grows without limit as its noise
# vanishes, so that a kernel for it alone, with the others as noise, would be likeliest.
LEAST_NOISE_OF_SEVERAL = np.log(1e-6)
WIDER = 4.0  # factor between two variances of priors whose evidence is compared
MAX_WIDER = 4  # number of these variances, the least of which is PRIOR_VARIANCE
MAX_ENTRY = 5.0  # bound on an entry of S, which is never reached in practice


def log_marginal_likelihood(K, y, noise, ratios):
    """Return log p(y) in nats, and its derivatives by K (N, N) and by log noise (Q,).

    y and ratios are (N, Q). Raises LinAlgError if a covariance matrix cannot be
    factorised.
    """
    value, d_K, d_noise = 0.0, np.zeros_like(K), np.zeros(len(noise))
    for q, variance in enumerate(noise):
        diagonal = variance * ratios[:, q]
        inverse, log_det = inverted(K + np.diag(diagonal))
        weights = inverse @ y[:, q]
        value -= 0.5 * (y[:, q] @ weights + log_det + len(K) * LOG_2PI)
        slope = 0.5 * (np.outer(weights, weights) - inverse)
        d_K += slope
        d_noise[q] = np.diag(slope) @ diagonal
    return value, d_K, d_noise


def inverted(C):
    """Return the inverse of a covariance matrix, and the log of its determinant."""
    factor, failed = dpotrf(C, lower=True)
    pivots = np.diag(factor)
    if failed or not np.isfinite(pivots).all():  # of NaN LAPACK makes no failure
        raise np.linalg.LinAlgError("a covariance matrix is not positive definite")
    return inverse_of_factor(factor), 2.0 * np.sum(np.log(pivots))


class LogPosterior:
    """The log posterior density of kernel and noise, given few rows.

    A point holds the logarithms of the free parameters of the compiled kernel (P,) and
    of the noise variances (Q,), `start` that of the kernel and the noise given. Each
    has a normal prior around `medians` (P + Q,), a flat one where that is NaN. The
    medians are the start, or, for entries of the kernel, those of the kernel `around`.
    With the latter, constants such as the variance of f have flat priors. X is (N, D);
    y and ratios are those of `log_marginal_likelihood`. A noise variance is judged by
    the effective sample size of one over its ratios: rows of nearly no weight would
    otherwise take the noise to zero, because their residuals do not count.

    With `turn` the kernel is one of X W, W the matrix of a `MovingMap`. A point then
    ends with the entries of S that move (R,).
    """

    def __init__(self, kernel, noise, X, y, ratios, around=None, turn=False):
        self.kernel, self.X, self.y, self.ratios = kernel, X, y, ratios
        self.compiled = compile_kernel(kernel, X.shape[1], np.float64)
        self.matrix = CovarianceMatrix(self.compiled.struct, X)
        self.params, free = self.compiled.struct.params.copy(), self.compiled.free
        low, high = LOG_NOISE_BOUNDS
        low = low if len(noise) == 1 else max(low, LEAST_NOISE_OF_SEVERAL)
        self.bounds = np.concatenate(
            [self.compiled.log_bounds[free], [(low, high)] * len(noise)]
        )
        start = np.log(np.concatenate([self.params[free], noise]))
        self.start = start.clip(*self.bounds.T)
        sizes = [effective_sample_size(1.0 / ratio) for ratio in ratios.T]
        self.missing = len(X) - np.array(sizes)  # (Q,) rows
        self.medians = self.start.copy()
        if around is not None:
            params = compile_kernel(around, X.shape[1], np.float64).struct.params.copy()
            params[constant_slots(self.compiled.struct)] = np.nan
            self.medians[: free.sum()] = np.log(params[free])
        self.n_logs = len(self.start)  # entries of a point before those of S
        self.variances = np.full(self.n_logs, PRIOR_VARIANCE)  # of the priors
        self.columns = None
        if turn:
            self._append_map()

    def _append_map(self):
        """Append the entries of S to the points."""
        self.columns = moving_map(self.kernel, self.X)
        zeros = np.zeros(len(self.columns.entries[0]))
        self.start = np.concatenate([self.start, zeros])
        self.medians = np.concatenate([self.medians, zeros])
        variance = zeros + self.columns.prior_variance
        self.variances = np.concatenate([self.variances, variance])
        bounds = np.tile([-MAX_ENTRY, MAX_ENTRY], (len(zeros), 1))
        self.bounds = np.concatenate([self.bounds, bounds])

    def split(self, point):
        """Return all parameters of the kernel, and the noise variances."""
        params, free = self.params.copy(), self.compiled.free
        params[free], noise = np.split(np.exp(point[: self.n_logs]), [free.sum()])
        return params, noise

    def metric_at(self, point):
        """Return the map W (D, D) at a point, or None without a map."""
        if self.columns is None:
            return None
        S = np.zeros_like(self.columns.S)
        entries = self.columns.entries
        S[entries] = S.T[entries] = point[self.n_logs :]
        self.columns.S[:] = S
        return self.columns.matrix

    def kernel_at(self, point):
        """Return the kernel object at a point."""
        return updated_kernel(self.kernel, self.split(point)[0])

    def log_prior(self, point):
        """Return the log prior density up to a constant."""
        return -0.5 * np.nansum((point - self.medians) ** 2 / self.variances)

    def loss(self, point):
        """Return the negative log density, and its gradient."""
        params, noise = self.split(point)
        metric = self.metric_at(point)
        K = self.matrix.evaluate(params, mapped(self.X, metric))
        value, d_K, d_noise = log_marginal_likelihood(K, self.y, noise, self.ratios)
        value += 0.5 * self.missing @ np.log(noise)
        d_noise += 0.5 * self.missing
        d_log, d_X = self.matrix.vjp(d_K, inputs=metric is not None)
        parts = [d_log[self.compiled.free], d_noise]
        if metric is not None:
            S = self.columns.free_slope(self.X.T @ d_X)
            parts.append((S + S.T - np.diag(S.diagonal()))[self.columns.entries])
        slope = np.concatenate(parts)
        pull = np.nan_to_num(point - self.medians) / self.variances
        return -value - self.log_prior(point), pull - slope

    def maximize(self, moves):
        """Return the point of largest density start + moves @ a, or None on failure.

        `moves` (P + Q + R, n) have at most one 1 in each row, and 0 elsewhere.
        """
        if moves.shape[1] == 0:
            return self.start
        low, high = (self.bounds - self.start[:, None]).T

        def loss(a):
            value, slope = self.loss(self.start + moves @ a)
            return value, slope @ moves

        bounds = [(low[move > 0].max(), high[move > 0].min()) for move in moves.T]
        how = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": MAX_STEPS}}
        try:
            best = minimize(loss, np.zeros(moves.shape[1]), bounds=bounds, **how).x
        except np.linalg.LinAlgError:
            return None
        return np.clip(self.start + moves @ best, *self.bounds.T)

    def maximize_with_wider_priors(self, noise=True):
        """Return the point of largest density, and take the variance of its priors.

        The variance grows while the evidence does: columns that do not matter have
        length-scales far from all others. The result is None on failure. Noise
        variances keep their values if not `noise`.
        """
        moves, first, points = self.moves(noise=noise), self.variances, {}

        def evidence(place):
            self.variances = first * WIDER**place
            points[place] = self.maximize(moves)
            if points[place] is None:
                return -np.inf
            try:
                return self.log_evidence(points[place], noise)
            except np.linalg.LinAlgError:  # beside the point
                return -np.inf

        place, _ = climbed(evidence, MAX_WIDER, 0)
        self.variances = first * WIDER**place
        return points[place]

    def log_volume(self, moves):
        """Return the log of the posterior volume over the prior one, at most 0.

        It is Laplace's approximation at the start, in the directions of `moves` that
        have a normal prior; the other entries keep their values.
        """
        moves = moves[:, ~np.isnan(self.medians) @ moves > 0]
        # steps of one standard deviation of the prior
        moves = moves / np.linalg.norm(moves / np.sqrt(self.variances)[:, None], axis=0)
        slope = self.loss(self.start)[1]
        curvature = np.empty((moves.shape[1],) * 2)
        for row, move in zip(curvature, moves.T, strict=True):
            near = self.loss(self.start + DIFFERENCE * move)[1]
            row[:] = (near - slope) @ moves / DIFFERENCE
        relative = np.linalg.eigvalsh(0.5 * (curvature + curvature.T))
        return -0.5 * np.log(np.maximum(relative, 1.0)).sum()

    def log_evidence(self, point, noise=True):
        """Return the log density at its maximum, plus the log volume around it.

        This is Laplace's approximation, less the evidence of a flat prior. Noise
        variances are no parameters if not `noise`.
        """
        self.start = point
        return self.log_volume(self.moves(noise=noise)) - self.loss(point)[0]

    def moves(self, *, shared=False, noise=True):
        """Return the moves (P + Q + R, n) of `maximize` for each entry of a point.

        With `shared`, the length-scales of a kernel move together, by a common factor.
        Noise variances keep their values if not `noise`.
        """
        struct, free = self.compiled.struct, self.compiled.free
        group = np.arange(len(free))
        if shared:
            for slot in struct.slot:
                own = slot[slot >= 0]
                group[own] = own[:1]
        rest = np.arange(len(self.start) - free.sum())
        group = np.concatenate([group[free], len(free) + rest])
        moves = np.equal.outer(group, np.unique(group)).astype(float)
        first = moves.shape[1] - len(rest)  # the first of the noise variances
        kept = [] if noise else np.arange(first, first + self.y.shape[1])
        return np.delete(moves, kept, axis=1)


def turn_by_evidence(plain, found, data, always, noise=True):
    """Return the `LogPosterior` with the larger evidence, and its best point.

    `plain` has no map of the columns, and `found` is its best point. The other one has
    a map, and is chosen `always`, or if its evidence is larger. `data` are the
    arguments of both. Noise variances keep their values if not `noise`.
    """
    turned = LogPosterior(*data, turn=True)
    turned.start[: plain.n_logs] = found
    turned.variances[: plain.n_logs] = plain.variances
    point = turned.maximize(turned.moves(noise=noise))
    if point is None:
        return plain, found
    if always:
        return turned, point
    try:
        evidence = plain.log_evidence(found, noise)
        # the volume, which takes long, only makes the evidence smaller
        better = -turned.loss(point)[0] > evidence
        better = better and turned.log_evidence(point, noise) > evidence
    except np.linalg.LinAlgError:  # beside a point, where the volume is measured
        better = False
    return (turned, point) if better else (plain, found)
