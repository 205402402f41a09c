"""The kernel that a user gives, made ready for a table."""

import warnings

from sklearn.gaussian_process.kernels import Kernel

from skswsgp._covariance.compile import compile_kernel, count_periodic_columns
from skswsgp._solvers.progress import callers_level
from skswsgp.kernels import chooses_columns, with_positions


def kernel_for(estimator, n_features):
    """Return the kernel of an estimator, whose `OnColumns` hold positions.

    Names are looked up among those of the table that it is fitted to.
    """
    kernel = estimator.kernel
    if not isinstance(kernel, Kernel):
        return kernel
    if estimator.metric == "full" and chooses_columns(kernel):
        raise ValueError(
            "metric='full' with a kernel that holds OnColumns: expected 'auto' or "
            "'ard', because a map of the columns mixes those that it chooses."
        )
    names = getattr(estimator, "feature_names_in_", None)
    kernel = with_positions(kernel, n_features, names)
    struct = compile_kernel(kernel, n_features, estimator.dtype).struct
    if count_periodic_columns(struct) > 1:
        warnings.warn(
            f"ExpSineSquared reads {count_periodic_columns(struct)} columns at once: "
            "expected one column, because it is no covariance on several; put it on "
            "one with skswsgp.kernels.OnColumns.",
            stacklevel=callers_level(),
        )
    return kernel
