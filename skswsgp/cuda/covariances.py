"""Covariances of many rows with their neighbours, and their adjoint.

The set of a row has P = H + 1 points, its neighbours and then the row itself. A thread
evaluates one pair of points as a tile of its own, see `_covariance.program`, so that
neighbouring threads write neighbouring numbers; derivatives of a point with all others
of its set are added up by one thread.
"""

from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import WHITE, fill_program, vjp_program
from skswsgp.cuda.compiler import body


@body
def fill_pair(i, kernel, X, Z, active, points, values, slopes):
    """Evaluate pair i of the points of all sets, and gather these points."""
    H, P = active.shape[1], points.shape[2]
    b, g, h = i // (P * P), i // P % P, i % P
    own, other = b if g == H else active[b, g], b if h == H else active[b, h]
    A = (X if g == H else Z)[own : own + 1].T
    B = (X if h == H else Z)[other : other + 1].T
    if h == 0:
        for d in range(A.shape[0]):
            points[b, d, g] = A[d, 0]
    width = TRIANGLE if g == h else 1  # a point with itself, or with another one
    fill_program(kernel, A, 1, B, width, values, slopes, i)


@body
def point_vjp(i, kernel, points, values, slopes, adjoint, d_log, d_points):
    """Set d_log[i], and d_points (n, P, D) of point i of all sets, or (n, P, 0)."""
    P, moving = points.shape[2], d_points.shape[2] > 0
    b, g, at = i // P, i % P, i * P
    for p in range(d_log.shape[1]):
        d_log[i, p] = 0.0
    A, B = points[b, :, g : g + 1], points[b]
    d_A, none = d_points[b, g : g + 1].T, d_points[b, 0:0].T
    for d in range(d_A.shape[0]):
        d_A[d, 0] = 0.0
    vjp_program(
        kernel, A, 1, B, P, values, slopes, adjoint, at, d_log[i], d_A, none, moving
    )
    for d in range(d_A.shape[0]):  # a pair has two entries, and this thread read one
        d_A[d, 0] *= 2.0
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


def cross_covariances(device, kernel, X, Z):
    """Return k(X, Z) (n, M) of points X (D, n) and Z (D, M), for a `Kernel`."""
    (_, n), (_, M) = X.shape, Z.shape
    values, slopes = device.xp.empty((2, len(kernel.code), n * M), Z.dtype)
    device.prepare(fill_cross_pair, n * M, kernel, X, Z, values, slopes)()
    return values[-1].reshape(n, M)
