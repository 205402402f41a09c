"""The course of training: losses, when to stop, the learning rate."""

import math
import sys
from typing import NamedTuple

FINAL_RATE = 0.01  # learning rate of the last step, relative to the first


class History:
    """Losses and scores of the rounds so far, and whether to stop."""

    def __init__(self, tol, n_iter_no_change):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.losses = []
        self.bounds = []
        self.scores = []
        self.best = math.inf
        self.since_best = 0

    def add(self, loss, bound, score):
        """Record a round; return whether it is the best so far."""
        self.losses.append(loss)
        self.bounds.append(bound)
        if score is not None:
            self.scores.append(score)
        value = loss if score is None else -score
        improved = value < self.best
        self.since_best = 0 if value < self.best - self.tol else self.since_best + 1
        self.best = min(self.best, value)
        return improved

    @property
    def stalled(self):
        """Whether no round has improved by tol for n_iter_no_change rounds."""
        return self.since_best >= self.n_iter_no_change

    def attributes(self):
        """Return the fitted attributes that describe the rounds."""
        return {
            "loss_curve_": list(self.losses),
            "validation_scores_": list(self.scores) or None,
            "n_iter_": len(self.losses),
        }


class Schedule(NamedTuple):
    """The steps of Adam in a fit, and the learning rate of each."""

    rate: float  # learning rate of the first step
    epochs: int
    n_steps: int  # steps in an epoch

    def rate_at(self, epoch, step):
        """Return the learning rate of a step of an epoch, both counted from 0.

        It falls along half a cosine to FINAL_RATE.
        """
        phase = (epoch + step / self.n_steps) / self.epochs
        return self.rate * (FINAL_RATE + (1.0 - FINAL_RATE) * half_cosine(phase))


def half_cosine(step, steps=1.0):
    """Return a weight that falls along half a cosine from 1 to 0 in some steps."""
    return 0.5 * (1.0 + math.cos(math.pi * step / steps))


def steps_per_epoch(n_rows, batch_size):
    """Return the number of minibatches that cut n_rows into equal parts."""
    return max(1, math.ceil(n_rows / batch_size))


def callers_level():
    """Return the stacklevel at which a warning points to the user's line."""
    level, frame = 1, sys._getframe(1)
    inside = ("skswsgp.", "sklearn.", "contextlib")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(inside):
        level, frame = level + 1, frame.f_back
    return level
