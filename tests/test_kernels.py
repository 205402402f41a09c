"""Tests of the public kernel objects against their formulas in plain Python."""

import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    WhiteKernel,
)

from skswsgp.kernels import ArcCosine, OnColumns, Polynomial, with_positions

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.matrix]

KINDS = {
    "polynomial-1": (Polynomial, {"degree": 1}),
    "polynomial-3": (Polynomial, {"degree": 3}),
    "arc-cosine-0": (ArcCosine, {"order": 0}),
    "arc-cosine-1": (ArcCosine, {"order": 1}),
}
LENGTH_SCALES = {"isotropic": 1.3, "ard": [0.7, 1.9, 3.1]}


@pytest.fixture(params=KINDS)
def make(request):
    """Return a constructor of one kind of kernel."""
    kind, shape = KINDS[request.param]
    return lambda **params: kind(**shape, **params)


@pytest.fixture(params=LENGTH_SCALES)
def kernel(request, make):
    """Return each kernel, with one length-scale and with one for each feature."""
    return make(length_scale=LENGTH_SCALES[request.param], sigma_0=0.8)


@pytest.fixture
def X():
    """Return random rows."""
    return np.random.default_rng(0).normal(size=(9, 3))


@pytest.fixture
def X_degenerate():
    """Return zeros, and rows that are equal, opposite, or almost so."""
    X = np.random.default_rng(1).normal(size=(2, 3))
    return np.vstack([np.zeros((2, 3)), X, X, -X, X + 1e-9, 1e-9 - X, 1e4 * X])


def kernel_value(kernel, x, z):
    """Return k(x, z) for one pair of rows, from the formula."""
    scale = np.broadcast_to(kernel.length_scale, len(x))

    def s(x, z):
        terms = (x[d] * z[d] / scale[d] ** 2 for d in range(len(x)))
        return kernel.sigma_0**2 + math.fsum(terms)

    if isinstance(kernel, Polynomial):
        return s(x, z) ** kernel.degree
    norm = math.sqrt(s(x, x) * s(z, z))
    theta = math.acos(max(-1.0, min(1.0, s(x, z) / norm)))
    if kernel.order == 0:
        return 1 - theta / math.pi
    return norm * (math.sin(theta) + (math.pi - theta) * math.cos(theta)) / math.pi


def kernel_matrix(kernel, X, Y):
    """Return k(X, Y) by a double loop."""
    return np.array([[kernel_value(kernel, x, z) for z in Y] for x in X])


def numerical_gradient(kernel, X, step=1e-5):
    """Return the central differences of k(X, X) by theta."""
    gradient = np.empty((len(X), len(X), kernel.n_dims))
    for p, offset in enumerate(step * np.eye(kernel.n_dims)):
        above = kernel.clone_with_theta(kernel.theta + offset)(X)
        below = kernel.clone_with_theta(kernel.theta - offset)(X)
        gradient[..., p] = (above - below) / (2 * step)
    return gradient


def assert_gradient(kernel, X):
    """Check derivatives against central differences.

    Their error is of the order of step^2, and rounding divided by the step.
    """
    K, K_gradient = kernel(X, eval_gradient=True)
    assert_array_equal(K, kernel(X))
    assert K_gradient.shape == (len(X), len(X), kernel.n_dims)
    expected = numerical_gradient(kernel, X)
    assert_allclose(K_gradient, expected, rtol=1e-7, atol=1e-9 * np.abs(K).max())


def test_values_match_the_formula(kernel, X):
    Y = X[:4] + 0.5
    assert_allclose(kernel(X, Y), kernel_matrix(kernel, X, Y), rtol=1e-12)
    # on the diagonal, arccos in the formula has an error of 1e-8
    assert_allclose(kernel(X), kernel_matrix(kernel, X, X), rtol=1e-12, atol=3e-8)


def test_degenerate_rows_match_the_formula(kernel, X_degenerate):
    expected = kernel_matrix(kernel, X_degenerate, X_degenerate)
    # arccos in the formula loses half of the digits on these rows
    scale = np.sqrt(np.outer(kernel.diag(X_degenerate), kernel.diag(X_degenerate)))
    assert_allclose(kernel(X_degenerate) / scale, expected / scale, atol=3e-8)


def test_polynomial_is_a_power_of_the_dot_product(X):
    expected = (DotProduct(0.8) ** 3)(X)
    assert_allclose(Polynomial(3, sigma_0=0.8)(X), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1])
