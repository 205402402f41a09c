"""Arrays and tables of the user that are no numbers: what is wrong, and what helps."""

from contextlib import suppress

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

# How the types of columns, and of values in them, are called by NumPy, pandas, Arrow
# and Polars
KINDS = {
    "text or categories": (
        "str", "bytes", "binary", "large_", "categor", "enum", "dictionary", "interval",
    ),
    "dates or times": ("date", "time", "period", "duration"),
}  # fmt: skip
OF_DATES = (
    "put a FunctionTransformer that makes numbers of them, such as days, in front of "
    "{} in a pipeline, or leave them out"
)
ADVICE = {
    "text or categories": (
        "put OneHotEncoder(sparse_output=False, handle_unknown='ignore') for columns "
        "of few categories, TargetEncoder() for those of many, by a ColumnTransformer, "
        "in front of {} in a pipeline"
    ),
    "numbers as text": "read such columns by pandas.to_numeric in front of {}",
    "dates or times": OF_DATES,
    "dates as text": f"read them by pandas.to_datetime, and {OF_DATES}",
    "no numbers": "convert or leave out such columns in front of {}",
    "complex numbers": "put real and imaginary parts in columns in front of {}",
    "NaN": "put SimpleImputer(add_indicator=True) in front of {} in a pipeline",
    "infinity": "replace it by a number or by NaN for a SimpleImputer in front of {}",
}


def kind_of(name):
    """Return what a type of this name stands for: a key of `ADVICE`, or None."""
    for kind, starts in KINDS.items():
        if name.lower().startswith(starts):
            return kind
    return None


def require_numeric_types(X, reader):
    """Raise an error if X is sparse, or if the type of a column is not for numbers.

    Dates and numbers as text could be converted, but are not what a kernel should see.
    `reader` is the name of the estimator that reads X.
    """
    types = [X.dtype] if isinstance(X, np.ndarray) else []
    if hasattr(X, "columns"):
        types = getattr(X, "dtypes", [])
    names = [getattr(each, "name", None) or str(each) for each in types]
    if issparse(X) or (names and all(name.startswith("Sparse") for name in names)):
        raise TypeError(
            f"X is sparse ({type(X).__name__}): expected a dense table, for distances "
            "take all columns; use OneHotEncoder(sparse_output=False), or "
            f"ColumnTransformer(..., sparse_threshold=0), in front of {reader} in a "
            "pipeline, or X.toarray()."
        )
    for position, name in enumerate(names):
        kind = kind_of(name)
        if name == "object" and hasattr(X, "columns"):  # text before pandas 3
            text = first_text(X, position)
            kind, name = kind_of(type(text).__name__), f"such as {text!r}"
        if kind is not None:
            raise ValueError(described(X, position, kind, name, reader))


def require_in_memory(**columns):
    """Raise an error if an argument of this name is of dask, or has masked entries."""
    require_unmasked(**columns)
    for name, values in columns.items():
        graph = getattr(values, "__dask_graph__", None)
        if graph is not None and graph() is not None:  # others answer None
            raise TypeError(
                f"{name} is a dask collection ({type(values).__name__}): expected rows "
                f"in memory, as {name}.compute(); blocks of rows are fitted by "
                "DaskSWSGPRegressor and DaskSWSGPClassifier of skswsgp.dask, and "
                "predicted by these or DaskPredictor(model), which have no partial_fit "
                "and no lower_bound of blocks."
            )


def require_unmasked(**arrays):
    """Raise ValueError if an array by this name is masked at some entry.

    NumPy and scikit-learn drop masks, and what lies below them is read as data.
    """
    for name, values in arrays.items():
        if np.ma.is_masked(values):
            n_masked = np.ma.count_masked(values)
            raise ValueError(
                f"{name} is a masked array with {n_masked} masked entries: expected "
                "none, for the values below the mask would count as data; leave their "
                "rows out, or fill the entries."
            )


