"""Kernels of products with sparse rows on a GPU; loops only, no formula.

A warp adds up a row of A, or what stands in a column, in the order of the rows: sums
repeat to the bit.
"""

import sys

from skswsgp import _listed
from skswsgp._cuda import cuda, for_kernels, kernel
from skswsgp._lanes import position, span, total
from skswsgp._listed import pulled, row_sum, row_sum_of_squares


@kernel
def multiply(lists, weights, squares, u, factor, out):
    """out (n,) = A u, or A^2 u, times `factor` (n,) if that is not empty."""
    lane, _ = position()
    for i in range(cuda.blockIdx.x, lists.shape[0], cuda.gridDim.x):
        if squares:
            value = row_sum_of_squares(lists, weights, i, u)
        else:
            value = row_sum(lists, weights, i, u)
        if lane == 0:
            out[i] = value * factor[i] if factor.shape[0] else value


@kernel
def pull(starts, entries, weights, squares, v, out):
    """out (M,) = A' v, or A^2' v; entries[starts[j] : starts[j + 1]] make column j."""
    lane, _ = position()
    H = weights.shape[1]
    for j in range(cuda.blockIdx.x, out.shape[0], cuda.gridDim.x):
        value = 0.0
        for k in span(starts[j], starts[j + 1]):
            i, h = entries[k] // H, entries[k] % H
            value += pulled(v[i], weights[i, h], squares)
        value = total(value)
        if lane == 0:
            out[j] = value


for_kernels(sys.modules[__name__], _listed)