def test_arc_cosine_is_a_wide_random_layer(order, X):
    # 2 E[h(w'a) h(w'b)], w standard normal; 2e-2 is some six standard errors
    kernel = ArcCosine(order, length_scale=[0.7, 1.9, 3.1], sigma_0=0.8)
    weights = np.random.default_rng(2).normal(size=(200_000, 4))
    rows = np.insert(X[:3] / kernel.length_scale, 0, kernel.sigma_0, axis=1)
    layer = np.maximum(weights @ rows.T, 0)
    if order == 0:
        layer = np.sign(layer)
    assert_allclose(kernel(X[:3]), 2 * layer.T @ layer / len(weights), rtol=2e-2)


def test_gradient(kernel, X):
    assert_gradient(kernel, X)


@pytest.mark.parametrize("fixed", ["length_scale", "sigma_0"])
def test_gradient_with_one_parameter_fixed(kernel, X, fixed):
    free = kernel.set_params(**{f"{fixed}_bounds": "fixed"})
    assert len(free.bounds) == free.n_dims
    assert free.n_dims == (1 if fixed == "length_scale" else np.size(kernel.theta))
    assert_gradient(free, X)


def test_gradient_with_all_parameters_fixed(make, X):
    kernel = make(length_scale_bounds="fixed", sigma_0_bounds="fixed")
    K, K_gradient = kernel(X, eval_gradient=True)
    assert kernel.n_dims == 0
    assert K.shape == (9, 9)
    assert K_gradient.shape == (9, 9, 0)


def test_gradient_of_duplicates(kernel, X):
    assert_gradient(kernel, np.vstack([X, X[:2], np.zeros((2, 3))]))


def test_gradient_of_the_arc_cosine_diagonal_is_exact(X_degenerate):
    kernel = ArcCosine(0, length_scale=[0.7, 1.9, 3.1], sigma_0=0.8)
    K, K_gradient = kernel(X_degenerate, eval_gradient=True)
    assert_array_equal(np.diagonal(K), 1)
    assert_array_equal(np.diagonal(K_gradient), 0)

    kernel.order = 1  # k(x, x) = s(x, x)
    K, K_gradient = kernel(X_degenerate, eval_gradient=True)
    squares = np.insert(X_degenerate / kernel.length_scale, 0, 0.8, axis=1) ** 2
    assert_allclose(np.diagonal(K), squares.sum(axis=1), rtol=1e-14)
    expected = 2 * np.column_stack([-squares[:, 1:], squares[:, 0]])
    assert_allclose(np.diagonal(K_gradient).T, expected, rtol=1e-14)


def test_isotropic_gradient_is_the_sum_of_the_ard_gradient(make, X_degenerate):
    _, isotropic = make(length_scale=1.3)(X_degenerate, eval_gradient=True)
    K, ard = make(length_scale=[1.3] * 3)(X_degenerate, eval_gradient=True)
    summed = np.stack([ard[..., :3].sum(axis=2), ard[..., 3]], axis=2)
    assert_allclose(isotropic, summed, rtol=1e-11, atol=1e-14 * np.abs(K).max())


def test_degenerate_rows_give_finite_values(make, X_degenerate):
    for sigma_0 in (0.0, 1e-200, 1e-100, 1e-5, 1.0, 1e5):
        bounds = "fixed" if sigma_0 == 0 else (0.1, 1)
        kernel = make(sigma_0=sigma_0, sigma_0_bounds=bounds)
        K, K_gradient = kernel(X_degenerate, eval_gradient=True)
        assert np.isfinite(K).all()
        assert np.isfinite(K_gradient).all()
        assert np.isfinite(kernel(X_degenerate, X_degenerate)).all()
        diagonal = kernel.diag(X_degenerate)
        assert_allclose(np.diagonal(K), diagonal, rtol=1e-12, atol=1e-99)
        assert_array_equal(K, K.T)


def test_arc_cosine_at_zero_without_bias_is_the_limit():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    for order in (0, 1):
        zero, small = (ArcCosine(order, sigma_0=s)(X) for s in (0.0, 1e-12))
        assert_allclose(zero, small, atol=1e-11)


def test_arc_cosine_is_precise_near_duplicates():
    # sin theta = |a x b| / (|a| |b|); arccos would have an error of 1e-8
    gap = 1e-10
    K = ArcCosine(0)([[1.0], [1.0 + gap]])
    assert_allclose(1 - K[0, 1], gap / 2 / math.pi, rtol=1e-5)


