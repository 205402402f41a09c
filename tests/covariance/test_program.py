"""Covariances and their adjoints, for every operation of a program."""

import numpy as np
import pytest
import reference
from helpers import assert_close, assert_derivatives, caller
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._compiled.special import exponential
from skswsgp._covariance import program, stationary
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import Tile, fill_tile, refresh_scales, tile_vjp
from skswsgp.kernels import ArcCosine, Polynomial

D = 6  # features; loops take four of them at a time
ARD = [0.7, 1.3, 2.1, 1.9, 1.6, 2.4]
LEAVES = {
    f"{name}-{kind}": make(scale)
    for name, make in {
        "rbf": RBF,
        "matern12": lambda scale: Matern(scale, nu=0.5),
        "matern32": lambda scale: Matern(scale, nu=1.5),
        "matern52": lambda scale: Matern(scale, nu=2.5),
        "matern-inf": lambda scale: Matern(scale, nu=np.inf),
        "rational-quadratic": lambda scale: RationalQuadratic(scale, alpha=0.6),
        "polynomial1": lambda scale: Polynomial(1, scale, 0.9),
        "polynomial3": lambda scale: Polynomial(3, scale, 0.9),
        "arc-cosine0": lambda scale: ArcCosine(0, scale, 0.9),
        "arc-cosine1": lambda scale: ArcCosine(1, scale, 0.9),
    }.items()
    for kind, scale in (("iso", 1.2), ("ard", ARD))
    if not (name == "rational-quadratic" and kind == "ard")  # scikit-learn has none
}
PAIR = ConstantKernel(1.5) * Matern(ARD, nu=1.5) + ConstantKernel(0.4) * RBF(2.0)
KERNELS = LEAVES | {
    "constant": ConstantKernel(1.7),
    "white": WhiteKernel(0.3),
    "dot-product": DotProduct(0.8),
    "sum": PAIR,
    "product": RBF(ARD) * DotProduct(0.8),
    "power": DotProduct(0.8) ** 3,
    "white-sum": WhiteKernel(0.2) + RBF(1.1) + WhiteKernel(0.3),
    "white-product": WhiteKernel(0.2) * (RBF(1.1) + ConstantKernel(0.5)),
    "nested": (PAIR * (DotProduct(0.5) + 0.3) + WhiteKernel(0.1)) ** 2
    + ConstantKernel(0.7) * ArcCosine(1, ARD) * RationalQuadratic(1.4, 0.8),
    "constants": ConstantKernel(0.7) * (ConstantKernel(0.3) * ConstantKernel(0.4)),
}


AT = 3  # where the tile begins


@pytest.fixture(scope="module")
def compiled():
    """Return `fill_tile` and `tile_vjp`, which are part of their callers."""

    @caller
    def fill(kernel, A, rows, B, n, tile, at):
        fill_tile(kernel, A, rows, B, n, tile.values, tile.slopes, at)

    @caller
    def pull(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
        tile_vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs)

    return fill, pull


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture
def points(rng):
    """Return five points and seven others."""
    return rng.normal(size=(5, D)), rng.normal(size=(7, D))


@pytest.fixture(params=["triangle", "rectangle"])
def triangle(request):
    return request.param == "triangle"


class Covariances:
    """k(A, A), lower triangle, or k(A, B) as the sum that its weights W make of it."""

    def __init__(self, compiled, kernel, A, B, W, dtype):
        self.fill, self.pull = compiled
        self.struct = compile_kernel(kernel, A.shape[1], dtype).struct
        self.triangle = B is None
        B = A if self.triangle else B
        n, columns, n_ops = len(A), len(B), len(self.struct.code)
        self.pairs = np.tril_indices(n) if self.triangle else np.indices((n, columns))
        self.pairs = tuple(index.ravel() for index in self.pairs)
        self.tile = Tile(*np.zeros((3, n_ops, AT + len(self.pairs[0])), dtype))
        self.W = W.astype(dtype)
        self.A = np.ascontiguousarray(A.T, dtype=dtype)
        self.B = self.A if self.triangle else np.ascontiguousarray(B.T, dtype=dtype)
        self.n = TRIANGLE if self.triangle else columns

    def values(self):
        n = self.A.shape[1]
        self.fill(self.struct, self.A, n, self.B, self.n, self.tile, AT)
        K = np.zeros((n, self.B.shape[1]), self.A.dtype)
        K[self.pairs] = self.tile.values[-1, AT:]
        return K

    def weighted_sum(self, log_params, A, B):
        """Return sum_ij W_ij k(a_i, b_j) with other parameters and points (D, n)."""
        self.struct.params[:] = np.exp(log_params)
        refresh_scales(self.struct)
        self.A[:] = A
        if not self.triangle:
            self.B[:] = B
        return np.sum(self.W * self.values())

    def derivatives(self, *, inputs=True):
        """Return those by log parameters and by A, B (D, n)."""
        self.values()
        self.tile.adjoint[-1, AT:] = self.W[self.pairs]
        d_log = np.zeros(len(self.struct.params))
        d_A = np.zeros_like(self.A)
        d_B = d_A if self.triangle else np.zeros_like(self.B)
        n = self.A.shape[1]
        arguments = self.struct, self.A, n, self.B, self.n, self.tile, AT
        self.pull(*arguments, d_log, d_A, d_B, inputs)
        return d_log, d_A, d_B


