"""Save small models of this version, with what they predict.

``python tests/estimators/saved/make.py`` writes `<version>.pkl` beside this script. A
release runs it once, and `tests/estimators/test_saving.py` reads all such files.
"""

import pickle
from pathlib import Path

import numpy as np

from skswsgp import SWSGPClassifier, SWSGPRegressor, __version__


def main():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    X_new = rng.uniform(-2, 2, (4, 2))
    small = {"n_inducing": 12, "random_state": 0}
    regressor = SWSGPRegressor(**small).fit(X[:40], y[:40])
    classifier = SWSGPClassifier(**small).fit(X[:40], y[:40] > 0)
    stream = SWSGPRegressor(**small).partial_fit(X[:20], y[:20])
    calls = [
        (regressor, "predict", (X_new, True)),
        (regressor, "predict_interval", (X_new,)),
        (regressor, "sample_f", (X_new,)),
        (classifier, "predict_proba", (X_new,)),
        (stream, "predict", (X_new, True)),
    ]
    expected = [getattr(model, name)(*given) for model, name, given in calls]
    path = Path(__file__).with_name(f"{__version__}.pkl")
    path.write_bytes(pickle.dumps((X, y, calls, expected), protocol=5))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