def test_matrices_are_positive_semidefinite(kernel):
    X = np.random.default_rng(3).normal(size=(60, 3))
    K = kernel(np.vstack([X, X[:5], -X[:5]]))
    assert_array_equal(K, K.T)
    values = np.linalg.eigvalsh(K)
    assert values[0] > -1e-13 * values[-1]


def test_diag_is_the_diagonal(kernel, X, X_degenerate):
    for rows in (X, X_degenerate):
        assert_allclose(kernel.diag(rows), np.diagonal(kernel(rows)), rtol=1e-14)
        assert kernel.diag(rows).shape == (len(rows),)


def test_arc_cosine_diag_is_the_same_to_the_bit(X):
    for order in (0, 1):
        kernel = ArcCosine(order)
        assert_array_equal(kernel.diag(X), np.diagonal(kernel(X)))


def test_two_sets_of_rows_give_a_block_of_the_whole(kernel, X, X_degenerate):
    whole = kernel(np.vstack([X, X_degenerate]))
    n = len(X)
    atol = 1e-14 * np.abs(whole).max()
    assert_allclose(kernel(X, X_degenerate), whole[:n, n:], rtol=1e-12, atol=atol)
    assert_allclose(kernel(X_degenerate, X), whole[n:, :n], rtol=1e-12, atol=atol)
    assert_allclose(kernel(X, X), whole[:n, :n], rtol=1e-12, atol=atol)


def test_lists_integers_and_float32_are_accepted(make):
    kernel = make(length_scale=(1, 2))
    rows = [[1, 2], [3, 4], [0, -1]]
    expected = kernel(np.array(rows, dtype=float))
    for X in (rows, np.array(rows), np.array(rows, dtype=np.float32)):
        assert_array_equal(kernel(X), expected)
        assert kernel(X).dtype == np.float64


def test_one_length_scale_in_an_array_is_isotropic(make, X):
    kernel = make(length_scale=[1.3])
    assert not kernel.anisotropic
    K, K_gradient = kernel(X, eval_gradient=True)
    expected = make(length_scale=1.3)(X, eval_gradient=True)
    assert_array_equal(K, expected[0])
    assert_array_equal(K_gradient, expected[1])


def test_rows_are_not_changed(kernel, X):
    before = X.copy()
    X.flags.writeable = False
    kernel(X, eval_gradient=True)
    kernel.diag(X)
    assert_array_equal(X, before)


def test_clone_pickle_and_parameters(kernel):
    for copy in (
        clone(kernel),
        pickle.loads(pickle.dumps(kernel)),
        type(kernel)(**kernel.get_params()),
        type(kernel)().set_params(**kernel.get_params()),
    ):
        assert copy is not kernel
        assert copy == kernel
        assert repr(copy) == repr(kernel)
    assert kernel.set_params(sigma_0=2.0).sigma_0 == 2.0
    assert kernel != clone(kernel).set_params(sigma_0=1.0)
    assert not kernel.is_stationary()
    assert kernel.requires_vector_input


def test_theta_round_trip(kernel, X):
    sizes = np.size(kernel.length_scale)
    assert kernel.anisotropic == (sizes > 1)
    assert [h.name for h in kernel.hyperparameters] == ["length_scale", "sigma_0"]
    assert kernel.hyperparameter_length_scale.n_elements == sizes
    expected = np.log(np.append(kernel.length_scale, kernel.sigma_0))
    assert_allclose(kernel.theta, expected)
    assert_allclose(kernel.bounds, np.log([[1e-5, 1e5]] * (sizes + 1)))

    other = kernel.clone_with_theta(kernel.theta + 0.1)
    assert_allclose(other.theta, expected + 0.1)
    assert_allclose(other.length_scale, np.exp(0.1) * np.array(kernel.length_scale))
    back = other.clone_with_theta(kernel.theta)
    assert_allclose(back(X), kernel(X), rtol=1e-12)


def test_bounds_of_each_length_scale():
    bounds = [(0.1, 1.0), (0.2, 2.0)]
    kernel = Polynomial(length_scale=[0.5, 0.5], length_scale_bounds=bounds)
    assert_allclose(kernel.bounds[:2], np.log(bounds))


def test_repr():
    assert repr(ArcCosine()) == "ArcCosine(order=1, length_scale=1, sigma_0=1)"
    kernel = Polynomial(2, np.array([0.5, 1 / 3]), 2)
    assert repr(kernel) == "Polynomial(degree=2, length_scale=[0.5, 0.333], sigma_0=2)"


