"""The structs of arrays that compiled code works on, and how they are allocated.

Letters: N data, M inducing points, H active ones, Q latent functions, D features, P
kernel parameters, n points of a minibatch. Arrays have the dtype of the fit, where
nothing else is said.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit_inline
from skswsgp._compiled.linalg import padded
from skswsgp._compiled.team import BLOCK
from skswsgp._compiled.threads import CHUNKS
from skswsgp._covariance.program import Kernel
from skswsgp._point.likelihoods import Likelihood


class Variational(NamedTuple):
    """q(u), and how it is tied to data. One of `s` and `L` has no rows."""

    Z: np.ndarray  # (M, D) inducing inputs
    m: np.ndarray  # (M, Q) mean of q(u)
    s: np.ndarray  # (M, Q) variances of q(u), diagonal covariance
    L: np.ndarray  # (Q, M, M) lower factors of S = L L', full covariance
    noise: np.ndarray  # (Q,) noise variances, or (0,)
    jitter: float  # relative to the mean of the diagonal of K
    total_weight: float  # N, or the sum of sample weights
    kl_weight: float  # beta
    full: bool  # S is a full matrix
    train_inducing: bool


# The whole model; flat, because numba's parallel loops take no tuples within tuples.
# Functions that ask for a kernel or a likelihood take a Model as well.
Model = namedtuple("Model", Kernel._fields + Likelihood._fields + Variational._fields)


class Batch(NamedTuple):
    """Rows of data with their neighbours."""

    X: np.ndarray  # (n, D)
    y: np.ndarray  # (n, Q), or (n, 1) for classes
    weight: np.ndarray  # (n,)
    active: np.ndarray  # (n, H) indices of the nearest inducing points


class Workspace(NamedTuple):
    """Work arrays of one thread.

    `make_work` adds a leading axis of threads, which `of_thread` cuts off. n is H + 1,
    pairs is n (n + 1) / 2, or n with shared K; side is H padded to a multiple of BLOCK.
    """

    values: np.ndarray  # (n_ops, pairs) a tile, see _covariance
    slopes: np.ndarray  # (n_ops, pairs)
    adjoint: np.ndarray  # (n_ops, pairs)
    points: np.ndarray  # (D, n) active inducing inputs, then the point itself
    d_points: np.ndarray  # (D, n)
    K: np.ndarray  # (side, side)
    chol: np.ndarray  # (side, side) R of K = R' R
    upper: np.ndarray  # (side, side) R^-T
    inverse: np.ndarray  # (side, side) K^-1
    first: np.ndarray  # (side, side)
    second: np.ndarray  # (side, side)
    d_K: np.ndarray  # (side, side)
    S: np.ndarray  # (Q, side, side), full covariance only
    a: np.ndarray  # (1, side) K^-1 k
    r: np.ndarray  # (1, side), see pull_posterior
    vector: np.ndarray  # (2, side)
    m: np.ndarray  # (Q, side)
    s: np.ndarray  # (Q, side)
    alpha: np.ndarray  # (Q, side) K^-1 m
    latent: np.ndarray  # (4, Q): mu, v, d_mu, d_v
    scratch: np.ndarray  # (Q + 2, n_nodes) for the expectation over classes
    d_noise: np.ndarray  # (Q,)
    blocks: np.ndarray  # (side, BLOCK), see `cholesky`
    rows: np.ndarray  # (side,) int64, which inducing points are active
    projection: np.ndarray  # (M,), see `quadratic`, full covariance only


class Gradients(NamedTuple):
    """Derivatives of a minibatch's objective before they meet in the rows of Z.

    There are n blocks of H rows, or, with shared K, CHUNKS blocks of M rows. Arrays of
    a kind that the model does not have hold one empty block.
    """

    d_m: np.ndarray  # (blocks, Q, H)
    d_s: np.ndarray  # (blocks, Q, H), diagonal covariance
    d_S: np.ndarray  # (blocks, Q, side, side), or H for side on a GPU; full covariance
    d_Z: np.ndarray  # (blocks, D, H), trained Z
    d_log: np.ndarray  # (CHUNKS, P) by the logarithms of the kernel parameters
    d_noise: np.ndarray  # (CHUNKS, Q) by the logarithms of the noise variances
    sums: np.ndarray  # (CHUNKS, 2) weighted sums of E log p(y | f) and of KL
    jitter_counts: (
        np.ndarray
    )  # (>= CHUNKS, 2) points with extra jitter, points that failed


@njit_inline
def thread_view(work, t):
    """Return the work arrays of thread t."""
    return Workspace(
        work.values[t],
        work.slopes[t],
        work.adjoint[t],
        work.points[t],
        work.d_points[t],
        work.K[t],
        work.chol[t],
        work.upper[t],
        work.inverse[t],
        work.first[t],
        work.second[t],
        work.d_K[t],
        work.S[t],
        work.a[t],
        work.r[t],
        work.vector[t],
        work.m[t],
        work.s[t],
        work.alpha[t],
        work.latent[t],
        work.scratch[t],
        work.d_noise[t],
        work.blocks[t],
        work.rows[t],
        work.projection[t],
    )


def allocate_workspace(model, n_neighbors, n_threads, *, dense=False):
    """Allocate the work arrays of all threads for H = n_neighbors.

    With `dense` there is no room for K: it is factorised elsewhere, once.
    """
    D, Q = model.Z.shape[1], model.m.shape[1]
    n, side, n_ops = n_neighbors + 1, padded(n_neighbors), len(model.code)
    n_nodes = model.nodes.shape[1]
    pairs, square = (n, 0) if dense else (n * (n + 1) // 2, side)

    def zeros(*shape):
        return np.zeros((n_threads, *shape), dtype=model.Z.dtype)

    def identity(*shape):  # beyond the true size matrices hold the identity
        out = zeros(*shape)
        out[...] = np.eye(shape[-1])
        return out

    return Workspace(
        values=zeros(n_ops, pairs),
        slopes=zeros(n_ops, pairs),
        adjoint=zeros(n_ops, pairs),
        points=zeros(D, 1 if dense else n),
        d_points=zeros(D, 1 if dense else n),
        K=identity(square, square),
        chol=zeros(square, square),
        upper=zeros(square, square),
        inverse=zeros(square, square),
        first=zeros(square, square),
        second=zeros(square, square),
        d_K=zeros(square, square),
        S=identity(Q if model.full else 0, square, square),
        a=zeros(1, side),
        r=zeros(1, side),
        vector=zeros(2, side),
        m=zeros(Q, side),
        s=zeros(Q, side),
        alpha=zeros(Q, side),
        latent=zeros(4, Q),
        scratch=zeros(Q + 2, n_nodes),
        d_noise=zeros(len(model.noise)),
        blocks=zeros(square, BLOCK),
        rows=np.zeros((n_threads, side), dtype=np.int64),
        projection=zeros(len(model.Z) if model.full else 0),
    )


def allocate_gradients(model, blocks, H):
    """Allocate for `blocks` blocks of H rows."""
    Q, D = model.m.shape[1], model.Z.shape[1]
    side = padded(H)

    def zeros(*shape):
        return np.zeros(shape, dtype=model.Z.dtype)

    moving = blocks if model.train_inducing else 1
    return Gradients(
        d_m=zeros(blocks, Q, H),
        d_s=zeros(1, Q, 0) if model.full else zeros(blocks, Q, H),
        d_S=zeros(blocks, Q, side, side) if model.full else zeros(1, Q, 0, 0),
        d_Z=zeros(moving, D, H),
        d_log=np.zeros((CHUNKS, len(model.params))),
        d_noise=np.zeros((CHUNKS, len(model.noise))),
        sums=np.zeros((CHUNKS, 2)),
        jitter_counts=np.zeros((CHUNKS, 2), dtype=np.int64),
    )
