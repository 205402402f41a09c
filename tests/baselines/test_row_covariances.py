"""Covariances of rows with some points, and their adjoint."""

import numpy as np
import pytest
import reference
from helpers import KERNELS
from numpy.testing import assert_allclose

from skswsgp._covariance.compile import compile_kernel
from skswsgp.baselines.row_covariances import RowCovariances


@pytest.mark.parametrize("name", KERNELS)
def test_rows_equal_the_kernel_object_and_their_adjoint_finite_differences(name, rng):
    X, Z, kernel = rng.normal(size=(5, 2)), rng.normal(size=(4, 2)), KERNELS[name]
    Z[0] = X[0]  # another point at the same place: white noise is none of k(x, z)
    compiled = compile_kernel(kernel, 2, np.float64)
    params, rows = compiled.struct.params.copy(), RowCovariances(compiled.struct, 5, 4)
    expected = np.c_[kernel(X, Z), kernel.diag(X)]
    assert_allclose(rows.evaluate(params, X, Z), expected, rtol=1e-12)
    d_K, size = rng.normal(size=(5, 5)), len(params)
    theta = np.r_[np.log(params), rng.normal(size=8)]

    def objective(theta):
        Z = theta[size:].reshape(4, 2)
        return np.sum(d_K * rows.evaluate(np.exp(theta[:size]), X, Z))

    expected = reference.finite_difference(objective, theta)
    objective(theta)
    d_log, d_Z = rows.vjp(d_K)
    assert_allclose(np.r_[d_log, d_Z.ravel()], expected, rtol=1e-6, atol=1e-6)
