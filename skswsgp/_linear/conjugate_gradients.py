"""Conjugate gradients for several systems at once (Hestenes and Stiefel, 1952).

Systems that share what is costly to read take each step together. Sums are numpy's, not
those of BLAS, whose bits depend on its number of threads.
"""

import numpy as np


def solve_systems(x, which, right, multiply, precondition, tolerance, most):
    """Improve columns of x until their systems are solved, or for `most` steps.

    Parameters
    ----------
    x : array of shape (M, Q)
        Where to start; the columns `which` are modified.
    which : array of shape (k,)
        Systems to be solved, of Q.
    right : array of shape (M, Q)
        Right-hand sides.
    multiply, precondition : callable
        multiply(u, which): products of the matrices of systems `which`, symmetric and
        positive definite, with the columns of u (M, k); likewise with approximate
        inverses.
    tolerance : float
        Norm of a residual, relative to the right-hand side, that is small enough.
    most : int
        Steps.

    Returns
    -------
    which : array
        The systems that are not solved.
    """
    enough = tolerance * norms(right)
    residual = right[:, which] - multiply(x[:, which], which)
    direction = np.zeros_like(residual)
    before = np.ones(len(which))
    for step in range(most + 1):
        going = ~(norms(residual) <= enough[which])  # also where it is no number
        if not going.all():
            which, before = which[going], before[going]
            residual, direction = residual[:, going], direction[:, going]
        if len(which) == 0 or step == most:
            break
        image = precondition(residual, which)
        product = dots(residual, image)
        direction = image + (product / before) * direction
        pull = multiply(direction, which)
        length = product / dots(direction, pull)
        x[:, which] += length * direction
        residual -= length * pull
        before = product
    return which


def dots(u, v):
    """Return the products of columns of u and v, (k,)."""
    return np.einsum("ik,ik->k", u, v)


def norms(u):
    """Return the norms of the columns of u, (k,)."""
    return np.sqrt(dots(u, u))
