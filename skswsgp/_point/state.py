"""The structs of arrays that compiled code works on, and their allocation.

Letters: N training rows, M inducing points, H of them active for a row, Q latent
functions, D features, P kernel parameters, n rows of a minibatch. Arrays have the dtype
of the fit unless their comment names another.
"""

import math
from collections import namedtuple
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit_row
from skswsgp._compiled.linalg import cholesky_address, padded
from skswsgp._compiled.threads import CHUNKS, require_memory
from skswsgp._compiled.tiles import BLOCK
from skswsgp._covariance.program import CHOLESKY, Kernel, allow_vjp, program_calls
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


def workspace_shapes(n_ops, D, Q, noises, nodes, H, M, dense):
    """Return the shape of each array of a `Workspace` for one thread.

    `dense` leaves out arrays for K, which another struct holds. M is the number of
    columns of a factor of S, 0 for a diagonal covariance. Sides of matrices are padded
    to multiples of BLOCK.
    """
    n, side = H + 1, padded(H)
    pairs, points, square = (n, 1, 0) if dense else (n * (n + 1) // 2, n, side)
    return {
        "values": (n_ops, pairs),  # a tile of the kernel program
        "slopes": (n_ops, pairs),
        "adjoint": (n_ops, pairs),
        "points": (D, points),  # active inducing inputs, then the row of X
        "d_points": (D, points),
        "K": (square, square),
        "chol": (square, square),  # R of K = R' R
        "upper": (square, square),  # R^-T
        "inverse": (square, square),  # K^-1
        "S_inverse": (square, square),  # factor of S_q, then S_q^-1, then sum S_q K^-1
        "sandwich": (square, square),  # K^-1 (sum_q S_q) K^-1
        "d_K": (square, square),
        "S": (Q if M else 0, square, square),
        "a": (1, side),  # K^-1 k
        "half_adjoint": (1, side),  # r = -K^-1 (d/da) / 2: d/dK = a r' + r a'
        "scratch": (2, side),  # vectors that do not outlive a function
        "m": (Q, side),
        "s": (Q, side),
        "alpha": (Q, side),  # K^-1 m
        "mean": (Q,),  # mu of q(f)
        "variance": (Q,),  # v of q(f)
        "d_mean": (Q,),
        "d_variance": (Q,),
        "node_values": (Q + 2, nodes),  # see `expected_softmax`
        "d_noise": (noises,),  # by the logarithms of the noise variances
        "blocks": (square, BLOCK),  # see `cholesky`
        "rows": (side,),  # int64, which inducing points are active
        "calls": (3,),  # uint64, see `program_calls` and `cholesky_address`
        "projection": (M,),  # see `quadratic_form`
    }


# Work arrays of one thread. `allocate_workspace` adds a leading axis of threads, which
# `thread_view` removes in compiled code, and `work_of` before a call of it.
Workspace = namedtuple("Workspace", workspace_shapes(*[0] * 7, dense=False))
thread_view = njit_row(Workspace)
# The part of a `Workspace` that expectations of likelihoods take
ExpectationWork = namedtuple(
    "ExpectationWork", "mean variance d_mean d_variance d_noise node_values"
)

# Derivatives of a minibatch's objective, not yet added up by row of Z
Gradients = namedtuple("Gradients", "d_m d_s d_S d_Z d_log d_noise sums jitter_counts")


def allocate_workspace(model, n_neighbors, n_threads, *, dense=False, vjp=True):
    """Allocate the work arrays of all threads, and compile what they call.

    See `workspace_shapes`. Without `vjp` nothing is compiled for derivatives yet; see
    `allow_vjp`.
    """
    D, Q, M = model.Z.shape[1], model.m.shape[1], model.L.shape[2] if model.full else 0
    sizes = len(model.code), D, Q, len(model.noise), model.nodes.shape[1]
    shapes = workspace_shapes(*sizes, n_neighbors, M, dense)
    numbers = sum(map(math.prod, shapes.values()))
    require_memory(n_threads * numbers * model.Z.itemsize, n_neighbors)
    arrays = {
        name: np.zeros((n_threads, *shape), model.Z.dtype)
        for name, shape in shapes.items()
    }
    for name in "K", "S":  # beyond their true size matrices hold the identity
        arrays[name][...] = np.eye(arrays[name].shape[-1])
    arrays["rows"] = arrays["rows"].astype(np.int64)
    arrays["calls"] = arrays["calls"].astype(np.uint64)
    works = Workspace(**arrays)
    works.calls[:, :CHOLESKY] = program_calls(model)
    works.calls[:, CHOLESKY] = cholesky_address(works.K[0])
    if vjp:
        allow_vjp(works.calls, model)
    return works


def work_of(works, t, struct):
    """Return the work arrays of thread t that are fields of `struct`, as that struct.

    `works` is a `Workspace` of all threads.
    """
    return struct(*(getattr(works, name)[t] for name in struct._fields))


def allocate_gradients(model, blocks, H):
    """Allocate `Gradients` on the host.

    There are n blocks of H columns or, where all inducing points are active, CHUNKS
    blocks of M columns. Arrays that the model has no use for hold one empty block.
    """
    (D, Q), dtype, side = (model.Z.shape[1], model.m.shape[1]), model.Z.dtype, padded(H)
    P, noises, full = len(model.params), len(model.noise), model.full
    return Gradients(
        d_m=np.zeros((blocks, Q, H), dtype),
        d_s=np.zeros((1, Q, 1) if full else (blocks, Q, H), dtype),
        d_S=np.zeros((blocks, Q, side, side) if full else (1, Q, 1, 1), dtype),
        d_Z=np.zeros((blocks if model.train_inducing else 1, D, H), dtype),
        d_log=np.zeros((CHUNKS, P)),  # by log parameters
        d_noise=np.zeros((CHUNKS, noises)),  # by log noise variances
        sums=np.zeros((CHUNKS, 2)),  # weighted, of E log p(y | f) and of KL
        jitter_counts=np.zeros((CHUNKS, 2), dtype=np.int64),  # see `count_jitter`
    )
