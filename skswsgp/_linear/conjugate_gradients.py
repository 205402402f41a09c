"""Conjugate gradients for several systems at once (Hestenes and Stiefel, 1952).

All systems take each step together, so that a matrix they share is read once a step.
Sums are numpy's own, not those of BLAS, whose bits depend on its number of threads.
"""

import numpy as np


def solve_systems(x, systems, right, multiply, precondition, tolerance, max_steps):
    """Solve symmetric positive definite systems by preconditioned conjugate gradients.

    Parameters
    ----------
    x : array of shape (M, Q)
        Initial solutions; the columns `systems` are modified.
    systems : array of shape (k,)
        Columns of x whose systems are to be solved.
    right : array of shape (M, Q)
        Right-hand sides.
    multiply : callable
        multiply(u, systems) returns the products of the matrices of these systems with
        the columns of u (M, k).
    precondition : callable
        precondition(u, systems) returns the products of approximate inverses of the
        matrices with the columns of u.
    tolerance : float
        Norm of the residual of a solved system, relative to the right-hand side.
    max_steps : int
        Number of steps after which the other systems are left unsolved.

    Returns
    -------
    systems : array
        The systems that are not solved.
    """
    enough = tolerance * norms(right)
    x[:, enough == 0.0] = 0.0  # no residual could be small enough
    residual = right[:, systems] - multiply(x[:, systems], systems)
    direction = np.zeros_like(residual)
    previous = np.ones(len(systems))
    for step in range(max_steps + 1):
        unsolved = ~(norms(residual) <= enough[systems])  # true for NaN as well
        if not unsolved.all():
            systems, previous = systems[unsolved], previous[unsolved]
            residual, direction = residual[:, unsolved], direction[:, unsolved]
        if len(systems) == 0 or step == max_steps:
            break
        preconditioned = precondition(residual, systems)
        product = dots(residual, preconditioned)
        direction = preconditioned + (product / previous) * direction
        image = multiply(direction, systems)
        length = product / dots(direction, image)
        x[:, systems] += length * direction
        residual -= length * image
        previous = product
    return systems


def dots(u, v):
    """Return the dot products of the columns of u and v, (k,)."""
    return np.einsum("ik,ik->k", u, v)


def norms(u):
    """Return the norms of the columns of u, (k,)."""
    return np.sqrt(dots(u, u))
