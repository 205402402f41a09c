"""Types in the signatures of public methods, for editors and type checkers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skswsgp.solvers import Adam, Natural

Floats = NDArray[np.float64]
Neighbors = int | str | None  # of a row in a prediction
PerRow = ArrayLike | None
Result = Floats | Any  # an array, or a tuple of such where more is asked for
Seed = int | np.random.RandomState | None
Solver = str | Natural | Adam
