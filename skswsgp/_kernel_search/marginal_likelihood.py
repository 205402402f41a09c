"""The marginal likelihood of all rows, which teaches a kernel more where rows are few.

Outputs q are independent, y_q ~ N(0, K + noise_q diag(ratios_q)); the formulas are 2.30
and 5.9 of Rasmussen and Williams (Gaussian Processes for Machine Learning, 2006).
"""

import copy

import numpy as np
from scipy.linalg import lu_factor, lu_solve, pinvh
from scipy.linalg.blas import dsyr
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import minimize

from skswsgp._compiled.linalg import given_others
from skswsgp._compiled.special import LOG_2PI
from skswsgp._covariance.compile import compile_kernel, constant_slots, updated_kernel
from skswsgp._covariance.matrix import CovarianceMatrix
from skswsgp._kernel_search.linear_map import moving_map
from skswsgp._point.adam_step import LOG_NOISE_BOUNDS
from skswsgp._rows.columns import mapped
from skswsgp._rows.statistics import effective_sample_size

UNLIKELY = 1e3  # nats by which points without a factor are less likely than a start
# Step of a difference quotient, in prior standard deviations or length-scales
DIFFERENCE = 1e-3
# Least logarithm of the noise variance of an output, if there are several. They share
# a kernel, and the likelihood of one without noise grows without limit as its noise
# vanishes, so that a kernel for it alone, with the others as noise, would be likeliest.
LEAST_NOISE_OF_SEVERAL = np.log(1e-6)


def log_marginal_likelihood(K, y, noise, ratios):
    """Return log p(y) in nats, and its derivatives by K (N, N) and by log noise (Q,).

    y and ratios are (N, Q). Only the lower triangle of the symmetric derivatives by K
    is set. Raises LinAlgError if a covariance matrix cannot be factorised.
    """
    value, d_K, d_noise = 0.0, None, np.zeros(len(noise))
    outputs = {}  # numbers of those that share a covariance matrix
    for q, variance in enumerate(noise):
        outputs.setdefault((variance * ratios[:, q]).tobytes(), []).append(q)
    for same in outputs.values():
        diagonal, C = noise[same[0]] * ratios[:, same[0]], K.copy()
        C[np.diag_indices(len(C))] += diagonal
        factor, log_det = factorised(C)
        weights = dpotrs(factor, y[:, same])[0]  # (N, k)
        constant = len(same) * (log_det + len(K) * LOG_2PI)
        value -= 0.5 * (np.vdot(y[:, same], weights) + constant)
        slope = dpotri(factor, overwrite_c=True)[0]
        gains = weights**2 - np.diag(slope)[:, None]
        d_noise[same] = 0.5 * diagonal @ gains
        slope *= -0.5 * len(same)
        for each in weights.T:
            slope = dsyr(0.5, each, a=slope, overwrite_a=True)
        d_K = slope.T if d_K is None else d_K + slope.T  # (N, N)
    return value, d_K, d_noise


def factorised(C):
    """Return the factor U of a covariance matrix C = U' U, and log |C|; C is lost.

    U is in column-major order, so that U' is lower triangular in row-major order. The
    other triangle holds numbers of no meaning.
    """
    factor, failed = dpotrf(C.T, overwrite_a=True, clean=False)
    pivots = np.diag(factor)
    if failed or not np.isfinite(pivots).all():  # of NaN LAPACK makes no failure
        raise np.linalg.LinAlgError("a covariance matrix is not positive definite")
    return factor, 2.0 * np.sum(np.log(pivots))


