"""The warning of rows far from all that a model knows."""

import warnings

from skswsgp._predictive.extrapolation import UNKNOWN_VARIANCE
from skswsgp._solvers.progress import callers_level


class ExtrapolationWarning(UserWarning):
    """Most rows of a prediction lie where the model knows next to nothing.

    Predictions with variances warn, once a call, where more than half of at least 10
    rows have, in every latent function, more than 95 % of the prior variance. Models
    whose inducing points know as little of each other never do.

    Examples
    --------
    Without this warning:

    >>> import warnings
    >>> from skswsgp import ExtrapolationWarning
    >>> warnings.simplefilter("ignore", ExtrapolationWarning)
    """


def warn_of_extrapolation(share, n_rows):
    """Warn that a share of so many rows is unknown."""
    warnings.warn(
        f"{share:.0%} of {n_rows} rows of X lie where the model knows next to nothing, "
        f"with more than {UNKNOWN_VARIANCE:.0%} of the prior variance: expected rows "
        "like those of fit; check columns and their units, or filter "
        "skswsgp.ExtrapolationWarning.",
        ExtrapolationWarning,
        stacklevel=callers_level(),
    )
