"""The first cases of `fuzz.py`."""

import fuzz
import pytest


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("first", range(0, 20, 5))
def test_random_fits_keep_their_promises(first):
    failures = [fuzz.run(seed) for seed in range(first, first + 5)]
    assert [line for line in failures if line is not None] == []
