"""Kernel objects compiled to programs, and parameters set back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    Product,
    RationalQuadratic,
    WhiteKernel,
)

from skswsgp._covariance import program, stationary
from skswsgp._covariance.compile import (
    TABLE,
    compile_kernel,
    distance_leaves,
    inverse_lengths,
    is_decreasing,
    length_scales,
    log_units,
    updated_kernel,
)
from skswsgp.kernels import ArcCosine, OnColumns, Polynomial

D = 3
ARD = [0.7, 1.3, 2.1]
KERNELS = {
    "constant": ConstantKernel(1.7),
    "white": WhiteKernel(0.3),
    "rbf": RBF(0.8),
    "rbf-ard": RBF(ARD),
    "matern": Matern(ARD, nu=1.5),
    "rational-quadratic": RationalQuadratic(1.2, alpha=0.6),
    "periodic": ExpSineSquared(0.7, periodicity=2.3),
    "dot-product": DotProduct(0.9),
    "polynomial": Polynomial(2, ARD, 0.4),
    "arc-cosine": ArcCosine(0, 1.1, 0.4),
    "sum": 2.0 * RBF(ARD) + WhiteKernel(0.1),
    "scale-right": RBF(ARD) * ConstantKernel(0.3),
    "scale-both": ConstantKernel(0.4) * ConstantKernel(0.3),
    "power": (RBF(ARD) * DotProduct(0.4) + 0.3) ** 2,
    "columns": OnColumns(RBF(ARD[:2]) + 0.3 * ExpSineSquared(), [2, 0]) * RBF(ARD),
    "nested": (0.5 * Matern(nu=np.inf) + RBF(ARD)) * (WhiteKernel(0.2) + Polynomial()),
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


class SubRBF(RBF):
    """A kernel that may have overridden anything."""


def parameter_names(kernel):
    """Return the names of all hyperparameters, as in get_params."""
    names = {name.removesuffix("_bounds") for name in kernel.get_params()}
    return {name for name in names if f"{name}_bounds" in kernel.get_params()}


def test_round_trip(kernel):
    params = compile_kernel(kernel, D, np.float64).struct.params
    assert updated_kernel(kernel, params) == kernel
    assert_array_equal(updated_kernel(kernel, params).theta, kernel.theta)


def test_update_reaches_every_parameter(kernel):
    before = clone(kernel)
    params = compile_kernel(kernel, D, np.float64).struct.params
    factors = np.linspace(1.1, 1.9, len(params))
    updated = updated_kernel(kernel, params * factors)
    assert kernel == before
    shift = updated.theta - kernel.theta
    assert_allclose(np.sort(shift), np.log(factors), rtol=1e-12)
    compiled = compile_kernel(updated, D, np.float64)
    assert_array_equal(compiled.struct.params, params * factors)
    assert_allclose(clone(updated).theta, updated.theta, rtol=0)


def test_update_keeps_types(kernel):
    params = compile_kernel(kernel, D, np.float32).struct.params
    old, new = kernel.get_params(), updated_kernel(kernel, params).get_params()
    for name in parameter_names(kernel):
        if np.ndim(old[name]) == 0:
            assert type(new[name]) is float
        else:
            assert new[name].shape == np.shape(old[name])
            assert new[name].dtype == np.float64


def test_one_length_scale_in_a_list_becomes_a_float():
    kernel = RBF([0.8])
    compiled = compile_kernel(kernel, D, np.float64)
    assert_array_equal(compiled.struct.slot, [[0] * D])
    assert updated_kernel(kernel, [1.5]).length_scale == 1.5
    assert type(updated_kernel(kernel, [1.5]).length_scale) is float


def test_shapes(kernel):
    compiled = compile_kernel(kernel, D, np.float32)
    struct, n_params = compiled.struct, len(compiled.struct.params)
    assert struct.inv_scale.shape == (len(struct.code), D)
    for array in struct[:4]:
        assert array.dtype == np.int64 and array.shape == struct.code.shape
    assert struct.slot.dtype == np.int64 and struct.slot.shape == struct.inv_scale.shape
    assert compiled.free.shape == (n_params,) and compiled.free.dtype == bool
    assert compiled.log_bounds.shape == (n_params, 2)
    assert compiled.log_bounds.dtype == np.float64


def test_numbers_have_the_type_of_the_compilation(kernel):
    for dtype in (np.float64, np.float32):
        struct = compile_kernel(kernel, D, dtype).struct
        for array in (struct.params, struct.inv_scale, struct.exponent):
            assert array.dtype == dtype


def test_refreshed_scales_are_those_of_the_compiler(kernel):
    for dtype in (np.float64, np.float32):
        struct = compile_kernel(kernel, D, dtype).struct
        expected = struct.inv_scale.copy()
        struct.inv_scale[struct.slot >= 0] = np.nan
        program.refresh_scales(struct)
        assert_allclose(struct.inv_scale, expected, rtol=np.finfo(dtype).eps)


@pytest.mark.parametrize("constant_first", [True, False])
def test_a_constant_factor_scales_the_other_operand(constant_first):
    operands = [ConstantKernel(0.3), RBF(ARD)]
    product = Product(*(operands if constant_first else operands[::-1]))
    struct = compile_kernel(product, D, np.float64).struct
    assert_array_equal(struct.code, [stationary.RBF, program.SCALE])
    assert struct.left[1] == 0
    assert struct.params[struct.extra[1]] == 0.3


@pytest.mark.parametrize("leaf", TABLE)
def test_rows_of_the_table(leaf):
    kernel = leaf.kernel(**dict([leaf.variant] if leaf.variant else []))
    assert tuple(h.name for h in kernel.hyperparameters) == leaf.parameters
    assert kernel.is_stationary() == leaf.stationary
    struct = compile_kernel(kernel, D, np.float64).struct
    assert struct.code == [leaf.code]
    divided = leaf.scale in leaf.parameters
    assert_array_equal(struct.slot, [[struct.slot.max() if divided else -1] * D])
    if divided:
        assert_array_equal(1.0 / struct.inv_scale[0], getattr(kernel, leaf.scale))
    assert is_decreasing(struct) == leaf.decreasing
    if leaf.decreasing:
        values = kernel([[0.0]], np.linspace(0.1, 5.0, 20)[:, np.newaxis])
        assert (np.diff(values) <= 0.0).all()


def test_variants_of_a_code_have_equal_properties():
    properties = {leaf.code: leaf[-3:] for leaf in TABLE}
    assert all(properties[leaf.code] == leaf[-3:] for leaf in TABLE)


def test_degree_is_the_exponent():
    assert compile_kernel(Polynomial(4), D, np.float64).struct.exponent == [4.0]
    assert compile_kernel(DotProduct(), D, np.float64).struct.exponent == [1.0]


def test_functions_of_a_distance_are_found():
    kernel = 2.0 * DotProduct() * RBF() + WhiteKernel() + Matern(nu=1.5)
    kernel *= ExpSineSquared()  # where far points may be alike
    struct = compile_kernel(kernel, D, np.float64).struct
    found = struct.code[distance_leaves(struct)]
    assert_array_equal(found, [stationary.RBF, stationary.MATERN32])


def test_bounds_follow_the_order_of_parameters():
    kernel = ConstantKernel(2.0, (0.5, 4.0)) * RBF(ARD, [(0.1, 5), (0.2, 6), (0.3, 7)])
    compiled = compile_kernel(kernel, D, np.float64)
    expected = [[0.1, 5.0], [0.2, 6.0], [0.3, 7.0], [0.5, 4.0]]
    assert_array_equal(compiled.log_bounds, np.log(expected))
    assert compiled.free.all()


def test_open_bounds_are_finite_in_float32():
    log_bounds = compile_kernel(RBF(1.0, (0.0, np.inf)), D, np.float32).log_bounds
    assert np.isfinite(log_bounds).all()
    assert 0 < np.exp(log_bounds[0, 0]) < 1e-30 and np.exp(log_bounds[0, 1]) > 1e30


def test_fixed_parameters_are_kept_exactly():
    kernel = ConstantKernel(0.1, "fixed") * RBF(ARD, "fixed") + Polynomial(2, 1.3, 0.1)
    kernel.set_params(k2__sigma_0_bounds="fixed")
    compiled = compile_kernel(kernel, D, np.float32)
    assert_array_equal(compiled.free, [False] * 4 + [True, False])
    values = np.log([*ARD, 0.1, 0.1])
    lower, upper = compiled.log_bounds[[0, 1, 2, 3, 5]].T
    assert (lower <= values).all() and (values <= upper).all()
    updated = updated_kernel(kernel, compiled.struct.params * 2)
    expected = kernel.get_params() | {"k2__length_scale": np.float64(np.float32(2.6))}
    for name in parameter_names(kernel):
        assert_array_equal(updated.get_params()[name], expected[name])


@pytest.mark.parametrize(
    "make",
    [
        lambda: DotProduct(0.0, "fixed"),
        lambda: Polynomial(sigma_0=0.0, sigma_0_bounds="fixed"),
        lambda: ArcCosine(sigma_0=0.0, sigma_0_bounds="fixed"),
        lambda: RBF() + WhiteKernel(0.0, "fixed"),
        lambda: RBF() + ConstantKernel(0.0, "fixed"),
    ],
)
def test_fixed_parameters_may_be_zero(make):
    compiled = compile_kernel(make(), D, np.float64)
    assert compiled.struct.params[-1] == 0.0 and not compiled.free[-1]
    assert np.isfinite(compiled.log_bounds).all()
    assert updated_kernel(make(), compiled.struct.params + 1.0).theta.size == len(
        make().theta
    )


@pytest.mark.parametrize(
    ("kernel", "stationary"),
    [
        (2.0 * RBF(ARD) + WhiteKernel(), True),
        ((Matern() + RationalQuadratic()) ** 2, True),
        (RBF() * ExpSineSquared(), True),
        (RBF() * (DotProduct() + 1.0), False),
        (RBF() + Polynomial(), False),
        (0.1 * ArcCosine() + RBF(), False),
    ],
)
def test_stationary(kernel, stationary):
    compiled = compile_kernel(kernel, D, np.float64)
    assert compiled.stationary is stationary
    assert kernel.is_stationary() is stationary


@pytest.mark.parametrize(
    "kernel",
    [
        PairwiseKernel(),
        1.0 * (RBF() + PairwiseKernel()),
        CompoundKernel([RBF(), RBF()]),
        Matern(nu=2.0),
        SubRBF(),
    ],
)
def test_refused_kernels(kernel):
    with pytest.raises(
        ValueError, match=r"kernel .*\(.*\) cannot be compiled: .*"
    ) as info:
        compile_kernel(kernel, D, np.float64)
    message = str(info.value)
    for name in (
        "ConstantKernel",
        "Matern(nu=0.5)",
        "Matern(nu=inf)",
        "ArcCosine(order=1)",
        "Polynomial()",
    ):
        assert name in message


@pytest.mark.parametrize("kernel", ["rbf", None, RBF, 1.0, Exponentiation("rbf", 2)])
def test_objects_that_are_no_kernels(kernel):
    with pytest.raises(TypeError, match=r"expected a kernel object of sklearn"):
        compile_kernel(kernel, D, np.float64)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            1.0 * RBF([1.0, 2.0]),
            r"kernel RBF has 2 length-scales: expected 1 or n_feat",
        ),
        (
            Polynomial(2, [1.0] * 4),
            r"kernel Polynomial has 4 length-scales: expected 1",
        ),
        (DotProduct(0.0), r"sigma_0=0.0 of kernel DotProduct: .*_bounds=\"fixed\""),
        (WhiteKernel(-1.0, "fixed"), r"noise_level=-1.0 of kernel WhiteKernel: ex"),
        (RBF(0.0, "fixed"), r"length_scale=0.0 of kernel RBF: expected positive"),
        (RBF(np.nan), r"length_scale=nan of kernel RBF: expected positive"),
        (RationalQuadratic(alpha=0.0), r"alpha=0.0 of kernel RationalQuadratic"),
        (ExpSineSquared(0.0), r"length_scale=0.0 of kernel ExpSineSquared: expected"),
        (ExpSineSquared(periodicity=-1.0), r"periodicity=-1.0 of kernel ExpSineSq"),
        (ConstantKernel(np.inf), r"constant_value=inf of kernel ConstantKernel"),
        (RBF() ** -1, r"exponent=-1 of kernel Exponentiation: expected a positive"),
        (RBF() ** 2j, r"exponent=2j of kernel Exponentiation: expected a positive"),
        (DotProduct() ** 0.5, r"exponent=0.5 .* DotProduct .*: expected an integer"),
        ((2.0 * RBF() + Polynomial()) ** 1.5, r"exponent=1.5 .* expected an integer"),
        (RBF(1.0, (2.0, 1.0)), r"length_scale=1.0 of kernel RBF has bounds .*: ex"),
        (RBF(1.0, (-1.0, 1.0)), r"length_scale=1.0 of kernel RBF has bounds .*: ex"),
        (
            OnColumns(RBF(ARD), [0, 1]),
            r"RBF has 3 length-scales: expected 1 or n_f.*=2",
        ),
        (OnColumns(RBF(), [3]), r"columns=\[3\] .*: expected positions from 0 to 2"),
        (
            OnColumns(OnColumns(RBF(), [2]), [0, 1]),
            r"\[2\] .*: expected .* from 0 to 1",
        ),
        (OnColumns(RBF(), ["a"]), r"columns=\['a'\] .* without names: expected a data"),
        (ArcCosine(2), r"order=2: expected 0 or 1"),
        (Polynomial(1.5), r"degree=1.5: expected a positive integer"),
    ],
)
def test_refused_values(kernel, message):
    with pytest.raises(ValueError, match=message):
        compile_kernel(kernel, D, np.float64)


def test_the_lengths_in_which_a_kernel_changes():
    def lengths(kernel):
        return 1.0 / inverse_lengths(compile_kernel(kernel, 2, np.float64).struct)

    assert_allclose(lengths(RBF([3.0, 5.0]) + Matern(4.0)), [3.0, 4.0])
    assert_allclose(lengths(9.0 * DotProduct()), [1.0, 1.0])
    radian = 12.0 / (2.0 * np.pi)
    assert_allclose(lengths(ExpSineSquared(7.0, 12.0) + RBF(99.0)), [radian] * 2)
    assert_allclose(lengths(RBF(99.0) * ExpSineSquared(0.3, 12.0)), [0.3 * radian] * 2)
    assert not inverse_lengths(compile_kernel(WhiteKernel(), 2, float).struct).any()


def test_units_of_steps():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    kernel = RBF(0.1) * ExpSineSquared(0.3, 0.5) + ExpSineSquared(0.3, 20.0)
    struct = compile_kernel(kernel, 2, np.float64).struct
    assert_allclose(log_units(struct, points), [1.0, 1.0, 0.1, 1.0, 1.0])
    assert_array_equal(log_units(struct, points[:1]), np.ones(5))


def test_columns_of_leaves():
    kernel = OnColumns(RBF([2.0, 4.0]) + DotProduct(), [2, 0]) * RBF(5.0)
    struct = compile_kernel(kernel, 3, np.float64).struct
    assert_array_equal(struct.slot, [[1, -1, 0], [-1] * 3, [-1] * 3, [3] * 3, [-1] * 3])
    leaves = struct.inv_scale[struct.code >= stationary.FIRST_DISTANCE]
    assert_allclose(leaves, [[0.25, 0.0, 0.5], [1.0, 0.0, 1.0], [0.2] * 3])
    assert_allclose(inverse_lengths(struct), [1.0, 0.2, 1.0])


def test_length_scales_are_those_of_the_first_leaf_of_each_column():
    otherwise = np.array([10.0, 11.0, 12.0])
    season = OnColumns(ExpSineSquared(), [0])
    kernel = season * OnColumns(RBF([2.0, 4.0]), [2, 0]) + OnColumns(RBF(3.0), [2])
    assert_allclose(length_scales(kernel, 3, otherwise), [4.0, 11.0, 2.0])
    assert_allclose(length_scales(season, 3, otherwise), otherwise)
    assert_allclose(length_scales(RBF(3.0) + kernel, 3, otherwise), [3.0] * 3)


def test_other_lengths_are_not_asked_for_where_all_columns_have_one():
    assert_allclose(length_scales(RBF(3.0), 2, np.ones(5)), [3.0, 3.0])