class LogPosterior:
    """The log posterior density of kernel and noise, given few rows.

    A point holds the logarithms of the free parameters of the compiled kernel (P,) and
    of the noise variances (Q,), `start` that of the kernel and the noise given. Each
    has a normal prior around `medians` (P + Q,), a flat one where that is NaN. That of
    the noise is Student's t with one degree of freedom if it is `heavy`, so that a few
    rows of a smooth function can tell that there is no noise. If it is `common_noise`,
    outputs move theirs together. The medians are the start, or, for entries of the
    kernel, those of the kernel `around`. With the latter, constants such as the
    variance of f have flat priors. X is (N, D); y and ratios are those of
    `log_marginal_likelihood`. A noise variance is judged by the effective sample size
    of one over its ratios: rows of nearly no weight would otherwise take the noise to
    zero, because their residuals do not count.

    With `turn` the kernel is one of X W, W the matrix of a `MovingMap`. A point then
    ends with the entries of S that move (R,).
    """

    heavy = common_noise = False

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
        self.missing = missing_rows(ratios)
        self.medians = self.start.copy()
        if around is not None:
            params = compile_kernel(around, X.shape[1], np.float64).struct.params.copy()
            params[constant_slots(self.compiled.struct)] = np.nan
            self.medians[: free.sum()] = np.log(params[free])
        self.n_logs = len(self.start)  # entries of a point before those of S
        # The variances of normal priors. A heavy one is as curved at its median.
        self.variances = np.ones(self.n_logs)
        self.columns = None
        if turn:
            self._append_map()

    def given(self, X, y, ratios):
        """Return the posterior with the same priors, at the same point, of other rows.

        The map of the columns has the lengths of this one.
        """
        other = copy.copy(self)
        other.X, other.y, other.ratios = X, y, ratios
        other.matrix = CovarianceMatrix(self.compiled.struct, X)
        other.missing = missing_rows(ratios)
        return other

    def _append_map(self):
        """Append the entries of S to the points."""
        self.columns = moving_map(self.kernel, self.X)
        zeros = np.zeros(len(self.columns.entries[0]))
        self.start = np.concatenate([self.start, zeros])
        self.medians = np.concatenate([self.medians, zeros])
        variance = zeros + self.columns.prior_variance
        self.variances = np.concatenate([self.variances, variance])
        bounds = np.tile([-np.inf, np.inf], (len(zeros), 1))
        self.bounds = np.concatenate([self.bounds, bounds])

    def split(self, point):
        """Return all parameters of the kernel, and the noise variances."""
        params, free = self.params.copy(), self.compiled.free
        params[free], noise = np.split(np.exp(point[: self.n_logs]), [free.sum()])
        return params, noise

    def map_at(self, point):
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

    def covariances(self, point):
        """Yield the covariance C (N, N) of the targets of each output at a point."""
        params, noise = self.split(point)
        K = self.matrix.evaluate(params, mapped(self.X, self.map_at(point)))
        for q, variance in enumerate(noise):
            yield K + np.diag(variance * self.ratios[:, q])

    def leave_one_out(self):
        """Return mean and variance (N, Q) of targets given all others, at the start."""
        mean, variance = np.empty((2, *self.y.shape))
        for q, C in enumerate(self.covariances(self.start)):
            factor = factorised(C)[0].T
            mean[:, q], variance[:, q] = given_others(factor, self.y[:, q])
        return mean, variance

    def feature_gains(self, features):
        """Return how many nats terms along features (N, k) could gain, at the start.

        With P the inverse of the covariance of the targets and a = P y, a multiple of a
        feature phi in their mean gains (phi' a)^2 / (2 phi' P phi) at most (the score
        test: Rao, 1948), summed over outputs.
        """
        gains = np.zeros(features.shape[1])
        for q, C in enumerate(self.covariances(self.start)):
            across = dpotrs(factorised(C)[0], features)[0]
            norms = np.einsum("nk,nk->k", features, across)
            norms = np.where(norms > 0.0, norms, np.inf)  # of a feature of zeros
            gains += 0.5 * (self.y[:, q] @ across) ** 2 / norms
        return gains

    def log_likelihood(self, K, noise):
        """Return the log density of rows, and its derivatives by K and by log noise."""
        return log_marginal_likelihood(K, self.y, noise, self.ratios)

    def prior_loss(self, point):
        """Return minus the log prior density, up to a constant, and two derivatives.

        The derivatives by each entry of the point are (P + Q + R,).
        """
        moved = np.nan_to_num(point - self.medians)
        value = 0.5 * moved**2 / self.variances
        slope = moved / self.variances
        curvature = ~np.isnan(self.medians) / self.variances
        n_noise = self.y.shape[1] if self.heavy else 0
        noise = slice(self.n_logs - n_noise, self.n_logs)
        more = 1.0 + value[noise]
        value[noise] = np.log(more)
        slope[noise] /= more
        curvature[noise] *= (2.0 - more) / more**2
        return value.sum(), slope, curvature

    def loss(self, point):
        """Return the negative log density, and its gradient."""
        params, noise = self.split(point)
        linear_map = self.map_at(point)
        K = self.matrix.evaluate(params, mapped(self.X, linear_map))
        value, d_K, d_noise = self.log_likelihood(K, noise)
        value += 0.5 * self.missing @ np.log(noise)
        d_noise += 0.5 * self.missing
        d_log, d_X = self.matrix.vjp(d_K, inputs=linear_map is not None)
        parts = [d_log[self.compiled.free], d_noise]
        if linear_map is not None:
            S = self.columns.free_slope(self.X.T @ d_X)
            parts.append((S + S.T - np.diag(S.diagonal()))[self.columns.entries])
        slope = np.concatenate(parts)
        prior, pull, _ = self.prior_loss(point)
        return prior - value, pull - slope

    def density(self, point):
        """Return the log density at a point, minus infinity where there is none."""
        try:
            return -self.loss(point)[0]
        except np.linalg.LinAlgError:
            return -np.inf

    def maximize(self, moves, steps, hessian=None, enough=0.0):
        """Return the point of largest density start + moves @ a, and its log density.

        `moves` (P + Q + R, n) have at most one 1 in each row, and 0 elsewhere. There
        are at most so many `steps` of L-BFGS, or of BFGS from the second derivatives
        `hessian` (n, n) of the loss by a, if these are known. A step that gains less
        than `enough` nats is the last. What BFGS has learned of the second derivatives
        is returned as well, or `hessian` where there was no BFGS. The point is the
        start and the density minus infinity if there is no density at the start.
        """
        worst = before = None

        def loss(a):
            nonlocal worst
            try:
                value, slope = self.loss(self.start + moves @ a)
            except np.linalg.LinAlgError:
                if worst is None:  # at the start
                    raise
                return worst, np.zeros(len(a))  # the search turns back from there
            worst = value + UNLIKELY if worst is None else worst
            return value, slope @ moves

        def end_after_a_small_gain(intermediate_result):
            nonlocal before
            start = worst - UNLIKELY if before is None else before
            before = intermediate_result.fun
            if start - before < enough:
                raise StopIteration

        low, high = (self.bounds - self.start[:, None]).T
        low = np.array([low[move > 0].max() for move in moves.T])
        high = np.array([high[move > 0].min() for move in moves.T])
        first = np.zeros(moves.shape[1])
        try:
            if len(first) == 0:
                return self.start, -loss(first)[0], hessian
            if hessian is None:
                best = minimize(
                    loss, first, jac=True, method="L-BFGS-B", bounds=np.c_[low, high],
                    callback=end_after_a_small_gain,
                    options={"maxiter": steps, "ftol": np.finfo(float).eps},
                )  # fmt: skip
            else:
                how = low, high, hessian, steps, end_after_a_small_gain
                best, hessian = minimize_bounded(loss, *how)
        except np.linalg.LinAlgError:
            return self.start, -np.inf, hessian
        point = self.start + moves @ np.clip(best.x, low, high)
        return np.clip(point, *self.bounds.T), -best.fun, hessian

    def log_volume(self, moves):
        """Return the log of the posterior volume over the prior one, at most 0.

        It is Laplace's approximation by the curvatures.
        """
        return -0.5 * np.log(self.second_derivatives(moves)[0]).sum()

    def second_derivatives(self, moves):
        """Return curvatures (k,) at the start, and a Hessian (k, k) without the prior.

        Both are of the loss in the directions of `moves` that have a prior which is not
        flat; the other entries keep their values. The curvatures are those along the
        axes of the Hessian with the prior, in prior deviations, and at least 1. They
        are infinite, and the Hessian None, where a point beside the start has no
        density.
        """
        moves = moves[:, ~np.isnan(self.medians) @ moves > 0]
        units = 1.0 / np.sqrt((1.0 / self.variances) @ moves**2)
        try:
            hessian = self.hessian(moves * units)
        except np.linalg.LinAlgError:
            return np.full(len(units), np.inf), None
        curvatures = np.maximum(np.linalg.eigvalsh(hessian), 1.0)
        prior = self.prior_loss(self.start)[2] @ moves**2
        return curvatures, hessian / np.outer(units, units) - np.diag(prior)

    def hessian(self, moves):
        """Return the second derivatives of the loss at the start, by moves (k, k)."""
        slope = self.loss(self.start)[1]
        curvature = np.empty((moves.shape[1],) * 2)
        for row, move in zip(curvature, moves.T, strict=True):
            near = self.loss(self.start + DIFFERENCE * move)[1]
            row[:] = (near - slope) @ moves / DIFFERENCE
        return 0.5 * (curvature + curvature.T)

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
        rest = np.arange(len(self.start) - free.sum())  # noise variances, entries of S
        n = self.y.shape[1]
        rest[:n] *= not self.common_noise
        group = np.concatenate([group[free], len(free) + rest])
        moves = np.equal.outer(group, np.unique(group)).astype(float)
        of_noise = moves[self.n_logs - n : self.n_logs].any(axis=0)
        return moves if noise else moves[:, ~of_noise]


