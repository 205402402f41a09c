"""Chapter 3 of the thesis: are the probabilities of convolutional networks calibrated?

LeNet on the first images of mnist, and on all of them, with 3,000 steps of Adam on
minibatches of 100 and, where there is dropout, a share of .5. Its variants are a
temperature for the probabilities (TEMP), learned on a tenth of the rows; Monte Carlo
dropout (MCD); and random features of the arc-cosine kernel (eq. 3.5 of the thesis) in
place of the dense layers, with dropout at prediction too: CNN+GP(RF). Beside them
stands the classifier of this package, on the pixels and on the last layer of LeNet. It
needs the extra `bench`.
"""

import numpy as np
import torch
from _runs import Cell, run
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

from skswsgp import SWSGPClassifier

SIDE, N_FEATURES, N_DRAWS, ROWS_AT_ONCE = 28, 500, 50, 1000


class Network(nn.Module):
    """Two convolutions of LeNet, a hidden layer, and its weights.

    The hidden layer is dense, or has random features of the arc-cosine kernel, whose
    frequencies are learned from where they were drawn.
    """

    def __init__(self, n_classes, share, random_features):
        super().__init__()
        self.share, self.random_features = share, random_features
        self.first, self.second = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.hidden = nn.Linear(800, N_FEATURES, bias=not random_features)
        self.weights = nn.Linear(N_FEATURES, n_classes)
        if random_features:  # each length-scale is the root of the number of inputs
            nn.init.normal_(self.hidden.weight, std=800**-0.5)
            nn.init.normal_(self.weights.weight)

    def features(self, X):
        """Return the hidden layer (n, N_FEATURES) of images."""
        for layer in (self.first, self.second):
            X = functional.max_pool2d(layer(self.dropped(X)).relu(), 2)
        hidden = self.hidden(self.dropped(X.flatten(1))).relu()
        if self.random_features:
            hidden = hidden * (2.0 / N_FEATURES) ** 0.5  # eq. 3.5
        return hidden

    def dropped(self, X):
        """Return X without a share of its entries, but for the images."""
        return X if X.shape[1] == 1 else functional.dropout(X, self.share)

    def forward(self, X):
        """Return the logits (n, n_classes) of images."""
        return self.weights(self.dropped(self.features(X)))


class LeNet(ClassifierMixin, BaseEstimator):
    """A network whose `dropout` is kept at prediction, as a mean over draws."""

    def __init__(
        self, dropout=0.0, random_features=False, temperature=False, n_steps=3000,
        n_jobs=1, random_state=0,
    ):  # fmt: skip
        self.dropout = dropout
        self.random_features = random_features
        self.temperature = temperature
        self.n_steps = n_steps
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X, y):
        """Train on images (n, 784) and labels; learn the temperature if asked to."""
        torch.manual_seed(self.random_state)
        torch.set_num_threads(self.n_jobs)
        self.classes_, labels = np.unique(y, return_inverse=True)
        parts = X, None, labels, None
        if self.temperature:
            options = {"stratify": labels, "random_state": self.random_state}
            parts = train_test_split(X, labels, test_size=0.1, **options)
        X, X_held, labels, labels_held = parts
        X, labels = images(X), torch.from_numpy(labels)
        self.network_ = Network(len(self.classes_), self.dropout, self.random_features)
        optimizer = torch.optim.Adam(self.network_.parameters())
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(self.n_steps):
            if len(order) < min(100, len(X)):
                order = torch.randperm(len(X))
            rows, order = order[:100], order[100:]
            optimizer.zero_grad()
            loss = functional.cross_entropy(self.network_(X[rows]), labels[rows])
            (loss + self.divergence() / len(X)).backward()
            optimizer.step()
        self.temperature_ = 1.0
        if self.temperature:
            logits = self.logits(X_held)
            grid = np.geomspace(0.2, 5.0, 101)
            held = torch.from_numpy(labels_held)
            losses = [functional.cross_entropy(logits / t, held) for t in grid]
            self.temperature_ = grid[np.argmin(losses)]
        return self

    def divergence(self):
        """Return the penalty of the weights that stands for a divergence, eq. 3.8."""
        squares = sum(torch.sum(p**2) for p in self.network_.parameters())
        return 0.5 * self.dropout * squares

    @torch.no_grad()
    def logits(self, X):
        """Return the logits (n, n_classes) of images; with dropout, of one draw."""
        return torch.cat([self.network_(x) for x in images(X).split(ROWS_AT_ONCE)])

    def predict_proba(self, X):
        """Return probabilities (n, n_classes), with dropout as a mean over draws."""
        torch.manual_seed(self.random_state)
        draws = N_DRAWS if self.dropout else 1
        logits = (self.logits(X).double() / self.temperature_ for _ in range(draws))
        return sum(functional.softmax(f, dim=1) for f in logits).numpy() / draws


class OnFeatures(LeNet):
    """The classifier of this package on the last layer of LeNet."""

    def __init__(self, classifier, n_steps=3000, n_jobs=1, random_state=0):
        super().__init__(n_steps=n_steps, n_jobs=n_jobs, random_state=random_state)
        self.classifier = classifier

    def fit(self, X, y):
        """Train LeNet, then the classifier on what it makes of the same images."""
        super().fit(X, y)
        model = clone(self.classifier).set_params(n_jobs=self.n_jobs)
        self.classifier_ = model.fit(self.features(X), y)
        return self

    @torch.no_grad()
    def features(self, X):
        """Return the last layer (n, N_FEATURES) of LeNet for images."""
        parts = [self.network_.features(x) for x in images(X).split(ROWS_AT_ONCE)]
        return torch.cat(parts).numpy()

    def predict_proba(self, X):
        """Return probabilities (n, n_classes)."""
        return self.classifier_.predict_proba(self.features(X))


def images(X):
    """Return pixels (n, 784) as images of values from 0 to 1."""
    return torch.from_numpy(np.float32(X) / 255.0).reshape(-1, 1, SIDE, SIDE)


QUICK = {"n_steps": 20}
PAPER = {"error": 0.005, "MNLL": 0.014, "ECE": 0.004, "Brier": 0.0071}
MODELS = {
    "LeNet": (LeNet(), QUICK),
    "LeNet + TEMP": (LeNet(temperature=True), QUICK),
    "LeNet + MCD": (LeNet(dropout=0.5), QUICK),
    "CNN+GP(RF)": (LeNet(dropout=0.5, random_features=True), QUICK),
    "SWSGP on LeNet": (
        OnFeatures(SWSGPClassifier(random_state=0)),
        QUICK | {"classifier__learn_kernel": False},
    ),
    "SWSGP on pixels": (SWSGPClassifier(), {"learn_kernel": False}),
}
CELLS = [
    Cell(
        "mnist", f"{n_rows}: {name}", estimator, quick=quick, rows=(n_rows, None),
        paper=PAPER if (name, n_rows) == ("CNN+GP(RF)", 60_000) else {},
    )
    for n_rows in (1_000, 60_000)
    for name, (estimator, quick) in MODELS.items()
    if n_rows < 60_000 or "SWSGP" not in name  # minutes to hours there
]  # fmt: skip


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ["error", "MNLL", "ECE", "Brier"], folds=1)
