"""Random functions whose mean product is the kernel.

A random feature is a function phi with random parameters and E phi(x) phi(z) = k(x, z):
cos(w'x + b) with w from the spectral density of a stationary kernel (Rahimi and Recht,
NIPS 2007) or from the Fourier series of a periodic one, a neuron for an arc-cosine
kernel (Cho and Saul, NIPS 2009), a linear function for a dot product. Products of
independent features belong to products of kernels, and sums with random signs to sums.
Directions w that are orthogonal in blocks make the mean product vary less (Yu, Suresh,
Choromanski, Holtmann-Rice and Kumar, NIPS 2016).
"""

import numpy as np

from skswsgp._covariance import dot_product, program, stationary
from skswsgp._covariance.compile import count_periodic_columns

# Degrees of freedom of the spectral density, a multivariate t distribution
MATERN_DEGREES = {
    stationary.MATERN12: 1.0,
    stationary.MATERN32: 3.0,
    stationary.MATERN52: 5.0,
}
# Largest coordinate in length-scales. There a rounding error turns a wave by 1e-4 of a
# period, and far beyond it phases are infinite.
LARGEST_COORDINATE = 1e12
MOST_DRAWN = 2.0**62  # mean of a Poisson variable: NumPy draws no larger ones
ONLY_FUNCTIONS = (
    "a kernel {} has no draws of functions: expected sums, products and integer powers "
    "of kernels other than WhiteKernel; {}."
)


def require_features(kernel):
    """Raise ValueError for a `program.Kernel` without random features."""
    powers = kernel.exponent[kernel.code == program.POWER]
    if (kernel.code == program.WHITE).any():
        noise = "leave it out, as the likelihood has its own noise"
        raise ValueError(ONLY_FUNCTIONS.format("with a WhiteKernel", noise))
    if (powers != np.floor(powers)).any():
        power = powers[powers != np.floor(powers)][0]
        whole = {max(1.0, np.floor(power)), max(1.0, np.ceil(power))}
        near = "use the power " + " or ".join(f"{one:g}" for one in sorted(whole))
        raise ValueError(ONLY_FUNCTIONS.format(f"to the power {power:g}", near))
    most = count_periodic_columns(kernel)
    if most > 1:
        raise ValueError(
            f"ExpSineSquared of {most} columns has no draws of functions, because it "
            "is no covariance: expected one column; put it on one with OnColumns."
        )


def random_features(kernel, X, n_features, rng, orthogonal=False):
    """Return the values (n, n_features) of features at rows of X (n, D).

    They are independent, or have directions that are orthogonal in blocks. What `rng`
    draws does not depend on X, so equal states give the same functions.
    """
    directions = orthogonal_directions if orthogonal else normal_directions
    return _features(kernel, len(kernel.code) - 1, X, n_features, rng, directions)


def normal_directions(n_features, D, rng):
    """Return independent standard normal numbers (D, n_features)."""
    return rng.standard_normal((D, n_features))


def orthogonal_directions(n_features, D, rng):
    """Return standard normal columns (D, n_features), orthogonal in blocks of D."""
    blocks = rng.standard_normal((-(-n_features // D), D, min(D, n_features)))
    Q, R = np.linalg.qr(blocks)
    # uniform directions, as they are those of a factor R with a positive diagonal
    Q *= np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None]
    directions = Q.transpose(1, 0, 2).reshape(D, -1)[:, :n_features]
    return directions * np.sqrt(rng.chisquare(D, n_features))


def _features(kernel, op, X, n_features, rng, directions):
    """Return the features of operation `op`."""
    code, left, right = kernel.code[op], kernel.left[op], kernel.right[op]
    extra = float(kernel.params[kernel.extra[op]]) if kernel.extra[op] >= 0 else 0.0
    draw = (n_features, rng, directions)
    if code == program.CONSTANT:
        return np.full((len(X), n_features), np.sqrt(extra))
    if code == program.SCALE:
        return np.sqrt(extra) * _features(kernel, left, X, *draw)
    if code == program.SUM:
        signs = rng.choice([-1.0, 1.0], size=n_features)
        first = _features(kernel, left, X, *draw)
        return first + signs * _features(kernel, right, X, *draw)
    if code == program.PRODUCT:
        first = _features(kernel, left, X, *draw)
        return first * _features(kernel, right, X, *draw)
    if code == program.POWER:
        factors = range(int(kernel.exponent[op]))
        return np.prod([_features(kernel, left, X, *draw) for _ in factors], axis=0)
    scaled = X.astype(np.float64) * kernel.inv_scale[op]
    if code == stationary.PERIODIC:
        return _harmonics(scaled.sum(axis=1), extra, n_features, rng)
    if code < dot_product.FIRST_DOT_PRODUCT:
        return _waves(scaled, _precisions(code, extra, n_features, rng), *draw)
    if code == dot_product.POLYNOMIAL:
        factors = range(int(kernel.exponent[op]))
        return np.prod([_linear(scaled, extra, *draw) for _ in factors], axis=0)
    neurons = _linear(scaled, extra, *draw)
    ramp = code == dot_product.ARC_COSINE1
    return np.sqrt(2.0) * (np.maximum(neurons, 0.0) if ramp else 1.0 * (neurons > 0.0))


def _precisions(code, extra, n_features, rng):
    """Return t (n_features,) with k = E exp(-t r^2 / 2), r the scaled distance."""
    if code == stationary.RBF:
        return np.ones(n_features)
    if code == stationary.RATIONAL_QUADRATIC:
        return rng.gamma(extra, 1.0 / extra, n_features)
    degrees = MATERN_DEGREES[code]
    return degrees / rng.chisquare(degrees, n_features)


def _waves(X, precisions, n_features, rng, directions):
    """Return sqrt(2) cos(w' x + b), w of variance `precisions`, b uniform."""
    X = X.clip(-LARGEST_COORDINATE, LARGEST_COORDINATE)
    w = directions(n_features, X.shape[1], rng) * np.sqrt(precisions)
    b = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return np.sqrt(2.0) * np.cos(X @ w + b)


def _harmonics(x, length_scale, n_features, rng):
    """Return sqrt(2) cos(2 pi n x + b) for x (rows,) in periods, b uniform.

    With z = 1 / length_scale^2, k is the sum of exp(-z) I_n(z) cos(2 pi n x) over all
    integers n, I_n modified Bessel functions. The weights are the distribution of the
    difference of two Poisson variables of mean z / 2 (Skellam, 1946).
    """
    mean = min(0.5 / length_scale**2, MOST_DRAWN)
    n = rng.poisson(mean, n_features) - rng.poisson(mean, n_features)
    b = rng.uniform(0.0, 2.0 * np.pi, n_features)
    return np.sqrt(2.0) * np.cos(2.0 * np.pi * np.outer(x, n) + b)


def _linear(X, bias, n_features, rng, directions):
    """Return w' x + w_0 bias, w standard normal."""
    w = directions(n_features, X.shape[1], rng)
    return X @ w + bias * rng.standard_normal(n_features)
