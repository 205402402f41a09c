"""Changes of the data that leave fits of SWSGPRegressor equivalent, and weights."""

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
)
from small_models import (
    KERNELS,
    assert_same_bits,
    natural_model,
    small_data,
    small_model,
    unfitted,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._estimators.base import BaseSWSGP
from skswsgp._fit.encode import CheckedRows
from skswsgp._rows.data import memory_budget
from skswsgp._solvers.tuning import Tuning

FEW_EXAMPLES = settings(max_examples=5, derandomize=True, deadline=None)


@pytest.fixture(scope="module")
def exact_solution():
    """Let conjugate gradients run until rounding stops them; learn in a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        exact = {"round_tolerance": 1e-13, "final_tolerance": 1e-13}
        patch.setattr(BaseSWSGP, "_tuning", Tuning(**exact, learning_steps=10))
        yield


def each_solver(test):
    """Run a test with small models of both solvers."""
    makers = [small_model, natural_model]
    test = pytest.mark.parametrize("make", makers, ids=["adam", "natural"])(test)
    return pytest.mark.usefixtures("exact_solution")(test)


@each_solver
@FEW_EXAMPLES
@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-100, 100), sign=st.booleans())
def test_predictions_follow_scale_and_shift_of_y(make, scale, shift, sign):
    X, y = small_data(60)
    scale = -scale if sign else scale
    model = make(max_iter=3).fit(X, y)
    other = clone(model).fit(X, scale * y + shift)
    (mean, std), (mean2, std2) = (m.predict(X, return_std=True) for m in (model, other))
    # Rounding of y, relative to its spread, is 1e-16 shift / scale.
    tolerance = 1e-7 * abs(scale)
    np.testing.assert_allclose(mean2, scale * mean + shift, rtol=0, atol=tolerance)
    np.testing.assert_allclose(std2, abs(scale) * std, rtol=0, atol=tolerance)


@each_solver
@FEW_EXAMPLES
@given(shift=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)))
def test_translation_of_X_changes_nothing_under_a_stationary_kernel(make, shift):
    X, y = small_data(60)
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X + shift, y)
    first, second = model.predict(X), other.predict(X + shift)
    # Rounding of coordinates up to 1e3 is 1e-13; the condition number of K is 1e6.
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)


@each_solver
@FEW_EXAMPLES
@given(scale=st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)))
def test_units_of_X_change_nothing_under_the_default_kernel(make, scale):
    X, y = small_data(60)
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X * scale, y)
    first, second = model.predict(X), other.predict(X * scale)
    np.testing.assert_allclose(second, first, rtol=0, atol=1e-6)


@each_solver
@FEW_EXAMPLES
@given(order=st.permutations(range(4)))
def test_order_of_columns_changes_nothing(make, order):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] - np.cos(X[:, 2]) + 0.1 * rng.normal(size=60)  # else rounding grows
    model = make(max_iter=3, inducing_points="random").fit(X, y)
    other = clone(model).fit(X[:, order], y)
    first, second = model.predict(X), other.predict(X[:, order])
    # L-BFGS, which ends after some steps, sums over columns in their order
    tolerance = 1e-3 if make is natural_model else 1e-7
    np.testing.assert_allclose(second, first, rtol=0, atol=tolerance)


WEIGHT = np.r_[0.0, np.linspace(0.5, 2.0, 59)]
NOISE = np.linspace(0.01, 0.5, 60)
SOME = SWSGPRegressor(n_inducing=20, n_neighbors=10, random_state=0)
COUNTS = SWSGPRegressor(likelihood="poisson", random_state=0)
LABELS = SWSGPClassifier(random_state=0)


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (SWSGPRegressor(random_state=0), {"sample_weight": WEIGHT}),
        (SWSGPRegressor(random_state=0), {"noise_variance": NOISE}),
        (SOME, {"sample_weight": WEIGHT}),
        (COUNTS, {"exposure": 1.0 + NOISE}),
        (LABELS, {}),
        (SWSGPRegressor(solver="adam", random_state=0), {"sample_weight": WEIGHT}),
    ],
    ids=["weights", "noise", "few points", "counts", "labels", "adam"],
)
def test_order_of_rows_changes_nothing(make, rows, rng):
    X, y = small_data(60)
    if make is COUNTS:
        y = np.round(np.exp(y))
    if make is LABELS:
        y = np.where(y > np.median(y), "yes", "no")
    order = rng.permutation(60)
    shuffled = {name: values[order] for name, values in rows.items()}
    model = clone(make).fit(X, y, **rows)
    other = clone(make).fit(X[order], y[order], **shuffled)
    for name in ("inducing_points_", "inducing_mean_", "inducing_covariance_"):
        np.testing.assert_array_equal(getattr(other, name), getattr(model, name))
    if hasattr(model, "leave_one_out_"):
        for found, before in zip(
            other.leave_one_out_, model.leave_one_out_, strict=True
        ):
            if len(before) == len(order) and before.dtype.kind == "f":
                np.testing.assert_array_equal(found, before[order])


def test_copies_of_other_weights_have_an_order(rng):
    X, y = small_data(40)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    weight, order = rng.uniform(0.5, 2.0, 80), rng.permutation(80)
    model = SWSGPRegressor(random_state=0).fit(X, y, weight)
    other = SWSGPRegressor(random_state=0).fit(X[order], y[order], weight[order])
    np.testing.assert_array_equal(other.inducing_mean_, model.inducing_mean_)


def test_rows_of_a_large_memory_map_stay_where_they_are(tmp_path, rng):
    X = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=(50, 2))
    X[:] = rng.normal(size=X.shape)
    y, weight = X[:, 0] + 1.0, np.ones(50)
    in_memory = CheckedRows.of(np.array(X), y, weight).by_content()
    in_file = CheckedRows.of(np.asarray(X), y, weight)
    np.testing.assert_array_equal(in_file.by_content().numbers, in_memory.numbers)
    with sklearn.config_context(working_memory=1e-4):
        assert len(X.tobytes()) > memory_budget()
        np.testing.assert_array_equal(in_file.by_content().numbers, np.arange(50))
        small = CheckedRows.of(np.array(X), y, weight).by_content()
    np.testing.assert_array_equal(small.numbers, in_memory.numbers)


@pytest.mark.parametrize("y", [np.array(["b", "a", "c"]), np.array([2, 0, 1])])
def test_labels_have_an_order_and_objects_of_two_types_none(y):
    X, weight = np.zeros((3, 2)), np.ones(3)
    found = CheckedRows.of(X, y, weight).by_content().y
    np.testing.assert_array_equal(found, sorted(y))
    y = np.array(["b", 1, None], dtype=object)
    found = CheckedRows.of(X, y, weight).by_content().numbers
    np.testing.assert_array_equal(found, [0, 1, 2])


def test_parts_are_drawn_by_what_rows_hold(rng):
    X = rng.uniform(size=(3_000, 3))
    y = np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=3_000)
    order, model = rng.permutation(3_000), SWSGPRegressor(random_state=0)
    kernels = [
        clone(model).fit(*rows).kernel_ for rows in ((X, y), (X[order], y[order]))
    ]
    assert kernels[0] == kernels[1]


@FEW_EXAMPLES
@given(order=st.permutations(range(12)))
def test_order_of_rows_does_not_change_lower_bound(order):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    model = unfitted(KERNELS["matern"])
    bound = model.lower_bound(X[order], y[order])
    assert bound == pytest.approx(model.lower_bound(X, y), rel=1e-12)


@each_solver
@pytest.mark.parametrize("inducing_points", ["kmeans", "random"])
def test_fit_with_duplicated_rows(make, inducing_points):
    X, y = small_data(30)
    X, y = np.repeat(X, 4, axis=0), np.repeat(y, 4)
    model = make(inducing_points=inducing_points, n_inducing=100, max_iter=60)
    model.fit(X, y)
    assert len(model.inducing_points_) <= 30
    assert model.score(X, y) > 0.8


@each_solver
@pytest.mark.parametrize(("H", "own"), [(5, False), (20, True)])
def test_constant_feature_changes_nothing(make, H, own):
    # With H < M, a length-scale for the constant feature could change the moment at
    # which neighbours are searched again.
    X, y = small_data(60)
    wide = np.insert(X, 1, 7.0, axis=1)
    predictions = []
    for inputs in (X, wide):
        scale = np.ones(inputs.shape[1]) if own else 1.0
        model = make(
            kernel=ConstantKernel(1.0) * RBF(scale),
            inducing_points="random",
            n_neighbors=H,
        )
        predictions.append(model.fit(inputs, y).predict(inputs))
    np.testing.assert_allclose(*predictions, atol=1e-8)


def test_weights_in_lower_bound_act_like_repetition(rng):
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    count = rng.integers(0, 4, size=12)
    assert (count == 0).any()
    model = unfitted(KERNELS["matern"])
    expected = model.lower_bound(np.repeat(X, count, axis=0), np.repeat(y, count))
    actual = model.lower_bound(X, y, sample_weight=count)
    assert actual == pytest.approx(expected, rel=1e-12)


def test_rows_of_weight_zero_do_not_enter_the_fit():
    X, y = small_data(80)
    weight = np.r_[np.ones(60), np.zeros(20)]
    y[60:] = 1e6
    model = small_model().fit(X, y, sample_weight=weight)
    other = small_model().fit(X[:60], y[:60])
    assert_same_bits(model, other)


def test_weights_act_like_repetition():
    # Each input occurs with y near 1 and with y near -1; weights decide between them.
    rng = np.random.default_rng(0)
    X = np.tile(rng.uniform(-2, 2, size=(60, 1)), (2, 1))
    y = np.r_[np.ones(60), -np.ones(60)] + 0.1 * rng.normal(size=120)
    count = np.where(y > 0, np.where(X[:, 0] > 0, 3, 1), np.where(X[:, 0] > 0, 1, 3))
    Z = np.linspace(-2, 2, 12)[:, None]
    model = small_model(
        n_inducing=12, inducing_points=Z, max_iter=150, n_iter_no_change=150
    )
    repeated = clone(model).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    plain = clone(model).fit(X, y)
    model.fit(X, y, sample_weight=count)

    mean, std = model.predict(Z, return_std=True)
    expected, expected_std = repeated.predict(Z, return_std=True)
    # Weighted means are -0.5 and 0.5, the unweighted mean is 0, the noise about 0.9.
    assert np.abs(mean - expected).mean() < 0.1
    assert np.abs(plain.predict(Z) - expected).mean() > 0.3
    np.testing.assert_allclose(std, expected_std, rtol=0.1)
