"""Steps of Adam of one inducing point: its rows of Z, m, s and L."""

from skswsgp._compiled.jit import njit_inline, njit_inner, njit_small
from skswsgp._compiled.special import exponential
from skswsgp._point.adam_step import adam_step, bias_corrections, step_linear


@njit_small
def step_positive(values, row, j, derivative, moments, first, second):
    """Add a step to the logarithm of values[row, j]."""
    gradient = derivative * values[row, j]
    values[row, j] *= exponential(adam_step(gradient, moments, row, j, first, second))


@njit_inner
def step_factor(L, row, derivatives, moments, first, second):
    """Add steps to a row of L (M, M), and to the logarithm of its diagonal entry."""
    for j in range(row):
        step_linear(L, row, j, derivatives[j], 1.0, moments, first, second)
    step_positive(L, row, row, derivatives[row], moments, first, second)


@njit_inline
def update_row(model, optimizer, rows, i, row, rate):
    """Take a step for m, Z and a diagonal S of a point, from the derivatives i."""
    optimizer.row_steps[row] += 1
    fast, slow = bias_corrections(optimizer.row_steps[row], rate)
    for j in range(model.m.shape[1]):
        step_linear(model.m, row, j, rows.d_m[i, j], 1.0, optimizer.m, fast, slow)
        if not model.full:
            step_positive(model.s, row, j, rows.d_s[i, j], optimizer.s, fast, slow)
    if model.train_inducing:
        for j in range(model.Z.shape[1]):
            unit, slope = optimizer.feature_scale[j], rows.d_Z[i, j]
            step_linear(model.Z, row, j, slope, unit, optimizer.Z, fast, slow)
