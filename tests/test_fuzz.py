"""The first cases of `fuzz.py`."""

import fuzz
import numpy as np
import pytest

CASES = {seed: fuzz.draw_case(np.random.default_rng(seed)) for seed in range(20)}
SINGLE = [seed for seed, (*_, model) in CASES.items() if model.dtype == "float32"]
DOUBLE = [seed for seed in CASES if seed not in SINGLE]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(DOUBLE[::2], id="even"),
        pytest.param(DOUBLE[1::2], id="odd"),
        pytest.param(SINGLE, id="float32", marks=pytest.mark.slow),
    ],
)
def test_random_fits_keep_their_promises(seeds):
    failures = [fuzz.run(seed) for seed in seeds]
    assert [line for line in failures if line is not None] == []
