"""Kernels of kriging on a GPU; loops only, no formula.

A block works on a datum at a time, its threads being the lanes of `_lanes`, as in
`_engine_cuda`. What points say is added up in an order that does not depend on which
came first.
"""

import math
import sys

from skswsgp import (
    _covariance,
    _factor,
    _kriging,
    _linalg,
    _point,
    _state,
    _stationary,
    _triangle_cuda,
)
from skswsgp import _variational as formulas
from skswsgp._cuda import cuda, for_kernels, kernel
from skswsgp._kriging import differentiate_krige, gather_data, krige
from skswsgp._lanes import solo, span, sync
from skswsgp._linalg import column_sum
from skswsgp._triangle_cuda import work_at


@kernel
def kriging_gradients(model, batch, start, n, works, results):
    """Set row b of the results to what point start + b of the n points says.

    A row holds the derivatives of weight log p(y | m_w) by the logarithms of the P
    kernel parameters and of the Q noise variances, then the value itself.
    """
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    P, Q, H = model.params.shape[0], model.noise.shape[0], batch.active.shape[1]
    for b in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = work_at(works, place)
        for j in span(0, results.shape[1]):
            results[b, j] = 0.0
        sync()
        row, weight = start + b, batch.weight[start + b]
        d_log, d_noise = results[b, :P], results[b, P : P + Q]
        density = differentiate_krige(
            model, batch.X, batch.y, batch.active, row, H, weight, work, d_log, d_noise
        )
        for j in solo(P + Q, P + Q + 1):
            results[b, j] = weight * density
        sync()


@kernel
def add_up_points(results, n):
    """Add up the first n rows of the results in the first; a block for each column."""
    for j in range(cuda.blockIdx.x, results.shape[1], cuda.gridDim.x):
        amount = column_sum(results, n, j)
        for b in solo(0, 1):
            results[b, j] = amount


@kernel
def kriging_predictions(model, X, active, n, works, mu, v):
    """mu and F of n rows, (n, Q), NaN where C has no factor."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    H = active.shape[1]
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = work_at(works, place)
        gather_data(model, X, active, row, H, work)
        for q in range(mu.shape[1]):
            found = krige(model, work, H, q) >= 0.0
            for at in solo(row, row + 1):
                mu[at, q] = work.latent[0, q] if found else math.nan
                v[at, q] = work.latent[1, q] if found else math.nan
        sync()


for_kernels(
    sys.modules[__name__],
    _stationary,
    _covariance,
    _linalg,
    _state,
    _triangle_cuda,
    _factor,
    formulas,
    _point,
    _kriging,
)
