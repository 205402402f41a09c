"""The kernel and the solver that a user gives, made ready for a fit."""

from collections.abc import Callable

from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.metaestimators import available_if

from skswsgp._covariance.compile import compile_kernel, count_periodic_columns
from skswsgp._estimators.sklearn_compat import Method
from skswsgp._solvers.progress import warn_caller
from skswsgp.kernels import chooses_columns, with_positions
from skswsgp.solvers import SOLVERS


def kernel_for(estimator, n_features):
    """Return the kernel of an estimator, whose `OnColumns` hold positions.

    Names are looked up among those of the table that it is fitted to.
    """
    kernel = estimator.kernel
    if not isinstance(kernel, Kernel):
        return kernel
    if estimator.learn_map not in ("auto", False) and chooses_columns(kernel):
        raise ValueError(
            "learn_map=True with a kernel that holds OnColumns: expected 'auto' or "
            "False, because a map of the columns mixes those that it chooses."
        )
    names = getattr(estimator, "feature_names_in_", None)
    kernel = with_positions(kernel, n_features, names)
    struct = compile_kernel(kernel, n_features, estimator.dtype).struct
    if count_periodic_columns(struct) > 1:
        warn_caller(
            f"ExpSineSquared reads {count_periodic_columns(struct)} columns at once: "
            "expected one column, because it is no covariance on several; put it on "
            "one with skswsgp.kernels.OnColumns.",
        )
    return kernel


def trial_of(estimator, **changes):
    """Return an estimator with other parameters, to be fitted for a choice only."""
    quiet = {"warm_start": False, "verbose": 0}
    return type(estimator)(**estimator.get_params(deep=False) | quiet | changes)


def learns_streams(estimator):
    """Return True if the solver of an estimator does; raise AttributeError if not."""
    solver = estimator.solver
    known = isinstance(solver, str) and solver in SOLVERS
    given = SOLVERS[solver]() if known else solver
    is_solver = isinstance(given, tuple(SOLVERS.values()))
    if is_solver and not hasattr(given, "forgetting_factor"):
        raise AttributeError(
            f"partial_fit with solver={solver!r}: expected 'natural' or "
            "Natural() of an SWSGP model, by which a stream takes one pass; call fit, "
            "or choose such a solver."
        )
    return True


streams_only: Callable[[Method], Method] = available_if(learns_streams)


def solver_for(estimator):
    """Return the subclass of `Solver` that trains an estimator, and its parameters."""
    given = estimator.solver
    solver = SOLVERS[given]() if isinstance(given, str) else given
    solver._validate_params()
    shared = solver.get_params().get("n_shared")
    if shared is not None and estimator.device == "cuda":
        raise ValueError(
            f"device='cuda' with n_shared={shared!r}: expected 'cpu' or 'auto', "
            "because minibatches whose rows share points run on the CPU."
        )
    return solver._solver, solver.get_params()
