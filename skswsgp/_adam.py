"""One step of Adam (Kingma and Ba, 2015), uphill."""

import math

from skswsgp._jit import njit_small
from skswsgp._stationary import exp_negative

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-12
_LOG_BETA1, _LOG_BETA2 = math.log(BETA1), math.log(BETA2)


@njit_small
def bias_corrections(steps, rate):
    """Return rate / (1 - beta1^t) and 1 / (1 - beta2^t) after t steps."""
    first = rate / (1.0 - exp_negative(steps * _LOG_BETA1))
    second = 1.0 / (1.0 - exp_negative(steps * _LOG_BETA2))
    return first, second


@njit_small
def adam_step(gradient, moments, row, j, first_scale, second_scale):
    """Return the step for one derivative; its moments[row, :, j] are modified.

    moments has shape (rows, 2, n); the scales come from `bias_corrections`.
    """
    first = BETA1 * moments[row, 0, j] + (1.0 - BETA1) * gradient
    second = BETA2 * moments[row, 1, j] + (1.0 - BETA2) * gradient * gradient
    moments[row, 0, j] = first
    moments[row, 1, j] = second
    return first * first_scale / (math.sqrt(second * second_scale) + EPSILON)
