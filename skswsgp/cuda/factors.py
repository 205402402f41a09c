"""Factors of many small covariance matrices at once, with jitter; see `linalg`."""

import math
from functools import partial

import numpy as np

from skswsgp._compiled.linalg import MAX_JITTER
from skswsgp.cuda.compiler import body

ROUNDINGS = 4.0  # of a diagonal entry: a pivot that is no larger is noise


@body
def shift_entry(i, A, added, jitter, units, L, lower):
    """Set an entry of L = A + diag(added) + jitter unit I, and of lower = I.

    The unit is the mean of the diagonal of A, 1 where this is 0.
    """
    H, c = A.shape[1], i // A.shape[1] ** 2
    b, g, h = c % A.shape[0], i // H % H, i % H
    L[c, g, h], lower[c, g, h] = A[b, g, h], 0.0
    if g == h:
        unit = 0.0
        for j in range(H):
            unit += A[b, j, j] / H
        unit = 1.0 if unit <= 0.0 else unit
        L[c, g, g] += added[c, g] + jitter[c] * unit
        lower[c, g, g] = 1.0
        if g == 0:
            units[c] = unit


@body
def check_row(c, A, added, jitter, units, rounding, L, info):
    """Raise the jitter of a matrix without a factor; NaN where there is none at all."""
    H, b, good = A.shape[1], c % A.shape[0], info[c] == 0
    for h in range(H):
        scale = A[b, h, h] + added[c, h] + jitter[c] * units[c]
        good = good and L[c, h, h] ** 2 > rounding * scale
    if not good:
        more = 10.0 * jitter[c]
        jitter[c] = more if more < 1.5 * MAX_JITTER else math.nan
        for i in range(H * H if math.isnan(jitter[c]) else 0):
            L[c, i // H, i % H] = math.nan


class Launches:
    """Arrays of a device by name, and launches of bodies that read and write them.

    Between two runs only the contents of arrays change, so that a launch costs little.
    """

    def __init__(self, device, dtype, **given):
        self.device, self.dtype, self.launches = device, dtype, []
        vars(self).update(given)

    def allocate(self, dtype=None, **shapes):
        """Let attributes be new arrays of zeros."""
        for name, shape in shapes.items():
            setattr(self, name, self.device.xp.zeros(shape, dtype or self.dtype))

    def prepare(self, body, n):
        """Return a launch for the indices below n, with what a body names."""
        names = body.__code__.co_varnames[1 : body.__code__.co_argcount]
        return self.device.prepare(body, n, *(getattr(self, name) for name in names))

    def add(self, body, n):
        """Add a launch of a body to those of `run`."""
        self.launches.append(self.prepare(body, n))

    def call(self, function, *arguments, **options):
        """Add a call of a function of arrays, which sets those of `options`."""
        self.launches.append(partial(function, *arguments, **options))

    def run(self):
        """Do everything once."""
        for launch in self.launches:
            launch()


class Factors(Launches):
    """Factors of matrices A + diag(added) + jitter unit I = L L'; NaN without a factor.

    `find` sets `lower` = L^-1 and `upper` = L^-T, for as little jitter as each matrix
    needs, but at least `first`. Matrix b of n serves the factors b, b + n, ..., with
    `added` (n copies, H) of their own. `half` and `solution` are L^-1 b and (L L')^-1 b
    for b = `right`. `note` gets the jitters on the host if some are not the first one.
    """

    def __init__(self, device, A, first, right=None, copies=1, note=None):
        (n, H, _), xp = A.shape, device.xp
        super().__init__(device, A.dtype, A=A, first=first, note=note)
        self.rounding, n = ROUNDINGS * float(np.finfo(A.dtype).eps), n * copies
        self.allocate(L=(n, H, H), lower=(n, H, H), upper=(n, H, H))
        self.allocate(jitter=n, units=n, added=(n, H))
        self.allocate(np.int32, info=n)
        self.shift = self.prepare(shift_entry, n * H * H)
        self.check = self.prepare(check_row, n)
        self.call(device.invert, self.L, self.lower)
        self.call(xp.copyto, self.upper, transposed(self.lower))
        if right is not None:
            self.allocate(half=right.shape, solution=right.shape)
            self.call(xp.matmul, self.lower, right, out=self.half)
            self.call(xp.matmul, self.upper, self.half, out=self.solution)

    def find(self):
        """Find the factors, and the solutions of their systems."""
        first = now = np.full(len(self.L), self.first, self.dtype)
        before = first - 1.0
        self.jitter.fill(self.first)
        while (now > before).any():  # NaN is not
            before = now
            self.shift()
            self.device.cholesky(self.L, self.info)
            self.check()
            now = self.device.fetch(self.jitter)
        if self.note is not None and (now != first).any():
            self.note(now)
        self.run()


def transposed(A):
    """Return the transposes of matrices (n, g, h), which share their memory."""
    return A.transpose(0, 2, 1)
