"""Covariances and their derivatives, for every operation of a program."""

from typing import NamedTuple

import numpy as np
import pytest
import reference
from helpers import assert_close, assert_derivatives, caller
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._covariance import dot_product, program, stationary
from skswsgp._covariance.compile import TABLE, compile_kernel
from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import (
    allow_vjp,
    fill_tile,
    program_calls,
    refresh_scales,
    tile_vjp,
)
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

pytestmark = pytest.mark.matrix
D = 6  # features: loops take four of them at a time, and two remain
ARD = [0.7, 1.3, 2.1, 1.9, 1.6, 2.4]


def leaf_object(leaf, length_scale):
    """Return a kernel object of a row of TABLE."""
    params = dict.fromkeys(leaf.parameters, 0.9)
    if "length_scale" in params:
        params["length_scale"] = length_scale
    return leaf.kernel(**params | dict([leaf.variant] if leaf.variant else []))


LEAVES = {
    "-".join([leaf.kernel.__name__, *map(str, leaf.variant), kind]): leaf_object(
        leaf, scale
    )
    for leaf in TABLE
    for kind, scale in (("iso", 1.2), ("ard", ARD))
    if kind == "iso" or hasattr(leaf.kernel, "anisotropic")
}
PAIR = ConstantKernel(1.5) * Matern(ARD, nu=1.5) + ConstantKernel(0.4) * RBF(2.0)
KERNELS = LEAVES | {
    "polynomial1": Polynomial(1, ARD, 0.9),
    "sum": PAIR,
    "product": RBF(ARD) * DotProduct(0.8),
    "power": DotProduct(0.8) ** 3,
    "white-sum": WhiteKernel(0.2) + RBF(1.1) + WhiteKernel(0.3),
    "white-product": WhiteKernel(0.2) * (RBF(1.1) + ConstantKernel(0.5)),
    "nested": (PAIR * (DotProduct(0.5) + 0.3) + WhiteKernel(0.1)) ** 2
    + ConstantKernel(0.7) * ArcCosine(1, ARD) * RationalQuadratic(1.4, 0.8),
    "constants": ConstantKernel(0.7) * (ConstantKernel(0.3) * ConstantKernel(0.4)),
    "columns": OnColumns(Matern(ARD[:3], nu=2.5), [4, 0, 5]),
    "columns-sum": OnColumns(RBF(0.8), [1])
    + OnColumns(ExpSineSquared(1.1, 2.3), [2]) * OnColumns(RBF([1.2, 0.9]), [5, 3])
    + 0.3 * RBF(ARD),
    "columns-of-products": OnColumns(DotProduct(0.8), [3, 1])
    + OnColumns(Polynomial(2, [1.7, 0.8], 0.4), [0, 4]) * OnColumns(ArcCosine(1), [2])
    + OnColumns(ArcCosine(0, [1.2, 0.9, 1.5]), [5, 1, 0]),
    "columns-of-columns": OnColumns(
        (OnColumns(RBF(0.8), [2]) + 0.4 * RBF([1.1, 1.3, 0.7])) ** 2, [5, 0, 3]
    )
    + WhiteKernel(0.1),
}


AT = 3  # first pair of the tile, in longer arrays


class Tile(NamedTuple):
    """The arrays of a tile, (n_ops, pairs)."""

    values: np.ndarray
    slopes: np.ndarray
    adjoint: np.ndarray
    calls: np.ndarray


@pytest.fixture(scope="module")
def compiled():
    """Return compiled functions that call `fill_tile` and `tile_vjp`."""

    @caller
    def fill(kernel, A, rows, B, n, tile, at):
        fill_tile(kernel, A, rows, B, n, tile, at)

    @caller
    def vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
        tile_vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs)

    return fill, vjp


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture
def points(rng):
    """Return five points A and seven points B."""
    return rng.normal(size=(5, D)), rng.normal(size=(7, D))


@pytest.fixture(params=["triangle", "rectangle"])
def triangle(request):
    return request.param == "triangle"


# Neither a precision nor the derivatives left out know which pairs there are.
one_shape = pytest.mark.parametrize("triangle", ["rectangle"], indirect=True)


