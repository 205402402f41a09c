"""KISS-GP of GPyTorch: inducing points on a grid, as in its tutorial.

A grid has a factor for each column, so that more than four columns leave it fewer
points a column than cubic interpolation takes.
"""

import warnings

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import GridInterpolationKernel, RBFKernel, ScaleKernel

from peers.standardized import Standardized


class _Model(gpytorch.models.ExactGP):
    def __init__(self, X, y, likelihood):
        super().__init__(X, y, likelihood)
        size = gpytorch.utils.grid.choose_grid_size(X)
        D = X.shape[1]
        kernel = ScaleKernel(RBFKernel(ard_num_dims=D))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = GridInterpolationKernel(kernel, grid_size=size, num_dims=D)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class GridGP(Standardized):
    """Steps of Adam on the likelihood of all rows."""

    n_steps, rate = 30, 0.1

    def _fit(self, X, y):
        torch.set_num_threads(self.n_threads)
        torch.manual_seed(self.random_state)
        warnings.filterwarnings("ignore", module="gpytorch|linear_operator")
        X, y = (torch.tensor(part, dtype=torch.float32) for part in (X, y))
        self.likelihood_ = gpytorch.likelihoods.GaussianLikelihood()
        self.model_ = _Model(X, y, self.likelihood_).train()
        self.likelihood_.train()
        optimizer = torch.optim.Adam(self.model_.parameters(), lr=self.rate)
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood_, self.model_)
        for _ in range(self.n_steps):
            optimizer.zero_grad()
            (-bound(self.model_(X), y)).backward()
            optimizer.step()
        self.model_.eval()
        self.likelihood_.eval()

    def _moments(self, X):
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            law = self.likelihood_(self.model_(torch.tensor(X, dtype=torch.float32)))
        return law.mean.double().numpy(), law.variance.double().numpy()