class LogPosteriorOfSums(LogPosterior):
    """The log posterior density of kernel and noise, given few points of many rows.

    The rows tell of the values u at the points Z by the sums of `DenseSites`, and of
    other values nothing. Weights are relative, so n is their sum: copies of a row share
    the weight of one. With noise s^2, L = G / s^2, c = A' W y / s^2 and B = I + L K
    they have the log density

        -1/2 [n log(2 pi s^2) + log |B| + y' W y / s^2 - c' K B^-1 c],

    for the rows of A, which hardly depend on the kernel where F is small.
    """

    def __init__(self, kernel, noise, Z, sums):
        nothing = np.zeros((len(Z), len(noise)))
        super().__init__(kernel, noise, Z, nothing, 1.0 + nothing)
        self.sums = sums

    def log_likelihood(self, K, noise):
        """Return the log density in nats, and its derivatives by K and by log noise."""
        value, d_K, d_noise = 0.0, np.zeros_like(K), np.zeros(len(noise))
        sums = self.sums
        for q, variance in enumerate(noise):
            parts = sums.products, sums.cross[:, q], sums.squares[q]
            precision, c, square = (part / variance for part in parts)
            factor = lu_factor(np.eye(len(K)) + precision @ K)
            weights, inverse = lu_solve(factor, c), lu_solve(factor, precision)
            log_det = np.sum(np.log(np.abs(np.diag(factor[0]))))
            mean, n = K @ weights, sums.weight
            value -= 0.5 * (n * (LOG_2PI + np.log(variance)) + log_det + square)
            value += 0.5 * c @ mean
            d_K += 0.5 * (np.outer(weights, weights) - inverse)
            known = np.vdot(inverse, K) + square - 2.0 * c @ mean
            d_noise[q] = 0.5 * (known + mean @ precision @ mean - n)
        return value, d_K, d_noise


