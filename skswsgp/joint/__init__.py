"""Predictions of many rows together, imported when one is asked for."""

from skswsgp.joint.functions import (
    covariance_factor,
    draw_functions,
    latent_covariance,
)

__all__ = ["covariance_factor", "draw_functions", "latent_covariance"]
