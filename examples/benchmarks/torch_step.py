"""The training step of the package in batched PyTorch with automatic differentiation.

A minibatch is one batch of H x H matrices. A step gathers Z_w, m_w and S_w, computes
covariances, `torch.linalg.cholesky`, eq. 13 and the divergence, and calls `backward`
and Adam. Several ways to write this were timed on a CPU, and the fastest was kept:
`torch.cdist` (not a Gram matrix), the inverse from the Cholesky factor (not triangular
solves), S_w from one product L L' (not L_w L_w'), and one fused call of Adam for all
rows (not sparse gradients).
"""

import math

import torch
from torch.nn.functional import embedding


class TorchStep:
    """Steps in PyTorch on the model and data of a `Case` of `bench_step`."""

    def __init__(self, case, n_threads=1, *, compiled=False):
        torch.set_num_threads(n_threads)
        self.case = case
        dtype = getattr(torch, case.dtype)

        def tensor(values):
            return torch.tensor(values, dtype=dtype)

        self.X, self.y = tensor(case.X), tensor(case.y[:, 0])
        self.active = torch.tensor(case.active, dtype=torch.int64)
        self.leaves = {
            "log_variance": torch.zeros((), dtype=dtype),
            "log_scale": tensor(case.length_scale).log(),
            "log_noise": tensor(math.log(case.noise_variance)),
            "m": tensor(case.mean),
        }
        S = tensor(case.covariance)
        if case.full:
            self.leaves["L"] = S.tril(-1)
            self.leaves["log_diagonal"] = S.diagonal().log().clone()
        else:
            self.leaves["log_s"] = S.log()
        self.Z = tensor(case.Z)
        if case.train_inducing:
            self.leaves["Z"] = self.Z
        for leaf in self.leaves.values():
            leaf.requires_grad_()
        # The learning rate of the timed steps of the package, too small to matter
        self.optimizer = torch.optim.Adam(self.leaves.values(), lr=1e-9, fused=True)
        self.loss = torch.compile(self._loss, dynamic=False) if compiled else self._loss
        self.minibatch = 0

    def _loss(self, X, y, active):
        """Return -sum_i (E log p(y_i | f_i) - KL_i / N)."""
        leaves = self.leaves
        variance, noise = leaves["log_variance"].exp(), leaves["log_noise"].exp()
        H, jitter = active.shape[1], self.case.jitter
        points = torch.cat([embedding(active, self.Z), X[:, None]], 1)
        points = points / leaves["log_scale"].exp()  # (n, H + 1, D)
        r = math.sqrt(5) * torch.cdist(points, points)
        tile = variance * (1 + r + r * r / 3) * torch.exp(-r)
        eye = torch.eye(H, dtype=X.dtype)
        K, k = tile[:, :H, :H] + jitter * variance * eye, tile[:, :H, H:]
        factor = torch.linalg.cholesky(K)
        inverse = torch.cholesky_inverse(factor)  # (n, H, H)
        m = embedding(active, leaves["m"])  # (n, H, 1)
        a, alpha = inverse @ k, inverse @ m
        if self.case.full:
            diagonal = torch.diag_embed(leaves["log_diagonal"].exp())
            L = leaves["L"].tril(-1) + diagonal
            S = (L @ L.mT)[active[:, :, None], active[:, None, :]]  # (n, H, H)
            V = (a * (S @ a)).sum((1, 2))
            trace, log_det = (inverse * S).sum((1, 2)), _log_det(S)
        else:
            log_s = embedding(active, leaves["log_s"])
            s = log_s.exp()
            V = (a * a * s).sum((1, 2))
            trace = (inverse.diagonal(dim1=1, dim2=2) * s[:, :, 0]).sum(1)
            log_det = log_s.sum((1, 2))
        mu, F = (a * m).sum((1, 2)), variance - (a * k).sum((1, 2))
        misfit = ((y - mu) ** 2 + F + V) / noise
        ell = -0.5 * (misfit + noise.log() + math.log(2 * math.pi))
        log_ratio = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1) - log_det
        kl = 0.5 * (trace + (m * alpha).sum((1, 2)) - H + log_ratio)
        return -(ell - kl / self.case.total_weight).sum()

    def gradients(self):
        """Return loss and derivatives for the first minibatch, as numpy arrays."""
        self.optimizer.zero_grad()
        loss = self._loss(*self._rows(0))
        loss.backward()
        grads = {name: leaf.grad.numpy() for name, leaf in self.leaves.items()}
        return loss.item(), grads

    def step(self):
        """One step of Adam on the next minibatch."""
        self.optimizer.zero_grad()
        self.loss(*self._rows(self.minibatch)).backward()
        self.optimizer.step()
        self.minibatch = (self.minibatch + 1) % (len(self.X) // self.case.n)

    def _rows(self, minibatch):
        n = self.case.n
        rows = slice(minibatch * n, (minibatch + 1) * n)
        return self.X[rows], self.y[rows], self.active[rows]


def _log_det(S):
    return 2 * torch.linalg.cholesky(S).diagonal(dim1=1, dim2=2).log().sum(1)