@pytest.fixture
def covariances(compiled, points, triangle, rng):
    """Return a constructor of `Covariances` with random weights."""
    A, B = points
    B = None if triangle else B
    W = np.tril(rng.normal(size=(5, 5))) if triangle else rng.normal(size=(5, 7))
    return lambda kernel, dtype="float64", A=A, B=B: Covariances(
        compiled, kernel, A, B, W, np.dtype(dtype)
    )


def test_every_operation_is_covered():
    listed = {
        value
        for name, value in (vars(stationary) | vars(program)).items()
        if name.isupper() and name != "TRIANGLE"
    }
    structs = [
        compile_kernel(kernel, D, np.float64).struct for kernel in KERNELS.values()
    ]
    assert {code for struct in structs for code in struct.code} == listed


def test_values_equal_reference(covariances, kernel, points, triangle, dtype):
    A, B = points
    expected = reference.kernel_matrix(kernel, A, None if triangle else B)
    if triangle:
        expected = np.tril(expected)
    # the product of sums of twenty terms; arccos loses digits near the diagonal
    assert_close(
        covariances(kernel, dtype).values(), expected, roundings=200, dtype=dtype
    )


def test_derivatives_equal_differences(covariances, kernel):
    case = covariances(kernel)
    parts = np.log(case.struct.params), case.A.copy(), case.B.copy()
    d_log, d_A, d_B = case.derivatives()
    with_B = 2 if case.triangle else 3
    for i, actual in enumerate((d_log, d_A, d_B)[:with_B]):

        def objective(theta, i=i):
            changed = list(parts)
            changed[i] = theta.reshape(parts[i].shape)
            return case.weighted_sum(*changed)

        assert_derivatives(actual.ravel(), objective, parts[i].ravel())


def test_parameters_alone(covariances, kernel):
    expected, _, _ = covariances(kernel).derivatives()
    d_log, d_A, _ = covariances(kernel).derivatives(inputs=False)
    assert_close(d_log, expected, roundings=100)
    if np.all(covariances(kernel).struct.code <= stationary.RATIONAL_QUADRATIC):
        assert not d_A.any()


def test_derivatives_in_float32(covariances, kernel):
    expected = covariances(kernel).derivatives()
    actual = covariances(kernel, "float32").derivatives()
    for single, double in zip(actual, expected, strict=True):
        assert_close(single, double, roundings=500, dtype="float32")


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_coincident_points(covariances, kernel, triangle, at, dtype):
    A = np.full((5, D), at)
    B = None if triangle else np.full((7, D), at)
    case = covariances(kernel, dtype, A=A, B=B)
    expected = reference.kernel_matrix(kernel, A, B)
    expected = np.tril(expected) if triangle else expected
    # arc-cosine: an angle of rounding size is the square root of a rounding
    roundings = 3 / np.sqrt(np.finfo(dtype).eps)
    assert_close(case.values(), expected, roundings=roundings, dtype=dtype)
    for derivatives in case.derivatives():
        assert np.isfinite(derivatives).all()


@pytest.mark.parametrize("make", [DotProduct, Polynomial, ArcCosine])
def test_zero_bias(covariances, make):
    case = covariances(make(sigma_0=0.0, sigma_0_bounds="fixed"), A=np.eye(5, D))
    assert np.isfinite(case.values()).all()
    d_log, d_A, _ = case.derivatives()
    assert d_log[-1] == 0.0
    assert np.isfinite(d_log).all() and np.isfinite(d_A).all()


def test_nothing_outside_the_tile_is_touched(compiled, points, rng):
    A, B = points
    case = Covariances(compiled, PAIR, A, B, rng.normal(size=(5, 7)), np.float64)
    whole = case.values().copy()
    case.tile.values[:] = np.nan
    case.fill(case.struct, case.A, 3, case.B, 4, case.tile, 2)
    expected = np.full_like(case.tile.values[-1], np.nan)
    expected[2 : 2 + 12] = whole[:3, :4].ravel()
    np.testing.assert_array_equal(case.tile.values[-1], expected)


def test_exponential():
    small = np.logspace(-20, 0, 500)
    x = np.concatenate([np.linspace(-700.0, 699.0, 9000), -small, small, [-0.0]])
    values = np.array([exponential(value) for value in x])
    # reassociation merges the two parts of log 2, so x itself is off by 4e-17 |x|
    np.testing.assert_allclose(values, np.exp(x), rtol=4e-14)
    near = np.abs(x) < 300.0
    np.testing.assert_allclose(values[near], np.exp(x[near]), rtol=2e-14)
    assert exponential(-1e6) == exponential(-700.0) < 1e-300
    assert np.isnan(exponential(np.nan))
