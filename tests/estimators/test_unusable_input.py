"""Unusable input raises an error that says what to do, in one sentence."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from helpers import ADAM, holed, make
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Matern,
    PairwiseKernel,
)
from small_models import TINY, both_estimators, each_solver, tiny_data

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.solvers import Adam, Natural

pytestmark = [pytest.mark.usefixtures("few_steps"), pytest.mark.matrix]


def assert_clear(error):
    """Check that a message is short and that no error of Numba caused it."""
    message = str(error)
    assert 20 < len(message) < 500
    assert "numba" not in message.lower()
    assert "Traceback" not in message
    cause = error
    while cause is not None:
        assert not type(cause).__module__.startswith("numba")
        cause = cause.__cause__ or cause.__context__


TEXT = r"y cannot be read as numbers \(it holds text.*\): expected .*; read text by"

# For each name: a change of X and y, the exception, and a pattern of its message.
BAD_FOR_BOTH = {
    "X one-dimensional": (
        lambda X, y: (X[:, 0], y), ValueError,
        r"X is a ndarray of shape \(40,\), expected a 2D array .*; use np.reshape\(",
    ),
    "X a list": (lambda X, y: (X[:, 0].tolist(), y), ValueError, r"a list of shape"),
    "X ragged": (lambda X, y: ([[1.0], [1.0, 2.0]], y[:2]), ValueError, "inhomogen"),
    "X None": (lambda X, y: (None, y), ValueError, r"X is a NoneType of shape \(\)"),
    "X a dict": (
        lambda X, y: (dict(enumerate(X.T)), y), TypeError,
        r"^X is or holds a dict \(dict\): expected a 2D .*; use pandas.DataFrame\(X\)",
    ),
    "X of dicts": (
        lambda X, y: (pd.DataFrame(X).to_dict("records"), y), TypeError,
        r"^X is or holds a dict \(list\): expected a 2D",
    ),
    "X three-dimensional": (lambda X, y: (X[None], y), ValueError, "dim 3"),
    "X without rows": (lambda X, y: (X[:0], y[:0]), ValueError, "0 sample"),
    "X without columns": (lambda X, y: (X[:, :0], y), ValueError, "0 feature"),
    "lengths differ": (lambda X, y: (X[:-1], y), ValueError, "numbers of samples"),
    "X NaN": (lambda X, y: (holed(np.nan)(X), y), ValueError, "X contains NaN"),
    "X inf": (
        lambda X, y: (holed(np.inf)(X), y), ValueError,
        "X contains infinity in column 0, in 1 of 40 rows: expected a number in each",
    ),
    "X two infinities": (
        lambda X, y: (holed(np.inf, -np.inf)(X), y), ValueError, "X contains infinity",
    ),
    "X complex": (
        lambda X, y: (X + 1j, y), ValueError,
        "Complex data not supported: column 0 of X holds complex .*; put real and imag",
    ),
    "X sparse": (lambda X, y: (csr_array(X), y), TypeError, "[Ss]parse"),
    "X text": (lambda X, y: (np.full(X.shape, "a"), y), ValueError, "holds text"),
    "y missing": (lambda X, y: (X, None), ValueError, "requires y"),
}  # fmt: skip
# For each name: a change of y, and a pattern of the message of the ValueError.
BAD_TARGETS = {
    "y NaN": (holed(np.nan), "y contains NaN"),
    "y infinite": (holed(-np.inf, np.inf), "y contains infinity"),
    "y complex": (lambda y: y + 1j, "[Cc]omplex"),
    "y text": (lambda y: ["a"] * len(y), TEXT),
    "y numbers as text": (lambda y: y.astype(str), TEXT),
    "y dates": (lambda y: np.arange(len(y)).astype("datetime64[D]"), "dates or times"),
    "y objects": (lambda y: np.array(["1.5", *y[1:]], dtype=object), TEXT),
    "y None": (lambda y: np.array([None, *y[1:]], dtype=object), "y contains NaN"),
    "y three-dimensional": (lambda y: np.tile(y[:, None, None], (1, 2, 2)), "dim 3"),
}
BAD_LABELS = {
    "labels NaN": (holed(np.nan), "NaN"),
    "labels in two columns": (lambda y: np.stack([y, y], axis=1), "1d array"),
    "labels continuous": (lambda y: y + 0.1 * np.arange(len(y)), "continuous"),
    "one class": (np.zeros_like, "one class"),
    "labels of two types": (
        lambda y: np.where(y > 0, "a", y.astype(object)), "of the types int, str: ex",
    ),
    "labels missing": (
        lambda y: np.where(y > 0, "a", np.array(None)), "y contains NaN in",
    ),
}  # fmt: skip


def case(estimator_class, name, change, error, match):
    name = f"{estimator_class.__name__}-{name}"
    return pytest.param(estimator_class, change, error, match, id=name)


CASES = [
    case(estimator_class, name, *rest)
    for name, rest in BAD_FOR_BOTH.items()
    for estimator_class in (SWSGPRegressor, SWSGPClassifier)
] + [
    case(
        estimator_class,
        name,
        lambda X, y, change=change: (X, change(y)),
        ValueError,
        match,
    )
    for estimator_class, changes in (
        (SWSGPRegressor, BAD_TARGETS),
        (SWSGPClassifier, BAD_LABELS),
    )
    for name, (change, match) in changes.items()
]


@pytest.mark.parametrize(("estimator_class", "change", "error", "match"), CASES)
def test_unusable_data(estimator_class, change, error, match):
    X, y = change(*tiny_data(estimator_class))
    model = make(estimator_class, **TINY)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(error, match=match) as caught:
            method(X, y)
        assert_clear(caught.value)
        assert not [name for name in vars(model) if name.endswith("_")]


def with_mask(values, masked):
    """Return a masked array of an array, whose first entry is masked or none is."""
    mask = np.zeros(np.shape(values), dtype=bool)
    mask.flat[0] = masked
    return np.ma.masked_array(values, mask)


MASKED = r"{} is a masked array with 1 masked entries: expected none"
all_estimators = pytest.mark.parametrize(
    "estimator_class", [SWSGPRegressor, SWSGPClassifier, NearestNeighborGPRegressor]
)


@all_estimators
def test_masked_entries_are_refused(estimator_class):
    X, y = tiny_data(estimator_class)
    given = {"X": X, "y": y, "sample_weight": np.ones(len(X))}
    model = estimator_class(random_state=0).fit(X, y)
    methods = [model.fit, model.score]
    if estimator_class is not NearestNeighborGPRegressor:
        methods.append(estimator_class().partial_fit)
    for name, values in given.items():
        for method in methods:
            with pytest.raises(ValueError, match=MASKED.format(name)) as caught:
                method(**given | {name: with_mask(values, True)})
            assert_clear(caught.value)
    with pytest.raises(ValueError, match=MASKED.format("X")):
        model.predict(with_mask(X, True))


@pytest.mark.parametrize("name", ["noise_variance", "exposure"])
def test_masked_values_of_rows_are_refused(name):
    X, y = tiny_data(SWSGPRegressor)
    likelihood = "poisson" if name == "exposure" else "gaussian"
    model = SWSGPRegressor(likelihood=likelihood)
    values = {name: with_mask(np.ones(len(X)), True)}
    with pytest.raises(ValueError, match=MASKED.format(name)):
        model.fit(X, np.rint(np.abs(y)), **values)


@all_estimators
def test_masks_that_hide_nothing_change_nothing(estimator_class):
    X, y = tiny_data(estimator_class)
    weight = np.ones(len(X))
    plain = estimator_class(random_state=0).fit(X, y, weight)
    unmasked = [with_mask(values, False) for values in (X, y, weight)]
    masked = estimator_class(random_state=0).fit(*unmasked)
    assert np.array_equal(masked.predict(unmasked[0]), plain.predict(X))
    assert masked.score(*unmasked) == plain.score(X, y, weight)


@both_estimators
@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (
            lambda n: -np.ones(n),
            r"sample_weight holds -1\.0: expected a positive n",
        ),
        (
            np.zeros,
            "sample_weight is zero for every row: expected at least",
        ),
        (lambda n: np.full(n, np.nan), "sample_weight holds nan: expected a positive"),
        (
            lambda n: np.resize([np.inf, -np.inf], n),
            "sample_weight holds inf: exp",
        ),
        (
            lambda n: np.ones(n - 1),
            r"sample_weight has shape \(39,\): expected \(40",
        ),
        (
            lambda n: np.ones((n, 2)),
            r"sample_weight has shape \(40, 2\): expected",
        ),
        (lambda n: np.full(n, "a"), "sample_weight cannot be read as numbers"),
    ],
    ids=["negative", "zero", "nan", "infinite", "short", "wide", "text"],
)
def test_unusable_weights(estimator_class, weight, match):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY)
    with pytest.raises(ValueError, match=match) as caught:
        model.fit(X, y, sample_weight=weight(len(X)))
    assert_clear(caught.value)
    model.fit(X, y)
    with pytest.raises(ValueError, match=match) as caught:
        model.lower_bound(X, y, sample_weight=weight(len(X)))
    assert_clear(caught.value)


@both_estimators
@pytest.mark.parametrize(
    ("dtype", "size"), [("float64", 1e160), ("float64", 1e-160), ("float32", 1e13)]
)
def test_weights_beyond_floating_point(estimator_class, dtype, size):
    X, y = tiny_data(estimator_class)
    match = f"sample_weight reaches {size:.0e}: expected".replace("+", r"\+")
    with pytest.raises(ValueError, match=match) as caught:
        make(estimator_class, **TINY, dtype=dtype).fit(X, y, np.full(len(X), size))
    assert_clear(caught.value)


# Values that a parameter refuses; the message names it.
BAD_PARAMETERS = {
    "n_inducing": [0, -1, 1.5, 4.0, True, "a", None, [4]],
    "n_neighbors": [0, -1, 1.5, 4.0, True, "a", None, [4]],
    "inducing_points": ["unknown", None],
    "covariance": ["unknown", None, True],
    "neighbor_search": ["unknown", "auto", None],
    "learn_kernel": ["local", None],
    "learn_map": ["full", None, 2],
    "x_transform": ["log", True, 1],
    "likelihood": ["unknown", None],
    "solver": ["unknown", "lbfgs", None, Adam],
    "warm_start": ["yes"],
    "device": ["unknown", "gpu"],
    "n_jobs": [0, 1.5, "a"],
    "dtype": ["float16", "unknown", int],
    "random_state": ["a", -1],
    "verbose": ["a"],
}
BAD_PARAMETERS_OF_SOLVERS = {
    "optimize_inducing": ["yes", 2],
    "kl_weight": [-1, 0, "unknown", None, np.nan, np.inf],
    "forgetting_factor": [0.0, 1.5, "auto", np.nan],
    "n_shared": [0, -1, 1.5, True, "a"],
    "batch_size": [0, -1, 1.5, "auto"],
    "learning_rate": [0, -0.1, "constant", np.nan, np.inf],
    "max_iter": [0, -1, 1.5, True],
    "tol": [-1e-3, "a", np.nan],
    "n_iter_no_change": [0, 1.5],
    "early_stopping": ["unknown", 2],
    "validation_fraction": [0.0, 1.0, -0.1, 5],
}


def check_refusal(model, name, X, y):
    """Check that a fit names the parameter and leaves no attribute."""
    with pytest.raises(ValueError, match=name) as caught:
        model.fit(X, y)
    assert_clear(caught.value)
    assert not [attribute for attribute in vars(model) if attribute.endswith("_")]


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_unusable_parameters(name):
    for value in BAD_PARAMETERS[name]:
        check_refusal(SWSGPRegressor(**{name: value}), name, *tiny_data(SWSGPRegressor))
    labels = SWSGPClassifier(**{name: BAD_PARAMETERS[name][0]})
    check_refusal(labels, name, *tiny_data(SWSGPClassifier))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_noise", 0.0),
        ("initial_noise", -1.0),
        ("initial_noise", "a"),
        ("normalize_y", "yes"),
        ("initial_noise", np.nan),
        ("initial_noise", np.inf),
    ],
)
def test_unusable_parameters_of_the_regressor(name, value):
    X, y = tiny_data(SWSGPRegressor)
    with pytest.raises(ValueError, match=name) as caught:
        make(SWSGPRegressor, **TINY | {name: value}).fit(X, y)
    assert_clear(caught.value)


@pytest.mark.parametrize(
    ("solver", "name"),
    [(solver, name) for solver in (Adam, Natural) for name in solver().get_params()],
)
def test_unusable_parameters_of_a_solver(solver, name):
    for value in BAD_PARAMETERS_OF_SOLVERS[name]:
        model = SWSGPRegressor(solver=solver(**{name: value}))
        check_refusal(model, name, *tiny_data(SWSGPRegressor))


@both_estimators
@pytest.mark.parametrize(("n", "fraction"), [(2, 0.6), (20, 0.96)])
def test_held_out_rows_must_leave_some_to_train_on(estimator_class, n, fraction):
    X, y = np.arange(n)[:, None], np.arange(n) % 2
    params = TINY | ADAM | {"early_stopping": True, "validation_fraction": fraction}
    match = f"validation_fraction={fraction} holds out all of {n} rows: expected some"
    with pytest.raises(ValueError, match=match) as caught:
        make(estimator_class, **params).fit(X, y)
    assert_clear(caught.value)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_one_row_says_that_intervals_need_more(method):
    X, y = tiny_data(SWSGPRegressor, 2)
    options = {"kernel": RBF(), "learn_kernel": False}
    with pytest.warns(UserWarning, match="^y has one row: expected two or more"):
        getattr(SWSGPRegressor(**options), method)(X[:1], y[:1])
    warnings.simplefilter("error")
    getattr(SWSGPRegressor(**options), method)(X, y)
    getattr(SWSGPRegressor(**options, normalize_y=False), method)(X[:1], y[:1])
    counts = SWSGPRegressor(**options, likelihood="poisson")
    getattr(counts, method)(X[:1], [3.0])


def test_one_row_cannot_be_held_out():
    X, y = tiny_data(SWSGPRegressor, 1)
    with pytest.raises(ValueError, match="holds out all of 1 rows") as caught:
        make(SWSGPRegressor, **TINY | ADAM | {"early_stopping": True}).fit(X, y)
    assert_clear(caught.value)


@pytest.mark.parametrize(
    ("points", "match"),
    [
        (np.zeros((5, 3)), r"inducing_points has shape \(5, 3\).*n_features=2"),
        (np.zeros(5), "inducing_points has shape"),
        (np.zeros((0, 2)), "inducing_points has shape"),
        (np.full((5, 2), np.nan), "inducing_points has 10 entries"),
        (np.full((5, 2), np.inf), "inducing_points has 10 entries"),
        (np.full((5, 2), "a"), "inducing_points"),
        (np.ones((5, 2)) + 1j, "inducing_points"),
        ([[0.0, 1.0], [2.0]], "inducing_points"),
        (np.eye(5, 2), "n_inducing=10 with inducing_points of 5 rows: expected"),
    ],
    ids="wide flat empty nan infinite text complex ragged few".split(),
)
def test_unusable_inducing_points(points, match):
    settings = TINY | {"inducing_points": points}
    for estimator_class in (SWSGPRegressor, SWSGPClassifier):
        with pytest.raises(ValueError, match=match) as caught:
            make(estimator_class, **settings).fit(*tiny_data(estimator_class))
        assert_clear(caught.value)


@pytest.mark.parametrize(
    ("kernel", "error", "match"),
    [
        (PairwiseKernel(), ValueError, "PairwiseKernel.*cannot be compiled.*Matern"),
        (RBF() + PairwiseKernel(), ValueError, "PairwiseKernel.*cannot be compiled"),
        (Matern(nu=0.7), ValueError, "nu=0.7.*cannot be compiled"),
        (RBF([1.0, 1.0, 1.0]), ValueError, "3 length-scales.*n_features=2"),
        ("rbf", TypeError, "'rbf'.*expected a kernel"),
        (RBF, TypeError, "expected a kernel"),
        (3.0, TypeError, "expected a kernel"),
        (RBF(-1.0), ValueError, "length_scale=-1.0"),
        (RBF(np.nan), ValueError, "length_scale=nan"),
        (ConstantKernel(0.0) * RBF(), ValueError, "constant_value=0.0"),
        (RBF(1.0, (5.0, 2.0)), ValueError, "bounds"),
    ],
)
def test_unusable_kernels(kernel, error, match):
    for estimator_class in (SWSGPRegressor, SWSGPClassifier):
        with pytest.raises(error, match=match) as caught:
            make(estimator_class, kernel, **TINY).fit(*tiny_data(estimator_class))
        assert_clear(caught.value)


def test_announced_classes_of_two_types():
    X, y = tiny_data(SWSGPClassifier)
    classes = np.array([0, "a"], dtype=object)
    with pytest.raises(ValueError, match="labels of the types int, str") as caught:
        make(SWSGPClassifier, **TINY).partial_fit(X, y, classes=classes)
    assert_clear(caught.value)


@both_estimators
@pytest.mark.parametrize("method", ["predict", "predict_proba", "lower_bound", "score"])
def test_not_fitted(estimator_class, method):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY)
    if not hasattr(model, method):
        pytest.skip("a regressor has no probabilities")
    arguments = (X,) if method.startswith("predict") else (X, y)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, method)(*arguments)


@both_estimators
def test_unusable_n_neighbors_in_predict(estimator_class):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY).fit(X, y)
    for n_neighbors in (0, -1, 1.5, "a", True, False):
        with pytest.raises(ValueError, match=f"n_neighbors={n_neighbors!r}") as caught:
            model.predict(X, n_neighbors=n_neighbors)
        assert_clear(caught.value)


@pytest.mark.parametrize(
    ("shape", "other", "expected"),
    [
        ((40,), (40, 1), r"\(n_samples,\)"),
        ((40, 1), (40,), r"\(n_samples, 1\)"),
        ((40, 2), (40, 3), r"\(n_samples, 2\)"),
    ],
)
def test_lower_bound_refuses_another_shape_of_y(shape, other, expected):
    X, _ = tiny_data(SWSGPRegressor)
    y = np.resize(X, shape) + np.random.default_rng(1).normal(size=shape)
    model = make(SWSGPRegressor, **TINY).fit(X, y)
    came = str(other).replace("(", r"\(").replace(")", r"\)")
    match = f"y has shape {came}: expected {expected} as in fit; "
    with pytest.raises(ValueError, match=match) as caught:
        model.lower_bound(X, np.resize(X, other))
    assert_clear(caught.value)


@both_estimators
def test_unusable_X_in_predict(estimator_class):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY).fit(X, y)
    for change, error, match in (
        (lambda X: X[:, :1], ValueError, "features"),
        (lambda X: X[0], ValueError, "2D array"),
        (holed(np.nan), ValueError, "NaN"),
        (holed(np.inf, -np.inf), ValueError, "infinity"),
        (lambda X: X[:0], ValueError, "0 sample"),
        (lambda X: X + 1j, ValueError, "Complex"),
        (csr_array, TypeError, "[Ss]parse"),
    ):
        with pytest.raises(error, match=match) as caught:
            model.predict(change(X))
        assert_clear(caught.value)


@both_estimators
def test_prediction_refuses_n_jobs_zero(estimator_class):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY).fit(X, y).set_params(n_jobs=0)
    for method in (model.predict, lambda X: model.lower_bound(X, y)):
        with pytest.raises(ValueError, match="n_jobs=0: expected a number") as caught:
            method(X)
        assert_clear(caught.value)


@both_estimators
@pytest.mark.parametrize(
    ("name", "value"), [("dtype", "float16"), ("n_jobs", "a"), ("device", "gpu")]
)
def test_prediction_refuses_what_fit_refuses(estimator_class, name, value):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY).fit(X, y).set_params(**{name: value})
    for method in (model.predict, lambda X: model.lower_bound(X, y)):
        with pytest.raises(ValueError, match=f"The '{name}' parameter of") as caught:
            method(X)
        assert_clear(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [("bernoulli", "softmax"), ("softmax", "auto"), ("bernoulli", "logit")],
)
def test_a_fitted_model_refuses_another_likelihood(before, after):
    X, y = tiny_data(SWSGPClassifier)
    model = make(SWSGPClassifier, **TINY, likelihood=before).fit(X, y)
    model.set_params(likelihood=after, warm_start=True)
    match = f"likelihood='{after}' for a model that was fitted with '{before}': expec"
    for method in (lambda X, y: model.predict(X), model.lower_bound, model.fit):
        with pytest.raises(ValueError, match=match) as caught:
            method(X, y)
        assert_clear(caught.value)


@both_estimators
@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float64", size) for size in (1e300, 1e155, 1e-160)]
    + [("float32", size) for size in (1e40, 1e30, 1e14, 1e-100)],
)
def test_units_of_X_beyond_floating_point(estimator_class, dtype, size):
    X, y = tiny_data(estimator_class)
    model = make(estimator_class, **TINY, dtype=dtype)
    with pytest.raises(ValueError, match="feature 1 of X has a spread of") as caught:
        model.fit(X * [1.0, size], y)
    assert_clear(caught.value)
    assert not [name for name in vars(model) if name.endswith("_")]


@both_estimators
@pytest.mark.parametrize(("dtype", "far"), [("float64", 1e200), ("float32", 1e20)])
def test_one_row_beyond_floating_point(estimator_class, dtype, far):
    X, y = tiny_data(estimator_class)
    X[3, 1] = -far
    match = f"values up to {far:.0e}: expected".replace("+", r"\+")
    with pytest.raises(ValueError, match=match) as caught:
        make(estimator_class, **TINY, dtype=dtype).fit(X, y)
    assert_clear(caught.value)


@each_solver
def test_one_row_of_one_class(solver):
    X, y = tiny_data(SWSGPClassifier, 1)
    with pytest.raises(ValueError, match="y holds one class only") as caught:
        make(SWSGPClassifier, **solver).fit(X, y)
    assert_clear(caught.value)


@both_estimators
def test_sparse_targets_are_refused(estimator_class):
    X, y = tiny_data(estimator_class)
    sparse, model = csr_array(y[:, None]), make(estimator_class, **TINY).fit(X, y)
    methods = [model.fit, model.partial_fit, model.score, model.lower_bound]
    for method in methods:
        with pytest.raises(TypeError, match="y is sparse: expected a dense array; use"):
            method(X, sparse)


NO_TARGETS = "y contains NaN in 1 of 40 rows, first in row 3: expected a target in each"


@all_estimators
def test_scores_say_what_is_wrong_with_targets_and_weights(estimator_class):
    X, y = tiny_data(estimator_class)
    model, gaps = estimator_class(random_state=0).fit(X, y), y.astype(object)
    gaps[3] = pd.NA
    weight = np.where(np.arange(40) == 3, np.nan, 1.0)
    for given, match in (
        ((gaps, None), NO_TARGETS),
        ((pd.Series(gaps).astype("Float64"), None), NO_TARGETS),
        (
            (y, weight),
            "sample_weight holds nan: expected a positive number",
        ),
        ((y, np.ones(3)), r"sample_weight has shape \(3,\): expected \(40,\)"),
    ):
        with pytest.raises(ValueError, match=match) as caught:
            model.score(X, *given)
        assert_clear(caught.value)
    zero = np.where(np.arange(40) == 3, 0.0, 1.0)
    rest = np.delete(X, 3, axis=0), np.delete(y, 3)
    assert model.score(X, y, zero) == pytest.approx(model.score(*rest))


def test_scores_of_text_are_refused():
    X, y = tiny_data(SWSGPRegressor)
    model = make(SWSGPRegressor, **TINY).fit(X, y)
    with pytest.raises(ValueError, match=TEXT):
        model.score(X, y.astype(str))


def test_labels_of_two_types_are_refused_after_a_fit_as_well():
    X, y = tiny_data(SWSGPClassifier)
    model = make(SWSGPClassifier, **TINY).fit(X, y)
    mixed = np.where(y > 0, "a", y.astype(object))
    for method in (model.score, model.lower_bound, model.partial_fit):
        with pytest.raises(ValueError, match="labels of the types int, str: expected"):
            method(X, mixed)


def test_a_label_of_another_type_is_told_from_one_of_the_fit():
    X, y = tiny_data(SWSGPClassifier)
    model = make(SWSGPClassifier, **TINY).fit(X, y)
    for method in (model.lower_bound, model.partial_fit):
        with pytest.raises(
            ValueError, match="y holds the label '0': expected one of 0"
        ):
            method(X, y.astype(str))


def test_weights_of_classes_that_are_all_zero_are_named():
    X, y = tiny_data(SWSGPClassifier)
    model = make(SWSGPClassifier, **TINY, class_weight={0: 0.0, 1: 0.0})
    with pytest.raises(ValueError, match="class_weight is zero for every row: exp"):
        model.fit(X, y)


@pytest.mark.parametrize(
    "classes", [2, "ab", [0], [0, 1, np.nan], [0, None, 1]], ids=str
)
def test_unusable_announced_classes(classes):
    X, y = tiny_data(SWSGPClassifier)
    match = r"^classes=.*: expected a list of two or more labels"
    with pytest.raises(ValueError, match=match) as caught:
        make(SWSGPClassifier, **TINY).partial_fit(X, y, classes=classes)
    assert_clear(caught.value)


@pytest.mark.parametrize(
    ("coverage", "advice"),
    [
        (90, "use 0.9 in place of percents"),
        (0.0, "use 0.95 for"),
        ("a", "use 0.95 for"),
    ],
)
def test_coverages_that_are_no_probabilities(coverage, advice):
    X, y = tiny_data(SWSGPRegressor)
    model = make(SWSGPRegressor, **TINY).fit(X, y)
    match = f"coverage={coverage!r}: expected a number above 0 and below 1; {advice}"
    with pytest.raises(ValueError, match=match):
        model.predict_interval(X, coverage=coverage)


def test_quantiles_in_percents():
    X, y = tiny_data(SWSGPRegressor)
    model = make(SWSGPRegressor, **TINY).fit(X, y)
    match = r"quantiles=\[5, 95\]: expected .*; use \[0\.05, 0\.95\] in place of per"
    with pytest.raises(ValueError, match=match):
        model.predict(X, quantiles=[5, 95])
    with pytest.raises(ValueError, match=r"use \[0\.01, 0\.5\] in place of percents"):
        model.predict(X, quantiles=[1, 50])
    with pytest.raises(ValueError, match=r"\[0\.1\]\]: expected a number or a list"):
        model.predict(X, quantiles=[[0.1, 0.9], [0.1]])
    found = model.predict(X, quantiles=pd.Series([Decimal("0.1"), 0.5]))
    np.testing.assert_array_equal(found, model.predict(X, quantiles=[0.1, 0.5]))


def test_one_number_weighs_all_rows_alike():
    X, y = tiny_data(SWSGPRegressor)
    first, other = (
        make(SWSGPRegressor, **TINY).fit(X, y, sample_weight=weight)
        for weight in (2.0, np.full(len(X), 2.0))
    )
    np.testing.assert_array_equal(first.predict(X), other.predict(X))
