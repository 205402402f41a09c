"""Conjugate gradients for several systems at once (Hestenes and Stiefel, 1952).

All systems take each step together, so that a matrix they share is read once a step.
Sums are numpy's own, not those of BLAS, whose bits depend on its number of threads.
"""

import numpy as np


def solve_systems(
    x, systems, right, multiply, precondition, tolerance, max_steps, *, energy=False
):
    """Solve symmetric positive definite systems by preconditioned conjugate gradients.

    x (M, Q) holds initial solutions and `right` (M, Q) the right-hand sides. Columns
    `systems` (k,) of x are modified. multiply(u, systems) and precondition(u, systems)
    return the products of the matrices of these systems, and of their approximate
    inverses, with the columns of u (M, k). A system is solved if the norm of its
    residual is at most `tolerance` times that of the right-hand side, where `energy`
    asks for norms by the approximate inverses. Returns the systems that are not solved
    after `max_steps` steps.
    """
    everything = np.arange(right.shape[1])
    sizes = energies(right, precondition(right, everything) if energy else right)
    enough = tolerance * sizes
    x[:, systems[enough[systems] == 0.0]] = 0.0  # the exact solution
    solution, residual = x[:, systems], right[:, systems]
    if solution.any():
        residual -= multiply(solution, systems)
    direction = np.zeros_like(residual)
    previous = np.ones(len(systems))
    for step in range(max_steps + 1):
        preconditioned = precondition(residual, systems) if energy else None
        sizes = energies(residual, preconditioned if energy else residual)
        unsolved = ~(sizes <= enough[systems])  # true for NaN as well
        if not unsolved.all():
            x[:, systems] = solution
            systems, previous = systems[unsolved], previous[unsolved]
            residual, direction = residual[:, unsolved], direction[:, unsolved]
            solution = solution[:, unsolved]
            preconditioned = preconditioned[:, unsolved] if energy else None
        if len(systems) == 0 or step == max_steps:
            break
        if not energy:
            preconditioned = precondition(residual, systems)
        product = dots(residual, preconditioned)
        direction *= product / previous
        direction += preconditioned
        image = multiply(direction, systems)
        length = product / dots(direction, image)
        solution += length * direction
        residual -= length * image
        previous = product
    x[:, systems] = solution
    return systems


def dots(u, v):
    """Return the dot products of the columns of u and v, (k,)."""
    return np.einsum("ik,ik->k", u, v)


def energies(u, v):
    """Return the roots of the dot products of the columns of u and v, (k,)."""
    return np.sqrt(dots(u, v))
