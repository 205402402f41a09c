"""How many steps Adam takes in a fit, and how long each is."""

import math
from typing import NamedTuple

from skswsgp._solvers.progress import half_cosine

FINAL_RATE = 0.01  # learning rate of the last step, relative to the first
STEPS_PER_BLOCK = 32  # minibatches between two checks of the neighbour lists


class Schedule(NamedTuple):
    """The steps of Adam in a fit, and the learning rate of each."""

    rate: float  # learning rate of the first step
    epochs: int  # in all
    n_steps: int  # steps in an epoch
    begin: int = 0  # the epoch from which on the rate falls faster
    phase: float = 0.0  # that of the half cosine there, from 0 to 1

    def rate_at(self, epoch, step):
        """Return the learning rate of a step of an epoch, both counted from 0.

        It falls along half a cosine to FINAL_RATE.
        """
        share = (epoch - self.begin + step / self.n_steps) / (self.epochs - self.begin)
        phase = self.phase + (1.0 - self.phase) * share
        return self.rate * (FINAL_RATE + (1.0 - FINAL_RATE) * half_cosine(phase))

    def falling(self, epoch):
        """Return the schedule whose rate falls to its end faster from an epoch on.

        It takes as many epochs for that as have passed, or those that are left, and
        falls faster once. Losses that no longer improve under a high rate say that the
        steps are too long.
        """
        if self.begin > 0:
            return self
        end, phase = min(2 * epoch, self.epochs), epoch / self.epochs
        return self._replace(begin=epoch, phase=phase, epochs=end)


def steps_per_epoch(n_rows, batch_size):
    """Return the number of minibatches that cut n_rows into equal parts."""
    return max(1, math.ceil(n_rows / batch_size))