def test_sums_products_and_powers_with_other_kernels(kernel, X):
    K = kernel(X)
    composite = 2.0 * kernel * RBF(0.5) + WhiteKernel(0.1)
    assert_allclose(composite(X), 2 * K * RBF(0.5)(X) + 0.1 * np.eye(len(X)))
    assert_allclose(composite.diag(X), np.diagonal(composite(X)))
    assert_allclose((kernel**2)(X), K**2)
    assert not composite.is_stationary()
    assert_gradient(composite, X)
    assert_gradient(ConstantKernel(2.0) + kernel**2, X)


def test_fit_of_a_gaussian_process_climbs_the_likelihood(make, X):
    y = np.maximum(X @ [1.0, -1.0, 0.5], 0)
    kernel = make(length_scale=[1.0] * 3) + WhiteKernel(0.1, "fixed")
    start = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    model = GaussianProcessRegressor(kernel).fit(X, y)
    assert model.log_marginal_likelihood_value_ > start.log_marginal_likelihood_value_
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std >= 0).all()


@pytest.mark.parametrize("degree", [0, -1, 2.5, "3", None])
def test_bad_degree(degree, X):
    kernel = Polynomial(degree)  # parameters are checked in use, as in scikit-learn
    for method in (kernel, kernel.diag):
        with pytest.raises(ValueError, match=r"degree=.*: expected a positive integer"):
            method(X)


@pytest.mark.parametrize("order", [2, -1, 0.5, "1", None])
def test_bad_order(order, X):
    kernel = ArcCosine(order)
    for method in (kernel, kernel.diag):
        with pytest.raises(ValueError, match=r"order=.*: expected 0 or 1"):
            method(X)


def test_bad_length_scale(make, X):
    message = r"length_scale of shape \(.*\): expected a number or shape \(3,\)"
    for length_scale in ([1.0, 2.0], [1.0] * 4, [], [[1.0] * 3] * 2):
        kernel = make(length_scale=length_scale)
        for method in (kernel, kernel.diag):
            with pytest.raises(ValueError, match=message):
                method(X)


def test_gradient_of_two_sets_of_rows_is_refused(make, X):
    with pytest.raises(ValueError, match="expected Y=None"):
        make()(X, X, eval_gradient=True)


# --- kernels on chosen columns --------------------------------------------------------

INNER = 2.0 * RBF([0.7, 1.9]) + ExpSineSquared(0.8, 2.3)
CHOSEN = OnColumns(INNER, [2, 0])


def test_chosen_columns_are_those_of_the_inner_kernel(X):
    Y = X[:4] + 0.5
    assert_array_equal(CHOSEN(X), INNER(X[:, [2, 0]]))
    assert_array_equal(CHOSEN(X, Y), INNER(X[:, [2, 0]], Y[:, [2, 0]]))
    assert_array_equal(CHOSEN.diag(X), INNER.diag(X[:, [2, 0]]))
    assert_array_equal(OnColumns(RBF(), 1)(X.tolist()), RBF()(X[:, [1]]))
    assert_array_equal(OnColumns(OnColumns(RBF(), [1]), [2, 0])(X), RBF()(X[:, [0]]))


def test_the_gradient_by_parameters_of_chosen_columns(X):
    assert_gradient(CHOSEN, X)
    assert_gradient(CHOSEN**2 * OnColumns(RBF(0.5), [1]) + WhiteKernel(0.1), X)
    fixed = clone(CHOSEN).set_params(kernel__k1__k2__length_scale_bounds="fixed")
    assert fixed.n_dims == 3
    assert_gradient(fixed, X)


def test_chosen_columns_in_a_clone_a_pickle_and_by_theta(X):
    for copy in (clone(CHOSEN), pickle.loads(pickle.dumps(CHOSEN))):
        assert copy is not CHOSEN and copy.kernel is not CHOSEN.kernel
        assert copy == CHOSEN and repr(copy) == repr(CHOSEN)
    assert_array_equal(CHOSEN.theta, INNER.theta)
    assert_array_equal(CHOSEN.bounds, INNER.bounds)
    names = [h.name for h in CHOSEN.hyperparameters]
    assert names == [f"kernel__{h.name}" for h in INNER.hyperparameters]
    other = CHOSEN.clone_with_theta(CHOSEN.theta + 0.1)
    assert other != CHOSEN
    assert_array_equal(other(X), INNER.clone_with_theta(other.theta)(X[:, [2, 0]]))
    assert CHOSEN.get_params(deep=False) == {"kernel": INNER, "columns": [2, 0]}
    assert CHOSEN.get_params()["kernel__k2__periodicity"] == 2.3
    assert CHOSEN.is_stationary() and CHOSEN.requires_vector_input
    assert not OnColumns(DotProduct(), [0]).is_stationary()


