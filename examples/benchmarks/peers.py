"""Sparse Gaussian processes of GPyTorch as regressors with a budget of time.

Both follow GPyTorch's tutorials: standardised X, Matern 5/2 with a length-scale a
feature, minibatches, Adam, float32 (factors of covariances in float64); the learning
rate falls along half a cosine until the budget is spent. The budget holds everything
from the start of `fit`.
"""

import math
import warnings

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from report import clock
from sklearn.cluster import MiniBatchKMeans

ROWS_AT_ONCE = 2048  # of a prediction


class _Model(gpytorch.models.ApproximateGP):
    def __init__(self, strategy, n_features):
        super().__init__(strategy(self))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=n_features))
        self.covar_module.base_kernel.lengthscale = math.sqrt(n_features)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _Peer:
    """What the two share: standardisation, the loop, prediction.

    `seconds` are processor time for one thread, else time on the wall.
    """

    def __init__(self, seconds, *, n_threads=1, random_state=0):
        self.seconds = seconds
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Train until the budget is spent; y has mean 0 and variance 1."""
        now = clock(self.n_threads)
        started = now()
        torch.set_num_threads(self.n_threads)
        torch.manual_seed(self.random_state)
        warnings.filterwarnings("ignore", module="gpytorch|linear_operator")
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        self.scale_[self.scale_ == 0] = 1.0
        X, y = self._inputs(X), torch.tensor(y, dtype=torch.float32)
        self.likelihood_ = GaussianLikelihood()
        self.likelihood_.noise = 0.1
        self._start(X, y)
        bound = VariationalELBO(self.likelihood_, self.model_, num_data=len(y))
        rates = [(o, g, g["lr"]) for o in self.optimizers_ for g in o.param_groups]
        self.model_.train()
        self.n_steps_ = 0
        while (share := (now() - started) / self.seconds) < 1.0:
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
        self.noise_variance_ = self.likelihood_.noise.item()
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation, noise included."""
        X = self._inputs(X)
        with torch.no_grad():
            parts = [self.model_(x) for x in X.split(ROWS_AT_ONCE)]
            mean = torch.cat([part.mean for part in parts]).double().numpy()
            v = torch.cat([part.variance for part in parts]).double().numpy()
        return (mean, np.sqrt(v + self.noise_variance_)) if return_std else mean

    def _inputs(self, X):
        return torch.tensor((X - self.mean_) / self.scale_, dtype=torch.float32)


class SVGP(_Peer):
    """Natural gradients for q(u), Adam for Z (from k-means) and the kernel."""

    M, n, rate, natural_rate = 512, 1024, 0.05, 0.1

    def _start(self, X, y):
        M = min(self.M, len(X))
        means = MiniBatchKMeans(M, n_init=1, random_state=self.random_state).fit(X)
        Z = torch.tensor(means.cluster_centers_, dtype=torch.float32)
        q = gpytorch.variational.TrilNaturalVariationalDistribution(M)
        strategy = gpytorch.variational.VariationalStrategy
        self.model_ = _Model(lambda model: strategy(model, Z, q), X.shape[1])
        others = [*self.model_.hyperparameters(), *self.likelihood_.parameters()]
        self.optimizers_ = [
            gpytorch.optim.NGD(
                self.model_.variational_parameters(),
                num_data=len(y),
                lr=self.natural_rate,
            ),
            torch.optim.Adam(others, lr=self.rate),
        ]
        self.order = torch.empty(0, dtype=torch.int64)

    def _minibatch(self, X, y):
        n = min(self.n, len(y))
        if len(self.order) < n:
            self.order = torch.randperm(len(y))
        rows, self.order = self.order[:n], self.order[n:]
        return self.model_(X[rows]), y[rows]


class VNNGP(_Peer):
    """An inducing point on every row, conditioned on its k nearest predecessors.

    Neighbours are found by faiss in standardised X (GPyTorch without it takes hours).
    The mean of q(u) starts at y: from zero it takes many passes over the data.
    """

    k, n, rate = 32, 256, 0.02

    def _start(self, X, y):
        order = torch.randperm(len(y))
        self.y = y[order]
        q = gpytorch.variational.MeanFieldVariationalDistribution(len(y))
        options = {"k": self.k, "training_batch_size": self.n}

        def strategy(model):
            nearest = gpytorch.variational.NNVariationalStrategy
            return nearest(model, X[order], q, **options)

        self.model_ = _Model(strategy, X.shape[1])
        self.model_.variational_strategy.variational_params_initialized.fill_(1)
        with torch.no_grad():
            q.variational_mean.copy_(self.y)
            q._variational_stddev.fill_(0.1)
        everything = [*self.model_.parameters(), *self.likelihood_.parameters()]
        self.optimizers_ = [torch.optim.Adam(everything, lr=self.rate)]

    def _minibatch(self, X, y):
        strategy = self.model_.variational_strategy
        q = strategy(x=None)
        return q, self.y[strategy.current_training_indices]
