"""xRFM, a kernel machine that learns its features, with its defaults."""

import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xrfm import xRFM

HELD_OUT = 0.2  # share of the rows that the package tunes on


class FeatureMachine(RegressorMixin, BaseEstimator):
    """Means only. The package asks for rows to tune on, taken from those of `fit`."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit float32 tensors."""
        torch.set_num_threads(self.n_threads)
        torch.manual_seed(self.random_state)
        rows = train_test_split(
            X, y[:, None], test_size=HELD_OUT, random_state=self.random_state
        )
        X, X_held, y, y_held = (torch.tensor(part).float() for part in rows)
        options = {"n_threads": self.n_threads, "random_state": self.random_state}
        self.model_ = xRFM(device="cpu", tuning_metric="mse", verbose=False, **options)
        self.model_.fit(X, y, X_held, y_held)
        return self

    def predict(self, X):
        """Return means."""
        return self.model_.predict(torch.tensor(X).float())[:, 0]


def xrfm(n_threads=1, random_state=0):
    """Return xRFM behind standardised X and y."""
    model = FeatureMachine(n_threads, random_state)
    pipeline = make_pipeline(StandardScaler(), model)
    return TransformedTargetRegressor(pipeline, transformer=StandardScaler())
