"""Scores that measure how far the uncertainty of predictions can be trusted."""

from skswsgp.metrics.calibration import expected_calibration_error, reliability_curve
from skswsgp.metrics.scorers import get_scorer
from skswsgp.metrics.scores import (
    crps,
    crps_of_quantiles,
    interval_coverage,
    interval_score,
    mean_negative_log_density,
    pinball,
)

__all__ = [
    "crps",
    "crps_of_quantiles",
    "expected_calibration_error",
    "get_scorer",
    "interval_coverage",
    "interval_score",
    "mean_negative_log_density",
    "pinball",
    "reliability_curve",
]
