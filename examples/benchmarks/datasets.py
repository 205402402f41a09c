"""Data for the examples and the slower tests.

A dataset comes from the folder named by the environment variable SKSWSGP_DATA, one file
`<name>.npz` with arrays `X` and `y`, or else from https://www.openml.org.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml

OPENML_IDS = {
    "banana": 1460,
    "credit": 42477,  # there: default-of-credit-card-clients
    "eeg": 1471,  # there: eeg-eye-state
    "kin8nm": 189,
    "mnist": 554,  # there: mnist_784
    "spam": 44,  # there: spambase
}
OFFICIAL_TRAINING = {"mnist": 60_000}  # rows that come first in the file


def load(name):
    """Load a dataset, neither scaled nor shuffled.

    Parameters
    ----------
    name : str
        Name of a file in the folder SKSWSGP_DATA, without its ending, or a key of
        `OPENML_IDS`. The folder comes first.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        Inputs as float64; the pixels of "mnist", 0 to 255, as float32.
    y : ndarray of shape (n_samples,)
        Targets as float64, or class labels as integers 0, ..., n_classes - 1.
    """
    folder = os.environ.get("SKSWSGP_DATA")
    path = Path(folder, f"{name}.npz") if folder else None
    if path is not None and path.is_file():
        with np.load(path) as file:
            X, y = file["X"], file["y"]
    elif name in OPENML_IDS:
        X, y = fetch_openml(data_id=OPENML_IDS[name], as_frame=False, return_X_y=True)
    else:
        raise ValueError(
            f"name={name!r}: expected a file of the folder SKSWSGP_DATA={folder!r} or "
            f"one of {sorted(OPENML_IDS)}, which OpenML has; set SKSWSGP_DATA to a "
            f"folder with {name}.npz, arrays X and y."
        )
    X = X.astype(np.float32 if name == "mnist" else np.float64)
    if y.dtype.kind == "f":
        return X, y.astype(np.float64)
    return X, np.unique(y, return_inverse=True)[1]  # strings in the files of OpenML


def split(n, seed=0, test_size=0.2):
    """Split rows at random.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int, default=0
        Seed of the permutation.
    test_size : float, default=0.2
        Share of the rows in the test set.

    Returns
    -------
    train : ndarray of shape (n_train,)
        Indices of the training rows: the first part of the permutation.
    test : ndarray of shape (n - n_train,)
        Indices of the test rows.
    """
    order = np.random.RandomState(seed).permutation(n)
    n_train = int((1 - test_size) * n)
    return order[:n_train], order[n_train:]


def table_of(name):
    """Return X and y of a dataset; of eeg without four rows of sensor spikes."""
    X, y = load(name)
    if name == "eeg":
        calm = (np.abs(X - np.median(X, axis=0)) < 2000).all(axis=1)
        X, y = X[calm], y[calm]
    return X, y


def parts(name, n_rows, seed):
    """Return the indices of training and test rows."""
    if name in OFFICIAL_TRAINING:
        rows = np.arange(n_rows)
        return np.split(rows, [OFFICIAL_TRAINING[name]])
    return split(n_rows, seed)
