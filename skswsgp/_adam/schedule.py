"""How many steps Adam takes in a fit, and how long each is."""

import math
from typing import NamedTuple

from skswsgp._solvers.progress import half_cosine

FINAL_RATE = 0.01  # learning rate of the last step, relative to the first


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


def steps_per_epoch(n_rows, batch_size):
    """Return the number of minibatches that cut n_rows into equal parts."""
    return max(1, math.ceil(n_rows / batch_size))
