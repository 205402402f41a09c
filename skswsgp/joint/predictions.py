"""Joint predictions of a fitted estimator: covariances, and draws of many rows."""

import numpy as np
from sklearn.utils import check_random_state

from skswsgp._law.law import Observations
from skswsgp._point.likelihood_records import gauss_hermite
from skswsgp._point.likelihoods import MOST_LOG_RATE
from skswsgp._point.log_rates import NODES
from skswsgp._rows.checks import log_exposure
from skswsgp._rows.statistics import ROUNDING
from skswsgp._solvers.auto import require_room_for_draws
from skswsgp._solvers.progress import warn_caller
from skswsgp.joint.functions import covariance_factor, draw_functions, latent_covariance
from skswsgp.joint.random_features import MOST_DRAWN


def sample_functions(model, X, n_samples, random_state, n_neighbors=None):
    """Return draws (n, S) or (n, Q, S) of the latent functions at rows of X."""
    rng = check_random_state(random_state)
    posterior, X = model._posterior_and_rows(X, n_neighbors, joint=True)
    mean, values = draw_functions(posterior, X, n_samples, rng)
    values += mean[:, :, None]
    units = model._targets(vars(model)).units(vars(model))
    offset, factor = (np.reshape(unit, (-1, 1)) for unit in units)
    return model._without_axis(offset + factor * values)


def factor_from_sites(model):
    """Return a factor (M, k, Q) of S of a fitted model whose sites tell variances.

    Returns None, and warns, where there is none. It may take long.
    """
    posterior, tuning = model._posterior(), model._tuning
    require_room_for_draws(tuning, *posterior.model.m.shape)
    targets = model._targets(vars(model))
    known = {"likelihood": targets.likelihood, "n_latent": targets.n_latent}
    factor = covariance_factor(posterior, model._settings()._replace(**known))
    if factor is None:
        warn_caller(
            "the draws from q(u) did not converge: functions at different rows go "
            "together by a diagonal S, which leaves much of their correlations "
            "out; a larger noise variance or dtype='float64' may help.",
        )
    return factor


# --- covariances


def covariance_of_functions(model, X, n_neighbors=None):
    """Return the covariance (n, n, Q) of q(f) of a fitted model at rows of X.

    Raises ValueError where it would not fit in memory.
    """
    X = model._on_scale(model._checked(X))
    n, Q = len(X), model._targets(vars(model)).n_latent
    size, limit = 8 * n**2 * Q, model._tuning.full_covariance_bytes
    if size > limit:
        raise ValueError(
            f"return_cov=True for {n} rows and {Q} latent functions takes "
            f"{size / 2**30:.1f} GiB: expected at most {limit / 2**30:.1f} GiB; "
            "pass fewer rows, or use return_std=True or sample_f."
        )
    return latent_covariance(model._posterior(n_neighbors, joint=True), X)


def observed_covariance(observations, covariance, deviation, scale):
    """Return the covariance (n, n, Q) of y in the units of `scale`, for that of f.

    `deviation` (n, Q) is that of y. Values of `Observations` at two rows are functions
    of normal values that go together as f and the noise of the process do. Those that
    are drawn from near targets go together with no other row.
    """
    rows, has_law = np.arange(len(covariance)), isinstance(observations, Observations)
    if not has_law and scale.transform is None:
        out = np.square(scale.factor) * covariance
        out[rows, rows] = deviation**2
        return out
    root = observations.process if has_law else observations.deviation()
    root = np.maximum(root, np.finfo(float).tiny)
    correlation = covariance / (root[:, None] * root)
    correlation[rows, rows] = 1.0
    out = transformed_covariance(scale, observations.from_normal, correlation)
    # no larger than the diagonal, and of what is drawn around the mean only
    own = np.sqrt(np.maximum(out[rows, rows], np.finfo(float).tiny))
    factor = np.minimum(deviation / own, 1.0)
    for q in filter(observations.mixes, range(out.shape[2])) if has_law else ():
        factor[:, q] *= 1.0 - observations.share(q)
    out *= factor[:, None] * factor
    out[rows, rows] = deviation**2
    return out


