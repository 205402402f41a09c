"""NGBoost with its defaults: natural gradients of the likelihood of a Gaussian."""

from ngboost import NGBRegressor
from sklearn.base import BaseEstimator, RegressorMixin


class NGBoost(RegressorMixin, BaseEstimator):
    """Give means and deviations by the names of scikit-learn; one thread."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the package's model."""
        model = NGBRegressor(random_state=self.random_state, verbose=False)
        self.model_ = model.fit(X, y)
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation in units of y, noise included."""
        law = self.model_.pred_dist(X)
        return (law.loc, law.scale) if return_std else law.loc
