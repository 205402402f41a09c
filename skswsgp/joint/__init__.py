"""Predictions of many rows together, imported when one is asked for."""

from skswsgp.joint.posterior_draws import draws_of_fit
from skswsgp.joint.predictions import (
    covariance_of_functions,
    draw_observations,
    factor_from_sites,
    observed_covariance,
    sample_functions,
)

__all__ = [
    "covariance_of_functions",
    "draw_observations",
    "draws_of_fit",
    "factor_from_sites",
    "observed_covariance",
    "sample_functions",
]
