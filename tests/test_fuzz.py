"""The first cases of `fuzz.py`."""

import fuzz
import pytest


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (0, 4),
        (5, 9),
        (10, 11),
        pytest.param(12, 12, marks=pytest.mark.slow),  # compiles Adam in float32
        (13, 19),
    ],
)
def test_random_fits_keep_their_promises(first, last):
    failures = [fuzz.run(seed) for seed in range(first, last + 1)]
    assert [line for line in failures if line is not None] == []
