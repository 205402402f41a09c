"""The solvers by their public names."""

from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.alternating import AlternatingSolver
from skswsgp._solvers.natural import NaturalSolver

SOLVERS = {"adam": AdamSolver, "natural": NaturalSolver}
# The solvers that train inducing inputs as well
SOLVERS_OF_INPUTS = {"adam": AdamSolver, "natural": AlternatingSolver}


def choose_solver(solver, optimize_inducing, streaming):
    """Return the subclass of `Solver` that trains; a stream is trained by Adam."""
    if streaming:
        return AdamSolver
    solvers = SOLVERS_OF_INPUTS if optimize_inducing else SOLVERS
    if solver not in solvers:
        expected = " or ".join(map(repr, solvers))
        raise ValueError(
            f"optimize_inducing=True with solver={solver!r}: expected "
            f"solver={expected}, which train inducing inputs, or False."
        )
    return solvers[solver]