class Covariances:
    """The covariances k(A, B), or the lower triangle of k(A, A) if B is None.

    Their sum with weights W is the objective of derivatives.
    """

    def __init__(self, compiled, kernel, A, B, W, dtype):
        self.fill, self.vjp = compiled
        self.struct = compile_kernel(kernel, A.shape[1], dtype).struct
        self.triangle = B is None
        B = A if self.triangle else B
        n, columns, n_ops = len(A), len(B), len(self.struct.code)
        self.pairs = np.tril_indices(n) if self.triangle else np.indices((n, columns))
        self.pairs = tuple(index.ravel() for index in self.pairs)
        calls = program_calls(self.struct)
        allow_vjp(calls, self.struct)
        self.tile = Tile(*np.zeros((3, n_ops, AT + len(self.pairs[0])), dtype), calls)
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
        """Return the derivatives by log parameters and by A and B, (D, n)."""
        self.values()
        self.tile.adjoint[-1, AT:] = self.W[self.pairs]
        d_log = np.zeros(len(self.struct.params))
        d_A = np.zeros_like(self.A)
        d_B = d_A if self.triangle else np.zeros_like(self.B)
        n = self.A.shape[1]
        arguments = self.struct, self.A, n, self.B, self.n, self.tile, AT
        self.vjp(*arguments, d_log, d_A, d_B, inputs)
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


def test_every_code_is_tested():
    # TRIANGLE and FIRST_... are equal to codes of the table
    codes = {
        value
        for module in (program, stationary, dot_product)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int)
    }
    structs = [
        compile_kernel(kernel, D, np.float64).struct for kernel in KERNELS.values()
    ]
    assert {code for struct in structs for code in struct.code} == codes
    assert {leaf.code for leaf in TABLE} <= codes


def test_values_equal_reference(covariances, kernel, points, triangle, dtype):
    A, B = points
    expected = reference.kernel_matrix(kernel, A, None if triangle else B)
    if triangle:
        expected = np.tril(expected)
    found = covariances(kernel, dtype).values()
    # products of sums of twenty terms; arccos loses digits near the diagonal
    assert_close(found, expected, roundings=200, dtype=dtype)


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


@one_shape
def test_derivatives_by_parameters_alone(covariances, kernel):
    expected, _, _ = covariances(kernel).derivatives()
    d_log, d_A, d_B = covariances(kernel).derivatives(inputs=False)
    assert_close(d_log, expected, roundings=100)
    assert not d_A.any() and not d_B.any()


@pytest.mark.full
@one_shape
def test_derivatives_in_float32(covariances, kernel):
    expected = covariances(kernel).derivatives()
    actual = covariances(kernel, "float32").derivatives()
    for single, double in zip(actual, expected, strict=True):
        assert_close(single, double, roundings=500, dtype="float32")


def test_coincident_points(covariances, kernel, triangle, dtype):
    for at in (0.0, 1.0):
        A = np.full((5, D), at)
        B = None if triangle else np.full((7, D), at)
        case = covariances(kernel, dtype, A=A, B=B)
        expected = reference.kernel_matrix(kernel, A, B)
        expected = np.tril(expected) if triangle else expected
        # arc-cosine: the angle between equal points is the square root of a rounding
        roundings = 3 / np.sqrt(np.finfo(dtype).eps)
        assert_close(case.values(), expected, roundings=roundings, dtype=dtype)
        for derivatives in case.derivatives():
            assert np.isfinite(derivatives).all()


@pytest.mark.parametrize("periods", [0.25, 3.0, 1e6 + 0.25, 1e18])
def test_phases_of_far_points(compiled, periods, dtype):
    A, B = np.zeros((5, D)), np.zeros((7, D))
    A[:, 0] = 2.0 * periods
    kernel, W = ExpSineSquared(0.8, 2.0), np.ones((5, 7))
    case = Covariances(compiled, kernel, A, B, W, dtype)
    assert_close(case.values().max(), case.values().min(), roundings=0, dtype=dtype)
    if periods < 1e18:  # where no digit of the phase is left
        k = np.exp(-2.0 * (np.sin(np.pi * (periods % 1.0)) / 0.8) ** 2)
        assert_close(case.values(), k, roundings=30 * periods + 30, dtype=dtype)
    for derivatives in case.derivatives():
        assert np.isfinite(derivatives).all()


@pytest.mark.parametrize("make", [DotProduct, Polynomial, ArcCosine])
def test_zero_bias(covariances, make):
    case = covariances(make(sigma_0=0.0, sigma_0_bounds="fixed"), A=np.eye(5, D))
    assert np.isfinite(case.values()).all()
    d_log, d_A, _ = case.derivatives()
    assert d_log[-1] == 0.0
    assert np.isfinite(d_log).all() and np.isfinite(d_A).all()


def test_only_entries_of_the_tile_are_written(compiled, points, rng):
    A, B = points
    case = Covariances(compiled, PAIR, A, B, rng.normal(size=(5, 7)), np.float64)
    whole = case.values().copy()
    case.tile.values[:] = np.nan
    case.fill(case.struct, case.A, 3, case.B, 4, case.tile, 2)
    expected = np.full_like(case.tile.values[-1], np.nan)
    expected[2 : 2 + 12] = whole[:3, :4].ravel()
    np.testing.assert_array_equal(case.tile.values[-1], expected)
