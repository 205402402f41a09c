"""How does BoTorch optimise with a model of this package?

Draws of functions by `sample_f` are an ensemble, which BoTorch knows how to use: the
class below is all that its acquisition functions need. Each round they choose a batch
of noisy evaluations of a function of four columns from random candidates, by the
expected improvement of the whole batch or by Thompson sampling. It needs `pip install
botorch`.
"""

import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.generation import MaxPosteriorSampling
from botorch.models.ensemble import EnsembleModel
from botorch.optim import optimize_acqf_discrete
from botorch.test_functions import Hartmann

from skswsgp import SWSGPRegressor

FUNCTION = Hartmann(dim=4, noise_std=0.1, negate=True).double()
MAXIMUM = 3.13449414
N_FIRST, N_ROUNDS, BATCH, N_CANDIDATES, N_DRAWS = 40, 5, 4, 200, 64


class Draws(EnsembleModel):
    """Functions drawn from a fitted regressor, the same in every call."""

    _num_outputs = 1

    def __init__(self, regressor):
        super().__init__()
        self.regressor = regressor

    def forward(self, X):
        """Return values (..., n_draws, q, 1) at rows X (..., q, d)."""
        rows = X.reshape(-1, X.shape[-1]).numpy()
        values = torch.as_tensor(self.regressor.sample_f(rows, N_DRAWS))
        return values.reshape(*X.shape[:-1], N_DRAWS, 1).transpose(-3, -2)


def by_expected_improvement(model, candidates, best):
    """Return the batch that improves most on the best value, row after row."""
    score = qLogExpectedImprovement(model, best_f=best)
    return optimize_acqf_discrete(score, q=BATCH, choices=candidates)[0]


def by_thompson_sampling(model, candidates, best):
    """Return the candidates where draws of functions are largest."""
    return MaxPosteriorSampling(model, replacement=False)(candidates, BATCH)


def run(choose, seed=0):
    """Return how far the best row is below the maximum after each round."""
    torch.manual_seed(seed)
    X = torch.rand(N_FIRST, 4, dtype=torch.double)
    y, regrets = FUNCTION(X), []
    for _ in range(N_ROUNDS):
        regressor = SWSGPRegressor(random_state=0).fit(X.numpy(), y.numpy())
        best = torch.as_tensor(regressor.predict(X.numpy()))
        near = X[best.topk(10).indices].repeat(N_CANDIDATES // 20, 1)
        near = (near + 0.1 * torch.randn_like(near)).clamp(0.0, 1.0)
        candidates = torch.cat([torch.rand_like(near), near])
        new = choose(Draws(regressor), candidates, best.max())
        X, y = torch.cat([X, new]), torch.cat([y, FUNCTION(new)])
        regrets.append(MAXIMUM - float(FUNCTION(X, noise=False).max()))
    return np.array(regrets)


if __name__ == "__main__":
    for choose in (by_expected_improvement, by_thompson_sampling):
        print(choose.__name__, *run(choose).round(3))