def described(X, position, kind, why, reader):
    """Return the sentence on a column that holds values of some kind."""
    if kind == "text or categories":
        kind = kind_of_text(first_text(X, position) or "")
    return (
        f"column {name_of(X, position)!r} of X holds {kind} ({why}): expected numbers; "
        f"{ADVICE[kind].format(reader)}."
    )


def first_text(X, position):
    """Return the first value of a column that is text, or None."""
    values = np.ravel(_safe_indexing(X, [position], axis=1))
    return next((str(value) for value in values if isinstance(value, str)), None)


def kind_of_text(text):
    """Return the key of `ADVICE` for a column whose first text is this one."""
    with suppress(ValueError):
        return "numbers as text" if np.isfinite(float(text)) else "text or categories"
    with suppress(ValueError):
        np.datetime64(text)
        return "dates as text" if "-" in text else "text or categories"
    return "text or categories"


def name_of(X, position):
    """Return the name of a column of a frame, or its position."""
    return X.columns[position] if hasattr(X, "dtypes") else position


def clearer_error(X, reader):
    """Return an error that tells what no table is, or names a column, or None."""
    try:
        shape = np.shape(X)
    except ValueError:  # rows of different shapes
        return None
    if len(shape) < 2:
        if any(isinstance(one, dict) for one in np.ravel(np.asarray(X, object))[:1]):
            return TypeError(
                f"X is or holds a dict ({type(X).__name__}): expected a 2D array or a "
                "frame (n_samples, n_features); use pandas.DataFrame(X)."
            )
        return ValueError(
            f"Reshape your data: X is a {type(X).__name__} of shape {shape}, expected "
            "a 2D array (n_samples, n_features); use np.reshape(X, (-1, 1)) for one "
            "column, or np.reshape(X, (1, -1)) for one row."
        )
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    for position in range(shape[1] if len(shape) == 2 else 0):
        values = np.ravel(_safe_indexing(X, [position], axis=1))
        missing = gaps(values)
        error = error_of_values(X, position, values[~missing], reader)
        if error is not None:
            return error
        infinite = np.isinf(np.where(missing, 0.0, values).astype(np.float64))
        for what, wrong in (("NaN", missing), ("infinity", infinite)):
            if wrong.any():
                return ValueError(
                    f"X contains {what} in column {name_of(X, position)!r}, in "
                    f"{wrong.sum()} of {len(wrong)} rows: expected a number in each "
                    f"row; {ADVICE[what].format(reader)}, or leave such rows out."
                )
    return None


def require_targets(y=None):
    """Raise an error if y is no dense array in memory, or if a row has no target."""
    require_in_memory(y=y)
    if issparse(y):
        raise TypeError("y is sparse: expected a dense array; use y.toarray().")
    values = np.atleast_1d(np.asarray([] if y is None else y))
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: y is complex, expected real y.")
    missing = gaps(values.ravel()).reshape(values.shape)
    rows = np.unique(missing.nonzero()[0])
    if len(rows) > 0:
        raise ValueError(
            f"y contains NaN in {len(rows)} of {len(missing)} rows, first in row "
            f"{rows[0]}: expected a target in each; leave such rows out of X and y."
        )


def gaps(values):
    """Return which of some values (n,) are NaN, None, or NA or NaT of pandas."""
    if values.dtype != object:
        return values != values
    named = [type(value).__name__ in ("NoneType", "NAType") for value in values]
    return np.array([a or b != b for a, b in zip(named, values, strict=True)], bool)


def error_of_values(X, position, values, reader):
    """Return an error that tells of the first value that is no number, or None."""
    for value in values if values.dtype.kind not in "biuf" else []:
        name = type(value).__name__
        if name.startswith("complex"):
            text = described(X, position, "complex numbers", value, reader)
            return ValueError(f"Complex data not supported: {text}")
        try:
            float(value)
        except (TypeError, ValueError) as error:
            kind = kind_of(name) or "no numbers"
            sort = TypeError if kind == "no numbers" else ValueError
            return sort(described(X, position, kind, error, reader))
    return None