def transformed_covariance(scale, at, correlation):
    """Return the covariance (n, n, Q) of y for correlations of normal values.

    With H_k the Hermite polynomials of unit norm, r_ij the correlation of the normal
    values z_i and z_j, and a_k(i) = E[y_i H_k(z_i)], it is
    sum_{k > 0} a_k(i) a_k(j) r_ij^k (Mehler's formula). `at` is that of
    `TargetScale.moments`.
    """
    nodes, weights = gauss_hermite(NODES)
    center = scale.restore(at(0.0))
    excess = np.stack([scale.restore(at(z)) - center for z in nodes])  # (K, n, Q)
    parts = np.tensordot(weights * hermite_polynomials(nodes), excess, axes=1)
    most = np.abs(parts).max(axis=(1, 2))
    last = np.flatnonzero(most > ROUNDING * most.max()).max(initial=0)  # 1 of a line
    out = np.zeros_like(correlation)
    for a in parts[last:0:-1]:
        out = correlation * (out + a[:, None] * a)
    return out


def hermite_polynomials(x):
    """Return H_0 to H_{K-1} at x (K,), one a row: E[H_j(z) H_k(z)] = [j = k]."""
    rows = [np.ones_like(x), x]
    for k in range(1, len(x) - 1):
        rows.append((x * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1.0))
    return np.stack(rows)


# --- draws


def draw_observations(model, X, n_samples, random_state, how):
    """Return draws (n, S) or (n, Q, S) of observations of a fitted regressor.

    `how` are the number of neighbours, exposures and noise variances of `sample_y`.
    """
    rng, (n_neighbors, exposure, noise_variance) = check_random_state(random_state), how
    functions = model.sample_f(X, n_samples, rng, n_neighbors=n_neighbors)
    observations = model._observations(X, *how)
    functions = functions.reshape(len(functions), np.size(model.y_mean_), -1)
    if model._record.counts:
        shifts = log_exposure(exposure, len(functions))[:, None, None]
        draws = draw_counts(functions + shifts, observations.size, rng)
        return model._without_axis(draws)
    offset, factor = (np.reshape(v, (-1, 1)) for v in (model.y_mean_, model.y_scale_))
    standard = (functions - offset) / factor
    if not model._record.conjugate:
        values = standard + draw_student_noise(observations, standard.shape, rng)
    else:
        errors = standard - observations.mean[:, :, None]
        noise = model._noise_of_rows(noise_variance, model._checked(X))[:, :, None]
        errors += np.sqrt(noise) * rng.standard_normal(errors.shape)
        values = draw_around(observations, errors, rng)
    return model._without_axis(model._scale.restore(values))


def draw_counts(log_rates, size, rng):
    """Return counts, as floats, for logarithms of rates (n, Q, S) and sizes (Q,)."""
    rates = np.exp(np.minimum(log_rates, MOST_LOG_RATE))
    for q in np.flatnonzero(np.isfinite(size)):
        rates[:, q] *= rng.gamma(size[q], 1.0 / size[q], rates[:, q].shape)
    return rng.poisson(np.minimum(rates, MOST_DRAWN)).astype(np.float64)


def draw_student_noise(observations, shape, rng):
    """Return draws of the noise of `StudentNoise`, of a shape (n, Q, S)."""
    draws = rng.standard_normal(shape) * np.sqrt(observations.noise)[:, None]
    for q, freedom in enumerate(observations.degrees_of_freedom):
        draws[:, q] *= draw_roots(freedom, rng, draws[:, q].shape)
    return draws


def draw_around(observations, errors, rng):
    """Turn draws (n, Q, S) of errors of the process into draws of `Observations`."""
    values = errors / observations.process[:, :, None]  # standard normal ones
    for q, shape in enumerate(observations.shapes):
        known = observations.known[:, q, None]
        values[:, q] = shape.from_normal(values[:, q], known)
    values = observations.mean[:, :, None] + observations.scale[:, :, None] * values
    for q in filter(observations.mixes, range(values.shape[1])):
        local = rng.random(values[:, q].shape) < observations.share(q)[:, None]
        near = draw_near_targets(observations.near, q, rng, values.shape[2])
        values[:, q] = np.where(local, near, values[:, q])
    return values


def draw_near_targets(near, q, rng, n_draws):
    """Return values (n, n_draws) of an output, drawn from its `NearTargets`."""
    cumulative = np.cumsum(near.weights(q), axis=1)
    uniform = rng.random((len(cumulative), n_draws)) * cumulative[:, -1:]
    which = np.sum(uniform[:, :, None] > cumulative[:, None, :], axis=2)
    values = np.take_along_axis(near.targets[:, :, q], which, axis=1)
    return values + near.bandwidth[q] * rng.standard_normal(values.shape)


def draw_roots(freedom, rng, shape):
    """Return roots that make standard normal values those of Student's t."""
    if np.isinf(freedom):
        return np.ones(shape)
    return np.sqrt(freedom / rng.chisquare(freedom, shape))