def minimize_bounded(loss, low, high, hessian, steps, callback):
    """Return SciPy's result of BFGS from zero, and second derivatives (n, n).

    They are the given ones as BFGS has corrected them, but for entries at a bound, of
    which it learns nothing. The loss (value, slope) is taken as constant beyond the
    bounds of each entry. The slope of an entry at its bound is zero where the loss
    falls beyond the bound.
    """
    first = np.zeros(len(low))
    begun = loss(first)

    def bounded(a):
        inside = np.clip(a, low, high)
        value, slope = loss(inside) if inside.any() else begun
        ends = leaving(a, slope, low, high)
        return value, np.where(ends | (a != inside), 0.0, slope)

    at_bound = leaving(first, begun[1], low, high)
    inverse = inverse_hessian(hessian, at_bound)
    best = minimize(
        bounded, first, jac=True, method="BFGS", callback=callback,
        options={"maxiter": steps, "hess_inv0": inverse},
    )  # fmt: skip
    at_bound |= (best.x <= low) | (best.x >= high)
    if np.isfinite(best.hess_inv).all():
        given = at_bound | at_bound[:, None]
        hessian = np.where(given, hessian, pinvh(best.hess_inv))
    return best, hessian


def leaving(a, slope, low, high):
    """Return which entries are at or beyond a bound and would go on beyond it."""
    return (a <= low) & (slope > 0.0) | (a >= high) & (slope < 0.0)


def inverse_hessian(hessian, ends):
    """Return the inverse of a Hessian whose eigenvalues are raised to at least 1.

    The entries `ends` stay where they are, so that nothing follows for the others from
    where these would go.
    """
    hessian = np.where(ends | ends[:, None], np.diag(ends), hessian)
    values, axes = np.linalg.eigh(hessian)
    inverse = axes / np.maximum(values, 1.0) @ axes.T
    return 0.5 * (inverse + inverse.T)


def missing_rows(ratios):
    """Return by how many rows (Q,) effective sample sizes are below the number."""
    sizes = [effective_sample_size(1.0 / ratio) for ratio in ratios.T]
    return len(ratios) - np.array(sizes)
