"""Points that share K because every inducing point is active: H = M, the SVGP.

K is factorised once a step, and its divergence counted once; a point then costs O(M^2).
The formulas are those of _point. d/dK = d_K + A' R + R' A, with rows a_i and r_i.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._covariance import TRIANGLE, fill_tile, pull_tile
from skswsgp._jit import njit_inline
from skswsgp._likelihoods import expected_log_prob
from skswsgp._linalg import padded
from skswsgp._point import (
    divergence,
    factorise,
    gather,
    posterior,
    pull_posterior,
)
from skswsgp._variational import pull_cross

# Where the tiles of a point begin: with itself, with the inducing points
OWN, CROSS = 0, 1


class Stack(NamedTuple):
    """What the points of a minibatch leave for d/dK, and columns for the points."""

    A: np.ndarray  # (n, side) rows a_i
    R: np.ndarray  # (n, side) rows r_i
    column: np.ndarray  # (threads, D, 1) a point
    d_column: np.ndarray  # (threads, D, 1)


def make_stack(model, n, n_threads):
    """Allocate for minibatches of n points."""
    M, D = model.Z.shape
    dtype = model.Z.dtype
    return Stack(
        np.zeros((n, padded(M)), dtype),
        np.zeros((n, padded(M)), dtype),
        np.zeros((n_threads, D, 1), dtype),
        np.zeros((n_threads, D, 1), dtype),
    )


@njit_inline
def factorise_all(model, everyone, factor):
    """Factorise K of all inducing points; return KL and the relative jitter.

    `everyone` (1, M) lists them.
    """
    M = model.Z.shape[0]
    gather(model, everyone, 0, M, factor)
    Z, values, slopes = factor.points, factor.values, factor.slopes
    fill_tile(model, Z, M, Z, TRIANGLE, values, slopes, 0)
    jitter = factorise(model, factor, M)
    kl = math.nan
    if jitter >= 0.0:
        kl = divergence(model, factor, M)
    return kl, jitter


@njit_inline
def fill_point(model, X, row, factor, work, column):
    """Covariances of X[row] with itself and with all inducing points."""
    for d in range(X.shape[1]):
        column[d, 0] = X[row, d]
    values, slopes, Z = work.values, work.slopes, factor.points
    fill_tile(model, column, 1, column, TRIANGLE, values, slopes, OWN)
    fill_tile(model, column, 1, Z, model.Z.shape[0], values, slopes, CROSS)


@njit_inline
def evaluate_shared(model, X, y, row, factor, work, column):
    """E log p(y | f) of one point; keeps what adjoints need."""
    fill_point(model, X, row, factor, work, column)
    kxx = work.values[work.values.shape[0] - 1, OWN]
    posterior(model, factor, work, CROSS, kxx, model.Z.shape[0])
    return expected_log_prob(
        model, model.noise, y, row, work.latent, work.scratch, work.d_noise
    )


@njit_inline
def differentiate_shared(model, i, weight, factor, work, stack, t, grads, c):
    """Adjoint of `evaluate_shared` for point i of the minibatch.

    Its part of d/dK goes to row i of the stack, the others are added to chunk c.
    """
    M = model.Z.shape[0]
    g = pull_posterior(model, factor, work, M, weight, grads, c)
    top = work.values.shape[0] - 1
    work.adjoint[top, OWN] = g
    pull_cross(work.r, work.a, g, M, work.adjoint, CROSS)
    for h in range(M):
        stack.A[i, h] = work.a[0, h]
        stack.R[i, h] = work.r[0, h]
    x, d_x, Z = stack.column[t], stack.d_column[t], factor.points
    d_log, moving = grads.d_log[c], model.train_inducing
    pull_tile(model, x, 1, x, TRIANGLE, work, OWN, d_log, d_x, d_x, moving)
    d_Z = grads.d_Z[c if moving else 0]
    pull_tile(model, x, 1, Z, M, work, CROSS, d_log, d_x, d_Z, moving)
    for q in range(work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]
