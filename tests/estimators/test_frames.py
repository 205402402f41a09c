"""Frames of pandas, Arrow and Polars, and the columns that the estimators refuse."""

import datetime

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor

pytestmark = pytest.mark.matrix
N = 30
ESTIMATORS = [
    SWSGPRegressor(learn_kernel=False),
    SWSGPClassifier(learn_kernel=False),
    NearestNeighborGPRegressor(),
]
all_estimators = pytest.mark.parametrize(
    "model", ESTIMATORS, ids=lambda model: type(model).__name__
)


def table():
    """Return a frame of three columns of numbers, the last of whole ones, and y."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
    X["c"] = np.arange(N) % 7
    return X, (X["a"] + X["c"] > 3).astype(int)


def nullable(X):
    return X.astype({"a": "Float64", "b": "Float32", "c": "Int64"})


def arrow(X):
    pytest.importorskip("pyarrow")
    return X.convert_dtypes(dtype_backend="pyarrow")


def polars(X):
    return pytest.importorskip("polars").DataFrame(
        {name: column.to_numpy() for name, column in X.items()}
    )


FRAMES = {
    "pandas": lambda X: X,
    "nullable": nullable,
    "some nullable": lambda X: X.astype({"c": "Int64"}),
    "nullable booleans": lambda X: X.assign(c=(X["c"] > 3).astype("boolean")),
    "numbers as objects": lambda X: X.astype(object),
    "arrow": arrow,
    "polars": polars,
}


@all_estimators
@pytest.mark.parametrize("change", FRAMES.values(), ids=FRAMES)
def test_frames_of_numbers_are_read_as_numbers(model, change):
    X, y = table()
    frame = change(X)
    values = np.asarray(X, dtype=float)
    values[:, 1] = np.asarray(frame["b"], dtype=float)  # which may be shorter numbers
    values[:, 2] = np.asarray(frame["c"], dtype=float)
    expected = model.fit(values, y).predict(values)
    assert_array_equal(model.fit(frame, y).predict(frame), expected)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


@all_estimators
def test_short_and_nullable_targets_and_weights_are_read_as_numbers(model):
    X, y = table()
    weight = pd.Series(1.0 + np.arange(N) % 3)
    expected = model.fit(X, y, weight).predict(X)
    short = y.astype(np.float16), weight.to_numpy(np.float16)
    for targets, weights in (short, (y.astype("Int64"), weight.astype("Float64"))):
        found = model.fit(X, targets, weights).predict(X)
        assert_array_equal(found.astype(float), expected)


@pytest.mark.parametrize("gap", [pd.NA, pd.NaT, None, np.nan])
@pytest.mark.parametrize("model", [ESTIMATORS[0], ESTIMATORS[2]])
def test_targets_that_are_missing_are_no_fault_of_X(model, gap):
    X, y = table()
    kinds = [object] if gap is pd.NaT else [object, "Float64"]
    for kind in kinds:
        with pytest.raises(ValueError, match=r"y contains NaN in 1 of 30 .* in row 3:"):
            model.fit(X, y.astype(kind).mask(y.index == 3, gap))


DAYS = pd.date_range("2024-01-01", periods=N)
WORDS = pd.Series(list("abc") * 10)
TEXT = r"^column 'c' of X holds text or categories \(.*\): expected numbers; put OneHot"
DATES = r"^column 'c' of X holds dates or times \(.*\): expected numbers; put a Functi"
NUMBERS_AS_TEXT = r"^column 'c' of X holds numbers as text .*read such columns by pan"
DATES_AS_TEXT = r"^column 'c' of X holds dates as text .*read them by pandas.to_da"
MISSING = r"^X contains NaN in column 'c', in 2 of 30 rows: expected .*; put SimpleImp"
HOLES = np.arange(N) % 15 == 7
HOLES_OF_C = np.column_stack([0 * HOLES, 0 * HOLES, HOLES]).astype(bool)
REFUSED = {
    "text": (lambda X: X.assign(c=WORDS), TEXT),
    "numbers as text": (lambda X: X.assign(c=X["c"].astype(str)), NUMBERS_AS_TEXT),
    "numbers as objects": (
        lambda X: X.assign(c=X["c"].astype(str).astype(object)), NUMBERS_AS_TEXT
    ),
    "categories": (lambda X: X.assign(c=WORDS.astype("category")), TEXT),
    "numbers as categories": (lambda X: X.astype({"c": "category"}), TEXT),
    "ranges": (lambda X: X.assign(c=pd.cut(X["a"], 3)), TEXT),
    "one word": (lambda X: X.assign(c=[*range(N - 1), "b"]).astype(object), TEXT),
    "two faults": (lambda X: X.assign(c=WORDS, d=DAYS), TEXT),
    "text with holes": (lambda X: X.assign(c=WORDS.mask(HOLES)), TEXT),
    "dates": (lambda X: X.assign(c=DAYS), DATES),
    "dates alone": (lambda X: pd.DataFrame({"c": DAYS}), DATES),
    "dates of a zone": (lambda X: pd.DataFrame({"c": DAYS.tz_localize("UTC")}), DATES),
    "spans": (lambda X: pd.DataFrame({"c": DAYS - DAYS[0]}), DATES),
    "periods": (lambda X: X.assign(c=DAYS.to_period()), DATES),
    "dates as objects": (lambda X: X.assign(c=DAYS.date), DATES),
    "dates as text": (lambda X: X.assign(c=DAYS.astype(str)), DATES_AS_TEXT),
    "times as text": (
        lambda X: X.assign(c=(DAYS.astype(str) + " 10:30").where(~HOLES[::-1], None)),
        DATES_AS_TEXT,
    ),
    "codes with a dash": (lambda X: X.assign(c=WORDS + "-1"), TEXT),
    "dates as text in polars": (
        lambda X: polars(X.assign(c=DAYS.astype(str))), DATES_AS_TEXT
    ),
    "NaN": (lambda X: X.assign(c=X["c"].mask(HOLES)), MISSING),
    "NA": (lambda X: X.assign(c=nullable(X)["c"].mask(HOLES)), MISSING),
    "None": (lambda X: X.assign(c=X["c"].astype(object).mask(HOLES, None)), MISSING),
    "NA in objects": (lambda X: X.astype(object).mask(HOLES_OF_C, pd.NA), MISSING),
    "NaT in objects": (lambda X: X.astype(object).mask(HOLES_OF_C, pd.NaT), MISSING),
    "text in arrow": (lambda X: arrow(X.assign(c=WORDS)), TEXT),
    "dates in arrow": (lambda X: arrow(X.assign(c=DAYS)), DATES),
    "null in arrow": (lambda X: arrow(X.assign(c=X["c"].mask(HOLES))), MISSING),
    "text in polars": (lambda X: polars(X.assign(c=WORDS)), TEXT),
    "dates in polars": (lambda X: polars(X.assign(c=DAYS)), DATES),
    "NaN in polars": (lambda X: polars(X.assign(c=X["c"].mask(HOLES))), MISSING),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_the_first_column_that_is_no_number_is_named(change, message):
    X, y = table()
    bad = change(X)
    for model in ESTIMATORS:
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(bad, y)
        assert f"in front of {type(model).__name__}" in str(caught.value)
        assert "\n" not in str(caught.value)
        model.fit(X[list(bad.columns)] if len(bad.columns) == 3 else X, y)
        with pytest.raises(ValueError, match=message):
            model.predict(bad)


ARRAYS = {
    "text": (np.full((N, 2), "a"), "column 0 of X holds text or categories"),
    "lists": ([[1.0, "a"]] * N, "column 1 of X holds text or .*'a'"),
    "dates": (DAYS.to_numpy()[:, None], "column 0 of X holds dates or times"),
    "objects": ([[1.0, datetime.date(2024, 1, 1)]] * N, "column 1 of X holds dates"),
    "NaN": (np.where(np.eye(N) > 0.0, np.nan, 1.0), "NaN in column 0, in 1 of 30 rows"),
}


@pytest.mark.parametrize(("X", "message"), ARRAYS.values(), ids=ARRAYS)
def test_columns_of_arrays_have_numbers(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SWSGPRegressor().fit(X, np.arange(N))


def sparse_frame(X):
    return X.astype(pd.SparseDtype(float, 0.0))


@all_estimators
@pytest.mark.parametrize("change", [csr_array, sparse_frame], ids=["array", "frame"])
def test_sparse_tables_name_the_step_that_makes_them(model, change):
    X, y = table()
    message = r"^X is sparse .*OneHotEncoder\(sparse_output=False\).* in front of "
    with pytest.raises(TypeError, match=message + type(model).__name__):
        model.fit(change(X), y)


def test_the_advice_is_right():
    X, y = table()
    X["c"] = X["c"].mask(HOLES)
    X["d"] = WORDS
    sparse = make_column_transformer((OneHotEncoder(), ["d"]), sparse_threshold=1.0)
    model = ESTIMATORS[0]
    with pytest.raises(TypeError, match="X is sparse"):
        make_pipeline(sparse, model).fit(X, y)
    first = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["d"]), remainder="passthrough"
    )
    with pytest.raises(ValueError, match=r"NaN in column 5, .*SimpleImputer\(add_ind"):
        make_pipeline(first, model).fit(X, y)
    pipeline = make_pipeline(first, SimpleImputer(), model).fit(X, y)
    assert np.isfinite(pipeline.predict(X)).all()


def test_rows_of_different_shapes_keep_the_message_of_scikit_learn():
    model = SWSGPRegressor(random_state=0).fit(np.eye(4), np.arange(4.0))
    with pytest.raises(ValueError, match=r"inhomogeneous|could not be"):
        model.predict([np.zeros((2, 2)), np.zeros((2, 3))])
