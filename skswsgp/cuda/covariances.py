"""Covariances of many small sets of points at once, and their adjoint.

There are n sets of P points, (n, D, P). A thread evaluates one pair of points as a tile
of its own, see `_covariance.program`, so that neighbouring threads write neighbouring
numbers; derivatives of a point with all others of its set are added up by one thread.
"""

from typing import NamedTuple

from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import WHITE, fill_program, kernel_of, vjp_program
from skswsgp.cuda.compiler import body


class PointSets(NamedTuple):
    """Points and their covariances, as `evaluate` returns them; arrays of a device."""

    points: object  # (n, D, P)
    values: object  # (n_ops, n P^2) of each operation of the kernel
    slopes: object

    @property
    def K(self):
        """The covariances of the points of each set, (n, P, P)."""
        n, _, P = self.points.shape
        return self.values[-1].reshape(n, P, P)


@body
def fill_pair(i, kernel, points, values, slopes):
    """Evaluate pair i of the points of all sets."""
    P = points.shape[2]
    b, g, h = i // (P * P), i // P % P, i % P
    A, B = points[b, :, g : g + 1], points[b, :, h : h + 1]
    width = TRIANGLE if g == h else 1  # a point with itself, or with another one
    fill_program(kernel, A, 1, B, width, values, slopes, i)


@body
def point_vjp(i, kernel, tile, adjoint, d_log, d_points, moving):
    """Set d_log[i], and d_points of point i of all sets if `moving` is true."""
    points, values, slopes = tile
    P = points.shape[2]
    b, g, at = i // P, i % P, i * P
    for p in range(d_log.shape[1]):
        d_log[i, p] = 0.0
    A, B, own = points[b, :, g : g + 1], points[b], b if moving else 0
    d_A, none = d_points[own, :, g : g + 1], d_points[own, :, 0:0]
    if moving:
        for d in range(d_A.shape[0]):
            d_A[d, 0] = 0.0
    vjp_program(
        kernel, A, 1, B, P, values, slopes, adjoint, at, d_log[i], d_A, none, moving
    )
    # The pairs above are a rectangle, in which `vjp_program` takes no pair for a point
    # with itself. WHITE is the variance of those pairs only, so it is added here.
    for op in range(kernel.code.shape[0]):
        if kernel.code[op] == WHITE:
            slot = kernel.extra[op]
            d_log[i, slot] += kernel.params[slot] * adjoint[op, at + g]


@body
def fill_cross_pair(i, kernel, X, Z, values, slopes):
    """Evaluate pair i of the points X (D, n) with the points Z (D, M)."""
    M = Z.shape[1]
    g, h = i // M, i % M
    A, B = X[:, g : g + 1], Z[:, h : h + 1]
    fill_program(kernel, A, 1, B, 1, values, slopes, i)


def evaluate(device, model, points):
    """Return the `PointSets` of points (n, D, P) for the kernel of a model."""
    n, _, P = points.shape
    values, slopes = device.xp.empty((2, len(model.code), n * P * P), points.dtype)
    kernel = kernel_of(model)
    device.launch(fill_pair, n * P * P, kernel, points, values, slopes)
    return PointSets(points, values, slopes)


def vjp(device, model, sets, d_K, moving):
    """Return derivatives (P,) by log parameters, and by points (n, D, P) or None.

    They follow from symmetric derivatives d_K (n, P, P) by the covariances.
    """
    xp, (n, D, P) = device.xp, sets.points.shape
    adjoint = xp.empty_like(sets.values)
    adjoint[-1] = d_K.ravel()
    d_log = xp.empty((n * P, len(model.params)))
    d_points = xp.empty((n if moving else 1, D, P), sets.points.dtype)
    given = kernel_of(model), tuple(sets), adjoint, d_log, d_points, moving
    device.launch(point_vjp, n * P, *given)
    # A thread takes the derivatives by the first point of a pair, and each has two
    return d_log.sum(axis=0), 2.0 * d_points if moving else None


def cross_covariances(device, kernel, X, Z):
    """Return k(X, Z) (n, M) of points X (D, n) and Z (D, M), for a `Kernel`."""
    (_, n), (_, M) = X.shape, Z.shape
    values, slopes = device.xp.empty((2, len(kernel.code), n * M), Z.dtype)
    device.launch(fill_cross_pair, n * M, kernel, X, Z, values, slopes)
    return values[-1].reshape(n, M)
