"""Covariances of some points with each other, and their adjoint."""

import numpy as np
import pytest
import reference
from helpers import KERNELS
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.matrix import CovarianceMatrix


@pytest.mark.parametrize("name", KERNELS)
def test_matrix_equals_the_kernel_object_and_its_adjoint_finite_differences(name, rng):
    X, kernel = rng.normal(size=(9, 2)), KERNELS[name]
    compiled = compile_kernel(kernel, 2, np.float64)
    params, matrix = compiled.struct.params.copy(), CovarianceMatrix(compiled.struct, X)
    assert_allclose(matrix.evaluate(params), kernel(X), rtol=1e-12)
    d_K = rng.normal(size=(9, 9))
    d_K += d_K.T

    def objective(log_params):
        return np.sum(d_K * matrix.evaluate(np.exp(log_params)))

    expected = reference.finite_difference(objective, np.log(params))
    matrix.evaluate(params)
    assert_allclose(matrix.vjp(d_K, False)[0], expected, rtol=1e-6, atol=1e-6)

    def of_points(coordinates):
        K = matrix.evaluate(params, coordinates.reshape(9, 2))
        return np.sum(d_K * K)

    expected = reference.finite_difference(of_points, X.ravel())
    matrix.evaluate(params, X)
    assert_allclose(matrix.vjp(d_K, True)[1].ravel(), expected, rtol=1e-6, atol=1e-6)


def test_matrix_of_other_parameters():
    X = np.arange(3.0)[:, None]
    compiled = compile_kernel(ConstantKernel(1.0) * RBF(1.0), 1, np.float64)
    matrix = CovarianceMatrix(compiled.struct, X)
    params = compiled.struct.params.copy()
    params[compiled.struct.extra[-1]], params[compiled.struct.slot[0, 0]] = 3.0, 2.0
    assert_allclose(matrix.evaluate(params), (3.0 * RBF(2.0))(X), rtol=1e-12)
