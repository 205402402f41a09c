"""The solvers by their public names."""

from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.alternating import AlternatingSolver
from skswsgp._solvers.natural import NaturalSolver

SOLVERS = {"adam": AdamSolver, "natural": NaturalSolver}


def choose_solver(solver, optimize_inducing, streaming):
    """Return the subclass of `Solver` that trains.

    The natural solver cannot move inducing inputs, so it then takes turns with Adam. A
    stream is always trained by Adam.
    """
    if streaming:
        return AdamSolver
    chosen = SOLVERS[solver]
    if optimize_inducing and not chosen.takes_steps:
        return AlternatingSolver
    return chosen
