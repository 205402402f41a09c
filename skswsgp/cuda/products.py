"""Products with covariance matrices on a GPU, a block of rows at a time."""

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp.cuda.covariances import cross_covariances

# Pairs of a launch, well below a second where float64 is slow: a GPU with a display
# ends launches that take seconds.
PAIRS_AT_ONCE = 2**28


class DeviceProducts:
    """Products of `CovarianceProducts` on a GPU, which take and return host arrays.

    `kernel` is a `program.Kernel` in float64. The copy of the points Z (M, D) on the
    device lives until `close`.
    """

    def __init__(self, device, kernel, Z):
        self.device = device
        with device.room_for("the points of exact means"):
            self._kernel, self._points = device.send_struct(kernel), self._columns(Z)

    def close(self):
        """Free the memory on the device; there are no more products."""
        self._kernel = self._points = None

    def keep_pairs(self, most):
        """Keep no covariances, which would take the memory of the device; return 0."""
        return 0

    def multiply(self, X, u):
        """Return k(X, Z) u, (n, Q), for u (M, Q)."""
        with self.device.room_for("the products of exact means"):
            return self._multiply(self._columns(X), u)

    def multiply_off_diagonal(self, u):
        """Return (k(Z, Z) - diag k(Z, Z)) u, (M, Q), for u (M, Q)."""
        with self.device.room_for("the products of exact means"):
            return self._multiply(self._points, u, off_diagonal=True)

    def _columns(self, points):
        """Return points (n, D) as columns on the device, in float64."""
        return self.device.send(np.array(points.T, np.float64, order="C"))

    def _multiply(self, X, u, off_diagonal=False):
        xp, (_, n), M = self.device.xp, X.shape, self._points.shape[1]
        u, out = self.device.send(np.asarray(u, np.float64)), xp.empty((n, u.shape[1]))
        pair = 16 * len(self._kernel.code) + 8  # bytes
        most = min(PAIRS_AT_ONCE, self.device.budget("rows") // pair)
        for part in row_blocks(n, max(1, most // M)):
            given = self.device, self._kernel, X[:, part], self._points
            K = cross_covariances(*given)
            if off_diagonal:
                own = xp.arange(part.start, part.stop)
                K[own - part.start, own] = 0.0
            out[part] = K @ u
        return self.device.fetch(out)
