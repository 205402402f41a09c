"""Sparse Gaussian processes of GPyTorch: SVGP and VNNGP.

Both have a Matern 5/2 kernel with a length-scale a feature.
"""

import math

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ConstantMean
from sklearn.cluster import MiniBatchKMeans

from peers.variational import Variational


class _Model(gpytorch.models.ApproximateGP):
    def __init__(self, strategy, n_features):
        super().__init__(strategy(self))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=n_features))
        self.covar_module.base_kernel.lengthscale = math.sqrt(n_features)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGP(Variational):
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


class VNNGP(Variational):
    """An inducing point on every row, conditioned on its k nearest predecessors.

    Neighbours are found by faiss in standardised X (GPyTorch without it takes hours).
    The mean of q(u) starts at y: from zero it takes many passes over the data.
    """

    k, n, rate = 32, 256, 0.02

    def _start(self, X, y):
        import faiss  # noqa: F401 (so that it is missed here)

        order = torch.randperm(len(y))
        self._y = y[order]
        q = gpytorch.variational.MeanFieldVariationalDistribution(len(y))
        options = {"k": self.k, "training_batch_size": self.n}

        def strategy(model):
            nearest = gpytorch.variational.NNVariationalStrategy
            return nearest(model, X[order], q, **options)

        self.model_ = _Model(strategy, X.shape[1])
        self.model_.variational_strategy.variational_params_initialized.fill_(1)
        with torch.no_grad():
            q.variational_mean.copy_(self._y)
            q._variational_stddev.fill_(0.1)
        everything = [*self.model_.parameters(), *self.likelihood_.parameters()]
        self.optimizers_ = [torch.optim.Adam(everything, lr=self.rate)]

    def _minibatch(self, X, y):
        strategy = self.model_.variational_strategy
        q = strategy(x=None)
        return q, self._y[strategy.current_training_indices]