def test_kernels_on_other_columns_differ():
    assert OnColumns(RBF(), [0, 1]) == OnColumns(RBF(), np.array([0, 1]))
    assert OnColumns(RBF(), 1) == OnColumns(RBF(), [1])
    assert OnColumns(RBF(), [0, 1]) != OnColumns(RBF(), [0])
    assert OnColumns(RBF(), [0, 1]) != OnColumns(RBF(), [1, 0])
    assert OnColumns(RBF(), [0]) != OnColumns(RBF(2.0), [0])
    assert OnColumns(RBF(), [0]) != RBF()


def test_repr_of_chosen_columns():
    assert repr(OnColumns(RBF(), ["t"])) == "OnColumns(RBF(length_scale=1), ['t'])"
    assert repr(OnColumns(RBF(), 3)) == "OnColumns(RBF(length_scale=1), [3])"


def test_a_gaussian_process_of_scikit_learn_on_chosen_columns(X):
    y = np.sin(X[:, 2]) + X[:, 0]
    kernel = CHOSEN + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0)
    model.fit(X, y)
    expected = GaussianProcessRegressor(INNER + WhiteKernel(0.1), random_state=0)
    expected.set_params(n_restarts_optimizer=1).fit(X[:, [2, 0]], y)
    assert_allclose(model.kernel_.theta, expected.kernel_.theta, rtol=1e-6)
    assert_allclose(model.predict(X + 0.1), expected.predict(X[:, [2, 0]] + 0.1))
    assert model.kernel_.k1.columns == [2, 0]


def test_names_of_columns(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    kernel = OnColumns(INNER, ["c", "a"])
    assert_array_equal(kernel(frame), CHOSEN(X))
    assert_array_equal(kernel(frame, frame[["c", "b", "a"]]), CHOSEN(X, X.copy()))
    assert_array_equal(kernel.diag(frame), CHOSEN.diag(X))
    assert_array_equal(CHOSEN(frame), CHOSEN(X))
    with pytest.raises(ValueError, match=r"\['c', 'a'\] .* came with X without names:"):
        kernel(X)
    with pytest.raises(ValueError, match=r"which has no 'd' but 'a', 'b', 'c'; corr"):
        OnColumns(RBF(), ["a", "d"])(frame)


def test_a_column_of_text_may_be_left_out(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": X[:, 0], "who": ["she"] * len(X), "u": X[:, 1]})
    expected = RBF()(X[:, [0, 1]])
    assert_array_equal(OnColumns(RBF(), ["t", "u"])(frame), expected)


def test_names_become_positions():
    kernel = 2.0 * OnColumns(RBF() + OnColumns(DotProduct(), ["c"]), ["c", "b"]) ** 2
    found = with_positions(kernel, 3, ["a", "b", "c"])
    expected = 2.0 * OnColumns(RBF() + OnColumns(DotProduct(), [0]), [2, 1]) ** 2
    assert found == expected
    assert kernel.k2.kernel.columns == ["c", "b"]
    assert with_positions(expected, 3) == expected
    for other in (RBF(), None, "rbf"):
        assert with_positions(other, 3) is other


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], r"columns=\[\] of OnColumns: expected one or more positions"),
        ([0.0], r"columns=\[0.0\] of OnColumns: expected one or more positions"),
        ([True], r"columns=\[True\] of OnColumns: expected one or more positions"),
        ([0, "b"], r"columns=\[0, 'b'\] of OnColumns: expected one or more positions"),
        (None, r"columns=\[None\] of OnColumns: expected one or more positions"),
        ([-1], r"columns=\[-1\] of OnColumns: expected positions from 0 to 2"),
        ([0, 3], r"expected positions from 0 to 2, because X has 3 columns; pass"),
        ([1, 1], r"columns=\[1, 1\] of OnColumns: expected each column once; leave"),
    ],
)
def test_bad_columns(columns, message, X):
    for method in (OnColumns(RBF(), columns), OnColumns(RBF(), columns).diag):
        with pytest.raises(ValueError, match=message):
            method(X)
