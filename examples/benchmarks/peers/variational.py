"""What Gaussian processes of GPyTorch that train for some seconds share.

All follow GPyTorch's tutorials: standardised X and y, minibatches, Adam, float32
(factors of covariances in float64); the learning rate falls along half a cosine until
the budget is spent. The budget holds everything from the start of `fit`.
"""

import math
import warnings

import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import VariationalELBO
from report import clock

from peers.standardized import Standardized

ROWS_AT_ONCE = 2048  # of a prediction


class Variational(Standardized):
    """Train for `seconds`: processor time for one thread, else time on the wall.

    Subclasses have `_start(X, y)`, which sets `model_` and `optimizers_`, and a size
    `n` of a minibatch.
    """

    def __init__(self, seconds=10.0, *, n_threads=1, random_state=0):
        super().__init__(n_threads, random_state)
        self.seconds = seconds

    def fit(self, X, y):
        """Train until the budget is spent."""
        self._now = clock(self.n_threads)
        self._started = self._now()
        super().fit(X, y)
        self.noise_variance_ = self.likelihood_.noise.item() * self.y_scale_**2
        return self

    def _fit(self, X, y):
        torch.set_num_threads(self.n_threads)
        torch.manual_seed(self.random_state)
        warnings.filterwarnings("ignore", module="gpytorch|linear_operator")
        X, y = (torch.tensor(part, dtype=torch.float32) for part in (X, y))
        self.likelihood_ = GaussianLikelihood()
        self.likelihood_.noise = 0.1
        self._order = torch.empty(0, dtype=torch.int64)
        self._start(X, y)
        bound = self._bound(len(y))
        rates = [(o, g, g["lr"]) for o in self.optimizers_ for g in o.param_groups]
        self.model_.train()
        self.n_steps_ = 0
        while (share := (self._now() - self._started) / self.seconds) < 1.0:
            for _, group, rate in rates:
                group["lr"] = rate * (0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2)
            for optimizer in self.optimizers_:
                optimizer.zero_grad()
            q, target = self._minibatch(X, y)
            (-bound(q, target)).backward()
            for optimizer in self.optimizers_:
                optimizer.step()
            self.n_steps_ += 1
        self.model_.eval()

    def _bound(self, n_rows):
        return VariationalELBO(self.likelihood_, self.model_, num_data=n_rows)

    def _minibatch(self, X, y):
        n = min(self.n, len(y))
        if len(self._order) < n:
            self._order = torch.randperm(len(y))
        rows, self._order = self._order[:n], self._order[n:]
        return self.model_(X[rows]), y[rows]

    def _moments(self, X):
        X = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            parts = [self._latent(x) for x in X.split(ROWS_AT_ONCE)]
        pairs = zip(*parts, strict=True)
        mean, v = (torch.cat(each).double().numpy() for each in pairs)
        return mean, v + self.likelihood_.noise.item()

    def _latent(self, X):
        """Return means and variances of the function."""
        q = self.model_(X)
        return q.mean, q.variance
