"""The page of the architecture lists the stages of a default fit."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import skswsgp
from skswsgp import SWSGPClassifier, SWSGPRegressor

ROOT = Path(skswsgp.__file__).parent
PAGE = Path(__file__).parents[2] / "doc" / "developer" / "architecture.md"
MOST_STAGES = 19
FITS = [(40, False), (1_500, False), (4_000, False), (200, True), (2_000, True)]


def stages():
    """Yield number, place and numbers of calls of each line of the table."""
    line = r"(?m)^\| (\d*) ?\| [^|]+ \| `([\w/]+)` \| (\w+) \|(.*)\|$"
    for number, file, name, calls in re.findall(line, PAGE.read_text()):
        most = [int(one.strip() or 0) for one in calls.split("|")]
        yield number, (str(ROOT / f"{file}.py"), name), most


def count_calls(places, function):
    """Return how often a call of a function calls each of some places."""
    calls = dict.fromkeys(places, 0)

    def count(frame, event, _):
        place = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and place in calls:
            calls[place] += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_there_are_few_stages():
    numbers = [number for number, *_ in stages() if number]
    assert numbers == [str(1 + place) for place in range(len(numbers))]
    assert 10 < len(numbers) <= MOST_STAGES


@pytest.mark.parametrize(
    "fit",
    [0, 1, 2, 3, pytest.param(4, marks=pytest.mark.full)],  # of `FITS`
)
def test_a_default_fit_has_the_stages_of_the_page(fit):
    n, of_labels = FITS[fit]
    X, y = make_friedman1(n, n_features=6, noise=1.0, random_state=0)
    model = SWSGPRegressor(random_state=0, n_jobs=1)
    if of_labels:
        model, y = SWSGPClassifier(random_state=0, n_jobs=1), y > np.median(y)
    expected = {place: most[fit] for _, place, most in stages()}
    calls = count_calls(expected, lambda: model.fit(X, y))
    for place, most in expected.items():
        assert (1 if most else 0) <= calls[place] <= most, place
