"""The structs of arrays that compiled code works on, and their allocation.

Letters: N training rows, M inducing points, H of them active for a row, Q latent
functions, D features, P kernel parameters, n rows of a minibatch. Arrays have the dtype
of the fit unless their comment names another.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit_view
from skswsgp._compiled.linalg import padded
from skswsgp._compiled.team import BLOCK
from skswsgp._compiled.threads import CHUNKS
from skswsgp._covariance.program import Kernel
from skswsgp._point.likelihoods import Likelihood


class Variational(NamedTuple):
    """q(u) and the settings of its bound. One of `s` and `L` has no rows."""

    Z: np.ndarray  # (M, D) inducing inputs
    m: np.ndarray  # (M, Q) mean of q(u)
    s: np.ndarray  # (M, Q) variances of q(u), diagonal covariance
    L: np.ndarray  # (Q, M, M) lower factors of S = L L', full covariance
    noise: np.ndarray  # (Q,) noise variances, or (0,)
    jitter: float  # relative to the mean of the diagonal of K
    total_weight: float  # N, or the sum of sample weights
    kl_weight: float  # beta
    full: bool  # whether S is a full matrix
    train_inducing: bool


# The whole model is one flat tuple, because numba's parallel loops take no nested ones.
# Functions that ask for a `Kernel` or a `Likelihood` take a `Model` as well.
Model = namedtuple("Model", Kernel._fields + Likelihood._fields + Variational._fields)


class Batch(NamedTuple):
    """Rows of data with their neighbours."""

    X: np.ndarray  # (n, D)
    y: np.ndarray  # (n, Q), or (n, 1) for classes
    weight: np.ndarray  # (n,)
    active: np.ndarray  # (n, H) indices of the nearest inducing points


class Workspace(NamedTuple):
    """Work arrays of one thread, or of one team of threads on a GPU.

    `allocate_workspace` adds a leading axis of threads, which `thread_view` removes.
    n is H + 1; pairs is n (n + 1) / 2, or n where all inducing points are active; side
    is H padded to a multiple of BLOCK.
    """

    values: np.ndarray  # (n_ops, pairs) a tile of the kernel program
    slopes: np.ndarray  # (n_ops, pairs)
    adjoint: np.ndarray  # (n_ops, pairs)
    points: np.ndarray  # (D, n) active inducing inputs, then the row of X
    d_points: np.ndarray  # (D, n)
    K: np.ndarray  # (side, side)
    chol: np.ndarray  # (side, side) R of K = R' R
    upper: np.ndarray  # (side, side) R^-T
    inverse: np.ndarray  # (side, side) K^-1
    S_inverse: np.ndarray  # (side, side) factor of S_q, then S_q^-1, then sum S_q K^-1
    sandwich: np.ndarray  # (side, side) K^-1 (sum_q S_q) K^-1
    d_K: np.ndarray  # (side, side)
    S: np.ndarray  # (Q, side, side), full covariance only
    a: np.ndarray  # (1, side) K^-1 k
    half_adjoint: np.ndarray  # (1, side) r = -K^-1 (d/da) / 2: d/dK = a r' + r a'
    scratch: np.ndarray  # (2, side) vectors that do not outlive a function
    m: np.ndarray  # (Q, side)
    s: np.ndarray  # (Q, side)
    alpha: np.ndarray  # (Q, side) K^-1 m
    mean: np.ndarray  # (Q,) mu of q(f)
    variance: np.ndarray  # (Q,) v of q(f)
    d_mean: np.ndarray  # (Q,)
    d_variance: np.ndarray  # (Q,)
    node_values: np.ndarray  # (Q + 2, n_nodes), see `expected_softmax`
    d_noise: np.ndarray  # (Q,) by the logarithms of the noise variances
    blocks: np.ndarray  # (side, BLOCK), see `cholesky`
    rows: np.ndarray  # (side,) int64, which inducing points are active
    projection: np.ndarray  # (M,), see `quadratic_form`, full covariance only


class Gradients(NamedTuple):
    """Derivatives of a minibatch's objective, not yet added up by row of Z.

    There are n blocks of H columns or, where all inducing points are active, CHUNKS
    blocks of M columns. Arrays that the model has no use for hold one empty block.
    """

    d_m: np.ndarray  # (blocks, Q, H)
    d_s: np.ndarray  # (blocks, Q, H), diagonal covariance
    d_S: np.ndarray  # (blocks, Q, side, side), or H for side on a GPU; full covariance
    d_Z: np.ndarray  # (blocks, D, H), trained Z
    d_log: np.ndarray  # (CHUNKS, P) by the logarithms of the kernel parameters
    d_noise: np.ndarray  # (CHUNKS, Q) by the logarithms of the noise variances
    sums: np.ndarray  # (CHUNKS, 2) weighted sums of E log p(y | f) and of KL
    jitter_counts: np.ndarray  # (>= CHUNKS, 2) int64, see `count_jitter`


thread_view = njit_view(Workspace)  # the work arrays of one thread


def allocate_workspace(model, n_neighbors, n_threads, *, dense=False):
    """Allocate the work arrays of all threads for H = n_neighbors.

    With `dense` there are no arrays for K, which is factorised once in another struct.
    """
    D, Q = model.Z.shape[1], model.m.shape[1]
    n, side, n_ops = n_neighbors + 1, padded(n_neighbors), len(model.code)
    pairs, square = (n, 0) if dense else (n * (n + 1) // 2, side)

    def zeros(*shape):
        return np.zeros((n_threads, *shape), dtype=model.Z.dtype)

    def identity(*shape):  # beyond their true size matrices hold the identity
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
        S_inverse=zeros(square, square),
        sandwich=zeros(square, square),
        d_K=zeros(square, square),
        S=identity(Q if model.full else 0, square, square),
        a=zeros(1, side),
        half_adjoint=zeros(1, side),
        scratch=zeros(2, side),
        m=zeros(Q, side),
        s=zeros(Q, side),
        alpha=zeros(Q, side),
        mean=zeros(Q),
        variance=zeros(Q),
        d_mean=zeros(Q),
        d_variance=zeros(Q),
        node_values=zeros(Q + 2, model.nodes.shape[1]),
        d_noise=zeros(len(model.noise)),
        blocks=zeros(square, BLOCK),
        rows=np.zeros((n_threads, side), dtype=np.int64),
        projection=zeros(len(model.Z) if model.full else 0),
    )


def allocate_gradients(model, blocks, H):
    """Allocate `Gradients` of `blocks` blocks of H columns."""
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
