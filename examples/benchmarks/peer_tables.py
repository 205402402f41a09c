"""The tables of `bench_peers.py`: which there are, and how they are split."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import sklearn.datasets
from datasets import load, parts, table_of
from peer_mixed import SOURCES, encoded, frame_of

REGRESSION = (
    *("powerplant", "kin8nm", "protein", "kin40k", "naval"),
    *("concrete", "energy", "red wine", "yacht", "diabetes"),
)
MIXED = tuple(SOURCES)  # regression with dates, categories and gaps
CLASSES = (
    *("eeg", "banana", "spam", "credit", "mnist", "airline"),
    *("breast cancer", "wine", "iris", "digits"),
)
PUBLIC = {"concrete", "energy", "red wine", "yacht"}  # with splits of their own
BUNDLED = {"diabetes", "breast cancer", "wine", "iris", "digits"}  # with scikit-learn
KINDS = {"regression": REGRESSION, "mixed": MIXED, "classes": CLASSES}
EVERY = REGRESSION + MIXED + CLASSES
QUICK = "diabetes", "iris"


def whole(name):
    """Return X (n_samples, n_columns), a frame where kinds are mixed, and y.

    Raises ValueError or OSError if it is neither here nor on OpenML.
    """
    if name in MIXED:
        return frame_of(name)
    if name in PUBLIC:
        return load(f"gal_{name.removeprefix('red ')}")
    if name in BUNDLED:
        maker = getattr(sklearn.datasets, f"load_{name.replace(' ', '_')}")
        return maker(return_X_y=True)
    return table_of(name)


@lru_cache(maxsize=8)  # models take turns on the splits of a table
def rows_of(name, seed, most_rows):
    """Return X and y for training, then for tests, of at most so many rows each.

    X is encoded where kinds are mixed. Raises ValueError or OSError if a table is
    neither here nor on OpenML.
    """
    X, y = whole(name)
    if name in PUBLIC:
        train, test = _public(name, len(y), seed)
    else:
        train, test = parts(name, len(y), seed)
    train, test = train[:most_rows], test[:most_rows]
    if name in MIXED:
        both = encoded(X.iloc[train], y[train], X.iloc[test], seed)
        return both[0], y[train], both[1], y[test]
    return X[train], y[train], X[test], y[test]


def _public(name, n_rows, seed):
    """Return a public split, the training rows in random order."""
    with np.load(Path(os.environ["SKSWSGP_DATA"], "gal_splits.npz")) as file:
        test = file[name.removeprefix("red ")][seed]
    train = np.setdiff1d(np.arange(n_rows), test)
    return np.random.RandomState(seed).permutation(train), test
